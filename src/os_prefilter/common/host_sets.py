"""Sets of hosts: an ``int`` in which host n is bit n."""

from collections.abc import Iterable, Mapping
from itertools import combinations
from math import comb
from typing import TypeVar

_K = TypeVar("_K")

_BITS = range(8)
# There are some ten conditions of one request.
_MOST_COMBINATIONS = 5_000


def numbers_in(hosts: int) -> list[int]:
    """Return the numbers of a set of hosts, in the order of the fleet."""
    # Byte by byte: to take one bit after the other out of a long integer would copy it each time.
    octets = hosts.to_bytes((hosts.bit_length() + 7) // 8, "little")
    return [start * 8 + bit for start, octet in enumerate(octets) if octet for bit in _BITS if octet >> bit & 1]


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
    hosts = 0
    for each in sets:
        hosts |= each
    return hosts


def intersection(sets: Iterable[int]) -> int:
    """Return the hosts that are in each of the sets; of no set, -1: all hosts."""
    hosts = -1
    for each in sets:
        hosts &= each
        if not hosts:
            break
    return hosts


def smallest_disjoint(sets: Mapping[_K, int], rather_not: Iterable[_K] = ()) -> tuple[_K, ...]:
    """Return the keys of a smallest selection of sets that have no host in common; none if all together have one.

    Where there are too many selections to try all, it is one of which none can be left out.

    :param rather_not: keys to leave out before others, where that is possible
    """
    if intersection(sets.values()):
        return ()
    needed = list(sets)
    for key in dict.fromkeys((*rather_not, *sets)):
        rest = [each for each in needed if each != key]
        if rest and not intersection(sets[each] for each in rest):
            needed = rest
    for size in range(1, len(needed)):
        if comb(len(sets), size) > _MOST_COMBINATIONS:
            break
        for some in combinations(sets, size):
            if not intersection(sets[each] for each in some):
                return some
    return tuple(needed)
