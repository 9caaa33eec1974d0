# SPDX-License-Identifier: Apache-2.0

"""The rules for allocation candidates are Placement's: each part of many
demands, on many small fleets.
"""

from __future__ import annotations

from itertools import chain, combinations
from random import Random

import pytest

from os_prefilter_tools.fleet.demand import Demand
from os_prefilter_tools.fleet.matching import hosts_in, meets
from os_prefilter_tools.fleet.model import Fleet
from tests.conftest import times
from tests.support.demands import oracle, random_demand, random_fleet
from tests.support.fleets import emptied


@pytest.mark.parametrize("is_empty", [False, True], ids=["used", "empty"])
@pytest.mark.parametrize("seed", range(times(2)))
def test_hosts_meeting_each_part_of_a_demand_match_placement(
    seed: int, is_empty: bool
) -> None:
    """With usage, and as if all hosts were empty."""
    random = Random(seed)  # noqa: S311
    fleet = random_fleet(random, 5, flat=seed % 4 == 0)
    hosts = hosts_in(fleet)
    in_placement = fleet
    if is_empty:
        hosts = [host.freed(fleet.resource_classes) for host in hosts]
        in_placement = Fleet(tuple(map(emptied, fleet.hosts)))
    with oracle(in_placement) as placement:
        for _ in range(3):
            demand = random_demand(random, fleet, flat=seed % 4 == 0)
            conditions = demand.conditions()
            parts = list(
                chain.from_iterable(
                    combinations(conditions, n)
                    for n in range(1, len(conditions) + 1)
                )
            )
            for kept in [
                conditions,
                *random.sample(parts, min(8, len(parts))),
            ]:
                part = demand.only(kept)
                found = {host.name for host in hosts if meets(host, part)}
                assert found == placement.meeting(demand, kept), (demand, kept)


def test_demand_of_all_conditions_is_the_same() -> None:
    for seed in range(times(40)):
        random = Random(seed)  # noqa: S311
        demand = random_demand(random, random_fleet(random, 3))
        assert _plain(demand.only(demand.conditions())) == _plain(demand)


def _plain(demand: Demand) -> list[tuple[str, ...]]:
    return sorted(
        (str(item), item.kind, item.scope) for item in demand.conditions()
    )
