# SPDX-License-Identifier: Apache-2.0

"""The requirements that hosts fail, and the smallest unmet sets.

The smallest sets of requirements that no host satisfies together.

A *set to drop* is a smallest set of conditions without which a host would be a
candidate, where dropping stands for both that users can do: not to request it,
and to give the host what it lacks. A set of conditions that no host meets
contains part of each set to drop of each host, and a smallest such set is a
*conflict*.

A group that keeps no resource is gone, with its traits and aggregates:
Placement looks for these on the providers that give the resources. A set to
drop has them nevertheless if no provider that has any of the resources, full
or not, meets them: the group is back once the resources are free. Of a host
without such a provider, it is the root.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

from os_prefilter.common.progress import Progress, no_progress
from os_prefilter_tools.fleet.demand import (
    RESOURCE,
    TRAIT,
    TREE,
    Condition,
    Demand,
)
from os_prefilter_tools.fleet.host_index import Look
from os_prefilter_tools.fleet.matching import Host, Work, meets
from os_prefilter_tools.operators.diagnose.smallest_sets import (
    SmallestSets,
    one_unmet,
    smallest_sets,
)

Conditions = frozenset[Condition]

_MOST_STEPS = 200_000
"""The most steps of searches.

For all sets of all hosts, then for one set of each; and of that for conflicts.
"""
_MOST_KEPT = 10_000
_MOST_CLASSES = 6
"""Resource classes of which all sets are tried.

Of more, each alone and all together.
"""


@dataclass(frozen=True)
class _EqualHosts:
    """Hosts that are equal by all that a demand requires."""

    host: Host
    names: list[str]
    lacks: Conditions
    """The conditions that are in each set to drop."""
    is_candidate: bool


class Shortfalls:
    """The requirements of a demand that the hosts of a fleet fail.

    :param what: the hosts, for the progress
    :param progress: called with the current stage, how many are done, and how
        many there are
    """

    def __init__(
        self,
        hosts: Iterable[Host],
        demand: Demand,
        what: str = "hosts",
        progress: Progress = no_progress,
    ) -> None:
        self.conditions = demand.conditions()
        self._everything = frozenset(self.conditions)
        self._demand = demand
        self._rest_of: dict[str, list[Condition]] = {}
        for suffix, group in demand.groups.items():
            conditions = Demand({suffix: group}).conditions()
            self._rest_of[suffix] = [
                item for item in conditions if item.kind != RESOURCE
            ]
        """The conditions of each group without its resources."""
        self._progress = progress
        self._work = Work()
        self._parts: dict[Conditions, tuple[Demand, Conditions]] = {}
        self._last: Host | None = None
        self._met_if_free: Conditions = frozenset()
        """The conditions that the last host meets if all of it is free."""
        look = Look(self.conditions)
        by_look: dict[object, tuple[Host, list[str]]] = {}
        for host in hosts:
            # Of equal hosts, only the first is kept.
            _, names = by_look.setdefault(look.key_of(host), (host, []))
            names.append(host.name)
        self._equal_hosts = []
        for number, equal in enumerate(by_look.values(), 1):
            self._equal_hosts.append(self._examine(*equal))
            progress(f"groups of {what}", number, len(by_look))

    # -- numbers
    # -------------------------------------------------------------------------

    @property
    def hosts(self) -> int:
        """The number of hosts."""
        return _count_hosts(self._equal_hosts)

    @cached_property
    def candidates(self) -> tuple[str, ...]:
        """The hosts that meet all conditions, sorted."""
        return tuple(
            sorted(
                name
                for equal in self._equal_hosts
                if equal.is_candidate
                for name in equal.names
            )
        )

    @cached_property
    def lacks(self) -> Mapping[str, Conditions]:
        """Host -> conditions it fails even if all others are dropped."""
        return {
            name: equal.lacks
            for equal in self._equal_hosts
            for name in equal.names
        }

    def count_lacking(self, condition: Condition) -> int:
        """Return how many hosts fail a condition on its own."""
        return _count_hosts(
            equal for equal in self._equal_hosts if condition in equal.lacks
        )

    def count_lacking_only(self, condition: Condition) -> int:
        """Return how many of these would be candidates without it."""
        return _count_hosts(
            equal
            for equal in self._candidates_without[condition]
            if condition in equal.lacks
        )

    def count_if_dropped(self, condition: Condition) -> int:
        """Return the number of candidates without a condition."""
        return _count_hosts(self._candidates_without[condition])

    def find_to_free(
        self, hosts: Iterable[Host]
    ) -> dict[str, list[frozenset[str]]]:
        """Return the smallest sets of resource classes to free on each host.

        With them free, it would be a candidate.

        :param hosts: the hosts that would be candidates if they were empty;
            the last ones are left out after many steps
        """
        asked = {
            item.names[0] for item in self.conditions if item.kind == RESOURCE
        }
        work, found = Work(), {}
        for host in hosts:
            if work.steps > _MOST_STEPS:
                break
            found[host.name] = _smallest_to_free(
                host, asked, self._demand, work
            )
        return found

    @property
    def given_up(self) -> int:
        """How many searches for providers reached their limit.

        The host then counts as failing the condition.
        """
        return self._work.given_up

    # -- sets
    # -------------------------------------------------------------------------

    @cached_property
    def to_drop(self) -> Mapping[str, Sequence[Conditions]]:
        """Host -> its sets to drop, smallest first."""
        return {
            name: sets
            for equal, (sets, _) in zip(self._equal_hosts, self._sets_to_drop)
            for name in equal.names
        }

    @property
    def conflicts(self) -> Sequence[Conditions]:
        """The smallest sets that no host meets, fewest conditions first.

        None only if there are candidates.
        """
        return self._smallest.unmet

    @property
    def is_limited(self) -> bool:
        """Return whether more sets may exist than were found."""
        return not (
            self._smallest.are_all
            and all(are_all for _, are_all in self._sets_to_drop)
        )

    def is_conflict(self, conditions: Conditions) -> bool:
        """Return whether no host meets these."""
        left_out = self._everything - conditions
        return not any(
            self._suffices(k.host, left_out)
            for k in self._equal_hosts
            if conditions.isdisjoint(k.lacks)
        )

    # ------------------------------------------------------------------------

    def _examine(self, host: Host, names: list[str]) -> _EqualHosts:
        is_candidate = self._suffices(host, frozenset())
        lacks = frozenset(
            item
            for item in self.conditions
            if not is_candidate
            and not self._suffices(host, self._everything - {item})
        )
        return _EqualHosts(host, names, lacks, is_candidate)

    def _suffices(self, host: Host, left_out: Conditions) -> bool:
        """Return whether a host is a candidate without these conditions.

        And if it had what they demand.
        """
        if left_out not in self._parts:
            if len(self._parts) >= _MOST_KEPT:
                self._parts.clear()
            gone = self._demand.find_implied(left_out)
            self._parts[left_out] = (
                self._demand.only(self._everything - left_out - gone),
                gone - left_out,
            )
        part, rest = self._parts[left_out]
        return self._is_met(host, part) and rest <= self._met_if_free

    def _is_met(self, host: Host, demand: Demand) -> bool:
        if host is not self._last:
            self._work.options.clear()
            self._last = host
            self._met_if_free = self._find_met_if_free(host)
        return meets(host, demand, self._work)

    def _find_met_if_free(self, host: Host) -> Conditions:
        """Return the groups' conditions that one of their providers meets.

        The providers are those of the group's resources, full or not; on a
        host without one, the root.
        """
        found = []
        for suffix, group in self._demand.groups.items():
            own, shared = (
                [
                    each
                    for each in providers
                    if not group.resources.keys().isdisjoint(each.resources)
                ]
                for providers in (host.own, host.shared)
            )
            offering = own + shared or [host.root]
            for item in self._rest_of[suffix]:
                if item.kind == TRAIT:
                    having = [
                        not each.traits.isdisjoint(item.names)
                        for each in offering
                    ]
                    is_met = any(having) if item.wanted else not all(having)
                elif item.kind == TREE:
                    is_met = offering != shared and any(
                        each.uuid in item.names for each in host.own
                    )
                else:
                    of_root = () if suffix else host.root.aggregates
                    is_met = False
                    for each in offering:
                        aggregates = set(each.aggregates)
                        if not (item.wanted and each in shared):
                            aggregates.update(of_root)
                        has_some = not aggregates.isdisjoint(item.names)
                        is_met |= has_some == item.wanted
                if is_met:
                    found.append(item)
        return frozenset(found)

    @cached_property
    def _candidates_without(self) -> Mapping[Condition, list[_EqualHosts]]:
        """Condition -> equal hosts that are candidates without it."""
        found: dict[Condition, list[_EqualHosts]] = {
            item: [] for item in self.conditions
        }
        demands = {
            item: self._demand.without(item) for item in self.conditions
        }
        dropped = {
            item: {item} | self._demand.find_implied({item})
            for item in self.conditions
        }
        for equal in self._equal_hosts:
            for item in self.conditions:
                stays = equal.is_candidate and (
                    item.kind != RESOURCE or item.suffix
                )
                if stays or (
                    equal.lacks <= dropped[item]
                    and self._is_met(equal.host, demands[item])
                ):
                    found[item].append(equal)
        return found

    @cached_property
    def _sets_to_drop(self) -> list[tuple[Sequence[Conditions], bool]]:
        """The sets to drop of equal hosts, and whether these are all."""
        is_spent, found = self._limit(), []
        for number, equal in enumerate(self._equal_hosts, 1):
            found.append(self._find_to_drop(equal, is_spent))
            self._progress(
                "what to drop for each group of hosts",
                number,
                len(self._equal_hosts),
            )
        return found

    def _find_to_drop(
        self, equal: _EqualHosts, is_spent: Callable[[], bool]
    ) -> tuple[Sequence[Conditions], bool]:
        if equal.is_candidate or self._suffices(equal.host, equal.lacks):
            return [equal.lacks], True
        # It meets the other conditions one by one, but not together: they need
        # different providers, or one provider.
        found = smallest_sets(
            [item for item in self.conditions if item not in equal.lacks],
            lambda kept: self._suffices(equal.host, self._everything - kept),
            # Most groups have no part in it.
            together=lambda item: item.scope,
            is_spent=is_spent,
        )
        to_drop = [equal.lacks | each for each in found.to_drop]
        return to_drop, found.are_all

    @cached_property
    def _smallest(self) -> SmallestSets[Condition]:
        """The smallest sets for all hosts together."""
        if not self._equal_hosts:
            return SmallestSets([], [], True)
        known = sorted(
            {each for sets, _ in self._sets_to_drop for each in sets}, key=len
        )
        # A set to drop that was not found may be disjoint from a conflict.
        in_doubt = [
            equal.host
            for equal, (_, are_all) in zip(
                self._equal_hosts, self._sets_to_drop
            )
            if not are_all
        ]

        def is_met(kept: Conditions) -> bool:
            is_known = any(each.isdisjoint(kept) for each in known)
            return is_known or any(
                self._suffices(host, self._everything - kept)
                for host in in_doubt
            )

        found = smallest_sets(self.conditions, is_met, is_spent=self._limit())
        if found.unmet or self.candidates:
            return found
        return replace(
            found, unmet=[one_unmet(self.conditions, is_met, self._limit())]
        )

    def _limit(self) -> Callable[[], bool]:
        """Return a function: whether the most steps from now on are done."""
        most = self._work.steps + _MOST_STEPS
        return lambda: self._work.steps > most


def _smallest_to_free(
    host: Host, asked: Collection[str], demand: Demand, work: Work
) -> list[frozenset[str]]:
    used = {
        name
        for each in host.providers
        for name, inventory in each.resources.items()
        if inventory.used and name in asked
    }
    found: list[frozenset[str]] = []
    for size in range(1, len(used) + 1):
        if 1 < size < len(used) and len(used) > _MOST_CLASSES:
            continue
        for names in map(frozenset, combinations(sorted(used), size)):
            # Its options are those of a host.
            work.options.clear()
            if any(each <= names for each in found):
                continue
            if meets(host.freed(names), demand, work):
                found.append(names)
    return found


def _count_hosts(groups: Iterable[_EqualHosts]) -> int:
    return sum(len(equal.names) for equal in groups)
