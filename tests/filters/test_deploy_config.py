# SPDX-License-Identifier: Apache-2.0

"""deploy_config: explicit config, implicit trait."""

from __future__ import annotations

import pytest

from os_prefilter.common.errors import FlavorImageConflict, UnknownValue
from os_prefilter.common.trait_names import Trait
from os_prefilter.service import Service
from os_prefilter.vocabulary.config_templates import BUNDLED, Template
from os_prefilter.vocabulary.options import Options
from tests.conftest import ExtraSpecs, pipeline_of, required_by, spec_of

_KEY = "deploy-config:hyperthreading"
_TRAITS = (Trait("CUSTOM_RAID"), Trait("CUSTOM_FOUR_DISKS"))
_RAID = Template("raid", "10", _TRAITS)
_ENABLED = {_KEY: "enabled"}
_UNKNOWN = {"deploy-config:raid": "10"}


@pytest.mark.parametrize("value", ["enabled", "disabled"])
def test_hyperthreading_of_the_flavor_requires_the_trait(value: str) -> None:
    found = required_by("deploy_config", spec_of({}, {_KEY: value}))
    assert found == [("HW_CPU_HYPERTHREADING", True, "root")]


def test_hyperthreading_of_the_image_requires_the_trait() -> None:
    found = required_by("deploy_config", spec_of({_KEY: "enabled"}))
    assert found == [("HW_CPU_HYPERTHREADING", True, "root")]


@pytest.mark.parametrize(
    "extra_specs",
    [{}, {_KEY: "on"}, _UNKNOWN],
    ids=["nothing", "unknown value", "unknown configuration"],
)
def test_unknown_configuration_requires_nothing(
    extra_specs: ExtraSpecs,
) -> None:
    assert required_by("deploy_config", spec_of({}, extra_specs)) == []


def test_unknown_configuration_is_skipped_with_a_warning() -> None:
    spec = spec_of(extra_specs={"deploy-config:a\nb": "1"})
    (note,) = pipeline_of("deploy_config").apply(spec).notes
    assert note.warn
    assert "a\\nb" in note.reason


@pytest.mark.parametrize(
    ("extra_specs", "message"),
    [
        ({_KEY: "on"}, "unknown value 'on'.*enabled, disabled"),
        (_UNKNOWN, "'deploy-config:raid'.*hyperthreading"),
    ],
    ids=["value", "configuration"],
)
def test_unknown_configuration_is_rejected_by_option(
    extra_specs: ExtraSpecs, message: str
) -> None:
    pipeline = pipeline_of("deploy_config", unknown_values="reject")
    with pytest.raises(UnknownValue, match=message):
        pipeline.apply(spec_of(extra_specs=extra_specs))


def test_operator_template_requires_all_its_traits() -> None:
    options = Options(templates=BUNDLED.replace_with([_RAID]))
    pipeline = Service.from_names("deploy_config", options=options)
    spec = spec_of(extra_specs={**_UNKNOWN, **_ENABLED})
    decision = pipeline.apply(spec)
    _, *of_template = decision.requirements
    assert [item.trait for item in of_template] == [*_TRAITS]
    for item in of_template:
        assert item.source == "flavor extra spec deploy-config:raid=10"
    assert decision.notes == ()


def test_flavor_and_image_that_disagree_are_an_error() -> None:
    spec = spec_of({_KEY: "enabled"}, {_KEY: "disabled"})
    with pytest.raises(FlavorImageConflict, match="enabled and .*disabled"):
        pipeline_of("deploy_config").apply(spec)
