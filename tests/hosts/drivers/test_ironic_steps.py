# SPDX-License-Identifier: Apache-2.0

"""ironic: the steps that configure a node, of the first variant that fits
it.
"""

from __future__ import annotations

from typing import Any

import pytest

from os_prefilter import Flavor, RequestSpec, guest_settings
from os_prefilter.common.errors import ImpossibleCombination, UnsupportedByHost
from os_prefilter.hosts.drivers.ironic_facts import BiosSetting, IronicFacts
from os_prefilter.hosts.drivers.ironic_steps import (
    bios_changes,
    deploy_steps,
    fit,
)
from os_prefilter.vocabulary.config_templates import (
    BUNDLED,
    BiosChange,
    Step,
    Template,
    Templates,
    Variant,
)
from tests.support.tables import cases

_SWITCH = BiosSetting("Enabled", allowed=("Enabled", "Disabled"))
_DELL = {"LogicalProc": _SWITCH, "BootMode": BiosSetting("Uefi")}
_RAID = Step(
    "raid", "apply_configuration", {"raid_config": {"logical_disks": []}}, 90
)


def _template(*variants: Variant, name: str = "x") -> Template:
    return Template(name, "on", (), variants)


def _change(name: str, *values: str) -> Variant:
    """Return a variant that changes one BIOS setting."""
    return Variant((BiosChange(name, values),))


def _facts(*templates: Template, **fields: Any) -> IronicFacts:
    fields.setdefault("bios", _DELL)
    fields.setdefault("templates", BUNDLED.replace_with(templates))
    return IronicFacts(**fields)


def _steps(facts: IronicFacts, **configuration: str) -> list[dict[str, Any]]:
    extra_specs = {
        f"deploy-config:{key}": value for key, value in configuration.items()
    }
    spec = RequestSpec(Flavor(extra_specs=extra_specs))
    return deploy_steps(guest_settings(spec, facts), facts)


def _changes(
    bios: dict[str, BiosSetting], *templates: Template, **configuration: str
) -> dict[str, object]:
    """Return the BIOS settings that the steps of a node change."""
    facts = _facts(*templates, bios=bios)
    return {**bios_changes(_steps(facts, **configuration))}


def test_hyperthreading_is_a_bios_setting_changed_before_the_image_is_written() -> (
    None
):
    (step,) = _steps(_facts(), hyperthreading="disabled")
    changes = [{"name": "LogicalProc", "value": "Disabled"}]
    assert step.pop("args") == {"settings": changes}
    assert step == {
        "interface": "bios",
        "step": "apply_configuration",
        "priority": 150,
    }


def test_request_without_a_configuration_needs_no_step() -> None:
    assert _steps(_facts()) == []


def test_template_without_variants_needs_no_step() -> None:
    facts = IronicFacts(templates=Templates([Template("x", "on")]))
    assert _steps(facts, x="on") == []


_MAKERS = cases("""
LogicalProc                   | Enabled | Disabled
ProcHyperthreading            | Enabled | Disabled
ProcSMT                       | Enabled | Disabled
Processors_HyperThreading     | Enable  | Disable
Processors_SMTMode            | Enabled | Disabled
IntelHyperThread              | enabled | disabled
IntelHyperThreadingTech       | Enabled | Disabled
SMTMode                       | Auto    | Off
Hyper-Threading[ALL]          | Enable  | Disable
Hyper-Threading               | Enabled | Disabled
HyperThreading                | Enabled | Disabled
HyperThreading_00AF           | Enable  | Disable
SMTControl_0037               | Auto    | Disable
Intel(R) Hyper-Threading Tech | Enable  | Disable
""")


@pytest.mark.parametrize(("name", "on", "off"), _MAKERS)
def test_vendor_names_and_values_of_hyperthreading_settings_are_known(
    name: str, on: str, off: str
) -> None:
    setting = BiosSetting(on, allowed=(on, off))
    bios = {"NumLock": BiosSetting("On"), name: setting}
    assert _changes(bios, hyperthreading="enabled") == {name: on}
    assert _changes(bios, hyperthreading="disabled") == {name: off}


@pytest.mark.parametrize(
    "name",
    [
        "ProcVirtualization",
        "ProcTurboMode",
        "LogicalProcIdling",
        "RtdHyperThreadState",
    ],
)
def test_unrelated_bios_settings_are_not_taken_for_hyperthreading(
    name: str,
) -> None:
    reason = "none of its BIOS settings is one of the template"
    with pytest.raises(UnsupportedByHost, match=reason):
        _changes({name: BiosSetting()}, hyperthreading="enabled")


def test_changeable_one_of_two_matching_settings_is_used() -> None:
    bios = {
        "HyperThreading_1": BiosSetting(changeable=False),
        "HyperThreading_2": BiosSetting(),
    }
    found = _changes(bios, hyperthreading="enabled")
    assert found == {"HyperThreading_2": "Enabled"}


_BOTH_OR_ONE = _template(
    Variant((BiosChange("A", ("1",)), BiosChange("B", ("1",)))),
    _change("B", "2"),
)


def test_first_variant_whose_settings_are_there_is_used() -> None:
    bios = {"B": BiosSetting(), "A": BiosSetting()}
    assert _changes(bios, _BOTH_OR_ONE, x="on") == {"A": "1", "B": "1"}


def test_variant_with_a_missing_setting_is_skipped_for_the_next_one() -> None:
    bios = {"B": BiosSetting()}
    assert _changes(bios, _BOTH_OR_ONE, x="on") == {"B": "2"}


_NODES = cases("""
# The template's vendor | the node's vendor | fits
dell*       | Dell Inc.      | yes
dell*       | HPE            |
dell*       |                |
Acme [X]?   | ACME [X]?      | yes
acme [x]?*  | Acme XY Inc.   |
acme [x]?*  | Acme [X]Y      |
acme [x]?*  | Acme [X]? Inc. | yes
""")


def _fit_for(node: dict[str, str], facts: IronicFacts) -> bool:
    """Return whether a variant for such nodes fits; its steps say the same."""
    template = _template(Variant(steps=(_RAID,), node=node))
    found = fit(facts, template)
    assert found.steps == (() if found.reason else (_RAID,))
    return not found.reason


@pytest.mark.parametrize(("pattern", "vendor", "fits"), _NODES)
def test_variant_fits_only_nodes_of_its_vendor(
    pattern: str, vendor: str, fits: str
) -> None:
    found = _fit_for({"vendor": pattern}, _facts(vendor=vendor))
    assert found == bool(fits)


def test_variant_fits_only_nodes_of_its_driver() -> None:
    assert _fit_for({"driver": "idrac"}, _facts(hardware_type="idrac"))
    both = {"driver": "idrac", "vendor": "*"}
    assert not _fit_for(both, _facts(hardware_type="redfish"))


_BOOT_MODE = (BiosChange("BootMode", ("Bios",)),)


def test_changes_of_the_bios_become_one_step() -> None:
    raid = _template(Variant(_BOOT_MODE, (_RAID,)), name="raid")
    steps = _steps(_facts(raid), raid="on", hyperthreading="disabled")
    assert [step["interface"] for step in steps] == ["bios", "raid"]
    assert [step["priority"] for step in steps] == [150, 90]
    assert bios_changes(steps) == {
        "BootMode": "Bios",
        "LogicalProc": "Disabled",
    }


def test_step_of_the_highest_priority_comes_first() -> None:
    """Not in the order of the interfaces."""
    first = Step("apply", "first", {}, 10)
    facts = _facts(_template(Variant((), (_RAID, first))))
    interfaces = [step["interface"] for step in _steps(facts, x="on")]
    assert interfaces == ["raid", "apply"]


@pytest.mark.parametrize(
    ("variant", "in_use"),
    [
        (Variant(_BOOT_MODE), True),
        (Variant(_BOOT_MODE, (_RAID,)), False),
        (Variant(_BOOT_MODE, (_RAID,), in_use=True), True),
        (Variant((), (_RAID,)), False),
    ],
    ids=["BIOS", "BIOS and RAID", "template says so", "RAID"],
)
def test_steps_run_in_use_if_they_only_change_the_bios_or_the_template_says_so(
    variant: Variant, *, in_use: bool
) -> None:
    template = _template(variant)
    assert fit(_facts(template), template).in_use is in_use


@pytest.mark.parametrize(
    "variant",
    [
        _change("LogicalProc", "Disabled"),
        Variant(steps=(_RAID._replace(priority=91),)),
        Variant(steps=(_RAID._replace(args={}),)),
    ],
    ids=["setting", "priority", "arguments"],
)
def test_two_configurations_that_change_one_thing_differently_are_refused(
    variant: Variant,
) -> None:
    enabled = (BiosChange("LogicalProc", ("Enabled",)),)
    first = _template(Variant(enabled, (_RAID,)), name="first")
    facts = _facts(first, _template(variant, name="second"))
    both = "deploy-config:second=on.* deploy-config:first=on"
    with pytest.raises(ImpossibleCombination, match=both):
        _steps(facts, first="on", second="on")


_SPELLINGS = cases("""
# Now | the template's values | the BIOS allows | set
Enabled | Auto enabled Enabled |              | Enabled
Enabled | Auto Enabled         | Auto Enabled | Enabled
enabled | Enabled              |              | enabled
Off     | Auto Enabled         |              | Auto
""")


@pytest.mark.parametrize(("now", "values", "allowed", "expected"), _SPELLINGS)
def test_current_value_stays_if_it_is_one_of_the_accepted_spellings(
    now: str, values: str, allowed: str, expected: str
) -> None:
    template = _template(_change("S", *values.split()))
    setting = BiosSetting(now, allowed=tuple(allowed.split()))
    assert _changes({"S": setting}, template, x="on") == {"S": expected}


def test_a_setting_that_a_template_means_twice_is_refused() -> None:
    twice = (BiosChange("H*", ("1",)), BiosChange("HT", ("2",)))
    reason = "the template means its BIOS setting 'HT' twice"
    with pytest.raises(UnsupportedByHost, match=reason):
        _changes({"HT": BiosSetting()}, _template(Variant(twice)), x="on")


_TYPED = {
    "Boolean, on": BiosSetting("1", attribute_type="Boolean"),
    "Boolean, off": BiosSetting("0", attribute_type="Boolean"),
    "Integer": BiosSetting("4", attribute_type="Integer", least=1, most=9),
    "Integer without limits": BiosSetting("4", attribute_type="Integer"),
    "String": BiosSetting("", attribute_type="String", least=2, most=4),
    "type unknown to Ironic": BiosSetting("1"),
    "type not shown": BiosSetting("1", attribute_type=None),
}


def _typed(kind: str, *values: str) -> object:
    """Return what the step sets for the values of a template."""
    template = _template(_change("S", *values))
    return _changes({"S": _TYPED[kind]}, template, x="on")["S"]


_VALUES = cases("""
# The setting | the template's values | set, as Python writes it
# Ironic takes a text of 1 for false.
Boolean, on            | true         | True
Boolean, on            | 1            | True
Boolean, on            | false        | False
Boolean, on            | 0            | False
Boolean, off           | True         | True
Boolean, off           | FALSE        | False
# What another maker's setting takes is passed over.
Boolean, off           | Enabled true | True
# What it has stays, if it is one of them.
Boolean, off           | true false   | False
Integer                | 9            | 9
Integer                | 10 7         | 7
Integer                | 8 04         | 4
Integer without limits | -1           | -1
String                 | rack         | 'rack'
String                 | 12           | '12'
type unknown to Ironic | 0            | '0'
type not shown         | On           | 'On'
""")


@pytest.mark.parametrize(("kind", "values", "expected"), _VALUES)
def test_value_has_the_type_of_the_setting(
    kind: str, values: str, expected: str
) -> None:
    assert repr(_typed(kind, *values.split())) == expected


_REFUSED = cases("""
Boolean, on    | Enabled | takes true, false, not Enabled
Integer        | 0       | takes integers from 1 to 9, not 0
Integer        | ten     | takes integers from 1 to 9, not ten
Integer without limits | On | takes integers, not On
String         | racks   | takes texts of a length from 2 to 4, not racks
String         | r       | takes texts of a length from 2 to 4, not r
type not shown | 1       | it is not known whether its BIOS setting 'S' is Boolean: list the settings with --long
type not shown | False   | it is not known whether its BIOS setting 'S' is Boolean
""")


@pytest.mark.parametrize(("kind", "value", "reason"), _REFUSED)
def test_value_that_the_setting_cannot_have_is_refused_before_it_is_sent(
    kind: str, value: str, reason: str
) -> None:
    with pytest.raises(UnsupportedByHost, match=reason):
        _typed(kind, value)


@pytest.mark.parametrize(
    ("setting", "value", "expected"),
    [
        (_TYPED["Boolean, on"], True, True),
        (_TYPED["Boolean, off"], True, False),
        (BiosSetting(False, attribute_type="Boolean"), False, True),
        (BiosSetting("04", attribute_type="Integer"), 4, True),
        (BiosSetting("enabled"), "Enabled", True),
        (BiosSetting("1"), True, False),
        (BiosSetting(), "None", False),
    ],
)
def test_value_of_a_setting_is_compared_by_its_type(
    setting: BiosSetting, value: Any, *, expected: bool
) -> None:
    assert setting.has(value) is expected
