"""Sets of hosts: an ``int`` in which host n is bit n."""

from collections.abc import Iterable

_BITS = range(8)


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
