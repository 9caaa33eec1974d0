# SPDX-License-Identifier: Apache-2.0

"""The index of a fleet: its sets of hosts are those that a real Placement
returns, and the matcher finds one by one.

What the matcher finds is what Placement returns, with usage and without:
test_matching.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from os_prefilter_tools.fleet.demand import Demand
from os_prefilter_tools.fleet.host_index import (
    HostIndex,
    capability_of,
    with_plenty,
)
from os_prefilter_tools.fleet.matching import hosts_in, meets
from os_prefilter_tools.fleet.model import Fleet, Inventory, Provider
from tests.conftest import times
from tests.support.demands import oracle, random_demand, random_fleet
from tests.support.zipping import zip_equal


@pytest.mark.parametrize("seed", range(times(3)))
def test_candidates_by_capability_match_placement_with_plenty_of_room(
    seed: int,
) -> None:
    """One index for all demands, which tells hosts apart by what any of them
    names.
    """
    random = Random(seed)  # noqa: S311
    fleet = random_fleet(random, 6)
    demands = [_without_places(random_demand(random, fleet)) for _ in range(8)]
    asked = [capability_of(demand) for demand in demands]
    index = HostIndex.by_capability(
        fleet, [item for conditions in asked for item in conditions]
    )
    with oracle(Fleet(tuple(map(_large, fleet.hosts)))) as placement:
        for demand, conditions in zip_equal(demands, asked):
            assert frozenset(
                index.names_of(index.find_candidates(conditions))
            ) == placement.returned(demand), demand


def _large(provider: Provider) -> Provider:
    resources = dict.fromkeys(provider.resources, Inventory(1_000))
    return replace(
        provider,
        resources=resources,
        providers=tuple(map(_large, provider.providers)),
    )


def _without_places(demand: Demand) -> Demand:
    groups = {
        suffix: replace(
            group, aggregates=[], forbidden_aggregates=set(), in_tree=None
        )
        for suffix, group in demand.groups.items()
    }
    return replace(demand, groups=groups, same_subtree=())


@pytest.mark.parametrize("seed", range(times(16)))
def test_candidates_by_sets_match_the_matcher(seed: int) -> None:
    """And each is among the hosts that may meet each single condition."""
    random = Random(seed)  # noqa: S311
    fleet = random_fleet(random, 20, flat=seed % 4 == 0)
    index = HostIndex(hosts_in(fleet))
    for _ in range(10):
        demand = random_demand(random, fleet, flat=seed % 4 == 0)
        met = [meets(host, demand) for host in hosts_in(fleet)]
        found = index.find_candidates(demand.conditions())
        assert [
            bool(found >> number & 1) for number in range(len(met))
        ] == met, demand
        for item in demand.conditions():
            assert not found & ~index.find_possible(item), (item, demand)


@pytest.mark.parametrize("seed", range(times(8)))
def test_host_that_shares_nothing_anymore_serves_no_other(seed: int) -> None:
    """What is left without what a host shares is what is left in a fleet
    without the host.
    """
    random = Random(seed)  # noqa: S311
    fleet = random_fleet(random, 8)
    sharing = next(
        (host for host in fleet.hosts if host.name == "disks"), None
    )
    if sharing:
        # Below a host, in place of beside the hosts.
        first, *others = (host for host in fleet.hosts if host is not sharing)
        fleet = Fleet(
            (replace(first, providers=(*first.providers, sharing)), *others)
        )
    index = HostIndex(hosts_in(fleet))
    for _ in range(10):
        demand, own = (
            random_demand(random, fleet),
            random.randrange(len(index.hosts)),
        )
        hosts = index.find_candidates(demand.conditions()) & ~(1 << own)
        left = Fleet(
            tuple(
                host
                for host in fleet.hosts
                if host.name != index.hosts[own].name
            )
        )
        without = HostIndex(hosts_in(left))
        wanted = without.names_of(without.find_candidates(demand.conditions()))
        assert (
            index.names_of(index.without_shared_of(own, hosts, demand))
            == wanted
        )


def test_fleet_that_was_read_by_traits_counts_as_large_enough() -> None:
    """A root has each class, a provider below it those that are not usual of a
    root.
    """
    fleet = random_fleet(Random(5), 3)  # noqa: S311
    hosts = list(
        with_plenty(replace(fleet, has_inventories=False), ["VCPU", "VGPU"])
    )
    for host in hosts:
        assert set(host.root.resources) == {"VCPU", "VGPU"}
        assert all(
            set(each.resources) == {"VGPU"}
            for each in (*host.own[1:], *host.shared)
        )
    assert [host.name for host in hosts] == [
        host.name for host in hosts_in(fleet)
    ]
