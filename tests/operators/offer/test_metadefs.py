# SPDX-License-Identifier: Apache-2.0

"""The metadata definitions have exactly the offered values, and nothing that
Glance or Horizon could stumble over.
"""

import json
from typing import Any

import pytest

from os_prefilter_tools.cli.filters_and_hosts import FiltersAndHosts
from os_prefilter_tools.fleet.model import Fleet
from os_prefilter_tools.fleet.reader import example_fleet
from os_prefilter_tools.operators.offer.metadefs import (
    FLAVORS,
    IMAGES,
    namespaces,
)
from os_prefilter_tools.operators.offer.offered_values import (
    Offer,
    Property,
    Status,
    Value,
    find_offer,
)


def _offer_of(fleet: Fleet) -> Offer:
    return find_offer(fleet, FiltersAndHosts().service(fleet))


def _one(*values: Value, any_text: bool = False, name: str = "hw_a") -> Any:
    return namespaces(Offer((Property(name, "", "", values, any_text),), 1))[
        0
    ]["properties"].get(name)


def test_definitions_list_exactly_the_offered_values_of_the_example_fleet() -> (
    None
):
    """And those that require nothing; each under its image property and its
    extra spec.
    """
    found = _offer_of(example_fleet())
    wanted: dict[str, dict[str, list[str]]] = {IMAGES: {}, FLAVORS: {}}
    for each in found.properties:
        values = [
            value.value
            for value in each.values
            if value.status in (Status.OFFERED, Status.REQUIRES_NOTHING)
        ]
        for namespace, name in (
            (IMAGES, each.image_property),
            (FLAVORS, each.extra_spec),
        ):
            if name and values:
                wanted[namespace][name] = (
                    [] if name == "accel:device_profile" else values
                )
    assert wanted == {
        made["namespace"]: {
            key: each.get("enum", [])
            for key, each in made["properties"].items()
        }
        for made in namespaces(found)
    }
    assert {
        status
        for each in found.properties
        for status in (value.status for value in each.values)
    } == set(Status)
    assert "disk_format" not in wanted[IMAGES]


def test_definitions_of_the_example_fleet_name_no_host_and_are_texts() -> None:
    fleet = example_fleet()
    found = namespaces(_offer_of(fleet))
    text = json.dumps(found)
    names = {each.name for each in fleet.walk()} | {
        trait for each in fleet.walk() for trait in each.traits
    }
    assert len(names) > 20
    assert not [name for name in names if name in text]
    # Horizon writes "null" for a checkbox that was not clicked.
    assert {
        each["type"] for made in found for each in made["properties"].values()
    } == {"string"}


@pytest.mark.parametrize("name", ["a/b", "\u00e4", "..", "a\n", "a" * 81])
def test_property_whose_name_glance_cannot_address_is_left_out(
    name: str,
) -> None:
    """PUT and DELETE /v2/metadefs/namespaces/NAMESPACE/properties/NAME would
    not find it, or another thing.
    """
    assert _one(Value("a", Status.OFFERED), name=name) is None


def test_values_have_their_reasons_as_description_and_any_text_has_no_list() -> (
    None
):
    values = (
        Value("true", Status.OFFERED),
        Value("false", Status.REQUIRES_NOTHING, "it is always possible"),
    )
    described = {
        "description": "false: it is always possible.",
        "enum": ["true", "false"],
    }
    assert _one(*values) == {"title": "hw_a", "type": "string", **described}
    assert _one(Value("any", Status.OFFERED), any_text=True) == {
        "title": "hw_a",
        "type": "string",
    }
    for status, any_text in (
        (Status.NOT_OFFERED, True),
        (Status.NOT_OFFERED, False),
        (Status.NOT_CHECKED, False),
    ):
        assert _one(Value("any", status), any_text=any_text) is None


def test_namespace_without_values_has_no_resource_type() -> None:
    """It stays in Glance; Horizon looks for namespaces of a resource type."""
    found = namespaces(Offer((), 1))
    assert all(
        (each["properties"], each["resource_type_associations"]) == ({}, [])
        for each in found
    )
