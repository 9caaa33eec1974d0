"""Every number and every smallest set that a diagnosis names is what a real Placement says, by brute force."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain, combinations
from random import Random

import pytest

from os_prefilter import Pipeline
from os_prefilter.adapters.embedded import EmbeddedPlacement
from os_prefilter.fleet.model import Fleet, Provider
from os_prefilter.operators.diagnose.diagnose import diagnose
from os_prefilter.operators.diagnose.result import CANDIDATES, NO_CANDIDATES, Diagnosis
from os_prefilter.request.demand import RESOURCE, Condition, Demand
from tests.conftest import spec_of, times
from tests.support.demands import oracle, random_demand, random_fleet, request_of
from tests.support.placements import lone_host

Parts = dict[frozenset[Condition], frozenset[str]]
"""Each part of a demand, and the hosts that meet it."""

_MOST_CONDITIONS = 6


@pytest.mark.parametrize("seed", range(times(4)))
def test_diagnosis_matches_brute_force_queries_to_placement(seed: int) -> None:
    random = Random(seed)  # noqa: S311
    fleet, demand = _drawn(random, flat=seed % 4 == 0, alike=seed % 4 == 1)
    merged = demand.merge_alike()
    with oracle(fleet) as placement:
        found = diagnose(request_of(demand), Pipeline.from_names(), fleet, placement.client, live=False)
        assert {each.condition for each in found.requirements} == set(merged.conditions())
        now = {part: placement.meeting(merged, part) for part in _parts(merged)}
        without = {item: placement.without(demand, item) for item in merged.conditions()}
    with oracle(Fleet(tuple(map(_emptied, fleet.hosts)))) as placement:
        empty = {part: placement.meeting(merged, part) for part in _parts(merged)}
    _check(found, now, empty, without, frozenset(host.name for host in fleet.instance_hosts))


def test_finding_names_the_extra_spec_that_asks_for_a_resource() -> None:
    """Also where its key ends with a line break, which Nova does not read as part of the class."""
    spec = spec_of(extra_specs={"resources1:VGPU\n": "1", "resources:FPGA\n": "1"})
    with EmbeddedPlacement(lone_host()) as placement:
        found = diagnose(spec, Pipeline.from_names(), lone_host(), placement.client, live=False)
    because = {str(each.condition): each.because for each in found.requirements}
    assert because["VGPU=1"] == "flavor extra spec resources1:VGPU"
    assert because["FPGA=1"] == "flavor extra spec resources:FPGA"


def _drawn(random: Random, *, flat: bool, alike: bool) -> tuple[Fleet, Demand]:
    while True:
        fleet = random_fleet(random, 5, flat=flat)
        demand = random_demand(random, fleet, flat=flat)
        if alike and "_0" in demand.groups:
            # One more group like the first.
            demand = replace(demand, groups={**demand.groups, "_2": demand.groups["_0"]}, same_subtree=())
        if 2 <= len(demand.merge_alike().conditions()) <= _MOST_CONDITIONS and (not alike or "_2" in demand.groups):
            return fleet, demand


def _emptied(provider: Provider) -> Provider:
    resources = {name: replace(inventory, used=0) for name, inventory in provider.resources.items()}
    return replace(provider, resources=resources, providers=tuple(map(_emptied, provider.providers)))


def _parts(demand: Demand) -> Iterator[frozenset[Condition]]:
    conditions = demand.conditions()
    sizes = range(1, len(conditions) + 1)
    yield from map(frozenset, chain.from_iterable(combinations(conditions, size) for size in sizes))


def _check(
    found: Diagnosis, now: Parts, empty: Parts, without: dict[Condition, frozenset[str]], hosts: frozenset[str]
) -> None:
    everything = frozenset(each.condition for each in found.requirements)
    numbers = {each.condition: each.number for each in found.requirements}
    candidates = now[everything]
    assert found.stage == (CANDIDATES if candidates else NO_CANDIDATES)
    assert set(found.candidates) == candidates
    assert found.hosts == len(hosts)
    assert found.candidates_if_empty == len(empty[everything])
    for each in found.requirements:
        alone = now[frozenset((each.condition,))]
        assert each.hosts_lacking == len(hosts - alone)
        assert each.candidates_without_it == len(without[each.condition]), each
        assert each.hosts_lacking_only_this == len(without[each.condition] - alone)
        assert sum(each.others_kept_out_by.values()) == len(alone - candidates)
    conflicts = _smallest(part for part, met in now.items() if not met)
    told = [part for part in conflicts if not _follows(part, conflicts, everything)]
    assert {each.requirements for each in found.conflicts} == {_numbers(part, numbers) for part in told}
    for conflict in found.conflicts:
        (part,) = (each for each in now if _numbers(each, numbers) == conflict.requirements)
        assert conflict.ever == (not empty[part])
    assert sorted(host for each in found.accounts for host in each.hosts) == sorted(hosts)
    for account in found.accounts:
        for host in account.hosts:
            kept = [frozenset[Condition](), *now]
            ways = _smallest(everything - part for part in kept if not part or host in now[part])
            assert set(account.without) == {_numbers(_without_rest(way, everything), numbers) for way in ways}
    fewest = {host: min(map(len, each.without)) for each in found.accounts for host in each.hosts if each.without[0]}
    near = {host: len(each.lacks) for each in found.nearest for host in each.hosts}
    assert near == {host: fewest[host] for host in near}
    assert sorted(near.values()) == sorted(fewest.values())[: len(near)]
    assert len(near) >= min(5, len(fewest))


def _smallest(parts: Iterable[frozenset[Condition]]) -> list[frozenset[Condition]]:
    found: list[frozenset[Condition]] = []
    for part in sorted(parts, key=len):
        if not any(other <= part for other in found):
            found.append(part)
    return found


def _follows(part: frozenset[Condition], others: list[frozenset[Condition]], everything: frozenset[Condition]) -> bool:
    """Whether no host can meet a set because none meets the resources of its groups."""
    scopes = {item.scope for item in part if item.kind != RESOURCE}
    resources = {item for item in everything if item.kind == RESOURCE and item.scope in scopes}
    return any(other != part and other <= part | resources for other in others)


def _without_rest(way: frozenset[Condition], everything: frozenset[Condition]) -> frozenset[Condition]:
    """Return a way without what goes with all resources of a group."""
    kept = {item.scope for item in everything - way if item.kind == RESOURCE}
    groups = {item.scope for item in everything if item.kind == RESOURCE} - kept
    return frozenset(item for item in way if item.kind == RESOURCE or item.scope not in groups)


def _numbers(part: frozenset[Condition], numbers: dict[Condition, int]) -> tuple[int, ...]:
    return tuple(sorted(numbers[item] for item in part))
