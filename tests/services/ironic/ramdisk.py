# SPDX-License-Identifier: Apache-2.0

"""The ramdisk of a machine behind a Redfish service: it calls Ironic, and has
no steps of its own.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import pytest

from tests.services.ironic.ironics import Ironic
from tests.support.loopback import Call, Reply, serving

_WAITING = ("wait call-back", "clean wait")
"""The provision states in which Ironic waits for the ramdisk."""
_AWAITS_BIOS = "redfish_bios_state"
"""What Ironic keeps in ``driver_internal_info`` until the machine shows its
new BIOS settings.
"""

_INTERVAL = 2.0
"""Seconds between two calls of a ramdisk."""
_PATIENCE = 600.0
"""Seconds: each start from a disc takes Ironic half a minute, and a deployment
has four.
"""
_ENDS = ("active", "available", "deploy failed", "clean failed")


class Machines(Protocol):
    """The machines of a Redfish service."""

    def is_dark(self, identity: str) -> bool:
        """Return whether a machine has not started yet."""

    def power_off(self, identity: str) -> None:
        """Switch a machine off, as its operating system does."""


class Ramdisks:
    """The ramdisks of all machines."""

    def __init__(self, ironic: Ironic, bmc: Machines) -> None:
        self.url = ""
        self._ironic = ironic
        self._bmc = bmc
        self._machines: dict[str, str] = {}
        self._tokens: dict[str, str] = {}
        self._start_first: set[str] = set()

    def own(
        self, node: str, machine: str, *, starts_first: bool = False
    ) -> None:
        """Let the ramdisk of a node run on a machine.

        :param starts_first: whether it calls before the BMC shows the BIOS
            settings that Ironic waits for
        """
        self._machines[node] = machine
        if starts_first:
            self._start_first.add(node)

    def reply(self, call: Call) -> Reply:
        """Answer Ironic's commands: each has succeeded."""
        node = call.path.split("/")[1]
        answer: Mapping[str, Any] = {"commands": []}
        if call.method == "POST":
            name = json.loads(call.body)["name"]
            result: dict[str, Any] = {}
            if name.endswith("_steps"):
                result = {
                    name.removesuffix("_steps").rpartition("_")[2]
                    + "_steps": {}
                }
                result["hardware_manager_version"] = {"tests": "1"}
            if name == "standby.power_off":
                self._bmc.power_off(self._machines[node])
            answer = {
                "command_name": name,
                "command_status": "SUCCEEDED",
                "command_result": result,
            }
        return Reply(
            200,
            json.dumps(answer).encode(),
            {"Content-Type": "application/json"},
        )

    def wait_for(self, *nodes: str) -> list[Mapping[str, Any]]:
        """Call Ironic while it waits, until each deployment or cleaning has
        ended; return the nodes.
        """
        end = time.monotonic() + _PATIENCE
        found: dict[str, Mapping[str, Any]] = {}
        while len(found) < len(nodes):
            for node in nodes:
                if node not in found and (shown := self._look(node)):
                    found[node] = shown
            if time.monotonic() > end:
                pytest.fail(
                    "still"
                    f" {[self._ironic.show(each)['provision_state'] for each in nodes]}"
                )
            # Each look costs Ironic time.
            time.sleep(_INTERVAL)
        return [found[node] for node in nodes]

    def _look(self, node: str) -> Mapping[str, Any] | None:
        shown = self._ironic.show(node)
        if shown["provision_state"] in _ENDS and not shown["reservation"]:
            return shown
        # A ramdisk takes longer to start than the BMC to show the BIOS
        # settings, which Ironic looks for each second. Where both resume a
        # step, the second waits for the lock: it then resumes the next wait,
        # that for a machine just reset, and no ramdisk has called.
        awaits_bios = (
            _AWAITS_BIOS in shown["driver_internal_info"]
            and node not in self._start_first
        )
        if (
            shown["provision_state"] in _WAITING
            and not awaits_bios
            and not self._is_dark(node)
        ):
            self._call(node)
        return None

    def _is_dark(self, node: str) -> bool:
        return self._bmc.is_dark(self._machines[node])

    def _call(self, node: str) -> None:
        looked_up = self._ironic.ask_once(
            "GET", f"/v1/lookup?node_uuid={node}"
        )
        # It can wait for the node's lock while Ironic resets the machine.
        if not looked_up.ok or self._is_dark(node):
            return
        token = looked_up.json()["config"]["agent_token"]
        # Ironic gives it to the first who asks after a start.
        if not token.startswith("*"):
            self._tokens[node] = token
        body = {
            "callback_url": f"{self.url}/{node}",
            "agent_version": "11.0.0",
            "agent_token": self._tokens.get(node, ""),
        }
        self._ironic.ask_once("POST", f"/v1/heartbeat/{node}", body)


@contextmanager
def ramdisks_running(ironic: Ironic, bmc: Machines) -> Iterator[Ramdisks]:
    """Let the machines of ``bmc`` run ramdisks that call ``ironic``."""
    ramdisks = Ramdisks(ironic, bmc)
    with serving(ramdisks.reply) as ramdisks.url:
        yield ramdisks
