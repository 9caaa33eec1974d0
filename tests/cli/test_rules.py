# SPDX-License-Identifier: Apache-2.0

"""``rules check``: the rules as understood, or all that is wrong with them;
and ``explain`` with rules.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from os_prefilter_tools.cli.main import main
from tests.support.commands import Capture, Cli, placed
from tests.support.rule_texts import rule, write_rules

_WHEN = "{image_property: os_distro, is: windows}"


@pytest.fixture
def conf(tmp_path: Path) -> str:
    return placed(
        tmp_path / "p.conf",
        f"[prefilter]\nenabled_filters = rules\nrules_dirs = {tmp_path}\n",
    )


def test_warnings_are_shown_beside_the_table(tmp_path: Path, cli: Cli) -> None:
    path = write_rules(
        tmp_path / "r.yaml",
        rule("r", "{image_property: x, is: y}", ["CUSTOM_A"]),
    )
    out, err = cli.run(
        "rules", "check", str(path), "-f", "value", "-c", "Rule"
    )
    assert out == "r\n"
    assert err.startswith(
        f"{path}:2: warning: the rule r never applies within Nova"
    )
    assert err.splitlines()[1:] == [f"Rules: 1 in {path}."]


def test_missing_file_is_an_error(tmp_path: Path, capsys: Capture) -> None:
    assert main(["rules", "check", str(tmp_path / "none")]) == 1
    assert (
        capsys.readouterr().err
        == f"{tmp_path}/none: there is no such file. Check the path.\n"
    )


def test_directory_without_files_of_rules_is_an_error(
    tmp_path: Path, cli: Cli
) -> None:
    """Nothing was checked: of several directories, one may be misspelt, or
    have files of another suffix.
    """
    good, other = tmp_path / "good", tmp_path / "other"
    good.mkdir()
    other.mkdir()
    write_rules(good / "r.yaml", rule("r", _WHEN, ["CUSTOM_A"]))
    write_rules(other / "r.yaml.bak", rule("s", _WHEN, ["CUSTOM_A"]))
    out, err = cli.run("rules", "check", str(good), str(other), code=1)
    assert out == ""
    assert (
        err
        == f"{other}: no file of rules is in it: their names end in .yaml or"
        " .yml.\n"
    )


def test_invalid_rule_file_stops_other_commands_with_a_one_line_error(
    conf: str, tmp_path: Path, cli: Cli
) -> None:
    path = write_rules(tmp_path / "r.yaml", rule("r", _WHEN, ["a"]), "name: t")
    err = cli.error(
        "explain", "--config-file", conf, "--property", "os_distro=windows"
    )
    assert len(err.splitlines()) == 1
    assert (
        f"[prefilter] rules_dirs: {path}:2: the rule r: require[0] is 'a'"
        in err
    )
    assert (
        f"There are 3 problems in all: 'os-prefilter rules check {tmp_path}'"
        " shows them." in err
    )


def test_candidates_creates_the_traits_that_rules_name(
    conf: str, tmp_path: Path, capsys: Capture
) -> None:
    """A required trait that no host has leaves none; a forbidden one takes no
    host away.
    """
    write_rules(
        tmp_path / "r.yaml",
        rule("r", _WHEN, ["CUSTOM_NEW_A"]),
        rule(
            "s", "{image_property: os_distro, is: sles}", (), ["CUSTOM_NEW_B"]
        ),
    )
    for distro, trait, code in (
        ("windows", "CUSTOM_NEW_A", 2),
        ("sles", "CUSTOM_NEW_B", 0),
    ):
        assert (
            main(
                [
                    "candidates",
                    "--config-file",
                    conf,
                    "--property",
                    f"os_distro={distro}",
                ]
            )
            == code
        )
        assert (
            f"No host of the fleet has {trait}; created"
            in capsys.readouterr().err
        )
