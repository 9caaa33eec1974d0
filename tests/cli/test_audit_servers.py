# SPDX-License-Identifier: Apache-2.0

"""``os-prefilter audit --servers FILE``: output, pages and exit codes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from oslo_versionedobjects.base import obj_tree_get_versions

from os_prefilter.common.errors import PlacementUnavailable
from os_prefilter.hosts.marker_traits import names_of_deprecated
from os_prefilter_tools.fleet.server import Server
from os_prefilter_tools.operators.audit.server_list import server_from
from tests.support.commands import Capture, Cli
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
TENANTS = """
aggregates: {of-shop: {metadata: {filter_tenant_id: shop}}}
hosts:
  a: {resources: {VCPU: 8, MEMORY_MB: 8192}, traits: [COMPUTE_IMAGE_TYPE_QCOW2]}
  b: {resources: {VCPU: 8, MEMORY_MB: 8192}, traits: [COMPUTE_IMAGE_TYPE_QCOW2], aggregates: [of-shop]}
  c: {resources: {VCPU: 8, MEMORY_MB: 8192}, traits: [COMPUTE_IMAGE_TYPE_QCOW2]}
"""
ONE_HOST = """
hosts:
  a: {resources: {VCPU: 8, MEMORY_MB: 8192}}
"""
TWO_HOSTS = f"{ONE_HOST}  b: {{resources: {{VCPU: 8, MEMORY_MB: 8192}}}}"
REJECT = "[prefilter]\nunknown_values = reject\n"
Entry = dict[str, Any]
"""A server in the list that the command reads."""


def server(
    name: str, node: str | None, memory_mb: int = 512, **properties: str
) -> Entry:
    flavor = {"name": "m1", "vcpus": 1, "memory_mb": memory_mb, "root_gb": 0}
    image = {"disk_format": "qcow2", "properties": properties}
    return {
        "uuid": f"id-{name}",
        "name": name,
        "project": "shop",
        "node": node,
        "ports": [],
        "spec": {"flavor": flavor, "image": image},
    }


class Result:
    """What the command printed: a JSON document, and ``err`` beside it."""

    def __init__(self, out: str, err: str) -> None:
        document = json.loads(out)
        self.summary = document["summary"]
        self.filters = document["filters"]
        self.rows = document["lines"]
        self.err = err

    @property
    def row(self) -> Any:
        (row,) = self.rows
        return row

    @property
    def by_host(self) -> dict[str, Any]:
        return {row["Host"]: row for row in self.rows}

    @property
    def by_name(self) -> dict[str, Any]:
        """Return the row of each server."""
        return {
            each["name"]: row for row in self.rows for each in row["Servers"]
        }


class Audit(Cli):
    """Call it with entries and more arguments to audit servers as JSON."""

    def __init__(self, folder: Path, capsys: Capture) -> None:
        super().__init__(folder, capsys)
        self.hosts = ["--hosts", self.place("hosts.yaml", HOSTS)]
        self.enabled = ["--enable", "image_metadata,image_type"]

    def __call__(
        self, entries: Iterable[object], *argv: str, code: int = 0
    ) -> Result:
        out, err = self.print(entries, "-f", "json", *argv, code=code)
        return Result(out, err)

    def print(
        self, entries: Iterable[object], *argv: str, code: int = 0
    ) -> tuple[str, str]:
        lines = [
            each if isinstance(each, str) else json.dumps(each)
            for each in entries
        ]
        path = self.place("servers.jsonl", "\n".join([*lines, ""]))
        options = ["--servers", path, *self.hosts, *self.enabled]
        return self.run("audit", *options, *argv, code=code)

    def refuse(self, *argv: str) -> str:
        """Return the one line that an audit prints if it cannot begin."""
        out, err = self.run("audit", *argv, code=1)
        assert out == ""
        (line,) = err.splitlines()
        return line


@pytest.fixture
def audit(tmp_path: Path, capsys: Capture) -> Audit:
    return Audit(tmp_path, capsys)


def why(row: Any) -> Any:
    return row["Why"]["text"]


def unmet(row: Any) -> list[str]:
    """Return the requirements that no other host meets together."""
    return [each["text"] for each in row["Why"]["requirements"]]


def group(policy: str, rules: object) -> Entry:
    return {"uuid": "g-1", "policy": policy, "rules": rules}


def member(name: str, host: str, its_group: Entry) -> Entry:
    return {**server(name, host), "group": its_group}


def without(entry: Entry, part: str) -> Entry:
    return {name: value for name, value in entry.items() if name != part}


@pytest.mark.parametrize(
    "rules",
    [{}, None, {"max_server_per_host": 1}, {"max_server_per_host": "1"}],
    ids=str,
)
def test_drain_that_an_anti_affinity_group_refuses_is_no_all_clear(
    rules: object, audit: Audit
) -> None:
    """Nova has "No valid host" for it: each other host has a member."""
    apart = group("anti-affinity", rules)
    entries = [member(host, host, apart) for host in "abc"]
    result = audit(entries, "--without", "a", code=2)
    row = result.rows[-1]
    assert len(result.rows) == 3
    assert row["Now"] == 0
    assert row["Verdict"] == "no destination"
    assert (
        why(row) == "its server group (anti-affinity) excludes each other host"
        " that could take it"
    )
    assert "Verdicts: no destination: 3." in result.err
    drained = "Drained: a: 0 of 1 server find a place at the same time."
    assert drained in result.err


def test_members_that_a_group_allows_on_one_host_have_places(
    audit: Audit,
) -> None:
    pairs = group("anti-affinity", {"max_server_per_host": 2})
    entries = [member(host, host, pairs) for host in "abc"]
    result = audit(entries, "--without", "a")
    assert [row["Now"] for row in result.rows] == [2, 2, 2]


_AFFINITY = group("affinity", {})
_TOGETHER = [member("0", "a", _AFFINITY), member("1", "a", _AFFINITY)]


def test_affinity_group_on_one_host_has_no_destination(audit: Audit) -> None:
    """In Nova the server's own host is the group's, which moves nowhere."""
    row = audit(_TOGETHER, code=2).row
    assert row["Verdict"] == "no destination"
    assert (
        why(row) == "its server group (affinity) excludes each other host that"
        " could take it"
    )


def test_affinity_group_on_two_hosts_has_the_hosts_of_its_members(
    audit: Audit,
) -> None:
    by_host = audit([*_TOGETHER, member("c", "c", _AFFINITY)]).by_host
    assert by_host.keys() == {"a", "c"}
    assert by_host["a"]["Destinations"] == ["c"]
    assert by_host["c"]["Destinations"] == ["a"]


@pytest.mark.parametrize(
    "preferring",
    [
        group("soft-affinity", {}),
        group("soft-anti-affinity", {}),
        {"uuid": None, "policy": None, "rules": {}},
    ],
    ids=["soft-affinity", "soft-anti-affinity", "no policy"],
)
def test_group_that_only_prefers_hosts_excludes_none(
    preferring: Entry, audit: Audit
) -> None:
    row = audit([member("s", "a", preferring)]).row
    assert row["Now"] == 2
    assert row["Verdict"] == "ok"


def _asking(
    extra_specs: dict[str, str] | None = None, **parts: object
) -> Entry:
    entry = {**server("s", "c"), **parts}
    entry["spec"]["flavor"]["extra_specs"] = extra_specs or {}
    return entry


def _with_spec(**fields: object) -> Entry:
    entry = server("s", "c")
    entry["spec"] |= fields
    return entry


_PORT = {"request_id": "5f6f4a0e-0000-4000-8000-000000000001", "spec": []}
_NUMA = "a NUMA topology"
_PORTS = "PCI devices of ports"
_CAPABILITIES = "extra specs that Nova compares with capabilities of hosts"
_NOT_JUDGED = {
    "NUMA nodes": (_asking({"hw:numa_nodes": "2"}), _NUMA),
    "large pages": (_asking({"hw:mem_page_size": "large"}), _NUMA),
    "NUMA cells": (_with_spec(numa_topology={"cells": []}), _NUMA),
    "profile": (_asking({"accel:device_profile": "fpga"}), "a device profile"),
    "PCI alias": (_asking({"pci_passthrough:alias": "a100:1"}), "PCI devices"),
    "request": (_with_spec(pci_requests={"requests": [_PORT]}), _PORTS),
    "direct port": (_asking(ports=["normal", "direct"]), _PORTS),
    "bandwidth": (
        _asking(ports=["normal", {"5f6f4a0e": "1"}]),
        "a guaranteed bandwidth of ports",
    ),
    "unscoped extra spec": (_asking({"gpu": "true"}), _CAPABILITIES),
    "capability": (
        _asking({"capabilities:cpu_info:arch": "x"}),
        _CAPABILITIES,
    ),
    "metadata": (
        _asking({"aggregate_instance_extra_specs:ssd": "1"}),
        "extra specs that Nova compares with metadata of aggregates",
    ),
    "hypervisor type": (
        server("s", "c", img_hv_type="kvm"),
        "image property img_hv_type, which no enabled filter requires",
    ),
    "hints": (
        _with_spec(scheduler_hints={"different_host": ["x"]}),
        "scheduler hints",
    ),
    "group": (
        _with_spec(instance_group={"uuid": "g"}),
        "a server group, which is not in the entry",
    ),
    "no ports": (
        without(server("s", "c"), "ports"),
        "ports, which are not in the entry",
    ),
}


@pytest.mark.parametrize(
    ("entry", "part"), _NOT_JUDGED.values(), ids=_NOT_JUDGED
)
def test_server_that_asks_what_no_api_shows_of_hosts_is_no_all_clear(
    entry: Entry, part: str, audit: Audit
) -> None:
    result = audit([entry], code=1)
    assert result.row["Verdict"] == "not judged"
    assert why(result.row) == part
    assert result.summary["not_judged"] == {part: 1}
    assert f"Not judged: 1: {part} (1 server)." in result.err


_SHARED = {"hw:cpu_policy": "shared", "group_policy": "none"}
_NOTHING_ASKED = {
    "extra specs": _asking({**_SHARED, "quota:cpu_shares": "1"}),
    "null for ports": _asking(ports=None),
    "ports": _asking(ports=["normal", "virtio-forwarder"]),
    "spec": _with_spec(
        scheduler_hints={"group": ["g-1"]},
        numa_topology=None,
        instance_group=None,
    ),
    "no PCI request": _with_spec(pci_requests={"requests": []}),
    "required architecture": server("s", "c", hw_architecture="x86_64"),
    "null for a group": {**server("s", "c"), "group": None},
}


@pytest.mark.parametrize("entry", _NOTHING_ASKED.values(), ids=_NOTHING_ASKED)
def test_what_excludes_no_host_leaves_the_all_clear(
    entry: Entry, audit: Audit
) -> None:
    assert audit([entry]).row["Verdict"] == "ok"


def test_member_on_an_unknown_host_leaves_a_group_without_a_verdict(
    audit: Audit,
) -> None:
    apart = group("anti-affinity", {})
    entries = [member(host, host, apart) for host in ("a", "elsewhere")]
    row = audit(entries, code=1).by_host["a"]
    assert (
        why(row) == "the hosts of 1 member of its server group are not known"
    )


def test_host_filters_of_the_configuration_that_cannot_be_judged_are_named(
    audit: Audit,
) -> None:
    lines = [
        "[filter_scheduler]",
        "enabled_filters = ComputeFilter,NumInstancesFilter,MyFilter",
        "[prefilter]",
        "enabled_filters = image_type",
        "",
    ]
    audit.enabled = [
        "--config-file",
        audit.place("nova.conf", "\n".join(lines)),
    ]
    result = audit([server("s", "c")], code=1)
    not_judged = result.summary["host_filters_not_judged"]
    assert result.rows[0]["Verdict"] == "ok"
    assert not_judged == ["NumInstancesFilter", "MyFilter"]
    assert (
        "Host filters that may exclude more hosts: 2: NumInstancesFilter;"
        " MyFilter." in result.err
    )


_RAN = "2026-01-01 00:00:00"
_SOFT = {"vm_state": "soft-delete", "node": "a", "launched_at": _RAN}
_NO_PLACE = {
    "error": ({"vm_state": "error"}, "failed boots, without a host ever"),
    "building": ({"vm_state": "building"}, "being built"),
    "soft-delete": (_SOFT, "deleted"),
    "deleted": ({"vm_state": "deleted"}, "deleted"),
}


@pytest.mark.parametrize(("parts", "state"), _NO_PLACE.values(), ids=_NO_PLACE)
def test_server_that_needs_no_place_is_counted_apart(
    parts: Entry, state: str, audit: Audit
) -> None:
    """Its request is one that no host could meet."""
    apart = {**server("apart", None, 999_999), **parts}
    result = audit([server("s", "c"), apart], "--without", "a")
    assert result.summary["servers"] == 1
    assert result.summary["need_no_place"] == {state: 1}
    assert result.summary["drained"]["servers"] == 0
    assert f"Need no place: 1: {state} (1 server)." in result.err


_MAY_NEED_A_PLACE = {
    "shelved": {"vm_state": "shelved_offloaded", "launched_at": _RAN},
    "error on a host": {"vm_state": "error", "node": "a", "launched_at": _RAN},
    "error on a host, never launched": {"vm_state": "error", "node": "a"},
    "error after a launch": {"vm_state": "error", "launched_at": _RAN},
    "building on a host": {"vm_state": "building", "node": "a"},
    "no state": {},
}


@pytest.mark.parametrize(
    "parts", _MAY_NEED_A_PLACE.values(), ids=_MAY_NEED_A_PLACE
)
def test_server_that_may_need_a_place_is_judged(
    parts: Entry, audit: Audit
) -> None:
    """Without a host it was shelved, or reset to an error afterwards."""
    entry = {**server("s", None, 999_999), **parts}
    summary = audit([entry], code=2).summary
    assert summary["verdicts"]["no capable host"] == 1


def test_only_servers_that_need_no_place_are_an_all_clear(
    audit: Audit,
) -> None:
    assert audit([{**server("s", None), "vm_state": "error"}]).rows == []


def _max_per_host(number: object) -> Entry:
    return group("anti-affinity", {"max_server_per_host": number})


_WRONG_PARTS = {
    "group": ({"group": []}, "group is empty; expected a server group"),
    "text for a rule": (
        {"group": _max_per_host("x")},
        "group.rules.max_server_per_host is 'x'",
    ),
    "rule of zero": (
        {"group": _max_per_host(0)},
        "group.rules.max_server_per_host is 0",
    ),
    "text for rules": (
        {"group": group("anti-affinity", "{}")},
        "group.rules is '{}'; expected an object",
    ),
    "text for ports": ({"ports": "[]"}, "ports is '[]'; expected a list"),
    "number for ports": ({"ports": 5}, "ports is 5; expected a list"),
}


@pytest.mark.parametrize(
    ("parts", "message"), _WRONG_PARTS.values(), ids=_WRONG_PARTS
)
def test_wrong_parts_of_an_entry_are_named(
    parts: Entry, message: str, audit: Audit
) -> None:
    entries = [server("good", "c"), {**server("s", "a"), **parts}]
    result = audit(entries, code=1)
    assert f"line 2: server 'id-s': {message}" in result.err


def test_server_without_any_other_host_has_a_reason(audit: Audit) -> None:
    """No requirement excludes a host that there is not."""
    audit.hosts = ["--hosts", audit.place("one.yaml", ONE_HOST)]
    audit.enabled = ["--enable", "image_metadata"]
    row = audit([server("alone", "a")], code=2).row
    assert row["Verdict"] == "no capable host"
    assert why(row) == "the fleet has no other host"


def test_server_whose_every_other_host_is_drained_has_a_reason(
    audit: Audit,
) -> None:
    audit.hosts = ["--hosts", audit.place("two.yaml", TWO_HOSTS)]
    audit.enabled = ["--enable", "image_metadata"]
    row = audit([server("alone", "a")], "--without", "b", code=2).row
    assert row["Verdict"].startswith("none without the drained")
    assert why(row).startswith("every other")


def test_server_that_is_there_twice_counts_once(audit: Audit) -> None:
    """Those without an ID all count."""
    no_id = {**server("x", "a"), "uuid": None}
    twice = server("s", "a")
    result = audit([twice, server("t", "a"), twice, no_id, no_id])
    assert sum(row["Count"] for row in result.rows) == 4
    assert "4 servers on 1 host of 4." in result.err


@pytest.mark.parametrize(
    "other",
    [
        server("s", "b"),
        server("s", None),
        server("s", "a", 600),
        {**server("s", "a"), "machine_type": "pc-q35-9.1"},
    ],
    ids=["other host", "no host", "other flavor", "machine type"],
)
def test_server_whose_entries_differ_is_named_and_no_all_clear(
    other: Entry, audit: Audit
) -> None:
    """A join with two mappings has them, or lists before and after a move."""
    result = audit([server("s", "a"), other], code=1)
    assert result.row["Host"] == "a"
    assert result.summary["left_out"]["count"] == 1
    assert (
        "Left out: 1: server 'id-s': it is there twice, with different data;"
        " the first entry was judged." in result.err
    )


def test_parts_from_two_database_servers_are_joined(audit: Audit) -> None:
    """A server without a request spec is left out and named."""
    cell = [without(server(name, "a"), "spec") for name in "st"]
    spec = json.dumps(server("s", "a")["spec"])
    specs = [{"uuid": "id-s", "spec": spec}, {"uuid": "gone", "spec": "{}"}]
    audit.place("cell.jsonl", "\n".join(map(json.dumps, cell)))
    audit.place("specs.jsonl", "\n".join(map(json.dumps, specs)))
    script = files_of(DOCS / "audit.rst")["join.py"]
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=audit.folder,
        capture_output=True,
        text=True,
        check=True,
    )
    result = audit(done.stdout.splitlines(), code=1)
    assert result.row["Servers"] == [{"id": "id-s", "name": "s"}]
    assert "'id-t': no request spec" in result.err


_BIG = server("big", "a", 4096, hw_architecture="x86_64")


def test_full_and_incapable_hosts_are_distinguished(audit: Audit) -> None:
    """A host would serve the one if it were empty, and no host the other."""
    result = audit(
        [_BIG, server("arm", "c", hw_architecture="aarch64")], code=2
    )
    big = result.by_name["big"]
    arm = result.by_name["arm"]
    assert big["Verdict"] == "no destination"
    assert big["Why"]["if_empty"] == 1
    unmet_by_all = {
        "HW_ARCH_X86_64",
        "MEMORY_MB=4096",
        "!COMPUTE_STATUS_DISABLED",
    }
    assert set(unmet(big)) == unmet_by_all
    assert arm["Verdict"] == "no capable host"
    (requirement,) = arm["Why"]["requirements"]
    assert requirement == {
        "text": "HW_ARCH_AARCH64",
        "by": "image_metadata",
        "because": "image property hw_architecture=aarch64",
    }
    assert "no capable host: 1; no destination: 1" in result.err


def test_only_unschedulable_servers_are_listed(audit: Audit) -> None:
    result = audit(
        [_BIG, server("ok", "b")], "--only", "unschedulable", code=2
    )
    assert result.by_name.keys() == {"big"}


_TWO_ON_A = [server(name, "a", hw_architecture="x86_64") for name in "xy"]


def test_servers_of_a_drained_host_need_places_at_the_same_time(
    audit: Audit,
) -> None:
    """On the other host there is capacity for one of the two."""
    drained = ["--without", "a"]
    result = audit([*_TWO_ON_A, server("z", "c")], *drained, code=2)
    row = result.by_host["a"]
    assert row["Count"] == 2
    assert row["Now"] == 1
    assert row["Without"] == 1
    assert row["Verdict"] == "not all if drained"
    assert (
        why(row) == "at least 1 of 2 servers of the drained hosts find a place"
        " at the same time"
    )
    assert result.summary["verdicts"]["not all if drained"] == 2
    summary = result.summary["drained"]
    assert summary["hosts"] == ["a"]
    assert summary["servers"] == 2
    assert summary["placed"] == 1
    assert (
        "Drained: a: at least 1 of 2 servers find a place at the same time."
        in result.err
    )
    assert (
        "Hosts with servers that find no place if the host dies: 1: a (at"
        " least 1 of 2 servers placed)." in result.err
    )


def test_drained_host_is_no_destination(audit: Audit) -> None:
    entries = [*_TWO_ON_A, server("z", "c")]
    row = audit(entries, "--without", "a", code=2).by_host["c"]
    assert row["Now"] == 2
    assert row["Without"] == 1
    assert row["Verdict"] == "ok"


def test_servers_of_a_dead_host_need_places_at_the_same_time(
    audit: Audit,
) -> None:
    row = audit([*_TWO_ON_A, server("z", "c")], code=2).rows[0]
    assert row["Verdict"] == "not all if its host died"
    assert (
        why(row) == "at least 1 of 2 servers of its host find a place at the"
        " same time"
    )


def test_server_that_only_drained_hosts_could_take_has_no_place(
    audit: Audit,
) -> None:
    row = audit([server("y", "c", 600)], "--without", "a", code=2).row
    assert row["Verdict"] == "none without the drained hosts"
    assert unmet(row) == ["MEMORY_MB=600", "!COMPUTE_STATUS_DISABLED"]


def test_availability_zone_of_a_stored_request_spec_counts(
    audit: Audit,
) -> None:
    spec = nova_spec({}, availability_zone="az-1", project_id="p")
    stored = json.dumps(spec.obj_to_primitive())
    row = audit([{**server("zoned", "b"), "spec": stored}], code=2).row
    # The flavor has a disk, of which no host has any.
    assert unmet(row) == ["DISK_GB=1"]


def test_zone_that_the_fleet_does_not_have_is_named(audit: Audit) -> None:
    """It requires nothing, as in Nova."""
    spec = nova_spec({}, availability_zone="az-9").obj_to_primitive()
    result = audit([{**server("elsewhere", "b"), "spec": spec}], code=2)
    missing = "Not in the fleet: 1: availability zone az-9 (1)."
    assert missing in result.err


def test_machine_type_that_a_server_keeps_counts(audit: Audit) -> None:
    conf = audit.place("nova.conf", "[prefilter]\nreported_traits = *\n")
    kept = {**server("kept", "b"), "machine_type": "pc-q35-9.1"}
    entries = [kept, {**server("none kept", "b"), "machine_type": None}]
    by_name = audit(entries, "--config-file", conf, code=2).by_name
    assert by_name["none kept"]["Now"] == 2
    assert by_name["kept"]["Now"] == 0
    assert "MACHINE" in why(by_name["kept"])


def test_filters_know_the_project_of_an_entry_whose_spec_has_none(
    audit: Audit,
) -> None:
    """As in the page's example: a tenant's own hosts are required for it."""
    audit.hosts = ["--hosts", audit.place("tenants.yaml", TENANTS)]
    audit.enabled = ["--enable", "tenant_isolation"]
    other = {**server("other", "a"), "project": "lab"}
    stated = server("stated", "a")
    stated["spec"]["project_id"] = "lab"
    by_name = audit([server("own", "a"), other, stated]).by_name
    assert by_name.keys() == {"own", "other", "stated"}
    assert by_name["own"]["Destinations"] == ["b"]
    assert by_name["other"]["Destinations"] == ["b", "c"]
    assert by_name["stated"]["Destinations"] == ["b", "c"]


# Before version 1.11, nothing says that the server boots from a volume, and no
# host here has a disk.
@pytest.mark.parametrize(
    ("version", "code", "destinations"),
    [("1.6", 2, []), ("1.14", 0, ["b"])],
    ids=["1.6", "1.14"],
)
def test_request_specs_of_older_novas_are_read(
    version: str, code: int, destinations: list[str], audit: Audit
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
    entry = {**server("old", "a"), "spec": json.dumps(stored)}
    result = audit([entry], code=code)
    assert "Left out" not in result.err
    assert result.row["Destinations"] == destinations


_SPEC = server("a", "a")["spec"]
_ENTRY = {"uuid": "1", "node": "a", "project": "p", "spec": _SPEC}
_BROKEN: dict[str, tuple[object, str]] = {
    "not JSON": ('{"uuid": "1"', "not JSON"),
    "no host": (without(_ENTRY, "node"), "server '1': neither node nor host"),
    "no project": (without(_ENTRY, "project"), "server '1': no project"),
    "null for a spec": (
        {**_ENTRY, "spec": None},
        "server '1': no request spec in spec",
    ),
    "no flavor": (
        {**_ENTRY, "spec": {"image": {}}},
        "server '1': no flavor in it",
    ),
    "list for a spec": (
        {**_ENTRY, "spec": "[]"},
        "server '1': request spec: it is empty",
    ),
    "number for a node": (
        {**_ENTRY, "node": 7},
        "server '1': node is 7; expected text.",
    ),
    "number for a zone": (
        {**_ENTRY, "spec": {**_SPEC, "availability_zone": 5}},
        "server '1': request spec: availability_zone is 5;",
    ),
    "list": ([1], "it is"),
}


@pytest.mark.parametrize(("entry", "message"), _BROKEN.values(), ids=_BROKEN)
def test_entry_that_is_no_server_is_left_out_with_its_place(
    entry: object, message: str, audit: Audit
) -> None:
    """There is no all-clear for a server that was not judged."""
    result = audit([server("good", "c"), entry], "--without", "a", code=1)
    assert result.rows[0]["Count"] == 1
    assert result.summary["left_out"]["count"] == 1
    assert f"Left out: 1: line 2: {message}" in result.err


@pytest.mark.parametrize(
    "entry", [entry for entry, _ in _BROKEN.values()], ids=_BROKEN
)
def test_list_of_no_server_that_can_be_judged_is_refused(
    entry: object, audit: Audit
) -> None:
    _, err = audit.print(["", entry], code=1)
    assert "no entry is a server that can be judged" in err


@pytest.mark.parametrize(
    "text",
    ["", "\n\n", "[]", '{"servers": []}', '{"images": []}'],
    ids=["empty file", "empty lines", "empty list", "servers", "images"],
)
@pytest.mark.parametrize(
    ("option", "name"),
    [
        ("--servers", "list.jsonl"),
        ("--servers", "list.json"),
        ("--images", "list.jsonl"),
        ("--volumes", "list.jsonl"),
    ],
    ids=["lines of servers", "servers", "lines of images", "volumes"],
)
def test_empty_list_is_no_all_clear(
    option: str, name: str, text: str, audit: Audit
) -> None:
    """A command that failed leaves an empty file."""
    path = audit.place(name, text)
    line = audit.refuse(option, path, *audit.hosts, *audit.enabled)
    assert line.startswith(f"{path}: ")
    assert "Check the command" in line or "no entry is" in line


_WRONG: dict[str, tuple[list[str], str]] = {
    "no list": (
        ["--servers"],
        "--servers: it needs a cloud to ask, or a file.",
    ),
    "drain without servers": (
        ["--without", "a"],
        "--without: it is about servers. Give --servers as well.",
    ),
    "no second": (
        ["--servers", "s", "--timeout=0"],
        "not a whole number of seconds of at least 1",
    ),
    "part of a second": (
        ["--servers", "s", "--timeout=1.5"],
        "not a whole number of seconds of at least 1",
    ),
    "images as well": (
        ["--servers", "f", "--images", "g"],
        "--images: it cannot go with --servers.",
    ),
    "no list of volumes": (
        ["--volumes"],
        "--volumes: it needs a cloud to ask, or a file. Give --os-cloud NAME"
        " or --volumes FILE.",
    ),
    "volumes as well": (
        ["--servers", "f", "--volumes", "g"],
        "--volumes: it cannot go with --servers.",
    ),
    "images and volumes": (
        ["--volumes", "f", "--images", "g"],
        "--images: it cannot go with --volumes.",
    ),
    "drain without servers but volumes": (
        ["--volumes", "f", "--without", "a"],
        "--without: it is about servers. Give --servers as well.",
    ),
    "images only": (
        ["--servers", "f", "--only", "changed"],
        "--only: changed is about images.",
    ),
    "no file": (["--servers", "f"], "f: there is no such file"),
    "misspelt host": (
        ["--servers", "s", "--without", "kvm-new-9"],
        "--without: the fleet has no host 'kvm-new-9'. Did you mean 'kvm-",
    ),
}


@pytest.mark.parametrize(("argv", "message"), _WRONG.values(), ids=_WRONG)
def test_wrong_arguments_are_refused_with_advice(
    argv: list[str],
    message: str,
    audit: Audit,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(audit.folder)
    monkeypatch.delenv("OS_CLOUD", raising=False)
    audit.place("s", json.dumps([server("a", "kvm-new-1")]))
    assert message in audit.refuse(*argv)


def _stop(reason: str) -> None:
    if reason == "it went away":
        raise PlacementUnavailable("GET /", reason)
    if reason == "interrupted":
        os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)


def _stopped_after(count: int, reason: str) -> Callable[..., Iterator[Server]]:
    def read_servers(*_arguments: object) -> Iterator[Server]:
        for number in range(count):
            yield server_from(server(f"x-{number}", "c"), {})
        _stop(reason)

    return read_servers


_READ = "os_prefilter_tools.cli.audit_arguments.read_servers"
reasons_to_stop = pytest.mark.parametrize(
    "reason", ["interrupted", "the time is over", "it went away"]
)


@reasons_to_stop
def test_audit_that_is_stopped_judges_what_was_read_and_is_no_all_clear(
    reason: str, audit: Audit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_READ, _stopped_after(1, reason))
    page = audit.folder / "page.html"
    handler = signal.getsignal(signal.SIGINT)
    result = audit([], "--timeout", "1", "--html", str(page), code=1)
    assert signal.getsignal(signal.SIGINT) is handler
    assert result.row["Count"] == 1
    assert result.summary["is_complete"] is False
    assert reason in result.summary["not_read"]
    assert "Not all servers were read, only the first 1: " in result.err
    assert reason in page.read_text()
    # The time is not over a second time, while the result is printed.
    time.sleep(0.1)


@reasons_to_stop
def test_audit_that_is_stopped_before_the_first_server_says_why(
    reason: str, audit: Audit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_READ, _stopped_after(0, reason))
    argv = [*audit.hosts, *audit.enabled, "--timeout", "1"]
    assert reason in audit.refuse("--servers", "cloud", *argv)


@pytest.mark.parametrize(
    "drained", [[], ["--without", "a"]], ids=["none drained", "one drained"]
)
def test_server_on_a_host_that_the_fleet_does_not_know_is_no_all_clear(
    drained: list[str], audit: Audit
) -> None:
    """The host may be drained, and Nova may call it by its full name."""
    lost = server("lost", "a.example.com", hw_architecture="x86_64")
    none = server("none", None, hw_architecture="x86_64")
    result = audit([lost, none], *drained, code=1)
    row, row_of_none = result.rows
    assert row["Host"] == "a.example.com"
    assert row["Now"] == 2
    assert row["Verdict"] == "not judged"
    assert why(row) == "the fleet has no host 'a.example.com', on which it is"
    assert row_of_none["Host"] == ""
    assert row_of_none["Now"] == 2
    assert row_of_none["Verdict"] == "ok"
    assert why(row_of_none) == ""
    assert "Verdicts: not judged: 1; ok: 1." in result.err
    assert "Not in the fleet: 1: host a.example.com (1)." in result.err


def test_server_on_an_unknown_host_that_no_host_can_take_has_a_verdict(
    audit: Audit,
) -> None:
    row = audit([server("big", "a.example.com", 16_000)], code=2).row
    assert row["Verdict"] == "no capable host"


def test_node_counts_before_host(audit: Audit) -> None:
    """Placement has the node; Nova's service may have another name."""
    both = {**server("both", "a"), "host": "b"}
    by_name = audit([both, {**server("alone", None), "host": "b"}]).by_name
    assert by_name["both"]["Host"] == "a"
    assert by_name["alone"]["Host"] == "b"


def _print_hostile(audit: Audit, text: str) -> tuple[str, str, str]:
    """Print as CSV; return stdout, stderr and the page."""
    entry = server(text, text, hw_vif_model=text)
    entry |= {"uuid": text, "project": text}
    entry["spec"]["availability_zone"] = text
    entry["spec"]["flavor"]["name"] = text
    page = audit.folder / "page.html"
    argv = ["--html", str(page), "-f", "csv"]
    out, err = audit.print([entry], *argv, code=1)
    return out, err, page.read_text()


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "=cmd|' /C calc'!A0",
        "a\x1b[31mb\nc",
        "x" * 10_000,
        "\u202egnp.exe",
        "</title>",
    ],
    ids=["script", "formula", "terminal", "long", "right to left", "title"],
)
def test_hostile_text_reaches_neither_terminal_nor_spreadsheet_nor_page_as_code(
    text: str, audit: Audit
) -> None:
    out, err, html = _print_hostile(audit, text)
    assert all(line.isprintable() for line in (out + err).splitlines())
    assert not re.search(r'(^|,)"[=+@-]', out, re.MULTILINE)
    # The page has one script of its own.
    assert html.count("<script") == 1
    assert "default-src 'none'" in html


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("<script>alert(1)</script>", 0),
        ("a\x1b[31mb\nc", 0),
        # The page has one title of its own.
        ("</title>", 1),
    ],
    ids=["script", "terminal", "title"],
)
def test_page_escapes_markup_in_names(
    text: str, count: int, audit: Audit
) -> None:
    _, _, html = _print_hostile(audit, text)
    assert html.count(text) == count


def test_request_that_the_filters_reject_is_a_verdict(audit: Audit) -> None:
    conf = audit.place("nova.conf", REJECT)
    odd = server("odd", "a", 512, **{"trait:a,b": "required"})
    result = audit([odd], "--config-file", conf, code=2)
    assert result.row["Verdict"] == "rejected by filters"
    assert "'trait:a,b' is not trait:NAME" in why(result.row)
    assert "rejected by filters: 1" in result.err
    assert (
        "Hosts with servers that find no place if the host dies: 1: a (0 of 1"
        " server placed)." in result.err
    )


@pytest.mark.parametrize(
    "kept",
    [{"machine_type": "pc-q35-9.1"}, {"machine_type": None}, {}],
    ids=["a machine type", "no machine type", "not known"],
)
def test_request_that_the_server_has_lived_with_is_not_rejected(
    kept: Entry, audit: Audit
) -> None:
    """As in nova-scheduler, whatever is known of its machine type."""
    conf = audit.place("nova.conf", REJECT)
    entry = {**server("odd", "a", hw_vif_model="nosuch"), **kept}
    row = audit([entry], "--config-file", conf).row
    assert row["Verdict"] == "ok"


_CONF = "[prefilter]\nenabled_filters = compute_status, image_type\n"
_SMALL = server("small", "a", hw_vif_model="igb", hw_architecture="x86_64")


def test_servers_are_judged_with_the_filters_of_the_configuration_alone(
    audit: Audit,
) -> None:
    """No host may have reported for the others; the audit names its filters.

    Nova compares the architecture with what hosts say, which neither filter
    requires.
    """
    conf = audit.place("nova.conf", _CONF)
    audit.enabled = ["--config-file", conf]
    result = audit([_SMALL], code=1)
    assert (
        why(result.row) == "image property hw_architecture, which no enabled"
        " filter requires"
    )
    assert result.row["Now"] == 2
    assert result.filters == ["compute_status", "image_type"]
    hosts, filters, *_ = result.err.splitlines()
    assert hosts.startswith("Hosts: 4 (4 resource providers) of ")
    assert filters == f"Filters: compute_status, image_type ({conf})."


def test_filters_to_enable_come_on_top_of_the_configuration(
    audit: Audit,
) -> None:
    conf = audit.place("nova.conf", _CONF)
    audit.enabled = ["--enable", "image_metadata"]
    row = audit([_SMALL], "--config-file", conf, code=2).row
    assert (
        why(row) == "COMPUTE_NET_VIF_MODEL_IGB by image_metadata (image"
        " property hw_vif_model=igb)"
    )


def test_servers_are_judged_with_all_filters_without_a_configuration(
    audit: Audit,
) -> None:
    page = audit.folder / "page.html"
    audit.enabled = []
    result = audit([_SMALL], "--html", str(page), code=2)
    names = ", ".join(result.filters)
    assert "owner" in result.filters
    assert names in page.read_text()
    line = f"Filters: {names} (all of the library; --config-file FILE names "
    assert result.err.partition("\n")[2].startswith(line)


def test_configuration_without_filters_judges_no_server(audit: Audit) -> None:
    audit.enabled = [
        "--config-file",
        audit.place("nova.conf", "[prefilter]\n"),
    ]
    _, err = audit.print([_SMALL], code=1)
    assert "enabled_filters names no filter" in err


def test_configuration_of_shadow_filters_alone_says_how_to_try_them(
    audit: Audit,
) -> None:
    audit.enabled = [
        "--config-file",
        audit.place("nova.conf", "[prefilter]\nshadow_filters = hpet, owner"),
    ]
    _, err = audit.print([_SMALL], code=1)
    assert "or give --filter hpet --filter owner." in err


_MARKS = ", ".join(names_of_deprecated({"pc", "pc-i440fx-1.4"}))
_MARKS_NONE = ", ".join(names_of_deprecated(()))
MARKED = f"""
hosts:
  a: {{resources: {{VCPU: 8, MEMORY_MB: 8192}}, traits: [{_MARKS}]}}
  b: {{resources: {{VCPU: 8, MEMORY_MB: 8192}}, traits: [{_MARKS}]}}
  new: {{resources: {{VCPU: 8, MEMORY_MB: 8192}}, traits: [{_MARKS_NONE}]}}
  silent: {{resources: {{VCPU: 8, MEMORY_MB: 8192}}}}
"""
_LINE = "On machine types that libvirt marks as deprecated"
_NOT_KNOWN = "Not known whether libvirt marks the machine type"


def _with_type(entry: Entry, machine_type: str | None) -> Entry:
    return {**entry, "machine_type": machine_type}


def _machine_types(audit: Audit, *entries: Entry) -> tuple[Any, str]:
    """Return what the document and the printed lines say of machine types."""
    audit.hosts = ["--hosts", audit.place("marked.yaml", MARKED)]
    audit.enabled = ["--enable", "noop"]
    result = audit(entries)
    starts = (_LINE, _NOT_KNOWN)
    lines = [x for x in result.err.splitlines() if x.startswith(starts)]
    return result.summary["deprecated_machine_types"], "".join(lines)


def test_servers_on_deprecated_machine_types_are_counted_by_host_and_type(
    audit: Audit,
) -> None:
    document, line = _machine_types(
        audit,
        _with_type(server("web", "a"), "pc-i440fx-1.4"),
        _with_type(server("db", "b"), "pc"),
        _with_type(server("mail", "b"), "pc"),
        _with_type(server("fine", "a"), "pc-q35-9.1"),
        _with_type(server("moved", "new"), "pc-i440fx-1.4"),
    )
    assert document["judged"] == 5
    assert document["not_known"] == 0
    assert document["deprecated"] == [
        {
            "host": "a",
            "machine_type": "pc-i440fx-1.4",
            "servers": [{"id": "id-web", "name": "web"}],
        },
        {
            "host": "b",
            "machine_type": "pc",
            "servers": [
                {"id": "id-db", "name": "db"},
                {"id": "id-mail", "name": "mail"},
            ],
        },
    ]
    assert line == (
        f"{_LINE}: 2: pc on b (2 servers); pc-i440fx-1.4 on a (1 server)."
    )


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(server("x", "a"), id="type left out"),
        pytest.param(_with_type(server("x", "a"), None), id="no type"),
        pytest.param(
            _with_type(server("x", "silent"), "pc"), id="host marks nothing"
        ),
    ],
)
def test_machine_type_that_is_not_known_is_no_all_clear(
    entry: Entry, audit: Audit
) -> None:
    fine = _with_type(server("fine", "new"), "pc")
    document, line = _machine_types(audit, fine, entry)
    assert document == {"judged": 1, "not_known": 1, "deprecated": []}
    assert line == f"{_NOT_KNOWN}: 1 server."


def test_machine_type_of_the_image_counts_where_nova_shows_no_other(
    audit: Audit,
) -> None:
    """Nova's API shows the type that a server keeps as an image property."""
    entry = server("x", "a", hw_machine_type="pc")
    document, line = _machine_types(audit, entry)
    assert document["not_known"] == 0
    assert line == f"{_LINE}: 1: pc on a (1 server)."


def test_without_any_report_of_marks_no_line_is_printed(audit: Audit) -> None:
    entry = _with_type(server("x", "silent"), "pc")
    document, line = _machine_types(audit, entry)
    assert document == {"judged": 0, "not_known": 1, "deprecated": []}
    assert line == ""


def test_server_without_a_host_is_on_no_machine_type(audit: Audit) -> None:
    entry = _with_type(server("x", None), "pc")
    document, _ = _machine_types(audit, entry)
    assert document == {"judged": 0, "not_known": 0, "deprecated": []}


def _run_page_program(
    document: str, folder: Path
) -> subprocess.CompletedProcess[str]:
    """Run the program of the page, which writes metrics for node_exporter."""
    program = folder / "machine_types.py"
    text = files_of(DOCS / "monitor.rst")[program.name]
    program.write_text(text, encoding="utf-8")
    return subprocess.run(
        [sys.executable, str(program), str(folder / "metrics.prom")],
        input=document,
        capture_output=True,
        text=True,
        check=False,
    )


def test_program_of_the_page_writes_metrics_of_the_audit(
    audit: Audit, tmp_path: Path
) -> None:
    audit.hosts = ["--hosts", audit.place("marked.yaml", MARKED)]
    audit.enabled = ["--enable", "noop"]
    entries = [
        _with_type(server("web", "a"), "pc"),
        _with_type(server("db", "a"), "pc"),
        _with_type(server("other", "silent"), "pc"),
    ]
    document, _ = audit.print(entries, "-f", "json")
    done = _run_page_program(document, tmp_path)
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "metrics.prom").read_text().splitlines()
    samples = [line for line in lines if not line.startswith("#")]
    assert samples == [
        "os_prefilter_servers_of_unknown_machine_type 1",
        "os_prefilter_servers_on_deprecated_machine_type"
        '{host="a",machine_type="pc"} 2',
    ]


def test_program_of_the_page_leaves_its_file_if_not_all_servers_were_read(
    tmp_path: Path,
) -> None:
    path = tmp_path / "metrics.prom"
    path.write_text("as before")
    document = json.dumps({"summary": {"is_complete": False}})
    done = _run_page_program(document, tmp_path)
    assert done.returncode == 1
    assert path.read_text() == "as before"


_AVX2, _SSE42 = "HW_CPU_X86_AVX2", "HW_CPU_X86_SSE42"
_SAME, _OTHER = (
    "CUSTOM_PREFILTER_CPU_AAAAAAAA",
    "CUSTOM_PREFILTER_CPU_BBBBBBBB",
)
_ROOM = "resources: {VCPU: 8, MEMORY_MB: 8192}"
CPUS = f"""
hosts:
  old: {{{_ROOM}, traits: [{_SSE42}]}}
  old-too: {{{_ROOM}, traits: [{_SSE42}, HW_CPU_HYPERTHREADING]}}
  new: {{{_ROOM}, traits: [{_SSE42}, {_AVX2}]}}
  grouped: {{{_ROOM}, traits: [{_SSE42}, {_SAME}]}}
  other-group: {{{_ROOM}, traits: [{_SSE42}, {_OTHER}]}}
  silent: {{{_ROOM}, traits: [HW_CPU_HYPERTHREADING]}}
"""
_NO_CPU = "No destination has the CPU of the server's host, for live migration"


def _without_cpu(
    audit: Audit, fleet: str, *entries: Entry
) -> tuple[list[Any], str]:
    """Return what the document and the printed lines say of CPUs."""
    audit.hosts = ["--hosts", audit.place("cpus.yaml", fleet)]
    audit.enabled = ["--enable", "noop"]
    result = audit(entries)
    lines = [line for line in result.err.splitlines() if _NO_CPU in line]
    return result.summary["no_destination_with_the_cpu"], "".join(lines)


def test_servers_without_a_destination_with_their_cpu_are_named_by_host(
    audit: Audit,
) -> None:
    document, line = _without_cpu(
        audit,
        CPUS,
        server("web", "new"),
        server("db", "new"),
        server("fine", "old"),
    )
    assert document == [
        {
            "host": "new",
            "servers": [
                {"id": "id-web", "name": "web"},
                {"id": "id-db", "name": "db"},
            ],
        }
    ]
    assert line == f"{_NO_CPU}: 1: on new (2 servers)."


def test_group_of_cpus_decides_where_both_hosts_report_one(
    audit: Audit,
) -> None:
    fleet = "\n".join(
        line for line in CPUS.splitlines() if not line.startswith("  old")
    )
    document, _ = _without_cpu(audit, fleet, server("x", "grouped"))
    assert [each["host"] for each in document] == ["grouped"]


@pytest.mark.parametrize(
    "host",
    [
        pytest.param("old-too", id="threads do not count"),
        pytest.param("grouped", id="others report no group"),
        pytest.param("silent", id="CPU is not known"),
    ],
)
def test_server_with_a_destination_or_an_unknown_cpu_gets_no_hint(
    host: str, audit: Audit
) -> None:
    assert _without_cpu(audit, CPUS, server("x", host)) == ([], "")


def test_server_without_any_destination_gets_no_hint_about_cpus(
    audit: Audit,
) -> None:
    fleet = f"hosts:\n  only: {{{_ROOM}, traits: [{_SSE42}]}}"
    audit.hosts = ["--hosts", audit.place("cpus.yaml", fleet)]
    audit.enabled = ["--enable", "noop"]
    result = audit([server("x", "only")], code=2)
    assert result.summary["no_destination_with_the_cpu"] == []
