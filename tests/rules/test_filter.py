# SPDX-License-Identifier: Apache-2.0

"""rules: operators' own properties and extra specs, and the traits that they
need.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from os_prefilter import RequestGroup
from os_prefilter.common.errors import MissingFact
from os_prefilter.rules.model import RuleSet
from os_prefilter.service import Service
from tests.conftest import conf_with, pipeline_of, required_by, spec_of
from tests.support.rule_texts import rule, rules_of, write_rules

_WINDOWS = "{image_property: os_distro, is: windows}"


def _pipeline(rules: RuleSet) -> Service:
    return Service.from_names("rules", facts={"rules": lambda _context: rules})


_NO_HOST = {"resources:VCPU": "0", "resources:MEMORY_MB": "0"}
_SCOPED = [
    ("_GPU", {"resources_GPU:VGPU": "1"}, True),
    ("_GPU", {"resources_GPU:VGPU": "0"}, False),
    ("_GPU", {"trait_GPU:CUSTOM_B": "required"}, False),
    ("_GPU", {"resources_GPU2:VGPU": "1"}, False),
    ("_GPU", {}, False),
    ("unsuffixed", {}, True),
    ("unsuffixed", _NO_HOST, False),
    (
        "unsuffixed",
        {"resources1:VCPU": "1", "resources1:MEMORY_MB": "512"},
        False,
    ),
    ("unsuffixed", {"resources1:VCPU": "1"}, True),
    ("unsuffixed", {**_NO_HOST, "resources:CUSTOM_BAREMETAL": "1"}, True),
]


def test_rule_applies_to_a_group_only_if_it_requests_resources() -> None:
    """Placement refuses a group of traits alone, and the request as a whole
    with it.
    """
    for scope, extra_specs, asked in _SCOPED:
        rules = rules_of(
            rule("r", _WINDOWS, ["CUSTOM_A"], more=f"scope: {scope}")
        )
        decision = _pipeline(rules).apply(
            spec_of({"os_distro": "windows"}, extra_specs)
        )
        assert [
            (item.trait, item.scope) for item in decision.requirements
        ] == [("CUSTOM_A", scope)] * asked
        notes = [str(note) for note in decision.notes]
        assert len(notes) == (not asked)
        if scope == "_GPU" and not asked:
            text = (
                "rule r: image property os_distro=windows: the flavor requests"
                " no resources in the group _GPU"
            )
            assert notes == [f"{text}: not required"]


def test_rule_does_not_apply_to_a_device_profile_group() -> None:
    """Cyborg chooses their suffixes."""
    rules = rules_of(
        rule("r", _WINDOWS, ["CUSTOM_A"], more="scope: device_profile_0")
    )
    spec = spec_of(
        {"os_distro": "windows"},
        requested_resources=[RequestGroup("device_profile_0", {"FPGA": 1})],
    )
    assert not _pipeline(rules).apply(spec).requirements


def test_rules_of_all_directories_apply_in_file_order(tmp_path: Path) -> None:
    """Files by name; hidden ones and those of other names are not read."""
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    write_rules(folders[1] / "a.yml", rule("c", _WINDOWS, ["CUSTOM_C"]))
    write_rules(folders[0] / "b.yaml", rule("b", _WINDOWS, ["CUSTOM_B"]))
    write_rules(folders[0] / "a.yaml", rule("a", _WINDOWS, ["CUSTOM_A"]))
    for name in (".hidden.yaml", "notes.txt", "a.yaml~", "yaml"):
        (folders[0] / name).write_text("{")
    asked = required_by(
        "rules",
        spec_of({"os_distro": "windows"}),
        rules_dirs=[str(folder) for folder in folders],
    )
    assert [trait for trait, _, _ in asked] == [
        "CUSTOM_A",
        "CUSTOM_B",
        "CUSTOM_C",
    ]


def test_rules_without_the_filter_or_the_filter_without_rules_log_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert required_by("rules", spec_of({"os_distro": "windows"})) == []
    assert caplog.text.count("inactive: set [prefilter] rules_dirs") == 1
    pipeline_of("noop", rules_dirs=[str(tmp_path)])
    assert caplog.text.count("inactive: name the filter 'rules' in") == 1
    caplog.clear()
    pipeline_of("rules", rules_dirs=[str(tmp_path)])
    # Nor where the service supplies its own.
    ours = rules_of(rule("r", _WINDOWS, ["CUSTOM_A"]))
    pipeline = Service.from_conf(
        conf_with(enabled_filters=["rules"]), {"rules": lambda _context: ours}
    )
    assert [
        item.trait
        for item in pipeline.apply(
            spec_of({"os_distro": "windows"})
        ).requirements
    ] == ["CUSTOM_A"]
    assert not caplog.text
    with pytest.raises(MissingFact, match="'rules' needs the fact 'rules'"):
        Service.from_names("rules")


_NEEDS = {
    "one condition": (
        _WINDOWS,
        {},
        ("os_distro=windows (needs x86-64-v3)",),
    ),
    "two conditions": (
        f"[{_WINDOWS}, {{extra_spec: tier, is: gold}}]",
        {"tier": "gold"},
        ("os_distro=windows (needs x86-64-v3)", "tier=gold"),
    ),
    "nothing of the author's": ("{project: p}", {}, ()),
}


@pytest.mark.parametrize(
    ("when", "extra_specs", "properties"), _NEEDS.values(), ids=_NEEDS
)
def test_author_reads_what_a_rule_says_that_the_guest_needs(
    when: str, extra_specs: dict[str, str], properties: tuple[str, ...]
) -> None:
    rules = rules_of(rule("r", when, ["CUSTOM_A"], more="needs: x86-64-v3"))
    spec = spec_of({"os_distro": "windows"}, extra_specs, project_id="p")
    (item,) = _pipeline(rules).apply(spec).requirements
    assert item.properties == properties
    assert "x86-64-v3" not in item.source
