"""The hosts that the first allocation candidates cover: Nova requests only so many, and its scheduler sees no others.

A request with several groups has a candidate for each way to choose a provider for each group. Placement creates all
candidates of one host before the next (``depth-first``) or one of each host in turn (``breadth-first``), ends at
``max_allocation_candidates``, and then returns ``limit`` of them in an order without meaning
(``placement/objects/allocation_candidate.py`` and ``research_context.py`` of Placement 16.0.0).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import factorial, prod
from typing import Any

import os_traits

from os_prefilter.common.errors import PlacementError
from os_prefilter.common.quoting import pluralize
from os_prefilter.request.spec import RequestGroup
from os_prefilter_tools.fleet.demand import Demand
from os_prefilter_tools.fleet.matching import Host, fits
from os_prefilter_tools.fleet.model import Fleet, Provider
from os_prefilter_tools.operators.diagnose.result import FirstCandidates

BREADTH_FIRST = "breadth-first"

_MOST_TRIED, _MOST_CREATED, _MOST_COMPARED = 5_000_000, 100_000, 5_000_000
"""Combinations that a Placement in this process may try, candidates that it may create, and comparisons of these: about
10 seconds, and 300 MB."""


@dataclass(frozen=True)
class Limits:
    """The options that limit allocation candidates."""

    max_placement_results: int = 1000
    """nova-scheduler's ``[scheduler] max_placement_results``: the most that it requests."""
    max_allocation_candidates: int | None = None
    """Placement's ``[placement] max_allocation_candidates``; negative for all; None if it is not known."""
    strategy: str | None = None
    """Placement's ``[placement] allocation_candidates_generation_strategy``; None if it is not known."""

    @property
    def created(self) -> int | None:
        """The most candidates that Placement creates; None for all, its default."""
        most = self.max_allocation_candidates
        # With 0 it ends after the first.
        return None if most is None or most < 0 else max(most, 1)

    @property
    def returned(self) -> int:
        """The most candidates that it returns."""
        return min(self.max_placement_results, self.created or self.max_placement_results)


def find_first(
    hosts: Sequence[Host], demand: Demand, limits: Limits, ask: Callable[[], Any], *, live: bool
) -> FirstCandidates:
    """Count the hosts that the first candidates cover.

    :param hosts: the hosts that meet the demand
    :param ask: returns the candidates of Placement (:class:`os_prefilter.adapters.placement.client.Candidates`) for
        a query with the limit of Nova; not called where the number follows from the limits, or that would take long
    :param live: whether it asks the Placement of a cloud, whose response always counts
    """
    combinations = _count_combinations(hosts, demand)
    found = FirstCandidates(
        limits.max_placement_results, limits.max_allocation_candidates, limits.strategy, combinations
    )
    if not live:
        if combinations == len(hosts) or combinations <= limits.returned:
            # Each host has one candidate, or all candidates of all hosts are among the first.
            covered = min(len(hosts), limits.returned)
            return replace(found, hosts=covered, help=_help(covered, found, len(hosts), limits))
        if cost := describe_cost(hosts, demand, limits):
            return replace(found, help=cost)
    try:
        answer = ask()
    except PlacementError as error:
        return replace(found, help=f"The hosts of the first candidates were not counted: {error}")
    covered = len({host.name for host in hosts}.intersection(answer.hosts))
    found = replace(found, hosts=covered)
    if answer.count < limits.returned and covered < len(hosts):
        if limits.max_allocation_candidates is not None:
            count = f"Placement returned only {pluralize(answer.count, 'candidate')}, of {covered} of these hosts"
            return replace(found, help=f"{count}: the fleet has changed since it was read. Run this again.")
        # Most likely it is limited to as many.
        limits = replace(limits, max_allocation_candidates=answer.count)
    return replace(found, help=_help(covered, found, len(hosts), limits))


def describe_cost(hosts: Sequence[Host], demand: Demand, limits: Limits) -> str:
    """Return what to do about a request that takes Placement long; empty if it does not."""
    combinations = _count_combinations(hosts, demand)
    created = min(combinations, limits.created or combinations)
    # Placement compares candidates that take the same from the same providers, in any order of groups that are alike.
    orders = prod(factorial(len(suffixes.split(","))) for suffixes in demand.merge_alike().groups)
    if combinations <= _MOST_TRIED and created <= _MOST_CREATED and created * min(created, orders) <= _MOST_COMPARED:
        return ""
    return (
        f"Placement may try {combinations:,} combinations of providers for this request before it applies the limit "
        "that Nova sends, and run out of time or memory: in placement.conf, set [placement] max_allocation_candidates "
        f"= 1000 and allocation_candidates_generation_strategy = {BREADTH_FIRST}; or request devices with fewer groups."
    )


def only_hosts(fleet: Fleet, names: Iterable[str], demand: Demand) -> Fleet:
    """Return a fleet with these hosts, what shares resources with them, and of all traits those that matter."""
    kept = frozenset(names)
    traits = frozenset(name for item in demand.conditions() for name in item.names)
    traits |= {os_traits.MISC_SHARES_VIA_AGGREGATE, os_traits.COMPUTE_NODE}

    def is_needed(root: Provider) -> bool:
        return root.name in kept or any(os_traits.MISC_SHARES_VIA_AGGREGATE in each.traits for each in root.walk())

    def only_traits(provider: Provider) -> Provider:
        return replace(provider, traits=provider.traits & traits, providers=tuple(map(only_traits, provider.providers)))

    return replace(fleet, hosts=tuple(map(only_traits, filter(is_needed, fleet.hosts))))


def _count_combinations(hosts: Iterable[Host], demand: Demand) -> int:
    """Return how many combinations of providers Placement may try: at least as many as there are candidates."""
    return sum(prod(_count_choices(host, demand)) for host in hosts)


def _count_choices(host: Host, demand: Demand) -> Iterator[int]:
    for suffixes, group in demand.groups.items():
        if suffixes:
            yield _count_able(host, group) ** len(suffixes.split(","))
        else:
            # Each resource may come from another provider, with another of the traits.
            for name, amount in group.resources.items():
                yield _count_able(host, replace(group, resources={name: amount}, required_traits=frozenset()))


def _count_able(host: Host, group: RequestGroup) -> int:
    return sum(
        all(name in each.resources and fits(each.resources[name], amount) for name, amount in group.resources.items())
        and group.forbidden_traits.isdisjoint(each.traits)
        and group.required_traits <= each.traits
        for each in (*host.own, *host.shared)
    )


def _help(covered: int, found: FirstCandidates, hosts: int, limits: Limits) -> str:
    if covered >= hosts:
        return ""
    finding = (
        f"The first {pluralize(limits.returned, 'candidate')} are of {pluralize(covered, 'host')}; nova-scheduler does "
        f"not see {pluralize(hosts - covered, 'other capable host')}. If a host filter or a claim excludes those that "
        "it sees, the result is 'No valid host'."
    )
    has_several, results = found.combinations > hosts, max(limits.max_placement_results, hosts)
    changes = []
    if results > limits.max_placement_results:
        changes.append(f"[scheduler] max_placement_results = {results} in nova.conf")
    if has_several and limits.strategy != BREADTH_FIRST:
        changes.append(f"[placement] allocation_candidates_generation_strategy = {BREADTH_FIRST} in placement.conf")
    if has_several if limits.created is None else not hosts <= limits.created <= results:
        changes.append(f"[placement] max_allocation_candidates = {results} in placement.conf")
    if results > limits.max_placement_results:
        finding += (
            " In a large cloud that is usual, and more candidates take nova-scheduler longer: where its host filters "
            "exclude most hosts, first require a trait or an aggregate, so that Placement leaves them out."
        )
    if changes:
        return f"{finding} Set {'; '.join(changes)}."
    return (
        f"{finding} Some hosts have so many combinations that others come too late even {BREADTH_FIRST}: raise "
        f"[placement] max_allocation_candidates and [scheduler] max_placement_results above {results}, or request "
        "devices with fewer groups."
    )
