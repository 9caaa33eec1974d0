# SPDX-License-Identifier: Apache-2.0

"""ironic: the steps that configure a node, of the first variant that fits
it.
"""

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

_DELL = {
    "LogicalProc": BiosSetting("Enabled", allowed=("Enabled", "Disabled")),
    "BootMode": BiosSetting("Uefi"),
}
_RAID = Step(
    "raid", "apply_configuration", {"raid_config": {"logical_disks": []}}, 90
)


def _facts(*templates: Template, **fields: Any) -> IronicFacts:
    return IronicFacts(
        **{
            "bios": _DELL,
            "templates": BUNDLED.replace_with(templates),
            **fields,
        }
    )


def _steps(facts: IronicFacts, **configuration: str) -> list[dict[str, Any]]:
    spec = RequestSpec(
        Flavor(
            extra_specs={
                f"deploy-config:{key}": value
                for key, value in configuration.items()
            }
        )
    )
    return deploy_steps(guest_settings(spec, facts), facts)


def test_hyperthreading_is_a_bios_setting_changed_before_the_image_is_written() -> (
    None
):
    assert _steps(_facts(), hyperthreading="disabled") == [
        {
            "interface": "bios",
            "step": "apply_configuration",
            "args": {
                "settings": [{"name": "LogicalProc", "value": "Disabled"}]
            },
            "priority": 150,
        }
    ]
    assert (
        _steps(_facts())
        == _steps(
            IronicFacts(templates=Templates([Template("x", "on")])), x="on"
        )
        == []
    )


_MAKERS = [
    ("LogicalProc", "Enabled", "Disabled"),
    ("ProcHyperthreading", "Enabled", "Disabled"),
    ("ProcSMT", "Enabled", "Disabled"),
    ("Processors_HyperThreading", "Enable", "Disable"),
    ("Processors_SMTMode", "Enabled", "Disabled"),
    ("IntelHyperThread", "enabled", "disabled"),
    ("IntelHyperThreadingTech", "Enabled", "Disabled"),
    ("SMTMode", "Auto", "Off"),
    ("Hyper-Threading[ALL]", "Enable", "Disable"),
    ("Hyper-Threading", "Enabled", "Disabled"),
    ("HyperThreading", "Enabled", "Disabled"),
    ("HyperThreading_00AF", "Enable", "Disable"),
    ("SMTControl_0037", "Auto", "Disable"),
    ("Intel(R) Hyper-Threading Tech", "Enable", "Disable"),
]


@pytest.mark.parametrize(
    ("name", "on", "off"), _MAKERS, ids=[name for name, *_ in _MAKERS]
)
def test_vendor_names_and_values_of_hyperthreading_settings_are_known(
    name: str, on: str, off: str
) -> None:
    facts = _facts(
        bios={
            "NumLock": BiosSetting("On"),
            name: BiosSetting(on, allowed=(on, off)),
        }
    )
    assert bios_changes(_steps(facts, hyperthreading="enabled")) == {name: on}
    assert bios_changes(_steps(facts, hyperthreading="disabled")) == {
        name: off
    }


def test_unrelated_bios_settings_are_not_taken_for_hyperthreading() -> None:
    for name in (
        "ProcVirtualization",
        "ProcTurboMode",
        "LogicalProcIdling",
        "RtdHyperThreadState",
    ):
        with pytest.raises(
            UnsupportedByHost,
            match="none of its BIOS settings is one of the template",
        ):
            _steps(
                _facts(bios={name: BiosSetting()}), hyperthreading="enabled"
            )


def test_changeable_one_of_two_matching_settings_is_used() -> None:
    bios = {
        "HyperThreading_1": BiosSetting(changeable=False),
        "HyperThreading_2": BiosSetting(),
    }
    assert bios_changes(
        _steps(_facts(bios=bios), hyperthreading="enabled")
    ) == {"HyperThreading_2": "Enabled"}


def test_variant_with_a_missing_setting_is_skipped_for_the_next_one() -> None:
    both = Variant((BiosChange("A", ("1",)), BiosChange("B", ("1",))))
    one = Variant((BiosChange("B", ("2",)),))
    template = Template("x", "on", (), (both, one))
    assert bios_changes(
        _steps(_facts(template, bios={"B": BiosSetting()}), x="on")
    ) == {"B": "2"}
    found = bios_changes(
        _steps(
            _facts(template, bios={"B": BiosSetting(), "A": BiosSetting()}),
            x="on",
        )
    )
    assert found == {"A": "1", "B": "1"}


@pytest.mark.parametrize(
    ("node", "fields", "fits"),
    [
        ({"vendor": "dell*"}, {"vendor": "Dell Inc."}, True),
        ({"vendor": "dell*"}, {"vendor": "HPE"}, False),
        ({"vendor": "dell*"}, {}, False),
        ({"vendor": "Acme [X]?"}, {"vendor": "ACME [X]?"}, True),
        ({"vendor": "acme [x]?*"}, {"vendor": "Acme XY Inc."}, False),
        ({"vendor": "acme [x]?*"}, {"vendor": "Acme [X]Y"}, False),
        ({"vendor": "acme [x]?*"}, {"vendor": "Acme [X]? Inc."}, True),
        ({"driver": "idrac"}, {"hardware_type": "idrac"}, True),
        (
            {"driver": "idrac", "vendor": "*"},
            {"hardware_type": "redfish"},
            False,
        ),
    ],
)
def test_variant_fits_only_nodes_of_its_vendor_and_driver(
    node: dict[str, str], fields: dict[str, str], *, fits: bool
) -> None:
    template = Template("x", "on", (), (Variant(steps=(_RAID,), node=node),))
    assert fit(_facts(template, **fields), template).steps == (
        (_RAID,) if fits else ()
    )
    assert (fit(_facts(template, **fields), template).reason == "") == fits


def test_changes_of_the_bios_become_one_step_and_the_highest_priority_comes_first() -> (
    None
):
    raid = Template(
        "raid",
        "10",
        (),
        (Variant((BiosChange("BootMode", ("Bios",)),), (_RAID,)),),
    )
    steps = _steps(_facts(raid), raid="10", hyperthreading="disabled")
    assert [(step["interface"], step["priority"]) for step in steps] == [
        ("bios", 150),
        ("raid", 90),
    ]
    assert bios_changes(steps) == {
        "BootMode": "Bios",
        "LogicalProc": "Disabled",
    }
    # Not in the order of their interfaces.
    power = Template(
        "x", "on", (), (Variant((), (_RAID, Step("apply", "first", {}, 10))),)
    )
    assert [step["interface"] for step in _steps(_facts(power), x="on")] == [
        "raid",
        "apply",
    ]


def test_steps_run_in_use_if_they_only_change_the_bios_or_the_template_says_so() -> (
    None
):
    bios = (BiosChange("BootMode", ("Bios",)),)
    for variant, in_use in (
        (Variant(bios), True),
        (Variant(bios, (_RAID,)), False),
        (Variant(bios, (_RAID,), in_use=True), True),
        (Variant((), (_RAID,)), False),
    ):
        template = Template("x", "on", (), (variant,))
        assert fit(_facts(template), template).in_use is in_use


@pytest.mark.parametrize(
    "variant",
    [
        Variant((BiosChange("LogicalProc", ("Disabled",)),)),
        Variant(steps=(_RAID._replace(priority=91),)),
        Variant(steps=(_RAID._replace(args={}),)),
    ],
    ids=["setting", "priority", "arguments"],
)
def test_two_configurations_that_change_one_thing_differently_are_refused(
    variant: Variant,
) -> None:
    first = Template(
        "first",
        "on",
        (),
        (Variant((BiosChange("LogicalProc", ("Enabled",)),), (_RAID,)),),
    )
    second = Template("second", "on", (), (variant,))
    with pytest.raises(
        ImpossibleCombination,
        match="deploy-config:second=on.* deploy-config:first=on",
    ):
        _steps(_facts(first, second), first="on", second="on")


@pytest.mark.parametrize(
    ("now", "asked", "expected", "allowed"),
    [
        ("Enabled", ("Auto", "enabled", "Enabled"), "Enabled", ()),
        ("Enabled", ("Auto", "Enabled"), "Enabled", ("Auto", "Enabled")),
        ("enabled", ("Enabled",), "enabled", ()),
        ("Off", ("Auto", "Enabled"), "Auto", ()),
    ],
)
def test_current_value_stays_if_it_is_one_of_the_accepted_spellings(
    now: str, asked: tuple[str, ...], expected: str, allowed: tuple[str, ...]
) -> None:
    template = Template("x", "on", (), (Variant((BiosChange("S", asked),)),))
    assert bios_changes(
        _steps(
            _facts(template, bios={"S": BiosSetting(now, allowed=allowed)}),
            x="on",
        )
    ) == {"S": expected}


def test_a_setting_that_a_template_means_twice_is_refused() -> None:
    template = Template(
        "x",
        "on",
        (),
        (Variant((BiosChange("H*", ("1",)), BiosChange("HT", ("2",)))),),
    )
    with pytest.raises(
        UnsupportedByHost,
        match="the template means its BIOS setting 'HT' twice",
    ):
        _steps(_facts(template, bios={"HT": BiosSetting()}), x="on")


_TYPED = {
    "Boolean, on": BiosSetting("1", attribute_type="Boolean"),
    "Boolean, off": BiosSetting("0", attribute_type="Boolean"),
    "Integer": BiosSetting("4", attribute_type="Integer", least=1, most=9),
    "Integer without limits": BiosSetting("4", attribute_type="Integer"),
    "String": BiosSetting("", attribute_type="String", least=2, most=4),
    "type unknown to Ironic": BiosSetting("1"),
    "type not shown": BiosSetting("1", attribute_type=None),
}


def _typed(kind: str, *values: str) -> Any:
    """Return what the step sets for the values of a template."""
    template = Template("x", "on", (), (Variant((BiosChange("S", values),)),))
    value = bios_changes(
        _steps(_facts(template, bios={"S": _TYPED[kind]}), x="on")
    )["S"]
    return type(value), value


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        # Ironic takes a text of 1 for false.
        ("Boolean, on", ["true"], True),
        ("Boolean, on", ["1"], True),
        ("Boolean, on", ["false"], False),
        ("Boolean, on", ["0"], False),
        ("Boolean, off", ["True"], True),
        ("Boolean, off", ["FALSE"], False),
        # What another maker's setting takes is passed over.
        ("Boolean, off", ["Enabled", "true"], True),
        # What it has stays, if it is one of them.
        ("Boolean, off", ["true", "false"], False),
        ("Integer", ["9"], 9),
        ("Integer", ["10", "7"], 7),
        ("Integer", ["8", "04"], 4),
        ("Integer without limits", ["-1"], -1),
        ("String", ["rack"], "rack"),
        ("String", ["12"], "12"),
        ("type unknown to Ironic", ["0"], "0"),
        ("type not shown", ["On"], "On"),
    ],
)
def test_value_has_the_type_of_the_setting(
    kind: str, values: list[str], expected: object
) -> None:
    assert _typed(kind, *values) == (type(expected), expected)


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        ("Boolean, on", "Enabled", "takes true, false, not Enabled"),
        ("Integer", "0", "takes integers from 1 to 9, not 0"),
        ("Integer", "ten", "takes integers from 1 to 9, not ten"),
        ("Integer without limits", "On", "takes integers, not On"),
        ("String", "racks", "takes texts of a length from 2 to 4, not racks"),
        ("String", "r", "takes texts of a length from 2 to 4, not r"),
        (
            "type not shown",
            "1",
            (
                "it is not known whether its BIOS setting 'S' is Boolean: list"
                " the settings with --long"
            ),
        ),
        (
            "type not shown",
            "False",
            "it is not known whether its BIOS setting 'S' is Boolean",
        ),
    ],
)
def test_value_that_the_setting_cannot_have_is_refused_before_it_is_sent(
    kind: str, value: str, reason: str
) -> None:
    with pytest.raises(UnsupportedByHost, match=reason):
        _typed(kind, value)


@pytest.mark.parametrize(
    ("setting", "value", "expected"),
    [
        (BiosSetting("1", attribute_type="Boolean"), True, True),
        (BiosSetting("0", attribute_type="Boolean"), True, False),
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
