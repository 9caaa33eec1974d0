# SPDX-License-Identifier: Apache-2.0

"""Every number and every smallest set that a diagnosis names is what a real
Placement says, by brute force.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain, combinations
from random import Random

import pytest

from os_prefilter.request.requirements import ROOT
from os_prefilter.service import Service
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.fleet.demand import RESOURCE, Condition, Demand
from os_prefilter_tools.fleet.matching import hosts_in
from os_prefilter_tools.fleet.model import Fleet, Inventory, Provider
from os_prefilter_tools.operators.diagnose.diagnose import diagnose
from os_prefilter_tools.operators.diagnose.result import (
    CANDIDATES,
    NO_CANDIDATES,
    Diagnosis,
)
from tests.conftest import spec_of, times
from tests.support.demands import (
    oracle,
    random_demand,
    random_fleet,
    request_of,
)
from tests.support.fleets import emptied
from tests.support.placements import lone_host
from tests.support.zipping import zip_equal

Parts = dict[frozenset[Condition], frozenset[str]]
"""Each part of a demand, and the hosts that meet it."""

_MOST_CONDITIONS = min(6, 4 + times(1))


@pytest.mark.parametrize("seed", range(times(4)))
def test_diagnosis_matches_brute_force_queries_to_placement(seed: int) -> None:
    random = Random(seed)  # noqa: S311
    fleet, demand = _drawn(random, flat=seed % 4 == 0, alike=seed % 4 == 1)
    merged, hosts = (
        demand.merge_equal(),
        frozenset(host.name for host in fleet.instance_hosts),
    )
    with oracle(fleet) as placement:
        found = diagnose(
            request_of(demand),
            Service.from_names(),
            fleet,
            placement.client,
            live=False,
        )
        assert {each.condition for each in found.requirements} == set(
            merged.conditions()
        )
        returned = {
            part: placement.meeting(merged, part) for part in _parts(merged)
        }
        without = {
            item: placement.without(demand, item)
            for item in merged.conditions()
        }
    with oracle(Fleet(tuple(map(emptied, fleet.hosts)))) as placement:
        returned_if_empty = {
            part: placement.meeting(merged, part) for part in _parts(merged)
        }
    with_room: dict[Condition, frozenset[str]] = {}
    for suffix, group in merged.groups.items():
        with oracle(
            _with_plenty(fleet, frozenset(group.resources))
        ) as placement:
            of_group = Demand({suffix: group})
            rest = (
                item for item in of_group.conditions() if item.kind != RESOURCE
            )
            with_room |= {
                item: placement.meeting(of_group, {item}) for item in rest
            }
    now, empty = (
        {
            part: _meeting(part, hosts, of_fleet, with_room)
            for part in _parts(merged)
        }
        for of_fleet in (returned, returned_if_empty)
    )
    everything = frozenset(merged.conditions())
    freed: dict[frozenset[str], frozenset[str]] = {}
    if not now[everything] and empty[everything]:
        asked = sorted(
            {item.names[0] for item in everything if item.kind == RESOURCE}
        )
        for names in map(
            frozenset,
            chain.from_iterable(
                combinations(asked, n) for n in range(1, len(asked) + 1)
            ),
        ):
            with oracle(_freed(fleet, names)) as placement:
                freed[names] = placement.meeting(merged, everything)
    _check(found, now, empty, without, hosts)
    assert {
        each.condition: set(each.free_on) for each in found.requirements
    } == _where_room_helps(everything, freed)
    for conflict in _told(found):
        assert not returned[conflict]


def _meeting(
    part: frozenset[Condition],
    hosts: frozenset[str],
    returned: Parts,
    with_room: dict[Condition, frozenset[str]],
) -> frozenset[str]:
    """Return the hosts that meet the groups with resources in a part of a
    demand, and the rest if they have room.
    """
    scopes = {item.scope for item in part if item.kind == RESOURCE} | {ROOT}
    rest = [item for item in part if item.scope not in scopes]
    return (hosts & returned.get(part.difference(rest), hosts)).intersection(
        *(with_room[item] for item in rest)
    )


def _with_plenty(fleet: Fleet, classes: frozenset[str]) -> Fleet:
    """Return a fleet with plenty of each class where it has any, or on the
    root of a host that has none of them.
    """
    poor = {
        host.root.uuid
        for host in hosts_in(fleet)
        if not any(
            classes & each.resources.keys()
            for each in (*host.own, *host.shared)
        )
    }

    def filled(provider: Provider) -> Provider:
        names = (
            classes
            if provider.uuid in poor
            else classes & provider.resources.keys()
        )
        children = tuple(map(filled, provider.providers))
        return replace(
            provider,
            resources=dict.fromkeys(names, Inventory(1_000_000)),
            providers=children,
        )

    return Fleet(tuple(map(filled, fleet.hosts)))


def test_finding_names_the_extra_spec_that_asks_for_a_resource() -> None:
    """Also where its key ends with a line break, which Nova does not read as
    part of the class.
    """
    spec = spec_of(
        extra_specs={"resources1:VGPU\n": "1", "resources:FPGA\n": "1"}
    )
    with EmbeddedPlacement(lone_host()) as placement:
        found = diagnose(
            spec,
            Service.from_names(),
            lone_host(),
            placement.client,
            live=False,
        )
    because = {
        str(each.condition): each.because for each in found.requirements
    }
    assert because["VGPU=1"] == "flavor extra spec resources1:VGPU"
    assert because["FPGA=1"] == "flavor extra spec resources:FPGA"


def _drawn(random: Random, *, flat: bool, alike: bool) -> tuple[Fleet, Demand]:
    while True:
        fleet = random_fleet(random, 5, flat=flat)
        demand = random_demand(random, fleet, flat=flat)
        if alike and "_0" in demand.groups:
            # One more group like the first.
            demand = replace(
                demand,
                groups={**demand.groups, "_2": demand.groups["_0"]},
                same_subtree=(),
            )
        if 2 <= len(
            demand.merge_equal().conditions()
        ) <= _MOST_CONDITIONS and (not alike or "_2" in demand.groups):
            return fleet, demand


def _parts(demand: Demand) -> Iterator[frozenset[Condition]]:
    conditions = demand.conditions()
    sizes = range(1, len(conditions) + 1)
    yield from map(
        frozenset,
        chain.from_iterable(combinations(conditions, size) for size in sizes),
    )


def _told(found: Diagnosis) -> list[frozenset[Condition]]:
    return [
        frozenset(
            found.requirements[n - 1].condition for n in each.requirements
        )
        for each in found.conflicts
    ]


def _check(
    found: Diagnosis,
    now: Parts,
    empty: Parts,
    without: dict[Condition, frozenset[str]],
    hosts: frozenset[str],
) -> None:
    everything = frozenset(each.condition for each in found.requirements)
    numbers = {each.condition: each.number for each in found.requirements}
    candidates = now[everything]
    assert found.stage == (CANDIDATES if candidates else NO_CANDIDATES)
    assert set(found.candidates) == candidates
    assert (found.hosts, found.candidates_if_empty) == (
        len(hosts),
        len(empty[everything]),
    )
    for each in found.requirements:
        alone = now[frozenset((each.condition,))]
        assert each.hosts_lacking == len(hosts - alone)
        assert each.candidates_without_it == len(without[each.condition]), each
        assert each.hosts_lacking_only_this == len(
            without[each.condition] - alone
        )
        assert sum(each.others_kept_out_by.values()) == len(alone - candidates)
    told = _told(found)
    assert set(told) == set(
        _smallest(part for part, met in now.items() if not met)
    )
    assert bool(told) == (not candidates)
    for part, conflict in zip_equal(told, found.conflicts):
        assert conflict.ever == (not empty[part])
    # Each way to break all sets gives a host.
    least = _smallest(
        part
        for part in (frozenset[Condition](), *now)
        if all(part & conflict for conflict in told)
    )
    assert all(now[everything - part] for part in least if part != everything)
    freed = frozenset(
        host for each in found.requirements for host in each.free_on
    )
    assert candidates or empty[everything] == freed
    assert sorted(
        host for each in found.accounts for host in each.hosts
    ) == sorted(hosts)
    for account in found.accounts:
        for host in account.hosts:
            kept = [frozenset[Condition](), *now]
            ways = _smallest(
                everything - part
                for part in kept
                if not part or host in now[part]
            )
            assert set(account.without) == {
                tuple(sorted(numbers[item] for item in way)) for way in ways
            }
    fewest = {
        host: min(map(len, each.without))
        for each in found.accounts
        for host in each.hosts
        if each.without[0]
    }
    near = {
        host: len(each.lacks) for each in found.nearest for host in each.hosts
    }
    assert near == {host: fewest[host] for host in near}
    assert sorted(near.values()) == sorted(fewest.values())[: len(near)]
    assert len(near) >= min(5, len(fewest))


def _where_room_helps(
    everything: frozenset[Condition],
    freed: dict[frozenset[str], frozenset[str]],
) -> dict[Condition, set[str]]:
    """Return the hosts where freeing a requirement's class, in a smallest set
    of classes, gives a candidate.

    :param freed: resource classes -> the candidates where nothing of them is
        used
    """
    free_on: dict[Condition, set[str]] = {item: set() for item in everything}
    for host in frozenset[str]().union(*freed.values()):
        sets = [names for names, hosts in freed.items() if host in hosts]
        smallest = [
            names for names in sets if not any(other < names for other in sets)
        ]
        for item in everything:
            if item.kind == RESOURCE and any(
                item.names[0] in names for names in smallest
            ):
                free_on[item].add(host)
    return free_on


def _freed(fleet: Fleet, names: frozenset[str]) -> Fleet:
    """Return a fleet in which nothing of some resource classes is used."""

    def freed(provider: Provider) -> Provider:
        resources = {
            name: replace(inventory, used=0) if name in names else inventory
            for name, inventory in provider.resources.items()
        }
        return replace(
            provider,
            resources=resources,
            providers=tuple(map(freed, provider.providers)),
        )

    return Fleet(tuple(map(freed, fleet.hosts)))


def _smallest(
    parts: Iterable[frozenset[Condition]],
) -> list[frozenset[Condition]]:
    found: list[frozenset[Condition]] = []
    for part in sorted(parts, key=len):
        if not any(other <= part for other in found):
            found.append(part)
    return found
