"""Which hosts of a fleet meet a demand: Placement's rules for allocation candidates, on plain values.

Whoever wants to know why no host is left has to ask about many parts of one query, and a Placement takes up to a
second for each. The rules are those of ``placement/objects/allocation_candidate.py``; the tests compare each answer
with a real Placement.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from os_prefilter.fleet.model import Fleet, Inventory, Provider
from os_prefilter.request.demand import Demand, Group, demand_of

SHARES = "MISC_SHARES_VIA_AGGREGATE"
"""The trait of a provider whose resources all hosts of its aggregates may use."""


_MOST_STEPS = 20_000
"""Of one search: far more than any request that was seen needs, and less than a second."""


@dataclass(frozen=True)
class Host:
    """A host that instances can be on, with all providers that may serve them."""

    root: Provider
    own: tuple[Provider, ...]
    """Its tree, parents first."""
    shared: tuple[Provider, ...]
    """Providers of other trees that share their resources with an aggregate of this one."""
    parents: Mapping[str, str | None]
    """UUID of a provider -> that of its parent, None for a root; of all of :attr:`own` and :attr:`shared`."""

    @property
    def name(self) -> str:
        """The name of the root provider."""
        return self.root.name

    def roots(self) -> set[str]:
        """Return the UUIDs of its tree, by any of which ``in_tree`` may name it."""
        return {provider.uuid for provider in self.own}

    @cached_property
    def kinds(self) -> Mapping[str, int]:
        """UUID of a provider -> a number that is the same for providers which differ in name and place alone."""
        numbers: dict[object, int] = {}
        return {
            each.uuid: numbers.setdefault(
                (number < len(self.own), each.traits, frozenset(each.resources.items()), frozenset(each.aggregates)),
                len(numbers),
            )
            for number, each in enumerate((*self.own, *self.shared))
        }


class Work:
    """Counts the steps of searches: these are limited by steps, not by time, so that an answer is always the same."""

    def __init__(self) -> None:
        self.steps = 0
        self.given_up = 0
        """How many searches were given up; each counts as one that found nothing."""
        self.options: dict[int, tuple[Group, list[Any]]] = {}
        """What may serve a group of the host that is looked at, by the identity of the group, kept for that."""


def hosts_of(fleet: Fleet, query: str, *, ignore_usage: bool = False) -> frozenset[str]:
    """Return the names of the hosts that an allocation-candidates query would return.

    :param query: the query string of :func:`os_prefilter.allocation_candidates_query`
    :param ignore_usage: take each host as empty
    """
    demand = demand_of(query)
    return frozenset(host.name for host in hosts_in(fleet) if meets(host, demand, ignore_usage=ignore_usage))


def hosts_in(fleet: Fleet) -> list[Host]:
    """Return the hosts of a fleet, each with what it can draw on."""
    sharing = [provider for provider in fleet.walk() if SHARES in provider.traits]
    by_aggregate: dict[str, list[Provider]] = {}
    for provider in sharing:
        for aggregate in provider.aggregates:
            by_aggregate.setdefault(aggregate, []).append(provider)
    parents = dict(_parents(fleet)) if sharing else {}
    return [_host(root, by_aggregate, parents) for root in fleet.instance_hosts]


def meets(host: Host, demand: Demand, *, ignore_usage: bool = False, work: Work | None = None) -> bool:
    """Whether a host, with the shared providers that it can draw on, meets a demand.

    :param work: counts the steps that it takes, and remembers what is known of this host
    """
    traits = host.root.traits
    if not (demand.root_required <= traits and demand.root_forbidden.isdisjoint(traits)):
        return False
    return _Search(host, demand, ignore_usage, work or Work()).succeeds()


def fits(inventory: Inventory, amount: int, *, ignore_usage: bool = False) -> bool:
    """Whether an inventory can give that amount, by itself."""
    used = 0 if ignore_usage else inventory.used
    return (
        used + amount <= (inventory.total - inventory.reserved) * inventory.allocation_ratio
        and inventory.min_unit <= amount <= inventory.max_unit
        and amount % inventory.step_size == 0
    )


def room_in(inventory: Inventory, *, ignore_usage: bool = False) -> int:
    """Return how much of an inventory is free for several groups together; below 0 where more is used than allowed."""
    used = 0 if ignore_usage else inventory.used
    return int((inventory.total - inventory.reserved) * inventory.allocation_ratio) - used


def _has_all(traits: frozenset[str], group: Group) -> bool:
    return all(not traits.isdisjoint(each) for each in group.required)


def _host(root: Provider, by_aggregate: Mapping[str, list[Provider]], parents: Mapping[str, str | None]) -> Host:
    own = tuple(root.walk())
    if not by_aggregate:
        return Host(root, own, (), parents if len(own) == 1 else _parents_of(root))
    mine = {provider.uuid for provider in own}
    aggregates = dict.fromkeys(aggregate for provider in own for aggregate in provider.aggregates)
    shared = {each.uuid: each for name in aggregates for each in by_aggregate.get(name, ()) if each.uuid not in mine}
    return Host(root, own, tuple(shared.values()), parents)


def _parents(fleet: Fleet) -> Iterator[tuple[str, str | None]]:
    for root in fleet.hosts:
        yield from _parents_of(root).items()


def _parents_of(root: Provider) -> dict[str, str | None]:
    found: dict[str, str | None] = {root.uuid: None}
    for provider in root.walk():
        found.update((child.uuid, provider.uuid) for child in provider.providers)
    return found


class _Option(NamedTuple):
    """A provider that may serve a group with a suffix, and what it gives."""

    provider: Provider
    resources: Mapping[str, int]


class _Search:
    """Looks for one provider for each resource, group by group, and takes back what did not work."""

    def __init__(self, host: Host, demand: Demand, ignore_usage: bool, work: Work) -> None:  # noqa: FBT001
        self._host = host
        self._demand = demand
        self._ignore_usage = ignore_usage
        self._work = work
        self._most = work.steps + _MOST_STEPS
        named = [(suffix, group, self._options(group)) for suffix, group in demand.groups.items() if suffix]
        # What few providers can serve comes first, so that it is known soon if it cannot be served at all.
        named.sort(key=lambda each: len(each[2]))
        work.steps += 1 + len(named)
        self._suffixed = [(suffix, group, options) for joined, group, options in named for suffix in joined.split(",")]
        self._classes = sorted({name for _, _, options in named for _, resources in options for name in resources})
        self._by_name = bool(demand.same_subtree) or not named
        """Whether it matters which of several like providers serves a group."""
        self._taken: dict[str, dict[str, int]] = {}
        """UUID of a provider -> what is taken from it."""
        self._providers: dict[str, Provider] = {}
        """Suffix -> the provider that serves the group."""
        self._failed: set[object] = set()

    def succeeds(self) -> bool:
        found = self._succeeds()
        self._work.given_up += not found and self._is_spent()
        return found

    def _succeeds(self) -> bool:
        # What cannot be served by itself cannot be served beside others.
        if not all(options for _, _, options in self._suffixed):
            return False
        if not self._suffixed:
            return self._serve_unsuffixed()
        if not self._serve_unsuffixed(alone=True):
            return False
        self._taken.clear()
        return self._serve(0)

    def _is_spent(self) -> bool:
        return self._work.steps > self._most

    def _serve(self, index: int) -> bool:
        """Whether the suffixed groups from ``index`` on, and then the unsuffixed one, can be served."""
        state = index, self._state()
        if state in self._failed or self._is_spent():
            return False
        if index == len(self._suffixed):
            found = self._serve_unsuffixed()
        else:
            found = any(self._serve_by(option, index) for option in self._different(self._suffixed[index][2]))
        if not found:
            self._failed.add(state)
        return found

    def _serve_by(self, option: _Option, index: int) -> bool:
        """Whether that works with this option for the group ``index``."""
        provider, resources = option
        suffix = self._suffixed[index][0]
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
        """Yield the options but for those that come to the same: on a provider of the same kind, used as much."""
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
        """Return something that is equal for providers of one kind from which the same is taken."""
        kind = uuid if self._by_name else self._host.kinds[uuid]
        taken = self._taken.get(uuid)
        return (kind, *(taken.get(name, 0) for name in self._classes)) if taken else kind

    def _state(self) -> object:
        """Return what decides about the groups that are left; who serves which group, only where that matters."""
        touched = [uuid for uuid, taken in self._taken.items() if any(taken.values())]
        if self._by_name:
            serving = frozenset((suffix, each.uuid) for suffix, each in self._providers.items())
            return serving, frozenset(map(self._as_used, touched))
        if self._demand.isolate:
            isolated = {each.uuid for each in self._providers.values()}
            used = ((uuid in isolated, self._as_used(uuid)) for uuid in isolated.union(touched))
            return frozenset(Counter(used).items())
        return frozenset(Counter(map(self._as_used, touched)).items())

    def _options(self, group: Group) -> list[_Option]:
        """Return the ways to serve a suffixed group, with nothing taken."""
        if id(group) not in self._work.options:
            self._work.options[id(group)] = (group, list(self._found_options(group)))
        return self._work.options[id(group)][1]

    def _found_options(self, group: Group) -> Iterator[_Option]:
        some = [{name: amount} for name, amount in group.dropped.items()]
        for provider in self._alone(group):
            for resources in [group.resources] if group.resources or not some else some:
                if all(self._fits(provider, name, amount) for name, amount in resources.items()):
                    yield _Option(provider, resources)

    def _fits(self, provider: Provider, name: str, amount: int) -> bool:
        """Whether a provider has so much of a resource, with nothing taken."""
        inventory = provider.resources.get(name)
        return inventory is not None and fits(inventory, amount, ignore_usage=self._ignore_usage)

    def _serve_unsuffixed(self, *, alone: bool = False) -> bool:
        """Whether the unsuffixed group can be served beside what is taken.

        :param alone: leave subtrees aside
        """
        group = self._demand.groups.get("")
        if group is None or (not alone and self._is_apart(group)):
            return alone or self._is_one_subtree([])
        allowed = self._allowed(group)
        needed = [(name, amount, True) for name, amount in group.resources.items()]
        # They are taken for the traits that come with them.
        may_be = [(name, amount, False) for name, amount in group.dropped.items()]
        if not all(any(self._fits(each, name, amount) for each in allowed) for name, amount, _ in needed):
            return False
        if not (needed or may_be):
            # Nothing is to be given: whatever provider has them.
            traits = frozenset().union(*(provider.traits for provider in allowed))
            return bool(allowed) and _has_all(traits, group)
        return self._place([*needed, *may_be], allowed, [], group, alone=alone)

    def _is_apart(self, group: Group) -> bool:
        """Whether the unsuffixed group asks for nothing that the others could take from it: it was served alone."""
        return (
            bool(self._suffixed)
            and group.resources.keys().isdisjoint(self._classes)
            and group.dropped.keys().isdisjoint(self._classes)
            and not any("" in suffixes for suffixes in self._demand.same_subtree)
        )

    def _place(
        self,
        left: list[tuple[str, int, bool]],
        allowed: list[Provider],
        chosen: list[Provider],
        group: Group,
        *,
        alone: bool,
    ) -> bool:
        """Whether the unsuffixed group's resources that are left find providers which together have its traits."""
        self._work.steps += 1
        if self._is_spent():
            return False
        if not left:
            traits = frozenset().union(*(provider.traits for provider in chosen))
            return bool(chosen) and _has_all(traits, group) and (alone or self._is_one_subtree(chosen))
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

    def _alone(self, group: Group) -> Iterator[Provider]:
        """Yield the providers that may serve a suffixed group; its aggregates are those of the provider itself."""
        for provider in self._reachable(group):
            if (
                group.forbidden.isdisjoint(provider.traits)
                and all(not each.isdisjoint(provider.traits) for each in group.required)
                and all(not each.isdisjoint(provider.aggregates) for each in group.member_of)
                and group.not_member_of.isdisjoint(provider.aggregates)
            ):
                yield provider

    def _reachable(self, group: Group) -> tuple[Provider, ...]:
        if group.in_tree is None:
            return self._host.own + self._host.shared
        return self._host.own if group.in_tree in self._host.roots() else ()

    def _allowed(self, group: Group) -> list[Provider]:
        return [provider for provider in self._reachable(group) if self._is_allowed(provider, group)]

    def _is_allowed(self, provider: Provider, group: Group) -> bool:
        """Whether a provider may serve the unsuffixed group: an aggregate of the root is one of the whole tree."""
        own = set(provider.aggregates)
        spanned = own | set(self._host.root.aggregates)
        is_shared = any(provider is other for other in self._host.shared)
        return (
            group.forbidden.isdisjoint(provider.traits)
            and all(not each.isdisjoint(own if is_shared else spanned) for each in group.member_of)
            and group.not_member_of.isdisjoint(spanned)
        )

    def _take(self, provider: Provider, resources: Mapping[str, int]) -> bool:
        """Take resources from a provider, all or none; whether it has them beside what was taken before."""
        taken = self._taken.get(provider.uuid, {})
        for name, amount in resources.items():
            before = taken.get(name, 0)
            if not self._fits(provider, name, amount):
                return False
            if before and not self._holds(provider.resources[name], before + amount):
                return False
        for name, amount in resources.items():
            of_provider = self._taken.setdefault(provider.uuid, {})
            of_provider[name] = of_provider.get(name, 0) + amount
        return True

    def _holds(self, inventory: Inventory, together: int) -> bool:
        """Whether several groups together stay within an inventory; ``step_size`` is asked of each alone."""
        return together <= min(room_in(inventory, ignore_usage=self._ignore_usage), inventory.max_unit)

    def _give_back(self, provider: Provider, resources: Mapping[str, int]) -> None:
        for name, amount in resources.items():
            self._taken[provider.uuid][name] -= amount

    def _is_one_subtree(self, unsuffixed: list[Provider]) -> bool:
        """Whether the groups that ``same_subtree`` names come from providers below one of them."""
        for suffixes in self._demand.same_subtree:
            serving = [self._providers[suffix] for suffix in suffixes if suffix]
            together = {each.uuid for each in (*serving, *(unsuffixed if "" in suffixes else ()))}
            common = together.intersection(*(self._above(uuid) for uuid in together))
            if together and not common:
                return False
        return True

    def _above(self, uuid: str) -> set[str]:
        """Return a provider's UUID and those of all above it."""
        found: set[str] = set()
        step: str | None = uuid
        while step is not None:
            found.add(step)
            step = self._host.parents.get(step)
        return found
