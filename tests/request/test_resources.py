# SPDX-License-Identifier: Apache-2.0

"""CPU pinning, persistent memory, and limits of amounts.

tests/against_nova compares CPU pinning with Nova.
"""

from __future__ import annotations

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
from tests.conftest import ExtraSpecs, Properties
from tests.support.tables import cases, pairs

_DEDICATED = {"hw:cpu_policy": "dedicated"}
_MIXED = {"hw:cpu_policy": "mixed"}
_REALTIME = {"hw:cpu_realtime": "yes"}


def _spec(
    extra_specs: ExtraSpecs, properties: Properties | None = None
) -> RequestSpec:
    return RequestSpec(
        Flavor(vcpus=4, memory_mb=512, extra_specs=extra_specs),
        Image(properties or {}),
    )


def _shared_and_dedicated_cpus(spec: RequestSpec) -> tuple[int, int]:
    resources = unsuffixed_resources(Request(spec))
    return resources.get("VCPU", 0), resources.get("PCPU", 0)


_SHARE = {"hw:emulator_threads_policy": "share"}


def _mixed(dedicated_mask: str) -> ExtraSpecs:
    return {**_MIXED, "hw:cpu_dedicated_mask": dedicated_mask}


_CPUS = cases("""
# Extra specs | shared CPUs | dedicated ones
hw:cpu_policy=dedicated hw:emulator_threads_policy=isolate | 0 | 5
hw:cpu_policy=dedicated resources:PCPU=2                   | 0 | 4
# Nothing to isolate from.
hw:emulator_threads_policy=isolate                         | 4 | 0
hw:emulator_threads_policy=isolate hw:cpu_policy=shared    | 4 | 0
hw:cpu_policy=mixed hw:cpu_dedicated_mask=0-3,^1-2         | 2 | 2
hw:cpu_policy=mixed hw:cpu_dedicated_mask=0 hw:emulator_threads_policy=isolate | 3 | 2
hw:cpu_policy=mixed hw:cpu_realtime=yes hw:emulator_threads_policy=share | 0 | 4
""")


@pytest.mark.parametrize(("extra_specs", "shared", "dedicated"), _CPUS)
def test_masks_and_emulator_threads_split_the_vcpus_into_shared_and_dedicated(
    extra_specs: str, shared: str, dedicated: str
) -> None:
    found = _shared_and_dedicated_cpus(_spec(pairs(extra_specs)))
    assert found == (int(shared), int(dedicated))


@pytest.mark.parametrize(
    ("mask", "cpus"),
    [
        (" ^0", (1, 3)),
        ("1-3," * 20_000, (1, 3)),
        ("0-1," * 32_768, (2, 2)),
    ],
    ids=["exception alone", "long", "longest"],
)
def test_odd_mask_splits_the_vcpus_into_shared_and_dedicated(
    mask: str, cpus: tuple[int, int]
) -> None:
    assert _shared_and_dedicated_cpus(_spec(_mixed(mask))) == cpus


def test_realtime_mask_of_the_image_comes_before_the_flavors() -> None:
    spec = _spec(
        _MIXED | _REALTIME | {"hw:cpu_realtime_mask": "^0"},
        {"hw_cpu_realtime_mask": "^0-1"},
    )
    assert _shared_and_dedicated_cpus(spec) == (2, 2)


_INVALID_MASKS = "4 0-4 0-3 ^0-3 a 1- -1 2-1 ^ 0-9999999999 1;2"


@pytest.mark.parametrize("mask", _INVALID_MASKS.split())
def test_invalid_cpu_dedicated_mask_is_rejected_and_named(mask: str) -> None:
    problem = f"hw:cpu_dedicated_mask: {re.escape(repr(mask))} is"
    with pytest.raises(RequestRejected, match=problem) as caught:
        unsuffixed_resources(Request(_spec(_mixed(mask))))
    assert "\n" not in str(caught.value)


def _check_rejected(extra_specs: ExtraSpecs, problem: str) -> None:
    request = Request(_spec(extra_specs))
    with pytest.raises(RequestRejected, match=problem):
        unsuffixed_resources(request)


def test_realtime_without_a_mask_is_rejected() -> None:
    problem = "some, but not all of the flavor's CPUs 0 to 3"
    _check_rejected(_MIXED | _REALTIME, problem)


def test_realtime_with_a_mask_of_cpus_that_the_flavor_lacks_is_rejected() -> (
    None
):
    mask = "hw:cpu_realtime_mask"
    problem = f"{mask}: '4' is not a list of some of the flavor's CPUs 0 to"
    _check_rejected(_MIXED | _SHARE | _REALTIME | {mask: "4"}, problem)


@pytest.mark.parametrize(
    ("extra_specs", "properties"),
    [
        ({"hw:cpu_policy": "shared"}, {"hw_cpu_policy": "dedicated"}),
        (_MIXED, {"hw_cpu_policy": "dedicated"}),
        (
            {"hw:cpu_thread_policy": "isolate"},
            {"hw_cpu_thread_policy": "require"},
        ),
    ],
    ids=["shared", "mixed", "threads"],
)
def test_image_cpu_policy_that_contradicts_the_flavor_is_a_conflict(
    extra_specs: ExtraSpecs, properties: Properties
) -> None:
    spec = _spec(extra_specs, properties)
    with pytest.raises(FlavorImageConflict):
        allocation_candidates_query(spec)


def test_image_may_require_the_threads_that_the_flavor_prefers() -> None:
    spec = _spec(
        {"hw:cpu_thread_policy": "prefer"}, {"hw_cpu_thread_policy": "require"}
    )
    assert "HYPERTHREADING" not in allocation_candidates_query(spec)


@pytest.mark.parametrize(
    "extra_specs",
    [
        {"hw:cpu_policy": "odd"},
        _DEDICATED | {"hw:emulator_threads_policy": "odd"},
    ],
    ids=["CPUs", "emulator threads"],
)
def test_unknown_cpu_or_emulator_threads_policy_is_rejected(
    extra_specs: ExtraSpecs,
) -> None:
    spec = _spec(extra_specs)
    with pytest.raises(RequestRejected, match="odd"):
        allocation_candidates_query(spec)


@pytest.mark.parametrize(
    ("labels", "resource_class", "amount"),
    [
        ("4GB, 4GB,fast.one,", "CUSTOM_PMEM_NAMESPACE_4GB", 2),
        ("4GB, 4GB,fast.one,", "CUSTOM_PMEM_NAMESPACE_FAST_ONE", 1),
        ("A," * 2048, "CUSTOM_PMEM_NAMESPACE_A", 2048),
    ],
    ids=["same label twice", "normalized label", "longest list"],
)
def test_hw_pmem_requests_one_resource_class_per_label(
    labels: str, resource_class: str, amount: int
) -> None:
    request = Request(_spec({"hw:pmem": labels}))
    assert unsuffixed_resources(request)[resource_class] == amount


@pytest.mark.parametrize(
    "labels",
    ["x" * 300, "A," * 500_000, "9" * 1_000_000],
    ids=["long label", "many labels", "very long label"],
)
def test_hw_pmem_that_is_too_long_is_rejected(labels: str) -> None:
    spec = _spec({"hw:pmem": labels})
    problem = f"extra spec hw:pmem: '{labels[:9]}.* is not labels"
    with pytest.raises(RequestRejected, match=problem):
        allocation_candidates_query(spec)


@pytest.mark.parametrize(("suffix", "uses_host"), [("", True), ("1", False)])
def test_unsuffixed_group_uses_the_host_for_what_it_requests_itself(
    suffix: str, uses_host: bool
) -> None:
    spec = _spec(
        {f"resources{suffix}:VCPU": "1", f"resources{suffix}:MEMORY_MB": "512"}
    )
    assert unsuffixed_group_uses_host(Request(spec)) == uses_host


@pytest.mark.parametrize(
    "mask",
    [5, "0-65535," * 100_000, "0-2," * 21_846],
    ids=["number", "same CPUs many times", "too many CPUs"],
)
def test_oversized_or_odd_cpu_realtime_mask_is_rejected(mask: object) -> None:
    request = Request(
        _spec(_MIXED | _REALTIME, {"hw_cpu_realtime_mask": mask})
    )
    problem = f"hw_cpu_realtime_mask: '?{str(mask)[:4]}"
    with pytest.raises(RequestRejected, match=problem):
        unsuffixed_resources(request)


@pytest.mark.parametrize(
    ("vcpus", "problem"),
    [
        (2**31 - 1, "2147483647 is not at most 65536"),
        ("four", "'four' is not a whole number"),
    ],
)
def test_oversized_or_odd_vcpu_count_is_rejected(
    vcpus: Any, problem: str
) -> None:
    spec = _spec(_mixed("^0"))
    spec.flavor.vcpus = vcpus
    with pytest.raises(
        RequestRejected, match=f"flavor field vcpus: {problem}"
    ):
        allocation_candidates_query(spec)


def test_largest_vcpu_count_is_taken() -> None:
    spec = _spec(_mixed("^0"))
    spec.flavor.vcpus = 65536
    assert "PCPU:65535,VCPU:1" in unquote(allocation_candidates_query(spec))
