# SPDX-License-Identifier: Apache-2.0

"""A BIOS interface of Ironic whose machines are files; loaded by the Ironic
that the tests start, by an entry point.

Ironic's own ``fake`` has no deploy step ``apply_configuration``: steps that
ask for it are skipped without a word. This one has it while cleaning,
deploying and servicing, as ``redfish`` has. The file named in a node's
``driver_info`` is the machine: a list of settings as the API shows them. Steps
change the file, and Ironic reads it as it reads a BMC.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ironic import objects
from ironic.common import exception
from ironic.drivers import base

from os_prefilter.adapters.ironic.conductor import ConfiguresOnDeploy
from tests.services.ironic.bios import FAILS, HOLDS, IGNORED, MACHINE

_LONGEST_HOLD = 120.0
_SETTINGS = {
    "settings": {
        "description": "a list of settings, each with a name and a value",
        "required": True,
    }
}


def _step(function: Callable[..., None]) -> Callable[..., None]:
    """Make a method a step of cleaning, deploying and servicing, after which
    Ironic reads the settings again.
    """
    step: Callable[..., None] = base.cache_bios_settings(function)
    step = base.clean_step(priority=0, argsinfo=_SETTINGS)(step)
    step = base.deploy_step(priority=0, argsinfo=_SETTINGS)(step)
    service_step: Callable[..., None] = base.service_step(
        requires_ramdisk=False, argsinfo=_SETTINGS
    )(step)
    return service_step


class FileBIOS(base.BIOSInterface):  # type: ignore[misc]
    """The settings of machines that are files."""

    def get_properties(self) -> dict[str, str]:
        return {MACHINE: "The path of the file with the settings."}

    def validate(self, task: Any) -> None:
        if not _machine(task).is_file():
            raise exception.MissingParameterValue(
                f"driver_info has no {MACHINE}"
            )

    @_step
    def apply_configuration(
        self, task: Any, settings: Sequence[Mapping[str, Any]]
    ) -> None:
        machine = {each["name"]: each for each in _read(task)}
        for setting in settings:
            name, value = setting["name"], setting["value"]
            if name == FAILS:
                # What came before it is done, and Ironic does not read it
                # after a failure.
                _write(task, machine)
                raise exception.IronicException(value)
            if name == HOLDS:
                _hold(Path(value))
            if name in machine and name != IGNORED:
                machine[name]["value"] = value
        _write(task, machine)

    def factory_reset(self, task: Any) -> None:
        raise exception.UnsupportedDriverExtension(
            driver=task.node.driver, extension="factory_reset"
        )

    def cache_bios_settings(self, task: Any) -> None:
        node, settings = task.node.id, _read(task)
        create, update, delete, _same = (
            objects.BIOSSettingList.sync_node_setting(
                task.context, node, settings
            )
        )
        if create:
            objects.BIOSSettingList.create(task.context, node, create)
        if update:
            objects.BIOSSettingList.save(task.context, node, update)
        if delete:
            objects.BIOSSettingList.delete(
                task.context, node, [each["name"] for each in delete]
            )


class ConfiguringFileBIOS(ConfiguresOnDeploy, FileBIOS):
    """The same, with the deploy and clean steps of the library."""


def _machine(task: Any) -> Path:
    return Path(task.node.driver_info.get(MACHINE, "no-file"))


def _read(task: Any) -> list[dict[str, Any]]:
    settings: list[dict[str, Any]] = json.loads(
        _machine(task).read_text(encoding="utf-8")
    )
    return settings


def _write(task: Any, machine: Mapping[str, Any]) -> None:
    _machine(task).write_text(
        json.dumps(list(machine.values())), encoding="utf-8"
    )


def _hold(file: Path) -> None:
    end = time.monotonic() + _LONGEST_HOLD
    while not file.exists():
        if time.monotonic() > end:
            raise exception.IronicException(f"there is no {file}")
        time.sleep(0.05)
