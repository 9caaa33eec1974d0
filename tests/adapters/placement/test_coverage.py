"""Which compute nodes have reported, by a real Placement: the same as by looking at each host, in few requests."""

from collections.abc import Sequence
from random import Random

import pytest

from os_prefilter.adapters.placement.coverage import ReportCoverage
from os_prefilter.common.errors import PlacementError
from os_prefilter.service.report_gates import GATES
from os_prefilter.service.report_scope import EVERY_TRAIT
from os_prefilter.vocabulary import REPORTED, REPORTED_CUSTOM
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.fleet.model import Fleet
from os_prefilter_tools.operators.readiness import coverage_of
from tests.conftest import times
from tests.support.placements import Answer, Observed, provider
from tests.support.reporting_fleets import fleet_of

_TRAITS = sorted({trait for gate in GATES for trait in gate.traits if not trait.startswith("CUSTOM_")})
_IN_USE = "GET /traits?associated=true"
_UNREPORTED = f"GET /resource_providers?required=COMPUTE_NODE%2C%21{REPORTED}"


def _random_fleet(seed: int) -> Fleet:
    random = Random(seed)  # noqa: S311 - the same each time
    nodes = []
    for _ in range(random.randint(1, 6)):
        share = random.choice((0.0, 0.05, 0.3))
        traits = {trait for trait in _TRAITS if random.random() < share}
        traits |= {marker for marker in (REPORTED, REPORTED_CUSTOM) if random.random() < 0.4}
        nodes.append(traits)
    others = provider("neutron", "", "", (provider("br0", "NET_BW_EGR_KILOBIT_PER_SEC", "CUSTOM_VNIC_TYPE_NORMAL"),))
    return Fleet((*fleet_of(nodes).hosts, others))


def _is_open(fleet: Fleet, answers: frozenset[str]) -> bool:
    """Look at each host: there are compute nodes, and each has an answer."""
    nodes = [host.traits for host in fleet.hosts if "COMPUTE_NODE" in host.traits]
    return bool(nodes) and all(traits & answers for traits in nodes)


def test_gate_is_open_if_and_only_if_every_compute_node_has_reported() -> None:
    """By Placement, by the fleet, and by looking at each host."""
    states = []
    for seed in range(times(6)):
        fleet = _random_fleet(seed)
        with EmbeddedPlacement(fleet) as placement:
            asked = ReportCoverage(placement.client, EVERY_TRAIT)()
        told = coverage_of(fleet)
        assert (asked, asked.in_use) == (told, told.in_use)
        for gate in GATES:
            states.append(_is_open(fleet, gate.reported_by))
            unreported = asked.unreported[gate.reported_by].number
            assert (asked.compute_nodes and not unreported) is states[-1], gate.row
    assert {False, True} == set(states)


_SENT = [
    # (the traits of the compute nodes, the requests)
    ([{REPORTED}, {REPORTED}], [_IN_USE, _UNREPORTED]),
    ([], [_IN_USE, "GET /resource_providers?required=COMPUTE_NODE"]),
    ([set()] * 3, [_IN_USE, "GET /resource_providers?required=COMPUTE_NODE"]),
    (
        [{REPORTED}, {REPORTED_CUSTOM}],
        [_IN_USE, _UNREPORTED, f"GET /resource_providers?required=COMPUTE_NODE%2C%21{REPORTED}%2C%21{REPORTED_CUSTOM}"],
    ),
]


@pytest.mark.parametrize(("nodes", "sent"), _SENT)
def test_coverage_sends_no_query_for_traits_that_no_provider_has(nodes: Sequence[set[str]], sent: list[str]) -> None:
    """Placement refuses a query with a trait that it does not know."""
    with EmbeddedPlacement(fleet_of(nodes)) as placement:
        observed = Observed(placement)
        ReportCoverage(observed.client, EVERY_TRAIT)()
    assert observed.sent[:2] == sent[:2]
    assert sorted(observed.sent) == sorted(sent)


def test_coverage_takes_at_most_one_request_per_row_plus_two() -> None:
    """However many hosts there are, and each is short enough for any web server."""
    nodes = [set(_TRAITS), set(), {REPORTED}]
    with EmbeddedPlacement(fleet_of(nodes * 5)) as placement:
        observed = Observed(placement)
        ReportCoverage(observed.client, EVERY_TRAIT)()
    assert 10 < len(observed.sent) <= len({gate.row for gate in GATES}) + 2
    assert max(map(len, observed.sent)) < 2500


@pytest.mark.parametrize(
    "answer",
    [
        (503, b"down"),
        (401, {}),
        (200, {}),
        (200, {"traits": {}}),
        (200, {"traits": ["COMPUTE_NODE"]}),
        (200, {"traits": ["COMPUTE_NODE"], "resource_providers": [{"uuid": "no name"}]}),
    ],
    ids=str,
)
def test_coverage_raises_placement_error_on_an_error_or_unusable_response(answer: Answer) -> None:
    with EmbeddedPlacement(fleet_of([set()])) as placement:
        observed = Observed(placement, lambda _method, _url: answer)
        with pytest.raises(PlacementError):
            ReportCoverage(observed.client, EVERY_TRAIT)()
