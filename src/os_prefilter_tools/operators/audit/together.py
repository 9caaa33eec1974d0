"""How many servers find destinations at the same time: each alone may fit where all together do not.

A server with at least as many destinations as there are servers always finds a host that none of the others is on. The
rest are placed one after the other, each on the fullest host that has room beside those placed before, in several
orders, of which the best counts; a few are searched through for more. The order in which servers are given is ignored.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate, chain, islice
from typing import NamedTuple, TypeAlias

from os_prefilter.common.host_sets import numbers_in, union
from os_prefilter_tools.fleet.demand import RESOURCE, Condition, Demand
from os_prefilter_tools.fleet.host_index import HostIndex
from os_prefilter_tools.fleet.matching import Host, allocate, capacity_of, room_in
from os_prefilter_tools.fleet.model import Provider

Allocation: TypeAlias = Mapping[str, Mapping[str, int]]
"""UUID of a provider -> resource class -> amount."""

MOST_SEARCHED = 12
"""The most servers that are searched through."""
_MOST_STEPS, _MOST_STEPS_IN_ALL = 10_000, 200_000
"""Of one search, about a tenth of a second, and of all searches of an audit."""
_MOST_TRIED = 200
"""The most hosts with servers, and the most without, that are tried for one server."""

_Place: TypeAlias = tuple[str, str]
"""UUID of a provider, and one of its resource classes."""


class Placed(NamedTuple):
    """The servers that find a destination at the same time."""

    allocations: Sequence[Allocation]
    is_most: bool
    """Whether it is known that no more of them do."""


class _Server(NamedTuple):
    demand: Demand
    hosts: int
    """The set of its destinations."""
    choices: int
    """Their number."""
    size: float
    """The sum of its shares of what the largest host has of each resource class."""
    key: tuple[Condition, ...]


_ORDERS: tuple[Callable[[_Server], tuple[object, ...]], ...] = (
    lambda each: (each.choices, -each.size, each.key, each.hosts),
    lambda each: (-each.size, each.choices, each.key, each.hosts),
    lambda each: (each.size, each.choices, each.key, each.hosts),
)
"""The first places all of those that always find a host."""


class Together:
    """Places servers on the hosts of an index."""

    def __init__(self, index: HostIndex) -> None:
        self.index = index
        self._steps = _MOST_STEPS_IN_ALL

    def place(self, servers: Iterable[tuple[Demand, int]], gone: int | None = None) -> Placed:
        """Return the allocations of the servers that find a destination at the same time.

        :param servers: the demand of each, and the set of its destinations
        :param gone: the number of a host whose shared providers are gone
        """
        possible = [self._server(demand, hosts) for demand, hosts in servers if hosts]
        competing, before = possible, -1
        # What is taken from a shared provider counts for each host that uses it.
        while len(competing) != before and not self.index.has_shared:
            before = len(competing)
            competing = [each for each in competing if each.choices < before]
        best, is_most = self._place_competing(competing, gone)
        best.put_all(sorted((each for each in possible if each.choices >= before >= 0), key=_ORDERS[0]))
        return Placed(best.allocations, is_most)

    def _place_competing(self, servers: Sequence[_Server], gone: int | None) -> "tuple[_Filling, bool]":
        best = _Filling(self, gone)
        for order in _ORDERS:
            if len(best.allocations) < len(servers):
                found = _Filling(self, gone)
                found.put_all(sorted(servers, key=order))
                best = max(best, found, key=lambda each: len(each.allocations))
        if len(best.allocations) == len(servers):
            return best, True
        if len(servers) > MOST_SEARCHED or not self._steps:
            return best, False
        search = _Search(self.index, gone, sorted(servers, key=_ORDERS[0]), len(best.allocations))
        is_most = search.run(min(self._steps, _MOST_STEPS))
        self._steps = max(self._steps - search.steps, 0)
        if search.choice:
            best = _Filling(self, gone)
            for server, number in search.choice:
                best.put(server.demand, number)
        return best, is_most

    def _server(self, demand: Demand, hosts: int) -> _Server:
        key = demand.conditions()
        size = sum(item.amount / self.largest.get(item.names[0], 1) for item in key if item.kind == RESOURCE)
        return _Server(demand, hosts, hosts.bit_count(), size, key)

    def fullest_first(self, hosts: int) -> Iterator[int]:
        """Yield the numbers of hosts, those with the least room first, whatever is taken."""
        order, ranks = self._by_room
        if hosts.bit_count() * 32 < len(order):
            yield from sorted(numbers_in(hosts), key=ranks.__getitem__)
        else:
            yield from (number for number in order if hosts >> number & 1)

    def room_on(self, host: Host, taken: Allocation) -> float:
        """Return how much is left on a host: the sum of the shares of what the largest host has of each class."""
        return sum(
            (room_in(each) - taken.get(provider.uuid, {}).get(name, 0)) / self.largest[name]
            for provider in host.own
            for name, each in sorted(provider.resources.items())
        )

    @cached_property
    def largest(self) -> Mapping[str, int]:
        """The largest capacity of each resource class that a provider has."""
        found: dict[str, int] = {}
        for host in self.index.hosts:
            for provider in (*host.own, *host.shared):
                for name, each in provider.resources.items():
                    found[name] = max(found.get(name, 1), capacity_of(each))
        return found

    @cached_property
    def _by_room(self) -> tuple[list[int], list[int]]:
        """The numbers of all hosts, those with the least room first, and the rank of each number."""
        hosts = self.index.hosts
        order = sorted(range(len(hosts)), key=lambda number: (self.room_on(hosts[number], {}), hosts[number].name))
        ranks = [0] * len(order)
        for rank, number in enumerate(order):
            ranks[number] = rank
        return order, ranks


class _Filling:
    """What servers take from hosts, one server after the other."""

    def __init__(self, together: Together, gone: int | None) -> None:
        self.allocations: list[Allocation] = []
        self._together = together
        self._gone = gone
        self._taken: dict[str, dict[str, int]] = {}
        self._room: dict[int, float] = {}
        """The number of a host with servers -> its room."""
        self._used = 0
        self._full: dict[tuple[Condition, ...], int] = {}
        """The conditions of a demand -> the hosts that have no room left for it."""

    def put_all(self, servers: Iterable[_Server]) -> None:
        """Put each server on the fullest host that has room for it, if there is one."""
        every = self._together.index.hosts
        for server in servers:
            hosts = server.hosts & ~self._full.get(server.key, 0)
            used = sorted(numbers_in(hosts & self._used), key=lambda number: (self._room[number], every[number].name))
            unused = islice(self._together.fullest_first(hosts & ~self._used), _MOST_TRIED)
            for number in chain(used[:_MOST_TRIED], unused):
                if self.put(server.demand, number):
                    break
                self._full[server.key] = self._full.get(server.key, 0) | 1 << number

    def put(self, demand: Demand, number: int) -> bool:
        """Put a server on a host; return whether there is room."""
        host = self._together.index.host_without(number, self._gone)
        if not self._may_fit(host, demand):
            return False
        found = allocate(_as_used(host, self._taken), demand)
        if found is None:
            return False
        for uuid, resources in found.items():
            of_provider = self._taken.setdefault(uuid, {})
            for name, amount in resources.items():
                of_provider[name] = of_provider.get(name, 0) + amount
        self._room[number] = self._together.room_on(host, self._taken)
        self._used |= 1 << number
        self.allocations.append(found)
        return True

    def _may_fit(self, host: Host, demand: Demand) -> bool:
        """Whether some provider has each resource, which is quick to see."""
        providers = (*host.own, *host.shared)
        return all(
            any(
                name in each.resources
                and amount <= room_in(each.resources[name]) - self._taken.get(each.uuid, {}).get(name, 0)
                for each in providers
            )
            for group in demand.groups.values()
            for name, amount in group.resources.items()
        )


class _Search:
    """Searches for more servers that fit together than were found, where each has one way to be on a host.

    :param servers: those that are alike side by side
    """

    def __init__(self, index: HostIndex, gone: int | None, servers: Sequence[_Server], found: int) -> None:
        self.steps = 0
        self.choice: list[tuple[_Server, int]] = []
        """More servers that fit together than were found, with the numbers of their hosts; none without more."""
        self._best = found
        self._servers = servers
        alike = [(each.key, each.hosts) for each in servers]
        self._following = [len(alike) - alike[::-1].index(each) for each in alike]
        """Of each server: the place of the next one that is not like it."""
        self._chosen: list[tuple[_Server, int]] = []
        self._left: dict[_Place, int] = {}
        """What is left of each resource."""
        self._amounts = [_amounts_of(each.demand) for each in servers]
        self._ways: list[dict[int, dict[_Place, int]]] = [{} for _ in servers]
        """Of each server: the number of a host -> what it takes there."""
        self._places: dict[int, tuple[_Place, ...]] = {}
        self._members: dict[int, object] = {}
        """The number of a host -> what is equal for hosts that are destinations of the same servers."""
        self._has_one_way = all(amounts is not None for amounts in self._amounts)
        for number in numbers_in(union(each.hosts for each in servers)):
            self._add_host(number, index.host_without(number, gone), is_unlike=index.has_shared)
        self._totals = Counter[str]()
        for (_, name), room in self._left.items():
            self._totals[name] += room
        classes = {name for amounts in self._amounts for name in amounts or ()}
        self._smallest = [
            {
                name: list(accumulate(sorted((amounts or {}).get(name, 0) for amounts in self._amounts[at:])))
                for name in classes
            }
            for at in range(len(servers))
        ]
        """Of the servers from each on: what the smallest one, the two smallest and so on need together."""

    def _add_host(self, number: int, host: Host, *, is_unlike: bool) -> None:
        classes = sorted({name for amounts in self._amounts for name in amounts or ()})
        places: dict[str, _Place] = {}
        for provider in (*host.own, *host.shared):
            for name in provider.resources.keys() & classes:
                self._has_one_way &= name not in places
                places[name] = provider.uuid, name
                self._left[places[name]] = room_in(provider.resources[name])
        self._places[number] = tuple(places[name] for name in classes if name in places)
        able = [bool(server.hosts >> number & 1) for server in self._servers]
        self._members[number] = (able, number if is_unlike else None, sorted(places))
        for ways, amounts, is_able in zip(self._ways, self._amounts, able, strict=True):
            if is_able and self._has_one_way:
                ways[number] = {places[name]: amount for name, amount in (amounts or {}).items()}

    def run(self, most_steps: int) -> bool:
        """Search, and return whether all selections were searched."""
        if not self._has_one_way:
            return False
        self._most_steps = most_steps
        self._search(0, -1)
        return self.steps <= most_steps

    def _search(self, at: int, first: int) -> None:
        """Search through the servers from ``at`` on; the next one, if it is like the one before, from a host on."""
        self.steps += 1
        if len(self._chosen) > self._best:
            self._best, self.choice = len(self._chosen), list(self._chosen)
        if self.steps > self._most_steps or len(self._chosen) + self._most_from(at) <= self._best:
            return
        server = self._servers[at]
        seen: list[object] = []
        for number, needs in self._ways[at].items():
            state = [self._left[place] for place in self._places[number]], self._members[number]
            if number < first or state in seen or any(amount > self._left[place] for place, amount in needs.items()):
                continue
            seen.append(state)
            self._take(needs, 1)
            self._chosen.append((server, number))
            self._search(at + 1, number if self._following[at] > at + 1 else -1)
            self._chosen.pop()
            self._take(needs, -1)
        # Of servers that are alike, it is the last ones that are left out.
        self._search(self._following[at], -1)

    def _take(self, needs: Mapping[_Place, int], sign: int) -> None:
        for place, amount in needs.items():
            self._left[place] -= sign * amount
            self._totals[place[1]] -= sign * amount

    def _most_from(self, at: int) -> int:
        """Return a number that no selection of the servers from ``at`` on exceeds."""
        if at == len(self._servers):
            return 0
        return min(
            (bisect_right(sums, self._totals[name]) for name, sums in self._smallest[at].items()),
            default=len(self._servers) - at,
        )


def _amounts_of(demand: Demand) -> Mapping[str, int] | None:
    """Return how much a demand takes of each resource class; None if it has a choice."""
    amounts = Counter[str]()
    for suffixes, group in demand.groups.items():
        if group.dropped:
            return None
        for name, amount in group.resources.items():
            amounts[name] += amount * len(suffixes.split(","))
    return amounts


def _as_used(host: Host, taken: Allocation) -> Host:
    """Return a host with what is taken from its providers."""
    if not any(each.uuid in taken for each in (*host.own, *host.shared)):
        return host

    def used(provider: Provider) -> Provider:
        more = taken.get(provider.uuid)
        if not more:
            return provider
        resources = {
            name: replace(each, used=each.used + more.get(name, 0)) for name, each in provider.resources.items()
        }
        return replace(provider, resources=resources)

    own = tuple(map(used, host.own))
    return Host(own[0], own, tuple(map(used, host.shared)), host.parents)
