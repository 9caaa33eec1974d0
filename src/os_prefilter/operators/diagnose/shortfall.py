"""The requirements that each host fails, and the smallest sets of requirements that no host satisfies together.

A host *meets* conditions if Placement returns it for some part of the request that has them. A *way* is a smallest set
of conditions without which a host would be a candidate; a candidate has the empty way. A set of conditions that no host
meets contains part of each way of each host, and a smallest such set is a *conflict*: conflicts are the minimal hitting
sets of the ways (R. Reiter, "A theory of diagnosis from first principles", 1987).

A group that keeps no resource is gone, with its traits and aggregates: Placement looks for these on the providers that
give the resources. So a way that has all resources of a group has all of the group.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from os_prefilter.fleet.matching import Host, Work, fits, meets, room_in
from os_prefilter.fleet.model import Inventory, Provider
from os_prefilter.operators.audit.audit import Progress
from os_prefilter.request.demand import RESOURCE, Condition, Demand

Way = frozenset[Condition]

_MOST_CONFLICTS = 200
_MOST_WAYS = 200
_MOST_HITTING = 1_000
_MOST_SETS = 2_000
"""Sets of conditions that are tried for the ways of one host."""
_MOST_STEPS = 200_000
"""Of searches for the ways of all hosts, after which only one way of each is looked for; and to verify conflicts."""
_MOST_PARTIAL = 3_000
_MOST_COMPARED = 20_000_000
"""Sets that are kept, and comparisons of two sets, in the search for conflicts."""
_MOST_KEPT = 10_000


@dataclass(frozen=True, slots=True)
class _Kind:
    """Hosts that a demand cannot tell apart."""

    host: Host
    names: list[str]
    lacks: Way
    is_candidate: bool


class Shortfalls:
    """The requirements of a demand that the hosts of a fleet fail.

    :param ignore_usage: treat each host as empty
    :param progress: called with the current stage, how many are done, and how many there are
    """

    def __init__(
        self,
        hosts: Iterable[Host],
        demand: Demand,
        *,
        ignore_usage: bool = False,
        progress: Progress = lambda _what, _done, _of: None,
    ) -> None:
        self.conditions = demand.conditions()
        self.sets = 0
        """How many sets of conditions were tried for the ways of hosts."""
        self._everything = frozenset(self.conditions)
        self._demand = demand
        self._ignore_usage = ignore_usage
        self._progress = progress
        self._work = Work()
        self._parts: dict[Way, Demand] = {}
        self._last: Host | None = None
        look = _Look(demand, ignore_usage=ignore_usage)
        alike: dict[object, list[Host]] = {}
        for host in hosts:
            alike.setdefault(look.at(host), []).append(host)
        self._kinds = []
        for number, members in enumerate(alike.values(), 1):
            self._kinds.append(self._kind_of(members))
            progress("kinds of empty hosts" if ignore_usage else "kinds of hosts", number, len(alike))

    # -- numbers -------------------------------------------------------------------------------------------------------

    @property
    def hosts(self) -> int:
        """The number of hosts."""
        return _count_hosts(self._kinds)

    @property
    def kinds(self) -> int:
        """The number of kinds of hosts that the demand can tell apart."""
        return len(self._kinds)

    @cached_property
    def candidates(self) -> tuple[str, ...]:
        """The hosts that meet all conditions, sorted."""
        return tuple(sorted(name for kind in self._kinds if kind.is_candidate for name in kind.names))

    @cached_property
    def lacks(self) -> Mapping[str, Way]:
        """Host -> the conditions that it fails even if all others are dropped."""
        return {name: kind.lacks for kind in self._kinds for name in kind.names}

    def count_lacking(self, condition: Condition) -> int:
        """Return how many hosts fail a condition even if all others are dropped."""
        return _count_hosts(kind for kind in self._kinds if condition in kind.lacks)

    def count_lacking_only(self, condition: Condition) -> int:
        """Return how many of these would be candidates without it."""
        return _count_hosts(kind for kind in self._kinds_without[condition] if condition in kind.lacks)

    def count_if_dropped(self, condition: Condition) -> int:
        """Return how many hosts Placement would return for the request without a condition."""
        return _count_hosts(self._kinds_without[condition])

    @property
    def given_up(self) -> int:
        """How many searches for providers reached their limit: the host then counts as failing the condition."""
        return self._work.given_up

    # -- sets ----------------------------------------------------------------------------------------------------------

    @cached_property
    def ways(self) -> Mapping[str, tuple[Way, ...]]:
        """Host -> its ways, smallest first, without the conditions that go with the resources of a group anyway."""
        found = {}
        for kind, (ways, _) in zip(self._kinds, self._ways, strict=True):
            short = tuple(way - self._demand.find_implied(way) for way in ways)
            found.update(dict.fromkeys(kind.names, short))
        return found

    @property
    def conflicts(self) -> tuple[Way, ...]:
        """The smallest sets that no host meets, those of fewest conditions first.

        A set that no host can meet because none meets the resources of its groups is left out.
        """
        return self._conflicts[0]

    @property
    def is_limited(self) -> bool:
        """Whether there may be more ways or conflicts than were found."""
        return self._conflicts[1] or not all(are_all for _, are_all in self._ways)

    def is_conflict(self, conditions: Way) -> bool:
        """Whether no host meets these."""
        left_out = self._everything - conditions
        return not any(self._meets(kind.host, left_out) for kind in self._kinds if conditions.isdisjoint(kind.lacks))

    # ------------------------------------------------------------------------------------------------------------------

    def _kind_of(self, hosts: Sequence[Host]) -> _Kind:
        is_candidate = self._meets(hosts[0], frozenset())
        lacks = frozenset(
            item
            for item in self.conditions
            if not is_candidate and not self._meets(hosts[0], self._everything - {item})
        )
        return _Kind(hosts[0], [each.name for each in hosts], lacks, is_candidate)

    def _meets(self, host: Host, left_out: Way) -> bool:
        """Whether a host meets all but these conditions."""
        if left_out not in self._parts:
            if len(self._parts) >= _MOST_KEPT:
                self._parts.clear()
            self._parts[left_out] = self._demand.only([item for item in self.conditions if item not in left_out])
        return self._is_met(host, self._parts[left_out])

    def _is_met(self, host: Host, demand: Demand) -> bool:
        if host is not self._last:
            self._work.options.clear()
            self._last = host
        return meets(host, demand, ignore_usage=self._ignore_usage, work=self._work)

    @cached_property
    def _kinds_without(self) -> Mapping[Condition, list[_Kind]]:
        """Condition -> the kinds of hosts that Placement would return for the request without it."""
        found: dict[Condition, list[_Kind]] = {item: [] for item in self.conditions}
        demands = {item: self._demand.without(item) for item in self.conditions}
        dropped = {item: {item} | self._demand.find_implied({item}) for item in self.conditions}
        for kind in self._kinds:
            for item in self.conditions:
                stays = kind.is_candidate and (item.kind != RESOURCE or item.suffix)
                if stays or (kind.lacks <= dropped[item] and self._is_met(kind.host, demands[item])):
                    found[item].append(kind)
        return found

    @cached_property
    def _ways(self) -> list[tuple[Sequence[Way], bool]]:
        """The ways of each kind of hosts, and whether these are all."""
        most = self._work.steps + _MOST_STEPS
        found = []
        for number, kind in enumerate(self._kinds, 1):
            found.append(self._ways_of(kind, most))
            self._progress("what to drop for each kind of hosts", number, len(self._kinds))
        return found

    def _ways_of(self, kind: _Kind, most: int) -> tuple[Sequence[Way], bool]:
        if kind.is_candidate or self._meets(kind.host, kind.lacks):
            return [kind.lacks], True
        # It meets the other conditions one by one, but not together: they need different providers, or one provider.
        ways, sets, are_all = _smallest_that_suffice(
            [item for item in self.conditions if item not in kind.lacks],
            lambda more: self._meets(kind.host, kind.lacks | more),
            lambda: self._work.steps > most,
        )
        self.sets += sets
        return [kind.lacks | way for way in ways], are_all

    @cached_property
    def _conflicts(self) -> tuple[tuple[Way, ...], bool]:
        found, are_some_only = smallest_hitting_sets({way for ways, _ in self._ways for way in ways}, self.conditions)
        if not all(are_all for _, are_all in self._ways):
            # A way that was not found may have no part in a set.
            most = self._work.steps + _MOST_STEPS
            found = [each for each in found if self._work.steps < most and self.is_conflict(each)]
        resources = {item.scope: set[Condition]() for item in self.conditions}
        for item in self.conditions:
            if item.kind == RESOURCE:
                resources[item.scope].add(item)
        # No host can meet the traits of a group whose resources no host has: naming the resources is enough.
        needed = {
            each: each.union(*(resources[item.scope] for item in each if item.kind != RESOURCE)) for each in found
        }
        essential = [each for each in found if not any(other != each and other <= needed[each] for other in found)]
        return tuple(essential), are_some_only


def _count_hosts(kinds: Iterable[_Kind]) -> int:
    return sum(len(kind.names) for kind in kinds)


# -- sets of conditions: ints in which condition n is bit n ------------------------------------------------------------


def _smallest_that_suffice(
    conditions: Sequence[Condition], suffices: Callable[[Way], bool], is_spent: Callable[[], bool]
) -> tuple[list[Way], int, bool]:
    """Return the smallest sets of conditions that suffice, how many sets were tried, and whether these are all.

    Each set that hits all known sets is either the complement of one that does not suffice, or it leads to one more in
    its complement ("dualize and advance", D. Gunopulos et al., 1997).
    """
    everything = (1 << len(conditions)) - 1
    scopes: dict[str, int] = {}
    for number, item in enumerate(conditions):
        scopes[item.scope] = scopes.get(item.scope, 0) | 1 << number

    def is_enough(bits: int) -> bool:
        return suffices(_to_conditions(bits, conditions))

    def smallest_in(bits: int) -> int:
        # Whole groups first: most have no part in it.
        for part in (*scopes.values(), *_bits(everything)):
            if part & bits and is_enough(bits & ~part):
                bits &= ~part
        return bits

    def as_ways(sets: Iterable[int]) -> list[Way]:
        return [_to_conditions(each, conditions) for each in sorted(sets, key=_by_size)]

    found = [smallest_in(everything)]
    hitting = list(_bits(found[0]))
    not_enough: set[int] = set()
    tried = 0
    while left := [each for each in hitting if each not in not_enough]:
        if tried >= _MOST_SETS or len(found) >= _MOST_WAYS or len(hitting) > _MOST_HITTING or is_spent():
            return as_ways(found), tried, False
        tried += 1
        smallest = min(left, key=_by_size)
        if is_enough(everything & ~smallest):
            found.append(smallest_in(everything & ~smallest))
            hitting = _extend(hitting, found[-1])
        else:
            not_enough.add(smallest)
    return as_ways(found), tried, True


def smallest_hitting_sets(ways: Collection[Way], conditions: Sequence[Condition]) -> tuple[list[Way], bool]:
    """Return the minimal sets that have a part of each way, those of fewest conditions first.

    The second value says whether there may be more: at most 200 are returned, and the search is limited.
    """
    if frozenset() in ways:
        return [], False
    bit_of = {item: 1 << number for number, item in enumerate(conditions)}
    to_hit = sorted({sum(bit_of[item] for item in way) for way in ways}, key=_by_size)
    hitting, compared, is_cut = [0], 0, False
    for number, way in enumerate(to_hit):
        compared += len(hitting) ** 2
        if compared > _MOST_COMPARED:
            is_cut = True
            hitting = [each for each in hitting if all(each & other for other in to_hit[number:])]
            break
        hitting = sorted(_extend(hitting, way), key=_by_size)
        is_cut |= len(hitting) > _MOST_PARTIAL
        del hitting[_MOST_PARTIAL:]
    # After a cut, a set may contain one that was cut: in a minimal set, each member alone hits some way.
    minimal = [each for each in hitting if all(any(way & each == bit for way in to_hit) for bit in _bits(each))]
    found = [_to_conditions(each, conditions) for each in minimal[:_MOST_CONFLICTS]]
    return found, is_cut or len(minimal) > _MOST_CONFLICTS


def _extend(hitting: Sequence[int], way: int) -> list[int]:
    """Return the minimal sets that hit one more way (C. Berge, "Hypergraphs", 1989)."""
    kept = [each for each in hitting if each & way]
    longer = {each | bit for each in hitting if not each & way for bit in _bits(way)}
    return kept + [each for each in sorted(longer) if not any(other & each == other for other in kept)]


def _bits(number: int) -> Iterator[int]:
    while number:
        bit = number & -number
        number ^= bit
        yield bit


def _by_size(bits: int) -> tuple[int, int]:
    return bits.bit_count(), bits


def _to_conditions(bits: int, conditions: Sequence[Condition]) -> Way:
    return frozenset(item for number, item in enumerate(conditions) if bits >> number & 1)


class _Look:
    """What a demand can see of a host; hosts that look alike fail the same conditions."""

    def __init__(self, demand: Demand, *, ignore_usage: bool) -> None:
        self._ignore_usage = ignore_usage
        self._names = frozenset(name for item in demand.conditions() if item.kind != RESOURCE for name in item.names)
        self._trees = {group.in_tree for group in demand.groups.values()} - {None}
        self._amounts: dict[str, list[int]] = {}
        for suffixes, group in demand.groups.items():
            for name, amount in group.resources.items():
                self._amounts.setdefault(name, []).extend([amount] * len(suffixes.split(",")))
        self._any_provider = not all(group.resources for group in demand.groups.values())
        """Whether there is a group that providers without any of the resources may serve."""
        self._by_place = bool(demand.same_subtree)

    def at(self, host: Host) -> object:
        """Return a key that is equal for hosts that look alike."""
        root = self._of(host.root)
        if len(host.own) == 1 and not host.shared:
            return root
        if self._by_place:
            number = {provider.uuid: index for index, provider in enumerate((*host.own, *host.shared))}
            places = [
                (self._of(each), number.get(host.parents.get(each.uuid, ""))) for each in (*host.own, *host.shared)
            ]
            return root, len(host.own), tuple(places)
        trees = frozenset(each.uuid for each in host.own if each.uuid in self._trees)
        return root, self._count(host.own[1:]), self._count(host.shared), trees

    def _count(self, providers: Iterable[Provider]) -> object:
        looks = map(self._of, providers)
        return frozenset(Counter(look for look in looks if self._any_provider or look[-1]).items())

    def _of(self, provider: Provider) -> tuple[object, ...]:
        resources = (
            self._amount(name, provider.resources[name]) for name in self._amounts if name in provider.resources
        )
        return (
            provider.traits & self._names,
            self._names.intersection(provider.aggregates),
            provider.uuid if provider.uuid in self._trees else "",
            tuple(each for each in resources if each),
        )

    def _amount(self, name: str, inventory: Inventory) -> object:
        """Return which of the amounts an inventory can give; None if none of them."""
        amounts = self._amounts[name]
        fitting = tuple(
            amount for amount in sorted(set(amounts)) if fits(inventory, amount, ignore_usage=self._ignore_usage)
        )
        if not fitting:
            return None
        if len(amounts) == 1:
            return name, fitting
        together = min(room_in(inventory, ignore_usage=self._ignore_usage), inventory.max_unit, sum(amounts))
        return name, fitting, together
