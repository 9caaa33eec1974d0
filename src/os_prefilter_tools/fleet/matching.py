# SPDX-License-Identifier: Apache-2.0

"""The matcher: which hosts meet a demand, by Placement's rules.

Those of its allocation candidates, on plain values.

Diagnosis evaluates many parts of one query, which would take Placement up to a
second each. The rules are those of
``placement/objects/allocation_candidate.py``; the tests compare every result
with a real Placement.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import os_traits

from os_prefilter.request.spec import RequestGroup
from os_prefilter_tools.fleet.demand import Demand
from os_prefilter_tools.fleet.model import Fleet, Inventory, Provider

_MOST_STEPS = 20_000
"""The most steps of one search: less than a second.

Far more than any observed request needs.
"""

_Option = tuple[Provider, Mapping[str, int]]
"""A provider that may serve a suffixed group, and the resources that it gives.
"""


@dataclass(frozen=True)
class Host:
    """A host for instances, with all providers that may serve them."""

    own: tuple[Provider, ...]
    """Its tree, the root first."""
    shared: tuple[Provider, ...]
    """Providers of other trees that share with an aggregate of this one."""
    parents: Mapping[str, str]
    """UUID of a provider -> that of its parent; roots have none."""

    @property
    def root(self) -> Provider:
        """The root provider of its tree."""
        return self.own[0]

    @property
    def name(self) -> str:
        """The name of the root provider."""
        return self.root.name

    @property
    def providers(self) -> tuple[Provider, ...]:
        """All providers that may serve its instances, its own first."""
        return self.own + self.shared

    def changed(self, change: Callable[[Provider], Provider]) -> Host:
        """Return the host with each provider changed by a function."""
        own, shared = map(change, self.own), map(change, self.shared)
        return replace(self, own=tuple(own), shared=tuple(shared))

    def freed(self, names: Container[str]) -> Host:
        """Return the host as if none of these resource classes was used."""

        def free(provider: Provider) -> Provider:
            resources = {
                name: replace(each, used=0) if name in names else each
                for name, each in provider.resources.items()
            }
            return replace(provider, resources=resources)

        return self.changed(free)

    @cached_property
    def equality_numbers(self) -> Mapping[str, int]:
        """UUID of a provider -> a number, equal for equal providers.

        They may differ in name and place.
        """
        keys: dict[object, int] = {}
        numbers = {}
        for index, each in enumerate(self.providers):
            key = (
                index < len(self.own),
                each.traits,
                frozenset(each.resources.items()),
                frozenset(each.aggregates),
            )
            numbers[each.uuid] = keys.setdefault(key, len(keys))
        return numbers


class Work:
    """Counts the steps of searches.

    Searches are limited by steps instead of time so that results are
    reproducible.
    """

    def __init__(self) -> None:
        self.steps = 0
        self.given_up = 0
        """How many searches reached the limit and so found nothing."""
        self.options: dict[
            tuple[int, bool], tuple[RequestGroup, list[_Option]]
        ] = {}
        """Options for each group on one host.

        By the identity of the group and whether resources are dropped; the
        caller clears them for another host.
        """


def hosts_in(fleet: Fleet) -> list[Host]:
    """Return the hosts of a fleet, each with the providers that it can use."""
    parents = {
        child.uuid: provider.uuid
        for provider in fleet.walk()
        for child in provider.providers
    }
    sharing: dict[str, list[Provider]] = {}
    for provider in fleet.walk():
        if os_traits.MISC_SHARES_VIA_AGGREGATE in provider.traits:
            for aggregate in provider.aggregates:
                sharing.setdefault(aggregate, []).append(provider)
    hosts = []
    for root in fleet.instance_hosts:
        own = tuple(root.walk())
        shared = {
            each.uuid: each
            for provider in own
            for name in provider.aggregates
            for each in sharing.get(name, ())
        }
        for provider in own:
            shared.pop(provider.uuid, None)
        hosts.append(Host(own, tuple(shared.values()), parents))
    return hosts


def meets(host: Host, demand: Demand, work: Work | None = None) -> bool:
    """Return whether a host meets a demand, also by shared providers.

    :param work: counts the steps of the search, and keeps the options of the
        host between calls
    """
    return _ProviderSearch(host, demand, work or Work()).succeeds()


def allocate(
    host: Host, demand: Demand
) -> Mapping[str, Mapping[str, int]] | None:
    """Return what one candidate takes; None if there is none.

    :return: UUID of a provider -> resource class -> amount
    """
    search = _ProviderSearch(host, demand, Work())
    if not search.succeeds():
        return None
    # What was tried and given back is still there, with 0.
    return {uuid: +taken for uuid, taken in search.taken.items() if +taken}


def fits(inventory: Inventory, amount: int) -> bool:
    """Return whether an inventory can give one allocation of that amount."""
    # Placement compares with the product itself, which need not be whole.
    usable = inventory.total - inventory.reserved
    return (
        inventory.used + amount <= usable * inventory.allocation_ratio
        and inventory.min_unit <= amount <= inventory.max_unit
        and amount % inventory.step_size == 0
    )


def capacity_of(inventory: Inventory) -> int:
    """Return how much of an inventory can be allocated if none is used."""
    return int(
        (inventory.total - inventory.reserved) * inventory.allocation_ratio
    )


def free_in(inventory: Inventory) -> int:
    """Return how much is free for several groups together.

    Below 0 where the inventory is overcommitted.
    """
    return capacity_of(inventory) - inventory.used


class _ProviderSearch:
    """Assigns a provider to each resource, group by group, and backtracks."""

    def __init__(self, host: Host, demand: Demand, work: Work) -> None:
        self._host = host
        self._demand = demand
        self._work = work
        self._most = work.steps + _MOST_STEPS
        self.taken: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """UUID of a provider -> what is taken from it."""
        self._serving: dict[str, str] = {}
        """Suffix -> UUID of the provider that serves the group."""
        self._failed: set[object] = set()

    def succeeds(self) -> bool:
        demand, traits = self._demand, self._host.root.traits
        if not (
            demand.root_required <= traits
            and demand.root_forbidden.isdisjoint(traits)
        ):
            return False
        named = [
            (suffix, self._options(suffix))
            for suffix in demand.groups
            if suffix
        ]
        # Groups with few options first: it shows early if one cannot be
        # served.
        named.sort(key=lambda each: len(each[1]))
        self._work.steps += 1 + len(named)
        self._suffixed = [
            (suffix, options)
            for joined, options in named
            for suffix in joined.split(",")
        ]
        self._classes = sorted(
            {
                name
                for _, options in named
                for _, resources in options
                for name in resources
            }
        )
        # Whether it matters which of several equal providers serves a group.
        self._by_name = bool(demand.same_subtree) or not named
        # A group that cannot be served alone cannot be served with others.
        if not all(options for _, options in self._suffixed):
            return False
        found = self._serve_unsuffixed()
        if found and self._suffixed:
            self.taken.clear()
            found = self._serve(0)
        self._work.given_up += not found and self._is_spent()
        return found

    def _is_spent(self) -> bool:
        return self._work.steps > self._most

    # -- suffixed groups
    # -------------------------------------------------------------------------

    def _options(self, suffix: str) -> list[_Option]:
        """Return the options to serve a suffixed group, with nothing taken."""
        group = self._demand.groups[suffix]
        dropped = self._demand.dropped.get(suffix, {})
        key = id(group), bool(dropped)
        if key not in self._work.options:
            choices: list[Mapping[str, int]] = [
                {name: amount} for name, amount in dropped.items()
            ]
            if group.resources or not choices:
                choices = [group.resources]
            found = []
            for provider in self._reachable(group):
                # The aggregates that count are those of the provider itself.
                aggregates = frozenset(provider.aggregates)
                if not (
                    _suits(provider, group, aggregates)
                    and group.required_traits <= provider.traits
                ):
                    continue
                found += [
                    (provider, resources)
                    for resources in choices
                    if all(
                        self._fits(provider, name, amount)
                        for name, amount in resources.items()
                    )
                ]
            self._work.options[key] = group, found
        return self._work.options[key][1]

    def _serve(self, index: int) -> bool:
        """Return whether the groups from ``index`` on can be served.

        The unsuffixed one comes last.
        """
        state = index, self._state()
        if state in self._failed or self._is_spent():
            return False
        if index == len(self._suffixed):
            if self._is_one_subtree() and self._serve_unsuffixed():
                return True
        elif self._serve_by_any(index):
            return True
        self._failed.add(state)
        return False

    def _serve_by_any(self, index: int) -> bool:
        """Return whether that works with any option for the group."""
        suffix, options = self._suffixed[index]
        excluded = self._isolated()
        tried = set()
        for provider, resources in options:
            # Of providers of the same kind that are used equally, one is
            # enough.
            key = self._as_used(provider.uuid), *resources
            if key in tried or provider.uuid in excluded:
                continue
            tried.add(key)
            self._work.steps += 1
            if self._take(provider, resources):
                self._serving[suffix] = provider.uuid
                if self._serve(index + 1):
                    return True
                del self._serving[suffix]
                self.taken[provider.uuid].subtract(resources)
        return False

    def _isolated(self) -> frozenset[str]:
        """Return the providers that no other suffixed group may use."""
        serving = self._serving.values() if self._demand.isolate else ()
        return frozenset(serving)

    def _as_used(self, uuid: str) -> object:
        """Return a key that is equal for interchangeable providers.

        They are equal, and the same is taken from them.
        """
        kind = uuid if self._by_name else self._host.equality_numbers[uuid]
        taken = self.taken.get(uuid)
        if not taken:
            return kind
        return kind, *(taken.get(name, 0) for name in self._classes)

    def _state(self) -> object:
        """Return what decides about the remaining groups."""
        touched = [
            uuid for uuid, taken in self.taken.items() if any(taken.values())
        ]
        if self._by_name:
            used = frozenset(map(self._as_used, touched))
            return frozenset(self._serving.items()), used
        isolated = self._isolated()
        counts = Counter(
            (uuid in isolated, self._as_used(uuid))
            for uuid in isolated.union(touched)
        )
        return frozenset(counts.items())

    # -- the unsuffixed group
    # -------------------------------------------------------------------------

    def _serve_unsuffixed(self) -> bool:
        """Return whether the unsuffixed group fits into what is left."""
        group = self._demand.groups.get("")
        if group is None:
            return True
        allowed = []
        for number, provider in enumerate(self._reachable(group)):
            # An aggregate of the root is one of its tree; of shared providers,
            # it only excludes.
            counting = frozenset(provider.aggregates)
            spanned = counting.union(self._host.root.aggregates)
            if number < len(self._host.own):
                counting = spanned
            is_forbidden = not spanned.isdisjoint(group.forbidden_aggregates)
            if _suits(provider, group, counting) and not is_forbidden:
                allowed.append(provider)
        needed = [
            (name, amount, True) for name, amount in group.resources.items()
        ]
        # They may be taken for the traits that come with them.
        optional = [
            (name, amount, False)
            for name, amount in self._demand.dropped.get("", {}).items()
        ]
        if not all(
            any(self._fits(each, name, amount) for each in allowed)
            for name, amount, _ in needed
        ):
            return False
        if not (needed or optional):
            # Without resources, any provider may have the traits.
            return _have_traits(allowed, group)
        return self._place([*needed, *optional], allowed, [])

    def _place(
        self,
        left: list[tuple[str, int, bool]],
        allowed: list[Provider],
        chosen: list[Provider],
    ) -> bool:
        """Return whether providers with its traits give the group's rest."""
        self._work.steps += 1
        if self._is_spent():
            return False
        if not left:
            return _have_traits(chosen, self._demand.groups[""])
        (name, amount, needed), *rest = left
        seen = set()
        for provider in allowed:
            used = self._as_used(provider.uuid)
            if used not in seen and self._take(provider, {name: amount}):
                seen.add(used)
                if self._place(rest, allowed, [*chosen, provider]):
                    return True
                self.taken[provider.uuid][name] -= amount
        return not needed and self._place(rest, allowed, chosen)

    # -- providers
    # -------------------------------------------------------------------------

    def _reachable(self, group: RequestGroup) -> tuple[Provider, ...]:
        if not group.in_tree:
            return self._host.providers
        own = self._host.own
        return own if any(group.in_tree == each.uuid for each in own) else ()

    def _fits(self, provider: Provider, name: str, amount: int) -> bool:
        """Return whether a provider has that much, with nothing taken yet."""
        inventory = provider.resources.get(name)
        return inventory is not None and fits(inventory, amount)

    def _take(self, provider: Provider, resources: Mapping[str, int]) -> bool:
        """Take all resources from a provider, or none.

        Return whether it still has them.
        """
        taken = self.taken[provider.uuid]
        for name, amount in resources.items():
            if not self._fits(provider, name, amount):
                return False
            if before := taken.get(name, 0):
                # Several groups together stay within the inventory; step_size
                # applies to each alone.
                inventory = provider.resources[name]
                most = min(free_in(inventory), inventory.max_unit)
                if before + amount > most:
                    return False
        taken.update(resources)
        return True

    def _is_one_subtree(self) -> bool:
        """Return whether the groups meet ``same_subtree``.

        Their providers must be below one of them.
        """
        for suffixes in self._demand.same_subtree:
            together = {
                uuid
                for suffix, uuid in self._serving.items()
                if suffix in suffixes
            }
            if together and not together.intersection(
                *map(self._path_to_root, together)
            ):
                return False
        return True

    def _path_to_root(self, uuid: str) -> Iterator[str]:
        step: str | None = uuid
        while step is not None:
            yield step
            step = self._host.parents.get(step)


def _suits(
    provider: Provider, group: RequestGroup, aggregates: frozenset[str]
) -> bool:
    """Return whether a provider may serve a group, but for its traits."""
    return (
        group.forbidden_traits.isdisjoint(provider.traits)
        and not any(aggregates.isdisjoint(each) for each in group.aggregates)
        and aggregates.isdisjoint(group.forbidden_aggregates)
    )


def _have_traits(providers: list[Provider], group: RequestGroup) -> bool:
    return bool(providers) and group.required_traits <= traits_of(providers)


def traits_of(providers: Iterable[Provider]) -> frozenset[str]:
    """Return the traits that any of the providers has."""
    return frozenset().union(*(provider.traits for provider in providers))
