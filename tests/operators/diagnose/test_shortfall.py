# SPDX-License-Identifier: Apache-2.0

"""Smallest sets are exact: by brute force on flat hosts, and for hosts whose
groups compete for one device.
"""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest

from os_prefilter.request.spec import RequestGroup
from os_prefilter_tools.fleet.demand import Demand
from os_prefilter_tools.fleet.matching import hosts_in, meets
from os_prefilter_tools.fleet.model import Fleet, Inventory, Provider
from os_prefilter_tools.operators.diagnose import shortfall
from os_prefilter_tools.operators.diagnose.shortfall import Shortfalls


def _host(*gpus: frozenset[str], name: str = "host") -> Provider:
    below = tuple(
        Provider(f"g{n}", f"u-{name}-{n}", {"VGPU": Inventory(1)}, own)
        for n, own in enumerate(gpus)
    )
    return Provider(name, f"u-{name}", {"VCPU": Inventory(8)}, providers=below)


def _wanted(groups: int) -> Demand:
    """Return a demand for that many GPUs, each with another trait."""
    gpus = {
        str(number): RequestGroup("", {"VGPU": 1}, {f"CUSTOM_{number}"})
        for number in range(groups)
    }
    return Demand({"": RequestGroup("", {"VCPU": 1}), **gpus})


@pytest.mark.parametrize("groups", [2, 6])
def test_any_two_request_groups_competing_for_one_device_conflict(
    groups: int,
) -> None:
    host = _host(frozenset(map("CUSTOM_{}".format, range(groups))))
    found = Shortfalls(hosts_in(Fleet((host,))), _wanted(groups).merge_equal())
    devices = frozenset(
        item for item in found.conditions if item.names == ("VGPU",)
    )
    assert set(found.conflicts) == set(
        map(frozenset, combinations(devices, 2))
    )
    assert set(found.to_drop["host"]) == {devices - {kept} for kept in devices}
    assert not found.is_limited


def test_search_for_ways_of_many_groups_ends_and_says_that_it_was_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shortfall, "_MOST_STEPS", 20_000)
    random = Random(1)  # noqa: S311
    traits = [f"CUSTOM_{number}" for number in range(10)]
    some = [
        [frozenset(random.sample(traits, 5)) for _ in range(6)]
        for _ in range(2)
    ]
    hosts = hosts_in(
        Fleet(
            tuple(
                _host(*each, name=str(number))
                for number, each in enumerate(some)
            )
        )
    )
    demand = _wanted(10)
    found = Shortfalls(hosts, demand)
    assert found.is_limited
    assert found.conflicts
    everything = frozenset(found.conditions)
    for each in hosts:
        for way in found.to_drop[each.name]:
            assert meets(
                each, demand.only(everything - way - demand.find_implied(way))
            )
    for conflict in found.conflicts:
        assert not any(meets(each, demand.only(conflict)) for each in hosts)
