# SPDX-License-Identifier: Apache-2.0

"""A Redfish service for the real Ironic of the tests: sushy-emulator, with
machines whose BIOS is kept here.

The emulator's own BIOS settings belong to guests of libvirt, are all text, and
change at once (:mod:`tests.services.libvirt.emulator`). These have types,
change when the machine is reset, and are not shown for some seconds after
that; a service may fail meanwhile, or take a change at the second reset only:
so do real machines.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import uuid4

import flask
from sushy_tools.emulator import main as emulator
from sushy_tools.emulator.resources.systems import fakedriver
from werkzeug.serving import make_server

from tests.support.loopback import Reply, serving

_RESTARTS = ("ForceRestart", "GracefulRestart")
REGISTRY = [
    {"AttributeName": "LogicalProc", "Type": "Enumeration", "ReadOnly": False}
    | {"Value": [{"ValueName": "Enabled"}, {"ValueName": "Disabled"}]},
    {"AttributeName": "Quiet", "Type": "Boolean", "ReadOnly": False},
    {
        "AttributeName": "Fans",
        "Type": "Integer",
        "ReadOnly": False,
        "LowerBound": 1,
        "UpperBound": 9,
    },
    {
        "AttributeName": "AssetTag",
        "Type": "String",
        "ReadOnly": False,
        "MinLength": 0,
        "MaxLength": 8,
    },
    {"AttributeName": "Serial", "Type": "String", "ReadOnly": True},
]
"""The attributes of each machine, as its registry describes them."""


class _Shown(dict[str, Any]):
    """Attributes as a client sees them: without any, the service still has a
    BIOS.
    """

    def __bool__(self) -> bool:
        return True


@dataclass
class Machine:
    """The BIOS of one machine."""

    attributes: dict[str, Any]
    pending: dict[str, Any] = field(default_factory=dict)
    gap: float = 0.0
    """Seconds after a reset in which it does not show its attributes."""
    fault: str = ""
    """What a client gets of the BIOS in these seconds: ``refused`` (status
    503), ``dropped`` (no response), ``partial`` (all attributes but the
    changed ones); else the BIOS without attributes.
    """
    resets: int = 1
    """The number of resets until it takes a change."""
    has_settings: bool = True
    """Whether its BIOS says where changes are sent."""
    registered: bool = True
    """Whether the registry describes its attributes before its first reset."""
    received: list[dict[str, Any]] = field(default_factory=list)
    """The changes that clients have sent."""
    dark_until: float = 0.0
    changed: set[str] = field(default_factory=set)
    pending_resets: int = 0

    @property
    def is_dark(self) -> bool:
        """True while it shows no attributes."""
        return time.monotonic() < self.dark_until

    @property
    def shown(self) -> dict[str, Any]:
        """The attributes that it shows now."""
        if not self.is_dark:
            return _Shown(self.attributes)
        if self.fault != "partial":
            return _Shown()
        return _Shown(
            (name, value)
            for name, value in self.attributes.items()
            if name not in self.changed
        )

    def change(self, attributes: Mapping[str, Any]) -> None:
        """Keep a change until it is reset."""
        self.received.append(dict(attributes))
        self.pending |= attributes
        self.changed |= attributes.keys()
        self.pending_resets = self.resets

    def reset(self) -> None:
        """Take what is pending, and show nothing for a while."""
        self.registered = True
        self.pending_resets -= 1
        if self.pending_resets <= 0:
            self.attributes |= self.pending
            self.pending = {}
        self.dark_until = time.monotonic() + self.gap


class _Systems(fakedriver.FakeDriver):  # type: ignore[misc]
    """The emulator's own fake machines, with a BIOS, and without its seconds
    until power changes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.machines: dict[str, Machine] = {}

    def get_bios(self, identity: str) -> dict[str, Any]:
        return self.machines[self.uuid(identity)].shown

    def set_bios(self, identity: str, attributes: Mapping[str, Any]) -> None:
        self.machines[self.uuid(identity)].change(attributes)

    def set_power_state(self, identity: str, state: str) -> None:
        was_on = self.get_power_state(identity) == "On"
        is_on = state in ("On", "ForceOn", *_RESTARTS)
        self._update(identity, power_state="On" if is_on else "Off")
        if is_on and (state in _RESTARTS or not was_on):
            self.machines[self.uuid(identity)].reset()


class Bmc:
    """A running Redfish service of several machines."""

    def __init__(self, url: str, systems: _Systems, iso: str) -> None:
        self.url = url
        self.iso = iso
        """The address of a disc that the machines can be booted from."""
        self._systems = systems

    def add_machine(
        self,
        gap: float = 0.0,
        *,
        fault: str = "",
        resets: int = 1,
        has_settings: bool = True,
        registered: bool = True,
        **attributes: Any,
    ) -> str:
        """Add a machine, and return its identity.

        :param gap: as in :class:`Machine`, like the next four
        :param attributes: those that differ from the usual ones
        """
        identity = str(uuid4())
        usual = {
            "LogicalProc": "Enabled",
            "Quiet": True,
            "Fans": 4,
            "AssetTag": "",
            "Serial": "SN-1",
        }
        self._systems.machines[identity] = Machine(
            {**usual, **attributes},
            gap=gap,
            fault=fault,
            resets=resets,
            has_settings=has_settings,
            registered=registered,
        )
        nics = [{"mac": "00:5c:52:31:3a:9c", "ip": "127.0.0.1"}]
        self._systems._systems[identity] = {
            "uuid": identity,
            "name": identity,
            "power_state": "Off",
            "nics": nics,
        }
        return identity

    def machine(self, identity: str) -> Machine:
        """Return the BIOS of a machine."""
        return self._systems.machines[identity]

    def is_dark(self, identity: str) -> bool:
        """Return whether a machine shows no attributes now."""
        return self.machine(identity).is_dark

    def power_off(self, identity: str) -> None:
        """Switch a machine off, as its operating system does."""
        self._systems.set_power_state(identity, "ForceOff")

    def driver_info(self, identity: str) -> dict[str, str]:
        """Return what Ironic must know to reach a machine, and no more."""
        return {
            "redfish_address": self.url,
            "redfish_system_id": f"/redfish/v1/Systems/{identity}",
            # Ironic keeps a connection, and its registry, for each user.
            "redfish_username": identity,
            "redfish_password": "secret",
            "deploy_iso": self.iso,
        }


def _failing(view: Callable[..., Any]) -> Callable[..., Any]:
    """Let the BIOS of a machine fail as the machine says."""

    def bios(identity: str) -> Any:
        machine = emulator.app.systems.machines[identity]
        if machine.is_dark and machine.fault == "refused":
            return flask.Response("it starts", 503)
        if machine.is_dark and machine.fault == "dropped":
            flask.request.environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        response = flask.make_response(view(identity=identity))
        if not machine.has_settings:
            body = json.loads(response.get_data())
            del body["@Redfish.Settings"]
            response.set_data(json.dumps(body))
        return response

    return bios


def _registry() -> Any:
    # One for all machines.
    machines = emulator.app.systems.machines.values()
    registered = all(machine.registered for machine in machines)
    registry = {
        "@odata.id": "/redfish/v1/Systems/Bios/BiosRegistry",
        "@odata.type": "#AttributeRegistry.v1_1_1.AttributeRegistry",
        "Id": "BiosAttributeRegistryP89.v1_0_0",
        "Language": "en",
        "Name": "BIOS Attribute Registry",
        "OwningEntity": "tests",
        "RegistryVersion": "1.1.1",
        "RegistryEntries": {"Attributes": REGISTRY if registered else []},
    }
    return flask.jsonify(registry)


@contextmanager
def bmc_running(folder: Path) -> Iterator[Bmc]:
    """Run a sushy-emulator in this process, with its files in ``folder``."""
    app = emulator.app
    app.config.update(
        SUSHY_EMULATOR_FAKE_DRIVER=True,
        SUSHY_EMULATOR_FAKE_SYSTEMS=[],
        SUSHY_EMULATOR_STATE_DIR=str(folder),
    )
    disc = Reply(
        200, b"\0" * 4096, {"Content-Type": "application/octet-stream"}
    )
    with (
        mock.patch.object(fakedriver, "FakeDriver", _Systems),
        mock.patch.dict(
            app.view_functions,
            bios=_failing(app.view_functions["bios"]),
            bios_registry=_registry,
        ),
        serving(lambda _call: disc) as files,
    ):
        server = make_server("127.0.0.1", 0, app, threaded=True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield Bmc(
                f"http://127.0.0.1:{server.server_port}",
                app.systems,
                f"{files}/deploy.iso",
            )
        finally:
            server.shutdown()
            thread.join()
