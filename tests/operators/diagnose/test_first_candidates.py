"""The hosts that the first candidates cover are those that a real Placement with the same limits returns."""

from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import pytest

from os_prefilter.request.spec import Flavor, RequestGroup, RequestSpec
from os_prefilter.service import Service
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.fleet.demand import Demand
from os_prefilter_tools.fleet.matching import hosts_in, meets
from os_prefilter_tools.fleet.model import Fleet, Inventory, Provider, provider_uuid
from os_prefilter_tools.operators.diagnose.diagnose import diagnose
from os_prefilter_tools.operators.diagnose.first_candidates import Limits, find_first, only_hosts
from os_prefilter_tools.operators.diagnose.result import CANDIDATES, NO_ANSWER, Diagnosis, FirstCandidates
from tests.conftest import times
from tests.support.demands import query_of, random_demand, random_fleet, request_of
from tests.support.placements import Observed

_DEPTH, _BREADTH = "depth-first", "breadth-first"
_KNOWN = {"CUSTOM_A", "CUSTOM_B", "CUSTOM_C", "CUSTOM_BAD"}, ["CUSTOM_FPGA"]


def _host(name: str, cards: int, room: int = 16) -> Provider:
    below = tuple(
        Provider(f"{name}-{number}", provider_uuid(f"{name}-{number}"), {"VGPU": Inventory(room)})
        for number in range(cards)
    )
    resources = {"VCPU": Inventory(64), "MEMORY_MB": Inventory(65536)}
    return Provider(name, provider_uuid(name), resources, frozenset({"COMPUTE_NODE"}), (), below)


def _request(groups: int) -> RequestSpec:
    extra_specs = {f"resources{number}:VGPU": "1" for number in range(groups)} | {"group_policy": "none"}
    return RequestSpec(flavor=Flavor(vcpus=1, memory_mb=512, extra_specs=extra_specs))


def _options(limits: Limits) -> dict[str, object]:
    options = {
        "max_allocation_candidates": limits.max_allocation_candidates,
        "allocation_candidates_generation_strategy": limits.strategy,
    }
    return {name: value for name, value in options.items() if value is not None}


def _found_in_file(fleet: Fleet, request: RequestSpec, limits: Limits) -> Diagnosis:
    with EmbeddedPlacement(options=_options(limits)) as placement:
        placement.know(*_KNOWN)
        load, pipeline = placement.load, Service.from_names()
        return diagnose(request, pipeline, fleet, placement.client, live=False, limits=limits, load=load)


def _found_live(fleet: Fleet, request: RequestSpec, known: Limits, real: Limits) -> Diagnosis:
    """Diagnose with the Placement of a cloud.

    :param known: what the operator gave
    :param real: what that Placement has
    """
    with EmbeddedPlacement(fleet, options=_options(real)) as placement:
        placement.know(*_KNOWN)
        return diagnose(request, Service.from_names(), fleet, placement.client, live=True, limits=known)


def _first(found: Diagnosis) -> FirstCandidates:
    assert found.stage == CANDIDATES
    assert found.first_candidates is not None
    return found.first_candidates


_WIDE = Fleet(tuple(_host(name, 4) for name in "ABCDE"))
"""Hosts with 1,024 candidates each for a request of five groups."""


def test_hosts_behind_the_candidates_of_one_host_are_the_finding_and_breadth_first_shows_them() -> None:
    request = _request(5)
    depth, breadth = (Limits(1000, 1000, each) for each in (_DEPTH, _BREADTH))
    for found in (_found_in_file(_WIDE, request, depth), _found_live(_WIDE, request, depth, depth)):
        first = _first(found)
        assert found.message == "5 of 5 hosts meet all requirements. The first 1000 candidates are of 1 of them."
        assert (first.hosts, first.combinations) == (1, 5 * 4**5)
        assert "nova-scheduler does not see 4 other capable hosts" in first.help
        change = f"Set [placement] allocation_candidates_generation_strategy = {_BREADTH} in placement.conf."
        assert first.help.endswith(change)
    after = _found_in_file(_WIDE, request, breadth)
    assert (_first(after).hosts, _first(after).help) == (5, "")
    assert after.message == "5 of 5 hosts meet all requirements."


@pytest.mark.parametrize("seed", range(times(3)))
def test_hosts_covered_match_a_placement_with_the_same_limits_and_the_whole_fleet(seed: int) -> None:
    """What is loaded for it, capable hosts without the traits that do not matter, has the same candidates."""
    random = Random(seed)  # noqa: S311
    fleet = random_fleet(random, 6)
    demand = random_demand(random, fleet)
    while not (capable := [host for host in hosts_in(fleet) if meets(host, demand)]):
        demand = random_demand(random, fleet)
    query = query_of(demand)
    with EmbeddedPlacement(fleet) as placement:
        placement.know(*_KNOWN)
        everything = placement.client.allocation_candidates(query)
    for most in random.sample((1, 2, len(capable), everything.count, everything.count + 1), 2):
        limits = Limits(most, random.choice((-1, most, 2 * most)), random.choice((_DEPTH, _BREADTH)))
        loaded = only_hosts(fleet, [host.name for host in capable], demand)
        options = _options(limits)
        with EmbeddedPlacement(fleet, options=options) as whole, EmbeddedPlacement(loaded, options=options) as part:
            ask, ask_whole = (
                partial(each.client.allocation_candidates, f"limit={most}&{query}") for each in (part, whole)
            )
            whole.know(*_KNOWN)
            part.know(*_KNOWN)
            assert ask().count == ask_whole().count
            found = find_first(capable, demand, limits, ask, live=False)
        assert found.combinations >= everything.count
        assert found.hosts is not None
        assert 1 <= found.hosts <= min(most, len(capable))
        assert found.hosts == len(capable) or most < everything.count
        assert bool(found.help) == (found.hosts < len(capable))


@pytest.mark.parametrize("seed", range(times(3)))
def test_following_the_advice_shows_all_hosts(seed: int) -> None:
    random = Random(seed)  # noqa: S311
    fleet = Fleet(tuple(_host(f"host-{number}", random.randint(1, 4)) for number in range(random.randint(2, 12))))
    request = _request(random.randint(2, 4))
    limits = Limits(random.randint(1, 8), random.choice((-1, 1, 5, 50)), random.choice((_DEPTH, _BREADTH)))
    for _ in range(3):
        if not (advice := _first(_found_in_file(fleet, request, limits)).help):
            return
        limits = Limits(
            int(_advised(advice, "max_placement_results") or limits.max_placement_results),
            int(_advised(advice, "max_allocation_candidates") or limits.max_allocation_candidates or -1),
            _advised(advice, "allocation_candidates_generation_strategy") or limits.strategy,
        )
    pytest.fail(f"{advice} {limits}")


def _advised(advice: str, option: str) -> str:
    """Return the value that an advice gives to an option; empty if it does not name it."""
    return advice.partition(f" {option} = ")[2].partition(" ")[0]


def test_more_hosts_than_nova_requests_candidates_are_counted_without_asking() -> None:
    fleet = Fleet(tuple(_host(str(number), 1) for number in range(5)))
    demand = Demand({"": RequestGroup("", {"VCPU": 1})})

    def ask() -> Any:
        raise AssertionError("asked")

    found = find_first(hosts_in(fleet), demand, Limits(3), ask, live=False)
    assert (found.hosts, found.combinations) == (3, 5)
    assert found.help.endswith("Set [scheduler] max_placement_results = 5 in nova.conf.")
    found = find_first(hosts_in(fleet), demand, Limits(9, 0), ask, live=False)
    assert found.hosts == 1
    assert found.help.endswith("Set [placement] max_allocation_candidates = 9 in placement.conf.")


def test_unknown_limit_of_a_live_placement_is_inferred_from_its_response() -> None:
    first = _first(_found_live(_WIDE, _request(5), Limits(), Limits(1000, 100, _DEPTH)))
    assert (first.hosts, first.max_allocation_candidates) == (1, None)
    assert first.help.startswith("The first 100 candidates are of 1 host;")
    # That is enough for five hosts.
    assert first.help.endswith(
        f"Set [placement] allocation_candidates_generation_strategy = {_BREADTH} in placement.conf."
    )


def test_fewer_candidates_than_known_limits_allow_are_a_changed_fleet() -> None:
    now = replace(_WIDE, hosts=_WIDE.hosts[:2])
    with EmbeddedPlacement(now) as placement:
        limits = Limits(5000, -1, _DEPTH)
        found = diagnose(_request(5), Service.from_names(), _WIDE, placement.client, live=True, limits=limits)
    assert _first(found).hosts == 2
    assert _first(found).help == (
        "Placement returned only 2048 candidates, of 2 of these hosts: the fleet has changed since it was read. Run "
        "this again."
    )


def test_request_that_would_take_placement_long_is_not_sent_to_the_embedded_one() -> None:
    fleet = Fleet(tuple(_host(name, 8, room=1) for name in "ABC"))
    first = _first(_found_in_file(fleet, _request(8), Limits()))
    assert (first.hosts, first.combinations) == (None, 3 * 8**8)
    assert first.help.startswith("Placement may try 50,331,648 combinations of providers")
    # With 16 groups on two cards, many candidates take the same: Placement compares each with each.
    fleet = Fleet(tuple(_host(name, 2) for name in "AB"))
    first = _first(_found_in_file(fleet, _request(15), Limits()))
    assert (first.hosts, first.combinations) == (None, 2 * 2**15)
    # It ends early where its own limit is low.
    assert _first(_found_in_file(fleet, _request(15), Limits(1000, 1000, _BREADTH))).hosts == 2


def test_placement_that_does_not_answer_is_diagnosed_with_the_combinations_that_it_may_try() -> None:
    fleet = Fleet(tuple(_host(name, 8, room=1) for name in "ABC"))
    sent = []

    def hook(_method: str, url: str) -> tuple[int, object] | None:
        sent.append(url)
        return (503, {"errors": [{"detail": "timed out"}]}) if url.startswith("/allocation_candidates") else None

    with EmbeddedPlacement(fleet) as placement:
        client = Observed(placement, hook).client
        found = diagnose(_request(8), Service.from_names(), fleet, client, live=True)
    assert found.stage == NO_ANSWER
    assert found.first_candidates is None
    assert any(note.startswith("Placement may try 50,331,648 combinations") for note in found.notes)
    assert all("limit=1000" in url for url in sent if url.startswith("/allocation_candidates"))


@pytest.mark.parametrize("seed", range(times(1)))
def test_a_diagnosis_of_a_file_says_what_the_live_one_says(seed: int) -> None:
    random = Random(seed)  # noqa: S311
    fleet = random_fleet(random, 6)
    limits = Limits(1000, -1, _DEPTH)
    for _ in range(4):
        demand = random_demand(random, fleet)
        in_file = _found_in_file(fleet, request_of(demand), limits)
        live = _found_live(fleet, request_of(demand), limits, limits)
        assert (in_file.stage, in_file.candidates) == (live.stage, live.candidates)
        assert in_file.first_candidates == live.first_candidates
