# SPDX-License-Identifier: Apache-2.0

"""A real Cyborg on one host, and the host's devices, as its drivers find them.

Cyborg has a process of its own: its options are not those that Nova registers.
Its database is SQLite, its messages stay in the process, and Placement is the
embedded one, over HTTP.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tests.support.placements import HOST
from tests.support.processes import started

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.placements import Served

VGPU_TYPE = "nvidia-222"
GPU_TRAITS = {"OWNER_CYBORG", "CUSTOM_NVIDIA_1EB8_T4_2B"}
"""Of the providers of Cyborg's driver for NVIDIA GPUs."""
SSD_TRAITS = {"CUSTOM_SSD_INSPUR", "CUSTOM_SSD_PRODUCT_ID_1001"}
"""Most of Cyborg's drivers report no owner trait, as that for SSDs."""
VGPUS = 4
"""Virtual GPUs of each GPU."""
GPU_DRIVER, SSD_DRIVER = "nvidia_gpu_driver", "inspur_nvme_ssd_driver"
_PATIENCE = 120.0

_CONF = """
[DEFAULT]
transport_url = fake://
host = {host}
state_path = {folder}
log_file = {folder}/cyborg.log
use_stderr = false
[agent]
enabled_drivers = {drivers}
resource_provider_name = {host}
resource_provider_startup_retries = 0
[api]
api_paste_config = {folder}/api-paste.ini
[database]
connection = sqlite:///{folder}/cyborg.db
sqlite_synchronous = false
[gpu_devices]
enabled_vgpu_types = {vgpu_type}
[vgpu_{vgpu_type}]
device_addresses = {addresses}
[oslo_concurrency]
lock_path = {folder}
[oslo_policy]
policy_file = {folder}/policy.yaml
[placement]
auth_type = admin_token
endpoint = {placement}
endpoint_override = {placement}
token = admin
"""
# Without Keystone: each request has all rights. Links in Cyborg's responses
# have the prefix.
_PASTE = """
[composite:main]
use = egg:Paste#urlmap
/accelerator = api
[app:api]
paste.app_factory = cyborg.api.app:app_factory
"""
_POLICY = {
    "cyborg:device_profile:create": "@",
    "cyborg:device_profile:get_all": "@",
    "cyborg:arq:create": "@",
}


class CyborgDied(Exception):
    """Cyborg's process has ended before it answered."""


def pci_address(number: int) -> str:
    return f"0000:{number:02x}:00.0"


ADDRESSES = [pci_address(number) for number in range(1, 0x40)]
"""Where Cyborg's devices may be plugged in."""


class Hardware:
    """The PCI devices of the host: what lspci lists, and ``sysfs`` has."""

    def __init__(self, folder: Path) -> None:
        self.sysfs = folder / "sysfs"
        self.sysfs.mkdir()
        self.programs = folder / "programs"
        self.programs.mkdir()
        self._list = folder / "lspci"
        self._list.touch()
        lspci = self.programs / "lspci"
        lspci.write_text(f"#!/bin/sh\nexec cat {self._list}\n")
        lspci.chmod(0o755)

    def plug_gpu(self, address: str) -> None:
        types = self.sysfs / address / "mdev_supported_types"
        (types / VGPU_TYPE / "devices").mkdir(parents=True)
        (types / VGPU_TYPE / "name").write_text("GRID T4-2B\n")
        available = types / VGPU_TYPE / "available_instances"
        available.write_text(f"{VGPUS}\n")
        self._add(
            f"{address} 3D controller [0302]: NVIDIA Corporation TU104GL"
            " [Tesla T4] [10de:1eb8] (rev a1)"
        )

    def plug_ssd(self, address: str) -> None:
        self._add(
            f"{address} Non-Volatile memory controller [0108]: Inspur"
            " Electronic Information Industry Co., Ltd. SSD [1bd4:1001]"
        )

    def unplug(self, address: str) -> None:
        shutil.rmtree(self.sysfs / address, ignore_errors=True)
        lines = self._list.read_text().splitlines(keepends=True)
        rest = [line for line in lines if not line.startswith(address)]
        self._list.write_text("".join(rest))

    def unplug_all(self) -> None:
        for device in self.sysfs.iterdir():
            shutil.rmtree(device)
        self._list.write_text("")

    def _add(self, line: str) -> None:
        with self._list.open("a") as lspci:
            print(line, file=lspci)


class CyborgProgram:
    """A process that has imported Cyborg, and forks one when it is asked."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def fork(self, folder: Path, port: int) -> None:
        """Start a Cyborg, which connects to this port of loopback."""
        assert self._process.stdin is not None
        line = json.dumps([str(folder), port])
        print(line, file=self._process.stdin, flush=True)


@contextmanager
def cyborg_program(hardware: Hardware) -> Iterator[CyborgProgram]:
    """Start it in a mount namespace, where sysfs has the PCI devices."""
    own_user = ["--map-root-user"] if os.geteuid() else []
    mount = 'mount --bind "$0" /sys/bus/pci/devices && exec "$@"'
    path = f"{hardware.programs}{os.pathsep}{os.environ['PATH']}"
    with started(
        [
            *["unshare", "--mount", *own_user],
            *["sh", "-c", mount, str(hardware.sysfs)],
            *[sys.executable, "-m", f"{__package__}.cyborg_process"],
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PATH": path, "PYTHONWARNINGS": "ignore"},
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "\n"
        yield CyborgProgram(process)


class Cyborg:
    """Cyborg on one host, with its database: it dies, and starts again."""

    def __init__(
        self, program: CyborgProgram, placement: Served, folder: Path
    ) -> None:
        self._program = program
        self._placement = placement
        self._folder = folder
        self._connection: socket.socket | None = None
        self.configure(GPU_DRIVER, SSD_DRIVER)
        (folder / "api-paste.ini").write_text(_PASTE)
        (folder / "policy.yaml").write_text(json.dumps(_POLICY))

    def configure(self, *drivers: str) -> None:
        """Write the configuration with which Cyborg starts next."""
        conf = _CONF.format(
            host=HOST,
            folder=self._folder,
            drivers=",".join(drivers),
            vgpu_type=VGPU_TYPE,
            addresses=",".join(ADDRESSES),
            placement=self._placement.url,
        )
        (self._folder / "cyborg.conf").write_text(conf)

    def start(self, *commands: str) -> None:
        """Start Cyborg's process with these commands; by default all of it."""
        self.close()
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(_PATIENCE)
            self._program.fork(self._folder, server.getsockname()[1])
            self._connection, _ = server.accept()
        self._connection.settimeout(_PATIENCE)
        self._stream = self._connection.makefile("rw")
        self._pid = self._read()
        for command in commands or ("start",):
            self.call(command)

    def call(self, command: str) -> Any:
        """Return what a method of :class:`cyborg_process.Cyborg` returns.

        :raises CyborgDied: if the process has ended meanwhile
        """
        print(json.dumps(command), file=self._stream, flush=True)
        return self._read()

    def _read(self) -> Any:
        try:
            line = self._stream.readline()
        except ConnectionResetError:
            line = ""
        if not line:
            raise CyborgDied
        return json.loads(line)

    def report(self) -> list[str]:
        """Return the requests that the report has sent to Placement."""
        before = len(self._placement.sent)
        self.call("report")
        return self._placement.sent[before:]

    def kill(self) -> None:
        os.kill(self._pid, signal.SIGKILL)

    def close(self) -> None:
        """End the process as well."""
        if self._connection is not None:
            self._stream.close()
            self._connection.close()
            self._connection = None

    def provider(self, address: str) -> str:
        """Return the name of the provider of a device."""
        return f"{HOST}_{address}"
