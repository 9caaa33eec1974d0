# SPDX-License-Identifier: Apache-2.0

"""Laws of the query, by hypothesis: it is always one that Placement reads, and
each part of it was asked for.
"""

from __future__ import annotations

import copy

import os_traits
from hypothesis import HealthCheck, given, settings

from os_prefilter import RequestSpec, allocation_candidates_query
from os_prefilter.adapters.placement.client import PlacementClient
from os_prefilter.common.errors import RequestRejected
from os_prefilter.request.resources import unsuffixed_resources
from os_prefilter.request.view import Request
from os_prefilter.service.loading import installed_filters
from os_prefilter_tools.testing.generated import any_request
from tests.conftest import pipeline_of, times
from tests.support.queries import parts, traits_in, traits_required

_ALL = pipeline_of(*installed_filters())
_ANY = any_request()
_GENERATED = settings(
    deadline=None,
    # The oldest hypothesis counts requests that are too long to generate.
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.function_scoped_fixture,
    ],
)


def _query(spec: RequestSpec) -> str | None:
    try:
        _ALL.apply(spec)
        return allocation_candidates_query(spec)
    except RequestRejected as error:
        assert str(error).isprintable()
        return None


@settings(_GENERATED, max_examples=times(40))
@given(_ANY)
def test_query_has_exactly_the_required_traits_and_requested_resources(
    spec: RequestSpec,
) -> None:
    """Traits: those of the request itself and of the filters, each in its
    place. Resources: those of each group.
    """
    query = _query(spec)
    if query is None:
        return
    assert traits_in(query) == traits_required(spec)
    asked: dict[str, dict[str, int]] = {
        suffix: dict(group.resources)
        for suffix, group in Request(spec).flavor_groups.items()
    }
    asked |= {
        group.requester_id: dict(group.resources)
        for group in spec.requested_resources
    }
    asked[""] = unsuffixed_resources(Request(spec))
    wanted = {
        f"resources{suffix}": {
            f"{name}:{amount}" for name, amount in resources.items() if amount
        }
        for suffix, resources in asked.items()
        if any(resources.values())
    }
    assert {
        name: set(value.split(","))
        for name, value in parts(query)
        if name.startswith("resources")
    } == wanted


@settings(_GENERATED, max_examples=times(40))
@given(_ANY)
def test_filters_never_change_the_amount_of_a_resource_class(
    spec: RequestSpec,
) -> None:
    """The sum of each resource class over all groups is what it was before."""
    try:
        before = _amounts(allocation_candidates_query(copy.deepcopy(spec)))
    except RequestRejected:
        return
    query = _query(spec)
    if query is not None:
        assert _amounts(query) == before


def _amounts(query: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, value in parts(query):
        if name.startswith("resources"):
            for each in value.split(","):
                resource_class, _, amount = each.partition(":")
                found[resource_class] = found.get(resource_class, 0) + int(
                    amount
                )
    return found


@settings(_GENERATED, max_examples=times(15))
@given(_ANY)
def test_placement_accepts_every_query_whose_groups_request_resources(
    placement: PlacementClient, spec: RequestSpec
) -> None:
    """No answer but candidates: where each group asks for a resource, the
    query is never a 400.

    Except, as in Nova, where a flavor writes two groups and does not say by
    ``group_policy`` how they go together.
    """
    query = _query(spec)
    groups = {
        name for name, _ in parts(query or "") if name.startswith("required")
    }
    if query is None or any(
        f"resources{name.removeprefix('required')}" not in query
        for name in groups
    ):
        return
    if (
        len(Request(spec).flavor_groups.keys() - {""}) > 1
        and "group_policy=" not in query
    ):
        return
    traits = {item.trait for item in traits_in(query)}
    custom = {trait for trait in traits if trait.startswith("CUSTOM_")}
    if not traits - custom <= {*os_traits.get_traits()}:
        # An older Placement refuses a standard trait of a newer os-traits.
        return
    placement.ensure_traits(custom)
    placement.request("PUT", "/resource_classes/CUSTOM_IRON")
    assert placement.allocation_candidates(query).count >= 0
