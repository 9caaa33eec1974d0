# SPDX-License-Identifier: Apache-2.0

"""What a running nova-compute was started with, from trees like /proc."""

from pathlib import Path

import pytest

from os_prefilter.adapters.nova_compute import (
    RunningCompute,
    arguments_to_read,
    configuration_arguments,
    running_computes,
)

_HOST = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
_CONTAINER = "90 80 0:55 / / rw - overlay overlay rw\n"
_DEBIAN = (
    "/usr/bin/python3",
    "/usr/bin/nova-compute",
    "--config-file=/etc/nova/nova.conf",
    "--config-file=/etc/nova/nova-compute.conf",
    "--log-file=/var/log/nova/nova-compute.log",
)
_DEBIAN_ARGUMENTS = (
    "--config-file",
    "/etc/nova/nova.conf",
    "--config-file",
    "/etc/nova/nova-compute.conf",
)


def _process(
    proc: Path,
    pid: int,
    *words: str,
    parent: int = 1,
    mounts: str = _HOST,
    cwd: str = "",
) -> None:
    folder = proc / str(pid)
    folder.mkdir()
    line = "".join(f"{word}\0" for word in words)
    (folder / "cmdline").write_text(line)
    (folder / "status").write_text(f"Name:\tx\nPPid:\t{parent}\n")
    (folder / "mountinfo").write_text(mounts)
    if cwd:
        (folder / "cwd").symlink_to(cwd)


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "mountinfo").write_text(_HOST)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        pytest.param(_DEBIAN, _DEBIAN_ARGUMENTS, id="debian"),
        pytest.param(
            ("/usr/bin/python3", "-s", "/usr/bin/nova-compute"),
            (),
            id="rhel",
        ),
        pytest.param(
            ("nova-compute", "--config-dir", "/etc/nova/nova.conf.d"),
            ("--config-dir", "/etc/nova/nova.conf.d"),
            id="directory",
        ),
    ],
)
def test_it_reads_the_arguments_of_nova_compute(
    proc: Path, words: tuple[str, ...], arguments: tuple[str, ...]
) -> None:
    _process(proc, 10, *words)
    assert running_computes(proc) == [RunningCompute(10, arguments)]


@pytest.mark.parametrize(
    "words",
    [
        pytest.param((), id="kernel thread"),
        pytest.param(("vi", "/usr/bin/nova-compute"), id="editor"),
        pytest.param(("python3", "x.py", "nova-compute"), id="argument"),
        pytest.param(("nova-compute-watcher",), id="longer name"),
    ],
)
def test_other_programs_are_not_nova_compute(
    proc: Path, words: tuple[str, ...]
) -> None:
    _process(proc, 10, *words)
    assert running_computes(proc) == []


def test_a_child_of_nova_compute_is_left_out(proc: Path) -> None:
    _process(proc, 10, *_DEBIAN)
    _process(proc, 11, *_DEBIAN, parent=10)
    assert [each.pid for each in running_computes(proc)] == [10]


def test_a_relative_path_starts_at_its_working_directory(proc: Path) -> None:
    _process(proc, 10, "nova-compute", "--config-file", "a", cwd="/opt")
    (found,) = running_computes(proc)
    assert found.arguments == ("--config-file", "/opt/a")


def test_a_relative_path_without_working_directory_is_unknown(
    proc: Path,
) -> None:
    _process(proc, 10, "nova-compute", "--config-file", "a")
    (found,) = running_computes(proc)
    assert "relative path" in found.unknown


def test_the_files_of_a_container_are_unknown(proc: Path) -> None:
    _process(proc, 10, *_DEBIAN, mounts=_CONTAINER)
    (found,) = running_computes(proc)
    assert found.arguments == _DEBIAN_ARGUMENTS
    assert "container" in found.unknown


def test_a_process_that_ended_is_left_out(proc: Path) -> None:
    (proc / "10").mkdir()
    assert running_computes(proc) == []


def test_an_option_without_a_path_is_empty() -> None:
    assert configuration_arguments(["--config-file"]) == ("--config-file", "")


_STARTED = RunningCompute(10, _DEBIAN_ARGUMENTS)


def test_without_arguments_the_running_ones_are_read() -> None:
    assert arguments_to_read((), [_STARTED]) == (_DEBIAN_ARGUMENTS, [])


def test_the_same_arguments_give_no_warning() -> None:
    assert arguments_to_read(_DEBIAN_ARGUMENTS, [_STARTED])[1] == []


def test_given_arguments_win_with_a_warning() -> None:
    given = ("--config-file", "/etc/nova/nova.conf")
    arguments, warnings = arguments_to_read(given, [_STARTED])
    assert arguments == given
    assert "nova-compute.conf" in warnings[0]


def test_without_nova_compute_nothing_is_compared() -> None:
    assert arguments_to_read((), []) == ((), [])


def test_two_processes_that_differ_are_warned_of() -> None:
    other = RunningCompute(20, ("--config-file", "/other"))
    arguments, warnings = arguments_to_read((), [_STARTED, other])
    assert arguments == ()
    assert len(warnings) == 2


def test_files_out_of_sight_are_not_read() -> None:
    hidden = RunningCompute(10, _DEBIAN_ARGUMENTS, "it runs in a container")
    arguments, warnings = arguments_to_read((), [hidden])
    assert arguments == ()
    assert "not known" in warnings[0]
