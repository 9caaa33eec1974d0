"""Index of a fleet by capability and free room: the hosts that Placement would return for a demand, as a set.

A set of hosts is an ``int`` in which host n is bit n, as in :mod:`os_prefilter_tools.fleet.capability_index`. Thousands
of demands on thousands of hosts are intersections of such sets, one set for each condition. This is exact where a host
has one way to serve a request group, and the groups of the demand do not compete; elsewhere
:func:`os_prefilter_tools.fleet.matching.meets` decides for each host that is left.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain

from os_prefilter.common.host_sets import numbers_in, set_of, union
from os_prefilter.request.requirements import ROOT, UNSUFFIXED
from os_prefilter_tools.fleet.capability_index import BLOCK, CLASSES_OF_ROOTS, TraitIndex
from os_prefilter_tools.fleet.demand import AGGREGATE, POLICY, RESOURCE, TREE, Condition, Demand, Group
from os_prefilter_tools.fleet.matching import Host, Work, hosts_in, meets, room_in
from os_prefilter_tools.fleet.model import Fleet, Inventory, Provider

_MOST_KEPT = 4_000
# Between two sets that are kept of the hosts with at least an amount.
_STEP = 64
_PLENTY = Inventory(1_000_000_000)


class RoomIndex:
    """The hosts of a fleet, by what they can take.

    :param ignore_usage: treat each host as empty
    """

    def __init__(self, fleet: Fleet, *, ignore_usage: bool = False) -> None:
        self.hosts: Sequence[Host] = hosts_in(fleet)
        self.names: Mapping[str, int] = {host.name: number for number, host in enumerate(self.hosts)}
        self.all = (1 << len(self.hosts)) - 1
        self._ignore_usage = ignore_usage
        self._offering: dict[str, dict[int, list[Provider]]] = {}
        """Resource class -> number of a host -> the providers that have the class."""
        self._of_tree = {each.uuid: number for number, host in enumerate(self.hosts) for each in host.own}
        self._sharing: dict[str, list[int]] = {}
        """UUID of a provider -> the hosts that it shares its resources with."""
        for number, host in enumerate(self.hosts):
            for provider in (*host.own, *host.shared):
                for name in provider.resources:
                    self._offering.setdefault(name, {}).setdefault(number, []).append(provider)
            for provider in host.shared:
                self._sharing.setdefault(provider.uuid, []).append(number)
        roots = [(number, host.root) for number, host in enumerate(self.hosts)]
        self._root_traits = _trait_index((number, root.traits) for number, root in roots)
        self._nested = set_of(number for number, host in enumerate(self.hosts) if len(host.own) > 1 or host.shared)
        members: dict[str, list[int]] = {}
        for number, root in roots:
            for name in root.aggregates:
                members.setdefault(name, []).append(number)
        self._in_aggregate = {name: set_of(numbers) for name, numbers in members.items()}
        self._views: dict[tuple[bool, frozenset[str]], _View] = {}
        self._amounts: dict[str, _Amounts] = {}

    @property
    def has_shared(self) -> bool:
        """Whether any host can use a provider of another tree."""
        return bool(self._sharing)

    def find_candidates(self, demand: Demand) -> int:
        """Return the set of hosts that meet a demand."""
        scopes: dict[str, list[Condition]] = {}
        for item in demand.conditions():
            scopes.setdefault(item.scope, []).append(item)
        hosts = self._root_traits.find_having(scopes.pop(ROOT, ()))
        for suffix, group in demand.groups.items():
            if not hosts:
                return 0
            conditions = scopes.get(suffix or UNSUFFIXED, ())
            hosts &= self._find_serving(suffix, group, conditions, hosts)
        if _compete(demand):
            hosts = self.find_meeting(hosts, demand)
        return hosts

    def find_possible(self, condition: Condition) -> int:
        """Return hosts among which are all that meet a condition, whatever else is demanded."""
        if condition.kind == RESOURCE:
            return self._find_fitting(condition)
        if condition.scope == ROOT:
            return self._root_traits.find_having((condition,))
        if condition.kind == AGGREGATE and condition.wanted and condition.scope == UNSUFFIXED:
            return self._find_in_aggregates((condition,)) | self._nested
        if condition.kind in (AGGREGATE, TREE, POLICY):
            return self.all
        if condition.wanted:
            return self._view(frozenset(), is_suffixed=False).traits.find_having((condition,))
        return self._root_traits.find_having((condition,)) | self._nested

    def find_meeting(self, hosts: int, demand: Demand) -> int:
        """Return those of some hosts that meet a demand, each tried by the matcher."""
        return set_of(number for number in numbers_in(hosts) if self._meets(self.hosts[number], demand))

    def without_shared_of(self, owner: int, hosts: int, demand: Demand) -> int:
        """Return those of ``hosts`` that meet a demand also without what the tree of the host ``owner`` shares."""
        for number in numbers_in(hosts & self.using(each.uuid for each in self.hosts[owner].own) & ~(1 << owner)):
            if not self._meets(self.host_without(number, owner), demand):
                hosts &= ~(1 << number)
        return hosts

    def host_without(self, number: int, owner: int | None) -> Host:
        """Return a host without the providers of the tree of another one, if that is given."""
        host = self.hosts[number]
        if owner is None or not host.shared:
            return host
        return replace(host, shared=tuple(each for each in host.shared if self._of_tree.get(each.uuid) != owner))

    def using(self, uuids: Iterable[str]) -> int:
        """Return the hosts that can use any of these providers."""
        found = 0
        for uuid in uuids:
            if uuid in self._of_tree:
                found |= 1 << self._of_tree[uuid]
            if uuid in self._sharing:
                found |= set_of(self._sharing[uuid])
        return found

    def names_of(self, hosts: int) -> tuple[str, ...]:
        """Return the names of a set of hosts, in the order of the fleet."""
        return tuple(self.hosts[number].name for number in numbers_in(hosts))

    # ------------------------------------------------------------------------------------------------------------------

    def _find_serving(self, suffix: str, group: Group, conditions: Sequence[Condition], among: int) -> int:
        """Return the hosts among some that can serve one request group, were it the only one."""
        alone = Demand({suffix: group})
        if not group.resources:
            return self.find_meeting(among, alone)
        view = self._view(frozenset(group.resources), is_suffixed=bool(suffix))
        resources = [item for item in conditions if item.kind == RESOURCE]
        for item in resources:
            among &= self._find_fitting(item)
        hosts = among & view.on_root
        hosts &= self._root_traits.find_having(conditions)
        places = [item for item in conditions if item.kind in (AGGREGATE, TREE)]
        if any(item.kind == TREE for item in places):
            number = self._of_tree.get(group.in_tree or "")
            return 0 if number is None else self.find_meeting(among & 1 << number, alone)
        if places:
            hosts &= self._find_in_aggregates(places)
            return hosts | self.find_meeting(among & (view.elsewhere | view.by_choice), alone)
        hosts |= among & view.elsewhere & view.traits.find_having(conditions)
        return hosts | self.find_meeting(among & view.by_choice, alone)

    def _find_fitting(self, item: Condition) -> int:
        """Return the hosts of which some provider can give a resource."""
        (name,) = item.names
        if name not in self._amounts:
            offering = self._offering.get(name, {}).items()
            inventories = ((number, each.resources[name]) for number, some in offering for each in some)
            self._amounts[name] = _Amounts(inventories, ignore_usage=self._ignore_usage)
        return self._amounts[name].find(item.amount)

    def _find_in_aggregates(self, conditions: Iterable[Condition]) -> int:
        """Return the hosts whose root is in one of the wanted aggregates, and in no unwanted one."""
        hosts = self.all
        for item in conditions:
            members = union(self._in_aggregate.get(name, 0) for name in item.names)
            hosts &= members if item.wanted else ~members
        return hosts

    def _view(self, classes: frozenset[str], *, is_suffixed: bool) -> "_View":
        key = is_suffixed, classes
        if key not in self._views:
            self._views[key] = _View(self.hosts, [self._offering.get(name, {}) for name in classes], *key)
        return self._views[key]

    def _meets(self, host: Host, demand: Demand) -> bool:
        return meets(host, demand, ignore_usage=self._ignore_usage, work=Work())


class _View:
    """The hosts as the request groups with some resource classes see them.

    :param offering: for each class, number of a host -> the providers that have the class
    :param is_suffixed: whether one provider must have all the classes
    """

    def __init__(
        self,
        hosts: Sequence[Host],
        offering: Sequence[Mapping[int, Collection[Provider]]],
        is_suffixed: bool,  # noqa: FBT001
        classes: frozenset[str],
    ) -> None:
        on_root, by_choice, elsewhere = [], [], []
        every = set(range(len(hosts))).intersection(*offering)
        for number in sorted(every):
            host = hosts[number]
            if not offering:
                elsewhere.append((number, [*host.own, *host.shared]))
                continue
            ways = [each[number] for each in offering]
            if is_suffixed:
                ways = [[each for each in ways[0] if classes <= each.resources.keys()]]
            if all(len(each) == 1 for each in ways):
                places = [provider for (provider,) in ways]
                if all(each is host.root for each in places):
                    on_root.append(number)
                else:
                    elsewhere.append((number, places))
            elif all(ways):
                by_choice.append(number)
        self.on_root = set_of(on_root)
        """The hosts whose root serves the group, if the host does."""
        self.elsewhere = set_of(number for number, _ in elsewhere)
        """The hosts with one way to serve it, which takes other providers."""
        self.by_choice = set_of(by_choice)
        """The hosts with several ways."""
        self.traits = _trait_index(
            (number, frozenset().union(*(each.traits for each in places))) for number, places in elsewhere
        )
        """Those of the providers of :attr:`elsewhere`."""


class _Amounts:
    """The hosts by the largest amount of a resource class that one of their providers can give."""

    def __init__(self, inventories: Iterable[tuple[int, Inventory]], *, ignore_usage: bool) -> None:
        alike: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for number, each in inventories:
            largest = min(room_in(each, ignore_usage=ignore_usage), each.max_unit)
            alike.setdefault((each.min_unit, each.step_size), []).append((largest, number))
        self._alike = [(least, step, _Ranks(sorted(found))) for (least, step), found in alike.items()]
        self.find = lru_cache(_MOST_KEPT)(self._find)

    def _find(self, amount: int) -> int:
        return union(
            ranks.find_from(amount) for least, step, ranks in self._alike if amount >= least and not amount % step
        )


class _Ranks:
    """Hosts with a number each, sorted by it."""

    def __init__(self, ranks: Sequence[tuple[int, int]]) -> None:
        self._ranks = [rank for rank, _ in ranks]
        self._hosts = [number for _, number in ranks]
        # Of each 64th place, the hosts from there on.
        found = [0]
        for start in range((len(ranks) - 1) // _STEP * _STEP, -1, -_STEP):
            found.append(found[-1] | set_of(self._hosts[start : start + _STEP]))
        self._from = found[::-1]

    def find_from(self, rank: int) -> int:
        """Return the hosts with at least that number."""
        place = bisect_left(self._ranks, rank)
        block = -(-place // _STEP)
        return self._from[block] | set_of(self._hosts[place : block * _STEP])


def _trait_index(names: Iterable[tuple[int, frozenset[str]]]) -> TraitIndex:
    return TraitIndex((of_one, {number // BLOCK: 1 << number % BLOCK}) for number, of_one in names)


def _compete(demand: Demand) -> bool:
    """Whether what serves one request group matters to another one."""
    classes = Counter(chain.from_iterable(group.resources.keys() | group.dropped for group in demand.groups.values()))
    is_isolated = demand.isolate and sum(map(bool, demand.groups)) > 1
    return bool(demand.same_subtree) or is_isolated or any(count > 1 for count in classes.values())


def assume_inventories(fleet: Fleet, classes: Collection[str]) -> Fleet:
    """Return a fleet that was read by traits alone with plenty of each class, as an audit of images assumes it.

    The roots have all classes, the providers below them all that a root does not usually have.
    """
    below = [name for name in classes if name not in CLASSES_OF_ROOTS]

    def with_plenty(provider: Provider, names: Collection[str]) -> Provider:
        children = tuple(with_plenty(each, below) for each in provider.providers)
        return replace(provider, resources=dict.fromkeys(names, _PLENTY), providers=children)

    hosts = {each.uuid for each in fleet.instance_hosts}
    roots = (with_plenty(each, classes if each.uuid in hosts else below) for each in fleet.hosts)
    return replace(fleet, hosts=tuple(roots), has_inventories=True)
