# SPDX-License-Identifier: Apache-2.0

"""hpet: the timer by property, or by the explicit trait; never both ways at
once.
"""

import pytest

from os_prefilter.common.errors import FlavorImageConflict
from os_prefilter.vocabulary import HPET
from tests.conftest import pipeline_of, required_by, spec_of

_HPET = f"trait:{HPET}"
_CASES: list[tuple[dict[str, object], dict[str, str], bool]] = [
    ({}, {}, False),
    ({"hw_time_hpet": "true"}, {}, True),
    ({"hw_time_hpet": True}, {}, True),
    ({"hw_time_hpet": 1}, {}, True),
    ({"hw_time_hpet": "false"}, {}, False),
    ({_HPET: "required"}, {}, True),
    ({}, {_HPET: "required"}, True),
    ({}, {"resources1:VCPU": "1", f"trait1:{HPET}": "required"}, True),
    ({}, {"resources1:VGPU": "1", f"trait1:{HPET}": "required"}, False),
    (
        {"hw_time_hpet": "on"},
        {"resources_gpu:VGPU": "1", f"trait_gpu:{HPET}": "forbidden"},
        True,
    ),
    (
        {"hw_time_hpet": "off"},
        {"resources_gpu:VGPU": "1", f"trait_gpu:{HPET}": "required"},
        False,
    ),
    (
        {"hw_time_hpet": "on"},
        {
            "resources1:MEM_ENCRYPTION_CONTEXT": "1",
            f"trait1:{HPET}": "forbidden",
        },
        True,
    ),
    ({}, {_HPET: "forbidden"}, False),
    ({"hw_time_hpet": "on"}, {_HPET: "required"}, True),
    ({"hw_time_hpet": "off"}, {_HPET: "forbidden"}, False),
]
_CONTRADICTING: list[tuple[dict[str, object], dict[str, str]]] = [
    ({"hw_time_hpet": "true"}, {"resources1:VGPU": "1", _HPET: "forbidden"}),
    ({"hw_time_hpet": "false"}, {_HPET: "required"}),
    ({"hw_time_hpet": "false"}, {f"trait_a:{HPET}": "required"}),
    (
        {"hw_time_hpet": "true"},
        {"resources_a:MEMORY_MB": "512", f"trait_a:{HPET}": "forbidden"},
    ),
    ({"hw_time_hpet": "false", _HPET: "required"}, {}),
    ({_HPET: "required"}, {_HPET: "forbidden"}),
]


def test_hpet_is_required_by_the_image_property_or_the_explicit_trait_of_the_host() -> (
    None
):
    """Also without the trait in reported_traits: enabling the filter is the
    statement.
    """
    for properties, extra_specs, asked in _CASES:
        found = required_by(
            "hpet", spec_of(properties, extra_specs), reported_traits=[]
        )
        assert found == [(HPET, True, "root")] * asked, (
            properties,
            extra_specs,
        )
    spec = spec_of({"hw_time_hpet": "true"}, {_HPET: "required"})
    (item,) = pipeline_of("hpet", reported_traits=[]).apply(spec).requirements
    assert (
        item.source == f"flavor extra spec {_HPET}=required and image property"
        " hw_time_hpet=true"
    )
    assert item.properties == (f"{_HPET}=required", "hw_time_hpet=true")


def test_contradicting_hpet_requests_are_an_error_and_change_nothing() -> None:
    for properties, extra_specs in _CONTRADICTING:
        spec = spec_of(properties, extra_specs)
        with pytest.raises(
            FlavorImageConflict, match="contradict each other"
        ) as caught:
            pipeline_of("hpet").apply(spec)
        named = (*properties.items(), *extra_specs.items())
        assert all(
            f"{name}={value}" in str(caught.value)
            for name, value in named
            if HPET in name
        )
        assert spec == spec_of(properties, extra_specs)


@pytest.mark.parametrize("unknown_values", ["skip", "reject"])
def test_misspelt_boolean_of_an_image_is_false_with_a_warning(
    unknown_values: str,
) -> None:
    """As in Nova's own object of the image, where nothing shows that it was
    misspelt.
    """
    decision = pipeline_of("hpet", unknown_values=unknown_values).apply(
        spec_of({"hw_time_hpet": "perhaps"})
    )
    assert decision.requirements == ()
    place, reason = (
        "image property hw_time_hpet",
        "'perhaps' is not a boolean: taken as false, as in Nova",
    )
    assert [
        (note.source, note.reason, note.warn) for note in decision.notes
    ] == [(place, reason, True)]
