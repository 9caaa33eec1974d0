# SPDX-License-Identifier: Apache-2.0

"""Starts guests on a real libvirt, paused, and destroys them at once."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree.ElementTree import Element, SubElement, tostring

from defusedxml.ElementTree import fromstring

from os_prefilter.common.threads import start_thread
from tests.guests.has import missing, seen
from tests.guests.records import NOT_KNOWN, REFUSED, STARTS

TIMEOUT = 90.0
"""Seconds after which a guest that has not started hangs; where QEMU's user
may not use KVM, one takes 41 s.
"""

TPM_SECRET = "c0a3a0e4-5c0f-4b9d-9a5d-6c1d8e0f7a11"  # noqa: S105 - its UUID
"""The UUID of the secret with which Nova has libvirt encrypt what a TPM keeps.
"""

_SECRET = (
    f"<secret ephemeral='yes' private='yes'><uuid>{TPM_SECRET}</uuid>"
    "<usage type='vtpm'><name>guest</name></usage></secret>"
)
_AT_ONCE = 10
_LONGEST = 120
_DISK_SIZE = 1024 * 1024
# After these, no guest can tell whether the host could do it if it had what it
# lacks: firmware, an emulator, a kernel that the guest brings, a TPM's
# program, memory.
_LACKS = re.compile(
    "Unable to find (any|'efi') firmware|No emulator found|Unknown"
    " architecture|Kernel image must be specified|Could not load|failed to"
    " initialize kvm|Could not access KVM|Unable to find 'swtpm|Secret not"
    " found|Cannot check QEMU binary|Failed to start QEMU binary|No space left"
    " on device|Failed to get .write. lock|Cannot allocate memory"
)
# The kernel gives up loading libvirt's BPF program for the guest's devices when
# a signal arrives meanwhile; the next start succeeds.
_AGAIN = "Resource temporarily unavailable"
_TRIES = 5
_PASSING = re.compile(
    r"\d{4}-\d\d-\d\dT[\d:.]+Z"
    r" |\(vm='[^']*'\)|[\dA-Fa-f]{2}(:[\dA-Fa-f]{2}){5}"
)


class Outcome(NamedTuple):
    """What became of a guest, and the last words of libvirt, of QEMU or of the
    driver.
    """

    answer: str
    """:data:`STARTS`, :data:`REFUSED` or :data:`NOT_KNOWN`."""
    reason: str = ""
    lacks: tuple[str, ...] = ()
    """The rows of which a guest that starts does not have the value."""


_STARTED = Outcome(STARTS)


class Guest(NamedTuple):
    xml: str
    refusal: str = ""
    asked: Mapping[str, str] = {}
    """Row -> value: what must be found in the guest once it has started."""


class Starter:
    """A libvirt in which guests are started.

    :param connection: to it
    :param root: of the file system that it sees
    """

    def __init__(self, connection: Any, root: Path = Path("/")) -> None:
        self._libvirt = import_module("libvirt")
        self._libvirt_qemu = import_module("libvirt_qemu")
        self._libvirt.registerErrorHandler(lambda *_: None, None)
        self._connection = connection
        self._disks = [
            root / _disk(number).lstrip("/") for number in range(_AT_ONCE)
        ]
        for disk in self._disks:
            disk.write_bytes(bytes(_DISK_SIZE))
            disk.chmod(0o666)
        with suppress(self._libvirt.libvirtError):
            connection.secretDefineXML(_SECRET).setValue(b"of a TPM")

    def close(self) -> None:
        """Remove the disks, and what libvirt keeps of guests with UEFI and of
        the secret.
        """
        for disk in self._disks:
            disk.unlink(missing_ok=True)
        for number in range(_AT_ONCE):
            with suppress(self._libvirt.libvirtError):
                domain = self._connection.defineXML(
                    _with_variables(_name(number))
                )
                domain.undefineFlags(self._libvirt.VIR_DOMAIN_UNDEFINE_NVRAM)
        with suppress(self._libvirt.libvirtError):
            self._connection.secretLookupByUUIDString(TPM_SECRET).undefine()

    def outcomes(self, guests: Iterable[Guest]) -> Iterator[Outcome]:
        """Start guests, some at the same time; once one hangs, what became of
        it and of the rest is not known.
        """
        under_way: deque[Future[Outcome]] = deque()
        hangs = False

        def oldest() -> Outcome:
            nonlocal hangs
            last = under_way.popleft()
            # A thread that waits for libvirt cannot be ended.
            hangs = hangs or not wait([last], TIMEOUT).done
            return (
                Outcome(NOT_KNOWN, f"no answer in {TIMEOUT:g} s")
                if hangs
                else last.result()
            )

        for number, guest in enumerate(guests):
            if len(under_way) == _AT_ONCE:
                yield oldest()
            if not hangs:
                under_way.append(
                    start_thread(
                        partial(self._outcome, guest, number % _AT_ONCE),
                        "guest",
                    )
                )
            else:
                under_way.append(Future())
        while under_way:
            yield oldest()

    def _outcome(self, guest: Guest, number: int) -> Outcome:
        if guest.refusal:
            return Outcome(REFUSED, guest.refusal)
        names = ("PAUSED", "AUTODESTROY", "RESET_NVRAM")
        flags = sum(
            getattr(self._libvirt, f"VIR_DOMAIN_START_{name}")
            for name in names
        )
        try:
            domain = self._start(_prepared(guest.xml, number), flags)
        except self._libvirt.libvirtError as error:
            return self._failed(error)
        try:
            hmp = self._libvirt_qemu.VIR_DOMAIN_QEMU_MONITOR_COMMAND_HMP
            ask = partial(
                self._libvirt_qemu.qemuMonitorCommand, domain, flags=hmp
            )
            # A TPM of the model tpm-crb is on no bus.
            tree = f"{ask('info qtree')}\n{ask('info tpm')}"
            lacks = missing(
                seen(fromstring(domain.XMLDesc()), tree), guest.asked
            )
            return (
                Outcome(
                    REFUSED,
                    f"the guest starts without {' and '.join(lacks)}",
                    lacks,
                )
                if lacks
                else _STARTED
            )
        finally:
            with suppress(self._libvirt.libvirtError):
                domain.destroy()

    def _start(self, xml: str, flags: int) -> Any:
        for _ in range(_TRIES - 1):
            try:
                return self._connection.createXML(xml, flags)
            except self._libvirt.libvirtError as error:
                if _AGAIN not in str(error):
                    raise
        return self._connection.createXML(xml, flags)

    def _failed(self, error: Any) -> Outcome:
        reason = " ".join(_PASSING.sub("", str(error)).split())[-_LONGEST:]
        names = (
            "OPERATION_DENIED",
            "ACCESS_DENIED",
            "AUTH_FAILED",
            "RPC",
            "NO_CONNECT",
        )
        no_rights = error.get_error_code() in [
            getattr(self._libvirt, f"VIR_ERR_{name}") for name in names
        ]
        return Outcome(
            NOT_KNOWN if no_rights or _LACKS.search(reason) else REFUSED,
            reason,
        )


def _name(number: int) -> str:
    return f"os-prefilter-{os.getpid()}-{number}"


def _disk(number: int) -> str:
    # A folder that QEMU's user may enter.
    return f"/var/tmp/{_name(number)}.img"  # noqa: S108 - it holds nothing


def _with_variables(name: str) -> str:
    return (
        f"<domain type='qemu'><name>{name}</name><memory"
        " unit='MiB'>64</memory><os firmware='efi'><type arch='x86_64'"
        " machine='pc'>hvm</type></os><features><acpi/></features></domain>"
    )


def _prepared(xml: str, number: int) -> str:
    """Return the XML of a guest that needs no network and no disk of its own,
    and ends itself.
    """
    root: Element = fromstring(xml)
    _child(root, "name").text = _name(number)
    for disk in root.iter("disk"):
        disk.set("type", "file")
        driver = _child(disk, "driver")
        driver.attrib.pop("cache", None)
        driver.set("type", "raw")
        for source in disk.findall("source"):
            source.attrib = {"file": _disk(number)}
        if disk.get("device") == "cdrom" and disk.find("readonly") is None:
            SubElement(disk, "readonly")
        # Beside a CD-ROM with the same image.
        SubElement(disk, "shareable")
    for graphics in root.iter("graphics"):
        # Several libvirts of one machine would give two guests the same port.
        graphics.attrib = {"type": graphics.get("type", "vnc")}
        graphics[:] = [Element("listen", type="socket")]
    for interface in root.iter("interface"):
        interface.set("type", "user")
    for path in (
        ".//interface/source",
        ".//interface/target",
        ".//interface/virtualport",
        ".//log",
    ):
        for parent in root.findall(f"{path}/.."):
            for element in parent.findall(path.rpartition("/")[2]):
                parent.remove(element)
    for event in ("on_poweroff", "on_reboot", "on_crash"):
        _child(root, event).text = "destroy"
    return tostring(root, encoding="unicode")


def _child(element: Element, tag: str) -> Element:
    found = element.find(tag)
    return SubElement(element, tag) if found is None else found
