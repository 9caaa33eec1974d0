"""The matcher: which hosts of a fleet meet a demand, by Placement's rules for allocation candidates, on plain values.

Diagnosis evaluates many parts of one query, which would take Placement up to a second each. The rules are those of
``placement/objects/allocation_candidate.py``; the tests compare every result with a real Placement.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import os_traits

from os_prefilter_tools.fleet.demand import Demand, Group
from os_prefilter_tools.fleet.model import Fleet, Inventory, Provider

_MOST_STEPS = 20_000
"""The most steps of one search: far more than any observed request needs, and less than a second."""

_Option = tuple[Provider, Mapping[str, int]]
"""A provider that may serve a suffixed group, and the resources that it gives."""


@dataclass(frozen=True)
class Host:
    """A host that instances can be on, with all providers that may serve them."""

    root: Provider
    own: tuple[Provider, ...]
    """Its tree, parents first."""
    shared: tuple[Provider, ...]
    """Providers of other trees that share their resources with an aggregate of this one."""
    parents: Mapping[str, str]
    """UUID of a provider -> that of its parent; roots have none."""

    @property
    def name(self) -> str:
        """The name of the root provider."""
        return self.root.name

    @cached_property
    def kinds(self) -> Mapping[str, int]:
        """UUID of a provider -> a number that is equal for providers which differ only in name and place."""
        numbers: dict[object, int] = {}
        return {
            each.uuid: numbers.setdefault(
                (number < len(self.own), each.traits, frozenset(each.resources.items()), frozenset(each.aggregates)),
                len(numbers),
            )
            for number, each in enumerate((*self.own, *self.shared))
        }


class Work:
    """Counts the steps of searches, which are limited by steps instead of time so that results are reproducible."""

    def __init__(self) -> None:
        self.steps = 0
        self.given_up = 0
        """How many searches reached the limit; each counts as one that found nothing."""
        self.options: dict[int, tuple[Group, list[_Option]]] = {}
        """Options for each group, by its identity, on the current host; its user clears it for another host."""


def hosts_in(fleet: Fleet) -> list[Host]:
    """Return the hosts of a fleet, each with the providers that it can use."""
    parents = {child.uuid: provider.uuid for provider in fleet.walk() for child in provider.providers}
    sharing: dict[str, list[Provider]] = {}
    for provider in fleet.walk():
        if os_traits.MISC_SHARES_VIA_AGGREGATE in provider.traits:
            for aggregate in provider.aggregates:
                sharing.setdefault(aggregate, []).append(provider)
    hosts = []
    for root in fleet.instance_hosts:
        own = tuple(root.walk())
        mine = {provider.uuid for provider in own} if sharing else set()
        aggregates = dict.fromkeys(name for provider in own for name in provider.aggregates) if sharing else ()
        shared = {each.uuid: each for name in aggregates for each in sharing.get(name, ()) if each.uuid not in mine}
        hosts.append(Host(root, own, tuple(shared.values()), parents))
    return hosts


def meets(host: Host, demand: Demand, *, ignore_usage: bool = False, work: Work | None = None) -> bool:
    """Return whether a host, with the shared providers that it can use, meets a demand.

    :param work: counts the steps of the search, and keeps the options of the host between calls
    """
    return _ProviderSearch(host, demand, work or Work(), ignore_usage=ignore_usage).succeeds()


def allocate(host: Host, demand: Demand) -> Mapping[str, Mapping[str, int]] | None:
    """Return what one allocation candidate of a host takes; None if the host does not meet the demand.

    :return: UUID of a provider -> resource class -> amount
    """
    search = _ProviderSearch(host, demand, Work(), takes_all=True)
    if not search.succeeds():
        return None
    # What was tried and given back is still there, with 0.
    return {
        uuid: {name: amount for name, amount in taken.items() if amount}
        for uuid, taken in search.taken.items()
        if any(taken.values())
    }


def fits(inventory: Inventory, amount: int, *, ignore_usage: bool = False) -> bool:
    """Return whether an inventory can give one allocation of that amount."""
    used = 0 if ignore_usage else inventory.used
    return (
        used + amount <= (inventory.total - inventory.reserved) * inventory.allocation_ratio
        and inventory.min_unit <= amount <= inventory.max_unit
        and amount % inventory.step_size == 0
    )


def capacity_of(inventory: Inventory) -> int:
    """Return how much of an inventory can be allocated if none is used."""
    return int((inventory.total - inventory.reserved) * inventory.allocation_ratio)


def room_in(inventory: Inventory, *, ignore_usage: bool = False) -> int:
    """Return how much of an inventory is free for several groups together; below 0 where it is overcommitted."""
    return capacity_of(inventory) - (0 if ignore_usage else inventory.used)


class _ProviderSearch:
    """Assigns a provider to each resource, group by group, and backtracks."""

    def __init__(
        self, host: Host, demand: Demand, work: Work, *, ignore_usage: bool = False, takes_all: bool = False
    ) -> None:
        """Take a demand on a host.

        :param takes_all: take what the unsuffixed group needs also where no other group can take it
        """
        self._host = host
        self._takes_all = takes_all
        self._demand = demand
        self._ignore_usage = ignore_usage
        self._work = work
        self._most = work.steps + _MOST_STEPS
        self.taken: dict[str, dict[str, int]] = {}
        """UUID of a provider -> what is taken from it."""
        self._providers: dict[str, Provider] = {}
        """Suffix -> the provider that serves the group."""
        self._failed: set[object] = set()

    def succeeds(self) -> bool:
        demand, traits = self._demand, self._host.root.traits
        if not (demand.root_required <= traits and demand.root_forbidden.isdisjoint(traits)):
            return False
        named = [(suffix, self._options(group)) for suffix, group in demand.groups.items() if suffix]
        # Groups with few options first: it shows early if one cannot be served.
        named.sort(key=lambda each: len(each[1]))
        self._work.steps += 1 + len(named)
        self._suffixed = [(suffix, options) for joined, options in named for suffix in joined.split(",")]
        self._classes = sorted({name for _, options in named for _, resources in options for name in resources})
        # Whether it matters which of several equal providers serves a group.
        self._by_name = bool(demand.same_subtree) or not named
        # A group that cannot be served alone cannot be served beside others.
        if not all(options for _, options in self._suffixed):
            return False
        found = self._serve_unsuffixed(alone=bool(self._suffixed))
        if found and self._suffixed:
            self.taken.clear()
            found = self._serve(0)
        self._work.given_up += not found and self._is_spent()
        return found

    def _is_spent(self) -> bool:
        return self._work.steps > self._most

    # -- suffixed groups -----------------------------------------------------------------------------------------------

    def _options(self, group: Group) -> list[_Option]:
        """Return the ways to serve a suffixed group, with nothing taken."""
        if id(group) not in self._work.options:
            choices: list[Mapping[str, int]] = [{name: amount} for name, amount in group.dropped.items()]
            if group.resources or not choices:
                choices = [group.resources]
            found = [
                (provider, resources)
                for provider in self._reachable(group)
                # The aggregates that count are those of the provider itself.
                if _suits(provider, group, frozenset(provider.aggregates)) and _has_required(provider.traits, group)
                for resources in choices
                if all(self._fits(provider, name, amount) for name, amount in resources.items())
            ]
            self._work.options[id(group)] = group, found
        return self._work.options[id(group)][1]

    def _serve(self, index: int) -> bool:
        """Return whether the suffixed groups from ``index`` on, and then the unsuffixed one, can be served."""
        state = index, self._state()
        if state in self._failed or self._is_spent():
            return False
        if index == len(self._suffixed):
            found = self._serve_unsuffixed()
        else:
            suffix, options = self._suffixed[index]
            found = any(self._serve_by(option, suffix, index) for option in self._different(options))
        if not found:
            self._failed.add(state)
        return found

    def _serve_by(self, option: _Option, suffix: str, index: int) -> bool:
        """Return whether that works with this option for the group ``index``."""
        provider, resources = option
        self._work.steps += 1
        if self._demand.isolate and any(provider is other for other in self._providers.values()):
            return False
        if not self._take(provider, resources):
            return False
        self._providers[suffix] = provider
        if self._serve(index + 1):
            return True
        del self._providers[suffix]
        self._give_back(provider, resources)
        return False

    def _different(self, options: Iterable[_Option]) -> Iterator[_Option]:
        """Yield the options, but one of those on providers of the same kind that are used equally."""
        if self._by_name:
            yield from options
            return
        serving = {each.uuid for each in self._providers.values()} if self._demand.isolate else frozenset()
        seen = set()
        for option in options:
            provider, resources = option
            key = self._as_used(provider.uuid), provider.uuid in serving, *resources
            if key not in seen:
                seen.add(key)
                yield option

    def _as_used(self, uuid: str) -> object:
        """Return a key that is equal for providers of one kind from which the same is taken."""
        kind = uuid if self._by_name else self._host.kinds[uuid]
        taken = self.taken.get(uuid)
        return (kind, *(taken.get(name, 0) for name in self._classes)) if taken else kind

    def _state(self) -> object:
        """Return what decides about the remaining groups."""
        touched = [uuid for uuid, taken in self.taken.items() if any(taken.values())]
        if self._by_name:
            serving = frozenset((suffix, each.uuid) for suffix, each in self._providers.items())
            return serving, frozenset(map(self._as_used, touched))
        isolated = {each.uuid for each in self._providers.values()} if self._demand.isolate else set()
        return frozenset(Counter((uuid in isolated, self._as_used(uuid)) for uuid in isolated.union(touched)).items())

    # -- the unsuffixed group ------------------------------------------------------------------------------------------

    def _serve_unsuffixed(self, *, alone: bool = False) -> bool:
        """Return whether the unsuffixed group can be served beside what is taken.

        :param alone: ignore ``same_subtree``
        """
        group = self._demand.groups.get("")
        if group is None or (not alone and self._is_independent(group)):
            return alone or self._is_one_subtree([])
        allowed = [provider for provider in self._reachable(group) if self._is_allowed(provider, group)]
        needed = [(name, amount, True) for name, amount in group.resources.items()]
        # They may be taken for the traits that come with them.
        optional = [(name, amount, False) for name, amount in group.dropped.items()]
        if not all(any(self._fits(each, name, amount) for each in allowed) for name, amount, _ in needed):
            return False
        if not (needed or optional):
            # Without resources, any provider may have the traits.
            return bool(allowed) and _has_required(traits_of(allowed), group)
        return self._place([*needed, *optional], allowed, [], group, alone=alone)

    def _is_independent(self, group: Group) -> bool:
        """Return whether no other group can take what the unsuffixed one needs: it was served alone."""
        return (
            bool(self._suffixed)
            and not self._takes_all
            and group.resources.keys().isdisjoint(self._classes)
            and group.dropped.keys().isdisjoint(self._classes)
            and not any("" in suffixes for suffixes in self._demand.same_subtree)
        )

    def _is_allowed(self, provider: Provider, group: Group) -> bool:
        """Return whether a provider may serve the unsuffixed group; an aggregate of the root is one of its tree."""
        own = frozenset(provider.aggregates)
        spanned = own.union(self._host.root.aggregates)
        is_shared = any(provider is other for other in self._host.shared)
        return _suits(provider, group, own if is_shared else spanned) and group.not_member_of.isdisjoint(spanned)

    def _place(
        self,
        left: list[tuple[str, int, bool]],
        allowed: list[Provider],
        chosen: list[Provider],
        group: Group,
        *,
        alone: bool,
    ) -> bool:
        """Return whether the unsuffixed group's remaining resources find providers which together have its traits."""
        self._work.steps += 1
        if self._is_spent():
            return False
        if not left:
            has_required = bool(chosen) and _has_required(traits_of(chosen), group)
            return has_required and (alone or self._is_one_subtree(chosen))
        (name, amount, needed), *rest = left
        seen = set()
        for provider in allowed:
            used = self._as_used(provider.uuid)
            if used not in seen and self._take(provider, {name: amount}):
                seen.add(used)
                if self._place(rest, allowed, [*chosen, provider], group, alone=alone):
                    return True
                self._give_back(provider, {name: amount})
        return not needed and self._place(rest, allowed, chosen, group, alone=alone)

    # -- providers -----------------------------------------------------------------------------------------------------

    def _reachable(self, group: Group) -> tuple[Provider, ...]:
        if group.in_tree is None:
            return self._host.own + self._host.shared
        return self._host.own if any(group.in_tree == each.uuid for each in self._host.own) else ()

    def _fits(self, provider: Provider, name: str, amount: int) -> bool:
        """Return whether a provider has that much of a resource, with nothing taken."""
        inventory = provider.resources.get(name)
        return inventory is not None and fits(inventory, amount, ignore_usage=self._ignore_usage)

    def _take(self, provider: Provider, resources: Mapping[str, int]) -> bool:
        """Take resources from a provider, all or none; return whether it has them beside what was taken before."""
        taken = self.taken.get(provider.uuid, {})
        for name, amount in resources.items():
            if not self._fits(provider, name, amount):
                return False
            if before := taken.get(name, 0):
                # Several groups together stay within the inventory; step_size applies to each alone.
                inventory = provider.resources[name]
                if before + amount > min(room_in(inventory, ignore_usage=self._ignore_usage), inventory.max_unit):
                    return False
        for name, amount in resources.items():
            of_provider = self.taken.setdefault(provider.uuid, {})
            of_provider[name] = of_provider.get(name, 0) + amount
        return True

    def _give_back(self, provider: Provider, resources: Mapping[str, int]) -> None:
        for name, amount in resources.items():
            self.taken[provider.uuid][name] -= amount

    def _is_one_subtree(self, unsuffixed: list[Provider]) -> bool:
        """Return whether the groups that ``same_subtree`` names come from providers below one of them."""
        for suffixes in self._demand.same_subtree:
            serving = [self._providers[suffix] for suffix in suffixes if suffix]
            together = {each.uuid for each in (*serving, *(unsuffixed if "" in suffixes else ()))}
            common = together.intersection(*(self._path_to_root(uuid) for uuid in together))
            if together and not common:
                return False
        return True

    def _path_to_root(self, uuid: str) -> Iterator[str]:
        step: str | None = uuid
        while step is not None:
            yield step
            step = self._host.parents.get(step)


def _suits(provider: Provider, group: Group, aggregates: frozenset[str]) -> bool:
    """Return whether a provider in these aggregates may serve a group, apart from the required traits."""
    return (
        group.forbidden.isdisjoint(provider.traits)
        and all(not each.isdisjoint(aggregates) for each in group.member_of)
        and group.not_member_of.isdisjoint(aggregates)
    )


def _has_required(traits: frozenset[str], group: Group) -> bool:
    return all(not traits.isdisjoint(each) for each in group.required)


def traits_of(providers: Iterable[Provider]) -> frozenset[str]:
    """Return the traits that any of the providers has."""
    return frozenset().union(*(provider.traits for provider in providers))
