"""CPU pinning: how many of a flavor's CPUs float (VCPU), and how many have a host CPU of their own (PCPU).

The rules are Nova's (``nova/virt/hardware.py``), which refuses at its API what is refused here.
"""

import os_resource_classes as orc

from os_prefilter.errors import MalformedRequest
from os_prefilter.request.row_values import chosen
from os_prefilter.request.view import Request
from os_prefilter.vocabulary import BY_NAME
from os_prefilter.vocabulary.model import UnknownValues, is_true

_CPU_POLICY = BY_NAME["cpu_policy"]
_EMULATOR_THREADS = BY_NAME["emulator_threads_policy"]
_DEDICATED_MASK = "hw:cpu_dedicated_mask"
_REALTIME_MASK = "hw:cpu_realtime_mask"
_REALTIME_MASK_OF_IMAGE = "hw_cpu_realtime_mask"

# No host has more; a mask must not cost the scheduler its memory.
_MOST_CPUS = 65536


def cpu_resources(request: Request, vcpus: int) -> dict[str, int]:
    """Return what CPU pinning asks for by resource class; empty where nothing is pinned.

    :param vcpus: how many CPUs the flavor has.
    :raises RequestRejected: for an unknown policy, one that image and flavor contradict each other in, or a mask that
        names no CPU, all CPUs of a mixed instance, or one that the flavor does not have.
    """
    policy = chosen(request, _CPU_POLICY, UnknownValues.REJECT, [])
    emulator = chosen(request, _EMULATOR_THREADS, UnknownValues.REJECT, [])
    if not policy or policy.value == "shared":
        return {}
    isolated = emulator is not None and emulator.value == "isolate"
    if policy.value == "dedicated":
        return {orc.PCPU: vcpus + isolated}
    if vcpus > _MOST_CPUS:
        raise MalformedRequest("flavor field vcpus", vcpus, f"at most {_MOST_CPUS}, of which some can be pinned")
    realtime = _realtime(request, vcpus, leaves_all=emulator is not None)
    pinned = len(_dedicated(request, vcpus) or realtime)
    return {orc.VCPU: vcpus - pinned, orc.PCPU: pinned + isolated}


def _dedicated(request: Request, vcpus: int) -> frozenset[int]:
    mask = request.extra_spec(_DEDICATED_MASK)
    if not mask:
        return frozenset()
    source = f"flavor extra spec {_DEDICATED_MASK}"
    return _some(_cpus(mask, vcpus, source), vcpus, mask, source, all_is_too_much=True)


def _realtime(request: Request, vcpus: int, *, leaves_all: bool) -> frozenset[int]:
    if not is_true(request.extra_spec("hw:cpu_realtime")):
        return frozenset()
    # The image's comes first: it knows its processes.
    in_image = request.image_property(_REALTIME_MASK_OF_IMAGE)
    mask = in_image or request.extra_spec(_REALTIME_MASK)
    source = f"image property {_REALTIME_MASK_OF_IMAGE}" if in_image else f"flavor extra spec {_REALTIME_MASK}"
    cpus = _cpus(mask, vcpus, source) if mask else frozenset(range(vcpus))
    # Somewhere the emulator's own threads must run.
    return _some(cpus, vcpus, mask, source, all_is_too_much=not leaves_all)


def _some(cpus: frozenset[int], vcpus: int, mask: object, source: str, *, all_is_too_much: bool) -> frozenset[int]:
    everything = frozenset(range(vcpus))
    if not cpus or not cpus <= everything or (all_is_too_much and cpus == everything):
        most = "some, but not all" if all_is_too_much else "some"
        raise MalformedRequest(source, mask, f"a list of {most} of the flavor's CPUs 0 to {vcpus - 1}")
    return cpus


def _cpus(mask: object, vcpus: int, source: str) -> frozenset[int]:
    """Return the CPUs of a list such as ``0-3,^2``; one that begins with ``^`` leaves out some of all."""
    if not isinstance(mask, str):
        raise MalformedRequest(source, mask, "a list of CPUs such as 0-3,^2")
    included: set[int] = set(range(vcpus)) if mask.strip().startswith("^") else set()
    excluded: set[int] = set()
    listed = 0
    for item in filter(None, (each.strip() for each in mask.split(","))):
        first, _, last = item.removeprefix("^").partition("-")
        try:
            start, end = int(first), int(last) if _ else int(first)
        except ValueError:
            start, end = 0, -1
        listed += end - start + 1
        # The second: an image may name the same CPUs a hundred thousand times.
        if not 0 <= start <= end < _MOST_CPUS or listed > _MOST_CPUS:
            raise MalformedRequest(source, mask, "a list of CPUs such as 0-3,^2")
        (excluded if item.startswith("^") else included).update(range(start, end + 1))
    return frozenset(included - excluded)
