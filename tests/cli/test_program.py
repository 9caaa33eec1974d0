# SPDX-License-Identifier: Apache-2.0

"""The program as a whole: which commands there are, what a start imports, and
how it ends where it cannot go on.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from os_prefilter_agent.cli.context import _StoreOnce
from os_prefilter_tools.cli.main import Program, main
from tests.support.commands import Capture, placed
from tests.support.project import our_entry_points


def test_a_command_imports_no_other_command() -> None:
    """Else each would wait for what all of them need together."""
    script = (
        "import sys; from os_prefilter_tools.cli.main import main;"
        ' main(["explain", "--property", "hw_vif_model=igb"])'
    )
    command = [sys.executable, "-c", f"{script}; print(*sys.modules)"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=600
    )
    imported = set(done.stdout.splitlines()[-1].split())
    assert "COMPUTE_NET_VIF_MODEL_IGB" in done.stdout
    assert "os_prefilter_tools.cli.explain" in imported
    others = {
        f"os_prefilter_tools.cli.{name}"
        for name in ("audit", "diagnose", "capabilities", "demo", "offer")
    }
    assert not imported & {"placement", "openstack", *others}


@pytest.mark.parametrize("argv", [["--help"], ["help"], [], ["-v"]])
def test_help_fits_the_terminal_and_names_each_command(
    argv: list[str], capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first text that a new user reads."""
    monkeypatch.setenv("COLUMNS", "80")
    assert main(argv) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    names = {
        line[2:23].strip() for line in lines[lines.index("Commands:") + 1 :]
    } - {""}
    assert names == dict(Program("0").command_manager).keys()


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (
            "--os-cloud none",
            (
                "The option --os-cloud belongs after a command, as in"
                " 'os-prefilter explain --os-cloud"
            ),
        ),
        (
            "vocabulary list --os-cloud none",
            "unrecognized arguments: --os-cloud none",
        ),
        ("--hosts f candidates", "The option --hosts belongs after a command"),
    ],
)
def test_option_before_the_command_is_named(
    argv: str,
    says: str,
    capsys: Capture,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The openstack client takes --os-cloud there."""
    monkeypatch.chdir(tmp_path)
    assert main(argv.split()) == 1
    err = capsys.readouterr().err
    assert says in err
    assert "is not an os-prefilter command" not in err


_UUID = "3f0c3d8e-55a1-4c3b-9a41-6d0f5c8e7b11"


def _options_with_a_value() -> Iterator[Any]:
    commands = Program("0").command_manager
    for name in dict(commands):
        factory, *_ = commands.find_command(name.split())
        for action in factory(Program("0"), None).get_parser(name)._actions:
            if type(action) is _StoreOnce and action.option_strings:
                yield pytest.param(
                    name,
                    action.option_strings[-1],
                    id=f"{name} {action.option_strings[-1]}",
                )


@pytest.mark.parametrize(("command", "option"), _options_with_a_value())
def test_an_option_that_is_given_twice_is_an_error(
    command: str, option: str, capsys: Capture
) -> None:
    """Of two files the first would not be read, and nothing would say so."""
    parser = (
        Program("0")
        .command_manager.find_command(command.split())[0](Program("0"), None)
        .get_parser(command)
    )
    (action,) = (
        each for each in parser._actions if option in each.option_strings
    )
    value = min(
        action.choices
        or [_UUID if (command, option) == ("decisions", "--server") else "34"]
    )
    with pytest.raises(SystemExit) as raised:
        parser.parse_args([option, value, f"{option}={value}"])
    assert raised.value.code == 1
    assert (
        f"{option}: it is given twice, and the first would not be read. Give"
        " it once" in capsys.readouterr().err
    )


def test_of_several_configuration_files_one_is_to_be_made(
    capsys: Capture,
) -> None:
    argv = "readiness --config-file nova.conf --config-file other.conf"
    assert main(argv.split()) == 1
    assert (
        "of several files make one: cat nova.conf nova-scheduler.conf > FILE"
        in capsys.readouterr().err
    )


_INTERRUPTED = """
import signal, sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == {package!r}:
            signal.raise_signal(signal.SIGINT)

# A script may have started the tests with it ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupt())
from {module} import {attribute}
sys.exit({attribute}())
"""


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("os-prefilter", "os_prefilter"),
        ("os-prefilter", "cliff.app"),
        ("os-prefilter-status", "oslo_upgradecheck"),
    ],
)
def test_interrupt_while_importing_ends_the_command_without_a_traceback(
    name: str, package: str
) -> None:
    """What an installer makes of the entry point, and Ctrl-C at the import of
    a package; 130 is a shell's exit code.
    """
    (point,) = [
        each
        for each in our_entry_points("console_scripts")
        if each.name == name
    ]
    script = _INTERRUPTED.format(
        package=package, module=point.module, attribute=point.attr
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert (done.returncode, done.stderr) == (130, "")


@pytest.mark.parametrize(
    ("command", "unbuffered"),
    [("--help", ""), ("filter list", "1"), ("snapshot", "")],
)
def test_output_that_cannot_be_written_is_an_error(
    command: str, unbuffered: str
) -> None:
    """On a full disk, with exit code 1 and the reason. A reader that has gone
    is none.
    """
    script = (
        "import sys; from os_prefilter_tools.cli.main import main;"
        " sys.exit(main(sys.argv[1:]))"
    )
    argv = [sys.executable, "-c", script, *command.split()]
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            argv,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            check=False,
        )
    assert done.returncode == 1
    says = (
        "The standard output cannot be written: No space left on device. Check"
        " where it is redirected to, and how much "
    )
    assert done.stderr.count("No space left") == done.stderr.count(says) == 1
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        argv,
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        check=False,
    )
    os.close(writer)
    assert done.returncode in (0, 141)
    assert done.stderr in ("", _EXAMPLE) or done.stderr.startswith("Filters: ")


_EXAMPLE = (
    "Hosts: the bundled example. Give --os-cloud NAME or --hosts FILE for"
    " others.\n"
)
"""A warning."""

_QUIET = """
audit --images {images} --only unschedulable
candidates --example intel-nic
capabilities show --driver fake
explain --filter noop --property os_version=12
readiness
snapshot
"""


_LEFT_OUT = (
    "Left out: 1: images[1]: this is no image. Expected the output of"
    " 'openstack image show -f json'.\n"
)


@pytest.mark.parametrize("command", _QUIET.strip().splitlines())
def test_quiet_option_suppresses_counts_and_queries_and_leaves_warnings(
    command: str, capsys: Capture, tmp_path: Path
) -> None:
    """The answer is the same."""
    entries = [
        {"name": "a", "disk_format": "raw", "properties": {}},
        {"name": "b"},
    ]
    argv = command.format(
        images=placed(tmp_path / "images.json", entries)
    ).split()
    assert main(argv) == 0
    usual = capsys.readouterr()
    assert usual.err.removeprefix(_EXAMPLE) or command == "snapshot"
    assert main(["-q", *argv]) == 0
    quiet = capsys.readouterr()
    assert (quiet.out, quiet.err.removeprefix(_EXAMPLE)) == (
        usual.out,
        _LEFT_OUT * ("audit" in command),
    )
