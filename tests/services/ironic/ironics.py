# SPDX-License-Identifier: Apache-2.0

"""A real Ironic from the package index: API and conductor in one process, on
SQLite, with nodes of ``fake-hardware``.

Its nodes have the BIOS of :mod:`tests.services.ironic.bios.interface`. It
listens on a loopback port and reads nothing of this machine's configuration.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

import requests
from openstack.connection import Connection

from tests.services.ironic.bios import CONFIGURING, ENTRY_POINTS, MACHINE, NAME
from tests.support.processes import free_port
from tests.support.programs import Program, running, until

LOGICAL_PROC = {
    "name": "LogicalProc",
    "value": "Enabled",
    "attribute_type": "Enumeration",
    "allowable_values": ["Enabled", "Disabled"],
    "read_only": False,
}
MODEL = {
    "name": "SystemModelName",
    "value": "R660",
    "attribute_type": "String",
    "read_only": True,
}
BIOS = (LOGICAL_PROC, MODEL)
"""The settings of a node, unless said otherwise: hyperthreading can be
switched.
"""

_CONF = """
[DEFAULT]
auth_strategy = noauth
rpc_transport = none
host = conductor-of-tests
my_ip = 127.0.0.1
state_path = {folder}
enabled_hardware_types = fake-hardware,prefilter-redfish,redfish
enabled_bios_interfaces = {bios},{configuring},prefilter-redfish,redfish,fake,no-bios
enabled_boot_interfaces = fake,pxe,redfish-virtual-media
enabled_console_interfaces = no-console
enabled_deploy_interfaces = fake,direct,custom-agent
enabled_firmware_interfaces = no-firmware
enabled_inspect_interfaces = no-inspect
enabled_management_interfaces = fake,redfish
enabled_network_interfaces = noop
enabled_power_interfaces = fake,redfish
enabled_raid_interfaces = no-raid
enabled_rescue_interfaces = no-rescue
enabled_storage_interfaces = noop
enabled_vendor_interfaces = no-vendor
[agent]
# The ramdisks of the tests.
require_tls = false
[api]
host_ip = 127.0.0.1
port = {port}
api_workers = 1
[conductor]
automated_clean = false
# Else it takes a lock on each node now and then.
sync_power_state_interval = 0
node_locked_retry_interval = 0
[database]
connection = sqlite:///{folder}/ironic.sqlite
[deploy]
default_boot_mode = uefi
# What a machine boots from is for the machine to fetch.
ramdisk_image_download_source = http
[dhcp]
dhcp_provider = none
[pxe]
# No server offers what is in it.
tftp_master_path = {folder}/tftp-images
tftp_root = {folder}/tftp
[redfish]
# Seconds after which it looks again whether a machine has taken its settings.
firmware_update_status_interval = 1
[oslo_concurrency]
lock_path = {folder}/locks
[service_catalog]
# For the ramdisk.
endpoint_override = http://127.0.0.1:{port}
"""

_DIST_INFO = "os_prefilter_tests-0.dist-info"
_ENTRY_POINTS = f"[ironic.hardware.interfaces.bios]\n{ENTRY_POINTS}\n"


class Ironic:
    """A running Ironic."""

    def __init__(
        self, folder: Path, url: str, start: Callable[[], Program]
    ) -> None:
        self.url = url
        self.program = start()
        self._start = start
        self._folder = folder
        self._connection = connect(url)
        self._made = 0

    def wait(self) -> None:
        """Wait until it answers."""
        until(
            lambda: _answers(self.url, self.program),
            lambda: f"Ironic does not respond:\n{self.program.log[-5000:]}",
        )

    @contextmanager
    def down(self) -> Iterator[None]:
        """Kill it, and start it anew at the end of the context."""
        self.program.kill()
        try:
            yield
        finally:
            self.program = self._start()
            self.wait()

    @property
    def baremetal(self) -> Any:
        """The SDK's ``baremetal`` proxy."""
        return self._connection.baremetal

    def node(
        self,
        state: str = "available",
        bios: Sequence[Mapping[str, Any]] = BIOS,
        **fields: Any,
    ) -> str:
        """Make a node, whose machine has these BIOS settings; return its UUID.

        :param state: ``available``, ``active`` (with nothing but Ironic's fake
            deployment), or ``manageable``
        :param fields: what else to set once it is manageable, as in Ironic's
            API; its BIOS interface is NAME
        """
        self._made += 1
        file = self._folder / f"machine-{self._made}.json"
        file.write_text(json.dumps(bios), encoding="utf-8")
        created = self.baremetal.create_node(
            driver="fake-hardware",
            driver_info={MACHINE: str(file)},
            name=f"node-{self._made}",
            properties={
                "cpu_arch": "x86_64",
                "capabilities": "boot_mode:uefi",
            },
            resource_class="baremetal",
            provision_state="enroll",
            bios_interface=fields.pop("bios_interface", NAME),
        )
        node = str(created.id)
        self.provision(node, "manage")
        if fields:
            self.patch(
                node, {f"/{name}": value for name, value in fields.items()}
            )
        for verb in {
            "manageable": (),
            "available": ("provide",),
            "active": ("provide", "active"),
        }[state]:
            self.provision(node, verb)
        return node

    def begin(self, node: str, verb: str, **body: Any) -> None:
        """Have a node provisioned."""
        self.send(
            "PUT",
            f"/v1/nodes/{node}/states/provision",
            {"target": verb, **body},
        )

    def provision(self, node: str, verb: str, **body: Any) -> None:
        """Have a node provisioned, and wait for it."""
        self.begin(node, verb, **body)
        self.wait_for(
            node,
            {"manage": "manageable", "provide": "available"}.get(
                verb, "active"
            ),
        )

    def wait_for(self, node: str, state: str) -> Mapping[str, Any]:
        """Wait until a node is in a provision state and not locked; return
        it.
        """

        def reached() -> Mapping[str, Any] | None:
            shown = self.show(node)
            return (
                shown
                if shown["provision_state"] == state
                and not shown["reservation"]
                else None
            )

        found = until(
            reached,
            lambda: (
                f"not {state}: {self.show(node)}\n{self.program.log[-3000:]}"
            ),
        )
        assert found
        return found

    def show(self, node: str) -> Mapping[str, Any]:
        """Return a node as the API shows it."""
        shown: Mapping[str, Any] = self.send("GET", f"/v1/nodes/{node}").json()
        return shown

    def log_of(self, node: str) -> str:
        """Return what Ironic has logged of a node, for a failure: switching a
        machine off after it, Ironic clears ``last_error``.
        """
        lines = self.program.log.splitlines()
        return "\n".join(line for line in lines if node in line)

    def traits(self, node: str) -> set[str]:
        """Return the traits on a node."""
        return set(self.show(node)["traits"])

    def add_traits(self, node: str, *traits: str) -> None:
        """Put traits on a node by hand, as an operator does."""
        for trait in traits:
            self.send("PUT", f"/v1/nodes/{node}/traits/{trait}")

    def remove_traits(self, node: str, *traits: str) -> None:
        """Take traits from a node by hand."""
        for trait in traits:
            self.send("DELETE", f"/v1/nodes/{node}/traits/{trait}")

    def set_maintenance(self, node: str, reason: str = "") -> None:
        """Put a node into maintenance; without a reason, end it."""
        body = {"reason": reason} if reason else None
        self.send(
            "PUT" if reason else "DELETE",
            f"/v1/nodes/{node}/maintenance",
            body,
        )

    def patch(self, node: str, values: Mapping[str, Any]) -> None:
        """Set fields of a node: path -> value."""
        body = [
            {"op": "add", "path": path, "value": value}
            for path, value in values.items()
        ]
        self.send("PATCH", f"/v1/nodes/{node}", body)

    def bios(self, node: str) -> dict[str, str]:
        """Return the BIOS settings that Ironic has of a node."""
        settings = self.send("GET", f"/v1/nodes/{node}/bios").json()["bios"]
        return {each["name"]: each["value"] for each in settings}

    def machine(self, node: str) -> dict[str, str]:
        """Return the BIOS settings of the machine itself."""
        file = Path(self.show(node)["driver_info"][MACHINE])
        return {
            each["name"]: each["value"]
            for each in json.loads(file.read_text(encoding="utf-8"))
        }

    def set_machine(self, node: str, name: str, value: str) -> None:
        """Change a BIOS setting of the machine itself, as one does by hand;
        Ironic has not read it.
        """
        file = Path(self.show(node)["driver_info"][MACHINE])
        settings = json.loads(file.read_text(encoding="utf-8"))
        changed = [
            {**each, "value": value} if each["name"] == name else each
            for each in settings
        ]
        file.write_text(json.dumps(changed), encoding="utf-8")

    def set_column(self, node: str, column: str, value: str | None) -> None:
        """Write into the database what no API can: who holds the lock, a state
        of long ago.
        """
        with (
            closing(
                sqlite3.connect(self._folder / "ironic.sqlite", timeout=60)
            ) as database,
            database,
        ):
            database.execute(
                f"UPDATE nodes SET {column} = ? WHERE uuid = ?",  # noqa: S608
                (value, node),
            )

    def send(
        self, method: str, path: str, body: object = None
    ) -> requests.Response:
        """Send a request that Ironic takes."""
        response = self.ask(method, path, body)
        assert response.ok, response.text
        return response

    def ask(
        self, method: str, path: str, body: object = None
    ) -> requests.Response:
        """Send a request as an administrator, with the newest API; a node
        locked for a moment is asked again.
        """

        def answers() -> list[requests.Response]:
            response = self.ask_once(method, path, body)
            # A response that is an error is false.
            return (
                []
                if response.status_code == HTTPStatus.CONFLICT
                else [response]
            )

        return until(answers, lambda: f"{method} {path}: a conflict")[0]

    def ask_once(
        self, method: str, path: str, body: object = None
    ) -> requests.Response:
        """Send a request as an administrator, with the newest API."""
        version = {"X-OpenStack-Ironic-API-Version": "latest"}
        return _http().request(
            method, self.url + path, json=body, timeout=60, headers=version
        )


def setting(
    name: str = "LogicalProc", value: str = "Disabled", *more: tuple[str, str]
) -> list[dict[str, Any]]:
    """Return the deploy steps that change BIOS settings."""
    settings = [
        {"name": each, "value": to} for each, to in ((name, value), *more)
    ]
    return [
        {
            "interface": "bios",
            "step": "apply_configuration",
            "args": {"settings": settings},
            "priority": 150,
        }
    ]


def service_of(steps: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the same steps for a service, in which they have no priority."""
    return [
        {name: step[name] for name in ("interface", "step", "args")}
        for step in steps
    ]


def connect(url: str, timeout: float = 60.0, **options: Any) -> Connection:
    """Return an SDK connection to an Ironic without authentication.

    :param timeout: seconds to wait for an answer
    """
    connection = Connection(
        auth_type="none",
        auth={"endpoint": url},
        baremetal_endpoint_override=url,
        api_timeout=timeout,
        app_name="tests",
        **options,
    )
    # Nothing of this machine's proxies and passwords.
    connection.session.session.trust_env = False
    return connection


@contextmanager
def ironic_running(folder: Path, more: str = "") -> Iterator[Ironic]:
    """Run an Ironic with its files in ``folder``; at the end of the context
    nothing of it is left.

    :param more: what follows in its configuration
    """
    port = free_port()
    conf = folder / "ironic.conf"
    text = _CONF.format(
        folder=folder, port=port, bios=NAME, configuring=CONFIGURING
    )
    conf.write_text(text + more, encoding="utf-8")
    options = [
        "--config-file",
        str(conf),
        "--config-dir",
        str(_made(folder / "no-conf")),
    ]
    environment = _environment(folder)
    with running(
        ["ironic-dbsync", *options, "create_schema"],
        folder,
        "dbsync",
        environment,
    ) as schema:
        schema.succeed()
    ironic = Ironic(
        folder,
        f"http://127.0.0.1:{port}",
        partial(Program, ["ironic", *options], folder, "ironic", environment),
    )
    try:
        ironic.wait()
        yield ironic
    finally:
        ironic.program.kill()


def _environment(folder: Path) -> Mapping[str, str]:
    """Return what makes Ironic find the entry point, as if this project's
    tests were installed.
    """
    found = _made(folder / "packages" / _DIST_INFO)
    (found / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: os-prefilter-tests\nVersion: 0\n",
        encoding="utf-8",
    )
    (found / "entry_points.txt").write_text(_ENTRY_POINTS, encoding="utf-8")
    root = Path(__file__).parents[3]
    # stevedore keeps what it found in a folder of the user's.
    return {
        "PYTHONPATH": f"{found.parent}{os.pathsep}{root}",
        "XDG_CACHE_HOME": str(_made(folder / "cache")),
    }


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


def _answers(url: str, program: Program) -> bool:
    """Whether the conductor has told the API what it can do."""
    assert program.processes(), f"Ironic ended:\n{program.log[-5000:]}"
    try:
        response = _http().get(
            f"{url}/v1/drivers",
            headers={"X-OpenStack-Ironic-API-Version": "latest"},
            timeout=60,
        )
    except requests.ConnectionError:
        return False
    return response.ok and bool(response.json()["drivers"])


def _http() -> requests.Session:
    session = requests.Session()
    session.trust_env = False
    return session
