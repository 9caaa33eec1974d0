# SPDX-License-Identifier: Apache-2.0

"""What a running nova-compute was started with, from trees like /proc."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from oslo_config import cfg

from os_prefilter.adapters.nova_compute import (
    NovaConfiguration,
    RunningCompute,
    configuration_arguments,
    running_computes,
)
from os_prefilter.common.errors import ConfigurationError
from tests.support.proc import IN_CONTAINER, end, start

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
    start(proc, 10, *words)
    assert running_computes() == [RunningCompute(10, arguments)]


@pytest.mark.parametrize(
    "words",
    [
        pytest.param((), id="kernel thread"),
        pytest.param(("vi", "/usr/bin/nova-compute"), id="editor"),
        pytest.param(("python3", "x.py", "nova-compute"), id="argument"),
        pytest.param(("nova-compute-watcher",), id="longer name"),
        pytest.param(("nova-compute", "--version"), id="version"),
    ],
)
def test_other_programs_are_not_nova_compute(
    proc: Path, words: tuple[str, ...]
) -> None:
    start(proc, 10, *words)
    assert running_computes() == []


def test_a_child_of_nova_compute_is_left_out(proc: Path) -> None:
    start(proc, 10, *_DEBIAN)
    start(proc, 11, *_DEBIAN, parent=10)
    assert [each.pid for each in running_computes()] == [10]


def test_a_process_of_another_user_is_left_out(proc: Path) -> None:
    """Any user of the host could have any file read.

    A process of root's with the set-user-ID bit has the user as its real one.
    """
    start(proc, 10, *_DEBIAN, user=os.getuid() + 4321)
    assert running_computes() == []


def test_a_process_of_another_user_in_a_container_is_unknown(
    proc: Path,
) -> None:
    """Kolla's user nova has a number of its own."""
    start(proc, 10, *_DEBIAN, user=42436, mounts=IN_CONTAINER)
    (found,) = running_computes()
    assert "container" in found.unknown


def test_a_process_of_the_user_nova_is_read(
    proc: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "os_prefilter.adapters.nova_compute.getpwnam",
        lambda name: SimpleNamespace(pw_uid={"nova": 64060}[name]),
    )
    start(proc, 10, *_DEBIAN, user=64060)
    assert running_computes() == [RunningCompute(10, _DEBIAN_ARGUMENTS)]


def test_a_relative_path_is_unknown(proc: Path) -> None:
    """Its working directory is open to its own user alone."""
    start(proc, 10, "nova-compute", "--config-file", "a")
    (found,) = running_computes()
    assert found.unknown == "its files have relative paths"


def test_the_files_of_a_container_are_unknown(proc: Path) -> None:
    start(proc, 10, *_DEBIAN, mounts=IN_CONTAINER)
    (found,) = running_computes()
    assert found.arguments == _DEBIAN_ARGUMENTS
    assert "container" in found.unknown


def test_a_process_that_ended_is_left_out(proc: Path) -> None:
    (proc / "10").mkdir()
    assert running_computes() == []


def test_an_option_without_a_path_is_empty() -> None:
    assert configuration_arguments(["--config-file"]) == ("--config-file", "")


def _conf(path: Path, virt_type: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"[libvirt]\nvirt_type = {virt_type}\n")
    return str(path)


def _virt_type(nova: NovaConfiguration) -> str | None:
    option = cfg.StrOpt("virt_type")
    nova.conf.register_opt(option, group="libvirt")
    value: str | None = nova.conf.libvirt.virt_type
    return value


def _debian(home: Path) -> list[str]:
    _conf(home / "nova.conf", "kvm")
    _conf(home / "nova-compute.conf", "qemu")
    return [
        f"--config-file={home}/nova.conf",
        f"--config-file={home}/nova-compute.conf",
    ]


def _debian_of_one_file(home: Path) -> list[str]:
    _conf(home / "nova-compute.conf", "kvm")
    return ["--config-file", _conf(home / "nova.conf", "qemu")]


def _rhel(home: Path) -> list[str]:
    _conf(home / "nova.conf", "qemu")
    return []


def _nova_conf_d(home: Path) -> list[str]:
    (home / "nova.conf").touch()
    _conf(home / "nova.conf.d" / "01-nova.conf", "kvm")
    _conf(home / "nova.conf.d" / "25-nova-extra.conf", "qemu")
    return []


def _named_directory(home: Path) -> list[str]:
    _conf(home / "nova.d" / "a.conf", "kvm")
    _conf(home / "nova.d" / "b.conf", "qemu")
    return ["--config-dir", str(home / "nova.d")]


def _directory_of_the_program(home: Path) -> list[str]:
    _conf(home / "nova.conf", "kvm")
    _conf(home / "nova-compute.conf.d" / "a.conf", "qemu")
    return []


def _file_after_the_directory(home: Path) -> list[str]:
    directory = f"--config-dir={home / 'nova.d'}"
    _conf(home / "nova.d" / "a.conf", "kvm")
    return [directory, "--config-file", _conf(home / "last.conf", "qemu")]


_LAYOUTS = (
    _debian,
    _debian_of_one_file,
    _rhel,
    _nova_conf_d,
    _named_directory,
    _directory_of_the_program,
    _file_after_the_directory,
)


@pytest.mark.parametrize("layout", _LAYOUTS)
def test_each_layout_is_read_as_the_running_nova_compute_reads_it(
    layout: Callable[[Path], list[str]], home: Path, proc: Path
) -> None:
    """Nova's own oslo.config, called with the same command line, agrees."""
    words = layout(home)
    start(proc, 10, "/usr/bin/python3", "/usr/bin/nova-compute", *words)
    novas = cfg.ConfigOpts()
    novas(words, project="nova", prog="nova-compute")
    novas.register_opt(cfg.StrOpt("virt_type"), group="libvirt")
    assert novas.libvirt.virt_type == "qemu"
    assert _virt_type(NovaConfiguration()) == "qemu"


def test_rhoso_on_the_host_is_read_as_nova_compute_reads_it_in_its_container(
    home: Path, proc: Path, tmp_path: Path
) -> None:
    """Its start copies the files of the host into the container."""
    folder = tmp_path / "openstack" / "nova"
    _conf(folder / "01-nova.conf", "kvm")
    _conf(folder / "25-nova-extra.conf", "qemu")
    (folder / "nova-blank.conf").touch()
    (home / "nova.conf").touch()
    shutil.copytree(folder, home / "nova.conf.d")
    novas = cfg.ConfigOpts()
    novas([], project="nova", prog="nova-compute")
    novas.register_opt(cfg.StrOpt("virt_type"), group="libvirt")
    assert novas.libvirt.virt_type == "qemu"
    shutil.rmtree(home)
    start(proc, 10, "nova-compute", user=42436, mounts=IN_CONTAINER)
    nova = NovaConfiguration(("--config-dir", str(folder)))
    assert _virt_type(nova) == "qemu"
    assert not nova.unknown


@pytest.mark.usefixtures("proc")
def test_kolla_in_a_container_of_the_agents_is_read_by_default(
    home: Path,
) -> None:
    """It sees no nova-compute, and has its nova.conf where that has it."""
    _conf(home / "nova.conf", "qemu")
    assert _virt_type(NovaConfiguration()) == "qemu"


@pytest.mark.parametrize("layout", [_debian, _rhel, _nova_conf_d])
def test_default_files_are_read_without_a_running_nova_compute(
    layout: Callable[[Path], list[str]], home: Path, proc: Path
) -> None:
    layout(home)
    nova = NovaConfiguration()
    assert _virt_type(nova) == "qemu"
    assert not nova.unknown


@pytest.mark.usefixtures("proc")
def test_saved_documents_are_read_without_the_files_of_this_host(
    home: Path,
) -> None:
    _rhel(home)
    nova = NovaConfiguration(only_given=True)
    assert _virt_type(nova) is None


def test_given_arguments_win_with_a_warning(home: Path, proc: Path) -> None:
    start(proc, 10, "nova-compute", *_debian(home))
    given = ("--config-file", f"{home}/nova.conf")
    nova = NovaConfiguration(given)
    assert _virt_type(nova) == "kvm"
    (warning,) = nova.warnings
    assert warning == (
        f"nova-compute (process 10) was started to read {home}/nova.conf,"
        f" {home}/nova-compute.conf, and the given options name"
        f" {home}/nova.conf: the report may differ from what guests get. Leave"
        " them out, or give those of nova-compute."
    )


def test_other_arguments_for_the_same_files_give_no_warning(
    home: Path, proc: Path
) -> None:
    _debian(home)
    start(proc, 10, "nova-compute")
    given = [
        *("--config-file", f"{home}/nova.conf"),
        *("--config-file", f"{home}/nova-compute.conf"),
    ]
    assert not NovaConfiguration(given).warnings


def test_given_arguments_that_cannot_be_compared_are_read_with_a_warning(
    home: Path, proc: Path
) -> None:
    _rhel(home)
    start(proc, 10, "nova-compute", mounts=IN_CONTAINER)
    nova = NovaConfiguration(("--config-file", f"{home}/nova.conf"))
    assert not nova.unknown
    assert "was not compared" in nova.warnings[0]


def test_files_out_of_sight_are_not_known(home: Path, proc: Path) -> None:
    _rhel(home)
    start(proc, 10, *_DEBIAN, mounts=IN_CONTAINER)
    assert "process 10): it runs in a container" in NovaConfiguration().unknown


def test_two_that_read_different_files_are_not_known(
    home: Path, proc: Path
) -> None:
    start(proc, 10, "nova-compute", *_debian(home))
    start(proc, 20, "nova-compute", f"--config-file={home}/nova.conf")
    assert NovaConfiguration().unknown == (
        "nova-compute (process 10), nova-compute (process 20) read different"
        " files"
    )


def test_two_that_read_the_same_files_are_read(home: Path, proc: Path) -> None:
    words = _debian(home)
    start(proc, 10, "nova-compute", *words)
    start(proc, 20, "nova-compute", *words)
    assert _virt_type(NovaConfiguration()) == "qemu"


def _refuse(
    monkeypatch: pytest.MonkeyPatch, refused: Path | str, name: str
) -> None:
    """Refuse a path as the kernel refuses other users; root may read all."""
    target, attribute = {"listdir": (os, "listdir"), "open": (cfg, "open")}[
        name
    ]
    original: Callable[..., object] = getattr(target, attribute, open)

    def refusing(path: str, *rest: object) -> object:
        if str(path) == str(refused):
            raise PermissionError(13, "Permission denied", path)
        return original(path, *rest)

    monkeypatch.setattr(target, attribute, refusing, raising=False)


_DENIED = (
    pytest.param("nova.conf.d", "listdir", id="directory"),
    pytest.param("nova.conf.d/01-nova.conf", "open", id="file in it"),
    pytest.param("nova.conf", "open", id="file"),
)


@pytest.mark.parametrize(("refused", "function"), _DENIED)
@pytest.mark.usefixtures("proc")
def test_files_without_rights_are_not_known(
    refused: str, function: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _nova_conf_d(home)
    _refuse(monkeypatch, home / refused, function)
    nova = NovaConfiguration()
    assert "ermission denied" in nova.unknown or str(home) in nova.unknown
    assert _virt_type(nova) is None


@pytest.mark.usefixtures("home", "proc")
def test_closed_default_directory_is_not_known(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """oslo.config finds no file there, and Nova's defaults would be wrong."""
    monkeypatch.setattr(
        "os_prefilter.adapters.nova_conf._FOLDER", str(tmp_path)
    )
    _refuse(monkeypatch, tmp_path, "listdir")
    nova = NovaConfiguration()
    assert nova.unknown == (
        f"{tmp_path}: the directory cannot be read: Permission denied"
    )


@pytest.mark.parametrize(("refused", "function"), _DENIED)
@pytest.mark.usefixtures("proc")
def test_given_files_without_rights_are_an_error(
    refused: str, function: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _nova_conf_d(home)
    _refuse(monkeypatch, home / refused, function)
    given = ["--config-file", f"{home}/nova.conf"]
    given += ["--config-dir", f"{home}/nova.conf.d"]
    with pytest.raises(ConfigurationError):
        NovaConfiguration(given)


def test_a_restart_is_a_change_and_an_end_is_none(
    home: Path, proc: Path
) -> None:
    """While nova-compute is restarted, what it has read last counts."""
    _conf(home / "nova.conf", "kvm")
    start(proc, 10, "nova-compute")
    nova = NovaConfiguration()
    assert not nova.has_changed()
    end(proc, 10)
    assert not nova.has_changed()
    other = _conf(home / "other.conf", "qemu")
    start(proc, 20, "nova-compute", "--config-file", other)
    assert nova.has_changed()
    nova.read()
    assert _virt_type(nova) == "qemu"
    assert not nova.has_changed()


def test_what_is_no_longer_visible_leaves_what_was_read(
    home: Path, proc: Path
) -> None:
    """Placement is still reached by it, and nothing else is read."""
    _conf(home / "nova.conf", "qemu")
    start(proc, 10, "nova-compute")
    nova = NovaConfiguration()
    end(proc, 10)
    start(proc, 20, "nova-compute", mounts=IN_CONTAINER)
    _conf(home / "nova.conf", "kvm")
    assert nova.has_changed()
    nova.read()
    assert "container" in nova.unknown
    assert _virt_type(nova) == "qemu"


def test_files_that_could_not_be_read_are_read_in_the_next_round(
    home: Path, proc: Path
) -> None:
    """An agent may look while they are being written."""
    _conf(home / "nova.conf", "kvm")
    start(proc, 10, "nova-compute")
    nova = NovaConfiguration()
    other = home / "other.conf"
    end(proc, 10)
    start(proc, 20, "nova-compute", "--config-file", str(other))
    assert nova.has_changed()
    with pytest.raises(ConfigurationError):
        nova.read()
    assert nova.has_changed()
    _conf(other, "qemu")
    nova.read()
    assert _virt_type(nova) == "qemu"
    assert not nova.has_changed()


def test_a_wrong_file_leaves_what_was_read(home: Path, proc: Path) -> None:
    _conf(home / "nova.conf", "qemu")
    start(proc, 10, "nova-compute")
    nova = NovaConfiguration()
    (home / "nova.conf").write_text("[libvirt\n")
    with pytest.raises(ConfigurationError):
        nova.read()
    assert _virt_type(nova) == "qemu"
