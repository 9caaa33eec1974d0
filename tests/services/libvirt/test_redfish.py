# SPDX-License-Identifier: Apache-2.0

"""A real conductor with Ironic's own hardware type and with ours, and a
Redfish service whose BIOS settings and resets are its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from os_prefilter.adapters.ironic.node import IronicNode
from tests.services.ironic.ironics import (
    Ironic,
    ironic_running,
    service_of,
    setting,
)
from tests.services.ironic.ramdisk import Ramdisks, ramdisks_running
from tests.services.libvirt.emulator import Emulator, emulator_running

pytestmark = pytest.mark.skipif(
    find_spec("libvirt") is None and not os.environ.get("CI"),
    reason="it needs libvirt's Python binding",
)

_HARDWARE_TYPES = ["redfish", "prefilter-redfish"]
_TEMPLATES = """
templates:
  - config-type: turbo
    config-value: enabled
    traits: [CUSTOM_TURBO]
    default: true
    variants:
      - bios: {ProcTurboMode: Enabled}
  - config-type: turbo
    config-value: disabled
    traits: [CUSTOM_TURBO]
    variants:
      - bios: {ProcTurboMode: Disabled}
"""
# A node stays locked for seconds here, and a ramdisk that has not called again
# since a reset is switched off.
_CONF = """
[agent]
post_deploy_get_power_state_retries = 0
[conductor]
node_locked_retry_interval = 1
file_url_allowed_paths = {files}
[prefilter]
config_templates = {templates}
"""


@pytest.fixture(scope="module")
def ironic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ironic]:
    folder = tmp_path_factory.mktemp("ironic")
    templates = folder / "templates.yaml"
    templates.write_text(_TEMPLATES, encoding="utf-8")
    files = tmp_path_factory.getbasetemp()
    more = _CONF.format(templates=templates, files=files)
    with ironic_running(folder, more) as running:
        yield running


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    folder = tmp_path_factory.mktemp("emulator")
    with emulator_running(folder, machines=4) as running:
        yield running


@pytest.fixture(scope="module")
def ramdisks(ironic: Ironic, emulator: Emulator) -> Iterator[Ramdisks]:
    with ramdisks_running(ironic, emulator) as running:
        yield running


def _manageable(
    ironic: Ironic, emulator: Emulator, machine: str, driver: str
) -> str:
    """Have Ironic know a machine, and verify that it can reach it."""
    created = ironic.baremetal.create_node(
        driver=driver,
        driver_info=emulator.driver_info(machine),
        properties={"cpu_arch": "x86_64"},
        provision_state="enroll",
        # The emulator puts virtual media into a storage pool, to which
        # libvirt's test driver copies nothing.
        boot_interface="pxe",
        deploy_interface="custom-agent",
    )
    node = str(created.id)
    ironic.baremetal.create_port(
        node_uuid=node, address=emulator.mac_of(machine)
    )
    ironic.provision(node, "manage")
    return node


@pytest.mark.parametrize("driver", _HARDWARE_TYPES)
def test_node_is_verified_configured_and_reset(
    driver: str, ironic: Ironic, emulator: Emulator
) -> None:
    machine = emulator.take_machine()
    node = _manageable(ironic, emulator, machine, driver)
    assert ironic.bios(node)["ProcTurboMode"] == "Enabled"
    ironic.provision(node, "provide")
    validated = ironic.send("GET", f"/v1/nodes/{node}/validate").json()
    for interface in ("bios", "boot", "deploy", "management", "power"):
        assert validated[interface] == {"result": True}

    ironic.set_column(node, "provision_state", "active")
    known = IronicNode(ironic.baremetal, node)
    known.task(
        service_of(setting("ProcTurboMode", "Disabled")), timeout=120
    ).run()
    assert ironic.bios(node)["ProcTurboMode"] == "Disabled"
    assert emulator.bios(machine)["ProcTurboMode"] == "Disabled"

    reset = {"interface": "bios", "step": "factory_reset", "args": {}}
    known.task([reset], timeout=120).run()
    assert ironic.bios(node)["ProcTurboMode"] == "Enabled"
    assert emulator.bios(machine)["ProcTurboMode"] == "Enabled"


def test_deployment_configures_what_is_asked_and_cleaning_the_defaults(
    ironic: Ironic, emulator: Emulator, ramdisks: Ramdisks
) -> None:
    machine = emulator.take_machine()
    node = _manageable(ironic, emulator, machine, "prefilter-redfish")
    ironic.provision(node, "provide")
    ramdisks.own(node, machine)
    ironic.patch(node, {"/instance_info/deploy_config": {"turbo": "disabled"}})
    ironic.begin(node, "active")
    (shown,) = ramdisks.wait_for(node)
    assert shown["provision_state"] == "active", ironic.log_of(node)
    assert emulator.bios(machine)["ProcTurboMode"] == "Disabled"

    ironic.patch(node, {"/automated_clean": True})
    ironic.begin(node, "deleted")
    (shown,) = ramdisks.wait_for(node)
    assert shown["provision_state"] == "available", ironic.log_of(node)
    assert emulator.bios(machine)["ProcTurboMode"] == "Enabled"
