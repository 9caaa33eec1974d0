# SPDX-License-Identifier: Apache-2.0

"""What the lists say of Nova's image properties is what its class does."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from nova.objects import fields
from nova.objects.image_meta import ImageMetaProps

from os_prefilter import allocation_candidates_query, unsupported
from os_prefilter.common.errors import RequestRejected
from os_prefilter.request.view import Request
from os_prefilter.rules.conditions import (
    IMAGE_PROPERTY,
    RuleSubject,
    as_nova_spells,
    readings,
)
from os_prefilter.vocabulary import ROWS
from os_prefilter.vocabulary.image_properties import (
    BOOLEANS,
    KEPT_BY_NOVA,
    LEGACY_NAMES,
    LISTS,
    LOWER_CASED,
)
from os_prefilter.vocabulary.model import Row
from os_prefilter_tools.testing.law import list_requiring_filters
from tests.conftest import pipeline_of, spec_of
from tests.support.hosts import KVM
from tests.support.nova_objects import nova_spec


def test_properties_that_nova_keeps_booleans_and_legacy_names_are_those_of_image_meta_props() -> (
    None
):
    booleans = {
        name
        for name, each in ImageMetaProps.fields.items()
        if isinstance(each, fields.FlexibleBooleanField)
    }
    assert set(ImageMetaProps.fields) - LISTS == KEPT_BY_NOVA
    assert booleans == BOOLEANS
    assert ImageMetaProps._legacy_property_map == LEGACY_NAMES
    for row in ROWS:
        assert {LEGACY_NAMES[name] for name in row.legacy_names} <= {
            row.image_property
        }


def valid_values(name: str) -> list[str]:
    """Return the values of the enumeration that Nova has for an image
    property; none without one.
    """
    kind: Any = ImageMetaProps.fields[name]
    kind = getattr(kind, "AUTO_TYPE", None) or kind._type
    return [str(value) for value in getattr(kind, "_valid_values", None) or ()]


def test_property_value_is_normalized_as_nova_normalizes_it() -> None:
    """Each value of each enumeration, in capitals and not; what Nova refuses
    cannot be in a request.
    """
    for name, values in (
        (name, valid_values(name))
        for name in KEPT_BY_NOVA
        if valid_values(name)
    ):
        for spelling in {
            spelt
            for value in values
            for spelt in (value, value.upper(), value.lower())
        }:
            with suppress(ValueError):
                kept = ImageMetaProps.from_dict({name: spelling}).get(name)
                assert as_nova_spells(name, spelling) == kept
        if name in LOWER_CASED:
            assert (
                ImageMetaProps.from_dict({name: values[0].upper()}).get(name)
                == values[0]
            )


_SEEN: list[tuple[str, str, list[object]]] = [
    # A free text stays as it is, a boolean becomes one, a number becomes a
    # number.
    ("os_distro", "Windows", ["Windows"]),
    ("os_type", "Windows", ["windows"]),
    ("os_require_quiesce", "yes", [True]),
    ("hw_cpu_cores", "4", ["4"]),
    ("hw_cpu_cores", "1", ["1", True]),
    ("hw_vif_model", "VirtualE1000", ["e1000"]),
    # Gone.
    ("licence", "windows", []),
    ("os_version", "11", []),
]


def test_values_a_rule_sees_inside_nova_are_also_seen_in_the_glance_image() -> (
    None
):
    """The same as of the image that Glance has, if Nova keeps the property at
    all.
    """
    for name, value, seen in _SEEN:
        inside, outside = (
            Request(make({name: value})).image_property(name)
            for make in (nova_spec, spec_of)
        )
        assert readings(IMAGE_PROPERTY, name, inside) == seen
        if seen:
            found = readings(IMAGE_PROPERTY, name, outside)
            assert [each for each in found if each in seen] == seen
        assert bool(seen) == (name in KEPT_BY_NOVA)
    for adapter in (
        "ide",
        "lsiLogic",
        "lsiLogicsas",
        "busLogic",
        "paraVirtual",
    ):
        theirs, ours = (
            Request(make({"vmware_adaptertype": adapter}))
            for make in (nova_spec, spec_of)
        )
        for name in ("hw_disk_bus", "hw_scsi_model"):
            expected = readings(
                IMAGE_PROPERTY, name, theirs.image_property(name)
            )
            assert (
                readings(IMAGE_PROPERTY, name, ours.image_property(name))
                == expected
            ), adapter


_NO_BOOLEANS: tuple[object, ...] = (
    "junk",
    "",
    "2.0",
    7,
    1.0,
    ["true"],
    b"true",
    {},
)
_FILTERS = tuple(
    sorted(
        name for name in list_requiring_filters() if name != "deploy_config"
    )
)


def _outcomes(spec: Any) -> list[object]:
    """Return what filters, late check and query make of a request: their
    results, or the error.
    """
    found: list[object] = []
    for outcome in (
        lambda: (
            pipeline_of(*_FILTERS, unknown_values="reject")
            .apply(spec)
            .requirements
        ),
        lambda: [str(item) for item in unsupported(spec, KVM)],
        lambda: allocation_candidates_query(spec),
    ):
        try:
            found.append(outcome())
        except RequestRejected as error:
            found.append(str(error))
    return found


@pytest.mark.parametrize("value", _NO_BOOLEANS, ids=repr)
@pytest.mark.parametrize(
    "row",
    [row for row in ROWS if row.boolean and row.image_property],
    ids=lambda row: row.name,
)
def test_boolean_property_that_spells_none_is_false_as_in_nova(
    row: Row, value: object
) -> None:
    """In requests, where the flavor says the opposite as well."""
    name = str(row.image_property)
    beside = {"hw_firmware_type": "uefi"}
    for extra_specs in (
        {},
        {row.extra_spec: "true"} if row.extra_spec else {},
    ):
        inside = nova_spec({**beside, name: value}, dict(extra_specs))
        outside = spec_of(
            {**beside, name: value}, dict(extra_specs), disk_format="qcow2"
        )
        assert _outcomes(inside) == _outcomes(outside)


def test_boolean_property_that_spells_none_is_false_for_rules() -> None:
    for name in BOOLEANS:
        for value in _NO_BOOLEANS:
            for spec in (nova_spec({name: value}), spec_of({name: value})):
                subject = RuleSubject(Request(spec))
                assert readings(
                    IMAGE_PROPERTY,
                    name,
                    subject.value_of(IMAGE_PROPERTY, name),
                ) == [False], (name, value)
