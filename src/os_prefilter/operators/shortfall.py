"""What each host lacks of a demand, and which demands no host meets together.

A *way* is a smallest set of conditions without which a host would meet the rest; a host that meets all has the empty
way. A set of conditions that no host meets together contains part of each way of each host, and a smallest such set is
a *conflict*. (The two are dual: "hitting sets" in the literature, R. Reiter, "A theory of diagnosis from first
principles", 1987.)
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from os_prefilter.operators.demand import RESOURCE, Condition, Demand
from os_prefilter.operators.fleet import Inventory, Provider
from os_prefilter.operators.placing import Host, fits, meets

Way = frozenset[Condition]

_MOST_CONFLICTS = 200
_MOST_WAYS = 200
_MOST_STEPS = 100_000


@dataclass(frozen=True)
class Shortfalls:
    """What the hosts of a fleet lack of a demand."""

    conditions: tuple[Condition, ...]
    lacks: Mapping[str, Way]
    """Host -> what it does not meet even alone."""
    ways: Mapping[str, tuple[Way, ...]]
    """Host -> its ways."""
    some_ways_only: bool = False
    """Whether some host has more ways than were looked for."""

    @cached_property
    def candidates(self) -> tuple[str, ...]:
        """The hosts that meet all, sorted."""
        return tuple(sorted(host for host, ways in self.ways.items() if not ways[0]))

    def lacking(self, condition: Condition) -> tuple[str, ...]:
        """Return the hosts that do not meet a condition even alone, sorted."""
        return tuple(sorted(host for host, lacks in self.lacks.items() if condition in lacks))

    def lacking_only(self, condition: Condition) -> tuple[str, ...]:
        """Return the hosts that would be candidates without it, and are none now; sorted."""
        way = frozenset((condition,))
        return tuple(sorted(host for host, ways in self.ways.items() if way in ways))

    @cached_property
    def _conflicts(self) -> tuple[list[Way], bool]:
        ways = _smallest({way for ways in self.ways.values() for way in ways})
        return smallest_hitting_sets(ways, self.conditions)

    @property
    def conflicts(self) -> tuple[Way, ...]:
        """The smallest sets that no host meets together, those of fewest conditions first."""
        return tuple(self._conflicts[0])

    @property
    def is_limited(self) -> bool:
        """Whether there are more ways or conflicts than were looked for."""
        return self.some_ways_only or self._conflicts[1]

    def is_conflict(self, conditions: Way) -> bool:
        """Whether no host meets these together."""
        return all(conditions & way for ways in self.ways.values() for way in ways)


def shortfalls(hosts: Iterable[Host], demand: Demand, *, ignore_usage: bool = False) -> Shortfalls:
    """Return what each host lacks of a demand.

    :param ignore_usage: take each host as empty
    """
    conditions = demand.conditions()
    known: dict[object, _Found] = {}
    found = {}
    look = _Look(demand, ignore_usage=ignore_usage)
    parts = _Parts(demand, conditions)
    for host in hosts:
        seen = look.at(host)
        if seen not in known:
            known[seen] = _of_one(host, parts, ignore_usage=ignore_usage)
        found[host.name] = known[seen]
    return Shortfalls(
        conditions,
        lacks={name: each.lacks for name, each in found.items()},
        ways={name: each.ways for name, each in found.items()},
        some_ways_only=any(each.some_ways_only for each in known.values()),
    )


class _Found(NamedTuple):
    lacks: Way
    ways: tuple[Way, ...]
    some_ways_only: bool = False


class _Parts:
    """A demand without some of its conditions; many hosts lack the same."""

    def __init__(self, demand: Demand, conditions: Sequence[Condition]) -> None:
        self._demand = demand
        self._known: dict[Way, Demand] = {}
        self.conditions = conditions
        self.alone = [(item, demand.only([item])) for item in conditions]

    def without(self, left_out: Way) -> Demand:
        if left_out not in self._known:
            self._known[left_out] = self._demand.only([item for item in self.conditions if item not in left_out])
        return self._known[left_out]


def _of_one(host: Host, parts: _Parts, *, ignore_usage: bool) -> _Found:
    """Return what a host lacks by itself, and its ways."""

    def meets_all_but(left_out: Way) -> bool:
        return meets(host, parts.without(left_out), ignore_usage=ignore_usage)

    lacks = frozenset(item for item, alone in parts.alone if not meets(host, alone, ignore_usage=ignore_usage))
    if meets_all_but(lacks):
        return _Found(lacks, (lacks,))
    # Conditions that it meets one by one and not together: on different providers, or more than one provider has.
    others = [item for item in parts.conditions if item not in lacks]
    ways, some_only = _ways_together(others, lambda more: meets_all_but(lacks | more))
    return _Found(lacks, tuple(lacks | way for way in ways), some_only)


def _ways_together(others: Sequence[Condition], suffices: Callable[[Way], bool]) -> tuple[list[Way], bool]:
    """Return the smallest sets that suffice, and whether there are more of them.

    Each set that all known ways have a part of is either a conflict, or the rest of the conditions has one more way in
    it ("dualize and advance", D. Gunopulos et al., 1997). All conditions together suffice: nothing is asked then.
    """
    ways = [_shrunk(others, suffices)]
    while len(ways) < _MOST_WAYS:
        hitting, are_some_only = smallest_hitting_sets(ways, others)
        # Where the host meets such a set, the others hold a way.
        missed = next((each for each in hitting if suffices(frozenset(others) - each)), None)
        if missed is None:
            return ways, are_some_only
        ways.append(_shrunk([item for item in others if item not in missed], suffices))
    return ways, True


def _shrunk(items: Sequence[Condition], suffices: Callable[[Way], bool]) -> Way:
    """Return a part of a set that suffices, of which no part suffices."""
    left = frozenset(items)
    for item in items:
        if suffices(left - {item}):
            left -= {item}
    return left


def smallest_hitting_sets(ways: Collection[Way], conditions: Sequence[Condition]) -> tuple[list[Way], bool]:
    """Return the sets that have a part of each way and of which no part has, those of fewest conditions first.

    The second value says whether there are more: at most 200 are returned.
    """
    if frozenset() in ways:
        return [], False
    number = {item: index for index, item in enumerate(conditions)}
    to_hit = sorted({sum(1 << number[item] for item in way) for way in ways}, key=int.bit_count)
    found: list[int] = []
    for size in range(len(conditions) + 1):
        search = _HittingSets(to_hit, found, size)
        found += search.found()
        there_are_more = search.gave_up or search.has_larger
        if not there_are_more or search.gave_up or len(found) >= _MOST_CONFLICTS:
            break
    sets = [frozenset(item for item in conditions if each >> number[item] & 1) for each in found[:_MOST_CONFLICTS]]
    return sets, there_are_more or len(found) > _MOST_CONFLICTS


class _HittingSets:
    """Looks for the hitting sets of one size that contain none of the smaller ones; sets are ints, item n is bit n."""

    def __init__(self, ways: Sequence[int], smaller: Sequence[int], size: int) -> None:
        self._ways = ways
        self._smaller = smaller
        self._size = size
        self._steps = 0
        self.has_larger = False
        self.gave_up = False

    def found(self) -> list[int]:
        return list(self._extended(0, 0, self._size))

    def _extended(self, chosen: int, excluded: int, left: int) -> Iterator[int]:
        self._steps += 1
        if self._steps > _MOST_STEPS:
            self.gave_up = True
        if self.gave_up or any(each & chosen == each for each in self._smaller):
            return
        way = next((each for each in self._ways if not each & chosen), 0)
        if not way:
            if not left:
                yield chosen
            return
        if not left:
            self.has_larger = True
            return
        rest = way & ~excluded
        while rest:
            item = rest & -rest
            rest ^= item
            yield from self._extended(chosen | item, excluded, left - 1)
            # Sets with it have been seen.
            excluded |= item


def _smallest(sets: Iterable[Way]) -> list[Way]:
    """Return those sets that contain no other one, smallest first."""
    found: list[Way] = []
    for each in sorted(set(sets), key=len):
        if not any(other <= each for other in found):
            found.append(each)
    return found


class _Look:
    """What of a host matters to a demand; hosts that look alike lack the same."""

    def __init__(self, demand: Demand, *, ignore_usage: bool) -> None:
        self._ignore_usage = ignore_usage
        conditions = demand.conditions()
        names = {name for item in conditions if item.kind != RESOURCE for name in item.names}
        self._traits = self._aggregates = frozenset(names)
        self._trees = {group.in_tree for group in demand.groups.values()} - {None}
        amounts: dict[str, list[int]] = {}
        for item in conditions:
            if item.kind == RESOURCE:
                amounts.setdefault(item.names[0], []).append(item.amount)
        self._amounts = amounts

    def at(self, host: Host) -> object:
        """Return something that is equal for hosts that look alike."""
        if len(host.own) == 1 and not host.shared:
            return self._of(host.root)
        number = {provider.uuid: index for index, provider in enumerate((*host.own, *host.shared))}
        return (
            tuple((self._of(each), number.get(host.parents.get(each.uuid) or "")) for each in host.own),
            tuple((self._of(each), number.get(host.parents.get(each.uuid) or "")) for each in host.shared),
        )

    def _of(self, provider: Provider) -> object:
        return (
            provider.traits & self._traits,
            self._aggregates.intersection(provider.aggregates),
            provider.uuid if provider.uuid in self._trees else "",
            tuple(
                self._amount(name, inventory) for name, inventory in provider.resources.items() if name in self._amounts
            ),
        )

    def _amount(self, name: str, inventory: Inventory) -> object:
        amounts = self._amounts[name]
        if len(amounts) == 1:
            return name, fits(inventory, amounts[0], ignore_usage=self._ignore_usage)
        return name, inventory
