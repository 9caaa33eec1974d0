# SPDX-License-Identifier: Apache-2.0

"""Resources of the unsuffixed request group, by Nova's rules.

The rules are those of ``nova/scheduler/utils.py``.
"""

from __future__ import annotations

from collections import Counter

import os_resource_classes as orc

from os_prefilter.common.errors import MalformedRequest
from os_prefilter.common.placement_values import (
    LARGEST_AMOUNT,
    is_resource_class,
    resource_amount,
)
from os_prefilter.request.values import value_of
from os_prefilter.request.view import Request
from os_prefilter.vocabulary import BY_NAME
from os_prefilter.vocabulary.model import as_boolean

_MEMORY_ENCRYPTION = BY_NAME["mem_encryption"]
_PMEM = "hw:pmem"
# Nova's database keeps 255 characters of an extra spec; each label costs time.
_LONGEST_PMEM = 4096
_CPU_POLICY = BY_NAME["cpu_policy"]
_EMULATOR_THREADS = BY_NAME["emulator_threads_policy"]
_DEDICATED_MASK = "hw:cpu_dedicated_mask"
_REALTIME_MASK = "hw:cpu_realtime_mask"
_REALTIME_MASK_OF_IMAGE = "hw_cpu_realtime_mask"
# A field of the flavor, and the classes of the host's root provider that it
# requests.
_OF_FLAVOR = {
    "memory_mb": frozenset((orc.MEMORY_MB,)),
    "vcpus": frozenset((orc.VCPU, orc.PCPU)),
}

DEVICE_PROFILE = "device_profile_"
"""Prefix of the suffixes of Cyborg's groups.

``device_profile_<number>``, with the UUID of the port that brought it
(``nova/accelerator/cyborg.py``).
"""

# No host has more; a mask must not cost the scheduler its memory.
_MOST_CPUS = 65536


def _written_classes(request: Request) -> set[str]:
    """Return the resource classes that the flavor or a group names.

    As Nova: such a class takes the place of the flavor's own field, also if
    its amount is 0.
    """
    groups = (
        *request.flavor_groups.values(),
        *request.requested_groups.values(),
    )
    return {name for group in groups for name in group.resources}


def unsuffixed_resources(request: Request) -> dict[str, int]:
    """Return the resources of the unsuffixed group, by resource class.

    Amounts are in MiB and GiB, as in the flavor.

    Unknown values of properties are left out: the query refuses them for its
    traits.

    :raises MalformedRequest: for an amount that Placement could not store.
    """
    named = _written_classes(request)
    unsuffixed = request.flavor_groups.get("")
    resources = dict(unsuffixed.resources) if unsuffixed else {}
    vcpus = _amount(request, "vcpus")
    pinned = _cpu_resources(request, vcpus)
    resources |= pinned
    if not pinned and not named & {orc.VCPU, orc.PCPU}:
        resources[orc.VCPU] = vcpus
    if orc.MEMORY_MB not in named:
        resources[orc.MEMORY_MB] = _amount(request, "memory_mb")
    if orc.DISK_GB not in named:
        # Swap is in MiB and takes whole GiB.
        swap = -(-_amount(request, "swap") // 1024)
        root = 0 if request.boots_from_volume else _amount(request, "root_gb")
        total = root + _amount(request, "ephemeral_gb") + swap
        resources[orc.DISK_GB] = _check_amount(
            "the flavor's disks together", total
        )
    encryption = value_of(request, _MEMORY_ENCRYPTION)
    if encryption and encryption.value == "true":
        resources[orc.MEM_ENCRYPTION_CONTEXT] = 1
    resources |= _persistent_memory(request)
    return {name: amount for name, amount in resources.items() if amount}


def port_groups(request: Request) -> tuple[str, ...]:
    """Return the suffixes of the groups of Neutron's ports.

    Of the other groups that a request is given, those of Cyborg's device
    profiles and of PCI devices have suffixes that say so.
    """
    found = []
    for suffix, group in request.requested_groups.items():
        if not suffix or not group.resource_classes:
            continue
        is_of_pci = suffix.rsplit("-", 1)[0] in request.pci_request_ids
        if not is_of_pci and not suffix.startswith(DEVICE_PROFILE):
            found.append(suffix)
    return tuple(found)


def unsuffixed_group_uses_host(request: Request) -> bool:
    """Return whether the unsuffixed group certainly uses the root provider.

    So it does where it requests CPUs or memory, which that has.

    The amounts are not computed: inside Nova, a filter must not refuse one
    that Nova's own query takes.
    """
    unsuffixed = request.flavor_groups.get("")
    unsuffixed_classes = (
        unsuffixed.resource_classes if unsuffixed else frozenset()
    )
    written = _written_classes(request)
    for name, classes in _OF_FLAVOR.items():
        if not classes.isdisjoint(written):
            uses_host = not classes.isdisjoint(unsuffixed_classes)
        else:
            uses_host = bool(request.flavor_attribute(name))
        if uses_host:
            return True
    return False


def _persistent_memory(request: Request) -> Counter[str]:
    """Return the namespaces of persistent memory by resource class.

    The class that Nova's operator made of each label.
    """
    text = str(request.extra_spec(_PMEM) or "")
    if len(text) > _LONGEST_PMEM:
        raise MalformedRequest(
            f"flavor extra spec {_PMEM}",
            text,
            f"labels in at most {_LONGEST_PMEM} characters",
        )
    labels = filter(None, (label.strip() for label in text.split(",")))
    classes = Counter(
        orc.normalize_name(f"PMEM_NAMESPACE_{label}") for label in labels
    )
    for name in classes:
        if not is_resource_class(name):
            raise MalformedRequest(
                f"flavor extra spec {_PMEM}",
                text,
                "labels that name resource classes",
            )
    return classes


def _amount(request: Request, name: str) -> int:
    found = request.flavor_attribute(name)
    value = 0 if found is None else found
    return _check_amount(f"flavor field {name}", resource_amount(value), value)


def _check_amount(
    source: str, amount: int | None, value: object = None
) -> int:
    if amount is None or not 0 <= amount <= LARGEST_AMOUNT:
        raise MalformedRequest(
            source,
            amount if value is None else value,
            f"a whole number from 0 to {LARGEST_AMOUNT}",
        )
    return amount


# -- CPU pinning, by Nova's rules (nova/virt/hardware.py), whose API refuses
# what is refused here --------------------


def _cpu_resources(request: Request, vcpus: int) -> dict[str, int]:
    """Return what CPU pinning requires, by class; empty without pinning.

    :param vcpus: how many CPUs the flavor has.
    :raises RequestRejected: for a policy that image and flavor contradict each
        other in, or a mask that names no CPU, all CPUs of a mixed instance, or
        one that the flavor does not have.
    """
    policy = value_of(request, _CPU_POLICY)
    emulator = value_of(request, _EMULATOR_THREADS)
    if not policy or policy.value == "shared":
        return {}
    isolated = emulator is not None and emulator.value == "isolate"
    if policy.value == "dedicated":
        return {orc.PCPU: vcpus + isolated}
    if vcpus > _MOST_CPUS:
        raise MalformedRequest(
            "flavor field vcpus",
            vcpus,
            f"at most {_MOST_CPUS}, of which some can be pinned",
        )
    realtime = _realtime(request, vcpus, leaves_all=emulator is not None)
    mask = request.extra_spec(_DEDICATED_MASK)
    source = f"flavor extra spec {_DEDICATED_MASK}"
    dedicated = (
        _cpus(mask, vcpus, source, all_is_too_much=True)
        if mask
        else frozenset()
    )
    pinned = len(dedicated or realtime)
    return {orc.VCPU: vcpus - pinned, orc.PCPU: pinned + isolated}


def _realtime(
    request: Request, vcpus: int, *, leaves_all: bool
) -> frozenset[int]:
    if not as_boolean(request.extra_spec("hw:cpu_realtime")):
        return frozenset()
    # The image's comes first: it knows its processes.
    in_image = request.image_property(_REALTIME_MASK_OF_IMAGE)
    mask = in_image or request.extra_spec(_REALTIME_MASK)
    source = (
        f"image property {_REALTIME_MASK_OF_IMAGE}"
        if in_image
        else f"flavor extra spec {_REALTIME_MASK}"
    )
    # Somewhere the emulator's own threads must run.
    return _cpus(
        mask or f"0-{vcpus - 1}", vcpus, source, all_is_too_much=not leaves_all
    )


def _cpus(
    mask: object, vcpus: int, source: str, *, all_is_too_much: bool
) -> frozenset[int]:
    """Parse a list of CPUs such as ``0-3,^2``.

    One that begins with ``^`` leaves out some of all.
    """
    if not isinstance(mask, str):
        raise MalformedRequest(source, mask, "a list of CPUs such as 0-3,^2")
    included: set[int] = (
        set(range(vcpus)) if mask.strip().startswith("^") else set()
    )
    excluded: set[int] = set()
    listed = 0
    for item in filter(None, (each.strip() for each in mask.split(","))):
        first, _, last = item.removeprefix("^").partition("-")
        try:
            start = int(first)
            end = int(last) if _ else int(first)
        except ValueError:
            start, end = 0, -1
        listed += end - start + 1
        # The second: an image may name the same CPUs a hundred thousand times.
        if not 0 <= start <= end < _MOST_CPUS or listed > _MOST_CPUS:
            raise MalformedRequest(
                source, mask, "a list of CPUs such as 0-3,^2"
            )
        (excluded if item.startswith("^") else included).update(
            range(start, end + 1)
        )
    cpus = frozenset(included - excluded)
    all_cpus = frozenset(range(vcpus))
    if (
        not cpus
        or not cpus <= all_cpus
        or (all_is_too_much and cpus == all_cpus)
    ):
        most = "some, but not all" if all_is_too_much else "some"
        raise MalformedRequest(
            source,
            mask,
            f"a list of {most} of the flavor's CPUs 0 to {vcpus - 1}",
        )
    return cpus
