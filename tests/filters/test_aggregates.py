# SPDX-License-Identifier: Apache-2.0

"""Filters by host aggregates and by networks, and what they write to the
destination of a request.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from os_prefilter import (
    Destination,
    Flavor,
    Image,
    NetworkRequest,
    Options,
    Request,
    RequestSpec,
)
from os_prefilter.common.errors import (
    ContradictingAggregates,
    MissingFact,
    NoAggregate,
    UnknownValue,
    UnusableFact,
)
from os_prefilter.filters.host_aggregates import HostAggregates
from os_prefilter.filters.isolated_aggregates import isolated_aggregates
from os_prefilter.filters.routed_networks import RoutedNetworks
from os_prefilter.request.query import allocation_candidates_query
from os_prefilter.request.requirements import (
    forbid_aggregates,
    require,
    require_aggregates,
)
from os_prefilter.service import Service
from os_prefilter.service.loading import as_filter
from os_prefilter.vocabulary.model import UnknownValues
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.fleet.reader import example_fleet

A = "11111111-1111-4111-8111-111111111111"
B = "22222222-2222-4222-8222-222222222222"
C = "33333333-3333-4333-8333-333333333333"


def aggregate(uuid: str, **metadata: str) -> dict[str, Any]:
    return {"uuid": uuid, "name": f"rack-{uuid[0]}", "metadata": metadata}


def pipeline(
    *names: str, aggregates: Any = (), networks: Any = None, **options: Any
) -> Service:
    facts = {
        "aggregates": lambda _context: aggregates,
        "networks": lambda _context: networks or {},
    }
    return Service.from_names(*names, options=Options(**options), facts=facts)


def spec_of(**fields: Any) -> RequestSpec:
    return RequestSpec(Flavor(vcpus=1, memory_mb=512), **fields)


ZONES = (
    aggregate(A, availability_zone="north"),
    aggregate(B, availability_zone="north"),
    aggregate(C),
)


def test_zone_that_no_aggregate_has_requires_nothing_with_a_note() -> None:
    """As in Nova."""
    some = pipeline("availability_zone", aggregates=ZONES)
    decision = some.apply(spec_of(availability_zone="nova"))
    assert not decision.aggregates
    (note,) = decision.notes
    assert note.warn
    assert str(note) == (
        "availability zone 'nova': no host aggregate has it: not required"
    )


def test_zone_that_no_aggregate_has_is_rejected_with_unknown_values_reject() -> (
    None
):
    strict = pipeline(
        "availability_zone",
        aggregates=ZONES,
        unknown_values=UnknownValues.REJECT,
    )
    problem = "availability zone has the unknown value 'x'. Correct it."
    with pytest.raises(UnknownValue, match=problem):
        strict.apply(spec_of(availability_zone="x"))


@pytest.mark.parametrize(
    "text",
    [
        "north&root_required=X",
        "in:a,b",
        "a\nb",
        "\x00",
        "x" * 5000,
        "%s{0}",
    ],
    ids=["parameter", "list", "line break", "NUL", "long", "format"],
)
def test_text_of_a_tenant_is_no_part_of_the_query_nor_breaks_a_line(
    text: str,
) -> None:
    """Only UUIDs of the operator's aggregates get into the query."""
    spec = spec_of(availability_zone=text, project_id=text)
    some = pipeline(
        "availability_zone",
        "tenant_isolation",
        aggregates=[aggregate(A, availability_zone=text)],
    )
    (item,) = some.apply(spec).aggregates
    assert allocation_candidates_query(spec) == (
        f"limit=1000&member_of=in%3A{A}&resources=MEMORY_MB%3A512%2CVCPU%3A1"
    )
    assert str(item).isprintable()
    assert len(str(item)) < 400


def test_aggregates_are_objects_or_mappings_with_the_zone_as_metadata_or_as_a_field() -> (
    None
):
    rows = [
        aggregate(A, availability_zone="north"),
        {"uuid": B, "name": "b", "availability_zone": "north", "metadata": {}},
        SimpleNamespace(uuid=C, name="c", availability_zone="north"),
    ]
    assert HostAggregates.of(rows).by_zone == {"north": (A, B, C)}


TENANTS = (
    aggregate(A, filter_tenant_id="p1"),
    aggregate(B, filter_tenant_id_2="p1", x="p2"),
    aggregate(C, y="p1"),
)


@pytest.mark.parametrize("project", ["p2", None, ""])
def test_tenant_without_an_aggregate_is_rejected_if_one_is_required(
    project: str | None,
) -> None:
    strict = pipeline(
        "tenant_isolation", aggregates=TENANTS, tenant_aggregate_required=True
    )
    spec = spec_of(project_id=project)
    problem = "No hosts are available for this tenant. Ask the operator"
    with pytest.raises(NoAggregate, match=problem):
        strict.apply(spec)
    assert spec == spec_of(project_id=project)


ISOLATED = (
    aggregate(
        A, **{"trait:CUSTOM_WINDOWS": "required", "trait:CUSTOM_B": "required"}
    ),
    aggregate(B, **{"trait:CUSTOM_B": "required"}),
    aggregate(C, **{"trait:CUSTOM_WINDOWS": "forbidden", "x": "required"}),
)
WINDOWS = "trait:CUSTOM_WINDOWS"
OTHER = "trait:CUSTOM_B"


def test_aggregate_is_open_to_a_request_that_requires_each_of_its_traits() -> (
    None
):
    spec = RequestSpec(
        Flavor(vcpus=1, extra_specs={OTHER: "required"}),
        Image({WINDOWS: "required"}),
    )
    some = pipeline("isolated_aggregates", aggregates=ISOLATED)
    assert not some.apply(spec).aggregates
    destination = spec.requested_destination or Destination()
    assert not destination.aggregates
    assert not destination.forbidden_aggregates


def test_trait_that_an_earlier_filter_requires_opens_an_aggregate() -> None:
    earlier = require("CUSTOM_B", "a rule").requirements
    (item,) = isolated_aggregates(
        Request(spec_of()), aggregates=ISOLATED, required_before=earlier
    ).aggregates
    assert item.aggregates == (A,)
    assert item.because == (
        "reserved for requests that require other traits: CUSTOM_WINDOWS"
        " (aggregate rack-1)"
    )


NETWORKS = {
    "n1": {"s1": [A], "s2": [B, C]},
    "n2": {"s3": [C]},
    "broken": {"s4": [C], "s5": []},
    "flat": {},
}


def with_network(*network: str | None) -> RequestSpec:
    return spec_of(requested_networks=[NetworkRequest(*network)])


def test_subnet_requires_a_host_in_an_aggregate_of_its_segment() -> None:
    spec = with_network(None, "port", "s2")
    pipeline("routed_networks", networks=NETWORKS).apply(spec)
    assert spec.requested_destination
    assert spec.requested_destination.aggregates == [f"{B},{C}"]
    assert not spec.requested_destination.forbidden_aggregates


def test_network_without_an_id_requires_nothing() -> None:
    spec = with_network()
    some = pipeline("routed_networks", networks=NETWORKS)
    assert not some.apply(spec).aggregates
    destination = spec.requested_destination or Destination()
    assert not destination.aggregates
    assert not destination.forbidden_aggregates


def test_source_names_the_network() -> None:
    some = pipeline("routed_networks", networks=NETWORKS)
    (item,) = some.apply(with_network("n2")).aggregates
    assert item.source == "network 'n2'"


@pytest.mark.parametrize(
    ("network", "named"),
    [(["broken"], "network 'broken'"), (["n1", "port", "s5"], "subnet 's5'")],
    ids=["network", "subnet"],
)
def test_segment_without_an_aggregate_is_rejected(
    network: list[str], named: str
) -> None:
    some = pipeline("routed_networks", networks=NETWORKS)
    problem = (
        f"Aggregates not found for the {named}. Ask the operator to check the"
        " segment"
    )
    with pytest.raises(NoAggregate, match=problem):
        some.apply(with_network(*network))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (
            "routed_networks",
            "the request spec has neither its network nor its subnet",
        ),
        ("remote_managed_ports", "the request spec has no VNIC type of it"),
    ],
)
def test_port_without_its_network_or_type_requires_nothing_with_a_note(
    name: str, reason: str
) -> None:
    some = pipeline(name, networks=NETWORKS)
    (note,) = some.apply(with_network(None, "p")).notes
    assert str(note) == f"port 'p': {reason}: not required"
    assert note.warn


def test_aggregates_that_no_host_is_in_are_rejected_with_both_reasons(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The tenant does not read of the aggregates of others; the operator
    does.
    """
    some = pipeline(
        "availability_zone",
        "isolated_aggregates",
        aggregates=[
            aggregate(A, availability_zone="north", **{WINDOWS: "required"}),
            aggregate(B, availability_zone="north", **{OTHER: "required"}),
        ],
    )
    spec = spec_of(availability_zone="north")
    caplog.set_level("INFO")
    with pytest.raises(ContradictingAggregates) as error:
        some.apply(spec)
    message = str(error.value)
    assert "zone 'north'" in message
    assert (
        "isolated_aggregates: reserved for requests that require other traits)"
        in message
    )
    assert "Rejected a request: of member_of=in:" in caplog.text
    for secret in ("CUSTOM_WINDOWS", "rack-", A):
        assert secret not in message
        assert secret in caplog.text
    assert spec == spec_of(availability_zone="north")


def test_aggregates_that_one_filter_requires_and_forbids_are_rejected() -> (
    None
):
    requirements = (
        forbid_aggregates([A], "x")
        + forbid_aggregates([B], "y")
        + require_aggregates([A, B], "z")
    )
    some = Service((as_filter("all", lambda _request: requirements),))
    with pytest.raises(ContradictingAggregates, match="all: x"):
        some.apply(spec_of())


def test_requirements_are_added_to_a_clone_of_the_destination_once() -> None:
    given = Destination(aggregates=[C], forbidden_aggregates={B}, in_tree=A)
    spec = spec_of(
        availability_zone="north", project_id="p1", requested_destination=given
    )
    rows = (*ZONES[:2], aggregate(C, **{WINDOWS: "required"}))
    some = pipeline(
        "availability_zone", "isolated_aggregates", aggregates=rows
    )
    expected = Destination([C, f"{A},{B}"], {B, C}, A)
    some.apply(spec)
    assert spec.requested_destination == expected
    some.apply(spec)
    assert spec.requested_destination == expected
    assert given == Destination([C], {B}, A)


BY_FACT = pytest.mark.parametrize(
    "name",
    [
        "availability_zone",
        "tenant_isolation",
        "isolated_aggregates",
        "routed_networks",
    ],
)


@BY_FACT
def test_no_request_passes_before_the_fact_could_be_read(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What isolates tenants must not be open while its fact is unknown."""
    fails = Mock(side_effect=OSError("the database is down"))
    some = Service.from_names(
        name, facts={"aggregates": fails, "networks": fails}
    )
    spec = with_network("n")
    spec.availability_zone = "north"
    problem = "The deployment fact '(aggregates|networks)' is not known yet"
    with pytest.raises(UnusableFact, match=problem):
        some.apply(spec)
    assert "the database is down" in caplog.text
    assert spec.requested_destination is None


@BY_FACT
def test_filter_without_its_fact_is_an_error_at_start(name: str) -> None:
    problem = (
        "needs the fact '(aggregates|networks)'.*Pass it to Service.from_conf"
    )
    with pytest.raises(MissingFact, match=problem):
        Service.from_names(name)


_MALFORMED: list[tuple[object, str]] = [
    ("rack", "is 'rack', not a sequence of aggregates"),
    (
        [{"uuid": "x", "name": "n"}],
        "has uuid 'x' in its aggregate 1, not the UUID of an aggregate",
    ),
    ([aggregate(A), {"uuid": B}], "has name None in its aggregate 2"),
    (
        [{"uuid": A, "name": "n", "metadata": {"trait:X": 1}}],
        "has metadata 'trait:X' with 1 in its aggregate 1",
    ),
    (
        [{"uuid": A, "name": "n", "metadata": {7: "x"}}],
        "has metadata 7 in its aggregate 1, not a string",
    ),
    ([{"uuid": A, "name": 5}], "has name 5 in its aggregate 1"),
    (
        [{"uuid": A, "name": "n", "metadata": "x"}],
        "has metadata 'x' in its aggregate 1, not a mapping of strings",
    ),
    (
        [{"uuid": A, "name": "n", "availability_zone": 3}],
        "has availability_zone 3",
    ),
]


@pytest.mark.parametrize(("value", "problem"), _MALFORMED)
def test_malformed_aggregates_are_named(value: Any, problem: str) -> None:
    expected = f"fact 'aggregates' {problem}.*Correct what the service passes"
    with pytest.raises(UnusableFact, match=expected):
        HostAggregates.of(value)


@pytest.mark.parametrize(("value", "_problem"), _MALFORMED)
def test_last_good_aggregates_stay_where_the_next_are_malformed(
    value: object, _problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    read = Mock(side_effect=[ZONES, value])
    some = Service.from_names("availability_zone", facts={"aggregates": read})
    some.apply(spec_of(availability_zone="north"))
    some._facts[0].expire()
    spec = spec_of(availability_zone="north")
    some.apply(spec)
    assert spec.requested_destination == Destination([f"{A},{B}"])
    assert "Failed to read the deployment fact aggregates" in caplog.text


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ([], "a list, not a mapping of networks"),
        ({"n": []}, "a list, not a mapping of subnets, at the network 'n'"),
        ({"n": {"s": A}}, f"has '{A}', not aggregates, at the subnet 's'"),
        (
            {"n": {"s": ["x&y"]}},
            "has 'x&y', not the UUID of an aggregate, at the subnet 's'",
        ),
    ],
)
def test_malformed_networks_are_named(value: Any, problem: str) -> None:
    expected = f"fact 'networks' .*{problem}.*Correct what the service passes"
    with pytest.raises(UnusableFact, match=expected):
        RoutedNetworks.of(value)


@pytest.mark.parametrize("aggregates", [[], ["x&y"], [A, "x&y"]])
def test_filter_cannot_require_what_is_no_uuid(aggregates: list[str]) -> None:
    problem = "these are not UUIDs of aggregates"
    with pytest.raises(ValueError, match=problem):
        require_aggregates(aggregates, "a filter")


def test_requirement_without_names_is_written_without_them() -> None:
    (item,) = require_aggregates([A], "a filter").aggregates
    assert item.names == ""
    (item,) = forbid_aggregates([A], "a filter").aggregates
    assert str(item) == f"member_of=!in:{A} by  (a filter)"


@pytest.fixture(scope="module")
def embedded() -> Iterator[EmbeddedPlacement]:
    with EmbeddedPlacement(example_fleet()) as embedded:
        yield embedded


RACK = min(example_fleet().aggregates)
_SPELLINGS = pytest.mark.parametrize(
    "uuid", [RACK.upper(), RACK.replace("-", "")], ids=["upper", "no dashes"]
)


def _hosts(
    embedded: EmbeddedPlacement, name: str, uuid: str, **metadata: str
) -> set[str]:
    """Return the hosts of the fleet after a filter, by one aggregate."""
    spec = spec_of(availability_zone="north")
    pipeline(name, aggregates=[aggregate(uuid, **metadata)]).apply(spec)
    query = allocation_candidates_query(spec)
    return set(embedded.client.allocation_candidates(query).hosts)


# Placement takes both spellings, and compares them with its own as they are:
# they would exclude no host, or each one.
@_SPELLINGS
def test_required_aggregate_of_another_spelling_is_the_same_to_placement(
    embedded: EmbeddedPlacement, uuid: str
) -> None:
    zone = {"availability_zone": "north"}
    members = _hosts(embedded, "availability_zone", RACK, **zone)
    assert members
    assert _hosts(embedded, "availability_zone", uuid, **zone) == members


@_SPELLINGS
def test_forbidden_aggregate_of_another_spelling_is_the_same_to_placement(
    embedded: EmbeddedPlacement, uuid: str
) -> None:
    zone = {"availability_zone": "north"}
    members = _hosts(embedded, "availability_zone", RACK, **zone)
    others = _hosts(embedded, "noop", RACK) - members
    licensed = {"trait:CUSTOM_LICENSED": "required"}
    assert _hosts(embedded, "isolated_aggregates", uuid, **licensed) == others


@pytest.mark.parametrize(
    ("uuids", "described"),
    [
        ([A], "aggregate rack-1"),
        ([B, A], "aggregates rack-1, rack-2"),
    ],
    ids=["one", "two"],
)
def test_aggregates_are_described_by_name_in_their_number(
    uuids: list[str], described: str
) -> None:
    known = HostAggregates(names={A: "rack-1", B: "rack-2"})
    assert known.describe(uuids) == described
