"""What each host lacks of a demand, and which demands no host meets together.

A host *meets* conditions if Placement returns it for some part of the request that has them. A *way* is a smallest set
of conditions without which a host would be a candidate; a candidate has the empty way. A set of conditions that no host
meets contains part of each way of each host, and a smallest such set is a *conflict*. (The two are dual: "hitting
sets" in the literature, R. Reiter, "A theory of diagnosis from first principles", 1987, which has the search too.)

A group of which no resource is left is gone, with its traits and aggregates: Placement looks for these on the providers
that give the resources. So a way that has all resources of a group has all of the group.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from os_prefilter.fleet.matching import Host, Work, fits, meets, room_in
from os_prefilter.fleet.model import Inventory, Provider
from os_prefilter.operators.audit.audit import Progress
from os_prefilter.request.demand import RESOURCE, Condition, Demand

Way = frozenset[Condition]

_MOST_CONFLICTS = 200
_MOST_WAYS = 200
_MOST_HITTING = 1_000
_MOST_SETS = 2_000
"""How many sets of conditions are looked at for the ways of one host."""
_MOST_STEPS = 200_000
"""Of searches for the ways of all hosts, after which one way is looked for on each; and to make sure of conflicts."""
_MOST_COMPARED = 5_000_000
"""How often a set is compared with a way in the search for conflicts."""
_MOST_KEPT = 10_000


@dataclass(frozen=True, slots=True)
class _Kind:
    """Hosts that look alike to a demand."""

    host: Host
    names: list[str]
    lacks: Way
    is_candidate: bool


class _Ways(NamedTuple):
    """The ways of one kind of hosts."""

    whole: tuple[Way, ...]
    are_all: bool


class Shortfalls:
    """What the hosts of a fleet lack of a demand.

    :param ignore_usage: take each host as empty
    :param progress: called with what is looked at, how many are done, and all that there are
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
        """How many sets of conditions were looked at for the ways of hosts."""
        self._demand = demand
        self._ignore_usage = ignore_usage
        self._progress = progress
        self._work = Work()
        self._parts: dict[Way, Demand] = {}
        self._last: Host | None = None
        self._scopes = list({item.scope: None for item in self.conditions})
        self._cores: dict[int, Way] = {}
        self._kinds = self._kinds_of(hosts)

    # -- numbers -------------------------------------------------------------------------------------------------------

    @property
    def hosts(self) -> int:
        """How many hosts there are."""
        return sum(len(kind.names) for kind in self._kinds)

    @cached_property
    def candidates(self) -> tuple[str, ...]:
        """The hosts that meet all, sorted."""
        return tuple(sorted(name for kind in self._kinds if kind.is_candidate for name in kind.names))

    @cached_property
    def lacks(self) -> Mapping[str, Way]:
        """Host -> what it does not meet, even if all else is dropped."""
        return {name: kind.lacks for kind in self._kinds for name in kind.names}

    def lacking(self, condition: Condition) -> int:
        """Return how many hosts do not meet a condition, even if all else is dropped."""
        return sum(len(kind.names) for kind in self._kinds if condition in kind.lacks)

    def lacking_only(self, condition: Condition) -> int:
        """Return how many of these would be candidates without it."""
        return sum(
            len(kind.names) for kind in self._kinds if condition in kind.lacks and self._does_without(kind, condition)
        )

    def if_dropped(self, condition: Condition) -> int:
        """Return how many hosts Placement would return for the request without a condition."""
        return sum(len(kind.names) for kind in self._kinds if self._does_without(kind, condition))

    @property
    def given_up(self) -> int:
        """How many searches for a placement were too long: these count as if the host did not meet what was asked."""
        return self._work.given_up

    # -- sets ----------------------------------------------------------------------------------------------------------

    @cached_property
    def ways(self) -> Mapping[str, tuple[Way, ...]]:
        """Host -> its ways, smallest first, without what goes with the resources of a group anyway."""
        found = {}
        for kind, ways in zip(self._kinds, self._ways, strict=True):
            short = tuple(way - self._demand.implied(way) for way in ways.whole)
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
        return self._conflicts[1] or not all(ways.are_all for ways in self._ways)

    def is_conflict(self, conditions: Way) -> bool:
        """Whether no host meets these."""
        left_out = frozenset(self.conditions) - conditions
        return not any(self._meets(kind.host, left_out) for kind in self._kinds if conditions.isdisjoint(kind.lacks))

    @property
    def kinds(self) -> int:
        """How many hosts differ in what matters."""
        return len(self._kinds)

    # ------------------------------------------------------------------------------------------------------------------

    def _kinds_of(self, hosts: Iterable[Host]) -> list[_Kind]:
        look = _Look(self._demand, ignore_usage=self._ignore_usage)
        alike: dict[object, list[Host]] = {}
        for host in hosts:
            alike.setdefault(look.at(host), []).append(host)
        everything = frozenset(self.conditions)
        kinds = []
        for number, (first, *others) in enumerate(alike.values(), 1):
            is_candidate = self._meets(first, frozenset())
            lacks = frozenset(
                item for item in self.conditions if not is_candidate and not self._meets(first, everything - {item})
            )
            kinds.append(_Kind(first, [first.name, *(each.name for each in others)], lacks, is_candidate))
            self._progress("kinds of empty hosts" if self._ignore_usage else "kinds of hosts", number, len(alike))
        return kinds

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
    def _without(self) -> Mapping[Condition, Demand]:
        return {item: self._demand.without(item) for item in self.conditions}

    def _dropped_with(self, condition: Condition) -> Way:
        alone = frozenset((condition,))
        return alone | self._demand.implied(alone)

    def _does_without(self, kind: _Kind, condition: Condition) -> bool:
        """Whether Placement would return a host for the request without a condition."""
        if kind.is_candidate and (condition.kind != RESOURCE or condition.suffix):
            return True
        dropped = self._dropped_with(condition)
        if not kind.is_candidate:
            in_the_way = kind.lacks or self._core_of(kind)
            if not kind.lacks <= dropped or dropped.isdisjoint(in_the_way):
                return False
        return self._is_met(kind.host, self._without[condition])

    def _core_of(self, kind: _Kind) -> Way:
        """Return a smallest set of conditions that a host meets one by one, and not together."""
        if id(kind) not in self._cores:
            self._cores[id(kind)] = self._core(kind.host, kind.lacks)
        return self._cores[id(kind)]

    def _core(self, host: Host, left_out: Way) -> Way:
        """Return a smallest set of the conditions that are left which a host does not meet together."""
        core = frozenset(self.conditions) - left_out
        # Most groups have no part in it.
        parts = [frozenset(item for item in core if item.scope == scope) for scope in self._scopes]
        parts += [frozenset((item,)) for item in self.conditions if item in core]
        for part in parts:
            if part <= core and not self._meets(host, frozenset(self.conditions) - core | part):
                core -= part
        return core

    @cached_property
    def _ways(self) -> list[_Ways]:
        most = self._work.steps + _MOST_STEPS
        found = []
        for number, kind in enumerate(self._kinds, 1):
            found.append(self._ways_of(kind, most))
            self._progress("what to drop for each kind of hosts", number, len(self._kinds))
        return found

    def _ways_of(self, kind: _Kind, most: int) -> _Ways:
        if kind.is_candidate or self._meets(kind.host, kind.lacks):
            return _Ways((kind.lacks,), are_all=True)
        # Conditions that it meets one by one and not together: on different providers, or more than one provider has.
        search = _WaySearch(
            [item for item in self.conditions if item not in kind.lacks],
            lambda more: self._meets(kind.host, kind.lacks | more),
            lambda: self._work.steps > most,
        )
        ways = search.ways()
        self.sets += search.sets
        return _Ways(tuple(kind.lacks | way for way in ways), are_all=not search.gave_up)

    @cached_property
    def _conflicts(self) -> tuple[tuple[Way, ...], bool]:
        ways = {way for each in self._ways for way in each.whole}
        found, are_some_only = smallest_hitting_sets(ways, self.conditions)
        if not all(ways.are_all for ways in self._ways):
            # A way that was not found may be one without any of a set.
            most = self._work.steps + _MOST_STEPS
            found = [each for each in found if self._work.steps < most and self.is_conflict(each)]
        resources = {item.scope: set[Condition]() for item in self.conditions}
        for item in self.conditions:
            if item.kind == RESOURCE:
                resources[item.scope].add(item)
        # No host can meet the traits of a group whose resources no host has: it says all to name these.
        needed = {
            each: each.union(*(resources[item.scope] for item in each if item.kind != RESOURCE)) for each in found
        }
        told = [each for each in found if not any(other != each and other <= needed[each] for other in found)]
        return tuple(told), are_some_only


class _WaySearch:
    """Looks for the smallest sets of conditions that it suffices to drop.

    Each set that all known ways have a part of is either one that the host does not meet, or it leads to one more way,
    in the rest ("dualize and advance", D. Gunopulos et al., 1997). These sets are kept up to date from way to way (C.
    Berge, "Hypergraphs", 1989). Sets are ints, condition n is bit n.
    """

    def __init__(
        self, conditions: Sequence[Condition], suffices: Callable[[Way], bool], is_spent: Callable[[], bool]
    ) -> None:
        self._conditions = conditions
        self._suffices = suffices
        self._is_spent = is_spent
        self._everything = (1 << len(conditions)) - 1
        scopes: dict[str, int] = {}
        for number, item in enumerate(conditions):
            scopes[item.scope] = scopes.get(item.scope, 0) | 1 << number
        self._parts = (*scopes.values(), *_bits(self._everything))
        self.sets = 0
        """How many sets were looked at."""
        self.gave_up = False

    def ways(self) -> list[Way]:
        """Return them, smallest first: one at least, and all unless it gave up."""
        found = [self._way_in(self._everything)]
        hitting = list(_bits(found[0]))
        not_met: set[int] = set()
        while new := [each for each in hitting if each not in not_met]:
            smallest = min(new, key=lambda each: (each.bit_count(), each))
            self.sets += 1
            self.gave_up = (
                self.sets > _MOST_SETS or len(found) >= _MOST_WAYS or len(hitting) > _MOST_HITTING or self._is_spent()
            )
            if self.gave_up:
                break
            if self._suffices(self._set(self._everything & ~smallest)):
                found.append(self._way_in(self._everything & ~smallest))
                hitting = _extended(hitting, found[-1])
            else:
                not_met.add(smallest)
        return [self._set(each) for each in sorted(found, key=lambda each: (each.bit_count(), each))]

    def _way_in(self, dropped: int) -> int:
        """Return a part of a set that suffices, of which no part suffices."""
        for part in self._parts:
            if part & dropped and self._suffices(self._set(dropped & ~part)):
                dropped &= ~part
        return dropped

    def _set(self, bits: int) -> Way:
        return frozenset(item for number, item in enumerate(self._conditions) if bits >> number & 1)


def _extended(hitting: Sequence[int], way: int) -> list[int]:
    """Return the smallest sets that have a part of all ways so far, and of one more."""
    kept = [each for each in hitting if each & way]
    longer = {each | bit for each in hitting if not each & way for bit in _bits(way)}
    return kept + [each for each in sorted(longer) if not any(other & each == other for other in kept)]


def _bits(number: int) -> Iterator[int]:
    while number:
        bit = number & -number
        number ^= bit
        yield bit


def smallest_hitting_sets(ways: Collection[Way], conditions: Sequence[Condition]) -> tuple[list[Way], bool]:
    """Return the sets that have a part of each way and of which no part has, those of fewest conditions first.

    The second value says whether there may be more: at most 200 are returned, and the search is limited.
    """
    if frozenset() in ways:
        return [], False
    number = {item: index for index, item in enumerate(conditions)}
    to_hit = _smallest(sum(1 << number[item] for item in way) for way in ways)
    search = _HittingSets(to_hit)
    for size in range(len(conditions) + 1):
        search.extend(size)
        if not search.has_larger or search.gave_up or len(search.found) >= _MOST_CONFLICTS:
            break
    sets = [
        frozenset(item for item in conditions if each >> number[item] & 1) for each in search.found[:_MOST_CONFLICTS]
    ]
    return sets, search.has_larger or search.gave_up or len(search.found) > _MOST_CONFLICTS


class _HittingSets:
    """Looks for hitting sets, size by size; sets are ints, item n is bit n."""

    def __init__(self, ways: Sequence[int]) -> None:
        self._ways = ways
        self._compared = 0
        self.found: list[int] = []
        self.has_larger = False
        self.gave_up = False

    def extend(self, size: int) -> None:
        """Add those of one size; all smaller ones have been found."""
        self.has_larger = False
        self.found += list(self._extended(0, 0, size, tuple(self.found)))

    def _extended(self, chosen: int, excluded: int, left: int, smaller: Sequence[int]) -> Iterator[int]:
        if self.gave_up or any(each & chosen == each for each in smaller):
            return
        index, way = next(((index, each) for index, each in enumerate(self._ways) if not each & chosen), (0, 0))
        self._compared += len(smaller) + (index + 1 if way else len(self._ways))
        self.gave_up = self._compared > _MOST_COMPARED
        if not way:
            if not left:
                yield chosen
            return
        if not left:
            self.has_larger = True
            return
        for item in _bits(way & ~excluded):
            yield from self._extended(chosen | item, excluded, left - 1, smaller)
            # Sets with it have been seen.
            excluded |= item


def _smallest(sets: Iterable[int]) -> list[int]:
    """Return those sets that contain no other one, smallest first."""
    found: list[int] = []
    for each in sorted(set(sets), key=lambda each: (each.bit_count(), each)):
        if not any(other & each == other for other in found):
            found.append(each)
    return found


class _Look:
    """What of a host matters to a demand; hosts that look alike lack the same."""

    def __init__(self, demand: Demand, *, ignore_usage: bool) -> None:
        self._ignore_usage = ignore_usage
        conditions = demand.conditions()
        self._names = frozenset(name for item in conditions if item.kind != RESOURCE for name in item.names)
        self._trees = {group.in_tree for group in demand.groups.values()} - {None}
        self._amounts: dict[str, list[int]] = {}
        for suffixes, group in demand.groups.items():
            for name, amount in group.resources.items():
                self._amounts.setdefault(name, []).extend([amount] * len(suffixes.split(",")))
        self._any_provider = not all(group.resources for group in demand.groups.values())
        """Whether there is a group that providers may serve which have nothing that is asked for."""
        self._by_place = bool(demand.same_subtree)

    def at(self, host: Host) -> object:
        """Return something that is equal for hosts that look alike."""
        root = self._of(host.root)
        if len(host.own) == 1 and not host.shared:
            return root
        if self._by_place:
            number = {provider.uuid: index for index, provider in enumerate((*host.own, *host.shared))}
            return root, *(
                tuple((self._of(each), number.get(host.parents.get(each.uuid) or "")) for each in some)
                for some in (host.own, host.shared)
            )
        return root, self._all_of(host.own[1:]), self._all_of(host.shared), self._tree_of(host)

    def _all_of(self, providers: Iterable[Provider]) -> object:
        """Return what matters of providers whose order and place do not."""
        found: dict[object, int] = {}
        for each in providers:
            look = self._of(each)
            if self._any_provider or look[2]:
                found[look] = found.get(look, 0) + 1
        return frozenset(found.items())

    def _tree_of(self, host: Host) -> object:
        return frozenset(each.uuid for each in host.own if each.uuid in self._trees)

    def _of(self, provider: Provider) -> tuple[object, object, tuple[object, ...]]:
        resources = (
            self._amount(name, provider.resources[name]) for name in self._amounts if name in provider.resources
        )
        return (
            provider.traits & self._names,
            (
                self._names.intersection(provider.aggregates),
                provider.uuid if provider.uuid in self._trees else "",
            ),
            tuple(each for each in resources if each),
        )

    def _amount(self, name: str, inventory: Inventory) -> object:
        """Return how an inventory can serve what is asked of it; None if not at all."""
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
