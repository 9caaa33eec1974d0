# SPDX-License-Identifier: Apache-2.0

"""Facts of a real Placement: exact, in few requests, the same by JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from random import Random
from typing import Any

import pytest

from os_prefilter.adapters.placement.facts import (
    CloudPlacement,
    PlacementFacts,
)
from os_prefilter.hosts.marker_traits import (
    REPORTED,
    TraitGroup,
    keys_in,
    names_with,
)
from os_prefilter.request.filter_contract import UNKNOWN
from os_prefilter.service import Service
from os_prefilter.service.deferral import Unreported
from os_prefilter.service.deployment_facts import Fact, versions_of
from os_prefilter.service.facts_from_conf import facts_from
from os_prefilter.service.shared import InheritedStore, MakeStore
from os_prefilter.service.traits_to_report import wanted_groups
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.fleet.model import Fleet
from os_prefilter_tools.operators.readiness import (
    configured_filters,
    reports_of,
)
from tests.conftest import conf_with, spec_of, times
from tests.support.every_trait import EVERY_GROUP, marker_of
from tests.support.placements import Observed, answering, provider, put_traits
from tests.support.reporting_fleets import RECOMMENDED, fleet_of, wanted_by

_HPET = "CUSTOM_COMPUTE_TIME_HPET"
_MACHINES = "CUSTOM_COMPUTE_MACHINE_PC"
_GROUPS = tuple(
    group for group in EVERY_GROUP if group.traits & {_HPET, _MACHINES}
)
_ALL = marker_of(_HPET, _MACHINES)
_ONE = marker_of(_HPET)
_OTHER = marker_of(_MACHINES)
_EVERY_KEY = sorted(key for group in EVERY_GROUP for key in group.keys)
_TRAITS = sorted({trait for group in EVERY_GROUP for trait in group.traits})
_IN_USE = "GET /traits?associated=true"
_NODES = "GET /resource_providers?required=COMPUTE_NODE"


def _random_fleet(seed: int) -> Fleet:
    random = Random(seed)  # noqa: S311 - the same each time
    nodes = []
    for _ in range(random.randint(1, 6)):
        share = random.choice((0.0, 0.05, 0.3))
        traits = {trait for trait in _TRAITS if random.random() < share}
        if random.random() < 0.7:
            number = random.choice((20, 60, 100, len(_EVERY_KEY)))
            keys = random.sample(_EVERY_KEY, number)
            traits.update(names_with(REPORTED, keys))
        nodes.append(traits)
    bridge = provider(
        "br0", "NET_BW_EGR_KILOBIT_PER_SEC", "CUSTOM_VNIC_TYPE_NORMAL"
    )
    others = provider("neutron", "", "", (bridge,))
    return Fleet((*fleet_of(nodes).hosts, others))


def test_a_part_is_reported_if_and_only_if_every_compute_node_has_reported_it() -> (
    None
):
    """By Placement, by the fleet, and by looking at each host."""
    states = set()
    for seed in range(times(3)):
        fleet = _random_fleet(seed)
        with EmbeddedPlacement(fleet) as placement:
            by_placement = PlacementFacts(
                placement.client, groups=EVERY_GROUP
            ).reports()
        by_fleet = reports_of(fleet, EVERY_GROUP)
        assert by_placement == by_fleet
        assert by_placement.in_use == by_fleet.in_use
        reported = {
            host.name: host.traits | keys_in(REPORTED, host.traits)
            for host in fleet.hosts
            if "COMPUTE_NODE" in host.traits
        }
        for group in EVERY_GROUP:
            signs = group.keys | group.implied_by
            silent = [
                name
                for name, found in reported.items()
                if found.isdisjoint(signs)
            ]
            states.add(bool(silent))
            expected = Unreported.of(silent)
            for trait in group.traits:
                assert by_placement.unreported[trait] == expected, group
    assert states == {False, True}


_SENT = [
    # (the traits of the compute nodes, the requests)
    ([{_ALL}, {_ALL}], [_IN_USE, f"{_NODES}%2C%21{_ALL}"]),
    ([], [_IN_USE, _NODES]),
    ([set()] * 3, [_IN_USE, _NODES, _IN_USE]),
    (
        [{_ONE}, {_OTHER}],
        [_IN_USE, f"{_NODES}%2C%21{_ONE}", f"{_NODES}%2C%21{_OTHER}", _IN_USE],
    ),
    (
        [{_HPET}, {_ALL}],
        [
            _IN_USE,
            f"{_NODES}%2C%21{_ALL}",
            f"{_NODES}%2C%21{_HPET}%2C%21{_ALL}",
            _IN_USE,
        ],
    ),
]


@pytest.mark.parametrize(
    ("nodes", "sent"),
    _SENT,
    ids=["all reported", "no node", "none reported", "one each", "by trait"],
)
def test_reading_sends_no_query_for_traits_that_no_provider_has(
    nodes: Sequence[set[str]], sent: list[str]
) -> None:
    """Placement refuses a query with a trait that it does not know."""
    with EmbeddedPlacement(fleet_of(nodes)) as placement:
        observed = Observed(placement)
        PlacementFacts(observed.client, groups=_GROUPS).reports()
    assert observed.sent[0] == sent[0]
    assert observed.sent[-1] == sent[-1]
    assert sorted(observed.sent) == sorted(sent)


@pytest.mark.parametrize("before", [_ALL, _OTHER], ids=["more", "others"])
def test_host_whose_marker_changes_between_two_requests_has_reported(
    before: str,
) -> None:
    """Its new marker is not in use at the first request."""
    with EmbeddedPlacement(fleet_of([{before}, {_ALL}])) as placement:
        placement.know([_ONE])

        def change(_method: str, url: str) -> None:
            if "resource_providers?" not in url:
                return
            if _ONE not in placement.client.traits_in_use():
                put_traits(placement, replace, "host-0")

        def replace(traits: set[str]) -> None:
            traits.remove(before)
            traits.add(_ONE)

        found = PlacementFacts(
            Observed(placement, change).client, groups=_GROUPS
        ).reports()
    assert found == reports_of(fleet_of([{_ONE}, {_ALL}]), _GROUPS)
    assert found.unreported[_HPET].number == 0


def _many_markers() -> list[set[str]]:
    keys = [{*_GROUPS[1].keys, *_EVERY_KEY[at : at + 40]} for at in range(40)]
    return [set(names_with(REPORTED, each)) for each in keys]


@pytest.mark.parametrize(
    ("markers", "groups"),
    [
        (
            [set(names_with(REPORTED, wanted_by()))],
            wanted_groups(*configured_filters(conf_with(**RECOMMENDED))),
        ),
        (_many_markers(), _GROUPS),
    ],
    ids=["one set of markers", "many sets"],
)
def test_reading_takes_at_most_one_request_for_each_part_and_marker_and_each_fits_any_web_server(
    markers: list[set[str]], groups: Sequence[TraitGroup]
) -> None:
    fleet = fleet_of([*markers, set(_TRAITS), set()] * 3)
    with EmbeddedPlacement(fleet) as placement:
        observed = Observed(placement)
        found = PlacementFacts(observed.client, groups=groups).reports()
    assert found == reports_of(fleet, groups)
    most = len(groups) + sum(map(len, markers)) + 2
    assert 4 <= len(observed.sent) <= most
    assert max(map(len, observed.sent)) < 4096


_OURS: dict[str, Any] = {
    "enabled_filters": ["image_metadata", "owner"],
    # Which the others do not want reported.
    "reported_traits": ["CUSTOM_VM_MODE_EXE"],
}
_OTHERS = {
    **_OURS,
    "owner_trait": "CUSTOM_OWNER_US",
    "reported_traits": ["CUSTOM_VM_MODE_HVM"],
}


def _fact_of(client: Any, stores: Iterable[MakeStore], **options: Any) -> Fact:
    """Return the fact of Placement of a new process with these options."""
    filters, found = configured_filters(conf_with(**options))
    facts = facts_from(
        conf_with(**options),
        found,
        {},
        filters,
        placement=CloudPlacement(client),
        stores=stores,
    )
    return facts["reports"]


def _values(fact: Fact) -> Mapping[str, Any]:
    versions_of([fact])
    return fact.values()


@pytest.mark.parametrize(
    ("options", "is_other"),
    [(_OURS, False), (_OTHERS, True)],
    ids=["ours", "others"],
)
def test_what_one_process_has_read_is_the_same_for_another_with_these_options(
    options: dict[str, Any], is_other: bool
) -> None:
    """They share stores with a process that has other options."""
    stores = (cache(InheritedStore),)
    options_of_others = _OURS if is_other else _OTHERS
    traits = {"CUSTOM_OWNER_US", *names_with(REPORTED, wanted_by(**_OTHERS))}
    with EmbeddedPlacement(fleet_of([traits])) as placement:
        observed = Observed(placement)
        _values(_fact_of(observed.client, stores, **options_of_others))
        values = _values(_fact_of(observed.client, stores, **options))
        reader = CloudPlacement(placement.client).facts(
            (), *configured_filters(conf_with(**options))
        )
        assert vars(values["reports"]) == vars(reader.reports())
        observed.hook = answering((500, {}))
        again = _values(_fact_of(observed.client, stores, **options))
        assert again == values
    assert values["owner_is_reported"] is is_other
    assert any(values["reports"].unreported.values()) is not is_other


def test_what_one_process_has_read_stays_where_others_read_with_other_options() -> (
    None
):
    stores = (cache(InheritedStore),)
    traits = {"CUSTOM_OWNER_US", *names_with(REPORTED, wanted_by(**_OTHERS))}
    with EmbeddedPlacement(fleet_of([traits])) as placement:
        observed = Observed(placement)
        ours = _values(_fact_of(observed.client, stores, **_OURS))
        others = _values(_fact_of(observed.client, stores, **_OTHERS))
        observed.hook = answering((500, {}))
        assert _values(_fact_of(observed.client, stores, **_OURS)) == ours
        assert _values(_fact_of(observed.client, stores, **_OTHERS)) == others


_NEEDED: list[tuple[dict[str, Any], set[str]]] = [
    # (options, the facts that are read)
    ({"enabled_filters": []}, set()),
    (
        {"enabled_filters": ["hpet"]},
        {"known_traits", "nested_providers", "reports"},
    ),
    (
        {"enabled_filters": ["owner"]},
        {"known_traits", "nested_providers", "owner_is_reported", "reports"},
    ),
    (
        {"enabled_filters": ["owner"], "wait_for_reports": False},
        {"known_traits", "nested_providers"},
    ),
    (
        {"enabled_filters": ["hpet"], "trait_scope": "root"},
        {"known_traits", "reports"},
    ),
]


@pytest.mark.parametrize(("options", "expected"), _NEEDED, ids=range(5))
def test_only_facts_that_the_filters_and_options_need_are_read(
    options: dict[str, Any], expected: set[str]
) -> None:
    with EmbeddedPlacement(fleet_of([set()])) as placement:
        service = Service.from_conf(
            conf_with(**options), placement=CloudPlacement(placement.client)
        )
        service.apply(spec_of())
    facts = service.facts.values()
    (read,) = {
        frozenset(each.values()) for each in facts if each.name == "placement"
    } or {frozenset()}
    assert read == expected


def test_fact_of_the_embedding_service_takes_the_place_of_placements() -> None:
    with EmbeddedPlacement(fleet_of([set()])) as placement:
        service = Service.from_conf(
            conf_with(enabled_filters=["hpet"], trait_scope="auto"),
            {"nested_providers": lambda _context: "no boolean"},
            placement=CloudPlacement(placement.client),
        )
        service.apply(spec_of())
    assert service.facts["nested_providers"].latest is UNKNOWN
    values = service.facts["reports"].values()
    assert values.keys() == {"known_traits", "reports"}


def test_part_that_fails_makes_the_whole_reading_fail_and_all_values_stay(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "os_prefilter.service.deployment_facts")
    with EmbeddedPlacement(fleet_of([set()])) as placement:
        observed = Observed(placement)
        names = ("known_traits", "nested_providers", "reports")
        reader = PlacementFacts(observed.client, names, _GROUPS)
        fact = Fact(
            "placement", reader, 60, make=reader.values, names=reader.names
        )
        values = _values(fact)
        before = fact.version
        caplog.clear()
        placement.know(["CUSTOM_NEW"])
        observed.hook = answering((503, {}), "resource_providers")
        fact.expire()
        assert _values(fact) is values
        observed.hook = answering(None)
        fact.expire()
        assert "CUSTOM_NEW" in _values(fact)["known_traits"]
    assert fact.version == before + 1
    failed, again, *changed = [each.getMessage() for each in caplog.records]
    assert failed.startswith("Failed to read the deployment fact placement (")
    assert "keeping {" in failed
    assert "'reports': <not reported: " in failed
    assert again == "The deployment fact placement can be read again."
    # And no line for the facts that are the same.
    number = len(values["known_traits"])
    assert changed == [
        f"The deployment fact known_traits is now <{number + 1} traits> (was"
        f" <{number} traits>)."
    ]


_GROUPS_READ = [[0]] * len(
    wanted_groups(*configured_filters(conf_with(**_OURS)))
)
_DOCUMENT = {
    "reports": [_GROUPS_READ, ["COMPUTE_NODE"]],
    "known_traits": ["COMPUTE_NODE"],
    "nested_providers": False,
}


@pytest.mark.parametrize(
    ("name", "document"),
    [
        ("reports", [[], []]),
        ("reports", [_GROUPS_READ, ["a b"]]),
        ("reports", [[[1], *_GROUPS_READ[1:]], []]),
        ("reports", [[[True, "h"], *_GROUPS_READ[1:]], []]),
        ("reports", [[[0, "h"], *_GROUPS_READ[1:]], []]),
        ("known_traits", None),
        ("known_traits", {"COMPUTE_NODE": 1}),
        ("known_traits", [1]),
        ("known_traits", ["COMPUTE_NODE", "a b"]),
        ("known_traits", ["HW_CPU_X86_VMX"]),
        ("nested_providers", None),
        ("nested_providers", 1),
        ("nested_providers", "true"),
    ],
    ids=range(13),
)
def test_wrong_document_of_another_process_is_refused(
    name: str, document: Any
) -> None:
    client: Any = None
    reader = PlacementFacts(
        client,
        _DOCUMENT,
        wanted_groups(*configured_filters(conf_with(**_OURS))),
    )
    assert reader.values(_DOCUMENT).keys() == _DOCUMENT.keys()
    with pytest.raises((TypeError, ValueError)):
        reader.values({**_DOCUMENT, name: document})


def test_document_without_a_fact_is_refused() -> None:
    client: Any = None
    reader = PlacementFacts(client, _DOCUMENT)
    with pytest.raises((KeyError, ValueError)):
        reader.values({})
