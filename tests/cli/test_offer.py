# SPDX-License-Identifier: Apache-2.0

"""``offer``: the document that customers get, in each format, for right and
wrong input.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from os_prefilter.vocabulary import HPET
from os_prefilter_tools.cli.main import main
from tests.support.commands import Capture, Cli, placed
from tests.support.every_trait import marker_of

FLEET = """
aggregates:
  rack-1: {availability_zone: "nord <1>"}
hosts:
  kvm-1: {traits: [COMPUTE_NODE, COMPUTE_NET_VIF_MODEL_IGB], aggregates: [rack-1]}
  kvm-2: {traits: [COMPUTE_NODE]}
"""


@pytest.fixture
def hosts(tmp_path: Path) -> list[str]:
    return ["--hosts", placed(tmp_path / "fleet.yaml", FLEET)]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--count"], "| `hw_vif_model` |  | `igb` (1) |"),
        (
            ["--by", "zone"],
            "| Image property | Flavor extra spec | nord \\<1\\> | nova |",
        ),
        (
            ["--by", "zone", "--default-zone", "rest"],
            "| nord \\<1\\> | rest |",
        ),
        (
            ["--by", "aggregate"],
            "| Image property | Flavor extra spec | rack\\-1 |",
        ),
        (["--by", "zone", "--count"], "| `igb` (1) |"),
    ],
)
def test_offer_prints_the_requested_table_without_host_names(
    arguments: list[str], says: str, hosts: list[str], cli: Cli
) -> None:
    """On the standard output, with nothing beside it."""
    out, err = cli.run("offer", *hosts, *arguments)
    assert says in out
    assert "kvm" not in out
    assert err.count("\n") == 1


def test_offer_names_filters_that_wait_and_does_not_offer_what_they_would_ask_for(
    cli: Cli,
) -> None:
    config = cli.place(
        "nova.conf", "[prefilter]\nenabled_filters = hpet,owner\n"
    )
    hosts = {
        "a": {"traits": ["COMPUTE_NODE", marker_of(HPET)]},
        "b": {"traits": ["COMPUTE_NODE"]},
    }
    fleet = cli.place("fleet.json", {"hosts": hosts})
    out, err = cli.run(
        "offer", "--hosts", fleet, "--config-file", config, "--format", "json"
    )
    assert err.partition("\n")[2].startswith(
        "Filters that wait for compute nodes to report: hpet. "
    )
    (hpet,) = (
        each
        for each in json.loads(out)["properties"]
        if each.get("image_property") == "hw_time_hpet"
    )
    assert {each["value"]: each["status"] for each in hpet["values"]}[
        "true"
    ] == "not checked"


def test_templates_of_the_operator_are_offered(
    capsys: Capture, tmp_path: Path
) -> None:
    """In the words of flavors."""
    text = (
        "templates: [{config-type: raid, config-value: mirror, traits:"
        " [CUSTOM_RAID]}]\n"
    )
    templates = placed(tmp_path / "templates.yaml", text)
    fleet = placed(
        tmp_path / "fleet.yaml",
        "hosts: {metal: {traits: [COMPUTE_NODE, CUSTOM_RAID]}}",
    )
    lines = (
        "[prefilter]\nenabled_filters = deploy_config\nconfig_templates ="
        f" {templates}\n"
    )
    assert (
        main(
            [
                "offer",
                "--hosts",
                fleet,
                "--config-file",
                placed(tmp_path / "nova.conf", lines),
            ]
        )
        == 0
    )
    assert (
        "| `deploy-config:raid` | `deploy-config:raid` | `mirror` |"
        in capsys.readouterr().out
    )


def test_fleet_without_enabled_compute_nodes_gives_exit_code_2(
    cli: Cli,
) -> None:
    """And said: a fleet file without COMPUTE_NODE is the likely reason."""
    fleet = cli.place(
        "fleet.yaml",
        "hosts: {a: {traits: [COMPUTE_NET_VIF_MODEL_IGB]}}",
    )
    out, err = cli.run("offer", "--hosts", fleet, code=2)
    assert "No enabled host offers any" in out
    assert (
        err.partition("\n")[2]
        == "No host is an enabled compute node: one with COMPUTE_NODE that is"
        " not disabled.\n"
    )


def test_offer_states_when_the_snapshot_was_taken(cli: Cli) -> None:
    """In the document; on the standard error also how many providers changed
    while the fleet was read.
    """
    text = f"taken_at: '2026-11-21T18:00:00Z'\nchanged_while_read: 3{FLEET}"
    out, err = cli.run("offer", "--hosts", cli.place("fleet.yaml", text))
    assert "As of 2026-11-21T18:00:00Z." in out
    assert "read at 2026-11-21T18:00:00Z; 3 changed meanwhile" in err
