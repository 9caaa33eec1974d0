"""Commands with the filters by availability zone, tenant and isolated aggregates, on the aggregates of a fleet file."""

import json
from pathlib import Path
from typing import Any

import pytest

from os_prefilter.cli.main import main
from os_prefilter.fleet.model import aggregate_uuid

Capture = pytest.CaptureFixture[str]

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


@pytest.fixture
def hosts(tmp_path: Path) -> str:
    path = tmp_path / "fleet.yaml"
    path.write_text(_FLEET, encoding="utf-8")
    return str(path)


def _run(capsys: Capture, *argv: str, code: int = 0) -> Any:
    assert main([*argv, "-f", "json"]) == code
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--availability-zone", "north"], ["a"]),
        (["--availability-zone", "south"], ["b"]),
        (["--project", "p1", "--property", "os_distro=x"], ["b"]),
        (["--project", "p2"], ["a", "b"]),
        (["--property", "trait:CUSTOM_WINDOWS=required"], ["c"]),
        (["--availability-zone", "mars"], ["a", "b"]),
    ],
)
def test_candidates_are_the_hosts_of_the_aggregates(
    arguments: list[str], expected: list[str], hosts: str, capsys: Capture
) -> None:
    """Also as a real Placement has it."""
    found = _run(capsys, "candidates", "--hosts", hosts, "--filter", _FILTERS, *arguments)
    assert sorted(row["Host"] for row in found) == expected


def test_zone_counts_without_naming_the_filter(hosts: str, capsys: Capture) -> None:
    found = _run(capsys, "candidates", "--hosts", hosts, "--availability-zone", "south")
    assert [row["Host"] for row in found] == ["b"]


def test_diagnosis_names_the_filter_and_the_aggregates(hosts: str, capsys: Capture) -> None:
    request = ["--availability-zone", "north", "--project", "p1"]
    found = _run(capsys, "diagnose", "--hosts", hosts, "--filter", _FILTERS, *request, code=2)
    because = {each["by"]: each["because"] for each in found["requirements"] if each["kind"] == "aggregate"}
    assert because == {
        "availability_zone": "availability zone 'north': aggregate rack-1",
        "tenant_isolation": "tenant 'p1': aggregate rack-2",
        "isolated_aggregates": "reserved for requests that require CUSTOM_WINDOWS: aggregate licensed",
    }


def test_explanation_has_the_parameter_of_the_query(hosts: str, capsys: Capture) -> None:
    found = _run(capsys, "explain", "--hosts", hosts, "--filter", _FILTERS, "--availability-zone", "north")
    assert [(row["Trait"], row["Rule"], row["By"]) for row in found] == [
        (f"member_of=in:{aggregate_uuid('rack-1')}", "required", "availability_zone"),
        (f"member_of=in:{aggregate_uuid('licensed')}", "forbidden", "isolated_aggregates"),
    ]


def test_audit_of_images_refuses_a_filter_that_adds_aggregates(hosts: str, tmp_path: Path, capsys: Capture) -> None:
    images = tmp_path / "images.json"
    images.write_text(json.dumps([{"name": "i", "properties": {}}]))
    assert main(["audit", "--images", str(images), "--hosts", hosts, "--enable", _FILTERS]) == 1
    assert "which an audit of images cannot judge. Leave that filter out." in capsys.readouterr().err
