"""Index of a fleet by capability: the sets of hosts that could serve a query if they were empty and large enough.

Only traits and the presence of resource classes count, not amounts and usage. A set of hosts is an ``int`` in which
host n is bit n. Hosts that differ in nothing that the queries name are one kind. Where it does not matter which
providers of a host serve a request group, sets of hosts by trait give the result; elsewhere
:func:`os_prefilter_tools.fleet.matching.meets` decides for each kind. The hosts of a kind are kept as
:data:`Members`: with one ``int`` for each of as many kinds as hosts, memory and time would grow with the square of
their number.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from os_prefilter.common.errors import ConfigurationError
from os_prefilter.common.host_sets import numbers_in, union
from os_prefilter.request.requirements import ROOT, UNSUFFIXED
from os_prefilter.vocabulary.resource_classes import HOST_CLASSES
from os_prefilter_tools.fleet.demand import AGGREGATE, POLICY, RESOURCE, TRAIT, TREE, Condition, Demand, Group
from os_prefilter_tools.fleet.matching import Host, hosts_in, meets
from os_prefilter_tools.fleet.model import Fleet, Inventory, Provider

CLASSES_OF_ROOTS = frozenset((*HOST_CLASSES, "DISK_GB"))
"""What a root provides where inventories are not known."""
_CLASSES_OF_ANY_FLAVOR = frozenset(("VCPU", "MEMORY_MB"))
_PLENTY = Inventory(1_000_000)
_MOST_KEPT = 10_000
BLOCK = 1024

Members: TypeAlias = Mapping[int, int]
"""A set of hosts in blocks: number of a block -> the set of its hosts, where bit 0 is the first host of the block."""


class _Part(NamedTuple):
    """What the queries can see of a provider."""

    classes: frozenset[str]
    traits: frozenset[str]


_Kind = tuple[_Part, ...]
"""The providers that a host can use, its root first."""


def capability_of(demand: Demand) -> tuple[Condition, ...]:
    """Return the conditions of a demand, without amounts.

    :raises ConfigurationError: if it names aggregates, a provider tree or a subtree, which images and flavors do not.
    """
    conditions = demand.conditions()
    for item in conditions:
        if item.kind in (AGGREGATE, TREE):
            name = "member_of" if item.kind == AGGREGATE else "same_subtree" if item.scope == ROOT else "in_tree"
            raise ConfigurationError(
                f"A request filter adds {name}{item.suffix} to the query, which an audit of images cannot judge. "
                "Leave that filter out."
            )
    return tuple(item._replace(amount=0) for item in conditions)


class CapabilityIndex:
    """The hosts of a fleet, by what they could serve.

    :param conditions: all conditions that :meth:`find_serving` will get; hosts are not told apart by anything else
    :param any_size: count each host as having VCPU and MEMORY_MB, as if flavors of all sizes were requested
    :param is_usable: whether an inventory counts as having its resource class; without it, each does
    """

    def __init__(
        self,
        fleet: Fleet,
        conditions: Iterable[Condition],
        *,
        any_size: bool = False,
        is_usable: Callable[[Inventory], bool] | None = None,
    ) -> None:
        self._names: dict[str, set[str]] = {TRAIT: set(), RESOURCE: set(), POLICY: set()}
        for item in conditions:
            self._names[item.kind].update(item.names)
        self._any_size = any_size
        self._is_usable = is_usable
        self._knows_classes = fleet.has_inventories
        hosts = hosts_in(fleet)
        self.names: tuple[str, ...] = tuple(host.name for host in hosts)
        self.all = (1 << len(hosts)) - 1
        self.kinds: dict[_Kind, dict[int, int]] = {}
        for number, host in enumerate(hosts):
            members = self.kinds.setdefault(self._kind_of(host), {})
            block, bit = divmod(number, BLOCK)
            members[block] = members.get(block, 0) | 1 << bit
        self._root = TraitIndex((kind[0].traits, members) for kind, members in self.kinds.items())
        self._views: dict[tuple[bool, frozenset[str]], _GroupView] = {}
        self._serving_isolated = lru_cache(_MOST_KEPT)(self._find_serving_isolated)

    def find_serving(self, conditions: Iterable[Condition]) -> int:
        """Return the set of hosts that could meet all the conditions."""
        groups: dict[str, list[Condition]] = {ROOT: []}
        for item in conditions:
            groups.setdefault(item.scope, []).append(item)
        root = groups.pop(ROOT)
        hosts = self._root.find_having(root)
        for scope, group in groups.items():
            if not hosts:
                return 0
            hosts &= self._find_serving_group(group, is_suffixed=scope != UNSUFFIXED)
        suffixed = tuple(tuple(group) for scope, group in groups.items() if scope != UNSUFFIXED)
        if len(suffixed) > 1 and any(item.kind == POLICY for item in root):
            hosts &= self._serving_isolated(suffixed)
        return hosts

    def host_groups(self) -> list[tuple[int, ...]]:
        """Return the numbers of the hosts of each kind, the largest first."""
        return sorted((tuple(_numbers_of(members)) for members in self.kinds.values()), key=len, reverse=True)

    def names_of(self, hosts: int) -> tuple[str, ...]:
        """Return the names of a set of hosts, in the order of the fleet."""
        return tuple(self.names[number] for number in numbers_in(hosts))

    def _kind_of(self, host: Host) -> _Kind:
        root, *others = (self._part_of(each, is_root=each is host.root) for each in (*host.own, *host.shared))
        # Queries cannot tell the order of providers; isolated groups can tell how many there are.
        return (root, *sorted(others, key=lambda part: (sorted(part.classes), sorted(part.traits))))

    def _part_of(self, provider: Provider, *, is_root: bool) -> _Part:
        named = self._names[RESOURCE]
        if not self._knows_classes:
            classes = named if is_root else named - CLASSES_OF_ROOTS
        elif self._is_usable:
            classes = {name for name in named & provider.resources.keys() if self._is_usable(provider.resources[name])}
        else:
            classes = named.intersection(provider.resources)
        if self._any_size and is_root:
            classes = classes | named & _CLASSES_OF_ANY_FLAVOR
        return _Part(frozenset(classes), provider.traits & self._names[TRAIT])

    def _find_serving_group(self, group: Collection[Condition], *, is_suffixed: bool) -> int:
        key = is_suffixed, frozenset(item.names[0] for item in group if item.kind == RESOURCE)
        if key not in self._views:
            self._views[key] = _GroupView(self.kinds, *key)
        return self._views[key].find_serving(group)

    def _find_serving_isolated(self, groups: tuple[tuple[Condition, ...], ...]) -> int:
        demand = Demand({str(number): _as_group(group) for number, group in enumerate(groups)}, isolate=True)
        hosts = self.all
        for group in groups:
            hosts &= self._find_serving_group(group, is_suffixed=True)
        # The hosts of a kind are in all of these sets, or in none.
        left = set(numbers_in(hosts))
        kinds = ((kind, members) for kind, members in self.kinds.items() if next(_numbers_of(members)) in left)
        return join(members for kind, members in kinds if meets(_as_host(kind), demand))


class TraitIndex:
    """Sets of hosts by trait."""

    def __init__(self, hosts_with: Iterable[tuple[frozenset[str], Members]]) -> None:
        everyone: list[Members] = []
        by_trait: dict[str, list[Members]] = {}
        for traits, members in hosts_with:
            everyone.append(members)
            for trait in traits:
                by_trait.setdefault(trait, []).append(members)
        self._all = join(everyone)
        self._by_trait = {trait: join(having) for trait, having in by_trait.items()}

    def find_having(self, conditions: Iterable[Condition]) -> int:
        """Return the hosts that have the required traits, and no forbidden one."""
        hosts = self._all
        for item in conditions:
            if item.kind == TRAIT:
                having = union(self._by_trait.get(name, 0) for name in item.names)
                hosts &= having if item.wanted else ~having
        return hosts


class _GroupView:
    """The kinds of hosts as one request group sees them: by the traits of the providers that have its classes."""

    def __init__(
        self,
        kinds: Mapping[_Kind, Members],
        is_suffixed: bool,  # noqa: FBT001
        classes: frozenset[str],
    ) -> None:
        self._suffix = "_" if is_suffixed else ""
        self._with_choice: list[tuple[Host, Members]] = []
        without_choice = []
        for kind, members in kinds.items():
            # For each part of the group, the different traits of the providers that it can be taken from.
            parts = (classes,) if is_suffixed else ({name} for name in classes)
            places = [{part.traits for part in kind if each <= part.classes} for each in parts if each]
            if not classes:
                # A group of traits alone concerns the host itself.
                places = [{kind[0].traits}]
            if all(len(each) == 1 for each in places):
                without_choice.append((frozenset().union(*(traits for each in places for traits in each)), members))
            elif all(places):
                self._with_choice.append((_as_host(kind), members))
        self._without_choice = TraitIndex(without_choice)
        self._serving_by_choice = lru_cache(_MOST_KEPT)(self._find_serving_by_choice)

    def find_serving(self, group: Collection[Condition]) -> int:
        hosts = self._without_choice.find_having(group)
        return hosts | self._serving_by_choice(frozenset(group)) if self._with_choice else hosts

    def _find_serving_by_choice(self, group: frozenset[Condition]) -> int:
        demand = Demand({self._suffix: _as_group(group)})
        return join(members for host, members in self._with_choice if meets(host, demand))


def _as_host(kind: _Kind) -> Host:
    providers = tuple(
        Provider(str(number), str(number), dict.fromkeys(part.classes, _PLENTY), part.traits)
        for number, part in enumerate(kind)
    )
    return Host(providers[0], providers, (), {})


def _as_group(conditions: Collection[Condition]) -> Group:
    traits = [item for item in conditions if item.kind == TRAIT]
    return Group(
        resources={item.names[0]: 1 for item in conditions if item.kind == RESOURCE},
        required=tuple(frozenset(item.names) for item in traits if item.wanted),
        forbidden=frozenset(item.names[0] for item in traits if not item.wanted),
    )


def join(sets: Iterable[Members]) -> int:
    """Return the hosts that are in any of the sets."""
    blocks: dict[int, int] = {}
    for members in sets:
        for block, hosts in members.items():
            blocks[block] = blocks.get(block, 0) | hosts
    in_order = (blocks.get(block, 0) for block in range(max(blocks, default=0) + 1))
    return int.from_bytes(b"".join(hosts.to_bytes(BLOCK // 8, "little") for hosts in in_order), "little")


def _numbers_of(members: Members) -> Iterator[int]:
    return (block * BLOCK + number for block, hosts in members.items() for number in numbers_in(hosts))
