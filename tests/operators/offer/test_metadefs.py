# SPDX-License-Identifier: Apache-2.0

"""Metadata definitions: the offered values, as Glance and Horizon take them."""

from __future__ import annotations

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
    """Return the definition of one image property; None if it has none."""
    each = Property(name, "", "", values, any_text)
    return namespaces(Offer((each,), 1))[0]["properties"].get(name)


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
        if values and each.image_property:
            wanted[IMAGES][each.image_property] = values
        if values and each.extra_spec:
            wanted[FLAVORS][each.extra_spec] = values
    # Any text is a device profile.
    wanted[FLAVORS]["accel:device_profile"] = []
    for made in namespaces(found):
        listed = {
            key: each.get("enum", [])
            for key, each in made["properties"].items()
        }
        assert listed == wanted.pop(made["namespace"])
    assert wanted == {}


def test_example_fleet_has_values_of_each_status() -> None:
    found = _offer_of(example_fleet())
    statuses = {
        value.status for each in found.properties for value in each.values
    }
    assert statuses == set(Status)


def test_disk_format_is_no_image_property() -> None:
    images, _ = namespaces(_offer_of(example_fleet()))
    assert "disk_format" not in images["properties"]


def test_definitions_of_the_example_fleet_name_no_host_and_are_texts() -> None:
    fleet = example_fleet()
    found = namespaces(_offer_of(fleet))
    text = json.dumps(found)
    names = fleet.traits | {each.name for each in fleet.walk()}
    kinds = {
        each["type"] for made in found for each in made["properties"].values()
    }
    assert len(names) > 20
    assert not [name for name in names if name in text]
    # Horizon writes "null" for a checkbox that was not clicked.
    assert kinds == {"string"}


@pytest.mark.parametrize(
    "name",
    ["a/b", "\u00e4", "..", "a\n", "a" * 81],
    ids=["slash", "umlaut", "dots", "line break", "long"],
)
def test_property_whose_name_glance_cannot_address_is_left_out(
    name: str,
) -> None:
    """PUT and DELETE /v2/metadefs/namespaces/NAMESPACE/properties/NAME would
    not find it, or another thing.
    """
    assert _one(Value("a", Status.OFFERED), name=name) is None


def test_values_have_their_reasons_as_description() -> None:
    offered = Value("true", Status.OFFERED)
    reason = "it is always possible"
    assert _one(offered, Value("false", Status.REQUIRES_NOTHING, reason)) == {
        "title": "hw_a",
        "type": "string",
        "description": "false: it is always possible.",
        "enum": ["true", "false"],
    }


def test_any_text_has_no_list_of_values() -> None:
    found = _one(Value("any", Status.OFFERED), any_text=True)
    assert found == {"title": "hw_a", "type": "string"}


@pytest.mark.parametrize(
    ("status", "any_text"),
    [
        (Status.NOT_OFFERED, True),
        (Status.NOT_OFFERED, False),
        (Status.NOT_CHECKED, False),
    ],
    ids=["any text", "not offered", "not checked"],
)
def test_property_without_offered_values_has_no_definition(
    status: Status, any_text: bool
) -> None:
    assert _one(Value("any", status), any_text=any_text) is None


def test_namespace_without_values_has_no_resource_type() -> None:
    """It stays in Glance; Horizon looks for namespaces of a resource type."""
    for each in namespaces(Offer((), 1)):
        assert each["properties"] == {}
        assert each["resource_type_associations"] == []
