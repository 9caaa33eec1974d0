# SPDX-License-Identifier: Apache-2.0

"""The reason that a user reads where hosts have the traits: a host filter of
Nova left none, or no host has the resources.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from keystoneauth1.session import Session

from os_prefilter_tools.cli.main import main
from tests.services.nova.api import Api, Server
from tests.services.nova.cloud import ACTIVATION, HOSTS, LISTENING, Cloud
from tests.support.programs import Program, needs_services

pytestmark = needs_services

_OPTIONS = """
[prefilter]
enabled_filters = image_metadata,hpet,compute_status
decision_history = true
no_host_reason = {reason}
[scheduler]
workers = 1
"""


@pytest.fixture(scope="module", params=["properties", "counts"])
def scheduler(
    request: pytest.FixtureRequest, cloud: Cloud
) -> Iterator[tuple[Program, bool]]:
    """Run nova-scheduler; return it, and whether its reasons have numbers."""
    more = ACTIVATION + _OPTIONS.format(reason=request.param)
    with cloud.starting_scheduler(
        more, host=f"scheduler-{request.param}"
    ) as program:
        program.wait_for_log(LISTENING)
        yield program, request.param == "counts"


@pytest.fixture(autouse=True)
def _afterwards(api: Api) -> Iterator[None]:
    yield
    for host in HOSTS:
        api.set_service(host, forced_down=False)
    api.delete_servers()


@pytest.fixture
def diagnose(
    api: Api,
    cloud: Cloud,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., tuple[int, Any]]:
    """Return a function: run ``os-prefilter diagnose --server`` as an
    administrator; it returns the exit code, and a document or an error.
    """
    # openstacksdk 4.4 does not find the token in auth.
    ours: dict[str, Any] = {
        "auth_type": "admin_token",
        "auth": {"endpoint": cloud.placement_url},
        "token": "admin",
    }
    ours |= {
        "placement_endpoint_override": cloud.placement_url,
        "compute_endpoint_override": api.url,
        "image_endpoint_override": api.glance_url,
    }
    (tmp_path / "clouds.yaml").write_text(
        yaml.safe_dump({"clouds": {"ours": ours}})
    )
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(tmp_path / "clouds.yaml"))
    request = Session.request
    admin = {
        name: text
        for name, text in api.as_admin.items()
        if name.startswith("X-")
    }
    sessions = set()

    def as_admin(self: Session, url: str, method: str, **options: Any) -> Any:
        sessions.add(self)
        options["headers"] = {**options.get("headers", {}), **admin}
        return request(self, url, method, **options)

    monkeypatch.setattr(Session, "request", as_admin)

    def ask(server: Server, *argv: str) -> tuple[int, Any]:
        capsys.readouterr()
        command = ["diagnose", "--os-cloud", "ours", "--server", server.uuid]
        code = main([*command, "-f", "json", *argv])
        out, err = capsys.readouterr()
        # waitress takes a hundred connections at a time.
        while sessions:
            sessions.pop().session.close()
        return code, json.loads(out) if out else err

    return ask


Scheduler = tuple[Program, bool]
Diagnose = Callable[..., tuple[int, Any]]


def _check_reason(
    server: Server, scheduler: Scheduler, text: str, numbers: str
) -> None:
    """Check that the owner of a server reads this, and that the history has
    it, with the numbers of hosts if they are shown.
    """
    program, has_numbers = scheduler
    reason = f"{text} ({numbers})." if has_numbers else f"{text}."
    assert server.status == "ERROR"
    assert server.host is None
    assert server.fault == f"No valid host was found. {reason}"
    decoder = json.JSONDecoder()
    decisions = []
    for line in program.log.splitlines():
        if f'"server": "{server.uuid}"' in line:
            # An older oslo.log ends the line with a colour.
            decision, _ = decoder.raw_decode(line[line.index('{"time"') :])
            decisions.append(decision)
    passed, no_host = decisions
    assert passed["result"] == "passed"
    assert no_host["result"] == "no_host"
    assert no_host["reason"] == reason


def _check_diagnosis(
    server: Server,
    scheduler: Scheduler,
    diagnose: Diagnose,
    host_filter: str,
    left: list[int],
) -> None:
    """Check that a diagnosis of now, which runs Nova's filters as far as APIs
    show hosts, names the filter that left no host.
    """
    program, _ = scheduler
    code, found = diagnose(server, "--history", str(program.log_file))
    recorded = [each["result"] for each in found["recorded"]]
    assert recorded == ["no_host", "passed"]
    assert [each["left"] for each in found["host_filters"]] == left, found
    assert code == 2
    assert found["stage"] == "host-filters"
    assert found["by"] == host_filter


def test_hypervisor_that_no_host_has_is_named(
    api: Api, scheduler: Scheduler, diagnose: Diagnose
) -> None:
    """A diagnosis does not know it: no API shows it."""
    server = api.server({"img_hv_type": "xen"})
    text = (
        "No host supports the architecture, hypervisor or VM mode of this"
        " image"
    )
    _check_reason(server, scheduler, text, "ImagePropertiesFilter 0 of 3")
    code, found = diagnose(server)
    assert code == 0
    assert found["stage"] == "candidates"
    assert {
        each["name"]: each["not_known"]
        for each in found["host_filters"]
        if each["not_known"]
    } == {"ImagePropertiesFilter": ["supported_instances"]}


def test_capabilities_that_no_host_has_are_named(
    api: Api, scheduler: Scheduler, diagnose: Diagnose
) -> None:
    flavor = api.flavor(None, {"capabilities:hypervisor_type": "s== none"})
    server = api.server(flavor=flavor)
    text = "No host has the capabilities that this flavor requires"
    name = "ComputeCapabilitiesFilter"
    _check_reason(server, scheduler, text, f"{name} 0 of 3")
    _check_diagnosis(server, scheduler, diagnose, name, [3, 0])


def test_server_group_that_allows_no_further_host_is_named(
    api: Api, scheduler: Scheduler, diagnose: Diagnose
) -> None:
    apart = {"group": api.group("anti-affinity")}
    for _ in HOSTS:
        assert api.server(hints=apart).status == "ACTIVE"
    fourth = api.server(hints=apart)
    text = "The server group allows no further host"
    name = "ServerGroupAntiAffinityFilter"
    _check_reason(fourth, scheduler, text, f"{name} 0 of 3")
    _check_diagnosis(fourth, scheduler, diagnose, name, [3, 3, 3, 0])


def test_server_group_whose_host_is_down_is_named(
    api: Api, scheduler: Scheduler, diagnose: Diagnose
) -> None:
    together = {"group": api.group("affinity")}
    first = api.server(hints=together)
    api.set_service(str(first.host), forced_down=True)
    second = api.server(hints=together)
    text = "The host of the server group cannot take this server"
    name = "ServerGroupAffinityFilter"
    numbers = f"ComputeFilter 2 of 3, {name} 0 of 2"
    _check_reason(second, scheduler, text, numbers)
    _check_diagnosis(second, scheduler, diagnose, name, [2, 2, 2, 2, 0])
    _, found = diagnose(first)
    assert found["stage"] == "host-filters"
    assert found["by"] == name


def test_compute_services_that_are_down_are_named(
    api: Api, scheduler: Scheduler, diagnose: Diagnose
) -> None:
    for host in HOSTS:
        api.set_service(host, forced_down=True)
    server = api.server()
    text = "The compute service of each host is down or disabled"
    _check_reason(server, scheduler, text, "ComputeFilter 0 of 3")
    _check_diagnosis(server, scheduler, diagnose, "ComputeFilter", [0])


@pytest.mark.parametrize(
    ("size", "word"),
    [
        ({"ram": 10**9}, "memory"),
        ({"vcpus": 1001}, "CPUs"),
        ({"disk": 10**7}, "disk"),
    ],
    ids=["memory", "cpu", "disk"],
)
def test_resource_that_no_host_has_room_for_is_named(
    size: dict[str, int], word: str, api: Api, scheduler: Scheduler
) -> None:
    """Also more CPUs than a host has, but not more than it may share."""
    hosts = {"memory": 3, "CPUs": 3, "disk": 3, word: 0}
    numbers = [f"{each}: {n} of 3 hosts" for each, n in hosts.items()]
    text = f"No available host has room for this flavor's {word}"
    server = api.server(flavor=api.flavor(size))
    _check_reason(server, scheduler, text, ", ".join(numbers))


def test_second_of_several_servers_and_its_alternates_have_novas_words_and_leave_nothing(
    api: Api, cloud: Cloud, scheduler: Scheduler
) -> None:
    first = api.server(number=4, hints={"group": api.group("anti-affinity")})
    assert first.fault == (
        "No valid host was found. There are not enough hosts available."
    )
    # The one that had a host.
    url = f"/allocations/{first.uuid}"
    assert cloud.placement.request("GET", url)["allocations"] == {}
    # Each of the three has a host, and no alternate is left.
    apart = {"group": api.group("anti-affinity")}
    assert api.server(number=3, hints=apart).status == "ACTIVE"


def _last_fault(cloud: Cloud, server: Server) -> str:
    table = f"{cloud.databases.token}_nova_cell1.instance_faults"
    of_server = f"WHERE instance_uuid = '{server.uuid}'"
    ((fault,),) = cloud.databases.run(
        f"SELECT message FROM {table} {of_server}"  # noqa: S608 - ours
    )
    return str(fault)


# Nova shows a fault of servers in ERROR alone.
def test_resize_without_a_host_leaves_the_server_as_it_is_and_the_reason_in_its_faults(
    api: Api, cloud: Cloud, scheduler: Scheduler
) -> None:
    """Nova has its own words in the list of actions."""
    server = api.server()
    body = {"flavorRef": api.flavor({"ram": 10**9})}
    status, message = api.move(server, "resize", body)
    assert status == "ACTIVE"
    assert "No valid host found for " in message
    reason = "No available host has room for this flavor's memory"
    fault = _last_fault(cloud, server)
    assert fault.startswith(f"No valid host was found. {reason}")


_DOWN = "The compute service of each host is down or disabled"


@pytest.mark.usefixtures("scheduler")
@pytest.mark.parametrize(
    ("action", "body", "text"),
    [
        ("migrate", None, "No valid host found for "),
        (
            "os-migrateLive",
            {"host": None, "block_migration": "auto"},
            _DOWN,
        ),
    ],
    ids=["cold", "live"],
)
def test_migration_without_a_host_leaves_the_server_as_it_is_and_the_reason_in_its_faults(
    action: str,
    body: Any,
    text: str,
    api: Api,
    cloud: Cloud,
) -> None:
    server = api.server()
    for host in HOSTS:
        if host != server.host:
            api.set_service(host, forced_down=True)
    status, message = api.move(server, action, body)
    assert status == "ACTIVE"
    assert text in message
    fault = _last_fault(cloud, server)
    assert fault.startswith(f"No valid host was found. {_DOWN}")


def test_diagnosis_of_a_server_that_runs_shows_the_hosts_that_are_left(
    api: Api, scheduler: Scheduler, diagnose: Diagnose
) -> None:
    server = api.server(hints={"group": api.group("anti-affinity")})
    program, _ = scheduler
    code, found = diagnose(server, "--history", str(program.log_file))
    assert code == 0
    assert found["stage"] == "candidates"
    assert {each["left"] for each in found["host_filters"]} == {3}
    assert [each["result"] for each in found["recorded"]] == ["passed"]


@contextmanager
def _without_table(cloud: Cloud, table: str) -> Iterator[None]:
    name = f"{cloud.databases.token}_nova_cell1.{table}"
    cloud.databases.run(f"RENAME TABLE {name} TO {name}_away")
    try:
        yield
    finally:
        cloud.databases.run(f"RENAME TABLE {name}_away TO {name}")


def test_diagnosis_while_nova_cannot_read_hosts_says_what_was_not_run(
    api: Api, cloud: Cloud, scheduler: Scheduler, diagnose: Diagnose
) -> None:
    server = api.server(hints={"group": api.group("anti-affinity")})
    with _without_table(cloud, "compute_nodes"):
        code, found = diagnose(server)
    problem = (
        "Nova's host filters were not run: Nova, GET /os-hypervisors/detail:"
        " status 500"
    )
    assert problem in (found if code else " ".join(found["notes"]))


def test_diagnosis_while_nova_cannot_read_the_server_says_so(
    api: Api, cloud: Cloud, scheduler: Scheduler, diagnose: Diagnose
) -> None:
    server = api.server(hints={"group": api.group("anti-affinity")})
    with _without_table(cloud, "instances"):
        code, found = diagnose(server)
    # Nova 27 shows flavor and image of a server that it cannot read.
    if code:
        problem = r"Nova, GET /servers/\S+: status 500, .* Try again, or read"
        assert re.search(problem, found)
