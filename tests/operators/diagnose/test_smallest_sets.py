# SPDX-License-Identifier: Apache-2.0

"""Smallest sets that are not met, compared with a search of all sets."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from os_prefilter_tools.operators.diagnose.smallest_sets import smallest_sets


@given(st.lists(st.frozensets(st.integers(0, 5)), min_size=1, max_size=8))
def test_smallest_sets_are_all_that_are_not_met_and_all_to_drop(
    hosts: list[frozenset[int]],
) -> None:
    """Each host fails the conditions of one set."""
    every = [
        frozenset(some)
        for size in range(7)
        for some in combinations(range(6), size)
    ]

    def is_met(kept: frozenset[int]) -> bool:
        return any(kept.isdisjoint(fails) for fails in hosts)

    found = smallest_sets(range(6), is_met)
    unmet = _minimal(kept for kept in every if not is_met(kept))
    assert set(found.unmet) == unmet
    assert set(found.to_drop) == _minimal(hosts)
    assert found.unmet == sorted(found.unmet, key=_smallest_first)
    assert found.to_drop == sorted(found.to_drop, key=_smallest_first)
    assert found.are_all


def _smallest_first(each: frozenset[int]) -> tuple[int, list[int]]:
    return len(each), sorted(each, reverse=True)


def _minimal(sets: Iterable[frozenset[int]]) -> set[frozenset[int]]:
    every = set(sets)
    return {each for each in every if not any(other < each for other in every)}


@pytest.mark.parametrize(
    ("most_compared", "unmet"),
    [(5_000_000, 200), (10, 0)],
    ids=["too many sets", "too many comparisons"],
)
def test_search_that_is_cut_off_says_so_and_its_sets_are_true(
    most_compared: int, unmet: int
) -> None:
    """Each of 12 hosts fails two conditions of its own: there are 4,096
    sets.
    """
    pairs = [frozenset((number, number + 1)) for number in range(0, 24, 2)]
    found = smallest_sets(
        range(24),
        lambda kept: any(kept.isdisjoint(pair) for pair in pairs),
        most_compared=most_compared,
    )
    assert len(found.unmet) == unmet
    assert not found.are_all
    for each in found.unmet:
        assert len(each) == 12
        assert all(each & pair for pair in pairs)
