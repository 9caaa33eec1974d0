# SPDX-License-Identifier: Apache-2.0

"""Commands with the filters by availability zone, tenant and isolated
aggregates, on the aggregates of a fleet file.
"""

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


@pytest.fixture
def hosts(tmp_path: Path) -> str:
    return placed(tmp_path / "fleet.yaml", _FLEET)


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
    found = json_of(
        capsys,
        "candidates",
        "--hosts",
        hosts,
        "--filter",
        _FILTERS,
        *arguments,
    )
    assert sorted(row["Host"] for row in found) == expected


def test_zone_counts_without_naming_its_filter_and_isolation_only_if_named(
    hosts: str, capsys: Capture
) -> None:
    found = json_of(
        capsys, "candidates", "--hosts", hosts, "--availability-zone", "north"
    )
    assert sorted(row["Host"] for row in found) == ["a", "c"]


def test_diagnosis_names_the_filter_and_the_aggregates(
    hosts: str, capsys: Capture
) -> None:
    request = ["--availability-zone", "north", "--project", "p1"]
    found = json_of(
        capsys,
        "diagnose",
        "--hosts",
        hosts,
        "--filter",
        _FILTERS,
        *request,
        code=2,
    )
    assert {
        each["by"]: each["because"]
        for each in found["requirements"]
        if each["kind"] == "aggregate"
    } == {
        "availability_zone": "availability zone 'north': aggregate rack-1",
        "tenant_isolation": "tenant 'p1': aggregate rack-2",
        "isolated_aggregates": (
            "reserved for requests that require other traits: CUSTOM_WINDOWS"
            " (aggregate licensed)"
        ),
    }


def test_audit_of_images_refuses_a_filter_that_adds_aggregates(
    hosts: str, tmp_path: Path, capsys: Capture
) -> None:
    images = placed(
        tmp_path / "images.json", [{"name": "i", "properties": {}}]
    )
    assert (
        main(
            [
                "audit",
                "--images",
                images,
                "--hosts",
                hosts,
                "--enable",
                _FILTERS,
            ]
        )
        == 1
    )
    assert (
        "which an audit of images cannot judge. Leave that filter out."
        in capsys.readouterr().err
    )
