"""How many servers find destinations at the same time: each alone may fit where all together do not.

The servers are placed one after the other, those with the fewest destinations first, each on the first host that is
still untouched, or else on the first one that has room beside those placed before. Who is placed did fit; who is not
might, in another order.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias

from os_prefilter.common.host_sets import numbers_in
from os_prefilter.fleet.matching import Host, allocate
from os_prefilter.fleet.model import Provider
from os_prefilter.fleet.room_index import RoomIndex
from os_prefilter.request.demand import Demand

Allocation: TypeAlias = Mapping[str, Mapping[str, int]]
"""UUID of a provider -> resource class -> amount."""

_MOST_TRIED = 200
"""The most touched hosts that are tried for one server."""


class Together:
    """Places servers on the hosts of an index."""

    def __init__(self, index: RoomIndex) -> None:
        self._index = index

    def place(self, servers: Iterable[tuple[Demand, int]], gone: int | None = None) -> list[Allocation]:
        """Return the allocations of the servers that find a destination at the same time.

        :param servers: the demand of each, and the set of its destinations
        :param gone: the number of a host whose shared providers are gone
        """
        taken: dict[str, dict[str, int]] = {}
        touched = 0
        placed: list[Allocation] = []
        for demand, hosts in sorted(servers, key=lambda each: each[1].bit_count()):
            untouched = hosts & ~touched
            tried = numbers_in(untouched & -untouched) + numbers_in(hosts & touched)[:_MOST_TRIED]
            for number in tried:
                found = allocate(_as_used(self._index.host_without(number, gone), taken), demand)
                if found is not None:
                    _add(taken, found)
                    # What is taken from a shared provider counts for each host that uses it.
                    touched |= self._index.using(found)
                    placed.append(found)
                    break
        return placed


def _add(taken: dict[str, dict[str, int]], found: Allocation) -> None:
    for uuid, resources in found.items():
        of_provider = taken.setdefault(uuid, {})
        for name, amount in resources.items():
            of_provider[name] = of_provider.get(name, 0) + amount


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
