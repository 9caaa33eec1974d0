"""Smallest sets are exact: by brute force for the sets alone, and for hosts whose groups compete for one device."""

from itertools import chain, combinations
from random import Random

import pytest

from os_prefilter.fleet.matching import hosts_in, meets
from os_prefilter.fleet.model import Fleet, Inventory, Provider
from os_prefilter.operators.diagnose.shortfall import Shortfalls, Way, smallest_hitting_sets
from os_prefilter.request.demand import RESOURCE, TRAIT, Condition
from os_prefilter.request.requirements import UNSUFFIXED
from tests.support.demands import demand_in

_CONDITIONS = [Condition(TRAIT, "root", True, (f"CUSTOM_{number}",)) for number in range(24)]
_FEW = _CONDITIONS[:8]


@pytest.mark.parametrize("seed", range(40))
def test_smallest_hitting_sets_match_brute_force(seed: int) -> None:
    random = Random(seed)  # noqa: S311
    ways = [frozenset(random.sample(_FEW, random.randint(1, 5))) for _ in range(random.randint(0, 8))]
    found, are_some_only = smallest_hitting_sets(ways, _FEW)
    expected: list[Way] = []
    for each in map(frozenset, chain.from_iterable(combinations(_FEW, size) for size in range(9))):
        if all(each & way for way in ways) and not any(other <= each for other in expected):
            expected.append(each)
    assert set(found) == set(expected)
    assert [len(each) for each in found] == sorted(map(len, expected))
    assert not are_some_only


def test_hitting_sets_beyond_the_limit_are_cut_off_and_flagged_as_incomplete() -> None:
    pairs = [frozenset(_CONDITIONS[number : number + 2]) for number in range(0, 24, 2)]
    found, are_some_only = smallest_hitting_sets(pairs, _CONDITIONS)
    assert (len(found), are_some_only) == (200, True)
    assert {len(each) for each in found} == {12}


@pytest.mark.parametrize("groups", [2, 4, 6, 8])
def test_request_groups_that_are_alike_are_one_requirement(groups: int) -> None:
    gpu = Provider("gpu", "u-gpu", {"VGPU": Inventory(1)})
    host = Provider("host", "u-host", {"VCPU": Inventory(8)}, providers=(gpu,))
    wanted = "&".join(f"resources{number}=VGPU:1" for number in range(groups))
    demand = demand_in(f"group_policy=none&resources=VCPU:1&{wanted}").merge_alike()
    found = Shortfalls(hosts_in(Fleet((host,))), demand)
    device = Condition(RESOURCE, ",".join(map(str, range(groups))), True, ("VGPU",), 1)
    assert found.conditions == (Condition(RESOURCE, UNSUFFIXED, True, ("VCPU",), 1), device)
    assert found.conflicts == (frozenset((device,)),)
    assert found.ways["host"] == (frozenset((device,)),)


@pytest.mark.parametrize("groups", [2, 4, 6])
def test_any_two_request_groups_competing_for_one_device_conflict(groups: int) -> None:
    gpu = Provider("gpu", "u-gpu", {"VGPU": Inventory(1)}, frozenset(map("CUSTOM_{}".format, range(groups))))
    host = Provider("host", "u-host", {"VCPU": Inventory(8)}, providers=(gpu,))
    wanted = "&".join(f"resources{number}=VGPU:1&required{number}=CUSTOM_{number}" for number in range(groups))
    found = Shortfalls(
        hosts_in(Fleet((host,))), demand_in(f"group_policy=none&resources=VCPU:1&{wanted}").merge_alike()
    )
    devices = frozenset(item for item in found.conditions if item.names == ("VGPU",))
    assert set(found.conflicts) == set(map(frozenset, combinations(devices, 2)))
    assert set(found.ways["host"]) == {devices - {kept} for kept in devices}
    assert not found.is_limited


def test_search_for_ways_of_many_groups_ends_and_says_that_it_was_cut() -> None:
    random = Random(1)  # noqa: S311
    traits = [f"CUSTOM_{number}" for number in range(10)]
    hosts = [
        Provider(
            f"host-{number}",
            f"u-{number}",
            {"VCPU": Inventory(8)},
            providers=tuple(
                Provider(f"gpu-{number}-{gpu}", f"u-{number}-{gpu}", {"VGPU": Inventory(1)}, frozenset(some))
                for gpu, some in enumerate(random.sample(traits, 5) for _ in range(6))
            ),
        )
        for number in range(20)
    ]
    wanted = "&".join(f"resources{number}=VGPU:1&required{number}=CUSTOM_{number}" for number in range(10))
    query = f"group_policy=none&resources=VCPU:1&{wanted}"
    found, again = (Shortfalls(hosts_in(Fleet(tuple(hosts))), demand_in(query)) for _ in range(2))
    assert found.is_limited
    assert (found.ways, found.conflicts, found.sets) == (again.ways, again.conflicts, again.sets)
    everything = frozenset(found.conditions)
    for host in hosts_in(Fleet(tuple(hosts))):
        for way in found.ways[host.name]:
            assert meets(host, demand_in(query).only(everything - way - demand_in(query).find_implied(way)))
    for conflict in found.conflicts:
        assert not any(meets(host, demand_in(query).only(conflict)) for host in hosts_in(Fleet(tuple(hosts))))
