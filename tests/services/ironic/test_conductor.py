# SPDX-License-Identifier: Apache-2.0

"""A real conductor with our BIOS interface: what it does where Nova, the node
or a client are not as they should be.
"""

from __future__ import annotations

import json
import re
from http import HTTPStatus
from pathlib import Path
from uuid import uuid4

import pytest

from tests.services.ironic.bios import CONFIGURING, MACHINE
from tests.services.ironic.conftest import Nova
from tests.services.ironic.ironics import LOGICAL_PROC, Ironic, setting

_RECORD = "instance_info/deploy_config"


def _flavor(**extra_specs: str) -> object:
    return {"server": {"flavor": {"extra_specs": extra_specs}}}


def _deploy(ironic: Ironic, node: str) -> str:
    """Have a node deployed; return why that was refused, empty if it was
    not.
    """
    response = ironic.ask(
        "PUT", f"/v1/nodes/{node}/states/provision", {"target": "active"}
    )
    if response.ok:
        ironic.wait_for(node, "active")
        return ""
    assert response.status_code == HTTPStatus.BAD_REQUEST
    return response.text


@pytest.fixture
def node(ironic: Ironic) -> str:
    """Return a node whose hyperthreading is on, and which is a server's."""
    return ironic.node(bios_interface=CONFIGURING, instance_uuid=str(uuid4()))


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((0, {}), r"Nova's GET /servers/.* failed: \w+: .*"),
        (
            (404, {"itemNotFound": {}}),
            (
                "status 404: the node's instance_uuid is no server of this"
                " Nova, or of a project"
            ),
        ),
        (
            (404, {}),
            (
                "For a node that Nova does not use, set"
                " instance_info/deploy_config"
            ),
        ),
        (
            (403, {}),
            (
                "ended with status 403: the user of .nova. in Ironic's"
                " configuration must see"
            ),
        ),
        (
            (406, {}),
            (
                "ended with status 406: check that .nova. .* leads to Nova's"
                " API, 2.47 or later"
            ),
        ),
        ((500, {}), "ended with status 500: try again when Nova's API is up"),
        (
            (503, {}),
            "ended with status 503: try again .* .nova. status_code_retries",
        ),
        ((200, b"<html>"), "failed: .*"),
        ((200, []), "has no flavor with extra_specs"),
        # Nova's answer to a user who may not see them.
        (
            (200, {"server": {"flavor": {"vcpus": 1}}}),
            "has no flavor with extra_specs: the user of .nova.",
        ),
    ],
)
def test_node_is_not_deployed_while_it_is_not_known_what_is_asked_for(
    answer: tuple[int, object],
    reason: str,
    ironic: Ironic,
    nova: Nova,
    node: str,
) -> None:
    nova.status, nova.answer = answer
    assert re.search(reason, _deploy(ironic, node))
    assert ironic.show(node)["provision_state"] == "available"


def test_asked_value_is_set_and_nova_is_asked_by_the_version_that_has_the_flavor(
    ironic: Ironic, nova: Nova, node: str
) -> None:
    nova.status, nova.answer = (
        200,
        _flavor(
            **{
                "deploy-config:hyperthreading": "disabled",
                "hw:mem_page_size": "1GB",
            }
        ),
    )
    assert _deploy(ironic, node) == ""
    assert (
        nova.asked[-1]
        == f"/servers/{ironic.show(node)['instance_uuid']} compute 2.47"
    )
    assert ironic.machine(node)["LogicalProc"] == "Disabled"


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (
            {"hyperthreading": "half"},
            "deploy-config:hyperthreading.*half.*unknown value",
        ),
        ({"odd": "x"}, "deploy-config:odd.*no configuration template"),
        ("off", f"{_RECORD} is 'off', not types with values"),
        ({"hyperthreading": 1}, f"{_RECORD} is .*, not types with values"),
    ],
)
def test_wrong_record_on_the_node_is_refused_and_nova_is_not_asked(
    record: object, reason: str, ironic: Ironic, nova: Nova, node: str
) -> None:
    before = len(nova.asked)
    ironic.patch(node, {f"/{_RECORD}": record})
    assert re.search(reason, _deploy(ironic, node))
    assert len(nova.asked) == before


def test_default_that_the_node_cannot_have_as_a_whole_is_left_alone(
    ironic: Ironic, nova: Nova
) -> None:
    """Its BIOS takes the default, and not the other value: so it has not the
    trait, and no server asks for either.
    """
    half = {**LOGICAL_PROC, "allowable_values": ["Enabled", "Auto"]}
    node = ironic.node(bios=[half], bios_interface=CONFIGURING)
    assert _deploy(ironic, node) == ""


def test_node_that_cannot_is_refused_and_one_without_a_server_gets_the_default(
    ironic: Ironic, nova: Nova
) -> None:
    fixed = ironic.node(
        bios=[{**LOGICAL_PROC, "read_only": True}], bios_interface=CONFIGURING
    )
    assert _deploy(ironic, fixed) == ""
    ironic.begin(fixed, "deleted")
    ironic.wait_for(fixed, "available")
    ironic.patch(fixed, {f"/{_RECORD}": {"hyperthreading": "disabled"}})
    assert "'LogicalProc' cannot be changed" in _deploy(ironic, fixed)
    free = ironic.node(bios_interface=CONFIGURING)
    ironic.set_machine(free, "LogicalProc", "Disabled")
    assert _deploy(ironic, free) == ""
    assert ironic.machine(free)["LogicalProc"] == "Enabled"


def test_steps_of_a_client_win_and_the_deployment_fails_where_they_contradict(
    ironic: Ironic, node: str
) -> None:
    ironic.patch(node, {f"/{_RECORD}": {"hyperthreading": "disabled"}})
    ironic.begin(node, "active", deploy_steps=setting(value="Enabled"))
    reason = "'LogicalProc' is 'Enabled', not 'Disabled'"
    assert reason in ironic.wait_for(node, "deploy failed")["last_error"]


def test_hardware_type_is_ironics_own_with_another_bios_interface(
    ironic: Ironic,
) -> None:
    driver_info = {"redfish_address": "https://127.0.0.1:1"}
    made = ironic.baremetal.create_node(
        driver="prefilter-redfish",
        driver_info=driver_info,
        provision_state="enroll",
    )
    assert ironic.show(made.id)["bios_interface"] == "prefilter-redfish"
    drivers = {
        each: ironic.send("GET", f"/v1/drivers/{each}").json()
        for each in ("redfish", "prefilter-redfish")
    }
    for name, value in drivers["redfish"].items():
        if name.startswith("enabled_") and name != "enabled_bios_interfaces":
            assert drivers["prefilter-redfish"][name] == value


def test_processor_that_nova_does_not_know_and_a_broken_note_stop_neither_deploying_nor_cleaning(
    ironic: Ironic, nova: Nova
) -> None:
    """Neither is needed to configure the node."""
    extra = {"os_prefilter_traits": "broken"}
    node = ironic.node(
        bios_interface=CONFIGURING, properties={"cpu_arch": "x86"}, extra=extra
    )
    ironic.patch(
        node,
        {
            f"/{_RECORD}": {"hyperthreading": "disabled"},
            "/automated_clean": True,
        },
    )
    assert _deploy(ironic, node) == ""
    assert ironic.machine(node)["LogicalProc"] == "Disabled"
    ironic.begin(node, "deleted")
    ironic.wait_for(node, "available")
    assert ironic.machine(node)["LogicalProc"] == "Enabled"
    # By its UUID: Ironic's integer is in no command.
    assert (
        f"Node {node}: os_prefilter_traits in its extra is 'broken'"
        in ironic.program.log
    )
    assert (
        f"openstack baremetal node unset {node} --extra os_prefilter_traits"
        in ironic.program.log
    )
    assert f"Node {node}: properties.cpu_arch is 'x86'" in ironic.program.log


def test_settings_that_ironic_has_not_read_are_read_and_without_them_no_able_node_is_handed_over(
    ironic: Ironic, nova: Nova
) -> None:
    """Not known is not unable: the next server would get what another one has
    left.
    """
    node = ironic.node(bios=[], bios_interface=CONFIGURING)
    ironic.add_traits(node, "HW_CPU_HYPERTHREADING")
    assert (
        "Ironic cannot read its BIOS settings, and it has"
        " HW_CPU_HYPERTHREADING: try again" in _deploy(ironic, node)
    )
    assert ironic.show(node)["provision_state"] == "available"
    Path(ironic.show(node)["driver_info"][MACHINE]).write_text(
        json.dumps([{**LOGICAL_PROC, "value": "Disabled"}])
    )
    assert _deploy(ironic, node) == ""
    assert ironic.machine(node)["LogicalProc"] == "Enabled"
