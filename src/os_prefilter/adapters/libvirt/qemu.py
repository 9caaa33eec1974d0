# SPDX-License-Identifier: Apache-2.0

"""QEMU's own list of its devices.

libvirt's domain capabilities list few devices, and vendors leave many out of
their builds. QEMU lists all that guests can have (``-device help``), in less
than a second and without any rights.

A binary that cannot be asked is no proof that a device is missing: each
failure is a :class:`QemuUnavailable` with the reason.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from typing import IO

from os_prefilter.common.errors import DocumentError
from os_prefilter.common.quoting import escape_line, quote
from os_prefilter.hosts.drivers.libvirt_facts import GuestFacts

TIMEOUT = 10.0
"""Seconds that one call of QEMU may take; it has taken 0.1 to 0.5 s."""

MAX_BYTES = 1024 * 1024
"""The longest list that is read; that of QEMU 7.2 has 16 KiB."""

_DEVICES = ("-machine", "none", "-device", "help")
# Root runs QEMU as this user; every other user runs it as itself.
_NOBODY = 65534
# Controller/Bridge/Hub devices:
_HEADING = re.compile(r"[A-Z][\w/ ]* devices:", re.ASCII)
# name "lsi53c895a", bus PCI, alias "lsi"
_NAME = re.compile(r'name "([\w.,+-]{1,100})"(?:,.*)?', re.ASCII)
_VERSION = re.compile(
    r"QEMU emulator version (\d{1,4})\.(\d{1,4})\.(\d{1,4})\b", re.ASCII
)


class QemuUnavailable(Exception):
    """QEMU's devices are not known; the text says why."""


def devices_of(binary: str) -> frozenset[str]:
    """Ask a QEMU for the names of its devices.

    :raises QemuUnavailable: if it does not list them
    """
    return parse_devices(_output_of(binary, _DEVICES))


def version_of(binary: str) -> tuple[int, int, int]:
    """Ask a QEMU for its version.

    :raises QemuUnavailable: if it does not name it
    """
    output = _output_of(binary, ("-version",))
    match = _VERSION.match(output.decode("ascii", "replace"))
    if not match:
        raise QemuUnavailable(f"{quote(binary)} names no version of QEMU")
    major, minor, micro = map(int, match.groups())
    return major, minor, micro


def parse_devices(output: bytes) -> frozenset[str]:
    """Return the names in the output of ``-machine none -device help``.

    :raises QemuUnavailable: if it is no such list
    """
    names = set()
    has_heading = False
    if len(output) > MAX_BYTES:
        raise QemuUnavailable(
            f"the list of devices is longer than {MAX_BYTES >> 20} MiB"
        )
    for line in output.decode("ascii", "replace").splitlines():
        if not line:
            continue
        device = _NAME.fullmatch(line)
        if device:
            names.add(device[1])
        elif _HEADING.fullmatch(line):
            has_heading = True
        else:
            raise QemuUnavailable(
                f"{quote(line)} is no line of QEMU's list of devices"
            )
    if not names or not has_heading:
        raise QemuUnavailable("QEMU lists no devices")
    return frozenset(names)


class SavedLists:
    """The lists of a host's QEMUs in files.

    :param files: (source, output of ``-machine none -device help``) of each
    :raises DocumentError: if one is no such list, or there are two for guests
        of the same architecture
    """

    def __init__(self, files: Iterable[tuple[str, bytes]]) -> None:
        self._lists: dict[str, frozenset[str]] = {}
        for where, output in files:
            try:
                devices = parse_devices(output)
            except QemuUnavailable as error:
                raise DocumentError(
                    where,
                    f"{error}. Save the output of 'QEMU -machine none -device"
                    " help' again, of the QEMU that 'virsh domcapabilities'"
                    " names in <path>.",
                ) from error
            # The processors are among the devices: max-i386-cpu.
            is_i386 = any(name.endswith("-i386-cpu") for name in devices)
            guests = "i686" if is_i386 else ""
            if guests in self._lists:
                raise DocumentError(
                    where,
                    "this is a second list of devices for guests of the same"
                    " architecture. Leave one out.",
                )
            self._lists[guests] = devices

    def devices_of(self, architecture: str, _emulator: str) -> frozenset[str]:
        """Return the devices of the QEMU for guests of an architecture.

        :raises QemuUnavailable: if no file has them
        """
        guests = "i686" if architecture == "i686" else ""
        if guests not in self._lists:
            raise QemuUnavailable(GuestFacts.devices_unknown)
        return self._lists[guests]


def _output_of(binary: str, arguments: Sequence[str]) -> bytes:
    """Run a QEMU for a limited time, and return what it prints."""
    # libvirt names it by its whole path. Another text is not searched for.
    if not Path(binary).is_absolute():
        raise QemuUnavailable(f"{quote(binary)} is no path of a QEMU")
    is_root = os.geteuid() == 0
    command = [binary, *arguments]
    # A group of its own, so that what a script has started ends with it.
    try:
        child = subprocess.Popen(  # noqa: S603 - no shell
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={"LC_ALL": "C", "PATH": os.defpath},
            start_new_session=True,
            user=_NOBODY if is_root else None,
            group=_NOBODY if is_root else None,
            extra_groups=[] if is_root else None,
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        reason = escape_line(str(error))
        raise QemuUnavailable(f"it cannot be run: {reason}") from error
    try:
        output = _read(child.stdout, binary)
        status = child.wait(TIMEOUT)
    except subprocess.TimeoutExpired as error:
        _kill(child)
        raise _no_end(binary) from error
    except QemuUnavailable:
        _kill(child)
        raise
    finally:
        if child.stdout:
            child.stdout.close()
    if status:
        raise QemuUnavailable(f"{quote(binary)} ends with status {status}")
    return output


def _read(pipe: IO[bytes] | None, binary: str) -> bytes:
    """Read what a program prints until it closes its output."""
    assert pipe is not None  # noqa: S101 - for the type checker
    end = time.monotonic() + TIMEOUT
    output = bytearray()
    with DefaultSelector() as selector:
        selector.register(pipe, EVENT_READ)
        while True:
            left = end - time.monotonic()
            if left <= 0 or not selector.select(left):
                raise _no_end(binary)
            chunk = os.read(pipe.fileno(), 65536)
            if not chunk:
                return bytes(output)
            output += chunk
            if len(output) > MAX_BYTES:
                raise QemuUnavailable(
                    f"{quote(binary)} prints more than {MAX_BYTES >> 20} MiB"
                )


def _kill(child: subprocess.Popen[bytes]) -> None:
    """End a program that still runs, and what it has started."""
    os.killpg(child.pid, signal.SIGKILL)
    # One that waits for a broken disk does not end by that either.
    with suppress(subprocess.TimeoutExpired):
        child.wait(1)


def _no_end(binary: str) -> QemuUnavailable:
    return QemuUnavailable(
        f"{quote(binary)} has not ended in {TIMEOUT:g} seconds"
    )
