# SPDX-License-Identifier: Apache-2.0

"""A real conductor with our hardware type, and machines behind a real Redfish
service.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from os_prefilter import Flavor, RequestSpec, guest_settings
from os_prefilter.adapters.ironic.errors import StepsFailed
from os_prefilter.adapters.ironic.node import IronicNode
from os_prefilter.hosts.drivers.ironic_steps import deploy_steps
from os_prefilter.vocabulary.config_templates import (
    BiosChange,
    Template,
    Templates,
    Variant,
)
from tests.services.ironic.bmc import Bmc, bmc_running
from tests.services.ironic.ironics import (
    Ironic,
    ironic_running,
    service_of,
    setting,
)
from tests.services.ironic.ramdisk import Ramdisks, ramdisks_running
from tests.support.zipping import zip_equal

_GAP = 6.0
"""Seconds after a reset in which a machine shows no BIOS settings: Ironic
looks each second.
"""


# A node stays locked for seconds here, and a ramdisk that has not called again
# since a reset is switched off.
_CONF = """
[agent]
post_deploy_get_power_state_retries = 0
[conductor]
node_locked_retry_interval = 1
"""


@pytest.fixture(scope="module")
def ironic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ironic]:
    with ironic_running(tmp_path_factory.mktemp("ironic"), _CONF) as running:
        yield running


@pytest.fixture(scope="module")
def bmc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bmc]:
    with bmc_running(tmp_path_factory.mktemp("bmc")) as running:
        yield running


@pytest.fixture(scope="module")
def ramdisks(ironic: Ironic, bmc: Bmc) -> Iterator[Ramdisks]:
    with ramdisks_running(ironic, bmc) as running:
        yield running


def _enroll(
    ironic: Ironic, bmc: Bmc, machine: str, driver: str = "prefilter-redfish"
) -> str:
    """Have Ironic know a machine by its address and password, and nothing
    else.
    """
    created = ironic.baremetal.create_node(
        driver=driver,
        driver_info=bmc.driver_info(machine),
        properties={"cpu_arch": "x86_64"},
        provision_state="enroll",
        boot_interface="redfish-virtual-media",
        deploy_interface="custom-agent",
    )
    return str(created.id)


def _available(
    ironic: Ironic, bmc: Bmc, machine: str, driver: str = "prefilter-redfish"
) -> str:
    node = _enroll(ironic, bmc, machine, driver)
    ironic.provision(node, "manage")
    ironic.provision(node, "provide")
    return node


def test_deployment_and_cleaning_keep_their_steps_while_the_bmc_shows_no_settings(
    ironic: Ironic, bmc: Bmc, ramdisks: Ramdisks
) -> None:
    """At once, for each takes minutes. Ironic's own hardware type passes the
    same. The machine that takes a change only at the second reset is not
    handed over with what it had before.
    """
    asked = bmc.add_machine(_GAP, fault="refused")
    default = bmc.add_machine(_GAP, LogicalProc="Disabled")
    cleaned = bmc.add_machine(_GAP, fault="dropped", LogicalProc="Disabled")
    twice = bmc.add_machine(resets=2)
    nodes = {
        machine: _available(ironic, bmc, machine)
        for machine in (asked, default, twice)
    }
    nodes[cleaned] = _enroll(ironic, bmc, cleaned)
    for machine, node in nodes.items():
        ramdisks.own(node, machine, starts_first=machine == twice)
    ironic.provision(nodes[cleaned], "manage")
    for machine in (asked, twice):
        ironic.patch(
            nodes[machine],
            {"/instance_info/deploy_config": {"hyperthreading": "disabled"}},
        )
    ironic.patch(nodes[cleaned], {"/automated_clean": True})

    ironic.begin(nodes[asked], "active")
    ironic.begin(nodes[default], "active")
    ironic.begin(nodes[twice], "active")
    ironic.begin(nodes[cleaned], "provide")
    ended = dict(zip_equal(nodes, ramdisks.wait_for(*nodes.values())))

    for machine, state, value in (
        (asked, "active", "Disabled"),
        (default, "active", "Enabled"),
        (cleaned, "available", "Enabled"),
    ):
        log = ironic.log_of(nodes[machine])
        assert ended[machine]["last_error"] is None, log
        assert ended[machine]["provision_state"] == state, log
        assert bmc.machine(machine).received == [{"LogicalProc": value}]
        assert bmc.machine(machine).attributes["LogicalProc"] == value
    assert ended[twice]["provision_state"] == "deploy failed"
    # The check was not left out either.
    for machine in (asked, default):
        done = re.findall(
            rf"Node {nodes[machine]} finished deploy step .'step': '(\w+)'",
            ironic.program.log,
        )
        assert done[0] == "apply_configuration"
        assert "check_configuration" in done


def test_kept_steps_are_those_of_this_deployment_or_cleaning() -> None:
    """In a process of its own: Ironic's options and Nova's have the same
    names.
    """
    program = """
from ironic.objects.node import Node
from os_prefilter.adapters.ironic.conductor import _kept
for kind, begins in ("deploy", "deploying"), ("clean", "cleaning"):
    for state, index, expected in (
        ("available", None, "new"),
        (begins, None, "new"),
        (begins, 0, "kept"),
        ("wait call-back" if kind == "deploy" else "clean wait", 2, "kept"),
        (kind + " failed", 2, "new"),
    ):
        info = {f"os_prefilter_{kind}_steps": ["kept"], f"{kind}_step_index": index}
        node = Node(provision_state=state, driver_internal_info=info)
        assert _kept(kind, node, lambda: ["new"]) == [expected], (kind, state)
        changes = expected == "new" and state == begins
        assert node.driver_internal_info[f"os_prefilter_{kind}_steps"] == (["new"] if changes else ["kept"])
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_steps_do_not_change_when_the_bmc_has_ceased_to_show_settings() -> (
    None
):
    """In a process of its own, with what Ironic has read as the only thing
    that changes.
    """
    program = """
from types import SimpleNamespace
from unittest import mock
from ironic.conf import CONF
CONF([], default_config_files=[], default_config_dirs=[])
from os_prefilter.adapters.ironic import conductor
class Node(SimpleNamespace):
    def set_driver_internal_info(self, key, value):
        self.driver_internal_info[key] = value
fields = dict.fromkeys(("boot_mode", "secure_boot", "last_error", "instance_uuid"))
node = Node(uuid="u", id=1, driver="prefilter-redfish", bios_interface="prefilter-redfish", properties={}, traits=[],
    extra={}, instance_info={"deploy_config": {"hyperthreading": "disabled"}}, driver_internal_info={}, **fields)
limits = dict.fromkeys(("lower_bound", "upper_bound", "min_length", "max_length"))
row = SimpleNamespace(name="LogicalProc", value="Enabled", attribute_type="Enumeration",
    allowable_values=["Enabled", "Disabled"], read_only=False, **limits)
bios, task = conductor.RedfishBIOS(), SimpleNamespace(node=node, context=None)
read = mock.patch.object(bios, "cache_bios_settings")
table = mock.patch.object(conductor.objects, "BIOSSettingList", create=True)
with read, table as rows:
    for kind, state in ("deploy", "deploying"), ("clean", "cleaning"):
        node.provision_state = state
        node.instance_info = {"deploy_config": {"hyperthreading": "disabled"}} if kind == "deploy" else {}
        rows.get_by_node_id.return_value = [row]
        steps = getattr(bios, f"get_{kind}_steps")
        begun = steps(task)
        assert "LogicalProc" in str(begun)
        node.driver_internal_info[f"{kind}_step_index"] = 0
        rows.get_by_node_id.return_value = []
        assert steps(task) == begun, kind
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_check_waits_until_the_bmc_shows_the_settings() -> None:
    """In a process of its own, with what Ironic has read as the only thing
    that changes.
    """
    program = """
from types import SimpleNamespace
from unittest import mock
from ironic.common.exception import RedfishError
from sushy.exceptions import ConnectionError as Dropped
from os_prefilter.adapters.ironic import conductor
limits = dict.fromkeys(("lower_bound", "upper_bound", "min_length", "max_length"))
def shown(value):
    return [SimpleNamespace(name="LogicalProc", value=value, attribute_type="Enumeration",
        allowable_values=["Enabled", "Disabled"], read_only=False, **limits)]
bios, task = conductor.RedfishBIOS(), SimpleNamespace(node=SimpleNamespace(id=1), context=None)
fails = RedfishError(error="not yet")
asked = [{"name": "LogicalProc", "value": "Disabled"}]
for late, reads, failure in (
    ([[], shown("Enabled"), shown("Disabled")], [None] * 3, None),
    ([shown("Disabled")], [fails, None], None),
    # Ironic passes on what the library of Redfish raises.
    ([shown("Disabled")], [Dropped(url="/BIOS", error="reset"), None], None),
    ([[]] * 20, [None] * 20, "does not show the BIOS setting 'LogicalProc'"),
    ([shown("Enabled")] * 20, [None] * 20, "'LogicalProc' is 'Enabled', not 'Disabled'"),
    ([], [fails] * 20, "cannot be read: RedfishError: Redfish exception occurred. Error: not yet"),
):
    read = mock.patch.object(bios, "cache_bios_settings", side_effect=reads)
    table = mock.patch.object(conductor.objects, "BIOSSettingList", create=True)
    pauses = mock.patch("time.sleep")
    with read, table as rows, pauses as sleep:
        rows.get_by_node_id.side_effect = late
        try:
            bios.check_configuration(task, asked)
        except conductor.NotConfigured as error:
            assert failure is not None and failure in str(error), error
            assert sum(each.args[0] for each in sleep.call_args_list) == 60
        else:
            assert failure is None, failure
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def _steps(facts: Any, **values: str) -> list[dict[str, Any]]:
    """Return the steps of a template that gives BIOS settings these values."""
    changes = tuple(
        BiosChange(name, (value,)) for name, value in values.items()
    )
    templates = Templates([Template("typed", "on", (), (Variant(changes),))])
    spec = RequestSpec(Flavor(extra_specs={"deploy-config:typed": "on"}))
    facts = replace(facts, templates=templates)
    return deploy_steps(guest_settings(spec, facts), facts)


_FAULTS = ("refused", "dropped", "partial", "")
"""What a client gets of the BIOS of a machine that has just been reset."""


def test_steps_succeed_although_the_bmc_fails_after_the_reset(
    ironic: Ironic, bmc: Bmc
) -> None:
    """At once: each waits for its machine."""
    machines = [bmc.add_machine(_GAP, fault=each) for each in _FAULTS]

    def configure(machine: str) -> None:
        node = _available(ironic, bmc, machine)
        ironic.set_column(node, "provision_state", "active")
        steps = service_of(setting("LogicalProc", "Disabled"))
        IronicNode(ironic.baremetal, node).task(steps, timeout=240).run()

    with ThreadPoolExecutor() as pool:
        list(pool.map(configure, machines))
    for machine in machines:
        assert bmc.machine(machine).attributes["LogicalProc"] == "Disabled"


def test_setting_is_changed_before_the_registry_describes_it(
    ironic: Ironic, bmc: Bmc
) -> None:
    """Ironic keeps a registry as long as its connection: what it has not read
    is not known after the reset either.
    """
    machine = bmc.add_machine(registered=False)
    node = _available(ironic, bmc, machine)
    ironic.set_column(node, "provision_state", "active")
    known = IronicNode(ironic.baremetal, node)
    assert known.facts().bios["LogicalProc"].attribute_type == ""
    known.task(
        _steps(known.facts(), LogicalProc="Disabled"), timeout=240
    ).run()
    assert bmc.machine(machine).attributes["LogicalProc"] == "Disabled"
    assert known.facts().bios["LogicalProc"].has("Disabled")


def test_bios_without_a_place_for_changes_fails_the_step_with_a_reason(
    ironic: Ironic, bmc: Bmc
) -> None:
    machine = bmc.add_machine(has_settings=False)
    node = _available(ironic, bmc, machine)
    ironic.set_column(node, "provision_state", "active")
    steps = service_of(setting("LogicalProc", "Disabled"))
    # Ironic's own words: 'NoneType' object has no attribute 'commit'.
    with pytest.raises(StepsFailed, match="service failed.*'commit'"):
        IronicNode(ironic.baremetal, node).task(steps, timeout=240).run()
    assert bmc.machine(machine).received == []


def test_values_reach_the_machine_with_the_types_of_its_registry(
    ironic: Ironic, bmc: Bmc
) -> None:
    machine = bmc.add_machine(Quiet=True)
    node = _available(ironic, bmc, machine, "redfish")
    ironic.set_column(node, "provision_state", "active")
    known = IronicNode(ironic.baremetal, node)
    assert not known.facts().bios["Serial"].changeable
    known.task(
        _steps(known.facts(), Quiet="0", Fans="9", AssetTag="12"), timeout=120
    ).run()
    assert bmc.machine(machine).received[-1] == {
        "Quiet": False,
        "Fans": 9,
        "AssetTag": "12",
    }
    assert bmc.machine(machine).attributes["Quiet"] is False
    # Both ways, by the text that Ironic itself shows.
    known.task(_steps(known.facts(), Quiet="1"), timeout=120).run()
    assert bmc.machine(machine).attributes["Quiet"] is True


def test_hardware_type_has_the_options_of_ironics_own() -> None:
    """In a process of its own: Ironic's options and Nova's have the same
    names.
    """
    program = """
from ironic.conf import CONF
CONF([], default_config_files=[], default_config_dirs=[])
CONF.set_override("verify_ca", "/etc/ca.pem", "redfish")
CONF.set_override("connect_timeout", 7, "redfish")
from os_prefilter.adapters.ironic.conductor import RedfishHardware
RedfishHardware()
print({**CONF["prefilter-redfish"]} == {**CONF.redfish})
"""
    printed = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert printed == "True\n"
