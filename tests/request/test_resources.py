# SPDX-License-Identifier: Apache-2.0

"""CPU pinning, persistent memory, and limits of amounts; tests/against_nova
compares CPU pinning with Nova.
"""

import re
from typing import Any
from urllib.parse import unquote

import pytest

from os_prefilter import (
    Flavor,
    Image,
    RequestSpec,
    allocation_candidates_query,
)
from os_prefilter.common.errors import FlavorImageConflict, RequestRejected
from os_prefilter.request.resources import (
    unsuffixed_group_uses_host,
    unsuffixed_resources,
)
from os_prefilter.request.view import Request

_DEDICATED = {"hw:cpu_policy": "dedicated"}
_MIXED = {"hw:cpu_policy": "mixed"}
_REALTIME = {"hw:cpu_realtime": "yes"}


def _cpus(
    extra_specs: dict[str, str], properties: dict[str, object] | None = None
) -> tuple[int, int]:
    spec = _spec(extra_specs, properties)
    resources = unsuffixed_resources(Request(spec))
    return resources.get("VCPU", 0), resources.get("PCPU", 0)


def _spec(
    extra_specs: dict[str, str], properties: dict[str, object] | None = None
) -> RequestSpec:
    return RequestSpec(
        flavor=Flavor(vcpus=4, memory_mb=512, extra_specs=extra_specs),
        image=Image(properties or {}),
    )


_ISOLATE = {"hw:emulator_threads_policy": "isolate"}
_SPLIT: list[tuple[dict[str, str], tuple[int, int]]] = [
    (_DEDICATED | _ISOLATE, (0, 5)),
    # Without pinned CPUs there is nothing to isolate from.
    (_ISOLATE, (4, 0)),
    (_ISOLATE | {"hw:cpu_policy": "shared"}, (4, 0)),
    (_MIXED | {"hw:cpu_dedicated_mask": "0-3,^1-2"}, (2, 2)),
    (_MIXED | _ISOLATE | {"hw:cpu_dedicated_mask": "0"}, (3, 2)),
    (_MIXED | {"hw:cpu_dedicated_mask": " ^0"}, (1, 3)),
    (_MIXED | {"hw:cpu_dedicated_mask": "1-3," * 20_000}, (1, 3)),
    (_MIXED | {"hw:cpu_dedicated_mask": "0-1," * 32_768}, (2, 2)),
    (_MIXED | _REALTIME | {"hw:emulator_threads_policy": "share"}, (0, 4)),
    (_DEDICATED | {"resources:PCPU": "2"}, (0, 4)),
]


def test_masks_and_emulator_threads_split_the_vcpus_into_shared_and_pinned() -> (
    None
):
    for extra_specs, cpus in _SPLIT:
        assert _cpus(extra_specs) == cpus, extra_specs
    # The image's mask comes before the flavor's.
    assert _cpus(
        _MIXED | _REALTIME | {"hw:cpu_realtime_mask": "^0"},
        {"hw_cpu_realtime_mask": "^0-1"},
    ) == (2, 2)


def test_invalid_cpu_dedicated_mask_is_rejected_and_named() -> None:
    for mask in (
        "4",
        "0-4",
        "0-3",
        "^0-3",
        "a",
        "1-",
        "-1",
        "2-1",
        "^",
        "0-9999999999",
        "1;2",
    ):
        with pytest.raises(
            RequestRejected,
            match=f"hw:cpu_dedicated_mask: {re.escape(repr(mask))} is",
        ) as caught:
            _cpus(_MIXED | {"hw:cpu_dedicated_mask": mask})
        assert "\n" not in str(caught.value)
    with pytest.raises(
        RequestRejected, match="some, but not all of the flavor's CPUs 0 to 3"
    ):
        _cpus(_MIXED | _REALTIME)
    shared = {
        "hw:emulator_threads_policy": "share",
        "hw:cpu_realtime_mask": "4",
    }
    with pytest.raises(
        RequestRejected,
        match=(
            "hw:cpu_realtime_mask: '4' is not a list of some of the flavor's"
            " CPUs 0 to"
        ),
    ):
        _cpus(_MIXED | _REALTIME | shared)


def test_image_cpu_policy_that_contradicts_the_flavor_is_a_conflict() -> None:
    conflicts: list[tuple[dict[str, str], dict[str, object]]] = [
        ({"hw:cpu_policy": "shared"}, {"hw_cpu_policy": "dedicated"}),
        (_MIXED, {"hw_cpu_policy": "dedicated"}),
        (
            {"hw:cpu_thread_policy": "isolate"},
            {"hw_cpu_thread_policy": "require"},
        ),
    ]
    for extra_specs, properties in conflicts:
        with pytest.raises(FlavorImageConflict):
            allocation_candidates_query(_spec(extra_specs, properties))
    query = allocation_candidates_query(
        _spec(
            {"hw:cpu_thread_policy": "prefer"},
            {"hw_cpu_thread_policy": "require"},
        )
    )
    assert "HYPERTHREADING" not in query


def test_unknown_cpu_or_emulator_threads_policy_is_rejected() -> None:
    for extra_specs in (
        {"hw:cpu_policy": "odd"},
        _DEDICATED | {"hw:emulator_threads_policy": "odd"},
    ):
        with pytest.raises(RequestRejected, match="odd"):
            allocation_candidates_query(_spec(extra_specs))


def test_hw_pmem_requests_one_resource_class_per_label() -> None:
    resources = unsuffixed_resources(
        Request(_spec({"hw:pmem": "4GB, 4GB,fast.one,"}))
    )
    assert resources["CUSTOM_PMEM_NAMESPACE_4GB"] == 2
    assert resources["CUSTOM_PMEM_NAMESPACE_FAST_ONE"] == 1
    assert (
        unsuffixed_resources(Request(_spec({"hw:pmem": "A," * 2048})))[
            "CUSTOM_PMEM_NAMESPACE_A"
        ]
        == 2048
    )
    for label in ("x" * 300, "A," * 500_000, "9" * 1_000_000):
        with pytest.raises(
            RequestRejected,
            match=f"extra spec hw:pmem: '{label[:9]}.* is not labels",
        ):
            allocation_candidates_query(_spec({"hw:pmem": label}))


def test_unsuffixed_group_uses_the_host_for_what_it_requests_itself() -> None:
    for unsuffixed, uses_host in (("", True), ("1", False)):
        own = {
            f"resources{unsuffixed}:VCPU": "1",
            f"resources{unsuffixed}:MEMORY_MB": "512",
        }
        assert unsuffixed_group_uses_host(Request(_spec(own))) == uses_host


def test_oversized_cpu_mask_or_vcpu_count_is_rejected() -> None:
    """Neither the same CPUs named a hundred thousand times, nor a flavor of
    two thousand million.
    """
    for mask in (5, "0-65535," * 100_000, "0-2," * 21_846):
        with pytest.raises(
            RequestRejected, match=f"hw_cpu_realtime_mask: '?{str(mask)[:4]}"
        ):
            _cpus(_MIXED | _REALTIME, {"hw_cpu_realtime_mask": mask})
    spec = _spec(_MIXED | {"hw:cpu_dedicated_mask": "^0"})
    wrong: list[tuple[Any, str]] = [
        (2**31 - 1, "2147483647 is not at most 65536"),
        ("four", "'four' is not a whole number"),
    ]
    for vcpus, problem in wrong:
        spec.flavor.vcpus = vcpus
        with pytest.raises(
            RequestRejected, match=f"flavor field vcpus: {problem}"
        ):
            allocation_candidates_query(spec)
    spec.flavor.vcpus = 65536
    assert "PCPU:65535,VCPU:1" in unquote(allocation_candidates_query(spec))
