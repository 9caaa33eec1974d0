# SPDX-License-Identifier: Apache-2.0

"""Whether a cloud has nested or shared providers, by a real Placement: the
same as Placement itself finds out.
"""

from typing import Any

import pytest
from placement.objects.allocation_candidate import AllocationCandidates

from os_prefilter.adapters.placement.facts import (
    NestedProviders,
    placement_facts,
)
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.fleet.model import Fleet, Provider, provider_uuid
from tests.conftest import conf_with
from tests.support.placements import Observed, provider

_SHARES = "MISC_SHARES_VIA_AGGREGATE"
_SHARING = f"GET /traits?associated=true&name=in:{_SHARES}"
_OTHERS = "GET /resource_providers?required=%21COMPUTE_NODE"
_GPU = provider("gpu", "VGPU")


def _host(
    name: str, *children: Provider, traits: str = "COMPUTE_NODE"
) -> Provider:
    return provider(name, traits=traits, children=children)


_FLEETS: list[tuple[str, tuple[Provider, ...], bool]] = [
    ("no provider", (), False),
    ("flat", (_host("a"), _host("b")), False),
    (
        "flat, roots of another service",
        (_host("a"), provider("other", "VCPU", "OWNER_CYBORG")),
        False,
    ),
    (
        "a host that shares",
        (_host("a", traits=f"COMPUTE_NODE {_SHARES}"),),
        True,
    ),
    ("shared disk", (_host("a"), provider("nfs", "DISK_GB", _SHARES)), True),
    ("one nested", (_host("a"), _host("b", _GPU)), True),
    (
        "nested, without inventory",
        (_host("a", provider("without inventory", "")), _host("b")),
        True,
    ),
    (
        "nested below nested",
        (_host("a", provider("numa", "", children=(_GPU,))),),
        True,
    ),
    (
        "nested below a root of another service",
        (_host("a"), provider("other", "", children=(_GPU,))),
        True,
    ),
]


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [each[1:] for each in _FLEETS],
    ids=[each[0] for each in _FLEETS],
)
def test_fact_is_what_the_fleet_has_and_what_placement_finds_out_for_each_query(
    hosts: tuple[Provider, ...],
    expected: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[bool] = []
    original = AllocationCandidates._get_by_one_request

    def spy(group: Any, request: Any) -> Any:
        found.append(group.exists_sharing or group.exists_nested)
        return original(group, request)

    monkeypatch.setattr(
        AllocationCandidates, "_get_by_one_request", staticmethod(spy)
    )
    fleet = Fleet(hosts)
    with EmbeddedPlacement(fleet) as placement:
        assert NestedProviders(placement.client)() is expected
        placement.client.allocation_candidates("resources=VCPU:1")
    assert fleet.has_nested_providers is expected
    # Where no provider has a VCPU, Placement does not get so far.
    assert found == [expected] * bool(hosts)


def test_answers_stay_short_while_the_nested_provider_that_was_found_exists() -> (
    None
):
    with EmbeddedPlacement(Fleet((_host("a", _GPU), _host("b")))) as placement:
        observed = Observed(placement)
        fact = NestedProviders(observed.client)
        assert [fact(), fact()] == [True, True]
        again = f"GET /resource_providers?uuid={_GPU.uuid}"
        assert observed.sent == [_SHARING, _OTHERS, _SHARING, again]
        placement.client.request("DELETE", f"/resource_providers/{_GPU.uuid}")
        assert [fact(), fact()] == [False, False]
        assert observed.sent[4:] == [
            _SHARING,
            again,
            _OTHERS,
            _SHARING,
            _OTHERS,
        ]


def test_tree_of_a_compute_node_spares_the_list_of_all_nested_providers() -> (
    None
):
    """One of a cell that was deleted since has no tree."""
    with EmbeddedPlacement(Fleet((_host("a", _GPU), _host("b")))) as placement:
        observed, uuids = (
            Observed(placement),
            [provider_uuid(name) for name in ("gone", "a", "b")],
        )
        assert placement_facts(conf_with(), observed.client, iter)[
            "nested_providers"
        ](uuids)
        assert observed.sent == [
            _SHARING,
            *(f"GET /resource_providers?in_tree={uuid}" for uuid in uuids[:2]),
        ]
        # Without a nested provider there, the list decides.
        assert NestedProviders(observed.client, iter)(uuids[2:])
        assert observed.sent[-1] == _OTHERS
