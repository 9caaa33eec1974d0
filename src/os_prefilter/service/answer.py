# SPDX-License-Identifier: Apache-2.0

"""What follows Placement's response: a reason, preferences, or a comparison.

Nothing is read for a request that has candidates, and nothing is rejected that
Placement did not reject. Nova says "No valid host was found." and nothing else
when there is no candidate. Here the author of the image reads the smallest set
of properties that no host serves together; if hosts serve them all, which
trait, service or resource is missing. What shadow filters would have changed
is found in the response itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import (
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from functools import partial
from math import inf
from random import choice
from time import monotonic
from typing import TYPE_CHECKING, Any, Optional
from urllib.parse import parse_qsl

import os_traits

from os_prefilter.common.errors import NoHostLeft, NoHostServes
from os_prefilter.common.host_sets import set_of, smallest_disjoint
from os_prefilter.hosts.marker_traits import CPU
from os_prefilter.pipeline.decision import Decision, ShadowRun
from os_prefilter.request.requirements import ROOT, UNSUFFIXED
from os_prefilter.service import deployment_facts
from os_prefilter.service.capacity import (
    CapacityCheck,
    PlacementReader,
    not_known,
)
from os_prefilter.service.deployment_facts import ask_in_time
from os_prefilter.service.request_events import ShadowResult

if TYPE_CHECKING:
    from concurrent.futures import Future

MOST_HOSTS = 256
"""Maximum number of hosts in a sample.

It needs one for each set of traits that requests ask for.
"""

# Requests to Placement for one reason, at most; each shows that hosts serve
# what the sample's did not, or that a host of the sample has changed.
_MOST_ASKED = 40

_CPU_FEATURE = "HW_CPU_"
CPU_TRAITS = (_CPU_FEATURE, CPU)
"""What the names begin with of the traits that :func:`cpu_fit` reads."""

Demand = frozenset[str]
"""Traits of the root provider of a host, with ``!`` before a forbidden one."""

_ANY: Demand = frozenset()
_NODES: Demand = frozenset((os_traits.COMPUTE_NODE,))


def is_met(demand: Demand, traits: frozenset[str]) -> bool:
    """Return whether a host with these traits meets a demand."""
    for name in demand:
        trait = name.removeprefix("!")
        is_forbidden = trait != name
        if (trait in traits) is is_forbidden:
            return False
    return True


def _demands_on_root(
    decision: Decision, query: str
) -> dict[tuple[str, ...], Demand]:
    """Return the demand on the root provider of a host, by property.

    That of no property, such as an enabled compute service, has the key ().

    :param query: has what is left of it; empty if that is not known
    """
    asked: set[str] = set()
    for key, value in parse_qsl(query):
        if "required" in key:
            asked.update(value.replace("!", "").split(","))
    demands: dict[tuple[str, ...], Demand] = {(): _ANY}
    for item in decision.requirements:
        if item.scope != ROOT or item in decision.removed_later:
            continue
        # A request filter that ran after all of these may have removed it.
        if query and item.trait not in asked:
            continue
        sign = "" if item.required else "!"
        before = demands.get(item.properties, _ANY)
        demands[item.properties] = before | {f"{sign}{item.trait}"}
    return demands


class ReasonFinder:
    """Finds why Placement has no candidate for a request.

    It knows the traits of a few hosts, from earlier failures of this process:
    they suggest what no host serves, and Placement confirms it for each
    request.

    :param counts: whether the reason has numbers of hosts
        (``no_host_reason = counts``)
    :param records: whether numbers of hosts are recorded
    """

    def __init__(
        self,
        placement: PlacementReader,
        *,
        counts: bool = False,
        records: bool = False,
    ) -> None:
        self._placement = placement
        self._counts = counts
        self._capacity = CapacityCheck(
            placement, records=records, counts=counts
        )
        # UUID of the root provider of a host -> its traits. Never changed but
        # replaced: requests of several threads use it.
        self._sample: Mapping[str, frozenset[str]] = {}
        # A search that Placement did not answer in time.
        self._late: Future[NoHostLeft] | None = None

    def find(
        self,
        decision: Decision,
        query: str,
        context: Any = None,
        until: float = inf,
    ) -> NoHostLeft:
        """Return why a query for candidates had none.

        :param query: as it was sent to Placement, urlencoded; empty if it is
            not known
        :param until: when the request waits no longer, on the clock of
            :func:`time.monotonic`
        """
        if self._late and not self._late.done():
            # Or each request would leave a thread behind.
            return not_known(
                "The reason is not known: Placement has not responded to an"
                " earlier question"
            )
        find = partial(self._find, decision, query, context, until)
        asked, problem = ask_in_time(find, "no host", until)
        if problem:
            self._late = asked
            return not_known(f"The reason is not known: {problem}")
        return asked.result()

    def _find(
        self, decision: Decision, query: str, context: Any, until: float
    ) -> NoHostLeft:
        parts = _demands_on_root(decision, query)
        every = parts.pop(())
        if parts:
            # Half of the time is for what must be asked.
            spare = min(until, monotonic() + deployment_facts.PATIENCE / 2)
            reason = self._blame(parts, every, context, spare)
            if reason:
                return reason
        if not query:
            return not_known("The query for candidates is not known")
        return self._capacity.find_short_resource(query)

    def _blame(
        self,
        parts: Mapping[tuple[str, ...], Demand],
        every: Demand,
        context: Any,
        until: float,
    ) -> NoHostServes | None:
        """Return the properties that no host serves together.

        None if hosts serve them, or if that is not known. Whatever the
        sample's hosts do not serve together, Placement is asked for; if hosts
        do, one joins the sample.

        :param parts: the demand by properties
        :param every: that of no property
        :param until: when only the necessary queries are made
        """
        total = every
        for part in parts.values():
            total |= part
        if not self._sample:
            # Without it, the first query may be answered with most hosts.
            self._read(self._placement.some_hosts(context))
        for _ in range(_MOST_ASKED):
            if self._is_served(total):
                return None
            # Another request may replace it, and places would be of others.
            sample = self._sample
            usable = _hosts_meeting(sample, _NODES | every)
            blamed = smallest_disjoint(
                {
                    names: _hosts_meeting(sample, part) & usable
                    for names, part in parts.items()
                }
            )
            alone = _ANY
            for properties in blamed:
                alone |= parts[properties]
            if not blamed:
                return None
            found = self._placement.hosts(alone | every)
            if found is None:
                return None
            if found:
                self._join(found)
            # Where no host is available at all, no property is to blame.
            elif usable or self._join(self._placement.hosts(_NODES | every)):
                # A host that is disabled, for instance. Without the time to
                # ask, it is true that none is available.
                excluded = every and (
                    monotonic() > until or self._placement.hosts(alone)
                )
                blame = {names: parts[names] for names in blamed}
                which = "available" if excluded else ""
                return self._with_numbers(blame, every, which)
            else:
                return None
        return None

    def _is_served(self, demand: Demand) -> bool:
        """Return whether a host of the sample serves a demand.

        Placement has just said that it is no candidate: it lacks resources, or
        its traits have changed, so they are read again.
        """
        serving = [
            host
            for host, traits in self._sample.items()
            if is_met(demand, traits)
        ]
        for host in serving[:_MOST_ASKED]:
            self._read([host])
            traits = self._sample.get(host)
            if traits is not None and is_met(demand, traits):
                return True
        return False

    def _join(self, found: Sequence[str] | None) -> bool:
        """Add one of the hosts to the sample; return whether there was any."""
        if not found:
            return False
        # At random: the first ones would often be those that were installed
        # together.
        self._read([choice(found)])  # noqa: S311 - no secret
        return True

    def _read(self, hosts: Iterable[str]) -> None:
        """Read the traits of hosts into the sample; the oldest ones go."""
        sample = dict(self._sample)
        for host in hosts:
            sample.pop(host, None)
            traits = self._placement.traits(host)
            if traits is not None:
                sample[host] = traits
        self._sample = dict(list(sample.items())[-MOST_HOSTS:])

    def _with_numbers(
        self,
        blame: Mapping[tuple[str, ...], Demand],
        every: Demand,
        which: str,
    ) -> NoHostServes:
        """Return the reason, with numbers of hosts if they are shown.

        :param which: "available" if hosts serve the properties that are
            excluded anyway, else empty
        """
        names = map(" and ".join, blame)
        if not self._counts:
            return NoHostServes(names, which=which)
        every |= _NODES
        hosts = self._number(every if which else _NODES)
        alone = []
        if len(blame) > 1:
            alone = [self._number(every | part) for part in blame.values()]
        return NoHostServes(names, hosts, alone, which)

    def _number(self, demand: Demand) -> int:
        return len(self._capacity.ask(self._placement.hosts, demand) or ())


def _hosts_meeting(
    sample: Mapping[str, frozenset[str]], demand: Demand
) -> int:
    """Return the places in the sample of the hosts that meet a demand."""
    return set_of(
        place
        for place, traits in enumerate(sample.values())
        if is_met(demand, traits)
    )


ProviderSummaries = Mapping[str, Mapping[str, Any]]
"""``provider_summaries`` of Placement's response."""


def preferred_shares(
    decision: Decision, summaries: ProviderSummaries
) -> dict[str, float]:
    """Return the share of the preferred traits that each host has.

    :return: UUID of a root provider -> share, from 0.0 to 1.0
    """
    return {
        uuid: decision.preferred_share(traits)
        for uuid, traits in _traits_of_hosts(summaries)
    }


def cpu_fits(
    source: Collection[str], summaries: ProviderSummaries
) -> dict[str, float]:
    """Return how well the CPU of each host fits a guest of another host.

    :param source: all traits of that host
    :return: UUID of a root provider -> :func:`cpu_fit`
    """
    return {
        uuid: cpu_fit(source, traits)
        for uuid, traits in _traits_of_hosts(summaries)
    }


def cpu_fit(source: Collection[str], traits: Collection[str]) -> float:
    """Return how well the CPU of a host fits a guest of another host.

    :param source: all traits of the other host, without a CPU trait if it is
        not known what its guests have
    :return: 1.0 for the same CPU, by what the agents of both report or else by
        CPU traits; 0.5 for more CPU traits; else 0.0
    """
    needed, features = _cpu_features(source), _cpu_features(traits)
    reported, other = _cpu_markers(source), _cpu_markers(traits)
    if reported and other:
        is_same = reported == other
    else:
        is_same = bool(needed) and features == needed
    if is_same:
        return 1.0
    # Such a CPU may lack a feature for which there is no trait, and a server
    # that starts there may have no way back.
    return 0.5 if needed and features >= needed else 0.0


def _cpu_markers(traits: Iterable[str]) -> set[str]:
    return {each for each in traits if each.startswith(CPU)}


def _cpu_features(traits: Iterable[str]) -> set[str]:
    features = {each for each in traits if each.startswith(_CPU_FEATURE)}
    # Of the host's threads; a guest's CPU is the same without them.
    return features - {os_traits.HW_CPU_HYPERTHREADING}


def _traits_of_hosts(
    summaries: ProviderSummaries,
) -> Iterator[tuple[str, Collection[str]]]:
    for uuid, summary in summaries.items():
        if summary["root_provider_uuid"] == uuid:
            yield uuid, summary["traits"]


def shadow_results(
    runs: Iterable[ShadowRun], candidates: Mapping[str, Any]
) -> tuple[ShadowResult, ...]:
    """Return how many hosts lack what each shadow filter requires.

    A host lacks it if no candidate on it has it. Aggregates are not in the
    response: no host counts as lacking because of them.

    :param runs: one that changes nothing has no result
    :param candidates: Placement's response, from microversion 1.34 on
    """
    changing = [run for run in runs if run.changes]
    if not changing:
        return ()
    scopes = {item.scope for run in changing for item in run.requirements}
    groups = sorted(scopes - {ROOT})
    offered = _hosts_by_traits(groups, changing, candidates)
    hosts = set[str]().union(*offered.values())
    results = []
    for run in changing:
        demands = [_demand_on(scope, run) for scope in (ROOT, *groups)]
        left = set[str]()
        for traits, some in offered.items():
            if all(map(_may_meet, demands, traits)):
                left |= some
        lacking = len(hosts) - len(left)
        if run.result == "rejected":
            lacking = len(hosts)
        results.append(ShadowResult(run, len(hosts), lacking))
    return tuple(results)


def _demand_on(scope: str, run: ShadowRun) -> Demand:
    return frozenset(
        item.trait if item.required else f"!{item.trait}"
        for item in run.requirements
        if item.scope == scope
    )


def _may_meet(demand: Demand, traits: frozenset[str] | None) -> bool:
    """Return whether traits meet a demand; True if they are not known."""
    return traits is None or is_met(demand, traits)


def _hosts_by_traits(
    groups: Sequence[str],
    runs: Iterable[ShadowRun],
    candidates: Mapping[str, Any],
) -> dict[tuple[frozenset[str] | None, ...], set[str]]:
    """Return the traits of candidates -> the hosts that are offered with them.

    They are those on the root, and those in each group; None if not known.
    """
    summaries = candidates["provider_summaries"]
    # Without the traits that no filter names, most hosts are equal.
    named = _NODES
    new_groups: dict[str, frozenset[str]] = {}
    for run in runs:
        named |= {item.trait for item in run.requirements}
        for new in run.own_groups:
            new_groups[new.requester_id] = new.resource_classes
    traits = {
        uuid: named.intersection(summary["traits"])
        for uuid, summary in summaries.items()
    }
    hosts = defaultdict[tuple[Optional[frozenset[str]], ...], set[str]](set)
    for candidate in candidates["allocation_requests"]:
        in_groups = [
            _traits_in_group(group, candidate, traits, new_groups)
            for group in groups
        ]
        for uuid in candidate["allocations"]:
            root = summaries[uuid]["root_provider_uuid"]
            # Another one only shares its resources.
            if os_traits.COMPUTE_NODE in traits[root]:
                key = (traits[root], *in_groups)
                hosts[key].add(root)
    return hosts


def _traits_in_group(
    group: str,
    candidate: Mapping[str, Any],
    traits: Mapping[str, frozenset[str]],
    new_groups: Mapping[str, frozenset[str]],
) -> frozenset[str] | None:
    """Return the traits of a group's providers; None if they are not known.

    Placement requires that they have a trait together, and forbids it on each.

    :param group: its suffix, or :data:`UNSUFFIXED`
    :param new_groups: suffix -> resource classes of a group that the query
        does not have yet: there they are in the unsuffixed group
    """
    mappings = candidate["mappings"]
    providers = mappings.get("" if group == UNSUFFIXED else group, ())
    if not providers:
        allocations = candidate["allocations"]
        classes = new_groups.get(group, frozenset())
        providers = [
            uuid
            for uuid in mappings.get("", ())
            if classes.intersection(allocations[uuid]["resources"])
        ]
    if not providers:
        return None
    return frozenset[str]().union(*[traits[uuid] for uuid in providers])
