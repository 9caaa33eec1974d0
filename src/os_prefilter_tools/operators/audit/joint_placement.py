# SPDX-License-Identifier: Apache-2.0

"""Joint placement: how many servers find hosts at the same time.

Each alone may fit, but not all together.

The servers are placed one after the other, each on the fullest host that still
has capacity, in several orders, of which the best counts.
The order in which servers are given is ignored. Members of an anti-affinity
group are not placed on one host, beyond the number that the group allows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain, islice
from typing import NamedTuple

from os_prefilter.common.host_sets import numbers_in, size_of
from os_prefilter_tools.fleet.demand import RESOURCE, Condition, Demand
from os_prefilter_tools.fleet.host_index import HostIndex
from os_prefilter_tools.fleet.matching import (
    Host,
    allocate,
    capacity_of,
    free_in,
)
from os_prefilter_tools.fleet.model import Provider
from os_prefilter_tools.fleet.server import ANTI_AFFINITY, ServerGroup

Allocation = Mapping[str, Mapping[str, int]]
"""UUID of a provider -> resource class -> amount."""
_MOST_TRIED = 200
"""The most hosts with servers, and without, tried for one server."""
_TRIES = 4
"""Tries in each order; what one leaves out is placed first in the next."""
_MOST_RETRIED = 5_000
"""The most servers in such further tries, of an audit."""


class Moving(NamedTuple):
    """A server that needs a place."""

    demand: Demand
    hosts: int
    """The set of its destinations."""
    group: ServerGroup | None = None
    number: int = 0
    """What the caller knows it by."""


Placed = Sequence[tuple[Moving, Allocation]]


class _Server(NamedTuple):
    moving: Moving
    """Without a group, unless members exclude each other from hosts."""
    key: tuple[Condition, ...]
    """The conditions of its demand."""
    choices: int
    """How many destinations it has."""
    size: float
    """The sum of its shares of the largest host, over resource classes."""
    rest: tuple[object, ...]
    """What else distinguishes servers: no order depends on the given one."""


_ORDERS: tuple[Callable[[_Server], tuple[object, ...]], ...] = (
    lambda each: (each.choices, -each.size, each.rest),
    lambda each: (-each.size, each.choices, each.rest),
    lambda each: (each.size, each.choices, each.rest),
)
"""Orders to place servers in; the best result counts.

In the first one, a server with at least as many destinations as there are
servers before it always finds a host.
"""


class JointPlacement:
    """Places servers on the hosts of an index."""

    def __init__(self, index: HostIndex) -> None:
        self.index = index
        self._retried = 0

    def place(
        self, servers: Iterable[Moving], gone: int | None = None
    ) -> Placed:
        """Return servers that find hosts at the same time, with allocations.

        Perhaps not of the most that do.

        :param gone: the number of a host whose shared providers are gone
        """
        possible = [self._measure(each) for each in servers if each.hosts]
        best: Placed = ()
        for order in _ORDERS:
            ordered = sorted(possible, key=order)
            for _ in range(_TRIES):
                filling = _Filling(self, gone)
                placed, left_out = list[_Server](), list[_Server]()
                for each in ordered:
                    (placed if filling.put(each) else left_out).append(each)
                best = max(best, filling.placed, key=len)
                if not left_out:
                    return best
                ordered = [*left_out, *placed]
                self._retried += len(ordered)
                if self._retried > _MOST_RETRIED:
                    break
        return best

    def _measure(self, moving: Moving) -> _Server:
        group_id = ""
        if moving.group and moving.group.policy == ANTI_AFFINITY:
            group_id = moving.group.uuid
        else:
            # The destinations of an affinity group are its hosts, in whatever
            # order its members move.
            moving = moving._replace(group=None)
        key = moving.demand.conditions()
        size = sum(
            item.amount / self.largest.get(item.names[0], 1)
            for item in key
            if item.kind == RESOURCE
        )
        rest = key, moving.hosts, group_id
        return _Server(moving, key, size_of(moving.hosts), size, rest)

    def fullest_first(self, hosts: int) -> Iterator[int]:
        """Yield the numbers of hosts, the fullest first."""
        # Sorting many of them for each server would take longer than a look at
        # all.
        if size_of(hosts) * 32 < len(self._ranks):
            yield from sorted(numbers_in(hosts), key=self._ranks.__getitem__)
        else:
            yield from (
                number for number in self._ranks if hosts >> number & 1
            )

    def free_share_on(self, host: Host, taken: Allocation) -> float:
        """Return how much is free on a host.

        The sum of the shares of what the largest host has of each class.
        """
        return sum(
            (free_in(each) - taken.get(provider.uuid, {}).get(name, 0))
            / self.largest[name]
            for provider in host.own
            for name, each in sorted(provider.resources.items())
        )

    @cached_property
    def largest(self) -> Mapping[str, int]:
        """The largest capacity of each resource class that a provider has."""
        found: dict[str, int] = {}
        for host in self.index.hosts:
            for provider in host.providers:
                for name, each in provider.resources.items():
                    found[name] = max(found.get(name, 1), capacity_of(each))
        return found

    @cached_property
    def _ranks(self) -> Mapping[int, int]:
        """The number of each host -> its rank in order, the fullest first."""
        hosts = self.index.hosts
        shares = (
            (self.free_share_on(host, {}), host.name, number)
            for number, host in enumerate(hosts)
        )
        ranked = enumerate(sorted(shares))
        return {number: rank for rank, (_, _, number) in ranked}


class _Filling:
    """Resources that servers take from hosts, one server after the other."""

    def __init__(self, together: JointPlacement, gone: int | None) -> None:
        self.placed: list[tuple[Moving, Allocation]] = []
        self._together = together
        self._gone = gone
        self._taken: dict[str, dict[str, int]] = {}
        self._used = 0
        self._free_shares: dict[int, float] = {}
        """The number of a host with servers -> its free share."""
        self._full: dict[tuple[Condition, ...], int] = {}
        """Conditions of a demand -> the hosts that are too full for it."""
        self._members: dict[ServerGroup, Counter[int]] = {}
        """A group -> the number of its members on each host.

        Those placed here count.
        """

    def put(self, server: _Server) -> bool:
        """Put a server on the fullest host with capacity, if there is one."""
        index = self._together.index
        demand, hosts, group, _ = server.moving
        hosts &= ~self._full.get(server.key, 0)
        if group:
            hosts &= ~group.closed_hosts(self._members_of(group))
        used = sorted(
            numbers_in(hosts & self._used),
            key=lambda each: (self._free_shares[each], index.hosts[each].name),
        )
        unused = self._together.fullest_first(hosts & ~self._used)
        for number in chain(used[:_MOST_TRIED], islice(unused, _MOST_TRIED)):
            host = index.host_without(number, self._gone)
            found = None
            if self._may_fit(host, demand):
                found = allocate(_as_used(host, self._taken), demand)
            if found is None:
                full = self._full.get(server.key, 0)
                self._full[server.key] = full | 1 << number
                continue
            for uuid, resources in found.items():
                self._taken.setdefault(uuid, Counter()).update(resources)
            self._used |= 1 << number
            share = self._together.free_share_on(host, self._taken)
            self._free_shares[number] = share
            if group:
                self._members_of(group)[number] += 1
            self.placed.append((server.moving, found))
            return True
        return False

    def _members_of(self, group: ServerGroup) -> Counter[int]:
        if group not in self._members:
            numbers = self._together.index.numbers
            self._members[group] = group.members_on(numbers)
        return self._members[group]

    def _may_fit(self, host: Host, demand: Demand) -> bool:
        """Return whether some provider has each resource free.

        If none has, this is 25 times faster than the matcher.
        """
        return all(
            any(self._has(each, name, amount) for each in host.providers)
            for group in demand.groups.values()
            for name, amount in group.resources.items()
        )

    def _has(self, provider: Provider, name: str, amount: int) -> bool:
        if name not in provider.resources:
            return False
        taken = self._taken.get(provider.uuid, {}).get(name, 0)
        return amount <= free_in(provider.resources[name]) - taken


def _as_used(host: Host, taken: Allocation) -> Host:
    """Return a host with what is taken from its providers."""
    if not any(each.uuid in taken for each in host.providers):
        return host

    def used(provider: Provider) -> Provider:
        more = taken.get(provider.uuid, {})
        resources = {
            name: replace(each, used=each.used + more.get(name, 0))
            for name, each in provider.resources.items()
        }
        return replace(provider, resources=resources)

    return host.changed(used)
