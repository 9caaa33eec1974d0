# SPDX-License-Identifier: Apache-2.0

"""sushy-emulator as it is, a Redfish service for the machines of a libvirt.

Its BIOS settings, their registry and their reset are its own, and so are its
power states. It keeps the settings in the XML of libvirt's machines, and
changes them at once: :mod:`tests.services.ironic.bmc` has machines that take
settings at a reset, and services that fail.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import requests

from tests.support.processes import free_port
from tests.support.programs import Program, until

# libvirt's own test driver: machines without a hypervisor, which live as long
# as a connection is open in the process.
_PROGRAM = """
import re, sys
import libvirt
from sushy_tools.emulator import main

uri, machines = "test:///default", sys.argv.pop(1).split(",")
kept = libvirt.open(uri)
one = kept.lookupByName("test").XMLDesc()
for each in machines:
    new = one.replace("<name>test<", f"<name>{each}<")
    new = re.sub("(?<=<uuid>)[^<]+", each, new)
    mac = "52:54:00:" + ":".join((each[:2], each[2:4], each[4:6]))
    new = re.sub("(?<=<mac address=')[^']+", mac, new)
    kept.defineXML(new)
sys.argv += ["--libvirt-uri", uri]
sys.exit(main.main())
"""


class Emulator:
    """A running sushy-emulator."""

    def __init__(self, url: str, machines: list[str], file: Path) -> None:
        self.url = url
        self._machines = machines
        self._file = file

    def take_machine(self) -> str:
        """Return the identity of a machine that no other test has."""
        return self._machines.pop()

    def bios(self, identity: str) -> dict[str, str]:
        """Return the BIOS settings of a machine."""
        found: dict[str, str] = self._get(identity, "/BIOS")["Attributes"]
        return found

    def mac_of(self, identity: str) -> str:
        """Return the address of a machine's NIC."""
        (nic,) = self._get(identity, "/EthernetInterfaces")["Members"]
        return str(nic["@odata.id"].rpartition("/")[2])

    def is_dark(self, identity: str) -> bool:
        """Return False: it shows a machine's settings at all times."""
        assert identity
        return False

    def power_off(self, identity: str) -> None:
        """Switch a machine off, as its operating system does."""
        path = f"{self._path(identity)}/Actions/ComputerSystem.Reset"
        requests.post(
            self.url + path, json={"ResetType": "ForceOff"}, timeout=60
        ).raise_for_status()

    def driver_info(self, identity: str) -> dict[str, str]:
        """Return what Ironic must know to reach a machine, and no more."""
        return {
            "redfish_address": self.url,
            "redfish_system_id": self._path(identity),
            "redfish_username": "admin",
            "redfish_password": "secret",
            # Whoever boots by PXE would fetch it.
            "deploy_kernel": self._file.as_uri(),
            "deploy_ramdisk": self._file.as_uri(),
        }

    def _path(self, identity: str) -> str:
        return f"/redfish/v1/Systems/{identity}"

    def _get(self, identity: str, path: str = "") -> Any:
        response = requests.get(
            self.url + self._path(identity) + path, timeout=60
        )
        response.raise_for_status()
        return response.json()


@contextmanager
def emulator_running(folder: Path, machines: int) -> Iterator[Emulator]:
    """Run a sushy-emulator, with its files in ``folder``.

    :param machines: their number
    """
    identities = [str(uuid4()) for _ in range(machines)]
    port = free_port()
    config = folder / "emulator.conf"
    config.write_text(
        f"SUSHY_EMULATOR_STATE_DIR = {str(folder)!r}\n", encoding="utf-8"
    )
    command = ["python", "-c", _PROGRAM, ",".join(identities)]
    command += ["--config", str(config), "--port", str(port)]
    command += ["--interface", "127.0.0.1"]
    file = folder / "ramdisk"
    file.write_bytes(b"")
    program = Program(command, folder, "emulator")
    try:
        url = f"http://127.0.0.1:{port}"
        until(
            lambda: _responds(url, program),
            lambda: f"sushy-emulator does not respond:\n{program.log}",
        )
        yield Emulator(url, identities, file)
    finally:
        program.kill()


def _responds(url: str, program: Program) -> bool:
    assert program.processes(), f"sushy-emulator ended:\n{program.log}"
    try:
        return requests.get(f"{url}/redfish/v1/", timeout=60).ok
    except requests.ConnectionError:
        return False
