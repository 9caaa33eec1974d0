"""The plan to configure an instance anew where it is; tests/services/ironic carries it out."""

from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

from os_prefilter import Flavor
from os_prefilter.errors import FlavorImageConflict
from os_prefilter.operators.reconfigure import Configuration, NotReconfigurable, Plan, reconfiguration
from os_prefilter.reporters.ironic_facts import BiosSetting, IronicFacts
from os_prefilter.reporters.ironic_steps import bios_changes
from os_prefilter.request_spec import Image
from os_prefilter.templates import BiosChange, Step, Template, Variant, effective
from tests.conftest import pipeline_of

_KEY = "deploy-config:hyperthreading"
_RAID = "deploy-config:raid"
_STEP = Step("raid", "apply_configuration", {"raid_config": {}}, 90)
_NODE = IronicFacts(
    host="6d85703a-565d-469a-96ce-30b6de53079d",
    bios={"LogicalProc": BiosSetting("Enabled")},
    templates=effective(None).replaced_by([Template("raid", "10", (), (Variant(steps=(_STEP,), in_use=True),))]),
)


def _flavor(**extra_specs: str) -> Flavor:
    specs = {f"deploy-config:{name}": value for name, value in extra_specs.items()}
    return Flavor(vcpus=2, extra_specs={"resources:CUSTOM_BAREMETAL": "1", **specs})


def _plan(old: Flavor, new: Flavor, **fields: Any) -> Plan:
    pipeline = pipeline_of("deploy_config", "owner", owner_gate="always")
    return reconfiguration(old, new, replace(_NODE, **fields), pipeline)


@pytest.mark.parametrize(
    ("old", "new", "configurations", "changes"),
    [
        (_flavor(), _flavor(), (), {}),
        (_flavor(), _flavor(hyperthreading="enabled"), ((_KEY, "", "enabled"),), {}),
        (_flavor(), _flavor(hyperthreading="disabled"), ((_KEY, "", "disabled"),), {"LogicalProc": "Disabled"}),
        (
            _flavor(hyperthreading="enabled"),
            _flavor(hyperthreading="disabled"),
            ((_KEY, "enabled", "disabled"),),
            {"LogicalProc": "Disabled"},
        ),
        # It stays as it is.
        (_flavor(hyperthreading="enabled"), _flavor(), (), {}),
        # An unmodified Nova has deployed it without.
        (_flavor(hyperthreading="disabled"), _flavor(hyperthreading="disabled"), (), {"LogicalProc": "Disabled"}),
    ],
)
def test_what_changes_is_what_the_new_flavor_says_and_the_node_is_not(
    old: Flavor, new: Flavor, configurations: tuple[tuple[str, str, str], ...], changes: dict[str, str]
) -> None:
    plan = _plan(old, new)
    assert plan.configurations == tuple(Configuration(*each) for each in configurations)
    assert bios_changes(plan.steps) == changes


def test_own_steps_run_for_what_changes_and_all_that_the_new_flavor_asks_is_required() -> None:
    assert _plan(_flavor(raid="10"), _flavor(raid="10")).steps == ()
    plan = _plan(_flavor(hyperthreading="enabled"), _flavor(hyperthreading="enabled", raid="10"))
    assert [step["interface"] for step in plan.steps] == ["raid"]
    assert {item.trait for item in plan.requirements} == {"HW_CPU_HYPERTHREADING", "OWNER_NOVA"}


@pytest.mark.parametrize("bios", [(), (BiosChange("LogicalProc", ("Disabled",)),)], ids=["steps", "steps and BIOS"])
def test_steps_that_may_destroy_what_is_there_do_not_run_unless_their_template_says_so(
    bios: tuple[BiosChange, ...],
) -> None:
    template = Template("raid", "10", (), (Variant(bios, (_STEP,)),))
    with pytest.raises(NotReconfigurable, match=r"raid=10: its template has steps of its own.*in-use: true"):
        _plan(_flavor(), _flavor(raid="10"), templates=effective(None).replaced_by([template]))


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (_flavor(), replace(_flavor(), memory_mb=1, root_gb=1), "the flavors differ in memory_mb, root_gb"),
        (_flavor(), Flavor(vcpus=2), "the flavors differ in 'resources:CUSTOM_BAREMETAL'"),
        (_flavor(), _flavor(hyperthreading="odd"), "deploy-config:hyperthreading='odd': nobody knows this value"),
    ],
)
def test_what_a_node_cannot_become_is_refused(old: Flavor, new: Flavor, reason: str) -> None:
    with pytest.raises(NotReconfigurable, match=reason) as raised:
        _plan(old, new)
    assert str(raised.value).startswith(f"The instance on the node '{_NODE.host}' was not changed: ")


def test_a_setting_that_cannot_be_changed_is_refused_even_if_it_is_right() -> None:
    """The trait says that it can be switched; what does not hold for the one value does not hold for the other."""
    with pytest.raises(NotReconfigurable, match="'LogicalProc' cannot be changed"):
        _plan(
            _flavor(), _flavor(hyperthreading="enabled"), bios={"LogicalProc": BiosSetting("Enabled", changeable=False)}
        )


def test_image_and_flavor_that_disagree_are_refused() -> None:
    with pytest.raises(FlavorImageConflict):
        reconfiguration(
            _flavor(), _flavor(hyperthreading="enabled"), _NODE, pipeline_of("deploy_config"), Image({_KEY: "disabled"})
        )


def test_without_the_filter_nothing_is_planned() -> None:
    with pytest.raises(NotReconfigurable, match="deploy_config is not enabled"):
        reconfiguration(_flavor(), _flavor(), _NODE, pipeline_of("hpet"))


def test_placement_is_asked_once_and_by_trait_only_if_it_says_no() -> None:
    plan = _plan(_flavor(), _flavor(hyperthreading="enabled"))
    is_found = mock.Mock(return_value=True)
    plan.check("uuid", is_found)
    is_found.assert_called_once_with("in_tree=uuid&required=HW_CPU_HYPERTHREADING%2COWNER_NOVA")
    with pytest.raises(
        NotReconfigurable, match="hyperthreading=enabled: Placement has it without HW_CPU_HYPERTHREADING"
    ):
        plan.check("uuid", lambda query: "HYPERTHREADING" not in query)
    with pytest.raises(NotReconfigurable, match="Placement has it without OWNER_NOVA"):
        plan.check("uuid", lambda query: "OWNER_NOVA" not in query)


def test_a_node_without_a_provider_is_said() -> None:
    with pytest.raises(NotReconfigurable, match="Placement has no resource provider of it"):
        _plan(_flavor(), _flavor(hyperthreading="enabled")).check("uuid", lambda _query: False)


def test_of_several_settings_only_those_that_differ_are_changed() -> None:
    both = Variant((BiosChange("A", ("1",)), BiosChange("B", ("1",))))
    plan = _plan(
        _flavor(),
        _flavor(x="on"),
        bios={"A": BiosSetting("0"), "B": BiosSetting("1")},
        templates=effective(None).replaced_by([Template("x", "on", (), (both,))]),
    )
    assert bios_changes(plan.steps) == {"A": "1"}
