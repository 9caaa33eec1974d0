# SPDX-License-Identifier: Apache-2.0

"""Sets of hosts: an ``int`` in which host n is bit n."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from functools import reduce
from itertools import chain, combinations, islice
from operator import and_, or_
from typing import TypeVar

_K = TypeVar("_K")

_BITS = range(8)
# The scheduler waits for this search.
_MOST_TRIED = 20_000


if sys.version_info >= (3, 10):
    size_of = int.bit_count
else:

    def size_of(hosts: int) -> int:
        """Return how many hosts are in the set."""
        return bin(hosts).count("1")


def numbers_in(hosts: int) -> list[int]:
    """Return the numbers of a set of hosts, in the order of the fleet."""
    # Byte by byte: to take one bit after the other out of a long integer would
    # copy it each time.
    octets = hosts.to_bytes((hosts.bit_length() + 7) // 8, "little")
    return [
        start * 8 + bit
        for start, octet in enumerate(octets)
        if octet
        for bit in _BITS
        if octet >> bit & 1
    ]


def set_of(numbers: Iterable[int]) -> int:
    """Return the set of the hosts with these numbers."""
    octets = bytearray()
    for number in numbers:
        place, bit = divmod(number, 8)
        if place >= len(octets):
            octets.extend(bytes(place + 1 - len(octets)))
        octets[place] |= 1 << bit
    return int.from_bytes(octets, "little")


def union(sets: Iterable[int]) -> int:
    """Return the hosts that are in any of the sets."""
    return reduce(or_, sets, 0)


def intersection(sets: Iterable[int]) -> int:
    """Return the hosts in each of the sets; of no set, -1: all hosts."""
    return reduce(and_, sets, -1)


def smallest_disjoint(
    sets: Mapping[_K, int], rather_not: Iterable[_K] = ()
) -> tuple[_K, ...]:
    """Return the keys of a smallest selection of sets without a common host.

    None if all together have one.

    Where there are too many selections to try all, it is one of which none can
    be left out.

    :param rather_not: keys to leave out before others, the first of them
        first, where that is possible
    """
    last = list(dict.fromkeys(rather_not))
    keys = [*(key for key in sets if key not in last), *reversed(last)]

    if intersection(sets.values()):
        return ()
    some = chain.from_iterable(
        combinations(keys, size) for size in range(1, len(keys))
    )
    chosen = tuple(keys)
    for each in islice(some, _MOST_TRIED):
        if not intersection(sets[key] for key in each):
            chosen = each
            break
    for key in reversed(chosen):
        fewer = tuple(each for each in chosen if each != key)
        chosen = (
            chosen if intersection(sets[each] for each in fewer) else fewer
        )
    return tuple(key for key in sets if key in chosen)
