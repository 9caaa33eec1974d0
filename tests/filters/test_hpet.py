# SPDX-License-Identifier: Apache-2.0

"""hpet: the timer by property, or by the explicit trait; never both with
different values.
"""

from __future__ import annotations

import pytest

from os_prefilter.common.errors import FlavorImageConflict
from os_prefilter.vocabulary import HPET
from tests.conftest import (
    ExtraSpecs,
    Properties,
    Required,
    pipeline_of,
    required_by,
    spec_of,
)

_HPET = f"trait:{HPET}"
_ON: Properties = {"hw_time_hpet": "on"}
_OFF: Properties = {"hw_time_hpet": "off"}
_TRUE: Properties = {"hw_time_hpet": "true"}
_FALSE: Properties = {"hw_time_hpet": "false"}
_REQUIRED = {_HPET: "required"}
_FORBIDDEN = {_HPET: "forbidden"}


def _in_group(suffix: str, resource: str, rule: str) -> ExtraSpecs:
    resources = f"resources{suffix}:{resource}"
    return {resources: "1", f"trait{suffix}:{HPET}": rule}


def _found(properties: Properties, extra_specs: ExtraSpecs) -> Required:
    """Return what is required without the trait in reported_traits: enabling
    the filter is the statement.
    """
    spec = spec_of(properties, extra_specs)
    return required_by("hpet", spec, reported_traits=[])


@pytest.mark.parametrize(
    "properties",
    [_TRUE, {"hw_time_hpet": True}, {"hw_time_hpet": 1}, _REQUIRED],
    ids=["text", "boolean", "number", "trait"],
)
def test_hpet_is_required_by_the_image(properties: Properties) -> None:
    assert _found(properties, {}) == [(HPET, True, "root")]


@pytest.mark.parametrize(
    ("properties", "extra_specs"),
    [
        ({}, _REQUIRED),
        (_ON, _REQUIRED),
        ({}, _in_group("1", "VCPU", "required")),
    ],
    ids=["trait", "property and trait", "trait of a group of the host"],
)
def test_hpet_is_required_by_a_trait_of_the_host_in_the_flavor(
    properties: Properties, extra_specs: ExtraSpecs
) -> None:
    assert _found(properties, extra_specs) == [(HPET, True, "root")]


@pytest.mark.parametrize(
    "extra_specs",
    [
        _in_group("_gpu", "VGPU", "forbidden"),
        _in_group("1", "MEM_ENCRYPTION_CONTEXT", "forbidden"),
    ],
    ids=["device", "another provider of the host"],
)
def test_hpet_is_required_though_another_provider_must_not_have_it(
    extra_specs: ExtraSpecs,
) -> None:
    assert _found(_ON, extra_specs) == [(HPET, True, "root")]


@pytest.mark.parametrize(
    "properties", [{}, _FALSE, _OFF], ids=["nothing", "false", "off"]
)
@pytest.mark.parametrize(
    "extra_specs", [{}, _FORBIDDEN], ids=["no trait", "forbidden"]
)
def test_hpet_is_not_required_without_property_or_trait(
    properties: Properties, extra_specs: ExtraSpecs
) -> None:
    assert _found(properties, extra_specs) == []


@pytest.mark.parametrize("properties", [{}, _OFF], ids=["nothing", "off"])
@pytest.mark.parametrize("suffix", ["1", "_gpu"])
def test_hpet_is_not_required_by_a_trait_of_a_device(
    properties: Properties, suffix: str
) -> None:
    of_device = _in_group(suffix, "VGPU", "required")
    assert _found(properties, of_device) == []


def test_source_names_the_property_and_the_trait() -> None:
    pipeline = pipeline_of("hpet", reported_traits=[])
    decision = pipeline.apply(spec_of(_TRUE, _REQUIRED))
    (item,) = decision.requirements
    assert item.properties == (f"{_HPET}=required", "hw_time_hpet=true")
    in_flavor = f"flavor extra spec {_HPET}=required"
    in_image = "image property hw_time_hpet=true"
    assert item.source == f"{in_flavor} and {in_image}"


def _check_contradiction(
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


@pytest.mark.parametrize(
    "extra_specs",
    [
        {"resources1:VGPU": "1", **_FORBIDDEN},
        _in_group("_a", "MEMORY_MB", "forbidden"),
    ],
    ids=["flavor", "group of the host"],
)
def test_hpet_that_the_flavor_forbids_is_an_error_and_changes_nothing(
    extra_specs: ExtraSpecs,
) -> None:
    _check_contradiction(_TRUE, extra_specs)


@pytest.mark.parametrize(
    "extra_specs",
    [_REQUIRED, {f"trait_a:{HPET}": "required"}],
    ids=["flavor", "group without resources"],
)
def test_hpet_off_that_the_flavor_requires_is_an_error_and_changes_nothing(
    extra_specs: ExtraSpecs,
) -> None:
    _check_contradiction(_FALSE, extra_specs)


def test_image_that_contradicts_itself_is_an_error_and_changes_nothing() -> (
    None
):
    _check_contradiction({**_FALSE, **_REQUIRED}, {})


def test_contradicting_traits_of_image_and_flavor_are_an_error() -> None:
    _check_contradiction({_HPET: "required"}, _FORBIDDEN)


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
    reason = "'perhaps' is not a boolean: taken as false, as in Nova"
    assert note.reason == reason
    assert note.warn
