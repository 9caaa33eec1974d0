# SPDX-License-Identifier: Apache-2.0

"""The files and directories that nova-compute reads, in temporary trees."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from oslo_config import cfg

from os_prefilter.adapters.nova_conf import files_read, read_conf
from os_prefilter.common.errors import ConfigurationError, PrefilterError

_KVM = "[libvirt]\nvirt_type = kvm\n"
_QEMU = "[libvirt]\nvirt_type = qemu\n"


def _virt_type(conf: cfg.ConfigOpts) -> str:
    conf.register_opt(cfg.StrOpt("virt_type"), group="libvirt")
    return str(conf.libvirt.virt_type)


def _write(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    "later",
    [
        "nova-compute.conf",
        "nova.conf.d/10-compute.conf",
        "nova-compute.conf.d/10.conf",
    ],
)
def test_the_default_files_are_those_of_nova_compute(
    home: Path, later: str
) -> None:
    _write(home / "nova.conf", _KVM)
    _write(home / later, _QEMU)
    assert _virt_type(read_conf(())) == "qemu"


def test_the_last_named_file_wins(home: Path) -> None:
    first = _write(home / "a", _KVM)
    second = _write(home / "b", _QEMU)
    words = ("--config-file", first, "--config-file", second)
    assert _virt_type(read_conf(words)) == "qemu"


def test_a_named_directory_leaves_the_default_files(home: Path) -> None:
    _write(home / "nova.conf", _QEMU)
    _write(home / "extra/a.conf", "[DEFAULT]\n")
    words = ("--config-dir", str(home / "extra"))
    assert _virt_type(read_conf(words)) == "qemu"


@pytest.mark.usefixtures("home")
def test_without_files_the_configuration_is_empty() -> None:
    assert files_read(read_conf(())) == ""


def test_each_named_directory_is_in_messages(home: Path) -> None:
    """oslo.config's own option has only the last one."""
    _write(home / "a" / "a.conf", _KVM)
    _write(home / "b" / "b.conf", _KVM)
    words = ("--config-dir", f"{home}/a", "--config-dir", f"{home}/b")
    assert files_read(read_conf(words)) == f"{home}/a, {home}/b"


@pytest.mark.parametrize("option", ["--config-file", "--config-dir"])
def test_a_missing_path_is_an_error(home: Path, option: str) -> None:
    with pytest.raises(PrefilterError, match="missing"):
        read_conf((option, str(home / "missing")))


@pytest.mark.parametrize(
    "folder", ["extra", "nova.conf.d"], ids=["given", "default"]
)
def test_a_named_pipe_in_a_directory_is_an_error(
    home: Path, folder: str
) -> None:
    """Reading it would never end."""
    (home / folder).mkdir()
    os.mkfifo(home / folder / "a.conf")
    given = ("--config-dir", str(home / "extra"))
    words = given if folder == "extra" else ()
    with pytest.raises(PrefilterError, match=r"a\.conf: this is a named pipe"):
        read_conf(words)


def test_a_masked_file_in_a_directory_is_empty(home: Path) -> None:
    _write(home / "nova.conf.d/a.conf", _KVM)
    (home / "nova.conf.d/b.conf").symlink_to(os.devnull)
    assert _virt_type(read_conf(())) == "kvm"


def test_a_file_as_directory_is_an_error(home: Path) -> None:
    path = _write(home / "nova.conf", _KVM)
    with pytest.raises(ConfigurationError, match="this is a file; give the"):
        read_conf(("--config-dir", path))


def test_a_directory_that_cannot_be_listed_is_an_error(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(home / "nova.conf.d/a.conf", _KVM)

    def refuse(path: str) -> list[str]:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "listdir", refuse)
    with pytest.raises(ConfigurationError, match="Permission denied"):
        read_conf(())


def test_an_error_has_no_password(home: Path) -> None:
    path = _write(home / "nova.conf", "[placement]\n  secret123\n")
    with pytest.raises(ConfigurationError) as caught:
        read_conf(("--config-file", path))
    assert "secret123" not in str(caught.value)


@pytest.mark.parametrize("option", ["--config-file", "--config-dir"])
def test_a_path_that_is_too_long_is_an_error(option: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read as a nova"):
        read_conf((option, "a" * 5000))
