"""What a request states itself, without any filter: its resources, its traits, and what Nova translates into traits.

The translation is Nova's (``nova/scheduler/utils.py``, ``ResourceRequest``). A value that Nova does not know is an
error there, and here: the query must not ask for less than the user did.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import os_resource_classes as orc

from os_prefilter.common.quoting import shown
from os_prefilter.conf.options import Options
from os_prefilter.errors import ImpossibleCombination, MalformedRequest
from os_prefilter.request.cpu_pinning import cpu_resources
from os_prefilter.request.extra_specs import LARGEST_AMOUNT, is_resource_class, resource_amount, trait_key
from os_prefilter.request.nova_objects import field_of
from os_prefilter.request.requirements import UNSUFFIXED, Requirement
from os_prefilter.request.row_values import Questions, ask, chosen
from os_prefilter.request.view import Request
from os_prefilter.vocabulary import BY_NAME, ROWS
from os_prefilter.vocabulary.model import trait_named

BY_REQUEST = "request"
"""The ``filter`` of a requirement that the request states itself."""

_AS_NOVA = Options(reject_unknown_values=True)
# Nova's query asks for secure boot beside a BIOS, too: that this makes no sense, filters and the late check say.
_QUESTIONS = Questions(
    replace(row, never_with={}) if row.name == "secure_boot" else row for row in ROWS if "query" in row.asked_by
)
_MEMORY_ENCRYPTION = BY_NAME["mem_encryption"]
_ENCRYPTION_MODEL = BY_NAME["mem_encryption_model"]
_MACHINE = "hw_machine_type"
_ENCRYPTED_MACHINE = "q35"
_PMEM = "hw:pmem"
# Nova's database keeps 255 characters of an extra spec; each label costs time.
_LONGEST_PMEM = 4096


def stated_requirements(request: Request) -> tuple[Requirement, ...]:
    """Return all traits that a request states itself: who asked for them, and why.

    :raises RequestRejected: for a value that Nova would reject, or a flavor and an image that contradict each other.
    """
    asked = (*written_requirements(request), *ask(request, _QUESTIONS, _AS_NOVA, UNSUFFIXED).asked)
    _check_encrypted_machine(request)
    return tuple(item._replace(filter=BY_REQUEST) for item in asked)


def _check_encrypted_machine(request: Request) -> None:
    """Raise ImpossibleCombination as Nova refuses it: by a part of the machine type's name, and only if it has one."""
    machine = request.image_property(_MACHINE)
    if machine is None or _ENCRYPTED_MACHINE in str(machine):
        return
    model = chosen(request, _ENCRYPTION_MODEL, _AS_NOVA, [])
    if model:
        raise ImpossibleCombination(model.source, f"image property {_MACHINE}={shown(machine)}")


def written_requirements(request: Request) -> tuple[Requirement, ...]:
    """Return the traits that a request names: in its flavor, its image, and the groups that it was given."""
    return (*_written_in_flavor(request), *_written_in_image(request), *_brought_by_groups(request))


def _written_in_flavor(request: Request) -> Iterable[Requirement]:
    for suffix, group in request.flavor_groups.items():
        for required, traits in ((True, group.required), (False, group.forbidden)):
            for trait in sorted(traits):
                source = f"flavor extra spec {trait_key(trait, suffix)}={'required' if required else 'forbidden'}"
                yield Requirement(trait_named(trait), required, suffix or UNSUFFIXED, source)


def _written_in_image(request: Request) -> Iterable[Requirement]:
    for trait in request.image_traits:
        yield Requirement(trait_named(trait), True, UNSUFFIXED, f"image property trait:{trait}=required")


def _brought_by_groups(request: Request) -> Iterable[Requirement]:
    for suffix, group in request.requested_groups.items():
        for required, traits in ((True, group.required), (False, group.forbidden)):
            for trait in sorted(traits):
                yield Requirement(trait_named(trait), required, suffix, f"request group {suffix}")


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
    encryption = chosen(request, _MEMORY_ENCRYPTION, _AS_NOVA, [])
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
