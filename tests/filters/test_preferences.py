# SPDX-License-Identifier: Apache-2.0

"""preferences: traits that a flavor prefers, which exclude no host; and
properties that are preferred by option.
"""

from __future__ import annotations

from typing import Any

import pytest

from os_prefilter import Decision, allocation_candidates_query, prefer
from os_prefilter.common.errors import FilterFailed, ImpossibleCombination
from os_prefilter.common.trait_names import Trait
from os_prefilter.request.requirements import Preference, Requirements
from os_prefilter.service import Service
from os_prefilter.service.loading import as_filter
from tests.conftest import pipeline_of, spec_of
from tests.support.nova_objects import nova_spec

_AVX = "HW_CPU_X86_AVX512F"


@pytest.mark.parametrize("new_spec", [spec_of, nova_spec])
def test_flavor_prefers_a_trait_by_either_spelling_and_the_query_stays_the_same(
    new_spec: Any, caplog: pytest.LogCaptureFixture
) -> None:
    spelt = f"preferred_trait:{_AVX}"
    for key, value, shown in (
        (f"trait:{_AVX}", "preferred", "preferred"),
        (spelt, "true", "true"),
        (spelt, "Yes", "true"),
    ):
        spec = new_spec({}, {key: value})
        decision = pipeline_of("preferences").apply(spec)
        source = f"flavor extra spec {key}={shown}"
        assert decision.preferences == (
            Preference(Trait(_AVX), source, "preferences"),
        )
        assert (decision.requirements, decision.notes) == ((), ())
        assert allocation_candidates_query(
            spec
        ) == allocation_candidates_query(new_spec({}, {}))
    assert "WARNING" not in caplog.text


def test_flavor_is_handed_on_in_the_spelling_that_nova_passes_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The flavor itself is not changed, and applying the filters again gives
    the same preferences.
    """
    pipeline = pipeline_of("preferences", "hpet")
    spec = nova_spec(
        {"hw_time_hpet": "true"},
        {f"trait:{_AVX}": "preferred", "hw:cpu_policy": "shared"},
    )
    flavor = spec.flavor
    first = pipeline.apply(spec)
    assert flavor.extra_specs == {
        f"trait:{_AVX}": "preferred",
        "hw:cpu_policy": "shared",
    }
    assert spec.flavor.extra_specs == {
        f"preferred_trait:{_AVX}": "true",
        "hw:cpu_policy": "shared",
    }
    handed_on = spec.flavor
    second = pipeline.apply(spec)
    assert (
        [item.trait for item in second.preferences]
        == [item.trait for item in first.preferences]
        == [_AVX]
    )
    assert spec.flavor is handed_on
    assert "WARNING" not in caplog.text


def test_spelling_that_says_no_beside_one_that_prefers_is_not_handed_on() -> (
    None
):
    both = [
        (f"trait:{_AVX}", "preferred"),
        (f"preferred_trait:{_AVX}", "false"),
    ]
    for extra_specs in (dict(both), dict(both[::-1])):
        spec = spec_of({}, extra_specs)
        found = [
            [
                item.trait
                for item in pipeline_of("preferences").apply(spec).preferences
            ]
            for _ in range(2)
        ]
        assert found == [[_AVX], [_AVX]]


_HYPERTHREADING = "deploy-config:hyperthreading"
_PREFERRED: list[tuple[str, str, dict[str, Any], dict[str, str], str]] = [
    (
        "hpet",
        "hw_time_hpet",
        {"hw_time_hpet": "true"},
        {},
        "CUSTOM_COMPUTE_TIME_HPET",
    ),
    (
        "image_metadata",
        "hw_sound_model",
        {"hw_sound_model": "ich9"},
        {},
        "COMPUTE_SOUND_MODEL_ICH9",
    ),
    (
        "sound_model",
        "hw:sound_model",
        {},
        {"hw:sound_model": "ich9"},
        "COMPUTE_SOUND_MODEL_ICH9",
    ),
    (
        "packed_virtqueue",
        "packed_virtqueue",
        {"hw_virtio_packed_ring": "1"},
        {},
        "COMPUTE_NET_VIRTIO_PACKED",
    ),
    (
        "deploy_config",
        _HYPERTHREADING,
        {},
        {_HYPERTHREADING: "enabled"},
        "HW_CPU_HYPERTHREADING",
    ),
]


def test_preferred_property_is_not_required_by_any_filter() -> None:
    """Whether hosts report the trait does not matter: one that none has weighs
    nothing.
    """
    for name, row, properties, extra_specs, trait in _PREFERRED:
        spec = spec_of(properties, extra_specs)
        required = pipeline_of(name).apply(spec_of(properties, extra_specs))
        decision = pipeline_of(
            name, preferred_properties=[row], reported_traits=[]
        ).apply(spec)
        assert trait in [item.trait for item in required.requirements]
        assert [item.trait for item in decision.preferences] == [trait]
        assert (
            decision.requirements,
            spec.root_required,
            spec.root_forbidden,
        ) == ((), set(), set())


def test_preferred_property_excludes_no_default_machine_type_and_no_request() -> (
    None
):
    """A device that needs PCI forbids the default machine types without it,
    and rejects one that is requested.
    """
    alone = {"hw_vif_model": "e1000e"}
    preferring = pipeline_of(
        "image_metadata", "hpet", preferred_properties=["vif_model"]
    )
    assert pipeline_of("image_metadata").apply(spec_of(alone)).requirements[1:]
    assert not preferring.apply(spec_of(alone)).requirements
    # Other properties stay required.
    found = preferring.apply(
        spec_of({**alone, "hw_time_hpet": "true", "hw_sound_model": "ich9"})
    ).requirements
    assert [item.trait for item in found if item.required] == [
        "COMPUTE_SOUND_MODEL_ICH9",
        "CUSTOM_COMPUTE_TIME_HPET",
    ]
    impossible = {**alone, "hw_machine_type": "isapc"}
    with pytest.raises(ImpossibleCombination):
        pipeline_of("image_metadata").apply(spec_of(impossible))
    assert [
        item.trait
        for item in preferring.apply(spec_of(impossible)).preferences
    ] == ["COMPUTE_NET_VIF_MODEL_E1000E"]


def test_other_extra_specs_and_images_prefer_nothing() -> None:
    """A flavor is the operator's; an image is a tenant's."""
    both = {f"trait:{_AVX}": "preferred", f"preferred_trait:{_AVX}": "true"}
    others = {
        "trait:HW_CPU_X86_AVX2": "required",
        f"trait:{_AVX}": "forbidden",
        f"preferred_trait:{_AVX}": "false",
        "hw:cpu_policy": "preferred",
        f"trait_GPU:{_AVX}": "preferred",
    }
    for spec in (
        spec_of(),
        spec_of(both),
        *(spec_of({}, {name: value}) for name, value in others.items()),
    ):
        decision = pipeline_of("preferences").apply(spec)
        assert (decision.preferences, decision.notes) == ((), ()), spec


def test_malformed_preference_is_ignored_with_a_warning_that_says_how_to_write_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for key, value in (
        ("trait:lower", "preferred"),
        ("preferred_trait:A B", "true"),
        (f"preferred_trait:{_AVX}", "preferred"),
        (f"preferred_trait:{_AVX}", "maybe"),
    ):
        (note,) = (
            pipeline_of("preferences").apply(spec_of({}, {key: value})).notes
        )
        advice = "write trait:NAME=preferred or preferred_trait:NAME=true"
        assert f"{key!r}={value!r} is not preferred: {advice}" in str(note)
        assert f"Ignored part of the request: {note}" in caplog.text


def test_filter_of_another_package_prefers_traits_or_is_named_with_malformed_ones() -> (
    None
):
    def decide(answer: Requirements) -> Decision:
        return Service((as_filter("theirs", lambda request: answer),)).apply(
            spec_of()
        )

    decision = decide(prefer("CUSTOM_A", "x"))
    assert list(map(str, decision.preferences)) == [
        "CUSTOM_A preferred by theirs (x)"
    ]
    with pytest.raises(ValueError, match="is not the name of a trait"):
        prefer("lower", "a")
    with pytest.raises(FilterFailed, match="theirs"):
        decide(Requirements(preferences=(Preference(Trait("a&b"), "x"),)))
