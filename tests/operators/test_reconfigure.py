# SPDX-License-Identifier: Apache-2.0

"""The plan to configure an instance anew where it is; tests/services/ironic
carries it out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

from os_prefilter import Flavor
from os_prefilter.hosts.drivers.ironic_facts import BiosSetting, IronicFacts
from os_prefilter.hosts.drivers.ironic_steps import bios_changes
from os_prefilter.vocabulary.config_templates import (
    BUNDLED,
    BiosChange,
    Step,
    Template,
    Variant,
)
from os_prefilter_tools.operators.reconfigure import (
    NotReconfigurable,
    Plan,
    reconfiguration,
)
from tests.conftest import pipeline_of

_KEY = "deploy-config:hyperthreading"
_RAID = "deploy-config:raid"
_STEP = Step("raid", "apply_configuration", {"raid_config": {}}, 90)
_NODE = IronicFacts(
    host="6d85703a-565d-469a-96ce-30b6de53079d",
    bios={"LogicalProc": BiosSetting("Enabled")},
    templates=BUNDLED.replace_with(
        [Template("raid", "10", (), (Variant(steps=(_STEP,), in_use=True),))]
    ),
)


def _flavor(**extra_specs: str) -> Flavor:
    specs = {
        f"deploy-config:{name}": value for name, value in extra_specs.items()
    }
    return Flavor(
        vcpus=2, extra_specs={"resources:CUSTOM_BAREMETAL": "1", **specs}
    )


_PLAIN = _flavor()
_ON = _flavor(hyperthreading="enabled")
_OFF = _flavor(hyperthreading="disabled")
_DISABLED = {"LogicalProc": "Disabled"}


def _plan(old: Flavor, new: Flavor, **fields: Any) -> Plan:
    pipeline = pipeline_of("deploy_config", "owner", wait_for_reports=False)
    return reconfiguration(old, new, replace(_NODE, **fields), pipeline)


@pytest.mark.parametrize(
    ("old", "new", "configurations", "changes"),
    [
        (_PLAIN, _PLAIN, (), {}),
        (_PLAIN, _ON, ((_KEY, "", "enabled"),), {}),
        (_PLAIN, _OFF, ((_KEY, "", "disabled"),), _DISABLED),
        (_ON, _OFF, ((_KEY, "enabled", "disabled"),), _DISABLED),
        (_ON, _PLAIN, (), {}),
        (_OFF, _OFF, (), _DISABLED),
    ],
    ids=[
        "nothing",
        "on, as it is",
        "off",
        "on to off",
        "on stays",
        "off, but deployed without by an unmodified Nova",
    ],
)
def test_plan_applies_the_new_flavor_only_where_the_node_differs(
    old: Flavor,
    new: Flavor,
    configurations: tuple[tuple[str, str, str], ...],
    changes: dict[str, str],
) -> None:
    plan = _plan(old, new)
    assert plan.configurations == configurations
    assert bios_changes(plan.steps) == changes


def test_unchanged_configuration_has_no_steps() -> None:
    assert _plan(_flavor(raid="10"), _flavor(raid="10")).steps == ()


def test_plan_runs_steps_of_changed_configurations_but_requires_all_new_traits() -> (
    None
):
    plan = _plan(_ON, _flavor(hyperthreading="enabled", raid="10"))
    assert [step["interface"] for step in plan.steps] == ["raid"]
    traits = {item.trait for item in plan.requirements}
    assert traits == {"HW_CPU_HYPERTHREADING", "OWNER_NOVA"}


@pytest.mark.parametrize(
    "bios",
    [(), (BiosChange("LogicalProc", ("Disabled",)),)],
    ids=["no BIOS setting", "BIOS setting"],
)
def test_template_with_own_steps_is_refused_unless_it_allows_in_use(
    bios: tuple[BiosChange, ...],
) -> None:
    template = Template("raid", "10", (), (Variant(bios, (_STEP,)),))
    templates = BUNDLED.replace_with([template])
    reason = r"raid=10: its template has steps of its own.*in-use: true"
    with pytest.raises(NotReconfigurable, match=reason):
        _plan(_PLAIN, _flavor(raid="10"), templates=templates)


_READ_ONLY = BiosSetting("Enabled", changeable=False)


@pytest.mark.parametrize(
    ("new", "node", "reason"),
    [
        (
            replace(_flavor(), memory_mb=1, root_gb=1),
            {},
            "the flavors differ in memory_mb, root_gb",
        ),
        (
            Flavor(vcpus=2),
            {},
            "the flavors differ in 'resources:CUSTOM_BAREMETAL'",
        ),
        (
            _flavor(hyperthreading="odd"),
            {},
            "deploy-config:hyperthreading='odd': unknown value",
        ),
        # Even if its value is right: the trait says that it can be switched.
        (
            _ON,
            {"bios": {"LogicalProc": _READ_ONLY}},
            "'LogicalProc' cannot be changed",
        ),
    ],
    ids=["sizes", "extra spec", "unknown value", "read-only BIOS setting"],
)
def test_plan_that_cannot_be_carried_out_is_refused(
    new: Flavor, node: dict[str, Any], reason: str
) -> None:
    with pytest.raises(NotReconfigurable, match=reason) as raised:
        _plan(_PLAIN, new, **node)
    assert str(raised.value).startswith(
        f"The instance on the node '{_NODE.host}' was not changed: "
    )


def test_reconfiguration_is_refused_if_deploy_config_is_not_enabled() -> None:
    pipeline = pipeline_of("hpet")
    reason = "deploy_config is not enabled"
    with pytest.raises(NotReconfigurable, match=reason):
        reconfiguration(_flavor(), _flavor(), _NODE, pipeline)


def test_node_that_meets_the_plan_takes_one_query() -> None:
    is_found = mock.Mock(return_value=True)
    _plan(_PLAIN, _ON).check("uuid", is_found)
    is_found.assert_called_once_with(
        "in_tree=uuid&required=HW_CPU_HYPERTHREADING%2COWNER_NOVA"
    )


@pytest.mark.parametrize(
    ("missing", "reason"),
    [
        (
            "HYPERTHREADING",
            (
                "hyperthreading=enabled: Placement has it without"
                " HW_CPU_HYPERTHREADING"
            ),
        ),
        ("OWNER_NOVA", "Placement has it without OWNER_NOVA"),
        ("uuid", "Placement has no resource provider of it"),
    ],
    ids=["trait of the template", "owner", "node"],
)
def test_what_a_node_lacks_for_the_plan_is_named(
    missing: str, reason: str
) -> None:
    plan = _plan(_PLAIN, _ON)
    with pytest.raises(NotReconfigurable, match=reason):
        plan.check("uuid", lambda query: missing not in query)


def test_plan_changes_only_the_bios_settings_that_differ() -> None:
    both = Variant((BiosChange("A", ("1",)), BiosChange("B", ("1",))))
    plan = _plan(
        _flavor(),
        _flavor(x="on"),
        bios={"A": BiosSetting("0"), "B": BiosSetting("1")},
        templates=BUNDLED.replace_with([Template("x", "on", (), (both,))]),
    )
    assert bios_changes(plan.steps) == {"A": "1"}
    assert plan.settings == {"A": "1", "B": "1"}


def test_plan_sets_all_bios_settings_anew_where_the_machine_may_differ_from_what_ironic_shows() -> (
    None
):
    assert not _plan(_ON, _ON).steps
    plan = _plan(_ON, _ON, bios_may_differ=True)
    assert bios_changes(plan.steps) == {"LogicalProc": "Enabled"}
    assert not _plan(_PLAIN, _PLAIN, bios_may_differ=True).steps
