# SPDX-License-Identifier: Apache-2.0

"""Whether a cloud has nested or shared providers, by a real Placement."""

from __future__ import annotations

from typing import Any

import pytest
from placement.objects.allocation_candidate import AllocationCandidates

from os_prefilter.adapters.placement.facts import (
    CloudPlacement,
    PlacementFacts,
)
from os_prefilter.vocabulary.options import Options
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.fleet.model import Fleet, Provider, provider_uuid
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
        assert PlacementFacts(placement.client).nested_providers() is expected
        placement.client.allocation_candidates("resources=VCPU:1")
    assert fleet.has_nested_providers is expected
    # Where no provider has a VCPU, Placement does not get so far.
    assert found == ([expected] if hosts else [])


def _take(observed: Observed) -> list[str]:
    """Return the requests since the last call."""
    sent = list(observed.sent)
    observed.sent.clear()
    return sent


def test_responses_stay_short_while_the_nested_provider_that_was_found_exists() -> (
    None
):
    with EmbeddedPlacement(Fleet((_host("a", _GPU), _host("b")))) as placement:
        observed = Observed(placement)
        fact = PlacementFacts(observed.client).nested_providers
        again = f"GET /resource_providers?uuid={_GPU.uuid}"
        assert fact()
        assert _take(observed) == [_SHARING, _OTHERS]
        assert fact()
        assert _take(observed) == [_SHARING, again]
        placement.client.request("DELETE", f"/resource_providers/{_GPU.uuid}")
        assert not fact()
        assert _take(observed) == [_SHARING, again, _OTHERS]
        assert not fact()
        assert _take(observed) == [_SHARING, _OTHERS]


def test_tree_of_a_compute_node_spares_the_list_of_all_nested_providers() -> (
    None
):
    """One of a cell that was deleted since has no tree."""
    with EmbeddedPlacement(Fleet((_host("a", _GPU), _host("b")))) as placement:
        observed = Observed(placement)
        gone, nested, flat = map(provider_uuid, ("gone", "a", "b"))
        reader = CloudPlacement(observed.client, iter).facts((), (), Options())
        assert reader.nested_providers([gone, nested, flat])
        assert observed.sent == [
            _SHARING,
            f"GET /resource_providers?in_tree={gone}",
            f"GET /resource_providers?in_tree={nested}",
        ]
        # Without a nested provider there, the list decides.
        reader = CloudPlacement(observed.client, iter).facts((), (), Options())
        assert reader.nested_providers([flat])
        assert observed.sent[-1] == _OTHERS
