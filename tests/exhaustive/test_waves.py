# SPDX-License-Identifier: Apache-2.0

"""Waves of fleets of which not all orders can be tried, judged by a solver."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from os_prefilter.common.host_sets import set_of, union
from tests.conftest import times
from tests.support.upgrades import Upgrade, full_fleet, rare_traits


@pytest.mark.parametrize("fleet", [full_fleet, rare_traits])
@pytest.mark.parametrize("seed", range(times(3)))
def test_waves_of_a_large_fleet_are_waves_by_the_solver(
    fleet: Callable[[Random], Upgrade], seed: int
) -> None:
    upgrade = fleet(Random(seed))  # noqa: S311
    found = upgrade.find()
    assert union(found.waves) == set_of(upgrade.hosts)
    left_out = [*found.stranded, *found.in_the_way]
    assert upgrade.allows(found.waves, left_out)
