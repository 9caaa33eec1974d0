# SPDX-License-Identifier: Apache-2.0

"""Filters by host aggregates and by networks, and what they write to the
destination of a request.
"""

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

A, B, C = (
    f"{digit * 8}-{digit * 4}-4{digit * 3}-8{digit * 3}-{digit * 12}"
    for digit in "123"
)
Sets = tuple[set[str], set[str]]
"""The required sets, each as ``in`` of the query has it, and the forbidden
aggregates.
"""


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


def applied(some: Service, spec: RequestSpec) -> Sets:
    some.apply(spec)
    destination = spec.requested_destination or Destination()
    return set(destination.aggregates or ()), set(
        destination.forbidden_aggregates or ()
    )


ZONES = (
    aggregate(A, availability_zone="north"),
    aggregate(B, availability_zone="north"),
    aggregate(C),
)


def test_zone_that_no_aggregate_has_requires_nothing_with_a_note_as_in_nova_or_is_rejected() -> (
    None
):
    decision = pipeline("availability_zone", aggregates=ZONES).apply(
        spec_of(availability_zone="nova")
    )
    assert not decision.aggregates
    (note,) = decision.notes
    assert note.warn
    assert (
        str(note)
        == "availability zone 'nova': no host aggregate has it: not required"
    )
    strict = pipeline(
        "availability_zone",
        aggregates=ZONES,
        unknown_values=UnknownValues.REJECT,
    )
    with pytest.raises(
        UnknownValue,
        match="availability zone has the unknown value 'x'. Correct it.",
    ):
        strict.apply(spec_of(availability_zone="x"))


def test_text_of_a_tenant_is_no_part_of_the_query_nor_breaks_a_line() -> None:
    """Only UUIDs of the operator's aggregates get into the query."""
    for zone in (
        "north&root_required=X",
        "in:a,b",
        "a\nb",
        "\x00",
        "x" * 5000,
        "%s{0}",
    ):
        spec = spec_of(availability_zone=zone, project_id=zone)
        some = pipeline(
            "availability_zone",
            "tenant_isolation",
            aggregates=(aggregate(A, availability_zone=zone),),
        )
        (item,) = some.apply(spec).aggregates
        query = f"limit=1000&member_of=in%3A{A}&resources=MEMORY_MB%3A512%2CVCPU%3A1"
        assert allocation_candidates_query(spec) == query, zone
        assert str(item).isprintable()
        assert len(str(item)) < 400


def test_aggregates_are_objects_or_mappings_with_the_zone_in_the_metadata_or_beside_it() -> (
    None
):
    rows = [
        aggregate(A, availability_zone="north"),
        {"uuid": B, "name": "b", "availability_zone": "north", "metadata": {}},
        SimpleNamespace(uuid=C, name="c", availability_zone="north"),
    ]
    assert HostAggregates.of(rows).of_zones == {"north": (A, B, C)}


TENANTS = (
    aggregate(A, filter_tenant_id="p1"),
    aggregate(B, filter_tenant_id_2="p1", x="p2"),
    aggregate(C, y="p1"),
)


def test_tenant_without_an_aggregate_is_rejected_if_one_is_required() -> None:
    strict = pipeline(
        "tenant_isolation", aggregates=TENANTS, tenant_aggregate_required=True
    )
    for project in ("p2", None, ""):
        spec = spec_of(project_id=project)
        with pytest.raises(
            NoAggregate,
            match="No hosts are available for this tenant. Ask the operator",
        ):
            strict.apply(spec)
        assert spec == spec_of(project_id=project)


ISOLATED = (
    aggregate(
        A, **{"trait:CUSTOM_WINDOWS": "required", "trait:CUSTOM_B": "required"}
    ),
    aggregate(B, **{"trait:CUSTOM_B": "required"}),
    aggregate(C, **{"trait:CUSTOM_WINDOWS": "forbidden", "x": "required"}),
)
WINDOWS, OTHER = "trait:CUSTOM_WINDOWS", "trait:CUSTOM_B"


def test_aggregate_is_forbidden_unless_the_request_requires_each_of_its_traits() -> (
    None
):
    spec = RequestSpec(
        Flavor(vcpus=1, extra_specs={OTHER: "required"}),
        Image({WINDOWS: "required"}),
    )
    assert applied(
        pipeline("isolated_aggregates", aggregates=ISOLATED), spec
    ) == (set(), set())
    # A trait that an earlier filter requires opens one as well.
    earlier = require("CUSTOM_B", "a rule").requirements
    (item,) = isolated_aggregates(
        Request(spec_of()), aggregates=ISOLATED, required_before=earlier
    ).aggregates
    assert item.aggregates == (A,)
    assert (
        item.because
        == "reserved for requests that require other traits: CUSTOM_WINDOWS"
        " (aggregate rack-1)"
    )


NETWORKS = {
    "n1": {"s1": [A], "s2": [B, C]},
    "n2": {"s3": [C]},
    "broken": {"s4": [C], "s5": []},
    "flat": {},
}


def test_network_requires_a_host_in_an_aggregate_of_one_of_its_segments() -> (
    None
):
    some = pipeline("routed_networks", networks=NETWORKS)
    for requested, expected in (
        (NetworkRequest(None, "port", "s2"), {f"{B},{C}"}),
        (NetworkRequest(), set()),
    ):
        assert applied(some, spec_of(requested_networks=[requested])) == (
            expected,
            set(),
        )
    # A segment without an aggregate.
    for network, told in (
        (
            NetworkRequest("broken"),
            "Aggregates not found for the network 'broken'",
        ),
        (
            NetworkRequest("n1", "port", "s5"),
            "Aggregates not found for the subnet 's5'",
        ),
    ):
        with pytest.raises(
            NoAggregate, match=f"{told}. Ask the operator to check the segment"
        ):
            some.apply(spec_of(requested_networks=[network]))
    (item,) = some.apply(
        spec_of(requested_networks=[NetworkRequest("n2")])
    ).aggregates
    assert item.source == "network 'n2'"


def test_port_whose_network_and_type_the_service_does_not_give_requires_nothing_with_notes() -> (
    None
):
    some = pipeline(
        "routed_networks", "remote_managed_ports", networks=NETWORKS
    )
    notes = some.apply(
        spec_of(requested_networks=[NetworkRequest(port_id="p")])
    ).notes
    assert [(str(note), note.warn) for note in notes] == [
        (
            (
                "port 'p': the request spec has neither its network nor its"
                " subnet: not required"
            ),
            True,
        ),
        (
            "port 'p': the request spec has no VNIC type of it: not required",
            True,
        ),
    ]


def test_what_cannot_be_in_both_is_rejected_with_both_reasons(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The user reads nothing of the aggregates of others, and the operator
    all.
    """
    both = [
        aggregate(uuid, availability_zone="north", **{name: "required"})
        for uuid, name in ((A, WINDOWS), (B, OTHER))
    ]
    some = pipeline(
        "availability_zone", "isolated_aggregates", aggregates=both
    )
    spec = spec_of(availability_zone="north")
    with (
        caplog.at_level("INFO"),
        pytest.raises(ContradictingAggregates) as error,
    ):
        some.apply(spec)
    assert "zone 'north'" in str(error.value)
    assert "Rejected a request: of member_of=in:" in caplog.text
    assert (
        "isolated_aggregates: reserved for requests that require other traits)"
        in str(error.value)
    )
    for other in ("CUSTOM_WINDOWS", "rack-", A):
        assert other not in str(error.value)
        assert other in caplog.text
    assert spec == spec_of(availability_zone="north")
    answer = (
        forbid_aggregates([A], "x")
        + forbid_aggregates([B], "y")
        + require_aggregates([A, B], "z")
    )
    with pytest.raises(ContradictingAggregates, match="all: x"):
        Service((as_filter("all", lambda _request: answer),)).apply(spec)


def test_requirements_are_added_to_a_clone_of_the_destination_once() -> None:
    given = Destination(aggregates=[C], forbidden_aggregates={B}, in_tree=A)
    spec = spec_of(
        availability_zone="north", project_id="p1", requested_destination=given
    )
    rows = (*ZONES[:2], aggregate(C, **{WINDOWS: "required"}))
    some = pipeline(
        "availability_zone", "isolated_aggregates", aggregates=rows
    )
    for _ in range(2):
        some.apply(spec)
        assert spec.requested_destination == Destination(
            [C, f"{A},{B}"], {B, C}, A
        )
    assert given == Destination([C], {B}, A)


@pytest.mark.parametrize(
    "name",
    [
        "availability_zone",
        "tenant_isolation",
        "isolated_aggregates",
        "routed_networks",
    ],
)
def test_no_request_passes_before_the_fact_could_be_read(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What isolates tenants must not be open while the service cannot say what
    it is.
    """

    def fails(_context: Any) -> Any:
        raise OSError("the database is down")

    some = Service.from_names(
        name, facts={"aggregates": fails, "networks": fails}
    )
    spec = spec_of(
        availability_zone="north", requested_networks=[NetworkRequest("n")]
    )
    with pytest.raises(
        UnusableFact,
        match="The deployment fact '(aggregates|networks)' is not known yet",
    ):
        some.apply(spec)
    assert "the database is down" in caplog.text
    assert spec.requested_destination is None
    with pytest.raises(
        MissingFact,
        match=(
            "needs the fact '(aggregates|networks)'.*Pass it to"
            " Service.from_conf"
        ),
    ):
        Service.from_names(name)


_MALFORMED: list[tuple[Any, str]] = [
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


def test_malformed_aggregates_are_named_and_the_last_good_ones_stay(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for value, told in _MALFORMED:
        with pytest.raises(
            UnusableFact,
            match=f"fact 'aggregates' {told}.*Correct what the service passes",
        ):
            HostAggregates.of(value)
        some = Service.from_names(
            "availability_zone",
            facts={"aggregates": Mock(side_effect=[ZONES, value])},
        )
        caplog.clear()
        for _ in range(2):
            assert applied(some, spec_of(availability_zone="north"))[0] == {
                f"{A},{B}"
            }
            some._facts[0].expire()
        assert "Failed to read the deployment fact aggregates" in caplog.text


def test_malformed_networks_are_named() -> None:
    wrong: list[tuple[Any, str]] = [
        ([], "a list, not a mapping of networks"),
        ({"n": []}, "a list, not a mapping of subnets, at the network 'n'"),
        ({"n": {"s": A}}, f"has '{A}', not aggregates, at the subnet 's'"),
        (
            {"n": {"s": ["x&y"]}},
            "has 'x&y', not the UUID of an aggregate, at the subnet 's'",
        ),
    ]
    for value, told in wrong:
        with pytest.raises(
            UnusableFact,
            match=f"fact 'networks' .*{told}.*Correct what the service passes",
        ):
            RoutedNetworks.of(value)
    for aggregates in ([], ["x&y"], [A, "x&y"]):
        with pytest.raises(
            ValueError, match="these are not UUIDs of aggregates"
        ):
            require_aggregates(aggregates, "a filter")
    assert require_aggregates([A], "a filter").aggregates[0].names == ""
    assert (
        str(forbid_aggregates([A], "a filter").aggregates[0])
        == f"member_of=!in:{A} by  (a filter)"
    )


def test_aggregate_of_another_spelling_is_the_same_one_to_placement() -> None:
    """Placement takes both, and compares them with its own as they are: they
    would exclude no host, or each one.
    """
    fleet = example_fleet()
    rack = min(fleet.aggregates)
    with EmbeddedPlacement(fleet) as embedded:

        def hosts(name: str, uuid: str, **metadata: str) -> set[str]:
            spec = spec_of(availability_zone="north")
            pipeline(
                name,
                aggregates=[
                    {"uuid": uuid, "name": "rack", "metadata": metadata}
                ],
            ).apply(spec)
            return set(
                embedded.client.allocation_candidates(
                    allocation_candidates_query(spec)
                ).hosts
            )

        members = hosts("availability_zone", rack, availability_zone="north")
        assert members
        for spelt in (rack.upper(), rack.replace("-", "")):
            assert (
                hosts("availability_zone", spelt, availability_zone="north")
                == members
            )
            isolated = hosts(
                "isolated_aggregates",
                spelt,
                **{"trait:CUSTOM_LICENSED": "required"},
            )
            assert isolated == hosts("noop", rack) - members
