# SPDX-License-Identifier: Apache-2.0

"""Configuration templates: the bundled ones, an operator's, and what is wrong
with others.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from os_prefilter.common.errors import DocumentError, InvalidOption
from os_prefilter.common.trait_names import Trait
from os_prefilter.service.conf import options_from
from os_prefilter.service.config_templates_file import load_templates
from os_prefilter.vocabulary.config_templates import (
    BUNDLED,
    BiosChange,
    Step,
    Template,
    Variant,
)
from tests.conftest import conf_with

_STEP = "{interface: raid, step: apply_configuration, args: {}, priority: 90}"


def _file(folder: Path, *templates: str) -> Path:
    path = folder / "templates.yaml"
    path.write_text(
        "templates:\n" + "".join(f"- {each}\n" for each in templates),
        encoding="utf-8",
    )
    return path


def test_bundled_templates_enable_and_disable_hyperthreading_by_the_same_settings() -> (
    None
):
    on, off = BUNDLED
    assert (str(on), str(off)) == (
        "deploy-config:hyperthreading=enabled",
        "deploy-config:hyperthreading=disabled",
    )
    for template in (on, off):
        assert template.traits == ("HW_CPU_HYPERTHREADING",)
        assert template.is_found
    names = [
        [change.name for variant in each.variants for change in variant.bios]
        for each in (on, off)
    ]
    assert names[0] == names[1]


def test_operators_template_file_replaces_and_adds_templates(
    tmp_path: Path,
) -> None:
    path = _file(
        tmp_path,
        "{config-type: hyperthreading, config-value: disabled}",
        "{config-type: raid, config-value: '10', traits: [CUSTOM_RAID],"
        " variants: [{in-use: true, node: {vendor: 'Dell*'}, bios: {A: [x, y],"
        " 'B[1]': z}, steps: [" + _STEP + "]}]}",
    )
    on, off, raid = load_templates(path)
    assert (on, off) == (
        next(iter(BUNDLED)),
        Template("hyperthreading", "disabled"),
    )
    step = Step("raid", "apply_configuration", {}, 90)
    variant = Variant(
        (BiosChange("A", ("x", "y")), BiosChange("B[1]", ("z",))),
        (step,),
        {"vendor": "Dell*"},
        in_use=True,
    )
    assert raid == Template("raid", "10", (Trait("CUSTOM_RAID"),), (variant,))
    assert options_from(
        conf_with(config_templates=str(path))
    ).templates == load_templates(path)


_GOOD = "config-type: t, config-value: v"


def _steps(*steps: str) -> str:
    return "{" + _GOOD + ", variants: [{steps: [" + ", ".join(steps) + "]}]}"


def _args(args: str) -> str:
    return _steps(_STEP.replace("{}", args))


_MISTAKES = [
    ("{config-type: t}", "templates[0] has no config-value"),
    ("{config-type: t, config-value: on}", "disagree on 'on'; .* quote it"),
    (
        "{config-type: 'a b', config-value: v}",
        "templates[0].config-type is 'a b'; expected",
    ),
    (
        '{config-type: "a\\nb", config-value: v}',
        r"templates[0].config-type is 'a\nb'; expected",
    ),
    (
        "{" + _GOOD + ", trait: [X]}",
        "templates[0] has the unknown key 'trait'; did you mean traits?",
    ),
    (
        "{" + _GOOD + ", traits: [lower]}",
        "templates[0].traits[0] is 'lower'; expected the name of a trait",
    ),
    (
        "{" + _GOOD + ", variants: [{bios: {A: x}, in-use: maybe}]}",
        "variants[0].in-use is 'maybe'; expected true or",
    ),
    (
        "{" + _GOOD + ", variants: [{}]}",
        "templates[0].variants[0] has none of bios, steps; give at least one",
    ),
    (
        "{" + _GOOD + ", variants: [{steps: []}]}",
        "variants[0].steps is empty; expected a list of steps",
    ),
    (
        "{" + _GOOD + ", variants: [{bios: {A: x}, node: {cpu: x}}]}",
        "variants[0].node has the unknown key 'cpu'",
    ),
    (
        _steps(_STEP.replace("raid", "riad")),
        (
            "steps[0].interface is 'riad'; expected one of Ironic's"
            " interfaces: bios, deploy, firmware, management, power"
        ),
    ),
    (
        _steps(_STEP.replace("90", "0")),
        "steps[0].priority is 0; expected a whole number of at least 1",
    ),
    (
        _args("{a: 2026-01-01}"),
        "steps[0].args.a is a date; expected what JSON can hold",
    ),
    (
        _steps(_STEP, _STEP),
        (
            "variants[0] has the step apply_configuration of the interface"
            " raid 2 times. Keep one"
        ),
    ),
    (
        _steps(_STEP.replace("raid", "bios")),
        (
            "has the step apply_configuration of the interface bios. Give its"
            " settings as bios"
        ),
    ),
    (
        "{" + _GOOD + ", traits: [HW_CPU_HYPERTHREDING]}",
        "traits[0] is 'HW_CPU_HYPERTHREDING'; expected a standard trait",
    ),
    *(
        (_args(args), "write a decimal number, true or false, or quote it")
        for args in ("{a: .nan}", "{a: [.inf]}", "{a: 010}", "{a: 1_000.5}")
    ),
    (
        "{" + _GOOD + ", variants: [{bios: {'**': x}}]}",
        "expected the name of a BIOS setting",
    ),
    (
        _args("{a: 1.0e+999}"),
        "steps[0].args.a is inf; expected what JSON can hold",
    ),
    (_args("{a: {1: 2}}"), "a key must be text"),
]


@pytest.mark.parametrize(
    ("template", "problem"),
    _MISTAKES,
    ids=[problem[:60] for _, problem in _MISTAKES],
)
def test_each_mistake_in_a_template_file_is_named_with_its_place(
    template: str, problem: str, tmp_path: Path
) -> None:
    path, pattern = (
        _file(tmp_path, template),
        re.escape(problem).replace(re.escape(".*"), ".*"),
    )
    with pytest.raises(
        DocumentError, match=f"^{path}:2: .*{pattern}"
    ) as raised:
        load_templates(path)
    assert str(raised.value).isprintable()
    with pytest.raises(InvalidOption, match="config_templates"):
        options_from(conf_with(config_templates=str(path)))


def test_second_template_for_the_same_value_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        DocumentError, match=r"templates\[1\] is the second of t=v. Keep one"
    ):
        load_templates(_file(tmp_path, "{" + _GOOD + "}", "{" + _GOOD + "}"))


@pytest.mark.parametrize(
    ("values", "default"),
    [
        (("disabled",), "enabled"),
        (("enabled", "disabled"), "enabled"),
        (("disabled, default: true",), "disabled"),
        (("enabled", "disabled, default: true"), "disabled"),
    ],
)
def test_type_has_the_default_of_the_file_or_else_the_bundled(
    values: list[str], default: str, tmp_path: Path
) -> None:
    items = [
        f"{{config-type: hyperthreading, config-value: {each}}}"
        for each in values
    ]
    assert [
        each.value
        for each in load_templates(_file(tmp_path, *items))
        if each.is_default
    ] == [default]


def test_second_default_of_a_type_is_refused(tmp_path: Path) -> None:
    first, second = (
        f"{{config-type: t, config-value: {each}, default: true}}"
        for each in "vw"
    )
    with pytest.raises(
        DocumentError,
        match=r"templates\[1\] is the second default of t. Keep one",
    ):
        load_templates(_file(tmp_path, first, second))


@pytest.mark.parametrize("traits", ["[]", "[CUSTOM_EVERYWHERE]"])
def test_template_that_fits_only_some_nodes_needs_a_trait_of_its_own(
    traits: str, tmp_path: Path
) -> None:
    everywhere = (
        "{config-type: t, config-value: w, traits: [CUSTOM_EVERYWHERE],"
        " variants: [{steps: [" + _STEP + "]}]}"
    )
    some = (
        "{" + _GOOD + f", traits: {traits}, variants: [{{bios: {{A: x}}}}]}}"
    )
    with pytest.raises(
        DocumentError,
        match="deploy-config:t=v: its variants fit only some nodes",
    ):
        load_templates(_file(tmp_path, everywhere, some))


def test_document_that_is_not_a_list_of_templates_is_refused(
    tmp_path: Path,
) -> None:
    path = tmp_path / "t.yaml"
    for text in (
        "",
        "[]",
        "templates: 1",
        "templates:",
        "a: 1",
        "templates: [1]",
        "{",
    ):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(DocumentError, match=r"t.yaml:\d: "):
            load_templates(path)
