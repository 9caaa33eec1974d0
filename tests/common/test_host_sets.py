# SPDX-License-Identifier: Apache-2.0

"""The smallest sets that have nothing in common, beside a search through all
of them.
"""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from os_prefilter.common.host_sets import intersection, smallest_disjoint

_SETS = st.lists(st.integers(0, 63), min_size=1, max_size=6).map(
    lambda sets: dict(enumerate(sets))
)


@given(_SETS, st.permutations(range(6)))
def test_smallest_disjoint_selection_is_as_small_as_any(
    sets: dict[int, int], order: list[int]
) -> None:
    found = smallest_disjoint(sets, [key for key in order if key in sets])
    disjoint = [
        len(some)
        for size in range(1, len(sets) + 1)
        for some in combinations(sets, size)
        if not intersection(sets[key] for key in some)
    ]
    assert len(found) == min(disjoint, default=0)
    assert not found or not intersection(sets[key] for key in found)


def test_of_very_many_sets_none_of_the_selection_can_be_left_out() -> None:
    """Each of 200 hosts is missing in one set: only all sets together have
    none.
    """
    hosts = 200
    assert (
        len(
            smallest_disjoint(
                {
                    number: ((1 << hosts) - 1) & ~(1 << number)
                    for number in range(hosts)
                }
            )
        )
        == hosts
    )


def test_unwanted_keys_are_left_out_first() -> None:
    """Of equally small selections that too many sets hide from a full
    search.
    """
    sets = {f"full {number}": 0b11 for number in range(110)} | {
        "a": 0b01,
        "b": 0b10,
        "c": 0b10,
    }
    assert (
        set(smallest_disjoint(sets, ["b"])),
        set(smallest_disjoint(sets, ["c"])),
    ) == ({"a", "c"}, {"a", "b"})
