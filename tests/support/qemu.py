# SPDX-License-Identifier: Apache-2.0

"""Programs in place of QEMU."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

LIST = """\
Network devices:
name "e1000", bus PCI, alias "e1000-82540em", desc "Intel Gigabit Ethernet"
name "virtio-net-pci", bus PCI, alias "virtio-net"

Misc devices:
name "tpm-crb"
name "AMDVI-PCI", bus PCI, desc "AMD IOMMU (AMD-Vi) DMA Remapping device"

CPU devices:
name "power9_v2.0-powerpc64-cpu"
"""


@contextmanager
def public_folder() -> Iterator[Path]:
    """Make a folder that other users can read.

    pytest's folders are for their owner alone.
    """
    with TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


def program(folder: Path, *lines: str, name: str = "qemu") -> str:
    """Write a script that any user can run, and return its path."""
    path = folder / name
    path.write_text("\n".join(("#!/bin/sh", *lines, "")))
    path.chmod(0o755)
    return str(path)


def device_list(*devices: str) -> str:
    """Return a list of devices as QEMU prints it."""
    lines = ["Network devices:"]
    lines += [f'name "{device}", bus PCI' for device in devices]
    return "\n".join(lines)


def qemu(
    folder: Path, *devices: str, version: str = "7.2.22", name: str = "qemu"
) -> str:
    """Write a QEMU that says its version and its devices, and no more."""
    return program(
        folder,
        'case "$*" in',
        f"-version) echo 'QEMU emulator version {version} (made up)' ;;",
        f"'-machine none -device help') echo {shlex.quote(device_list(*devices))} ;;",
        "*) exit 3 ;;",
        "esac",
        name=name,
    )


def lean_qemu(folder: Path, real: str, hidden: Iterable[str]) -> str:
    """Write a QEMU that hides some devices of another one and refuses them.

    As a build that leaves them out. libvirt, which asks by QMP, still sees
    them.
    """
    names = "|".join(sorted(hidden))
    # libvirt passes the other name of this one.
    refused = names.replace("lsi53c895a", "lsi53c895a|lsi")
    return program(
        folder,
        'case "$*" in',
        "'-machine none -device help')",
        f'  {real} "$@" | grep -Ev \'^name "({names})"\'',
        "  exit ;;",
        "esac",
        f'found=$(echo "$*" | grep -Eo \'"driver":"({refused})"\')',
        'if [ "$found" ]; then',
        '  echo "-device $found: not a valid device model name" >&2',
        "  exit 1",
        "fi",
        f'exec {real} "$@"',
        name="qemu-lean",
    )
