# SPDX-License-Identifier: Apache-2.0

"""Servers of a real Nova: what users read of one that no host can run, and
what an audit says of those that run.

Nova's API, conductor, scheduler and computes are programs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from os_prefilter.rules.reader import guest_systems
from os_prefilter_tools.adapters.fleet_reader import read_fleet
from os_prefilter_tools.cli.main import main
from os_prefilter_tools.fleet.snapshot import snapshot
from tests.services.nova.api import Api, Server
from tests.services.nova.cloud import ACTIVATION, HOSTS, LISTENING, Cloud
from tests.services.recorder import Answer, Recorder, recorded
from tests.support.pages import DOCS, files_of
from tests.support.programs import needs_services, until
from tests.support.rule_texts import rule, write_rules

pytestmark = needs_services

_OURS = "No valid host was found. Scheduling failed: No host offers "
_BOTH = {"hw_vif_model": "e1000e", "hw_time_hpet": "true"}
_LONG = "é" * 200
_OPTIONS = """
enabled_filters = ComputeFilter,RebuildFilter,ServerGroupAffinityFilter,ServerGroupAntiAffinityFilter
[placement]
endpoint_override = {placement}
[prefilter]
enabled_filters = image_metadata,hpet,compute_status,rules
facts_interval = 2
no_host_reason = counts
reported_traits = *
rules_dirs = {rules},builtin:guest-systems
[scheduler]
workers = 1
"""


@pytest.fixture(autouse=True)
def _afterwards(api: Api, placement: Recorder) -> Iterator[None]:
    yield
    placement.forget()
    api.delete_servers()


@pytest.fixture(scope="module", autouse=True)
def placement(
    cloud: Cloud, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Recorder]:
    """Return what stands before the Placement of a nova-scheduler with one
    worker: it knows what it read before.
    """
    folder = tmp_path_factory.mktemp("rules")
    when = f"{{image_property: os_distro, is: {_LONG}}}"
    write_rules(
        folder / "rules.yaml", rule("licensed", when, ["CUSTOM_LICENSED"])
    )
    with recorded(cloud.placement_url) as recorder:
        options = _OPTIONS.format(rules=folder, placement=recorder.url)
        with cloud.starting_scheduler(ACTIVATION + options) as program:
            program.wait_for_log(LISTENING)
            yield recorder


def _is_built(server: Server, host: str) -> bool:
    return (server.status, server.host, server.fault) == ("ACTIVE", host, "")


def _rejection(server: Server) -> str:
    """Return what follows Nova's own words in the fault."""
    assert (server.status, server.host, server.fault[: len(_OURS)]) == (
        "ERROR",
        None,
        _OURS,
    )
    return server.fault[len(_OURS) :]


def _fails_as_without_the_library(server: Server) -> bool:
    return (server.status, server.host, server.fault.rstrip()) == (
        "ERROR",
        None,
        "No valid host was found.",
    )


def test_fault_says_what_no_host_serves_until_there_is_one(
    cloud: Cloud, api: Api
) -> None:
    assert _is_built(api.server({"hw_vif_model": "e1000e"}), "e1000e-host")
    assert (
        _rejection(api.server(_BOTH))
        == "hw_vif_model=e1000e together with hw_time_hpet=true (0 of 3 hosts;"
        " hw_vif_model=e1000e alone: 1; hw_time_hpet=true alone: 1)."
    )
    assert (
        _rejection(api.server({"os_distro": _LONG}))
        == f"os_distro={'é' * 35}... (0 of 3 hosts)."
    )
    with cloud.host("new-host", {"time_hpet": "true", "vif_model": "e1000e"}):
        assert _is_built(api.server(_BOTH), "new-host")
        api.delete_servers()
    api.delete_host("new-host")


def test_fault_says_what_the_system_needs_until_a_host_has_it(
    cloud: Cloud, api: Api
) -> None:
    assert (
        _rejection(api.server({"os_distro": "rhel10"}))
        == "os_distro=rhel10 (needs x86-64-v3) (0 of 3 hosts)."
    )
    placement = cloud.placement
    (host,) = placement.providers("name=plain-host")
    url = f"/resource_providers/{host.uuid}/traits"
    before = placement.request("GET", url)
    traits = [*before["traits"], *guest_systems().traits]
    placement.request("PUT", url, {**before, "traits": traits})
    assert _is_built(api.server({"os_distro": "rhel10"}), "plain-host")
    assert _is_built(api.server({"os_distro": "rhel9"}), "plain-host")
    # Servers have changed its generation.
    after = placement.request("GET", url)
    placement.request("PUT", url, {**after, "traits": before["traits"]})


def test_property_is_blamed_not_the_disabled_service_of_the_one_host_that_serves_it(
    api: Api,
) -> None:
    api.set_service("e1000e-host", status="disabled")
    try:
        blamed = (
            _OURS.replace("No host", "No available host")
            + "hw_vif_model=e1000e "
        )
        # Once the scheduler has read of it.
        until(
            lambda: api.server({"hw_vif_model": "e1000e"}).fault.startswith(
                blamed
            ),
            lambda: "it is not blamed",
        )
    finally:
        api.set_service("e1000e-host", status="enabled")
    assert _is_built(api.server({"hw_vif_model": "e1000e"}), "e1000e-host")


def test_placement_that_fails_or_is_slow_leaves_the_fault_to_nova(
    api: Api, placement: Recorder
) -> None:
    def fail(_method: str, _path: str) -> Answer:
        return 503, {}

    def delay(_method: str, path: str) -> None:
        # Longer than requests wait for what is known of hosts.
        time.sleep(6 * path.startswith(("/resource_providers?", "/traits")))

    placement.before = fail
    assert _fails_as_without_the_library(
        api.server({"hw_vif_model": "ne2k_pci"})
    )
    placement.forget()
    assert (
        _rejection(api.server({"hw_vif_model": "rtl8139"}))
        == "hw_vif_model=rtl8139 (0 of 3 hosts)."
    )
    placement.before = delay
    assert _fails_as_without_the_library(api.server({"hw_vif_model": "pcnet"}))


def _select(cloud: Cloud) -> list[str]:
    """Return what the statement of the page selects, one line a server."""
    files = files_of(DOCS / "audit.rst")
    found = []
    token = cloud.databases.token
    for name in ("servers.sql", "cell.sql", "specs.sql"):
        statement = files[name]
        for database, ours in (
            ("nova_api.", f"{token}_nova_api."),
            (" nova.", f" {token}_nova_cell1."),
        ):
            assert database in statement or name != "servers.sql"
            statement = statement.replace(database, ours)
        found.append([str(row[0]) for row in cloud.databases.run(statement)])
    whole, of_cell, of_api = found
    # On two database servers: the same, in two parts.
    specs = {row["uuid"]: row for row in map(json.loads, of_api)}
    joined = [
        {**row, **specs[row["uuid"]]} for row in map(json.loads, of_cell)
    ]
    assert sorted(joined, key=str) == sorted(map(json.loads, whole), key=str)
    return whole


def _arguments(cloud: Cloud, lines: list[str], folder: Path) -> list[str]:
    """Return the arguments of an audit of selected servers on the hosts as
    they are now.
    """
    (folder / "servers.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (folder / "fleet.json").write_text(
        snapshot(read_fleet(cloud.placement)), encoding="utf-8"
    )
    (folder / "prefilter.conf").write_text(
        "[prefilter]\nenabled_filters = hpet,image_metadata\n",
        encoding="utf-8",
    )
    names = {
        "servers": "servers.jsonl",
        "hosts": "fleet.json",
        "config-file": "prefilter.conf",
    }
    return [
        word
        for option, name in names.items()
        for word in (f"--{option}", str(folder / name))
    ]


@pytest.mark.parametrize(
    "group", [("anti-affinity", 3), ("affinity", 2)], ids=str
)
def test_moves_that_a_server_group_excludes_are_no_destinations(
    group: tuple[str, int],
    cloud: Cloud,
    api: Api,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Nova finds no host for the migration of a member either."""
    policy, members = group
    hints = {"group": api.group(policy)}
    servers = [api.server(hints=hints) for _ in range(members)]
    assert [each.status for each in servers] == ["ACTIVE"] * members
    argv = _arguments(cloud, _select(cloud), tmp_path)
    assert (
        main(["audit", *argv, "--without", str(servers[0].host), "-f", "json"])
        == 2
    )
    document = json.loads(capsys.readouterr().out)
    rows = {
        each["id"]: row for row in document["lines"] for each in row["Servers"]
    }
    for each in servers:
        assert rows[each.uuid]["Now"] == 0
        assert rows[each.uuid]["Why"]["text"].startswith(
            f"its server group ({policy})"
        )
    assert document["summary"]["left_out"]["count"] == 0
    assert document["summary"]["not_judged"] == {}
    _, details = api.move(servers[0], "migrate", None)
    assert "No valid host" in details


def test_selected_servers_have_their_hosts_and_destinations(
    cloud: Cloud, api: Api, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of three hosts, two are left for a plain server, and none for one that
    only its own host can run.
    """
    timer = api.server({"hw_time_hpet": "true"})
    plain = api.server()
    assert (timer.status, timer.host, plain.status) == (
        "ACTIVE",
        "timer-host",
        "ACTIVE",
    )
    lines = _select(cloud)
    assert {json.loads(line)["uuid"] for line in lines} == {
        timer.uuid,
        plain.uuid,
    }
    argv = _arguments(cloud, lines, tmp_path)
    drained = next(
        host for host in HOSTS if host not in (plain.host, "timer-host")
    )
    assert (
        main(
            [
                "audit",
                *argv,
                "--without",
                drained,
                "--enable",
                "hpet",
                "-f",
                "json",
            ]
        )
        == 2
    )
    out, err = capsys.readouterr()
    rows: dict[str, Any] = {
        each["id"]: row
        for row in json.loads(out)["lines"]
        for each in row["Servers"]
    }
    assert "Left out" not in err
    assert (rows[timer.uuid]["Host"], rows[timer.uuid]["Now"]) == (
        "timer-host",
        0,
    )
    (why,) = rows[timer.uuid]["Why"]["requirements"]
    assert (why["text"], why["by"]) == ("CUSTOM_COMPUTE_TIME_HPET", "hpet")
    of_plain = rows[plain.uuid]
    assert of_plain["Host"] == plain.host
    assert set(of_plain["Destinations"]) == set(HOSTS) - {plain.host}
    assert (of_plain["Now"], of_plain["If died"], of_plain["Without"]) == (
        2,
        2,
        1,
    )
    assert of_plain["Project"] == "f" * 32
