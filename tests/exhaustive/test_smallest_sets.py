# SPDX-License-Identifier: Apache-2.0

"""The smallest sets of a diagnosis, judged by a solver.

Of 18 requirements on 15 to 40 hosts, and of groups that compete for GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from random import Random

import pytest

from os_prefilter.common.host_sets import set_of, smallest_disjoint
from os_prefilter.request.spec import RequestGroup
from os_prefilter_tools.fleet.demand import Condition, Demand
from os_prefilter_tools.fleet.matching import hosts_in
from os_prefilter_tools.fleet.model import Fleet, Inventory, Provider
from os_prefilter_tools.operators.diagnose.shortfall import (
    Conditions,
    Shortfalls,
)
from tests.conftest import times
from tests.support.answer_sets import fact, least_cost, smallest_answers

# A host fails a set of conditions that has one of each of its sets to drop.
_CONFLICTS = """
option(C) :- in(_, C).
{ chosen(C) : option(C) }.
:- set(S), not chosen(C) : in(S, C).
"""
_FEWEST = ":~ chosen(C). [1, C]\n"

# Each group takes its GPUs from one provider, which has all of its traits. A
# group that keeps no resource is gone; but a trait that no GPU of the host has
# is lacking even then.
_TO_DROP = """
option(C) :- takes(_, C, _).
option(C) :- needs(_, C, _).
{ chosen(C) : option(C) }.
1 { on(G, P) : gpu(P, _) } 1 :- takes(G, C, _), not chosen(C).
:- on(G, P), needs(G, C, T), not chosen(C), not has(P, T).
:- gpu(P, F), #sum { A, G : on(G, P), takes(G, _, A) } > F.
:- needs(G, C, T), not chosen(C), not has(P, T) : gpu(P, _).
"""


def _conflicts(to_drop: Sequence[frozenset[str]]) -> str:
    facts = []
    for number, each in enumerate(to_drop):
        facts.append(fact("set", number))
        facts += [fact("in", number, item) for item in sorted(each)]
    return _CONFLICTS + "".join(facts)


def _named(sets: Sequence[Conditions]) -> set[frozenset[str]]:
    return {frozenset(map(_name, each)) for each in sets}


def _name(item: Condition) -> str:
    return f"{item} {item.suffix}"


_WANTED = {"VCPU": 4, "MEMORY_MB": 1024, "DISK_GB": 30, "VGPU": 1}
_TRAITS = [f"CUSTOM_{letter}" for letter in "ABCDEFGHIJKLMN"]
_REQUIRED = frozenset(_TRAITS[:10])
_FORBIDDEN = frozenset(_TRAITS[10:])
_LARGE = Demand(
    {"": RequestGroup("", _WANTED)},
    root_required=_REQUIRED,
    root_forbidden=_FORBIDDEN,
)
"""18 conditions."""


def _large_fleet(random: Random) -> tuple[Fleet, list[frozenset[str]]]:
    """Return hosts, and the conditions that each of them fails."""
    likely = random.uniform(0.5, 0.9)
    hosts, fails = [], []
    for number in range(random.randint(15, 40)):
        met = {item: random.random() < likely for item in (*_TRAITS, *_WANTED)}
        has = [each for each in _TRAITS if met[each] == (each in _REQUIRED)]
        sizes = {
            name: Inventory(2 * amount, reserved=amount)
            if met[name]
            else _too_small(random, amount)
            for name, amount in _WANTED.items()
        }
        name = f"host-{number}"
        hosts.append(Provider(name, f"u-{name}", sizes, frozenset(has)))
        names = {
            **{each: each for each in _REQUIRED},
            **{each: f"!{each}" for each in _FORBIDDEN},
            **{each: f"{each}={amount}" for each, amount in _WANTED.items()},
        }
        fails.append(
            frozenset(f"{names[item]} " for item in met if not met[item])
        )
    return Fleet(tuple(hosts)), fails


def _too_small(random: Random, amount: int) -> Inventory:
    """Return an inventory that just does not give an amount."""
    return random.choice(
        (
            Inventory(2 * amount, reserved=amount + 1),
            Inventory(2 * amount, used=amount + 1),
            Inventory(2 * amount, min_unit=amount + 1),
            Inventory(4 * amount + 4, step_size=amount + 1),
            Inventory(2 * amount, allocation_ratio=0.4),
        )
    )


@pytest.mark.parametrize("seed", range(times(8)))
def test_smallest_sets_of_a_large_fleet_are_those_of_the_solver(
    seed: int,
) -> None:
    fleet, fails = _large_fleet(Random(seed))  # noqa: S311
    found = Shortfalls(hosts_in(fleet), _LARGE)
    program = _conflicts(fails)
    for number, each in enumerate(fails):
        assert _named(found.to_drop[f"host-{number}"]) == {each}
    if not all(fails):
        assert found.conflicts == []
        return
    assert len(found.conflicts[0]) == least_cost(program + _FEWEST)
    if not found.is_limited:
        assert _named(found.conflicts) == set(smallest_answers(program))
    for each in _named(found.conflicts):
        assert all(each & one for one in fails)
        needed = {one & each for one in fails}
        assert all(frozenset((item,)) in needed for item in each)


def _gpus(random: Random) -> tuple[Fleet, Demand, list[str]]:
    """Return hosts with GPUs, a demand for some, and a program for each host."""
    traits = [f"CUSTOM_{letter}" for letter in "ABCDEF"]
    groups = {
        f"_{number}": RequestGroup(
            "",
            {"VGPU": random.choice((1, 1, 2))},
            set(random.sample(traits, random.randint(0, 2))),
        )
        for number in range(random.randint(4, 8))
    }
    of_groups = []
    for suffix, group in groups.items():
        amount = group.resources["VGPU"]
        condition = f"VGPU={amount} {suffix}"
        of_groups.append(fact("takes", suffix, condition, amount))
        of_groups += [
            fact("needs", suffix, f"{trait} {suffix}", trait)
            for trait in sorted(group.required_traits)
        ]
    hosts, programs = [], []
    for number in range(random.randint(1, 6)):
        children, facts = [], list(of_groups)
        for gpu in range(random.randint(1, 6)):
            name = f"host-{number}-gpu-{gpu}"
            free = random.choice((1, 1, 2, 3))
            own = random.sample(traits, random.randint(1, 4))
            sizes = {"VGPU": Inventory(free + 2, used=2)}
            children.append(Provider(name, f"u-{name}", sizes, frozenset(own)))
            facts.append(fact("gpu", name, free))
            facts += [fact("has", name, trait) for trait in own]
        hosts.append(
            Provider(
                f"host-{number}",
                f"u-{number}",
                {"VCPU": Inventory(8)},
                providers=tuple(children),
            )
        )
        programs.append(_TO_DROP + "".join(facts))
    demand = Demand({"": RequestGroup("", {"VCPU": 1}), **groups})
    return Fleet(tuple(hosts)), demand, programs


@pytest.mark.parametrize("seed", range(times(4)))
def test_smallest_sets_of_groups_that_compete_are_those_of_the_solver(
    seed: int,
) -> None:
    fleet, demand, programs = _gpus(Random(seed))  # noqa: S311
    found = Shortfalls(hosts_in(fleet), demand)
    to_drop = [set(smallest_answers(each)) for each in programs]
    for number, sets in enumerate(to_drop):
        ours = _named(found.to_drop[f"host-{number}"])
        assert ours == sets or (found.is_limited and ours <= sets)
    conflicts = _conflicts([each for sets in to_drop for each in sets])
    if any(frozenset() in sets for sets in to_drop):
        assert found.conflicts == []
    elif not found.is_limited:
        assert _named(found.conflicts) == set(smallest_answers(conflicts))


@pytest.mark.parametrize("seed", range(times(20)))
def test_smallest_disjoint_selection_is_that_of_the_solver(seed: int) -> None:
    """Where all smaller selections could be tried."""
    random = Random(seed)  # noqa: S311
    hosts, keys = random.randint(15, 40), random.randint(10, 20)
    likely = random.uniform(0.6, 0.9)
    sets = {
        key: set_of(each for each in range(hosts) if random.random() < likely)
        for key in range(keys)
    }
    found = smallest_disjoint(sets)
    fails = [
        frozenset(f"{key}" for key in sets if not sets[key] >> host & 1)
        for host in range(hosts)
    ]
    if not all(fails):
        assert found == ()
        return
    fewest = least_cost(_conflicts(fails) + _FEWEST)
    tried = sum(comb(keys, size) for size in range(1, fewest + 1))
    if tried <= 20_000:
        assert len(found) == fewest
    else:
        assert len(found) >= fewest
