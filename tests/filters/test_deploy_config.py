# SPDX-License-Identifier: Apache-2.0

"""deploy_config: explicit config, implicit trait."""

import pytest

from os_prefilter.common.errors import FlavorImageConflict, UnknownValue
from os_prefilter.common.trait_names import Trait
from os_prefilter.service import Service
from os_prefilter.vocabulary.config_templates import BUNDLED, Template
from os_prefilter.vocabulary.options import Options
from tests.conftest import pipeline_of, required_by, spec_of

_KEY = "deploy-config:hyperthreading"
_RAID = Template(
    "raid", "10", (Trait("CUSTOM_RAID"), Trait("CUSTOM_FOUR_DISKS"))
)


def test_hyperthreading_value_requires_the_trait_and_unknown_config_requires_nothing() -> (
    None
):
    required: list[object] = [("HW_CPU_HYPERTHREADING", True, "root")]
    configs: list[tuple[dict[str, object], dict[str, str], list[object]]] = [
        ({}, {}, []),
        ({}, {_KEY: "enabled"}, required),
        ({_KEY: "enabled"}, {}, required),
        ({}, {_KEY: "disabled"}, required),
        ({}, {_KEY: "on"}, []),
        ({}, {"deploy-config:raid": "10"}, []),
    ]
    for properties, extra_specs, expected in configs:
        assert (
            required_by("deploy_config", spec_of(properties, extra_specs))
            == expected
        )


def test_unknown_configuration_is_skipped_with_a_warning_or_rejected_by_option() -> (
    None
):
    decision = pipeline_of("deploy_config").apply(
        spec_of(extra_specs={"deploy-config:a\nb": "1"})
    )
    assert [
        (note.warn, "a\\nb" in note.reason) for note in decision.notes
    ] == [(True, True)]
    for extra_specs, message in (
        ({_KEY: "on"}, "unknown value 'on'.*enabled, disabled"),
        ({"deploy-config:raid": "10"}, "'deploy-config:raid'.*hyperthreading"),
    ):
        with pytest.raises(UnknownValue, match=message):
            pipeline_of("deploy_config", unknown_values="reject").apply(
                spec_of(extra_specs=extra_specs)
            )


def test_operator_template_requires_all_its_traits() -> None:
    options = Options(templates=BUNDLED.replace_with([_RAID]))
    pipeline = Service.from_names("deploy_config", options=options)
    decision = pipeline.apply(
        spec_of(extra_specs={"deploy-config:raid": "10", _KEY: "enabled"})
    )
    source = "flavor extra spec deploy-config:raid=10"
    assert [
        (item.trait, item.source) for item in decision.requirements[1:]
    ] == [
        ("CUSTOM_RAID", source),
        ("CUSTOM_FOUR_DISKS", source),
    ]
    assert decision.notes == ()


def test_flavor_and_image_that_disagree_are_an_error() -> None:
    with pytest.raises(FlavorImageConflict, match="enabled and .*disabled"):
        pipeline_of("deploy_config").apply(
            spec_of({_KEY: "enabled"}, {_KEY: "disabled"})
        )
