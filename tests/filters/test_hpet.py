# SPDX-License-Identifier: Apache-2.0

"""hpet: the timer by property, or by the explicit trait; never both with
different values.
"""

import pytest

from os_prefilter.common.errors import FlavorImageConflict
from os_prefilter.vocabulary import HPET
from tests.conftest import (
    ExtraSpecs,
    Properties,
    pipeline_of,
    required_by,
    spec_of,
)

_HPET = f"trait:{HPET}"
_REQUIRED: dict[str, tuple[Properties, ExtraSpecs]] = {
    "text": ({"hw_time_hpet": "true"}, {}),
    "boolean": ({"hw_time_hpet": True}, {}),
    "number": ({"hw_time_hpet": 1}, {}),
    "trait of the image": ({_HPET: "required"}, {}),
    "trait of the flavor": ({}, {_HPET: "required"}),
    "property and trait": ({"hw_time_hpet": "on"}, {_HPET: "required"}),
    "trait of a group of the host": (
        {},
        {"resources1:VCPU": "1", f"trait1:{HPET}": "required"},
    ),
    "forbidden on a device": (
        {"hw_time_hpet": "on"},
        {"resources_gpu:VGPU": "1", f"trait_gpu:{HPET}": "forbidden"},
    ),
    "forbidden on another provider of the host": (
        {"hw_time_hpet": "on"},
        {
            "resources1:MEM_ENCRYPTION_CONTEXT": "1",
            f"trait1:{HPET}": "forbidden",
        },
    ),
}
_NOT_REQUIRED: dict[str, tuple[Properties, ExtraSpecs]] = {
    "nothing": ({}, {}),
    "switched off": ({"hw_time_hpet": "false"}, {}),
    "trait of a device": (
        {},
        {"resources1:VGPU": "1", f"trait1:{HPET}": "required"},
    ),
    "switched off, and required of a device": (
        {"hw_time_hpet": "off"},
        {"resources_gpu:VGPU": "1", f"trait_gpu:{HPET}": "required"},
    ),
    "forbidden": ({}, {_HPET: "forbidden"}),
    "switched off and forbidden": (
        {"hw_time_hpet": "off"},
        {_HPET: "forbidden"},
    ),
}


@pytest.mark.parametrize(
    ("properties", "extra_specs"), _REQUIRED.values(), ids=_REQUIRED
)
def test_hpet_is_required_by_the_image_property_or_the_explicit_trait_of_the_host(
    properties: Properties, extra_specs: ExtraSpecs
) -> None:
    """Also without the trait in reported_traits: enabling the filter is the
    statement.
    """
    spec = spec_of(properties, extra_specs)
    found = required_by("hpet", spec, reported_traits=[])
    assert found == [(HPET, True, "root")]


@pytest.mark.parametrize(
    ("properties", "extra_specs"), _NOT_REQUIRED.values(), ids=_NOT_REQUIRED
)
def test_hpet_is_not_required_without_property_or_trait_of_the_host(
    properties: Properties, extra_specs: ExtraSpecs
) -> None:
    spec = spec_of(properties, extra_specs)
    assert required_by("hpet", spec, reported_traits=[]) == []


def test_source_names_the_property_and_the_trait() -> None:
    spec = spec_of({"hw_time_hpet": "true"}, {_HPET: "required"})
    (item,) = pipeline_of("hpet", reported_traits=[]).apply(spec).requirements
    assert item.properties == (f"{_HPET}=required", "hw_time_hpet=true")
    assert item.source == (
        f"flavor extra spec {_HPET}=required and image property"
        " hw_time_hpet=true"
    )


_CONTRADICTING: dict[str, tuple[Properties, ExtraSpecs]] = {
    "forbidden by the flavor": (
        {"hw_time_hpet": "true"},
        {"resources1:VGPU": "1", _HPET: "forbidden"},
    ),
    "required by the flavor": (
        {"hw_time_hpet": "false"},
        {_HPET: "required"},
    ),
    "required in a group without resources": (
        {"hw_time_hpet": "false"},
        {f"trait_a:{HPET}": "required"},
    ),
    "forbidden in a group of the host": (
        {"hw_time_hpet": "true"},
        {"resources_a:MEMORY_MB": "512", f"trait_a:{HPET}": "forbidden"},
    ),
    "both in the image": ({"hw_time_hpet": "false", _HPET: "required"}, {}),
    "traits of image and flavor": (
        {_HPET: "required"},
        {_HPET: "forbidden"},
    ),
}


@pytest.mark.parametrize(
    ("properties", "extra_specs"), _CONTRADICTING.values(), ids=_CONTRADICTING
)
def test_contradicting_hpet_requests_are_an_error_and_change_nothing(
    properties: Properties, extra_specs: ExtraSpecs
) -> None:
    spec = spec_of(properties, extra_specs)
    with pytest.raises(FlavorImageConflict) as caught:
        pipeline_of("hpet").apply(spec)
    message = str(caught.value)
    assert "contradict each other" in message
    for name, value in [*properties.items(), *extra_specs.items()]:
        if HPET in name:
            assert f"{name}={value}" in message
    assert spec == spec_of(properties, extra_specs)


@pytest.mark.parametrize("unknown_values", ["skip", "reject"])
def test_misspelt_boolean_of_an_image_is_false_with_a_warning(
    unknown_values: str,
) -> None:
    """As in Nova's own object of the image, where nothing shows that it was
    misspelt.
    """
    spec = spec_of({"hw_time_hpet": "perhaps"})
    pipeline = pipeline_of("hpet", unknown_values=unknown_values)
    decision = pipeline.apply(spec)
    assert decision.requirements == ()
    (note,) = decision.notes
    assert note.source == "image property hw_time_hpet"
    assert note.reason == (
        "'perhaps' is not a boolean: taken as false, as in Nova"
    )
    assert note.warn
