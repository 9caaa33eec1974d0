"""deploy_config: explicit config, implicit trait."""

from collections.abc import Callable

import pytest

from os_prefilter.errors import FlavorImageConflict, UnknownValue
from tests.conftest import asked_by, pipeline_of, spec_of

_KEY = "deploy-config:hyperthreading"
_METAL = {
    "resources:CUSTOM_BAREMETAL_GOLD": "1",
    "resources:VCPU": "0",
    "resources:MEMORY_MB": "0",
    "resources:DISK_GB": "0",
}


@pytest.mark.parametrize(
    ("properties", "extra_specs", "expected"),
    [
        ({}, {}, []),
        ({}, {_KEY: "enabled"}, [("HW_CPU_HYPERTHREADING", True, "root")]),
        ({_KEY: "enabled"}, {}, [("HW_CPU_HYPERTHREADING", True, "root")]),
        ({}, {_KEY: "disabled"}, []),
        ({}, {_KEY: "on"}, []),
        ({}, {"deploy-config:raid": "10"}, []),
    ],
)
def test_only_switching_on_asks(
    properties: dict[str, object], extra_specs: dict[str, str], expected: list[object]
) -> None:
    assert asked_by("deploy_config", spec_of(properties, extra_specs)) == expected


@pytest.mark.parametrize(
    ("extra_specs", "message"),
    [
        ({_KEY: "on"}, "unknown value 'on'.*enabled, disabled"),
        ({"deploy-config:raid": "10"}, "'deploy-config:raid'.*hyperthreading"),
    ],
)
def test_unknown_configuration_is_rejected_if_wanted(extra_specs: dict[str, str], message: str) -> None:
    with pytest.raises(UnknownValue, match=message):
        pipeline_of("deploy_config", unknown_values="reject").apply(spec_of(extra_specs=extra_specs))


def test_unknown_configuration_is_noted_otherwise() -> None:
    decision = pipeline_of("deploy_config").apply(spec_of(extra_specs={"deploy-config:a\nb": "1"}))
    assert [(note.warn, "a\\nb" in note.reason) for note in decision.notes] == [(True, True)]


def test_flavor_and_image_that_disagree_are_an_error() -> None:
    with pytest.raises(FlavorImageConflict, match="enabled and .*disabled"):
        pipeline_of("deploy_config").apply(spec_of({_KEY: "enabled"}, {_KEY: "disabled"}))


def test_only_nodes_that_can_switch_remain(hosts: Callable[..., tuple[str, ...]]) -> None:
    assert hosts(spec_of(extra_specs=_METAL)) == ("metal-1", "metal-ht-1")
    assert hosts(spec_of(extra_specs={**_METAL, _KEY: "enabled"}), "deploy_config") == ("metal-ht-1",)
    assert hosts(spec_of(extra_specs={**_METAL, _KEY: "disabled"}), "deploy_config") == ("metal-1", "metal-ht-1")
