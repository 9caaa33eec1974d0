# SPDX-License-Identifier: Apache-2.0

"""Bare metal to the end: a flavor asks, Nova boots as it is, and the BIOS of
Ironic's node has it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from signal import SIGKILL
from typing import Any

import pytest
import yaml

from os_prefilter.adapters.ironic.node import IronicNode
from os_prefilter.vocabulary.config_templates import RECORD
from os_prefilter_tools.cli.main import main
from tests.services.ironic.bios import CONFIGURING, FAILS, HOLDS, IGNORED
from tests.services.ironic.ironics import LOGICAL_PROC, Ironic, ironic_running
from tests.services.nova.api import Api, Server, api_running
from tests.services.nova.cloud import ACTIVATION, LISTENING, Cloud
from tests.support.programs import needs_services, until

pytestmark = needs_services

_KEY, _TRAIT = "deploy-config:hyperthreading", "HW_CPU_HYPERTHREADING"
_OTHERS = ("resources:VCPU", "resources:MEMORY_MB", "resources:DISK_GB")
_SCHEDULER = """
[prefilter]
enabled_filters = deploy_config
config_templates = {templates}
wait_for_reports = false
[scheduler]
max_attempts = 1
workers = 1
"""
_COMPUTE = """
[DEFAULT]
compute_driver = ironic.IronicDriver
update_resources_interval = 1
sync_power_state_interval = -1
[ironic]
auth_type = none
endpoint_override = {ironic}
api_max_retries = 2
api_retry_interval = 1
"""
_IRONIC = """
[conductor]
automated_clean = true
[glance]
auth_type = none
endpoint_override = {glance}
[nova]
auth_type = admin_token
endpoint = {nova}
endpoint_override = {nova}
token = admin
"""
# The names of makers' settings, and their values for off and on.
_MAKERS = {
    "dell": ("LogicalProc", "Disabled", "Enabled"),
    "lenovo": ("Processors_HyperThreading", "Disable", "Enable"),
}
_ODD = {"fails": FAILS, "ignored": IGNORED, "held": HOLDS, "kept": "AssetTag"}
"""Values of the type ``odd`` -> the setting that each changes."""


class Metal:
    """Nova and Ironic as one cloud, with a node of each maker."""

    def __init__(
        self, cloud: Cloud, api: Api, ironic: Ironic, templates: Path
    ) -> None:
        self.cloud, self.api, self.ironic, self.templates = (
            cloud,
            api,
            ironic,
            templates,
        )
        self.nodes = {
            maker: self._node(maker, *names)
            for maker, names in _MAKERS.items()
        }

    def _node(self, maker: str, name: str, off: str, on: str) -> str:
        bios = [
            {
                **LOGICAL_PROC,
                "name": name,
                "value": on,
                "allowable_values": [off, on],
            }
        ]
        bios += [
            {
                "name": each,
                "value": "",
                "attribute_type": "String",
                "read_only": False,
            }
            for each in _ODD.values()
        ]
        node = self.ironic.node(
            bios=bios, bios_interface=CONFIGURING, resource_class=maker
        )
        # Nova takes a node without a state of its power for broken.
        self.ironic.send(
            "PUT", f"/v1/nodes/{node}/states/power", {"target": "power off"}
        )
        IronicNode(self.ironic.baremetal, node).report({_TRAIT: True})
        return node

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Run a nova-compute for the nodes, and a nova-scheduler that requires
        what is asked for.
        """
        compute, scheduler = (
            _COMPUTE.format(ironic=self.ironic.url),
            _SCHEDULER.format(templates=self.templates),
        )
        with (
            self.cloud.metal(
                "metal", compute, self.nodes.values(), _TRAIT
            ) as self.compute,
            self.cloud.starting_scheduler(
                ACTIVATION + scheduler, host="metal-scheduler"
            ) as program,
        ):
            program.wait_for_log(LISTENING)
            yield

    def boot(self, maker: str, configuration: Mapping[str, str]) -> Server:
        """Boot a server on the node of a maker; return it when it is active or
        has failed.
        """
        self.wait_until_free(maker)
        specs = {
            **dict.fromkeys(_OTHERS, "0"),
            f"resources:CUSTOM_{maker.upper()}": "1",
            **configuration,
        }
        return self.api.server(flavor=self.api.flavor(None, specs))

    def wait_until_free(self, maker: str) -> None:
        """Wait until Nova says that the node has no server, and can have
        one.
        """
        free = f"uuid={self.nodes[maker]}&resources=CUSTOM_{maker.upper()}:1"
        until(
            lambda: self.cloud.placement.providers(free),
            lambda: f"the node of {maker} is not free",
        )

    def setting(self, maker: str) -> str:
        """Return what the BIOS of the maker's machine has for
        hyperthreading.
        """
        return self.ironic.machine(self.nodes[maker])[_MAKERS[maker][0]]


@pytest.fixture(scope="module")
def running(
    cloud: Cloud, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Metal]:
    folder = tmp_path_factory.mktemp("metal")
    odd = {
        value: [{"bios": {name: str(folder / value)}}]
        for value, name in _ODD.items()
    }
    key = {"config-type": "odd", "traits": [_TRAIT]}
    templates = folder / "templates.yaml"
    templates.write_text(
        yaml.safe_dump(
            {
                "templates": [
                    {**key, "config-value": value, "variants": odd[value]}
                    for value in odd
                ]
            }
        )
    )
    with ExitStack() as ending:
        for name in ("api", "ironic"):
            (folder / name).mkdir()
        section = f"[prefilter]\nconfig_templates = {templates}\n"
        api = ending.enter_context(api_running(cloud, folder / "api", section))
        more = _IRONIC.format(glance=api.glance_url, nova=api.url) + section
        ironic = ending.enter_context(ironic_running(folder / "ironic", more))
        metal = Metal(cloud, api, ironic, templates)
        with metal.computing():
            yield metal
        # Other tests wait for reports of all compute nodes.
        api.delete_host("metal")


@pytest.fixture
def metal(running: Metal) -> Iterator[Metal]:
    yield running
    running.api.delete_servers()
    for maker in running.nodes:
        running.wait_until_free(maker)


@pytest.mark.parametrize("maker", _MAKERS)
def test_active_server_has_what_its_flavor_asks_for_and_the_next_tenant_the_default(
    maker: str, metal: Metal
) -> None:
    node, (name, off, on) = metal.nodes[maker], _MAKERS[maker]
    server = metal.boot(maker, {_KEY: "disabled"})
    assert (server.status, server.fault) == ("ACTIVE", "")
    assert metal.setting(maker) == metal.ironic.bios(node)[name] == off
    assert metal.ironic.traits(node) == {_TRAIT}
    # Whatever was done to the machine meanwhile.
    metal.ironic.set_machine(node, name, on)
    assert (metal.api.rebuild(server.uuid).status, metal.setting(maker)) == (
        "ACTIVE",
        off,
    )
    metal.api.delete_servers()
    metal.ironic.wait_for(node, "available")
    assert metal.setting(maker) == on
    # As where nodes are not cleaned.
    metal.ironic.set_machine(node, name, off)
    assert (metal.boot(maker, {}).status, metal.setting(maker)) == (
        "ACTIVE",
        on,
    )


def test_reconfigured_server_shows_in_nova_what_the_node_has_and_keeps_it_when_rebuilt(
    metal: Metal,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ours: dict[str, Any] = {
        "auth_type": "admin_token",
        "auth": {"endpoint": metal.ironic.url},
        "token": "admin",
    }
    ours |= {
        "baremetal_endpoint_override": metal.ironic.url,
        "compute_endpoint_override": metal.api.url,
        "placement_endpoint_override": metal.cloud.placement_url,
    }
    (tmp_path / "clouds.yaml").write_text(
        yaml.safe_dump({"clouds": {"ours": ours}})
    )
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(tmp_path / "clouds.yaml"))
    server = metal.boot("dell", {_KEY: "disabled"})
    argv = [
        "baremetal",
        "reconfigure",
        "--os-cloud",
        "ours",
        "--node",
        metal.nodes["dell"],
        "--apply",
    ]
    for option, value in (
        ("--old-flavor", "disabled"),
        ("--new-flavor", "enabled"),
    ):
        flavor = {
            "name": value,
            "vcpus": 1,
            "ram": 64,
            "disk": 1,
            "properties": {_KEY: value},
        }
        (tmp_path / value).write_text(json.dumps(flavor))
        argv += [option, str(tmp_path / value)]
    for _ in range(2):
        assert main([*argv, "--instance", server.uuid]) == 0
        assert (
            f"{server.uuid}: Nova shows the old flavor, and in the metadata"
            in capsys.readouterr().err
        )
        shown = metal.api.show(server.uuid)
        assert (shown["metadata"], shown["flavor"]["extra_specs"][_KEY]) == (
            {_KEY: "enabled"},
            "disabled",
        )
    assert (metal.api.rebuild(server.uuid).status, metal.setting("dell")) == (
        "ACTIVE",
        "Enabled",
    )
    metal.api.delete_servers()
    assert (
        RECORD
        not in metal.ironic.wait_for(metal.nodes["dell"], "available")[
            "instance_info"
        ]
    )


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("fails", "Deploy step bios.apply_configuration failed"),
        ("ignored", f"'{IGNORED}' is ''"),
    ],
)
def test_node_that_does_not_take_a_setting_is_not_handed_over(
    value: str, reason: str, metal: Metal
) -> None:
    server = metal.boot("dell", {_KEY: "disabled", "deploy-config:odd": value})
    assert (server.status, server.host) == ("ERROR", None)
    assert (
        "Exhausted all hosts available for retrying build failures"
        in server.fault
    )
    assert reason in metal.compute.log
    # Nova has given the node back.
    metal.ironic.wait_for(metal.nodes["dell"], "available")
    assert metal.setting("dell") == "Enabled"


def test_removed_template_fails_boots_and_rebuilds_and_leaves_servers_alone(
    metal: Metal,
) -> None:
    node, wanted = (
        metal.nodes["dell"],
        {_KEY: "disabled", "deploy-config:odd": "kept"},
    )
    server, before = metal.boot("dell", wanted), metal.templates.read_text()
    with metal.ironic.down():
        metal.templates.write_text("templates: []\n")
    try:
        assert metal.setting("dell") == "Disabled"
        assert metal.api.rebuild(server.uuid).status == "ERROR"
        assert metal.ironic.show(node)["provision_state"] == "active"
        assert (
            "flavor extra spec 'deploy-config:odd'='kept': no configuration"
            " template" in metal.compute.log
        )
        assert metal.boot("lenovo", wanted).status == "ERROR"
        assert (
            metal.ironic.wait_for(metal.nodes["lenovo"], "available")[
                "instance_uuid"
            ]
            is None
        )
    finally:
        with metal.ironic.down():
            metal.templates.write_text(before)
    assert metal.api.rebuild(server.uuid).status == "ACTIVE"


def test_ironic_that_is_down_fails_the_boot_and_one_that_ends_midway_the_deployment(
    metal: Metal,
) -> None:
    with metal.ironic.down():
        assert metal.boot("dell", {_KEY: "disabled"}).status == "ERROR"
    assert (
        metal.boot("dell", {_KEY: "disabled"}).status,
        metal.setting("dell"),
    ) == ("ACTIVE", "Disabled")
    with ThreadPoolExecutor(1) as thread:
        booting = thread.submit(
            metal.boot,
            "lenovo",
            {_KEY: "disabled", "deploy-config:odd": "held"},
        )
        show = partial(metal.ironic.show, metal.nodes["lenovo"])
        until(
            lambda: show()["deploy_step"],
            lambda: f"the deployment has not begun: {show()}",
        )
        with metal.ironic.down():
            assert booting.result().status == "ERROR"
    # Nova could not give the node back: an operator does.
    metal.ironic.wait_for(metal.nodes["lenovo"], "deploy failed")
    metal.ironic.begin(metal.nodes["lenovo"], "deleted")


def test_nova_compute_that_starts_again_midway_goes_on(metal: Metal) -> None:
    with ExitStack() as ending, ThreadPoolExecutor(1) as thread:
        booting = thread.submit(
            metal.boot,
            "lenovo",
            {_KEY: "disabled", "deploy-config:odd": "held"},
        )
        show = partial(metal.ironic.show, metal.nodes["lenovo"])
        until(
            lambda: show()["deploy_step"],
            lambda: f"the deployment has not begun: {show()}",
        )
        metal.compute.signal(SIGKILL)
        metal.cloud.start(
            ending,
            "nova-compute",
            "metal",
            _COMPUTE.format(ironic=metal.ironic.url),
        )
        metal.templates.with_name("held").touch()
        # RabbitMQ hands on what the first one had not ended.
        assert (booting.result().status, metal.setting("lenovo")) == (
            "ACTIVE",
            "Disable",
        )
        metal.api.delete_servers()
        metal.wait_until_free("lenovo")
