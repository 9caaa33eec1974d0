# SPDX-License-Identifier: Apache-2.0

"""Search for the smallest sets of unmet conditions.

And for the smallest sets to drop so that the rest is met.

The sets of one sort are the minimal hitting sets of the other (R. Reiter, "A
theory of diagnosis from first principles", 1987). One search finds both: a set
that hits all known sets to drop is either not met, or there is one more to
drop with it ("dualize and advance", D. Gunopulos et al., 1997).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from os_prefilter.common.host_sets import size_of

_T = TypeVar("_T")

_MOST = 200
_MOST_HITTING = 1_000
_MOST_COMPARED = 5_000_000
"""Comparisons of two sets: they take a few seconds."""


@dataclass(frozen=True)
class SmallestSets(Generic[_T]):
    """The result of a search.

    In each list, sets of fewer conditions, and then of earlier ones, come
    first.
    """

    unmet: list[frozenset[_T]]
    """Sets that are not met, while each part of them is."""
    to_drop: list[frozenset[_T]]
    """Minimal sets without which the rest is met."""
    are_all: bool


def smallest_sets(
    conditions: Sequence[_T],
    is_met: Callable[[frozenset[_T]], bool],
    *,
    together: Callable[[_T], object] = lambda _condition: None,
    most_compared: int = _MOST_COMPARED,
    is_spent: Callable[[], bool] = lambda: False,
) -> SmallestSets[_T]:
    """Return the smallest unmet sets, and those to drop; at most 200 of each.

    :param is_met: whether the conditions of a set are met together; then each
        part of it is, and no condition is
    :param together: a key that is equal for conditions which are likely to be
        in a set to drop together, or not at all
    :param is_spent: whether to end the search early
    """
    everything = (1 << len(conditions)) - 1
    parts: dict[object, int] = {}
    for number, each in enumerate(conditions):
        parts[together(each)] = parts.get(together(each), 0) | 1 << number

    def named(bits: int) -> frozenset[_T]:
        return frozenset(
            conditions[bit.bit_length() - 1] for bit in _bits(bits)
        )

    def smallest_to_drop(bits: int) -> int:
        for part in (*parts.values(), *_bits(everything)):
            if part & bits and is_met(named(everything & ~bits | part)):
                bits &= ~part
        return bits

    if is_met(frozenset(conditions)):
        return SmallestSets([], [frozenset()], True)
    to_drop = [smallest_to_drop(everything)]
    unmet: list[int] = []
    compared = 0
    are_all = True
    hitting = list(_bits(to_drop[0]))
    while left := [each for each in hitting if each not in unmet]:
        if (
            max(len(to_drop), len(unmet)) >= _MOST
            or compared > most_compared
            or is_spent()
        ):
            are_all = False
            break
        smallest = min(left, key=_by_size)
        if not is_met(named(smallest)):
            unmet.append(smallest)
            continue
        to_drop.append(smallest_to_drop(everything & ~smallest))
        compared += len(hitting) ** 2
        hitting = sorted(_extend(hitting, to_drop[-1]), key=_by_size)
        are_all &= len(hitting) <= _MOST_HITTING
        del hitting[_MOST_HITTING:]
    # After a cut, a set may contain one that was cut.
    found = [each for each in unmet if _is_minimal(each, to_drop)]
    to_drop.sort(key=_by_size)
    return SmallestSets(
        list(map(named, found)), list(map(named, to_drop)), are_all
    )


def one_unmet(
    conditions: Sequence[_T],
    is_met: Callable[[frozenset[_T]], bool],
    is_spent: Callable[[], bool] = lambda: False,
) -> frozenset[_T]:
    """Return a minimal unmet set, by leaving out the last conditions first.

    It may not be minimal if the search ends early.
    """
    unmet = frozenset(conditions)
    for each in reversed(conditions):
        if not is_spent() and not is_met(unmet - {each}):
            unmet -= {each}
    return unmet


def _extend(hitting: list[int], dropped: int) -> list[int]:
    """Return the minimal sets that hit one more set.

    C. Berge, "Hypergraphs", 1989
    """
    kept = [each for each in hitting if each & dropped]
    longer = {
        each | bit
        for each in hitting
        if not each & dropped
        for bit in _bits(dropped)
    }

    def is_minimal(each: int) -> bool:
        return not any(other & each == other for other in kept)

    return kept + list(filter(is_minimal, longer))


def _is_minimal(unmet: int, to_drop: Iterable[int]) -> bool:
    """Return whether each member alone hits some set to drop."""
    common = {unmet & dropped for dropped in to_drop}
    return common.issuperset(_bits(unmet))


def _bits(number: int) -> Iterator[int]:
    while number:
        bit = number & -number
        number ^= bit
        yield bit


def _by_size(bits: int) -> tuple[int, int]:
    return size_of(bits), bits
