# SPDX-License-Identifier: Apache-2.0

"""``audit --servers`` on a live cloud: servers of all projects by a real Nova
API, their images and hosts.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote

import pytest

from os_prefilter_tools.adapters.cloud.servers import servers
from os_prefilter_tools.cli.main import main
from os_prefilter_tools.fleet.server import Server, ServerGroup
from tests.services.cloud.cloud import Cloud

Capture = pytest.CaptureFixture[str]

_HOST = "OS-EXT-SRV-ATTR:hypervisor_hostname"
_MICROVERSION = {"OpenStack-API-Version": "compute 2.98"}


@pytest.fixture(scope="module")
def made(whole_cloud: Cloud) -> dict[str, str]:
    """Make servers, more than one page of them, and no others; return name ->
    ID.
    """
    whole_cloud.delete_servers()
    whole_cloud.others.volumes.clear()
    kept = whole_cloud.image("kept", active=True, hw_vif_model="igb")
    gone = whole_cloud.image("gone", active=True, hw_vif_model="e1000e")
    whole_cloud.flavor(
        "audited server",
        "audited-server",
        {"trait:HW_CPU_X86_AVX2": "required"},
        disk=0,
    )
    servers = {
        name: whole_cloud.server("audited-server", image)
        for name, image in (("a", kept), ("b", kept))
    }
    servers["of an image that is gone"] = whole_cloud.server(
        "audited-server", gone
    )
    for name in ("a", "b", "c", "d"):
        volume = whole_cloud.others.volume(hw_vif_model="igb")
        servers[f"of volume {name}"] = whole_cloud.server(
            "audited-server", volume=volume
        )
    servers["of a volume"] = servers["of volume a"]
    whole_cloud.delete_image(gone)
    return servers


def _found(
    cloud: Cloud, name: str = "admin"
) -> tuple[dict[str, Server], list[str]]:
    broken: list[str] = []
    return {
        each.uuid: each
        for each in servers(cloud.connection(name), broken.append)
    }, broken


def _with_rows(cloud: Cloud, change: Callable[[dict[str, Any]], None]) -> None:
    """Change each server in what Nova answers: none of them is built here."""

    def answer(_method: str, path: str) -> tuple[int, object] | None:
        if not path.startswith("/v2.1/servers/detail"):
            return None
        page = cloud.send("GET", cloud.nova, path, **_MICROVERSION)
        for row in page["servers"]:
            change(row)
        return 200, page

    cloud.nova.before = answer


def test_servers_of_all_pages_have_flavor_image_and_project(
    cloud: Cloud, made: dict[str, str]
) -> None:
    found, broken = _found(cloud)
    assert (set(made.values()) <= found.keys(), broken) == (True, [])
    server = found[made["a"]]
    assert server.request.flavor.extra_specs == {
        "trait:HW_CPU_X86_AVX2": "required"
    }
    image = server.request.image
    assert image
    assert (
        image.name,
        image.disk_format,
        image.properties["hw_vif_model"],
    ) == ("kept", "raw", "igb")
    # None of them is built.
    assert (
        server.host,
        server.request.availability_zone,
        bool(server.project),
    ) == ("", None, True)
    pages = [each for each in cloud.nova.sent if "/servers/detail" in each]
    assert len(pages) > 1
    assert all("all_tenants=1" in each for each in pages)
    # It is in the list.
    assert not [
        each
        for each in cloud.glance.sent
        if each.endswith(f"/images/{image.id}")
    ]
    gone, of_volume = (
        found[made["of an image that is gone"]],
        found[made["of a volume"]],
    )
    assert gone.request.image
    assert gone.request.image.disk_format is None
    assert any("gone from Glance" in each for each in gone.not_judged)
    assert of_volume.request.is_bfv
    assert "root volume" in of_volume.unknown
    assert cloud.written == []


def test_audit_of_servers_excludes_their_own_hosts_and_writes_nothing(
    cloud: Cloud, made: dict[str, str], capsys: Capture
) -> None:
    _with_rows(
        cloud,
        lambda row: row.update({_HOST: "kvm-new-1", "name": "<b>\x1b[1m"}),
    )
    # No all-clear: the images of some root volumes are not known.
    assert (
        main(
            [
                "audit",
                "--servers",
                "--os-cloud",
                "admin",
                "--without",
                "kvm-new-2",
                "-f",
                "json",
            ]
        )
        == 1
    )
    out, err = capsys.readouterr()
    row = next(
        row
        for row in json.loads(out)["lines"]
        if made["a"] in [each["id"] for each in row["Servers"]]
    )
    assert (row["Host"], row["Without"]) == ("kvm-new-1", row["Now"] - 1)
    assert {"kvm-new-1", "kvm-new-2"} & set(row["Destinations"]) == {
        "kvm-new-2"
    }
    assert {each["name"] for each in row["Servers"]} == {"<b>\\x1b[1m"}
    assert "Not judged:" in err
    assert cloud.written == []


def test_servers_without_what_must_be_shown_are_left_out_with_the_policy(
    cloud: Cloud, made: dict[str, str], capsys: Capture
) -> None:
    """As for a user whom the policy hides the hosts, or a cell that is
    down.
    """
    down = made["a"]

    def hidden(row: dict[str, Any]) -> None:
        del row[_HOST]
        if row["id"] == down:
            del row["flavor"]

    _with_rows(cloud, hidden)
    found, broken = _found(cloud)
    assert found == {}
    assert any(
        "The policy os_compute_api:os-extended-server-attributes must"
        " allow it." in each
        for each in broken
    )
    assert (
        f"Nova: only the ID of the server {down} is shown. Its cell does not"
        " respond; try again." in broken
    )
    assert main(["audit", "--servers", "--os-cloud", "admin"]) == 1
    assert (
        "the cloud: no entry is a server that can be judged: Nova: "
        in capsys.readouterr().err
    )


@pytest.fixture
def of_volumes(cloud: Cloud, made: dict[str, str]) -> Iterator[dict[str, str]]:
    """Return the IDs and names of the servers that boot from volumes; Nova
    shows these as those of built ones.
    """
    ids = sorted(cloud.others.volumes)
    names = {made[f"of volume {name}"]: name for name in "abcd"}

    def attached(row: dict[str, Any]) -> None:
        row[_HOST] = "kvm-new-1"
        if row["id"] in names:
            row["os-extended-volumes:volumes_attached"] = [
                {"id": ids["abcd".index(names[row["id"]])]}
            ]

    _with_rows(cloud, attached)
    cloud.others.sent.clear()
    yield names
    cloud.others.hook = lambda _path: None


def test_images_of_root_volumes_are_read_from_lists(
    cloud: Cloud, of_volumes: dict[str, str]
) -> None:
    """Page by page, and none of them alone."""
    found, broken = _found(cloud)
    servers = [found[each] for each in of_volumes]
    assert [
        each.request.image and each.request.image.properties
        for each in servers
    ] == [{"hw_vif_model": "igb"}] * 4
    assert [(each.unknown, each.not_judged) for each in servers] == [
        ("", ())
    ] * 4
    assert [
        "/volumes/detail?all_tenants=1" in each
        for each in cloud.others.sent
        if "volumes" in each
    ] == [True] * 2
    assert broken == []


def test_volumes_that_are_not_listed_are_read_alone(
    cloud: Cloud, of_volumes: dict[str, str]
) -> None:
    """As where the policy refuses the list; a volume that is refused as well
    is named.
    """
    gone = sorted(cloud.others.volumes)[3]

    def answer(path: str) -> tuple[int, object] | None:
        if "/volumes/detail" in path or gone in path:
            return 403, {
                "forbidden": {
                    "code": 403,
                    "message": "Policy doesn't allow it.",
                }
            }
        return None

    cloud.others.hook = answer
    found, _ = _found(cloud)
    servers = {name: found[each] for each, name in of_volumes.items()}
    assert [bool(servers[name].request.image) for name in "abcd"] == [
        True,
        True,
        True,
        False,
    ]
    assert servers["d"].unknown.startswith(
        "the image of its root volume is not known: Cinder, GET"
        f" /volumes/{gone}: "
    )
    assert len([each for each in cloud.others.sent if "volumes/" in each]) == 5


@pytest.mark.parametrize(
    "answer", [None, (503, {"message": "down"}), (200, {"volumes": 5})]
)
def test_servers_of_volumes_are_not_judged_where_cinder_hangs_or_refuses(
    cloud: Cloud,
    of_volumes: dict[str, str],
    answer: Any,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os_prefilter_agent.adapters.connection.TIMEOUT", 1)
    end = threading.Event()

    def respond(path: str) -> Any:
        if "volumes" not in path:
            return None
        if answer is None:
            end.wait(30)
        return answer or (503, {})

    cloud.others.hook = respond
    argv = [
        "audit",
        "--servers",
        "--os-cloud",
        "admin",
        "--enable",
        "compute_status",
        "-f",
        "json",
    ]
    started = time.monotonic()
    assert main(argv) == 1
    end.set()
    assert time.monotonic() - started < 25
    document = json.loads(capsys.readouterr().out)
    rows = {
        each["id"]: row for row in document["lines"] for each in row["Servers"]
    }
    for each in of_volumes:
        assert rows[each]["Verdict"] == "not judged"
        assert rows[each]["Why"]["text"].startswith(
            "the image of its root volume is not known: Cinder"
        )
    # And the one whose image is gone from Glance.
    assert document["summary"]["verdicts"]["not judged"] == len(of_volumes) + 1
    assert rows.keys() - of_volumes.keys()


def _in_groups(cloud: Cloud, groups: list[dict[str, Any]]) -> None:
    """Answer with rows that Nova has made, and these of server groups: none of
    these servers is built.
    """
    rows_before = cloud.nova.before

    def answer(method: str, path: str) -> tuple[int, object] | None:
        if path.startswith("/v2.1/os-server-groups"):
            return 200, {
                "server_groups": [] if "offset=0" not in path else groups
            }
        return rows_before(method, path)

    cloud.nova.before = answer


def test_servers_have_their_groups(cloud: Cloud, made: dict[str, str]) -> None:
    """By a real Nova, which lists those of all projects with its newest
    microversion.
    """
    body = {
        "server_group": {
            "name": "apart",
            "policy": "anti-affinity",
            "rules": {"max_server_per_host": 1},
        }
    }
    group = cloud.send(
        "POST", cloud.nova, "/v2.1/os-server-groups", body, **_MICROVERSION
    )["server_group"]["id"]
    found, broken = _found(cloud)
    assert broken == []
    assert [each.group for each in found.values()] == [None] * len(found)
    members = [made["a"], made["b"]]
    shown = cloud.send(
        "GET",
        cloud.nova,
        "/v2.1/os-server-groups?all_projects=true",
        **_MICROVERSION,
    )["server_groups"]
    _with_rows(cloud, lambda row: row.update({_HOST: "kvm-new-1"}))
    _in_groups(
        cloud,
        [
            {**each, "members": members}
            for each in shown
            if each["id"] == group
        ],
    )
    found, broken = _found(cloud)
    assert broken == []
    of_a = found[made["a"]].group
    assert isinstance(of_a, ServerGroup)
    assert of_a is found[made["b"]].group
    assert (of_a.policy, of_a.most_on_host, set(of_a.members)) == (
        "anti-affinity",
        1,
        set(members),
    )
    assert found[made["of a volume"]].group is None
    cloud.send(
        "DELETE",
        cloud.nova,
        f"/v2.1/os-server-groups/{group}",
        **_MICROVERSION,
    )


def test_drain_that_an_affinity_group_refuses_is_no_all_clear(
    cloud: Cloud, made: dict[str, str], capsys: Capture
) -> None:
    _with_rows(cloud, lambda row: row.update({_HOST: "kvm-new-1"}))
    group = {
        "id": "g",
        "policy": "affinity",
        "rules": {},
        "project_id": "p",
        "members": [made["a"], made["b"]],
    }
    _in_groups(cloud, [group])
    assert (
        main(
            [
                "audit",
                "--servers",
                "--os-cloud",
                "admin",
                "--without",
                "kvm-new-1",
                "-f",
                "json",
            ]
        )
        == 2
    )
    rows = {
        each["id"]: row
        for row in json.loads(capsys.readouterr().out)["lines"]
        for each in row["Servers"]
    }
    assert rows[made["a"]]["Why"]["text"].startswith(
        "its server group (affinity) excludes each other host"
    )


def test_groups_of_other_projects_are_not_known_to_a_user_who_is_no_administrator(
    cloud: Cloud, made: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whom a policy lets list all servers: Nova leaves out the groups without
    a word.
    """

    def of_another(row: dict[str, Any]) -> None:
        row.update({_HOST: "kvm-new-1", "tenant_id": "another project"})
        row.pop("scheduler_hints", None)

    monkeypatch.setattr(
        "keystoneauth1.access.AccessInfoV3.role_names", ["reader"]
    )
    _with_rows(cloud, of_another)
    _in_groups(cloud, [])
    found, _ = _found(cloud)
    assert "administrators alone" in found[made["a"]].unknown


_PORTS = "/ports?fields=device_id&fields=binding:vnic_type"
"""How ours begins; Nova asks for ports too."""


@pytest.mark.parametrize("part", ["/os-server-groups", _PORTS])
def test_servers_are_not_judged_where_groups_or_ports_are_refused(
    part: str, cloud: Cloud, made: dict[str, str]
) -> None:
    def row_of_an_older_nova(row: dict[str, Any]) -> None:
        row[_HOST] = "kvm-new-1"
        row.pop("scheduler_hints", None)

    _with_rows(cloud, row_of_an_older_nova)
    rows_before = cloud.nova.before

    def refuse(method: str, path: str) -> tuple[int, object] | None:
        return (
            (403, {"forbidden": {"code": 403, "message": "no"}})
            if part in path
            else rows_before(method, path)
        )

    cloud.nova.before = refuse
    cloud.others.hook = lambda path: (
        (403, {"NeutronError": "no"}) if part in path else None
    )
    try:
        found, _ = _found(cloud)
    finally:
        cloud.others.hook = lambda _path: None
    what = (
        "its ports are not known: Neutron"
        if part == _PORTS
        else "its server group is not known: Nova"
    )
    assert found[made["a"]].unknown.startswith(what)


def test_ports_with_devices_or_bandwidth_are_not_judged(
    cloud: Cloud, made: dict[str, str]
) -> None:
    """Page by page, each with the fields that are read."""
    ports: list[dict[str, Any]] = [
        {
            "id": "1",
            "device_id": made["a"],
            "binding:vnic_type": "normal",
            "resource_request": None,
        },
        {
            "id": "2",
            "device_id": made["b"],
            "binding:vnic_type": "direct",
            "resource_request": None,
        },
        {
            "id": "3",
            "device_id": made["a"],
            "binding:vnic_type": "normal",
            "resource_request": {"request_groups": []},
        },
        {"id": "4", "device_id": "", "binding:vnic_type": "direct"},
    ]
    _with_rows(cloud, lambda row: row.update({_HOST: "kvm-new-1"}))
    cloud.others.ports, cloud.others.sent[:] = ports, []
    try:
        found, _ = _found(cloud)
    finally:
        cloud.others.ports = []
    assert found[made["a"]].not_judged == ("a guaranteed bandwidth of ports",)
    assert found[made["b"]].not_judged == ("PCI devices of ports",)
    asked = [
        path for path in map(unquote, cloud.others.sent) if _PORTS in path
    ]
    assert len(asked) == 2
    assert all("fields=resource_request" in path for path in asked)


def test_failed_boot_is_shown_apart_and_leaves_the_all_clear(
    cloud: Cloud, made: dict[str, str], capsys: Capture
) -> None:
    """As Nova shows one: ERROR, without a host, and never launched."""

    def change(row: dict[str, Any]) -> None:
        is_failed = row["id"] == made["b"]
        row.update(
            {_HOST: None, "status": "ERROR"}
            if is_failed
            else {_HOST: "kvm-new-1", "status": "ACTIVE"}
        )
        row["image"] = row["image"] or {"id": made["b"]}

    _with_rows(cloud, change)
    main(
        [
            "audit",
            "--servers",
            "--os-cloud",
            "admin",
            "--enable",
            "compute_status",
            "-f",
            "json",
        ]
    )
    document = json.loads(capsys.readouterr().out)
    assert document["summary"]["need_no_place"] == {
        "failed boots, without a host ever": 1
    }
    assert made["b"] not in [
        each["id"] for row in document["lines"] for each in row["Servers"]
    ]
