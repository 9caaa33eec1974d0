"""``fleet cpu``: its tables, its exit codes, and what it refuses."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from os_prefilter.adapters.libvirt import cpu_documents
from os_prefilter.cli.main import main
from tests.support.cpus import domain_capabilities, feature, write_cpu_map
from tests.support.libvirt_xml import FakeError, FakeLibvirt

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def fleet(tmp_path: Path) -> list[str]:
    """Return the arguments for a fleet of two new hosts and an old one."""
    folder = tmp_path / "hosts"
    folder.mkdir()
    for name, text in {
        "kvm-1": domain_capabilities("New"),
        "kvm-2": domain_capabilities("New"),
        "kvm-3": domain_capabilities("Old", feature("c")),
    }.items():
        (folder / f"{name}.xml").write_text(text)
    return ["fleet", "cpu", str(folder), "--cpu-map", str(write_cpu_map(tmp_path / "cpu_map"))]


def _run(capsys: Capture, *arguments: str, code: int = 0) -> tuple[list[dict[str, Any]], str]:
    assert main([*arguments, "-f", "json"]) == code
    out, err = capsys.readouterr()
    return json.loads(out), err


def test_groups_and_directions(fleet: list[str], capsys: Capture) -> None:
    new, old = _run(capsys, *fleet)[0]
    assert new == {
        "Group": 1,
        "Architecture": "x86_64",
        "Type": "kvm",
        "CPU": {"vendor": "Acme", "model": "New", "require": [], "disable": []},
        "Hosts": 2,
        "Names": ["kvm-1", "kvm-2"],
        "To": [],
        "From": [2],
        "Not known": [],
    }
    assert (old["Names"], old["To"], old["From"]) == (["kvm-3"], [1], [])
    assert main(fleet) == 0
    out, err = capsys.readouterr()
    assert "| Acme Old +1 |" in out
    assert err == "3 hosts, 2 groups.\n"


def test_baseline_fits_each_host(fleet: list[str], capsys: Capture) -> None:
    (row,) = _run(capsys, *fleet, "--baseline")[0]
    assert (row["Hosts"], row["cpu_models"], row["cpu_model_extra_flags"]) == (3, "Old", ["c"])
    assert (row["Left out"], row["Usable models"]) == (["d"], ["Old", "Plain"])
    (row,) = _run(capsys, *fleet, "--baseline", "--host", "kvm-1", "--host", "kvm-2")[0]
    assert (row["Hosts"], row["cpu_models"], row["cpu_model_extra_flags"]) == (2, "New", [])
    (fit, other) = _run(capsys, *fleet, "--model", "Old,c")[0]
    assert fit["Fits"] == other["Fits"] == "yes"


@pytest.mark.parametrize(
    ("arguments", "answers"),
    [
        (["--from-host", "kvm-1"], ["yes", "no"]),
        (["--from-host", "kvm-3"], ["yes", "yes"]),
        (["--from-host", "kvm-1", "--host", "kvm-3"], ["no"]),
        (["--model", "New,-d"], ["yes", "yes"]),
        (["--model", "new,-D"], ["yes", "yes"]),
        (["--model", "New, +E"], ["no", "no"]),
        (["--model", "Next"], ["not known", "not known"]),
        (["--guest", "guest.xml"], ["yes", "no"]),
    ],
)
def test_server_fits_hosts_and_no_host_is_exit_code_2(
    fleet: list[str], arguments: list[str], answers: list[str], tmp_path: Path, capsys: Capture
) -> None:
    guest = tmp_path / "guest.xml"
    guest.write_text("<domain type='kvm'><cpu mode='custom'><model>New</model></cpu></domain>")
    code = 0 if "yes" in answers else 2
    rows, _ = _run(capsys, *fleet, *(each.replace("guest.xml", str(guest)) for each in arguments), code=code)
    assert [row["Fits"] for row in rows] == answers
    assert all(bool(row["Reason"]) == (row["Fits"] != "yes") for row in rows)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--host", "kvm-9"], "--host 'kvm-9': there is no such host"),
        (["--from-host", "kvm-9"], "--from-host 'kvm-9': there is no such host"),
        (["--model", ""], "--model '': give MODEL"),
        (["--model", "New,"], "--model 'New,': give MODEL"),
        (["--model", "New,\x1b"], "--model 'New,\\x1b': give MODEL"),
        (["--model", "New,+nosuch"], "--model flag 'nosuch': neither the CPU map nor a host has this CPU feature."),
        (["--model", "New,-nosuch"], "--model flag 'nosuch': neither the CPU map nor a host has this CPU feature."),
        (["--guest", "/nonexistent"], "/nonexistent: there is no such file"),
        (["--cpu-map", "/nonexistent"], "/nonexistent/index.xml: there is no such file"),
        (["--model", "New", "--baseline"], "not allowed with argument"),
    ],
)
def test_wrong_arguments_are_one_error(fleet: list[str], arguments: list[str], says: str, capsys: Capture) -> None:
    assert main([*fleet, *arguments]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert says in err


def test_file_named_twice_is_an_error(fleet: list[str], capsys: Capture) -> None:
    assert main([*fleet[:3], f"{fleet[2]}/kvm-1.xml", *fleet[3:]]) == 1
    assert "the host 'kvm-1' is also in" in capsys.readouterr().err


def test_machine_without_libvirt_says_what_it_cannot_compare(
    fleet: list[str], capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_documents, "CPU_MAP", "/nonexistent")
    rows, err = _run(capsys, *fleet[:3])
    assert err.startswith("No CPU map: /nonexistent does not exist")
    assert [row["Not known"] for row in rows] == [[2], [1]]


def test_cpu_map_of_this_machine_is_the_default(
    fleet: list[str], capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_documents, "CPU_MAP", fleet[-1])
    assert _run(capsys, *fleet[:3]) == _run(capsys, *fleet)


def test_connected_host_is_one_of_the_fleet_and_compares_itself(
    fleet: list[str], capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = FakeError("Host CPU does not provide required features: d", FakeLibvirt.VIR_ERR_CPU_INCOMPATIBLE)
    libvirt = FakeLibvirt({"getDomainCapabilities": domain_capabilities("New"), "compareHypervisorCPU": answer})
    monkeypatch.setitem(sys.modules, "libvirt", libvirt)
    rows, _ = _run(capsys, *fleet, "--connect", "qemu+ssh://compute-1/system", "--model", "New", code=2)
    assert [(row["Names"], row["Fits"]) for row in rows] == [(["compute-1", "kvm-1", "kvm-2"], "no"), (["kvm-3"], "no")]
    assert rows[0]["Reason"] == "libvirt says: Host CPU does not provide required features: d"
    assert main(["fleet", "cpu"]) == 1
    assert capsys.readouterr().err.startswith("PATH: give files")
