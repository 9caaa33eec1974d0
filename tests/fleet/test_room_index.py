"""The hosts with room for a demand, found by sets, are those that the matcher finds one by one.

The matcher is compared with a real Placement in test_matching.py, and these sets in tests/operators/audit.
"""

from dataclasses import replace
from random import Random

import pytest

from os_prefilter_tools.fleet.matching import hosts_in, meets
from os_prefilter_tools.fleet.model import Fleet
from os_prefilter_tools.fleet.room_index import RoomIndex, assume_inventories
from tests.conftest import times
from tests.support.demands import random_demand, random_fleet


@pytest.mark.parametrize("ignore_usage", [False, True])
@pytest.mark.parametrize("seed", range(times(8)))
def test_candidates_by_sets_match_the_matcher(seed: int, ignore_usage: bool) -> None:
    """And each is among the hosts that may meet each single condition."""
    random = Random(seed)  # noqa: S311
    fleet = random_fleet(random, 20, flat=seed % 4 == 0)
    index = RoomIndex(fleet, ignore_usage=ignore_usage)
    for _ in range(10):
        demand = random_demand(random, fleet, flat=seed % 4 == 0)
        met = [meets(host, demand, ignore_usage=ignore_usage) for host in hosts_in(fleet)]
        found = index.find_candidates(demand)
        assert [bool(found >> number & 1) for number in range(len(met))] == met, demand
        for item in demand.conditions():
            assert not found & ~index.find_possible(item), (item, demand)


@pytest.mark.parametrize("seed", range(times(8)))
def test_host_that_shares_nothing_anymore_serves_no_other(seed: int) -> None:
    """What is left without what a host shares is what is left in a fleet without the host."""
    random = Random(seed)  # noqa: S311
    fleet = random_fleet(random, 8)
    sharing = next((host for host in fleet.hosts if host.name == "disks"), None)
    if sharing:
        # Below a host, in place of beside the hosts.
        first, *others = (host for host in fleet.hosts if host is not sharing)
        fleet = Fleet((replace(first, providers=(*first.providers, sharing)), *others))
    index = RoomIndex(fleet)
    for _ in range(10):
        demand = random_demand(random, fleet)
        own = random.randrange(len(index.hosts))
        hosts = index.find_candidates(demand) & ~(1 << own)
        left = Fleet(tuple(host for host in fleet.hosts if host.name != index.hosts[own].name))
        without = RoomIndex(left)
        wanted = without.names_of(without.find_candidates(demand))
        assert index.names_of(index.without_shared_of(own, hosts, demand)) == wanted


def test_fleet_that_was_read_by_traits_counts_as_large_enough() -> None:
    """A root has each class, a provider below it those that are not usual of a root."""
    fleet = random_fleet(Random(5), 3)  # noqa: S311
    assumed = assume_inventories(replace(fleet, has_inventories=False), ["VCPU", "VGPU"])
    assert assumed.has_inventories
    for host in assumed.instance_hosts:
        assert set(host.resources) == {"VCPU", "VGPU"}
        assert all(set(each.resources) == {"VGPU"} for child in host.providers for each in child.walk())
    assert [host.name for host in assumed.instance_hosts] == [host.name for host in fleet.instance_hosts]
