"""Which hosts of a fleet are able to serve a query, by set operations: a set of hosts is an ``int``, host n its bit n.

What is judged is capability: traits, and that a resource class is there at all. Amounts and usage are not. Hosts that
do not differ in what the queries name are of one kind, and looked at once. The rules are Placement's (its API
reference, "List allocation candidates"): the group without a suffix may take each class from another provider, whose
traits count together; a group with a suffix takes all from one.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, product
from typing import NamedTuple

import os_traits

from os_prefilter.errors import ConfigurationError
from os_prefilter.fleet.model import Fleet, Provider
from os_prefilter.request.demand import AGGREGATE, POLICY, RESOURCE, TRAIT, TREE, Condition, demand_of
from os_prefilter.request.requirements import ROOT, UNSUFFIXED
from os_prefilter.vocabulary.resource_classes import HOST_CLASSES

_SHARING = os_traits.MISC_SHARES_VIA_AGGREGATE
# What a root provides where nobody knows its inventories.
_OF_ROOTS = frozenset((*HOST_CLASSES, "DISK_GB"))
_OF_ANY_FLAVOR = frozenset(("VCPU", "MEMORY_MB"))
_MOST_KEPT = 10_000


class _Part(NamedTuple):
    """What matters of a provider."""

    classes: frozenset[str]
    traits: frozenset[str]


_Kind = tuple[_Part, ...]
"""The providers that a host can take something from, its root first."""


def capability_of(query: str) -> tuple[Condition, ...]:
    """Return the conditions of a query (:func:`os_prefilter.request.demand.demand_of`), without amounts.

    :raises ConfigurationError: if it asks for aggregates, one tree or a subtree, which images and flavors do not.
    """
    conditions = demand_of(query).conditions()
    for item in conditions:
        if item.kind in (AGGREGATE, TREE):
            name = "member_of" if item.kind == AGGREGATE else "same_subtree" if item.scope == ROOT else "in_tree"
            raise ConfigurationError(
                f"A request filter asks for {name}{item.suffix}, which an audit of images cannot judge. "
                "Leave that filter out."
            )
    return tuple(item._replace(amount=0) for item in conditions)


class HostSets:
    """The hosts of a fleet, by what they are able to serve.

    :param queries: all that will be asked; what they do not name does not tell hosts apart.
    :param any_size: each host counts as having VCPU and MEMORY_MB, as if flavors of all sizes were asked for.
    """

    def __init__(self, fleet: Fleet, queries: Iterable[Iterable[Condition]], *, any_size: bool = False) -> None:
        self._traits, self._classes = _named(queries)
        self._any_size = any_size
        self._knows_classes = fleet.has_inventories
        hosts = fleet.instance_hosts
        self.names: tuple[str, ...] = tuple(host.name for host in hosts)
        self.all = (1 << len(hosts)) - 1
        self.kinds: dict[_Kind, int] = {}
        shared = [provider for provider in fleet.walk() if _SHARING in provider.traits]
        for number, host in enumerate(hosts):
            kind = self._kind(host, shared)
            self.kinds[kind] = self.kinds.get(kind, 0) | 1 << number
        self._root = _by_trait((kind[0].traits, hosts_) for kind, hosts_ in self.kinds.items())
        self._views: dict[tuple[bool, frozenset[str]], _View] = {}
        self._isolated: dict[tuple[tuple[Condition, ...], ...], int] = {}

    def serving(self, conditions: Iterable[Condition]) -> int:
        """Return the set of hosts that could meet all the conditions, were they empty and large enough."""
        groups: dict[str, list[Condition]] = {ROOT: []}
        for item in conditions:
            groups.setdefault(item.scope, []).append(item)
        root = groups.pop(ROOT)
        hosts = _having(self._root, root, self.all)
        suffixed = tuple(tuple(group) for scope, group in groups.items() if scope != UNSUFFIXED)
        if len(suffixed) > 1 and any(item.kind == POLICY for item in root):
            hosts &= self._serving_isolated(suffixed)
        for scope, group in groups.items():
            if not hosts:
                break
            hosts &= self._serving_group(group, one_provider=scope != UNSUFFIXED)
        return hosts

    def named(self, hosts: int) -> tuple[str, ...]:
        """Return the names of a set of hosts, in the order of the fleet."""
        names = []
        while hosts:
            first = hosts & -hosts
            names.append(self.names[first.bit_length() - 1])
            hosts ^= first
        return tuple(names)

    def _kind(self, host: Provider, shared: Sequence[Provider]) -> _Kind:
        tree = list(host.walk())
        own = {provider.uuid for provider in tree}
        aggregates = {each for provider in tree for each in provider.aggregates} if shared else set()
        beside = [each for each in shared if each.uuid not in own and not aggregates.isdisjoint(each.aggregates)]
        root, *others = (self._part(provider, is_root=provider is host) for provider in (*tree, *beside))
        # Their order and number are nothing that the queries could tell; how often one is there, isolated groups can.
        return (root, *sorted(others, key=lambda part: (sorted(part.classes), sorted(part.traits))))

    def _part(self, provider: Provider, *, is_root: bool) -> _Part:
        classes = self._classes.intersection(provider.resources)
        if not self._knows_classes:
            classes = self._classes if is_root else self._classes - _OF_ROOTS
        if self._any_size and is_root:
            classes |= self._classes & _OF_ANY_FLAVOR
        return _Part(classes, provider.traits & self._traits)

    def _serving_group(self, group: Sequence[Condition], *, one_provider: bool) -> int:
        key = one_provider, frozenset(item.names[0] for item in group if item.kind == RESOURCE)
        if key not in self._views:
            self._views[key] = _View(self.kinds, *key)
        return self._views[key].serving([item for item in group if item.kind == TRAIT])

    def _serving_isolated(self, groups: tuple[tuple[Condition, ...], ...]) -> int:
        if groups not in self._isolated:
            self._isolated[groups] = union(hosts for kind, hosts in self.kinds.items() if _can_isolate(kind, groups))
        return self._isolated[groups]


class _View:
    """All kinds of hosts as one group of a query sees them: through the providers that have its resource classes."""

    def __init__(self, kinds: dict[_Kind, int], one_provider: bool, classes: frozenset[str]) -> None:  # noqa: FBT001
        plain: list[tuple[frozenset[str], int]] = []
        self._several: list[tuple[list[Collection[frozenset[str]]], int]] = []
        for kind, hosts in kinds.items():
            places = list(_places(kind, one_provider, classes))
            if not all(places):
                continue
            if all(len(each) == 1 for each in places):
                # Nearly all: whatever is taken, the same traits come with it.
                plain.append((frozenset().union(*(traits for each in places for traits in each)), hosts))
            else:
                self._several.append((places, hosts))
        self._plain = union(hosts for _, hosts in plain)
        self._by_trait = _by_trait(plain)
        self._chosen: dict[frozenset[Condition], int] = {}

    def serving(self, traits: Collection[Condition]) -> int:
        """Return the hosts that have the classes on providers with these traits."""
        hosts = _having(self._by_trait, traits, self._plain)
        return hosts | self._serving_by_choice(frozenset(traits)) if self._several else hosts

    def _serving_by_choice(self, traits: frozenset[Condition]) -> int:
        if traits not in self._chosen:
            if len(self._chosen) >= _MOST_KEPT:
                self._chosen.clear()
            required = [item.names for item in traits if item.wanted]
            forbidden = frozenset(item.names[0] for item in traits if not item.wanted)
            serving = (own for places, own in self._several if _can_choose(places, required, forbidden))
            self._chosen[traits] = union(serving)
        return self._chosen[traits]


def _places(kind: _Kind, one_provider: bool, classes: frozenset[str]) -> Iterator[Collection[frozenset[str]]]:  # noqa: FBT001
    """Yield, for each thing to be taken, the traits of each provider that it could be taken from."""
    if not classes:
        # Traits alone: of the host itself.
        yield {kind[0].traits}
    elif one_provider:
        yield {part.traits for part in kind if classes <= part.classes}
    else:
        for name in classes:
            yield {part.traits for part in kind if name in part.classes}


def _can_choose(
    places: list[Collection[frozenset[str]]], required: Sequence[tuple[str, ...]], forbidden: frozenset[str]
) -> bool:
    named = frozenset(chain.from_iterable(required))
    allowed = [{traits & named for traits in each if traits.isdisjoint(forbidden)} for each in places]
    together = (frozenset().union(*chosen) for chosen in product(*allowed))
    return any(not any(traits.isdisjoint(names) for names in required) for traits in together)


def _can_isolate(kind: _Kind, groups: Sequence[Sequence[Condition]]) -> bool:
    """Whether each group finds a provider of its own.

    A matching in a bipartite graph: where all providers of a group are taken, one of their groups goes elsewhere.
    """
    suiting = [
        [number for number, part in enumerate(kind) if all(_meets(part, item) for item in group)] for group in groups
    ]
    taken: dict[int, int] = {}

    def finds(group: int, tried: set[int]) -> bool:
        for provider in suiting[group]:
            if provider not in tried:
                tried.add(provider)
                if provider not in taken or finds(taken[provider], tried):
                    taken[provider] = group
                    return True
        return False

    return all(finds(group, set()) for group in range(len(groups)))


def _meets(part: _Part, item: Condition) -> bool:
    has = part.classes if item.kind == RESOURCE else part.traits
    return has.isdisjoint(item.names) != item.wanted


def _having(by_trait: dict[str, int], conditions: Iterable[Condition], hosts: int) -> int:
    """Return those of the hosts that have the traits that are required, and none that is forbidden."""
    for item in conditions:
        if item.kind == TRAIT:
            having = union(by_trait.get(name, 0) for name in item.names)
            hosts &= having if item.wanted else ~having
    return hosts


def _named(queries: Iterable[Iterable[Condition]]) -> tuple[frozenset[str], frozenset[str]]:
    """Return all traits, and all resource classes, that queries name."""
    names: dict[str, set[str]] = {TRAIT: set(), RESOURCE: set(), POLICY: set()}
    for item in chain.from_iterable(queries):
        names[item.kind].update(item.names)
    return frozenset(names[TRAIT]), frozenset(names[RESOURCE])


def _by_trait(hosts_with: Iterable[tuple[frozenset[str], int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for traits, hosts in hosts_with:
        for trait in traits:
            found[trait] = found.get(trait, 0) | hosts
    return found


def union(sets: Iterable[int]) -> int:
    """Return the hosts that are in any of the sets."""
    hosts = 0
    for each in sets:
        hosts |= each
    return hosts
