"""The resources that the unsuffixed request group asks for, by Nova's rules (``nova/scheduler/utils.py``)."""

from collections import Counter
from typing import Any

import os_resource_classes as orc

from os_prefilter.errors import MalformedRequest
from os_prefilter.request.cpu_pinning import cpu_resources
from os_prefilter.request.nova_objects import field_of
from os_prefilter.request.row_values import chosen
from os_prefilter.request.view import Request
from os_prefilter.vocabulary import BY_NAME
from os_prefilter.vocabulary.model import UnknownValues
from os_prefilter.vocabulary.resource_classes import LARGEST_AMOUNT, is_resource_class, resource_amount

_MEMORY_ENCRYPTION = BY_NAME["mem_encryption"]
_PMEM = "hw:pmem"
# Nova's database keeps 255 characters of an extra spec; each label costs time.
_LONGEST_PMEM = 4096


def unsuffixed_resources(request_spec: Any, request: Request) -> dict[str, int]:
    """Return what the group without a suffix asks for, by resource class; MiB and GiB as in the flavor.

    :raises MalformedRequest: for an amount that Placement could not store.
    """
    groups = (*request.flavor_groups.values(), *request.requested_groups.values())
    named = {name for group in groups for name in group.resources}
    unsuffixed = request.flavor_groups.get("")
    resources = dict(unsuffixed.resources) if unsuffixed else {}
    flavor = field_of(request_spec, "flavor")
    vcpus = _amount(flavor, "vcpus")
    pinned = cpu_resources(request, vcpus)
    resources |= pinned
    if not pinned and not named & {orc.VCPU, orc.PCPU}:
        resources[orc.VCPU] = vcpus
    if orc.MEMORY_MB not in named:
        resources[orc.MEMORY_MB] = _amount(flavor, "memory_mb")
    if orc.DISK_GB not in named:
        resources[orc.DISK_GB] = _disk_gb(flavor, request)
    encryption = chosen(request, _MEMORY_ENCRYPTION, UnknownValues.REJECT, [])
    if encryption and encryption.value == "true":
        resources[orc.MEM_ENCRYPTION_CONTEXT] = 1
    resources |= _persistent_memory(request)
    return {name: amount for name, amount in resources.items() if amount}


def _persistent_memory(request: Request) -> Counter[str]:
    """Return the namespaces of persistent memory, by the class that Nova's operator made of each label."""
    text = str(request.extra_spec(_PMEM) or "")
    if len(text) > _LONGEST_PMEM:
        raise MalformedRequest(f"flavor extra spec {_PMEM}", text, f"labels in at most {_LONGEST_PMEM} characters")
    labels = filter(None, (label.strip() for label in text.split(",")))
    classes = Counter(orc.normalize_name(f"PMEM_NAMESPACE_{label}") for label in labels)
    for name in classes:
        if not is_resource_class(name):
            raise MalformedRequest(f"flavor extra spec {_PMEM}", text, "labels that name resource classes")
    return classes


def _disk_gb(flavor: Any, request: Request) -> int:
    root = 0 if request.boots_from_volume else _amount(flavor, "root_gb")
    # Swap is in MiB and takes whole GiB.
    total = root + _amount(flavor, "ephemeral_gb") + -(-_amount(flavor, "swap") // 1024)
    return _checked("the flavor's disks together", total)


def _amount(flavor: Any, name: str) -> int:
    value = field_of(flavor, name, 0)
    return _checked(f"flavor field {name}", resource_amount(value), value)


def _checked(source: str, amount: int | None, value: object = None) -> int:
    if amount is None or not 0 <= amount <= LARGEST_AMOUNT:
        raise MalformedRequest(source, amount if value is None else value, f"a whole number from 0 to {LARGEST_AMOUNT}")
    return amount
