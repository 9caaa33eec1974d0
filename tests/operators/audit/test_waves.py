# SPDX-License-Identifier: Apache-2.0

"""Waves of an upgrade, judged by a solver."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from random import Random

import pytest

from os_prefilter.common.host_sets import numbers_in, set_of, union
from tests.conftest import times
from tests.support.upgrades import (
    Guest,
    Upgrade,
    full_fleet,
    random_upgrade,
    rare_traits,
)

NO_TRAIT: frozenset[str] = frozenset()


@pytest.mark.parametrize("seed", range(times(50)))
def test_waves_are_found_where_there_are_some(seed: int) -> None:
    upgrade = random_upgrade(Random(seed))  # noqa: S311
    found = upgrade.find()
    is_found = not (found.stranded or found.in_the_way)
    assert is_found == upgrade.has_waves()


@pytest.mark.parametrize(
    ("fleet", "seed"), [(full_fleet, 30), (rare_traits, 74)]
)
def test_waves_are_found_where_the_first_ones_lead_nowhere(
    fleet: Callable[[Random], Upgrade], seed: int
) -> None:
    """With more than seven hosts left, other waves are tried, too."""
    upgrade = fleet(Random(seed))  # noqa: S311
    found = upgrade.find()
    assert found.in_the_way == []
    assert upgrade.allows(found.waves, found.stranded)


@pytest.mark.parametrize("seed", range(500, 500 + times(40)))
def test_waves_keep_all_servers_movable_but_those_left_out(seed: int) -> None:
    upgrade = random_upgrade(Random(seed))  # noqa: S311
    found = upgrade.find()
    assert union(found.waves) == set_of(upgrade.hosts)
    left_out = [*found.stranded, *found.in_the_way]
    assert upgrade.allows(found.waves, left_out)


@pytest.mark.parametrize("seed", range(600, 600 + times(40)))
def test_as_few_servers_as_possible_are_left_out(seed: int) -> None:
    upgrade = random_upgrade(Random(seed))  # noqa: S311
    found = upgrade.find()
    fewest = upgrade.count_in_the_way(found.stranded)
    assert len(found.in_the_way) == fewest


@pytest.mark.parametrize("seed", range(700, 700 + times(40)))
def test_stranded_servers_would_have_a_destination_with_the_hosts_kept(
    seed: int,
) -> None:
    upgrade = random_upgrade(Random(seed))  # noqa: S311
    for each in upgrade.find().stranded:
        guest = upgrade.guests[int(each.name.id)]
        missing = each.count_missing(set_of(upgrade.hosts))
        as_is = numbers_in(each.before & ~each.after & set_of(upgrade.hosts))
        for kept in combinations(as_is, missing):
            upgraded = upgrade.hosts - set(kept)
            assert len(_places(upgrade, guest, upgraded)) >= 2


def _places(
    upgrade: Upgrade, guest: Guest, upgraded: frozenset[int]
) -> list[int]:
    """Return the hosts that may have a server, its own among them."""
    return [
        host
        for host, free in enumerate(upgrade.free)
        if (host == guest.home or guest.size <= free)
        and guest.needs
        <= (upgrade.new if host in upgraded else upgrade.old)[host]
    ]


OLD, NEW = frozenset("A"), NO_TRAIT


def test_hosts_that_win_a_trait_are_upgraded_before_those_that_lose_it() -> (
    None
):
    wins = [NO_TRAIT] * 20 + [OLD] * 20
    loses = wins[::-1]
    upgrade = Upgrade(
        [1] * 40, wins, loses, [Guest(39, 1, OLD)], frozenset(range(40)), 20
    )
    found = upgrade.find()
    assert found.waves == [(1 << 20) - 1, (1 << 40) - (1 << 20)]


def test_a_large_fleet_without_capacity_leaves_servers_out() -> None:
    count = 30
    upgrade = Upgrade(
        [0] * (count - 1) + [1],
        [OLD] * count,
        [OLD] * count,
        [Guest(number, 1) for number in range(count) for _ in "12"],
        frozenset(range(count)),
        5,
    )
    found = upgrade.find()
    assert union(found.waves) == set_of(upgrade.hosts)
    assert upgrade.allows(found.waves, found.in_the_way)


def test_more_hosts_at_a_time_than_there_are_make_one_wave() -> None:
    upgrade = Upgrade(
        [1, 1], [OLD] * 2, [OLD] * 2, [], frozenset((0, 1)), 10**9
    )
    assert upgrade.find().waves == [3]
