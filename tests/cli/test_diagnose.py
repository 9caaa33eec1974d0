# SPDX-License-Identifier: Apache-2.0

"""``os-prefilter diagnose``: the stage, the states and the codes, on fleets
made for each of them.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from os_prefilter_tools.cli import diagnose
from os_prefilter_tools.cli.main import main
from os_prefilter_tools.operators.diagnose import result
from tests.cli.test_audit import Terminal
from tests.support.commands import Capture, json_of, placed

_SIZE = {"VCPU": 8, "MEMORY_MB": 8192, "DISK_GB": 100}
_COMMON = ["COMPUTE_NODE", "OWNER_NOVA"]
_CARD = "COMPUTE_NET_VIF_MODEL_E1000E"
_ASK_FOR_CARD = [
    "--property",
    "hw_vif_model=e1000e",
    "--filter",
    "image_metadata,compute_status,owner",
]


def _host(*traits: str, **fields: Any) -> dict[str, Any]:
    return {"resources": _SIZE, "traits": [*_COMMON, *traits], **fields}


def _diagnosed(
    capsys: Capture,
    tmp_path: Path,
    hosts: dict[str, Any],
    *argv: str,
    code: int,
) -> Any:
    fleet = placed(tmp_path / "hosts.json", {"hosts": hosts})
    return json_of(capsys, "diagnose", "--hosts", fleet, *argv, code=code)


def _of(found: Any, name: str) -> Any:
    (requirement,) = (
        each for each in found["requirements"] if each["names"] == [name]
    )
    return requirement


_STATES: list[tuple[str, dict[str, Any], list[str], str, str]] = [
    ("no host reports it", {"a": _host()}, _ASK_FOR_CARD, _CARD, "nowhere"),
    (
        "a disabled one does",
        {"a": _host(_CARD, "COMPUTE_STATUS_DISABLED")},
        _ASK_FOR_CARD,
        _CARD,
        "elsewhere",
    ),
    (
        "it does not exist",
        {"a": _host()},
        ["--extra-spec", "trait:CUSTOM_NOPE=required"],
        "CUSTOM_NOPE",
        "unknown",
    ),
    (
        "too large for any",
        {"a": _host()},
        ["--extra-spec", "resources:VCPU=9"],
        "VCPU",
        "too-large",
    ),
    (
        "full now",
        {
            "a": (
                _host()
                | {"resources": {**_SIZE, "VCPU": {"total": 8, "used": 8}}}
            )
        },
        ["--extra-spec", "resources:VCPU=2"],
        "VCPU",
        "full",
    ),
    (
        "on another provider than it is asked of",
        {
            "a": _host(
                providers={
                    "gpu": {
                        "resources": {"VGPU": 1},
                        "traits": ["CUSTOM_FAST"],
                    }
                }
            )
        },
        ["--extra-spec", "trait:CUSTOM_FAST=required"],
        "CUSTOM_FAST",
        "no-host",
    ),
]


@pytest.mark.parametrize("case", _STATES, ids=[each[0] for each in _STATES])
def test_unmet_requirement_has_the_right_state_and_a_suggested_fix(
    case: tuple[str, dict[str, Any], list[str], str, str],
    capsys: Capture,
    tmp_path: Path,
) -> None:
    _, hosts, argv, name, state = case
    found = _diagnosed(capsys, tmp_path, hosts, *argv, code=2)
    requirement = _of(found, name)
    assert requirement["state"] == state
    assert requirement["help"]
    stage = "refused" if state == "unknown" else "no-candidates"
    assert found["stage"] == stage
    if state in ("nowhere", "too-large", "full"):
        conflict = {
            "requirements": [requirement["number"]],
            "ever": state != "full",
        }
        assert found["conflicts"] == [conflict]
    if state in ("nowhere", "too-large"):
        assert found["message"] == (
            "The only host does not meet all requirements, even if it were"
            " empty."
        )
    if state == "full":
        assert found["message"] == (
            "No host meets all requirements now; 1 of 1 would if it were"
            " empty."
        )


_FULL: dict[str, Any] = {
    "resources": {
        name: {"total": size, "used": size} for name, size in _SIZE.items()
    }
}
_CAUSES: list[
    tuple[dict[str, Any], list[str], list[list[str]], dict[str, str]]
] = [
    (
        {"free": _host(), "full": _host("CUSTOM_FAST") | _FULL},
        ["--extra-spec", "trait:CUSTOM_FAST=required"],
        [["CUSTOM_FAST", "MEMORY_MB"], ["CUSTOM_FAST", "VCPU"]],
        {
            "MEMORY_MB": "MEMORY_MB and VCPU on full",
            "VCPU": "MEMORY_MB and VCPU on full",
        },
    ),
    (
        {
            "a": _host() | _FULL,
            "b": _host() | {"resources": {"VCPU": 4, "MEMORY_MB": 8192}},
        },
        ["--extra-spec", "resources:VCPU=8"],
        [["VCPU"]],
        {
            "MEMORY_MB": "MEMORY_MB and VCPU on a",
            "VCPU": "MEMORY_MB and VCPU on a",
        },
    ),
]
"""Hosts, what is requested, the smallest sets, and what to free where."""


@pytest.mark.parametrize("case", _CAUSES, ids=["one full", "full and small"])
def test_all_causes_are_shown_and_freeing_is_suggested_only_where_it_helps(
    case: tuple[dict[str, Any], list[str], list[list[str]], dict[str, str]],
    capsys: Capture,
    tmp_path: Path,
) -> None:
    hosts, argv, sets, free = case
    argv = [*argv, "--filter", "noop"]
    found = _diagnosed(capsys, tmp_path, hosts, *argv, code=2)
    names = {
        each["number"]: each["names"][0] for each in found["requirements"]
    }
    shown = [
        sorted(map(names.__getitem__, conflict["requirements"]))
        for conflict in found["conflicts"]
    ]
    assert sorted(shown) == sets
    for each in found["requirements"]:
        name = each["names"][0]
        if name in free:
            _, _, host = free[name].rpartition(" on ")
            assert each["free_on"] == [host]
            assert each["help"].startswith(f"Free {free[name]}; or add hosts")
        else:
            assert each["free_on"] == []
            assert "Free " not in each["help"]
    fleet = str(tmp_path / "hosts.json")
    assert main(["diagnose", "--hosts", fleet, *argv]) == 2
    assert "; one could if it were empty" in capsys.readouterr().out


def test_a_line_names_the_requirements_that_its_hosts_fail(
    capsys: Capture,
) -> None:
    """The table that numbers them comes first."""
    assert main(["diagnose", "--example", "impossible"]) == 2
    out = capsys.readouterr().out
    assert out.startswith(
        "Stage: no-candidates. None of the 11 hosts meets all requirements,"
        " even if all were empty.\n\n+"
    )
    table, _, sections = out.partition("\nSmallest sets of requirements")
    assert "|   6 | HW_ARCH_AARCH64 " in table
    assert (
        "5 (CUSTOM_COMPUTE_TIME_HPET) and 6 (HW_ARCH_AARCH64): no host has"
        " both, however empty\n" in sections
    )
    assert "  1 host fails only requirement 5: arm-1\n" in sections
    assert "  1 host fails only requirements 6 and 8: kvm-old-3" in sections
    assert "  6 hosts fail only requirement 6: gpu-cyborg-1" in sections


@pytest.mark.parametrize(
    ("failed", "hosts", "line"),
    [
        ([()], ["a"], "1 host meets all requirements: a"),
        ([()], ["a", "b"], "2 hosts meet all requirements: a, b"),
        ([(3,)], ["a"], "1 host fails only requirement 3: a"),
        (
            [(1, 2, 3)],
            ["a", "b"],
            "2 hosts fail only requirements 1, 2 and 3: a, b",
        ),
        (
            [(3,), (4, 7)],
            ["a"],
            "1 host fails only requirement 3, or only requirements 4 and 7: a",
        ),
        (
            [(number,) for number in range(7)],
            ["a"],
            "1 host fails only requirement 0, or only requirement 1, or only"
            " requirement 2, or only requirement 3, or only requirement 4, or"
            " 2 more sets: a",
        ),
    ],
    ids=["none", "none of two", "one", "three", "a choice", "many choices"],
)
def test_hosts_are_grouped_in_words(
    failed: list[tuple[int, ...]], hosts: list[str], line: str
) -> None:
    assert diagnose._account(failed, hosts) == line


@pytest.mark.parametrize(
    ("requirements", "verdict"),
    [
        ((1,), "no host has it, however empty"),
        ((1, 2), "no host has both, however empty"),
        ((1, 2, 3), "no host has all, however empty"),
    ],
    ids=["one", "two", "three"],
)
def test_a_set_that_no_host_could_meet_is_called_so(
    requirements: tuple[int, ...], verdict: str
) -> None:
    conflict = result.Conflict(requirements, ever=True)
    assert diagnose._verdict(conflict, set()) == verdict


def test_nothing_is_freed_that_is_free(
    capsys: Capture, tmp_path: Path
) -> None:
    """The group needs both of one provider: the root has the CPU free, and
    lacks a free FPGA.
    """
    cards = {"card": {"resources": {"FPGA": 1}}}
    full = {"resources": {**_SIZE, "FPGA": {"total": 1, "used": 1}}}
    argv = [
        "--filter=noop",
        "--extra-spec=resources1:FPGA=1",
        "--extra-spec=resources1:VCPU=1",
        "--extra-spec=resources:DISK_GB=1",
    ]
    hosts = {"a": _host(providers=cards) | full}
    found = _diagnosed(capsys, tmp_path, hosts, *argv, code=2)
    freed = {
        each["names"][0]
        for each in found["requirements"]
        if "Free" in each["help"]
    }
    assert freed == {"FPGA"}


def test_bare_metal_without_zero_cpus_is_advised_to_set_them(
    capsys: Capture, tmp_path: Path
) -> None:
    node = {"resources": {"CUSTOM_BAREMETAL1_SMALL": 1}, "traits": _COMMON}
    hosts = {"metal": node, "kvm": _host()}
    argv = [
        "--filter=noop",
        "--extra-spec=resources:CUSTOM_BAREMETAL1_SMALL=1",
    ]
    found = _diagnosed(capsys, tmp_path, hosts, *argv, code=2)
    (advice,) = {
        each["help"]
        for each in found["requirements"]
        if each["kind"] == "resource"
    }
    assert (
        advice
        == "Hosts with CUSTOM_BAREMETAL1_SMALL have no MEMORY_MB, VCPU: set"
        " resources:MEMORY_MB=0, resources:VCPU=0 in a flavor for bare"
        " metal."
    )
    zero = [f"--extra-spec=resources:{name}=0" for name in _SIZE]
    _diagnosed(capsys, tmp_path, hosts, *argv, *zero, code=0)


def test_advice_for_a_trait_that_no_host_has_says_that_the_command_replaces_all(
    capsys: Capture, tmp_path: Path
) -> None:
    argv = ["--extra-spec", "trait:HW_CPU_X86_AVX2=required"]
    found = _diagnosed(capsys, tmp_path, {"a": _host()}, *argv, code=2)
    assert (
        "replaces all traits of the provider: name the present ones, too"
        in _of(found, "HW_CPU_X86_AVX2")["help"]
    )


@pytest.mark.parametrize(
    ("policy", "advice"),
    [
        ("", "Set the flavor extra spec group_policy=none."),
        ("isolate", "Request it in groups with suffixes alone."),
        ("none", ""),
    ],
    ids=["no policy", "isolate", "none"],
)
def test_class_in_the_unsuffixed_and_another_group_has_a_note_on_placements_fault(
    policy: str, advice: str, capsys: Capture, tmp_path: Path
) -> None:
    """Two GPUs of one unit: Placement 16.0.0 offers a candidate that takes
    three, which no claim gets.
    """
    gpus = {f"gpu-{number}": {"resources": {"VGPU": 1}} for number in range(2)}
    argv = [
        "--filter=noop",
        "--extra-spec=resources:VGPU=1",
        "--extra-spec=resources1:VGPU=1",
    ]
    if policy:
        argv.append(f"--extra-spec=group_policy={policy}")
    hosts = {"a": _host(providers=gpus)}
    found = _diagnosed(capsys, tmp_path, hosts, *argv, code=0)
    notes = [note for note in found["notes"] if "more than once" in note]
    if advice:
        (note,) = notes
        assert note.endswith(advice)
    else:
        assert notes == []


@pytest.mark.parametrize(
    ("command", "code"), [("candidates", 1), ("diagnose", 2)]
)
def test_missing_group_policy_is_reported_with_the_value_to_set(
    command: str, code: int, capsys: Capture
) -> None:
    argv = [
        "--filter=noop",
        "--extra-spec=resources1:VCPU=1",
        "--extra-spec=resources2:VCPU=1",
    ]
    assert main([command, *argv]) == code
    printed = "".join(capsys.readouterr())
    assert "set the flavor extra spec group_policy to none" in printed


@pytest.mark.parametrize("trait", ["CUSTOM_NOPE", "HW_CPU_X86_AVX2"])
def test_misspelt_key_of_a_trait_is_the_answer_before_its_name(
    trait: str, capsys: Capture, tmp_path: Path
) -> None:
    argv = ["--extra-spec", f"traits:{trait}=required"]
    found = _diagnosed(capsys, tmp_path, {"a": _host()}, *argv, code=2)
    assert found["stage"] == "refused"
    assert f"Did you mean 'trait:{trait}'?" in found["message"]


def test_trait_known_only_from_the_snapshot_is_not_reported_as_unknown(
    capsys: Capture, tmp_path: Path
) -> None:
    fleet = {
        "taken_at": "2026-11-21T03:00:00Z",
        "hosts": {"a": _host("HW_CPU_FUTURE")},
    }
    argv = [
        "--hosts",
        placed(tmp_path / "fleet.json", fleet),
        "--extra-spec",
        "trait:HW_CPU_FUTURE=required",
    ]
    found = json_of(capsys, "diagnose", *argv)
    assert _of(found, "HW_CPU_FUTURE")["state"] == "met"
    assert main(["diagnose", *argv]) == 0
    out = capsys.readouterr().out
    assert "The fleet was read at 2026-11-21T03:00:00Z." in out


def test_rejection_by_a_filter_names_it_as_its_cause(
    capsys: Capture, tmp_path: Path
) -> None:
    lines = (
        "[prefilter]\nenabled_filters = image_metadata\nunknown_values ="
        " reject\n"
    )
    conf = placed(tmp_path / "nova.conf", lines)
    argv = ["--property", "hw_vif_model=nope", "--config-file", conf]
    found = _diagnosed(capsys, tmp_path, {"a": _host()}, *argv, code=2)
    assert found["stage"] == "rejected"
    assert found["by"] == "image_metadata"
    assert "'nope'" in found["message"]


def test_rejection_of_the_request_itself_names_the_request_as_its_cause(
    capsys: Capture, tmp_path: Path
) -> None:
    argv = [
        "--extra-spec=trait:not-a-name=required",
        "--extra-spec=resources:VCPU=x",
    ]
    found = _diagnosed(capsys, tmp_path, {"a": _host()}, *argv, code=2)
    assert found["stage"] == "rejected"
    assert found["by"] == "request"


def test_advice_for_same_subtree_names_the_groups(
    capsys: Capture, tmp_path: Path
) -> None:
    groups = [
        {"requester_id": name, "resources": {kind: 1}}
        for name, kind in (("_a", "VGPU"), ("_b", "PGPU"))
    ]
    document = {
        "flavor": {"vcpus": 1, "memory_mb": 512},
        "requested_resources": groups,
        "request_level_params": {"same_subtree": [["_a", "_b"]]},
    }
    devices = {
        f"device-{kind}": {"resources": {kind: 1}} for kind in ("VGPU", "PGPU")
    }
    spec = placed(tmp_path / "spec.json", document)
    argv = ["--request-spec", spec, "--filter=noop"]
    hosts = {"a": _host(providers=devices)}
    found = _diagnosed(capsys, tmp_path, hosts, *argv, code=2)
    (subtree,) = (
        each for each in found["requirements"] if each["kind"] == "tree"
    )
    assert "_a, _b" in subtree["help"]
    assert subtree["candidates_without_it"] == 1
    fleet = str(tmp_path / "hosts.json")
    assert main(["diagnose", "--hosts", fleet, *argv]) == 2
    out = capsys.readouterr().out
    assert "same_subtree=_a,_b" in out
    assert "named by the request" not in out


@pytest.mark.parametrize("command", ["diagnose", "explain", "candidates"])
def test_command_warns_once_of_an_extra_spec_that_it_reads_several_times(
    command: str, capsys: Capture
) -> None:
    argv = (command, "--extra-spec", "resources:VCPU=abc", "-f", "json")
    assert main(argv) == 0
    err = capsys.readouterr().err
    assert err.count("'resources:VCPU'='abc' is left out") == 1


def test_novas_host_filters_load_without_warnings_of_other_libraries() -> None:
    code = (
        "from os_prefilter_tools.cli.diagnose import _load_nova_filters;"
        " print(_load_nova_filters().__name__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "run_filters\n"
    assert done.stderr == ""


def test_progress_of_a_diagnosis_is_shown_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    assert main(["diagnose", "--example", "impossible", "-f", "json"]) == 2
    assert "groups of hosts" in terminal.getvalue()
    json.loads(capsys.readouterr().out)
