# SPDX-License-Identifier: Apache-2.0

"""The whole way of a configuration, on a real Ironic and a real Placement, by
the commands that an operator gives.

Nova's periodic task, which copies the traits of the nodes to their providers,
is played here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from os_prefilter import Flavor, RequestSpec, allocation_candidates_query
from os_prefilter.adapters.ironic.errors import StepsFailed
from os_prefilter.adapters.ironic.node import IronicNode
from os_prefilter.hosts.marker_traits import WANTED, names_with
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.cli.main import main
from os_prefilter_tools.fleet.model import Fleet
from tests.conftest import pipeline_of
from tests.services.ironic.bios import FAILS
from tests.services.ironic.ironics import MODEL, Ironic, setting
from tests.support.placements import Served, served
from tests.support.reporting_fleets import wanted_by

_KEY = "deploy-config:hyperthreading"
_METAL = {
    f"resources:{name}": "0" for name in ("VCPU", "MEMORY_MB", "DISK_GB")
} | {"resources:CUSTOM_BAREMETAL": "1"}
_NODE_OF_IRONIC = ("--driver", "ironic", "--node")
Cloud = Callable[..., tuple[int, Any, str]]


@pytest.fixture
def placement(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with EmbeddedPlacement(Fleet(())) as embedded, served(embedded) as state:
        yield state


@pytest.fixture
def cloud(
    ironic: Ironic,
    placement: Served,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Cloud:
    """Return a function that gives a command; it returns the exit code, the
    JSON, and what else was told.

    Schedulers have told Placement what they want to be reported.
    """
    clouds = {
        "metal": {
            "auth_type": "admin_token",
            "auth": {"endpoint": ironic.url, "token": "admin"},
            "baremetal_endpoint_override": ironic.url,
            "placement_endpoint_override": placement.url,
        }
    }
    (tmp_path / "clouds.yaml").write_text(
        yaml.safe_dump({"clouds": clouds}), encoding="utf-8"
    )
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(tmp_path / "clouds.yaml"))
    wanted = wanted_by(
        enabled_filters=["image_metadata", "deploy_config"], reported_traits=[]
    )
    placement.placement.know(names_with(WANTED, wanted))

    def give(*argv: str) -> tuple[int, Any, str]:
        code = main([*argv, "--os-cloud", "metal", "-f", "json"])
        printed = capsys.readouterr()
        return code, json.loads(printed.out or "[]"), printed.err

    return give


def _flavor(
    folder: Path, name: str, extra_specs: Mapping[str, str], **fields: int
) -> str:
    path = folder / f"{name}.json"
    document = {
        "name": name,
        "vcpus": 1,
        "ram": 512,
        "disk": 1,
        "properties": {**_METAL, **extra_specs},
        **fields,
    }
    path.write_text(json.dumps(document), encoding="utf-8")
    return str(path)


def _periodic(ironic: Ironic, placement: Served, *nodes: str) -> None:
    """Make each node's provider what Nova makes of it."""
    client = placement.placement.client
    client.request("PUT", "/resource_classes/CUSTOM_BAREMETAL")
    for node in nodes:
        if not client.providers(f"uuid={node}"):
            client.request(
                "POST", "/resource_providers", {"name": node, "uuid": node}
            )
            inventories = {"CUSTOM_BAREMETAL": {"total": 1}}
            body = {
                "resource_provider_generation": 0,
                "inventories": inventories,
            }
            client.request(
                "PUT", f"/resource_providers/{node}/inventories", body
            )
        generation = client.request("GET", f"/resource_providers/{node}")[
            "generation"
        ]
        traits = sorted({*ironic.traits(node), "COMPUTE_NODE", "OWNER_NOVA"})
        client.ensure_traits(traits)
        body = {"resource_provider_generation": generation, "traits": traits}
        client.request("PUT", f"/resource_providers/{node}/traits", body)


def _candidates(
    placement: Served, value: str, enabled: str = "deploy_config"
) -> set[str]:
    spec = RequestSpec(
        Flavor(vcpus=1, memory_mb=512, extra_specs={**_METAL, _KEY: value})
    )
    pipeline_of(enabled).apply(spec)
    return set(
        placement.placement.client.allocation_candidates(
            allocation_candidates_query(spec)
        ).hosts
    )


def _report(cloud: Cloud, node: str, *more: str) -> Any:
    """Have the traits of a node reported; return the changes."""
    code, changes, _ = cloud(
        "capabilities", "report", *_NODE_OF_IRONIC, node, *more
    )
    assert code == 0
    return changes


def _reconfigure(
    cloud: Cloud, node: str, old: str, new: str, *more: str
) -> tuple[int, Any, str]:
    return cloud(
        "baremetal",
        "reconfigure",
        "--node",
        node,
        "--old-flavor",
        old,
        "--new-flavor",
        new,
        *more,
    )


def test_hyperthreading_is_reported_scheduled_and_switched_in_the_bios(
    ironic: Ironic, placement: Served, cloud: Cloud, tmp_path: Path
) -> None:
    able, unable = ironic.node(), ironic.node(bios=(MODEL,))
    for node, has in ((able, True), (unable, False)):
        assert (
            "HW_CPU_HYPERTHREADING"
            in {each["Trait"] for each in _report(cloud, node)}
        ) == has
        assert ("HW_CPU_HYPERTHREADING" in ironic.traits(node)) == has
    _periodic(ironic, placement, able, unable)
    assert (
        _candidates(placement, "enabled")
        == _candidates(placement, "disabled")
        == {able}
    )

    off = _flavor(tmp_path, "off", {_KEY: "disabled"})
    on = _flavor(tmp_path, "on", {_KEY: "enabled"})
    code, steps, _ = cloud(
        "baremetal", "steps", "--node", able, "--flavor", off
    )
    assert code == 0
    assert ironic.machine(able)["LogicalProc"] == "Enabled"
    ironic.provision(able, "active", deploy_steps=steps)
    assert ironic.machine(able)["LogicalProc"] == "Disabled"

    code, plan, told = _reconfigure(cloud, able, off, on)
    assert (code, ironic.machine(able)["LogicalProc"]) == (0, "Disabled")
    assert "Nothing was changed" in told
    assert plan == [
        {
            "What": "configuration",
            "Name": _KEY,
            "Before": "disabled",
            "After": "enabled",
        },
        {
            "What": "BIOS setting",
            "Name": "LogicalProc",
            "Before": "Disabled",
            "After": "Enabled",
        },
    ]
    code, again, told = _reconfigure(cloud, able, off, on, "--apply")
    assert (code, again, ironic.machine(able)["LogicalProc"]) == (
        0,
        plan,
        "Enabled",
    )
    assert "Done" in told
    # Safe to be run again.
    code, rest, told = _reconfigure(cloud, able, off, on, "--apply")
    assert (code, rest) == (0, plan[:1])
    assert "Nothing is left to do" in told

    assert _reconfigure(cloud, able, on, off, "--apply")[0] == 0
    assert ironic.machine(able)["LogicalProc"] == "Disabled"
    assert ironic.show(able)["provision_state"] == "active"


@pytest.fixture
def node(ironic: Ironic, placement: Served, cloud: Cloud) -> str:
    """Return an active node whose hyperthreading is on, and reported."""
    made = ironic.node("active")
    _report(cloud, made)
    _periodic(ironic, placement, made)
    return made


@pytest.fixture
def give(node: str, cloud: Cloud, tmp_path: Path) -> Cloud:
    """Return a function that gives the node another value, by command."""

    def do(value: str, *more: str) -> tuple[int, Any, str]:
        new = _flavor(tmp_path, value, {_KEY: value})
        old = _flavor(
            tmp_path,
            "old",
            {_KEY: "enabled" if value == "disabled" else "disabled"},
        )
        return _reconfigure(cloud, node, old, new, *more)

    return do


@pytest.mark.parametrize("aborted", [False, True])
def test_reconfigure_after_a_failed_step_does_not_trust_the_old_reading(
    ironic: Ironic, node: str, give: Cloud, *, aborted: bool
) -> None:
    """The machine was changed in part, and Ironic shows what it read
    before.
    """
    with pytest.raises(StepsFailed):
        steps = setting("LogicalProc", "Disabled", (FAILS, "no power"))
        IronicNode(ironic.baremetal, node).task(steps, timeout=60).run()
    assert (
        ironic.bios(node)["LogicalProc"],
        ironic.machine(node)["LogicalProc"],
    ) == ("Enabled", "Disabled")
    for apply in ((), ("--apply",)):
        code, _, told = give("enabled", *apply)
        assert (
            code,
            "in maintenance" in told,
            "'service failed'" in told,
        ) == (1, True, True)
    ironic.set_maintenance(node)
    if aborted:
        ironic.provision(node, "abort")
    code, plan, told = give("enabled")
    assert (
        code,
        "Nothing was changed" in told,
        [line["Name"] for line in plan],
    ) == (0, True, [_KEY, "LogicalProc"])
    assert give("enabled", "--apply")[0] == 0
    assert ironic.machine(node)["LogicalProc"] == "Enabled"
    assert ironic.wait_for(node, "active")["maintenance"] is False
    code, plan, told = give("enabled", "--apply")
    assert (
        code,
        "Nothing is left to do" in told,
        [line["Name"] for line in plan],
    ) == (0, True, [_KEY])


def test_runbook_of_the_printed_steps_configures_a_node_by_its_name(
    ironic: Ironic, cloud: Cloud, node: str, tmp_path: Path
) -> None:
    """With no trait but the one that says that hyperthreading can be
    switched.
    """
    off = _flavor(tmp_path, "off", {_KEY: "disabled"})
    code, steps, _ = cloud(
        "baremetal", "steps", "--node", node, "--flavor", off, "--runbook"
    )
    assert code == 0
    ironic.send(
        "POST", "/v1/runbooks", {"name": "hyperthreading-off", "steps": steps}
    )
    ironic.send(
        "PUT",
        "/v1/runbooks/hyperthreading-off/traits",
        {"traits": ["HW_CPU_HYPERTHREADING"]},
    )
    ironic.provision(node, "service", runbook="hyperthreading-off")
    assert ironic.machine(node)["LogicalProc"] == "Disabled"


def test_impossible_reconfigure_is_refused_before_the_node_is_touched(
    ironic: Ironic, placement: Served, cloud: Cloud, tmp_path: Path
) -> None:
    old, new = (
        _flavor(tmp_path, "old", {}),
        _flavor(tmp_path, "new", {_KEY: "enabled"}),
    )
    for fields, reason in (
        (
            {"bios": (MODEL,)},
            "none of its BIOS settings is one of the template",
        ),
        # Nova has not copied the trait yet, or another client has removed it.
        ({}, "Placement has it without HW_CPU_HYPERTHREADING"),
    ):
        node = ironic.node("active", **fields)
        _periodic(ironic, placement, node)
        before = ironic.show(node)
        code, _, told = _reconfigure(cloud, node, old, new, "--apply")
        assert (code, reason in told) == (2, True)
        assert told.startswith(
            f"The instance on the node '{node}' was not changed: "
        )
        assert ironic.show(node) == before


def test_reconfigure_ignores_filters_that_only_place_new_instances(
    ironic: Ironic, placement: Served, cloud: Cloud, node: str, tmp_path: Path
) -> None:
    ironic.add_traits(node, "COMPUTE_STATUS_DISABLED")
    _periodic(ironic, placement, node)
    conf = tmp_path / "nova.conf"
    conf.write_text(
        "[prefilter]\nenabled_filters = compute_status,deploy_config,owner\n",
        encoding="utf-8",
    )
    off, odd = (
        _flavor(tmp_path, value, {_KEY: value})
        for value in ("disabled", "odd")
    )
    code, plan, _ = _reconfigure(
        cloud, node, off, off, "--config-file", str(conf)
    )
    assert (code, [line["Name"] for line in plan]) == (0, ["LogicalProc"])
    conf.write_text(
        "[prefilter]\nenabled_filters = deploy_config\nunknown_values ="
        " reject\n",
        encoding="utf-8",
    )
    assert (
        _reconfigure(cloud, node, off, odd, "--config-file", str(conf))[0] == 2
    )
