"""Servers of a real Nova, selected as the documentation says, and the hosts that may take them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from os_prefilter.adapters.placement.fleet_reader import read_fleet
from os_prefilter.cli.main import main
from os_prefilter.fleet.snapshot import snapshot
from tests.services.nova.api import Api, api_running
from tests.services.nova.cloud import ACTIVATION, HOSTS, Cloud
from tests.support.pages import DOCS, files_of
from tests.support.programs import needs_services

pytestmark = needs_services

_OPTIONS = "[prefilter]\nenabled_filters = hpet,image_metadata\n"


@pytest.fixture
def api(cloud: Cloud, tmp_path: Path) -> Iterator[Api]:
    with cloud.scheduler(f"{ACTIVATION}{_OPTIONS}"), api_running(cloud, tmp_path) as api:
        yield api


def _select(cloud: Cloud) -> list[str]:
    """Return what the statement of the page selects, one line a server."""
    files = files_of(DOCS / "audit.rst")
    found = []
    token = cloud.databases.token
    for name in ("servers.sql", "cell.sql", "specs.sql"):
        statement = files[name]
        for database, ours in (("nova_api.", f"{token}_nova_api."), (" nova.", f" {token}_nova_cell1.")):
            assert database in statement or name != "servers.sql"
            statement = statement.replace(database, ours)
        found.append([str(row[0]) for row in cloud.databases.select(statement)])
    whole, of_cell, of_api = found
    # On two database servers: the same, in two parts.
    specs = {row["uuid"]: row["spec"] for row in map(json.loads, of_api)}
    joined = [{**row, "spec": specs[row["uuid"]]} for row in map(json.loads, of_cell)]
    assert sorted(joined, key=str) == sorted(map(json.loads, whole), key=str)
    return whole


def test_selected_servers_have_their_hosts_and_destinations(
    cloud: Cloud, api: Api, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of three hosts, two are left for a plain server, and none for one that only its own host can run."""
    timer = api.server({"hw_time_hpet": "true"})
    plain = api.server()
    assert (timer.status, timer.host, plain.status) == ("ACTIVE", "timer-host", "ACTIVE")
    lines = _select(cloud)
    assert {json.loads(line)["uuid"] for line in lines} == {timer.uuid, plain.uuid}
    (tmp_path / "servers.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "fleet.json").write_text(snapshot(read_fleet(cloud.placement)), encoding="utf-8")
    (tmp_path / "prefilter.conf").write_text(_OPTIONS, encoding="utf-8")
    names = {"servers": "servers.jsonl", "hosts": "fleet.json", "config-file": "prefilter.conf"}
    argv = [word for option, name in names.items() for word in (f"--{option}", str(tmp_path / name))]
    drained = next(host for host in HOSTS if host not in (plain.host, "timer-host"))
    assert main(["audit", *argv, "--without", drained, "--enable", "hpet", "-f", "json"]) == 2
    out, err = capsys.readouterr()
    rows: dict[str, Any] = {each["id"]: row for row in json.loads(out)["lines"] for each in row["Servers"]}
    assert "Left out" not in err
    assert (rows[timer.uuid]["Host"], rows[timer.uuid]["Now"]) == ("timer-host", 0)
    (why,) = rows[timer.uuid]["Why"]["requirements"]
    assert (why["text"], why["by"]) == ("CUSTOM_COMPUTE_TIME_HPET", "hpet")
    of_plain = rows[plain.uuid]
    assert of_plain["Host"] == plain.host
    assert set(of_plain["Destinations"]) == set(HOSTS) - {plain.host}
    assert (of_plain["Now"], of_plain["If died"], of_plain["Without"]) == (2, 2, 1)
    assert of_plain["Project"] == "f" * 32
