"""``rules check``: the rules as understood, or all that is wrong with them; and ``explain`` with rules."""

import json
from pathlib import Path

import pytest

from os_prefilter_tools.cli.main import main
from tests.support.rule_texts import rule, write_rules

Capture = pytest.CaptureFixture[str]

_WHEN = "{image_property: os_distro, is: windows}"


@pytest.fixture
def conf(tmp_path: Path) -> str:
    """Return a configuration file with the rules of the folder."""
    path = tmp_path / "p.conf"
    path.write_text(f"[prefilter]\nenabled_filters = rules\nrules_dirs = {tmp_path}\n")
    return str(path)


def test_warnings_are_shown_beside_the_table(tmp_path: Path, capsys: Capture) -> None:
    path = write_rules(tmp_path / "r.yaml", rule("r", "{image_property: x, is: y}", ["CUSTOM_A"]))
    assert main(["rules", "check", str(path), "-f", "value", "-c", "Rule"]) == 0
    out, err = capsys.readouterr()
    assert out == "r\n"
    assert err.startswith(f"{path}:2: warning: the rule r never applies within Nova")
    assert err.splitlines()[1:] == [f"Rules: 1 in {path}."]


def test_missing_file_is_an_error_and_an_empty_directory_is_not(tmp_path: Path, capsys: Capture) -> None:
    assert main(["rules", "check", str(tmp_path / "none")]) == 1
    assert capsys.readouterr().err == f"{tmp_path}/none: there is no such file. Check the path.\n"
    assert main(["rules", "check", str(tmp_path), "-f", "value"]) == 0


def test_invalid_rule_file_stops_other_commands_with_a_one_line_error(
    conf: str, tmp_path: Path, capsys: Capture
) -> None:
    path = write_rules(tmp_path / "r.yaml", rule("r", _WHEN, ["a"]), "name: t")
    assert main(["explain", "--config-file", conf, "--property", "os_distro=windows"]) == 1
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 1
    assert f"[prefilter] rules_dirs: {path}:2: the rule r: require[0] is 'a'" in err
    assert f"There are 3 problems in all: 'os-prefilter rules check {tmp_path}' shows them." in err


def test_candidates_creates_the_traits_that_rules_name(conf: str, tmp_path: Path, capsys: Capture) -> None:
    """A required trait that no host has leaves none; a forbidden one takes no host away."""
    write_rules(
        tmp_path / "r.yaml",
        rule("r", _WHEN, ["CUSTOM_NEW_A"]),
        rule("s", "{image_property: os_distro, is: sles}", (), ["CUSTOM_NEW_B"]),
    )
    for distro, trait, code in (("windows", "CUSTOM_NEW_A", 2), ("sles", "CUSTOM_NEW_B", 0)):
        assert main(["candidates", "--config-file", conf, "--property", f"os_distro={distro}"]) == code
        assert f"No host of the fleet has {trait}; created" in capsys.readouterr().err


_FLEET = """
hosts:
  licensed-1:
    resources: {VCPU: 8, MEMORY_MB: 4096}
    traits: [COMPUTE_NODE, CUSTOM_LICENSED, COMPUTE_NET_VIF_MODEL_E1000E]
  licensed-2: {resources: {VCPU: 8, MEMORY_MB: 4096}, traits: [COMPUTE_NODE, CUSTOM_LICENSED]}
  other: {resources: {VCPU: 8, MEMORY_MB: 4096}, traits: [COMPUTE_NODE]}
"""
_IMAGES = [
    {"name": "=cmd", "disk_format": "raw", "properties": {"trait:CUSTOM_LICENSED": "required"}},
    {"name": "windows", "disk_format": "raw", "properties": {"os_distro": "windows"}},
    {"name": "sles", "disk_format": "raw", "properties": {"os_distro": "sles"}},
    {"name": "fast", "disk_format": "raw", "properties": {"hw_vif_model": "e1000e"}},
]
_RULES_OF_ALL_KINDS = """rules:
- {name: keep-off, unless: {image_property: os_distro, is: windows}, forbid: [CUSTOM_LICENSED]}
- name: gold
  when: {any: [{flavor: gold}, {project: p}]}
  unless: {requires: CUSTOM_LICENSED}
  require: [COMPUTE_NODE]
- {name: igb, when: {requires: COMPUTE_NET_VIF_MODEL_E1000E}, forbid: [CUSTOM_LICENSED]}
- {name: none, when: {image_property: os_distro, is: plan9}, forbid: [CUSTOM_LICENSED]}
"""


@pytest.fixture
def against(tmp_path: Path) -> list[str]:
    """Return the arguments for these rules against that fleet and those images."""
    (tmp_path / "fleet.yaml").write_text(_FLEET)
    (tmp_path / "images.json").write_text(json.dumps(_IMAGES))
    (tmp_path / "r.yaml").write_text(_RULES_OF_ALL_KINDS)
    (tmp_path / "p.conf").write_text("[prefilter]\nenabled_filters = image_metadata\n")
    rules, fleet, images, conf = (str(tmp_path / name) for name in ("r.yaml", "fleet.yaml", "images.json", "p.conf"))
    return ["rules", "check", rules, "--against", fleet, "--images", images, "--config-file", conf]


@pytest.mark.parametrize(
    "conditions",
    [
        "when: [{extra_spec: x, contains: web}, {extra_spec: x, contains: sap}]",
        "when: [{extra_spec: x, is: 'web,sap'}, {extra_spec: x, contains: sap}]",
        "when: [{extra_spec: x, in: [web, 'web,sap']}, {extra_spec: x, contains: sap}]",
        "when: [{hint: x, is: web}, {hint: x, is: sap}]",
        "when: {flavor: [a, b]}, unless: {flavor: a}",
        "when: {extra_spec: x, present: true}, unless: {extra_spec: x, is: true}",
        "when: {extra_spec: 'trait:CUSTOM_LICENSED', present: true}",
        "when: {extra_spec: 'hw:cpu_policy', present: true}",
    ],
)
def test_rule_that_a_request_can_match_is_judged(
    conditions: str, tmp_path: Path, against: list[str], capsys: Capture
) -> None:
    """With several conditions about one thing, with exceptions, and with values that only some requests may have."""
    (tmp_path / "r.yaml").write_text(f"rules: [{{name: r, {conditions}, require: [CUSTOM_NONE]}}]\n")
    assert main([*against, "-f", "value", "-c", "Verdict", "-c", "Count"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("becomes unschedulable 4\n", 2)


def test_names_of_images_are_no_formulas(against: list[str], capsys: Capture) -> None:
    main([*against, "-f", "csv"])
    out, _ = capsys.readouterr()
    assert out.splitlines()[1:3] == [
        '"keep-off","","becomes unschedulable",2,"\'=cmd: 2 to 0 hosts; fast: 1 to 0 hosts"',
        '"keep-off","","loses hosts",1,"sles: 3 to 1 host"',
    ]


def test_hints_that_users_may_give_leave_the_exit_code_at_0(
    tmp_path: Path, against: list[str], capsys: Capture
) -> None:
    (tmp_path / "r.yaml").write_text("hint_traits: [CUSTOM_LICENSED]\n")
    assert main([*against, "-f", "value", "-c", "Verdict"]) == 0
    assert set(capsys.readouterr().out.splitlines()) == {"becomes unschedulable", "loses hosts", "ok"}


@pytest.mark.parametrize("option", ["--images", "--config-file"])
def test_options_of_the_effects_need_a_fleet(option: str, tmp_path: Path, capsys: Capture) -> None:
    path = write_rules(tmp_path / "r.yaml", rule("r", _WHEN, ["CUSTOM_A"]))
    assert main(["rules", "check", str(path), option, "x"]) == 1
    assert capsys.readouterr().err == f"{option}: it is for --against FLEET alone. Give that, too.\n"


def test_rules_with_mistakes_are_not_judged(tmp_path: Path, against: list[str], capsys: Capture) -> None:
    (tmp_path / "r.yaml").write_text("rules: [{name: r}]\n")
    assert main(against) == 1
    assert capsys.readouterr().out == ""
