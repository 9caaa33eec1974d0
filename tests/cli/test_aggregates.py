"""Commands with the filters by availability zone, tenant and isolated aggregates, on the aggregates of a fleet file."""

import json
import re
from pathlib import Path
from urllib.parse import unquote

import pytest

from os_prefilter_tools.cli.main import main
from os_prefilter_tools.fleet.model import aggregate_uuid
from tests.support.commands import json_of

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
    found = json_of(capsys, "candidates", "--hosts", hosts, "--filter", _FILTERS, *arguments)
    assert sorted(row["Host"] for row in found) == expected


def test_zone_counts_without_naming_its_filter_and_isolation_only_if_named(hosts: str, capsys: Capture) -> None:
    found = json_of(capsys, "candidates", "--hosts", hosts, "--availability-zone", "north")
    assert sorted(row["Host"] for row in found) == ["a", "c"]


def test_diagnosis_names_the_filter_and_the_aggregates(hosts: str, capsys: Capture) -> None:
    request = ["--availability-zone", "north", "--project", "p1"]
    found = json_of(capsys, "diagnose", "--hosts", hosts, "--filter", _FILTERS, *request, code=2)
    because = {each["by"]: each["because"] for each in found["requirements"] if each["kind"] == "aggregate"}
    assert because == {
        "availability_zone": "availability zone 'north': aggregate rack-1",
        "tenant_isolation": "tenant 'p1': aggregate rack-2",
        "isolated_aggregates": "reserved for requests that require other traits: CUSTOM_WINDOWS (aggregate licensed)",
    }


def test_audit_of_images_refuses_a_filter_that_adds_aggregates(hosts: str, tmp_path: Path, capsys: Capture) -> None:
    images = tmp_path / "images.json"
    images.write_text(json.dumps([{"name": "i", "properties": {}}]))
    assert main(["audit", "--images", str(images), "--hosts", hosts, "--enable", _FILTERS]) == 1
    assert "which an audit of images cannot judge. Leave that filter out." in capsys.readouterr().err


_REQUESTS = [
    (["--availability-zone", "north"], ["--availability-zone", "zone-1"]),
    (["--availability-zone", "south", "--project", "p2"], ["--availability-zone", "zone-2", "--project", "project-2"]),
    (["--project", "p1", "--property", "os_distro=x"], ["--project", "project-1", "--property", "os_distro=x"]),
    (["--project", "p3", "--availability-zone", "north"], ["--project", "p3", "--availability-zone", "zone-1"]),
    (["--property", "trait:CUSTOM_WINDOWS=required"], ["--property", "trait:CUSTOM_WINDOWS=required"]),
    (["--availability-zone", "north", "--project", "p1"], ["--availability-zone", "zone-1", "--project", "project-1"]),
]


def test_anonymous_snapshot_answers_as_the_fleet_does(hosts: str, tmp_path: Path, capsys: Capture) -> None:
    """``explain``, ``candidates`` and ``diagnose``, with the zone and the project under the names that it printed."""
    text = Path(hosts).read_text(encoding="utf-8")
    # One project in two aggregates, two in one, under any key that begins as Nova has it.
    text = text.replace("{filter_tenant_id: p1}", "{filter_tenant_id: p1, filter_tenant_id_customer: p2}")
    text = text.replace('{"trait:', '{filter_tenant_id: p2, "trait:')
    text = re.sub(r"^  ([abc]):", r"  kvm-\1:", text, flags=re.MULTILINE)
    fleet, anonymous = tmp_path / "more.yaml", tmp_path / "anonymous.json"
    fleet.write_text(text, encoding="utf-8")
    assert main(["snapshot", "--hosts", str(fleet), "--anonymous", "-o", str(anonymous)]) == 0
    assert capsys.readouterr().err.splitlines() == [
        f"Hosts: 3 (3 resource providers) of {fleet}.",
        "Availability zone 'north' is zone-1 in the file.",
        "Availability zone 'south' is zone-2 in the file.",
        "Project 'p1' is project-1 in the file.",
        "Project 'p2' is project-2 in the file.",
    ]
    new = {"rack-1": "aggregate-1", "rack-2": "aggregate-2", "licensed": "aggregate-3"}
    names = {"kvm-a": "host-1", "kvm-b": "host-2", "kvm-c": "host-3"}
    uuids = {aggregate_uuid(old): aggregate_uuid(each) for old, each in new.items()}
    spelt = {"north": "zone-1", "south": "zone-2", "p1": "project-1", "p2": "project-2", **names, **new, **uuids}
    words = re.compile("|".join(rf"(?<![\w-]){re.escape(old)}(?![\w-])" for old in spelt))
    commands = ("explain", "candidates", "diagnose")
    for number, (real, request) in enumerate(_REQUESTS):
        command = commands[number % 3]
        answers = []
        for path, arguments in ((fleet, real), (anonymous, request)):
            code = main([command, "--hosts", str(path), "--filter", _FILTERS, *arguments, "-f", "json"])
            out = unquote(capsys.readouterr().out)
            answers.append((code, out if path is anonymous else words.sub(lambda found: spelt[found[0]], out)))
        # UUIDs of several aggregates are sorted, and others now.
        assert answers[0][0] == answers[1][0]
        found = [sorted(re.findall(r"[\w-]+", out)) for _, out in answers]
        assert found[0] == found[1], (command, request)
