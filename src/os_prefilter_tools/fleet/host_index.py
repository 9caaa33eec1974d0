# SPDX-License-Identifier: Apache-2.0

"""Index of a fleet: the hosts that meet conditions, as a set.

A set of hosts is an ``int`` in which host n is bit n. Thousands of requests on
thousands of hosts are intersections of such sets, one set for each condition.
This is exact where a host has one way to serve a request group, and the groups
do not compete; elsewhere :func:`os_prefilter_tools.fleet.matching.meets`
decides for each kind of hosts that is left.

:class:`HostIndex` counts amounts and usage. :meth:`HostIndex.by_capability`
does not: each host counts as empty and large enough, and hosts in which the
conditions see no difference are one kind. Neither decides whether the query is
valid, in which order candidates come, and which of them a limit cuts off.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property, lru_cache, partial
from itertools import chain

from os_prefilter.common.errors import ConfigurationError
from os_prefilter.common.host_sets import numbers_in, set_of, union
from os_prefilter.common.placement_values import HOST_CLASSES
from os_prefilter.request.requirements import ROOT, UNSUFFIXED
from os_prefilter_tools.fleet.demand import (
    AGGREGATE,
    POLICY,
    RESOURCE,
    TRAIT,
    TREE,
    Condition,
    Demand,
    demand_from,
)
from os_prefilter_tools.fleet.matching import (
    Host,
    capacity_of,
    fits,
    free_in,
    hosts_in,
    meets,
    traits_of,
)
from os_prefilter_tools.fleet.model import Fleet, Inventory, Provider

_CLASSES_OF_ROOTS = frozenset((*HOST_CLASSES, "DISK_GB"))
_CLASSES_OF_ANY_FLAVOR = frozenset(("VCPU", "MEMORY_MB"))
_Offering = Mapping[str, Mapping[int, Sequence[Provider]]]
"""Resource class -> number of a host -> the providers that have the class."""
_PLENTY = Inventory(1_000_000_000)
_MOST_KEPT = 4_000
# Between two sets that are kept of the hosts with at least an amount.
_STEP = 64


def capability_of(demand: Demand) -> tuple[Condition, ...]:
    """Return the conditions of a demand, each with the least amount.

    :raises ConfigurationError: if it names aggregates, a provider tree or a
        subtree, which images and flavors do not.
    """
    conditions = demand.conditions()
    for item in conditions:
        if item.kind in (AGGREGATE, TREE):
            name = "same_subtree" if item.scope == ROOT else "in_tree"
            if item.kind == AGGREGATE:
                name = "member_of"
            raise ConfigurationError(
                f"A request filter adds {name}{item.suffix} to the query,"
                " which an audit of images cannot judge. Leave that filter"
                " out."
            )
    return tuple(
        item._replace(amount=1) if item.kind == RESOURCE else item
        for item in conditions
    )


def with_plenty(
    fleet: Fleet, classes: Collection[str], *, any_size: bool = False
) -> Iterator[Host]:
    """Yield the hosts with plenty of each class that they can give.

    Of other classes they have none.

    Without inventories, a root counts as having all classes, other providers
    as having the classes that a root does not usually have.

    :param any_size: count each root as having VCPU and MEMORY_MB, as if
        flavors of all sizes were requested
    """
    named = frozenset(classes)

    def fill(root: Provider, provider: Provider) -> Provider:
        is_root = provider is root
        if fleet.has_inventories:
            found = {
                each
                for each in named & provider.resources.keys()
                if capacity_of(provider.resources[each]) > 0
            }
        else:
            found = set(named if is_root else named - _CLASSES_OF_ROOTS)
        if any_size and is_root:
            found |= named & _CLASSES_OF_ANY_FLAVOR
        return replace(provider, resources=dict.fromkeys(found, _PLENTY))

    for host in hosts_in(fleet):
        yield host.changed(partial(fill, host.root))


class HostIndex:
    """The hosts of a fleet, by what they can take.

    :param look: tells which hosts are of one kind; without it, each is of its
        own
    """

    def __init__(
        self, hosts: Iterable[Host], look: Look | None = None
    ) -> None:
        self.hosts: list[Host] = []
        """Each host, or the first of its kind."""
        names: list[str] = []
        self._kinds: list[int] = []
        """The number of the first host of each host's kind."""
        first: dict[object, int] = {}
        for number, host in enumerate(hosts):
            kind = number
            if look:
                kind = first.setdefault(look.key_of(host), number)
            names.append(host.name)
            self._kinds.append(kind)
            self.hosts.append(host if kind == number else self.hosts[kind])
        self.names = tuple(names)
        self.all = (1 << len(names)) - 1
        self._offering: dict[str, dict[int, list[Provider]]] = {}
        """Resource class -> number of a host -> its providers of the class."""
        shared: dict[str, list[int]] = {}
        for number, host in enumerate(self.hosts):
            for provider in host.providers:
                for name in provider.resources:
                    of_class = self._offering.setdefault(name, {})
                    of_class.setdefault(number, []).append(provider)
            for provider in host.shared:
                shared.setdefault(provider.uuid, []).append(number)
        self._sharing = {
            uuid: set_of(numbers) for uuid, numbers in shared.items()
        }
        """UUID of a provider -> the hosts that it shares its resources with.
        """
        roots = ((number, host.root) for number, host in enumerate(self.hosts))
        self._roots = _Having(
            (number, (*root.traits, *root.aggregates))
            for number, root in roots
        )
        self._view_of = cache(partial(_View, self.hosts, self._offering))
        self._amounts_of = cache(self._read_amounts)
        self._tried = lru_cache(_MOST_KEPT)(_Tried)

    @classmethod
    def by_capability(
        cls,
        fleet: Fleet,
        conditions: Iterable[Condition],
        *,
        any_size: bool = False,
    ) -> HostIndex:
        """Return the index of a fleet as if its hosts were empty and large.

        :param conditions: all that :meth:`find_candidates` will get; hosts are
            distinguished by nothing else
        """
        conditions = tuple(conditions)
        classes = {
            item.names[0] for item in conditions if item.kind == RESOURCE
        }
        hosts = with_plenty(fleet, classes, any_size=any_size)
        return cls(hosts, Look(conditions))

    @cached_property
    def numbers(self) -> Mapping[str, int]:
        """The number of each host, by its name."""
        return {name: number for number, name in enumerate(self.names)}

    def names_of(self, hosts: int) -> tuple[str, ...]:
        """Return the names of a set of hosts, in the order of the fleet."""
        return tuple(self.names[number] for number in numbers_in(hosts))

    def find_candidates(self, conditions: Iterable[Condition]) -> int:
        """Return the set of hosts that meet all conditions."""
        groups: dict[str, list[Condition]] = {ROOT: []}
        for item in conditions:
            groups.setdefault(item.scope, []).append(item)
        root = groups.pop(ROOT)
        hosts = self._roots.find(root)
        for scope, group in groups.items():
            if not hosts:
                return 0
            hosts &= self._find_serving(
                group, hosts, is_suffixed=scope != UNSUFFIXED
            )
        several = len(groups.keys() - {UNSUFFIXED}) > 1
        together = [
            item
            for item in root
            if item.kind == TREE or (item.kind == POLICY and several)
        ]
        competing = list(chain(*groups.values()))
        classes = [
            item.names[0] for item in competing if item.kind == RESOURCE
        ]
        # One group may take from another what that needs.
        if together or len(classes) > len(set(classes)):
            return self._find_meeting(hosts, [*together, *competing])
        return hosts

    def find_possible(self, condition: Condition) -> int:
        """Return a superset of the hosts that meet a condition."""
        # Groups of one subtree are nothing without the groups.
        is_subtree = condition.kind == TREE and condition.scope == ROOT
        return self.all if is_subtree else self.find_candidates((condition,))

    def without_shared_of(self, owner: int, hosts: int, demand: Demand) -> int:
        """Return the hosts that need nothing of what ``owner`` shares."""
        sharing = union(
            self._sharing.get(each.uuid, 0) for each in self.hosts[owner].own
        )
        for number in numbers_in(hosts & sharing):
            if not meets(self.host_without(number, owner), demand):
                hosts &= ~(1 << number)
        return hosts

    def host_without(self, number: int, owner: int | None) -> Host:
        """Return a host without the providers of another one's tree."""
        host = self.hosts[number]
        if owner is None or not host.shared:
            return host
        shared = (
            each for each in host.shared if self._trees.get(each.uuid) != owner
        )
        return replace(host, shared=tuple(shared))

    # ------------------------------------------------------------------------

    @cached_property
    def _trees(self) -> Mapping[str, int]:
        """UUID of a provider -> the number of its host."""
        return {
            each.uuid: number
            for number, host in enumerate(self.hosts)
            for each in host.own
        }

    @cached_property
    def _nested(self) -> int:
        return set_of(
            number
            for number, host in enumerate(self.hosts)
            if len(host.own) > 1 or host.shared
        )

    def _find_serving(
        self, group: Sequence[Condition], among: int, *, is_suffixed: bool
    ) -> int:
        """Return the hosts that can serve one request group alone."""
        for item in group:
            if item.kind == RESOURCE:
                among &= self._amounts_of(item.names[0]).find(item.amount)
        if trees := [item.names[0] for item in group if item.kind == TREE]:
            named = (
                self._trees[each] for each in trees if each in self._trees
            )
            return self._find_meeting(among & set_of(named), group)
        classes = frozenset(
            item.names[0] for item in group if item.kind == RESOURCE
        )
        if not classes:
            hosts = among & ~self._nested & self._roots.find(group)
            return hosts | self._find_meeting(among & self._nested, group)
        view = self._view_of(classes, is_suffixed=is_suffixed)
        hosts = among & view.on_root & self._roots.find(group)
        uncertain = view.by_choice
        if any(item.kind == AGGREGATE for item in group):
            # A view has no aggregates of providers below the root.
            uncertain |= view.elsewhere.all
        else:
            hosts |= among & view.elsewhere.find(group)
        return hosts | self._find_meeting(among & uncertain, group)

    def _read_amounts(self, name: str) -> _Amounts:
        offering = self._offering.get(name, {}).items()
        inventories = (
            (number, each.resources[name])
            for number, some in offering
            for each in some
        )
        return _Amounts(inventories)

    def _find_meeting(
        self, hosts: int, conditions: Iterable[Condition]
    ) -> int:
        """Return the hosts that meet conditions.

        The matcher tries one of each set of equal hosts.
        """
        if not hosts:
            return 0
        tried = self._tried(frozenset(conditions))
        if new := hosts & ~tried.hosts:
            met: dict[int, bool] = {}
            numbers = numbers_in(new)
            for number in numbers:
                kind = self._kinds[number]
                if kind not in met:
                    met[kind] = meets(self.hosts[kind], tried.demand)
            tried.hosts |= new
            tried.meeting |= set_of(
                number for number in numbers if met[self._kinds[number]]
            )
        return hosts & tried.meeting


class _Tried:
    """The hosts that the matcher has tried for some conditions."""

    def __init__(self, conditions: Iterable[Condition]) -> None:
        # In an order that is the same in each process: a search that is cut
        # off depends on it.
        self.demand = demand_from(sorted(conditions))
        self.hosts = 0
        self.meeting = 0


class _Having:
    """Sets of hosts by name, of a trait or an aggregate."""

    def __init__(self, names_of: Iterable[tuple[int, Iterable[str]]]) -> None:
        every: list[int] = []
        having: dict[str, list[int]] = {}
        for number, names in names_of:
            every.append(number)
            for name in names:
                having.setdefault(name, []).append(number)
        self.all = set_of(every)
        self._having = {
            name: set_of(numbers) for name, numbers in having.items()
        }

    def find(self, conditions: Iterable[Condition]) -> int:
        """Return hosts with all wanted traits and aggregates, no unwanted."""
        hosts = self.all
        for item in conditions:
            if item.kind in (TRAIT, AGGREGATE):
                having = union(
                    self._having.get(name, 0) for name in item.names
                )
                hosts &= having if item.wanted else ~having
        return hosts


class _View:
    """The hosts as the request groups with some resource classes see them.

    :param is_suffixed: whether one provider must have all the classes
    """

    def __init__(
        self,
        hosts: Sequence[Host],
        offering: _Offering,
        classes: frozenset[str],
        *,
        is_suffixed: bool,
    ) -> None:
        on_root, by_choice, elsewhere = [], [], []
        first, *others = (offering.get(name, {}) for name in classes)
        for number in sorted(set(first).intersection(*others)):
            options = [each[number] for each in (first, *others)]
            if is_suffixed:
                with_all = [
                    each
                    for each in options[0]
                    if classes <= each.resources.keys()
                ]
                options = [with_all]
            if all(len(each) == 1 for each in options):
                places = [provider for (provider,) in options]
                if all(each is hosts[number].root for each in places):
                    on_root.append(number)
                else:
                    elsewhere.append((number, traits_of(places)))
            elif all(options):
                by_choice.append(number)
        self.on_root = set_of(on_root)
        """The hosts whose root serves the group, if the host does."""
        self.elsewhere = _Having(elsewhere)
        """The hosts that serve it from other providers, by their traits."""
        self.by_choice = set_of(by_choice)
        """The hosts with a choice of providers."""


class _Amounts:
    """The hosts by the largest amount that one provider can give."""

    def __init__(self, inventories: Iterable[tuple[int, Inventory]]) -> None:
        self._by_unit: dict[tuple[int, int], list[tuple[int, int]]] = {}
        """``min_unit`` and ``step_size`` -> the largest amounts, by host.

        Sorted by amount.
        """
        for number, each in inventories:
            largest = min(free_in(each), each.max_unit)
            units = each.min_unit, each.step_size
            self._by_unit.setdefault(units, []).append((largest, number))
        self._from: dict[tuple[int, int], list[int]] = {}
        """The same -> for each 64th amount, the hosts from there on."""
        for key, ranks in self._by_unit.items():
            ranks.sort()
            found = [0]
            for start in reversed(range(0, len(ranks), _STEP)):
                step = ranks[start : start + _STEP]
                hosts = set_of(number for _, number in step)
                found.append(found[-1] | hosts)
            self._from[key] = found[::-1]
        self.find = lru_cache(_MOST_KEPT)(self._find)

    def _find(self, amount: int) -> int:
        hosts = 0
        for (least, step), ranks in self._by_unit.items():
            if amount >= least and not amount % step:
                place = bisect_left(ranks, (amount,))
                block = -(-place // _STEP)
                hosts |= self._from[least, step][block]
                hosts |= set_of(
                    number for _, number in ranks[place : block * _STEP]
                )
        return hosts


class Look:
    """View of a host by some conditions.

    Hosts with equal views meet the same conditions, alone and together.
    """

    def __init__(self, conditions: Collection[Condition]) -> None:
        self._names = frozenset(
            name
            for item in conditions
            if item.kind != RESOURCE
            for name in item.names
        )
        amounts: dict[str, list[int]] = {}
        for item in conditions:
            if item.kind == RESOURCE:
                # Equal groups are one condition.
                for _ in item.scope.split(","):
                    amounts.setdefault(item.names[0], []).append(item.amount)
        self._amounts = {
            name: (sorted(set(each)), sum(each))
            for name, each in amounts.items()
        }
        scopes = {item.scope for item in conditions} - {ROOT}
        self._any_provider = scopes != {
            item.scope for item in conditions if item.kind == RESOURCE
        }
        """True if a group may have providers without its resources."""
        self._by_place = any(
            item.kind == TREE and item.scope == ROOT for item in conditions
        )

    def key_of(self, host: Host) -> object:
        """Return a key that is equal for hosts with equal views."""
        root = self._of(host.root)
        if len(host.own) == 1 and not host.shared:
            return root
        if self._by_place:
            every = host.providers
            numbers = {each.uuid: index for index, each in enumerate(every)}
            places = []
            for each in every:
                parent = host.parents.get(each.uuid, "")
                places.append((self._of(each), numbers.get(parent)))
            return len(host.own), tuple(places)
        trees = self._names.intersection(each.uuid for each in host.own)
        return root, self._count(host.own[1:]), self._count(host.shared), trees

    def _count(self, providers: Iterable[Provider]) -> object:
        looks = map(self._of, providers)
        counts = Counter(
            look for look in looks if self._any_provider or look[-1]
        )
        return frozenset(counts.items())

    def _of(self, provider: Provider) -> tuple[object, ...]:
        places = self._names.intersection(
            (provider.uuid, *provider.aggregates)
        )
        amounts = tuple(
            self._amount(name, provider.resources[name])
            for name in self._amounts
            if name in provider.resources
        )
        return provider.traits & self._names, places, amounts

    def _amount(self, name: str, inventory: Inventory) -> tuple[object, ...]:
        """Return the amounts an inventory gives, and the most for several."""
        amounts, total = self._amounts[name]
        fitting = tuple(
            amount for amount in amounts if fits(inventory, amount)
        )
        together = 0
        if fitting:
            together = min(free_in(inventory), inventory.max_unit, total)
        return name, fitting, together
