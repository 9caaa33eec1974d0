# SPDX-License-Identifier: Apache-2.0

"""``os-prefilter audit --servers FILE``: what it prints, writes and returns,
for right and wrong input.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from oslo_versionedobjects.base import obj_tree_get_versions

from os_prefilter.common.errors import PlacementUnavailable
from os_prefilter_tools.cli.main import main
from os_prefilter_tools.fleet.server import Server
from os_prefilter_tools.operators.audit.server_list import server_from
from tests.support.commands import Capture, placed
from tests.support.nova_objects import nova_spec
from tests.support.pages import DOCS, files_of

HOSTS = """
aggregates: {rack: {availability_zone: az-1}}
hosts:
  a: {resources: {VCPU: 8, MEMORY_MB: 8192}, traits: [HW_ARCH_X86_64, COMPUTE_IMAGE_TYPE_QCOW2], aggregates: [rack]}
  b: {resources: {VCPU: 8, MEMORY_MB: {total: 8192, used: 7680}}, traits: [HW_ARCH_X86_64, COMPUTE_IMAGE_TYPE_QCOW2]}
  c: {resources: {VCPU: 8, MEMORY_MB: 8192}, traits: [HW_ARCH_AARCH64, COMPUTE_IMAGE_TYPE_QCOW2]}
  stopped:
    resources: {VCPU: 8, MEMORY_MB: 8192}
    traits: [COMPUTE_STATUS_DISABLED, HW_ARCH_X86_64, COMPUTE_IMAGE_TYPE_QCOW2]
"""


def server(
    name: str, node: str | None, memory_mb: int = 512, **properties: str
) -> dict[str, Any]:
    flavor = {"name": "m1", "vcpus": 1, "memory_mb": memory_mb, "root_gb": 0}
    spec = {
        "flavor": flavor,
        "image": {"disk_format": "qcow2", "properties": properties},
    }
    return {
        "uuid": f"id-{name}",
        "name": name,
        "project": "shop",
        "node": node,
        "ports": [],
        "spec": spec,
    }


@pytest.fixture
def hosts(tmp_path: Path) -> list[str]:
    return [
        "--hosts",
        placed(tmp_path / "hosts.yaml", HOSTS),
        "--enable",
        "image_metadata,image_type",
    ]


def written(tmp_path: Path, *entries: object) -> str:
    lines = (
        entry if isinstance(entry, str) else json.dumps(entry)
        for entry in entries
    )
    return placed(
        tmp_path / "servers.jsonl", "".join(f"{line}\n" for line in lines)
    )


def rows(capsys: Capture, *argv: str, code: int = 0) -> tuple[Any, str]:
    document, err = audited(capsys, *argv, code=code)
    return document["lines"], err


def audited(capsys: Capture, *argv: str, code: int = 0) -> tuple[Any, str]:
    assert main(["audit", "--servers", *argv, "-f", "json"]) == code
    out, err = capsys.readouterr()
    return json.loads(out), err


ANTI_AFFINITY: dict[str, object] = {
    "uuid": "g-1",
    "policy": "anti-affinity",
    "rules": {},
}


@pytest.mark.parametrize(
    "rules",
    [{}, None, {"max_server_per_host": 1}, {"max_server_per_host": "1"}],
    ids=str,
)
def test_drain_that_an_anti_affinity_group_refuses_is_no_all_clear(
    rules: object, capsys: Capture, tmp_path: Path, hosts: list[str]
) -> None:
    """Nova has "No valid host" for it: each other host has a member."""
    group = {**ANTI_AFFINITY, "rules": rules}
    entries = [
        {**server(f"member-{host}", host), "group": group} for host in "abc"
    ]
    (_, _, row), err = rows(
        capsys, written(tmp_path, *entries), *hosts, "--without", "a", code=2
    )
    assert row["Now"] == 0
    assert row["Verdict"] == "no destination"
    assert (
        row["Why"]["text"]
        == "its server group (anti-affinity) excludes each other host that"
        " could take it"
    )
    assert "Verdicts: no destination: 3." in err
    assert "Drained: a: 0 of 1 server find a place at the same time." in err


def test_members_that_a_group_allows_on_one_host_have_places(
    capsys: Capture, tmp_path: Path, hosts: list[str]
) -> None:
    group = {**ANTI_AFFINITY, "rules": {"max_server_per_host": 2}}
    entries = [
        {**server(f"member-{host}", host), "group": group} for host in "abc"
    ]
    found, _ = rows(
        capsys, written(tmp_path, *entries), *hosts, "--without", "a"
    )
    assert [row["Now"] for row in found] == [2, 2, 2]


def test_affinity_group_on_one_host_has_no_destination(
    capsys: Capture, tmp_path: Path, hosts: list[str]
) -> None:
    """Nova counts the server's own host as the group's, and moves no member to
    another.
    """
    group: dict[str, object] = {
        "uuid": "g-1",
        "policy": "affinity",
        "rules": {},
    }
    together = [
        {**server(f"member-{number}", "a"), "group": group}
        for number in range(2)
    ]
    (row,), _ = rows(capsys, written(tmp_path, *together), *hosts, code=2)
    assert row["Verdict"] == "no destination"
    assert (
        row["Why"]["text"]
        == "its server group (affinity) excludes each other host that could"
        " take it"
    )
    apart = {**server("member-c", "c"), "group": group}
    found, _ = rows(capsys, written(tmp_path, *together, apart), *hosts)
    assert {row["Host"]: row["Destinations"] for row in found} == {
        "a": ["c"],
        "c": ["a"],
    }


@pytest.mark.parametrize(
    "policy", ["soft-affinity", "soft-anti-affinity", None]
)
def test_group_that_only_prefers_hosts_excludes_none(
    policy: str | None, capsys: Capture, tmp_path: Path, hosts: list[str]
) -> None:
    group: dict[str, object] = {
        "uuid": None if policy is None else "g-1",
        "policy": policy,
        "rules": {},
    }
    entries = [
        {**server(f"member-{number}", "a"), "group": group}
        for number in range(2)
    ]
    (row,), _ = rows(capsys, written(tmp_path, *entries[:1]), *hosts)
    assert (row["Now"], row["Verdict"]) == (2, "ok")


def _asking(
    extra_specs: dict[str, str] | None = None, **parts: object
) -> dict[str, Any]:
    entry = {**server("s", "c"), **parts}
    entry["spec"]["flavor"]["extra_specs"] = extra_specs or {}
    return entry


def _with_spec(**fields: object) -> dict[str, Any]:
    entry = server("s", "c")
    return {**entry, "spec": {**entry["spec"], **fields}}


_PORT = {"request_id": "5f6f4a0e-0000-4000-8000-000000000001", "spec": []}
_NOT_JUDGED = [
    (_asking({"hw:numa_nodes": "2"}), "a NUMA topology"),
    (_asking({"hw:mem_page_size": "large"}), "a NUMA topology"),
    (_with_spec(numa_topology={"cells": []}), "a NUMA topology"),
    (_asking({"accel:device_profile": "fpga"}), "a device profile"),
    (_asking({"pci_passthrough:alias": "a100:1"}), "PCI devices"),
    (_with_spec(pci_requests={"requests": [_PORT]}), "PCI devices of ports"),
    (_asking(ports=["normal", "direct"]), "PCI devices of ports"),
    (
        _asking(ports=["normal", {"5f6f4a0e": "1"}]),
        "a guaranteed bandwidth of ports",
    ),
    (
        _asking({"gpu": "true"}),
        "extra specs that Nova compares with capabilities of hosts",
    ),
    (
        _asking({"capabilities:cpu_info:arch": "x"}),
        "extra specs that Nova compares with capabilities of hosts",
    ),
    (
        _asking({"aggregate_instance_extra_specs:ssd": "1"}),
        "extra specs that Nova compares with metadata of aggregates",
    ),
    (
        server("s", "c", img_hv_type="kvm"),
        "image property img_hv_type, which no enabled filter requires",
    ),
    (_with_spec(scheduler_hints={"different_host": ["x"]}), "scheduler hints"),
    (
        _with_spec(instance_group={"uuid": "g"}),
        "a server group, which is not in the entry",
    ),
    (
        {
            name: value
            for name, value in server("s", "c").items()
            if name != "ports"
        },
        "ports, which are not in the entry",
    ),
]


@pytest.mark.parametrize(("entry", "part"), _NOT_JUDGED, ids=str)
def test_server_that_asks_what_no_api_shows_of_hosts_is_no_all_clear(
    entry: dict[str, Any],
    part: str,
    capsys: Capture,
    tmp_path: Path,
    hosts: list[str],
) -> None:
    document, err = audited(capsys, written(tmp_path, entry), *hosts, code=1)
    (row,) = document["lines"]
    assert row["Verdict"] == "not judged"
    assert row["Why"]["text"] == part
    assert document["summary"]["not_judged"] == {part: 1}
    assert f"Not judged: 1: {part} (1 server)." in err


@pytest.mark.parametrize(
    "entry",
    [
        _asking(
            {
                "hw:cpu_policy": "shared",
                "group_policy": "none",
                "quota:cpu_shares": "1",
            }
        ),
        _asking(ports=None),
        _asking(ports=["normal", "virtio-forwarder"]),
        _with_spec(
            scheduler_hints={"group": ["g-1"]},
            numa_topology=None,
            instance_group=None,
        ),
        _with_spec(pci_requests={"requests": []}),
        server("s", "c", hw_architecture="x86_64"),
        {**server("s", "c"), "group": None},
    ],
    ids=str,
)
def test_what_excludes_no_host_leaves_the_all_clear(
    entry: dict[str, Any], capsys: Capture, tmp_path: Path, hosts: list[str]
) -> None:
    (row,), _ = rows(capsys, written(tmp_path, entry), *hosts)
    assert row["Verdict"] == "ok"


def test_member_on_an_unknown_host_leaves_a_group_without_a_verdict(
    capsys: Capture, tmp_path: Path, hosts: list[str]
) -> None:
    entries = [
        {**server(f"member-{host}", host), "group": ANTI_AFFINITY}
        for host in ("a", "elsewhere")
    ]
    found, _ = rows(capsys, written(tmp_path, *entries), *hosts, code=1)
    why = {row["Host"]: row["Why"]["text"] for row in found}
    assert (
        why["a"] == "the hosts of 1 member of its server group are not known"
    )


def test_host_filters_of_the_configuration_that_cannot_be_judged_are_named(
    capsys: Capture, tmp_path: Path, hosts: list[str]
) -> None:
    lines = [
        "[filter_scheduler]",
        "enabled_filters = ComputeFilter,NumInstancesFilter,MyFilter",
        "[prefilter]",
    ]
    config = placed(
        tmp_path / "nova.conf",
        "\n".join([*lines, "enabled_filters = image_type", ""]),
    )
    argv = [
        written(tmp_path, server("s", "c")),
        *hosts[:2],
        "--config-file",
        config,
    ]
    document, err = audited(capsys, *argv, code=1)
    assert document["lines"][0]["Verdict"] == "ok"
    assert document["summary"]["host_filters_not_judged"] == [
        "NumInstancesFilter",
        "MyFilter",
    ]
    assert (
        "Host filters that may exclude more hosts: 2: NumInstancesFilter;"
        " MyFilter." in err
    )


_RAN = "2026-01-01 00:00:00"
_NO_PLACE = [
    ({"vm_state": "error", "node": None}, "failed boots, without a host ever"),
    ({"vm_state": "building", "node": None}, "being built"),
    ({"vm_state": "soft-delete", "node": "a", "launched_at": _RAN}, "deleted"),
    ({"vm_state": "deleted", "node": None}, "deleted"),
]


@pytest.mark.parametrize(("parts", "why"), _NO_PLACE, ids=str)
def test_server_that_needs_no_place_is_counted_apart(
    parts: dict[str, Any],
    why: str,
    capsys: Capture,
    tmp_path: Path,
    hosts: list[str],
) -> None:
    """Of a request that no host could meet."""
    apart = {**server("apart", None, 999_999), **parts}
    document, err = audited(
        capsys,
        written(tmp_path, server("s", "c"), apart),
        *hosts,
        "--without",
        "a",
    )
    assert document["summary"]["servers"] == 1
    assert document["summary"]["need_no_place"] == {why: 1}
    assert document["summary"]["drained"]["servers"] == 0
    assert f"Need no place: 1: {why} (1 server)." in err


@pytest.mark.parametrize(
    "parts",
    [
        {"vm_state": "shelved_offloaded", "launched_at": _RAN},
        {"vm_state": "error", "node": "a", "launched_at": _RAN},
        {"vm_state": "error", "node": "a"},
        {"vm_state": "error", "launched_at": _RAN},
        {"vm_state": "building", "node": "a"},
        {},
    ],
    ids=str,
)
def test_server_that_may_need_a_place_is_judged(
    parts: dict[str, Any], capsys: Capture, tmp_path: Path, hosts: list[str]
) -> None:
    """Without a host it was shelved, or reset to an error afterwards."""
    entry = {**server("s", None, 999_999), **parts}
    document, _ = audited(capsys, written(tmp_path, entry), *hosts, code=2)
    assert document["summary"]["verdicts"]["no capable host"] == 1


def test_only_servers_that_need_no_place_are_an_all_clear(
    capsys: Capture, tmp_path: Path, hosts: list[str]
) -> None:
    document, _ = audited(
        capsys,
        written(tmp_path, {**server("s", None), "vm_state": "error"}),
        *hosts,
    )
    assert document["lines"] == []


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"group": []}, "group is empty; expected a server group"),
        (
            {
                "group": {
                    **ANTI_AFFINITY,
                    "rules": {"max_server_per_host": "x"},
                }
            },
            "group.rules.max_server_per_host is 'x'",
        ),
        (
            {"group": {**ANTI_AFFINITY, "rules": {"max_server_per_host": 0}}},
            "group.rules.max_server_per_host is 0",
        ),
        (
            {"group": {**ANTI_AFFINITY, "rules": "{}"}},
            "group.rules is '{}'; expected an object",
        ),
        ({"ports": "[]"}, "ports is '[]'; expected a list"),
        ({"ports": 5}, "ports is 5; expected a list"),
    ],
    ids=str,
)
def test_wrong_parts_of_an_entry_are_named(
    parts: dict[str, object],
    message: str,
    capsys: Capture,
    tmp_path: Path,
    hosts: list[str],
) -> None:
    path = written(
        tmp_path, server("good", "c"), {**server("s", "a"), **parts}
    )
    _, err = audited(capsys, path, *hosts, code=1)
    assert f"line 2: server 'id-s': {message}" in err


def test_server_without_any_other_host_has_a_reason(
    capsys: Capture, tmp_path: Path
) -> None:
    """No requirement excludes a host that there is not."""
    fleet, path = (
        tmp_path / "one.yaml",
        written(tmp_path, server("alone", "a")),
    )
    size, argv = (
        "{resources: {VCPU: 8, MEMORY_MB: 8192}}",
        ["--hosts", str(fleet), "--enable", "image_metadata"],
    )
    fleet.write_text(f"hosts: {{a: {size}}}")
    (row,), _ = rows(capsys, path, *argv, code=2)
    assert (row["Verdict"], row["Why"]["text"]) == (
        "no capable host",
        "the fleet has no other host",
    )
    fleet.write_text(f"hosts: {{a: {size}, b: {size}}}")
    (row,), _ = rows(capsys, path, *argv, "--without", "b", code=2)
    assert row["Verdict"].startswith("none without the drained")
    assert row["Why"]["text"].startswith("every other")


def test_server_that_is_there_twice_counts_once(
    capsys: Capture, tmp_path: Path, hosts: list[str]
) -> None:
    """Those without an ID all count."""
    no_id = {**server("x", "a"), "uuid": None}
    path = written(
        tmp_path,
        server("s", "a"),
        server("t", "a"),
        server("s", "a"),
        no_id,
        no_id,
    )
    found, err = rows(capsys, path, *hosts)
    assert sum(row["Count"] for row in found) == 4
    assert "4 servers on 1 host of 4." in err


@pytest.mark.parametrize(
    "other",
    [
        server("s", "b"),
        server("s", None),
        server("s", "a", 600),
        {**server("s", "a"), "machine_type": "pc-q35-9.1"},
    ],
    ids=range(4),
)
def test_server_whose_entries_differ_is_named_and_no_all_clear(
    other: dict[str, Any], capsys: Capture, tmp_path: Path, hosts: list[str]
) -> None:
    """Such as one of a join that meets two mappings of it, or of two lists
    before and after a move.
    """
    document, err = audited(
        capsys, written(tmp_path, server("s", "a"), other), *hosts, code=1
    )
    assert (
        [row["Host"] for row in document["lines"]],
        document["summary"]["left_out"]["count"],
    ) == (["a"], 1)
    assert (
        "Left out: 1: server 'id-s': it is there twice, with different data;"
        " the first entry was judged." in err
    )


def test_parts_from_two_database_servers_are_joined(
    tmp_path: Path, capsys: Capture, hosts: list[str]
) -> None:
    """By the script of the page; a server without a request spec is left out
    and named.
    """
    entries = [server("s", "a"), server("t", "a")]
    specs = [
        json.dumps(
            {"uuid": "id-s", "spec": json.dumps(entries[0].pop("spec"))}
        ),
        '{"uuid": "gone", "spec": "{}"}',
    ]
    del entries[1]["spec"]
    (tmp_path / "cell.jsonl").write_text(
        "".join(f"{json.dumps(each)}\n" for each in entries)
    )
    (tmp_path / "specs.jsonl").write_text("\n".join(specs))
    script = files_of(DOCS / "audit.rst")["join.py"]
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    found, err = rows(
        capsys, written(tmp_path, *done.stdout.splitlines()), *hosts, code=1
    )
    assert [row["Servers"] for row in found] == [[{"id": "id-s", "name": "s"}]]
    assert "'id-t': no request spec" in err


def test_full_and_incapable_hosts_are_told_apart(
    capsys: Capture, tmp_path: Path, hosts: list[str]
) -> None:
    """No room now, where a host would do if it were empty; and no host that
    ever would.
    """
    big = server("big", "a", 4096, hw_architecture="x86_64")
    found, err = rows(
        capsys,
        written(tmp_path, big, server("arm", "c", hw_architecture="aarch64")),
        *hosts,
        code=2,
    )
    by_name = {row["Servers"][0]["name"]: row for row in found}
    assert (by_name["big"]["Verdict"], by_name["big"]["Why"]["if_empty"]) == (
        "no destination",
        1,
    )
    assert {
        each["text"] for each in by_name["big"]["Why"]["requirements"]
    } == {*("HW_ARCH_X86_64", "MEMORY_MB=4096", "!COMPUTE_STATUS_DISABLED")}
    assert by_name["arm"]["Verdict"] == "no capable host"
    assert by_name["arm"]["Why"]["requirements"] == [
        {
            "text": "HW_ARCH_AARCH64",
            "by": "image_metadata",
            "because": "image property hw_architecture=aarch64",
        }
    ]
    assert "no capable host: 1; no destination: 1" in err
    found, err = rows(
        capsys,
        written(tmp_path, big, server("ok", "b")),
        *hosts,
        "--only",
        "unschedulable",
        code=2,
    )
    assert [row["Servers"][0]["name"] for row in found] == ["big"]


def test_drained_hosts_are_no_destinations_and_their_servers_need_room_together(
    capsys: Capture, tmp_path: Path, hosts: list[str]
) -> None:
    entries = [
        server(f"x-{number}", "a", hw_architecture="x86_64")
        for number in range(2)
    ]
    path = written(tmp_path, *entries, server("y", "c"))
    document, err = audited(capsys, path, *hosts, "--without", "a", code=2)
    found = document["lines"]
    by_host = {row["Host"]: row for row in found}
    assert [by_host["a"][name] for name in ("Count", "Now", "Without")] == [
        2,
        1,
        1,
    ]
    assert [by_host["c"][name] for name in ("Now", "Without")] == [2, 1]
    # On the other host there is room for one of them.
    assert (
        "Drained: a: at least 1 of 2 servers find a place at the same time."
        in err
    )
    assert by_host["a"]["Verdict"] == "not all if drained"
    assert (
        by_host["a"]["Why"]["text"]
        == "at least 1 of 2 servers of the drained hosts find a place at the"
        " same time"
    )
    assert by_host["c"]["Verdict"] == "ok"
    summary = document["summary"]
    assert [
        summary["drained"][name] for name in ("hosts", "servers", "placed")
    ] == [["a"], 2, 1]
    assert summary["verdicts"]["not all if drained"] == 2
    assert (
        "Hosts with servers that find no place if the host dies: 1: a (at"
        " least 1 of 2 servers placed)." in err
    )
    (of_a, *_), _ = rows(capsys, path, *hosts, code=2)
    assert (of_a["Verdict"], of_a["Why"]["text"]) == (
        "not all if its host died",
        "at least 1 of 2 servers of its host find a place at the same time",
    )
    found, err = rows(
        capsys,
        written(tmp_path, server("y", "c", 600)),
        *hosts,
        "--without",
        "a",
        code=2,
    )
    assert found[0]["Verdict"] == "none without the drained hosts"
    assert [each["text"] for each in found[0]["Why"]["requirements"]] == [
        "MEMORY_MB=600",
        "!COMPUTE_STATUS_DISABLED",
    ]


def test_availability_zone_and_machine_type_of_a_server_count(
    capsys: Capture, tmp_path: Path, hosts: list[str]
) -> None:
    """As Nova stores them; an unknown zone requires nothing, as in Nova, and
    is told.
    """
    spec = nova_spec(
        {}, availability_zone="az-1", project_id="p"
    ).obj_to_primitive()
    entries = [
        {**server("zoned", "b"), "spec": json.dumps(spec)},
        {
            **server("elsewhere", "b"),
            "spec": nova_spec({}, availability_zone="az-9").obj_to_primitive(),
        },
        {**server("kept", "b"), "machine_type": "pc-q35-9.1"},
        {**server("none kept", "b"), "machine_type": None},
    ]
    config = placed(
        tmp_path / "prefilter.conf", "[prefilter]\nreported_traits = *\n"
    )
    found, err = rows(
        capsys,
        written(tmp_path, *entries),
        *hosts,
        "--config-file",
        config,
        code=2,
    )
    by_name = {each["name"]: row for row in found for each in row["Servers"]}
    # The flavor has a disk, of which no host has any.
    assert [
        each["text"] for each in by_name["zoned"]["Why"]["requirements"]
    ] == ["DISK_GB=1"]
    assert "Not in the fleet: 1: availability zone az-9 (1)." in err
    assert (by_name["none kept"]["Now"], by_name["kept"]["Now"]) == (2, 0)
    assert "MACHINE" in by_name["kept"]["Why"]["text"]


def test_filters_know_the_project_of_an_entry_whose_spec_has_none(
    capsys: Capture, tmp_path: Path
) -> None:
    """As in the plain form of the page's example: a tenant's own hosts are
    required for it.
    """
    size = (
        "resources: {VCPU: 8, MEMORY_MB: 8192}, traits:"
        " [COMPUTE_IMAGE_TYPE_QCOW2]"
    )
    aggregates = "aggregates: {of-shop: {metadata: {filter_tenant_id: shop}}}"
    text = (
        f"{aggregates}\nhosts: {{a: {{{size}}}, b: {{{size}, aggregates:"
        f" [of-shop]}}, c: {{{size}}}}}\n"
    )
    fleet = placed(tmp_path / "tenants.yaml", text)
    other, stated = (
        {**server("other", "a"), "project": "lab"},
        server("stated", "a"),
    )
    stated["spec"]["project_id"] = "lab"
    path = written(tmp_path, server("own", "a"), other, stated)
    found, _ = rows(
        capsys, path, "--hosts", fleet, "--enable", "tenant_isolation"
    )
    by_name = {
        each["name"]: row["Destinations"]
        for row in found
        for each in row["Servers"]
    }
    assert by_name == {"own": ["b"], "other": ["b", "c"], "stated": ["b", "c"]}


@pytest.mark.parametrize("version", ["1.6", "1.14"])
def test_request_specs_of_older_novas_are_read(
    version: str, capsys: Capture, tmp_path: Path, hosts: list[str]
) -> None:
    """As Nova's own objects write them for services of older releases."""
    spec = nova_spec(
        {"hw_architecture": "x86_64"},
        availability_zone=None,
        project_id="p",
        is_bfv=True,
    )
    manifest = {**obj_tree_get_versions("RequestSpec"), "RequestSpec": version}
    stored = spec.obj_to_primitive(
        target_version=version, version_manifest=manifest
    )
    assert stored["nova_object.version"] == version
    # Before version 1.11, nothing says that the server boots from a volume,
    # and no host here has a disk.
    is_old = version == "1.6"
    entry = {**server("old", "a"), "spec": json.dumps(stored)}
    (row,), err = rows(
        capsys, written(tmp_path, entry), *hosts, code=2 * is_old
    )
    assert "Left out" not in err
    assert row["Destinations"] == ([] if is_old else ["b"])


_SPEC = server("a", "a")["spec"]
_BROKEN = [
    ('{"uuid": "1"', "line 2: not JSON"),
    (
        {"uuid": "1", "project": "p", "spec": _SPEC},
        "line 2: server '1': neither node nor host",
    ),
    (
        {"uuid": "1", "node": "a", "spec": _SPEC},
        "line 2: server '1': no project",
    ),
    (
        {"uuid": "1", "node": "a", "project": "p", "spec": None},
        "line 2: server '1': no request spec in spec",
    ),
    (
        {"uuid": "1", "node": "a", "project": "p", "spec": {"image": {}}},
        "line 2: server '1': no flavor in it",
    ),
    (
        {"uuid": "1", "node": "a", "project": "p", "spec": "[]"},
        "line 2: server '1': request spec: it is empty",
    ),
    (
        {"uuid": "1", "node": 7, "project": "p", "spec": _SPEC},
        "line 2: server '1': node is 7; expected text.",
    ),
    (
        {
            "uuid": "1",
            "node": "a",
            "project": "p",
            "spec": {**_SPEC, "availability_zone": 5},
        },
        "line 2: server '1': request spec: availability_zone is 5;",
    ),
    ([1], "line 2: it is"),
]


@pytest.mark.parametrize(("entry", "message"), _BROKEN)
def test_entry_that_is_no_server_is_left_out_with_its_place(
    entry: object,
    message: str,
    capsys: Capture,
    tmp_path: Path,
    hosts: list[str],
) -> None:
    path = written(tmp_path, server("good", "c"), entry)
    # No all-clear for a server that was not judged.
    document, err = audited(capsys, path, *hosts, "--without", "a", code=1)
    assert (
        document["lines"][0]["Count"]
        == document["summary"]["left_out"]["count"]
        == 1
    )
    assert f"Left out: 1: {message}" in err
    assert (
        main(["audit", "--servers", written(tmp_path, "", entry), *hosts]) == 1
    )
    assert "no entry is a server that can be judged" in capsys.readouterr().err


def test_empty_list_is_no_all_clear(
    capsys: Capture, tmp_path: Path, hosts: list[str]
) -> None:
    """A command that failed leaves an empty file."""
    for option, name in (
        ("servers", "list.jsonl"),
        ("servers", "list.json"),
        ("images", "list.jsonl"),
    ):
        path = tmp_path / name
        for text in ("", "\n\n", "[]", '{"servers": []}', '{"images": []}'):
            path.write_text(text)
            assert main(["audit", f"--{option}", str(path), *hosts]) == 1
            out, err = capsys.readouterr()
            assert (out, len(err.splitlines())) == ("", 1)
            assert err.startswith(f"{path}: ")
            assert "Check the command" in err or "no entry is" in err


_WRONG = [
    (["--servers"], "--servers: it needs a cloud to ask, or a file."),
    (
        ["--without", "a"],
        "--without: it is about servers. Give --servers as well.",
    ),
    *(
        (
            ["--servers", "s", f"--timeout={n}"],
            "not a whole number of seconds of at least 1",
        )
        for n in ("0", "1.5")
    ),
    (
        ["--servers", "f", "--images", "g"],
        "--images: it cannot go with --servers.",
    ),
    (
        ["--servers", "f", "--only", "changed"],
        "--only: changed is about images.",
    ),
    (["--servers", "f"], "f: there is no such file"),
    (
        ["--servers", "s", "--without", "kvm-new-9"],
        "--without: the fleet has no host 'kvm-new-9'. Did you mean 'kvm-",
    ),
]


@pytest.mark.parametrize(("argv", "message"), _WRONG)
def test_wrong_arguments_are_refused_with_advice(
    argv: list[str],
    message: str,
    capsys: Capture,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OS_CLOUD", raising=False)
    Path("s").write_text(json.dumps([server("a", "kvm-new-1")]))
    assert main(["audit", *argv]) == 1
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert message in err


def _stop(reason: str) -> None:
    if reason == "it went away":
        raise PlacementUnavailable("GET /", reason)
    if reason == "interrupted":
        os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)


@pytest.mark.parametrize(
    "reason", ["interrupted", "the time is over", "it went away"]
)
def test_audit_that_is_stopped_judges_what_was_read_and_is_no_all_clear(
    reason: str,
    capsys: Capture,
    tmp_path: Path,
    hosts: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count = 1

    def servers_from(*_arguments: object) -> Iterator[Server]:
        yield from (
            server_from(server(f"x-{number}", "c"), {})
            for number in range(count)
        )
        _stop(reason)

    monkeypatch.setattr(
        "os_prefilter_tools.cli.audit_arguments.read_servers", servers_from
    )
    page = tmp_path / "page.html"
    argv = [
        "of the cloud",
        *hosts,
        "--timeout",
        "1",
        "--html",
        str(page),
        "--force",
    ]
    handler = signal.getsignal(signal.SIGINT)
    document, err = audited(capsys, *argv, code=1)
    assert signal.getsignal(signal.SIGINT) is handler
    assert [row["Count"] for row in document["lines"]] == [1]
    assert document["summary"]["is_complete"] is False
    assert reason in document["summary"]["not_read"]
    assert "Not all servers were read, only the first 1: " in err
    assert reason in page.read_text()
    # The time is not over a second time, while the result is printed.
    time.sleep(0.1)
    count = 0
    assert main(["audit", "--servers", *argv]) == 1
    out, err = capsys.readouterr()
    assert (out, reason in err, len(err.splitlines())) == ("", True, 1)


def test_server_on_a_host_that_the_fleet_does_not_know_is_no_all_clear(
    capsys: Capture, tmp_path: Path, hosts: list[str]
) -> None:
    """Such as one that Nova calls by its full name, and the fleet does not: it
    may be drained.
    """
    entries = [
        server("lost", "a.example.com", hw_architecture="x86_64"),
        server("none", None, hw_architecture="x86_64"),
        server("arm", "a.example.com", 16_000),
    ]
    path = written(tmp_path, *entries[:2])
    for without in [], ["--without", "a"]:
        found, err = rows(capsys, path, *hosts, *without, code=1)
        assert [
            (row["Host"], row["Now"], row["Verdict"], row["Why"]["text"])
            for row in found
        ] == [
            (
                "a.example.com",
                2,
                "not judged",
                "the fleet has no host 'a.example.com', on which it is",
            ),
            ("", 2, "ok", ""),
        ]
        assert "Verdicts: not judged: 1; ok: 1." in err
        assert "Not in the fleet: 1: host a.example.com (1)." in err
    (row,), _ = rows(capsys, written(tmp_path, entries[2]), *hosts, code=2)
    assert row["Verdict"] == "no capable host"


def test_node_counts_before_host(
    capsys: Capture, tmp_path: Path, hosts: list[str]
) -> None:
    """Placement has the node; the host of Nova's service may have another
    name.
    """
    entries = [
        {**server("both", "a"), "host": "b"},
        {**server("host alone", None), "host": "b"},
    ]
    found, _ = rows(capsys, written(tmp_path, *entries), *hosts)
    assert {row["Servers"][0]["name"]: row["Host"] for row in found} == {
        "both": "a",
        "host alone": "b",
    }


_HOSTILE = [
    "<script>alert(1)</script>",
    "=cmd|' /C calc'!A0",
    "a\x1b[31mb\nc",
    "x" * 10_000,
    "\u202egnp.exe",
    "</title>",
]


@pytest.mark.parametrize("text", _HOSTILE)
def test_hostile_text_reaches_neither_terminal_nor_spreadsheet_nor_page_as_code(
    text: str, capsys: Capture, tmp_path: Path, hosts: list[str]
) -> None:
    entry = {
        **server(text, text, hw_vif_model=text),
        "uuid": text,
        "project": text,
    }
    entry["spec"]["availability_zone"] = text
    entry["spec"]["flavor"]["name"] = text
    page = tmp_path / "page.html"
    assert (
        main(
            [
                "audit",
                "--servers",
                written(tmp_path, entry),
                *hosts,
                "--html",
                str(page),
                "-f",
                "csv",
            ]
        )
        == 1
    )
    out, err = capsys.readouterr()
    assert all(line.isprintable() for line in (out + err).splitlines())
    assert not re.search(r'(^|,)"[=+@-]', out, re.MULTILINE)
    html = page.read_text()
    # The page has one title and one script of its own.
    assert html.count("<script") == 1
    assert "default-src 'none'" in html
    assert html.count(text) == (text == "</title>") or not re.search(
        r"[<>\x1b]", text
    )


def test_request_that_the_filters_reject_is_a_verdict(
    capsys: Capture, tmp_path: Path, hosts: list[str]
) -> None:
    config = placed(
        tmp_path / "prefilter.conf", "[prefilter]\nunknown_values = reject\n"
    )
    path = written(
        tmp_path, server("odd", "a", 512, **{"trait:a,b": "required"})
    )
    (row,), err = rows(capsys, path, *hosts, "--config-file", config, code=2)
    assert row["Verdict"] == "rejected by filters"
    assert "'trait:a,b' is not trait:NAME" in row["Why"]["text"]
    assert "rejected by filters: 1" in err
    assert (
        "Hosts with servers that find no place if the host dies: 1: a (0 of 1"
        " server placed)." in err
    )


@pytest.mark.parametrize("machine_type", ["pc-q35-9.1", None, "not known"])
def test_request_that_the_server_has_lived_with_is_not_rejected(
    machine_type: str | None, capsys: Capture, tmp_path: Path, hosts: list[str]
) -> None:
    """As in nova-scheduler, whether or not the machine type that it keeps is
    known.
    """
    config = placed(
        tmp_path / "prefilter.conf", "[prefilter]\nunknown_values = reject\n"
    )
    entry = {
        **server("odd", "a", hw_vif_model="nosuch"),
        "machine_type": machine_type,
    }
    if machine_type == "not known":
        del entry["machine_type"]
    (row,), _ = rows(
        capsys, written(tmp_path, entry), *hosts, "--config-file", config
    )
    assert row["Verdict"] == "ok"


def test_servers_are_judged_with_the_filters_of_the_configuration_alone(
    capsys: Capture, tmp_path: Path, hosts: list[str]
) -> None:
    """Not with all of the library, some of which no host may have reported for
    yet; each audit names its filters.
    """
    config = tmp_path / "nova.conf"
    config.write_text(
        "[prefilter]\nenabled_filters = compute_status, image_type\n"
    )
    path = written(
        tmp_path,
        server("small", "a", hw_vif_model="igb", hw_architecture="x86_64"),
    )
    argv = [path, *hosts[:2], "--config-file", str(config)]
    # Nova compares the architecture with what hosts say, which neither filter
    # requires.
    document, err = audited(capsys, *argv, code=1)
    assert (
        document["lines"][0]["Why"]["text"]
        == "image property hw_architecture, which no enabled filter requires"
    )
    assert (document["filters"], document["lines"][0]["Now"]) == (
        ["compute_status", "image_type"],
        2,
    )
    assert err.splitlines()[0].startswith(
        "Hosts: 4 (4 resource providers) of "
    )
    assert err.partition("\n")[2].startswith(
        f"Filters: compute_status, image_type ({config}).\n"
    )
    document, err = audited(
        capsys, *argv, "--enable", "image_metadata", code=2
    )
    assert (
        document["lines"][0]["Why"]["text"]
        == "COMPUTE_NET_VIF_MODEL_IGB by image_metadata (image property"
        " hw_vif_model=igb)"
    )
    page = tmp_path / "page.html"
    document, err = audited(capsys, *argv[:3], "--html", str(page), code=2)
    assert "owner" in document["filters"]
    assert ", ".join(document["filters"]) in page.read_text()
    assert err.partition("\n")[2].startswith(
        f"Filters: {', '.join(document['filters'])} (all of the library;"
        " --config-file FILE names "
    )
    config.write_text("[prefilter]\n")
    assert main(["audit", "--servers", *argv]) == 1
    assert "enabled_filters names no filter" in capsys.readouterr().err
