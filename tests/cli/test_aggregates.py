# SPDX-License-Identifier: Apache-2.0

"""Commands with the filters that read aggregates, on those of a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from os_prefilter_tools.cli.main import main
from tests.support.commands import Capture, json_of, placed

_FLEET = """
aggregates:
  rack-1: {availability_zone: north}
  rack-2: {availability_zone: south, metadata: {filter_tenant_id: p1}}
  licensed: {metadata: {"trait:CUSTOM_WINDOWS": required}}
hosts:
  a: {resources: {VCPU: 4, MEMORY_MB: 4096}, traits: [COMPUTE_NODE], aggregates: [rack-1]}
  b: {resources: {VCPU: 4, MEMORY_MB: 4096}, traits: [COMPUTE_NODE], aggregates: [rack-2]}
  c: {resources: {VCPU: 4, MEMORY_MB: 4096}, traits: [COMPUTE_NODE, CUSTOM_WINDOWS], aggregates: [rack-1, licensed]}
"""
_FILTERS = "availability_zone,tenant_isolation,isolated_aggregates"


_REQUESTS = {
    "zone": ("--availability-zone north", ["a"]),
    "zone with hosts of a tenant": ("--availability-zone south", ["b"]),
    "tenant with hosts": ("--project p1 --property os_distro=x", ["b"]),
    "tenant without": ("--project p2", ["a", "b"]),
    "isolation": ("--property trait:CUSTOM_WINDOWS=required", ["c"]),
    "no such zone": ("--availability-zone mars", ["a", "b"]),
}


@pytest.fixture
def hosts(tmp_path: Path) -> tuple[str, str]:
    """Return the option that names the fleet."""
    return "--hosts", placed(tmp_path / "fleet.yaml", _FLEET)


@pytest.mark.parametrize(
    ("request_options", "expected"), _REQUESTS.values(), ids=_REQUESTS
)
def test_candidates_are_the_hosts_of_the_aggregates(
    request_options: str,
    expected: list[str],
    hosts: tuple[str, str],
    capsys: Capture,
) -> None:
    """Also as a real Placement has it."""
    argv = [*hosts, "--filter", _FILTERS, *request_options.split()]
    found = json_of(capsys, "candidates", *argv)
    assert sorted(row["Host"] for row in found) == expected


def test_zone_counts_without_naming_its_filter_and_isolation_only_if_named(
    hosts: tuple[str, str], capsys: Capture
) -> None:
    argv = [*hosts, "--availability-zone", "north"]
    found = json_of(capsys, "candidates", *argv)
    assert sorted(row["Host"] for row in found) == ["a", "c"]


def test_diagnosis_names_the_filter_and_the_aggregates(
    hosts: tuple[str, str], capsys: Capture
) -> None:
    request = ["--availability-zone", "north", "--project", "p1"]
    argv = [*hosts, "--filter", _FILTERS, *request]
    found = json_of(capsys, "diagnose", *argv, code=2)
    because = {
        each["by"]: each["because"]
        for each in found["requirements"]
        if each["kind"] == "aggregate"
    }
    assert because == {
        "availability_zone": "availability zone 'north': aggregate rack-1",
        "tenant_isolation": "tenant 'p1': aggregate rack-2",
        "isolated_aggregates": (
            "reserved for requests that require other traits: CUSTOM_WINDOWS"
            " (aggregate licensed)"
        ),
    }


def test_audit_of_images_refuses_a_filter_that_adds_aggregates(
    hosts: tuple[str, str], tmp_path: Path, capsys: Capture
) -> None:
    entries = [{"name": "i", "properties": {}}]
    images = placed(tmp_path / "images.json", entries)
    argv = ["--images", images, *hosts, "--enable", _FILTERS]
    assert main(["audit", *argv]) == 1
    problem = "which an audit of images cannot judge. Leave that filter out."
    assert problem in capsys.readouterr().err
