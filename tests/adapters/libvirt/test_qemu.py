# SPDX-License-Identifier: Apache-2.0

"""QEMU's list of its devices: what it has, and binaries that list nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from os_prefilter.adapters.libvirt import qemu
from os_prefilter.adapters.libvirt.qemu import (
    QemuUnavailable,
    devices_of,
    parse_devices,
    version_of,
)
from tests.support.qemu import LIST, program, public_folder


@pytest.fixture
def folder() -> Iterator[Path]:
    with public_folder() as found:
        yield found


def test_list_has_the_names_of_all_devices() -> None:
    assert parse_devices(LIST.encode()) == {
        "e1000",
        "virtio-net-pci",
        "tpm-crb",
        "AMDVI-PCI",
        "power9_v2.0-powerpc64-cpu",
    }


def test_list_is_that_of_an_unprivileged_call_without_input(
    folder: Path,
) -> None:
    body = f"cat <<'E'\n{LIST}E"
    binary = program(
        folder,
        '[ "$*" = "-machine none -device help" ] || exit 3',
        '[ "$(id -u)" != 0 ] || exit 4',
        '[ -z "$(cat)" ] || exit 5',
        "echo ignored >&2",
        body,
    )
    assert devices_of(binary) == parse_devices(LIST.encode())


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["exit 1"], "ends with status 1"),
        (["kill -9 $$"], "ends with status -9"),
        (["true"], "lists no devices"),
        (["echo Network devices:"], "lists no devices"),
        (["""echo 'name "e1000", bus PCI'"""], "lists no devices"),
        (["echo Segmentation fault"], "'Segmentation fault' is no line"),
        (["head -c 3000 /dev/urandom"], "is no line of QEMU's list"),
        (["echo Network devices:", "echo 'name \"e1'"], "is no line of QEMU"),
        (["exec yes"], "prints more than 1 MiB"),
        (["head -c 100000000 /dev/zero"], "prints more than 1 MiB"),
    ],
    ids=[
        "fails",
        "is killed",
        "prints nothing",
        "prints a heading alone",
        "prints no heading",
        "prints a message",
        "prints garbage",
        "stops within a line",
        "prints without an end",
        "prints 100 MB",
    ],
)
def test_binary_that_lists_no_devices_is_an_error_with_the_reason(
    folder: Path, lines: list[str], reason: str
) -> None:
    with pytest.raises(QemuUnavailable, match=reason) as raised:
        devices_of(program(folder, *lines))
    assert str(raised.value).isprintable()


@pytest.mark.parametrize(
    "lines",
    [["exec sleep 60"], ["wait"], ["exit"]],
    ids=["hangs", "waits for its child", "leaves its child"],
)
def test_binary_that_hangs_is_ended_with_all_that_it_has_started(
    folder: Path, monkeypatch: pytest.MonkeyPatch, lines: list[str]
) -> None:
    monkeypatch.setattr(qemu, "TIMEOUT", 0.5)
    lived = folder / "lived"
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    pipe.chmod(0o666)
    child = f"(exec 9>{pipe}; sleep 60; touch {lived}) &"
    binary = program(folder, child, *lines)
    folder.chmod(0o777)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with os.fdopen(reader, "rb") as held:
        with pytest.raises(QemuUnavailable, match="not ended in 0.5 seconds"):
            devices_of(binary)
        # It ends when the last process does.
        os.set_blocking(held.fileno(), True)
        assert held.read() == b""
    assert not lived.exists()


@pytest.mark.parametrize(
    ("binary", "reason"),
    [
        ("/nonexistent/qemu", "it cannot be run: .* No such file"),
        ("/etc/passwd", "it cannot be run: .* Permission denied"),
        ("/", "it cannot be run: .* Permission denied"),
        ("qemu-system-x86_64", "'qemu-system-x86_64' is no path of a QEMU"),
        ("", "'' is no path of a QEMU"),
        ("/bin/a\0b", "it cannot be run: embedded null byte"),
    ],
)
def test_path_without_a_program_is_an_error_with_the_reason(
    binary: str, reason: str
) -> None:
    with pytest.raises(QemuUnavailable, match=reason):
        devices_of(binary)


def test_list_that_is_too_long_is_an_error() -> None:
    with pytest.raises(QemuUnavailable, match="longer than 1 MiB"):
        parse_devices(LIST.encode() * 5000)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7)", (7, 2, 22)),
        ("QEMU emulator version 10.0.0 (qemu-kvm-10.0.0-14.el10)", (10, 0, 0)),
    ],
)
def test_version_is_the_one_that_qemu_names(
    folder: Path, text: str, version: tuple[int, int, int]
) -> None:
    binary = program(folder, '[ "$*" = -version ] || exit 3', f"echo '{text}'")
    assert version_of(binary) == version


def test_binary_without_a_version_is_no_qemu(folder: Path) -> None:
    with pytest.raises(QemuUnavailable, match="names no version of QEMU"):
        version_of(program(folder, "echo GNU bash"))
