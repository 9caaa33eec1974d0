"""Which hosts of a fleet meet a demand: Placement's rules for allocation candidates, on plain values.

Whoever wants to know why no host is left has to ask about many parts of one query, and a Placement takes up to a
second for each. The rules are those of ``placement/objects/allocation_candidate.py``; the tests compare each answer
with a real Placement.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from os_prefilter.operators.demand import Demand, Group, demand_of
from os_prefilter.operators.fleet import Fleet, Inventory, Provider

SHARES = "MISC_SHARES_VIA_AGGREGATE"
"""The trait of a provider whose resources all hosts of its aggregates may use."""


@dataclass(frozen=True, slots=True)
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


def meets(host: Host, demand: Demand, *, ignore_usage: bool = False) -> bool:
    """Whether a host, with the shared providers that it can draw on, meets a demand."""
    traits = host.root.traits
    if not (demand.root_required <= traits and demand.root_forbidden.isdisjoint(traits)):
        return False
    return _Search(host, demand, ignore_usage=ignore_usage).succeeds()


def fits(inventory: Inventory, amount: int, *, ignore_usage: bool = False) -> bool:
    """Whether an inventory can give that amount, by itself."""
    used = 0 if ignore_usage else inventory.used
    return (
        used + amount <= (inventory.total - inventory.reserved) * inventory.allocation_ratio
        and inventory.min_unit <= amount <= inventory.max_unit
        and amount % inventory.step_size == 0
    )


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


class _Search:
    """Looks for one provider for each resource, group by group, and takes back what did not work."""

    def __init__(self, host: Host, demand: Demand, *, ignore_usage: bool) -> None:
        self._host = host
        self._demand = demand
        self._ignore_usage = ignore_usage
        alone = [
            (suffix, group, [each for each in self._alone(group) if self._fits(each, group)])
            for suffix, group in demand.groups.items()
            if suffix
        ]
        # What few providers can serve comes first, so that it is known soon if it cannot be served at all.
        self._suffixed = sorted(alone, key=lambda each: len(each[2]))
        self._taken: dict[tuple[str, str], int] = {}
        self._providers: dict[str, Provider] = {}
        """Suffix -> the provider that serves the group."""
        self._failed: set[object] = set()

    def succeeds(self) -> bool:
        # What cannot be served by itself cannot be served beside others.
        return all(providers for _, _, providers in self._suffixed) and self._has_unsuffixed() and self._serve(0)

    def _serve(self, index: int) -> bool:
        """Whether the suffixed groups from ``index`` on, and then the unsuffixed one, can be served."""
        if index == len(self._suffixed):
            return self._serve_unsuffixed()
        state = index, self._state()
        if state in self._failed:
            return False
        suffix, group, providers = self._suffixed[index]
        for provider in providers:
            if self._demand.isolate and any(provider is other for other in self._providers.values()):
                continue
            if self._take(provider, group.resources):
                self._providers[suffix] = provider
                if self._serve(index + 1):
                    return True
                del self._providers[suffix]
                self._give_back(provider, group.resources)
        self._failed.add(state)
        return False

    def _state(self) -> object:
        """Return what decides about the groups that are left; who serves which group, only where that matters."""
        taken = frozenset((key, amount) for key, amount in self._taken.items() if amount)
        if self._demand.same_subtree:
            return taken, frozenset((suffix, each.uuid) for suffix, each in self._providers.items())
        return taken, frozenset(each.uuid for each in self._providers.values()) if self._demand.isolate else None

    def _fits(self, provider: Provider, group: Group) -> bool:
        """Whether a provider has a group's resources, with nothing taken."""
        return all(
            name in provider.resources and fits(provider.resources[name], amount, ignore_usage=self._ignore_usage)
            for name, amount in group.resources.items()
        )

    def _has_unsuffixed(self) -> bool:
        """Whether some provider has each of the unsuffixed group's resources, with nothing taken."""
        group = self._demand.groups.get("", Group())
        allowed = self._allowed(group)
        return all(
            any(self._fits(provider, Group({name: amount})) for provider in allowed)
            for name, amount in group.resources.items()
        )

    def _serve_unsuffixed(self) -> bool:
        group = self._demand.groups.get("")
        if group is None:
            return self._is_one_subtree([])
        allowed = self._allowed(group)
        spare = [provider.traits for provider in allowed] if group.lacks_resources or not group.resources else []
        if not allowed:
            return False
        return self._place(list(group.resources.items()), allowed, [], group, frozenset().union(*spare))

    def _place(
        self,
        left: list[tuple[str, int]],
        allowed: list[Provider],
        chosen: list[Provider],
        group: Group,
        spare: frozenset[str],
    ) -> bool:
        """Whether the unsuffixed group's resources that are left find providers which together have its traits."""
        if not left:
            traits = spare.union(*(provider.traits for provider in chosen))
            return all(not traits.isdisjoint(each) for each in group.required) and self._is_one_subtree(chosen)
        (name, amount), *rest = left
        for provider in allowed:
            if self._take(provider, {name: amount}):
                if self._place(rest, allowed, [*chosen, provider], group, spare):
                    return True
                self._give_back(provider, {name: amount})
        return False

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
        for name, amount in resources.items():
            inventory = provider.resources.get(name)
            before = self._taken.get((provider.uuid, name), 0)
            if inventory is None or not fits(inventory, amount, ignore_usage=self._ignore_usage):
                return False
            if before and not self._holds(inventory, before + amount):
                return False
        for name, amount in resources.items():
            key = provider.uuid, name
            self._taken[key] = self._taken.get(key, 0) + amount
        return True

    def _holds(self, inventory: Inventory, together: int) -> bool:
        """Whether several groups together stay within an inventory; ``step_size`` is asked of each alone."""
        used = 0 if self._ignore_usage else inventory.used
        capacity = int((inventory.total - inventory.reserved) * inventory.allocation_ratio)
        return used + together <= capacity and together <= inventory.max_unit

    def _give_back(self, provider: Provider, resources: Mapping[str, int]) -> None:
        for name, amount in resources.items():
            self._taken[provider.uuid, name] -= amount

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
