# SPDX-License-Identifier: Apache-2.0

"""``os-prefilter diagnose``: stages, states and codes, on fleets for each."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from os_prefilter_tools.cli import diagnose
from os_prefilter_tools.operators.diagnose import result
from tests.cli.test_audit import Terminal
from tests.support.commands import Cli

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


@pytest.fixture
def diagnose_on(cli: Cli) -> Callable[..., Any]:
    """Return a function: run ``diagnose`` on hosts, and return its JSON."""

    def diagnose_on(hosts: dict[str, Any], *argv: str, code: int = 2) -> Any:
        fleet = cli.place("hosts.json", {"hosts": hosts})
        return cli.json("diagnose", "--hosts", fleet, *argv, code=code)

    return diagnose_on


def _of(found: Any, name: str) -> Any:
    """Return the requirement of one trait or resource class."""
    (requirement,) = (
        each for each in found["requirements"] if each["names"] == [name]
    )
    return requirement


_ON_ITS_GPU = {"resources": {"VGPU": 1}, "traits": ["CUSTOM_FAST"]}
_FAST = ["--extra-spec", "trait:CUSTOM_FAST=required"]
_NOPE = ["--extra-spec", "trait:CUSTOM_NOPE=required"]
_NINE = ["--extra-spec", "resources:VCPU=9"]
_TWO = ["--extra-spec", "resources:VCPU=2"]
_NO_CPU = {"resources": {**_SIZE, "VCPU": {"total": 8, "used": 8}}}
_CAPABLE_BUT_DISABLED = _host(_CARD, "COMPUTE_STATUS_DISABLED")
_STATES = {
    "no host reports it": (_host(), _ASK_FOR_CARD, _CARD, "nowhere"),
    "a disabled one does": (
        _CAPABLE_BUT_DISABLED,
        _ASK_FOR_CARD,
        _CARD,
        "elsewhere",
    ),
    "it does not exist": (_host(), _NOPE, "CUSTOM_NOPE", "unknown"),
    "too large for any": (_host(), _NINE, "VCPU", "too-large"),
    "full now": (_host() | _NO_CPU, _TWO, "VCPU", "full"),
    "on another provider than it is asked of": (
        _host(providers={"gpu": _ON_ITS_GPU}),
        _FAST,
        "CUSTOM_FAST",
        "no-host",
    ),
}


@pytest.mark.parametrize(
    ("host", "argv", "name", "state"), _STATES.values(), ids=_STATES
)
def test_unmet_requirement_has_the_right_state_and_a_suggested_fix(
    host: dict[str, Any],
    argv: list[str],
    name: str,
    state: str,
    diagnose_on: Callable[..., Any],
) -> None:
    found = diagnose_on({"a": host}, *argv)
    stage = "refused" if state == "unknown" else "no-candidates"
    assert found["stage"] == stage
    assert _of(found, name)["state"] == state
    assert _of(found, name)["help"]


_IF_EMPTY = (
    "The only host does not meet all requirements, even if it were empty."
)
_NOW = "No host meets all requirements now; 1 of 1 would if it were empty."


@pytest.mark.parametrize(
    ("state", "ever", "message"),
    [
        ("no host reports it", True, _IF_EMPTY),
        ("too large for any", True, _IF_EMPTY),
        ("full now", False, _NOW),
    ],
    ids=["no host reports it", "too large for any", "full now"],
)
def test_requirement_that_no_host_meets_alone_is_a_set_of_its_own(
    state: str, ever: bool, message: str, diagnose_on: Callable[..., Any]
) -> None:
    host, argv, name, _ = _STATES[state]
    found = diagnose_on({"a": host}, *argv)
    numbers = [_of(found, name)["number"]]
    assert found["conflicts"] == [{"requirements": numbers, "ever": ever}]
    assert found["message"] == message


_FULL: dict[str, Any] = {
    "resources": {
        name: {"total": size, "used": size} for name, size in _SIZE.items()
    }
}
_ONE_FULL = {"free": _host(), "full": _host("CUSTOM_FAST") | _FULL}
_SMALL = {"resources": {"VCPU": 4, "MEMORY_MB": 8192}}
_FULL_AND_SMALL = {"a": _host() | _FULL, "b": _host() | _SMALL}
_EIGHT = ["--extra-spec", "resources:VCPU=8"]
_CAUSES = {
    "one full": (
        _ONE_FULL,
        _FAST,
        [["CUSTOM_FAST", "MEMORY_MB"], ["CUSTOM_FAST", "VCPU"]],
        "full",
    ),
    "full and small": (_FULL_AND_SMALL, _EIGHT, [["VCPU"]], "a"),
}
"""Hosts, what is requested, the smallest sets, and where to free."""


@pytest.mark.parametrize(
    ("hosts", "argv", "sets", "host"), _CAUSES.values(), ids=_CAUSES
)
def test_all_causes_are_shown_and_freeing_is_suggested_only_where_it_helps(
    hosts: dict[str, Any],
    argv: list[str],
    sets: list[list[str]],
    host: str,
    diagnose_on: Callable[..., Any],
) -> None:
    found = diagnose_on(hosts, *argv, "--filter", "noop")
    names = {
        each["number"]: each["names"][0] for each in found["requirements"]
    }
    shown = [
        sorted(map(names.__getitem__, conflict["requirements"]))
        for conflict in found["conflicts"]
    ]
    assert sorted(shown) == sets
    advice = f"Free MEMORY_MB and VCPU on {host}; or add hosts"
    for each in found["requirements"]:
        if each["names"][0] in ("MEMORY_MB", "VCPU"):
            assert each["free_on"] == [host]
            assert each["help"].startswith(advice)
        else:
            assert each["free_on"] == []
            assert "Free " not in each["help"]


@pytest.mark.parametrize(
    ("hosts", "argv"),
    [(_ONE_FULL, _FAST), (_FULL_AND_SMALL, _EIGHT)],
    ids=_CAUSES,
)
def test_a_host_that_could_serve_if_it_were_empty_is_mentioned(
    hosts: dict[str, Any], argv: list[str], cli: Cli
) -> None:
    fleet = cli.place("hosts.json", {"hosts": hosts})
    options = ["--hosts", fleet, *argv, "--filter", "noop"]
    out, _ = cli.run("diagnose", *options, code=2)
    assert "; one could if it were empty" in out


def test_a_line_names_the_requirements_that_its_hosts_fail(cli: Cli) -> None:
    """The table that numbers them comes first."""
    out, _ = cli.run("diagnose", "--example", "impossible", code=2)
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
    diagnose_on: Callable[..., Any],
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
    found = diagnose_on(hosts, *argv)
    freed = {
        each["names"][0]
        for each in found["requirements"]
        if "Free" in each["help"]
    }
    assert freed == {"FPGA"}


def test_bare_metal_without_zero_cpus_is_advised_to_set_them(
    diagnose_on: Callable[..., Any],
) -> None:
    node = {"resources": {"CUSTOM_BAREMETAL1_SMALL": 1}, "traits": _COMMON}
    hosts = {"metal": node, "kvm": _host()}
    argv = [
        "--filter=noop",
        "--extra-spec=resources:CUSTOM_BAREMETAL1_SMALL=1",
    ]
    found = diagnose_on(hosts, *argv)
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
    diagnose_on(hosts, *argv, *zero, code=0)


def test_advice_for_a_trait_that_no_host_has_says_that_the_command_replaces_all(
    diagnose_on: Callable[..., Any],
) -> None:
    argv = ["--extra-spec", "trait:STORAGE_DISK_SSD=required"]
    found = diagnose_on({"a": _host()}, *argv)
    assert (
        "replaces all traits of the provider: name the present ones, too"
        in _of(found, "STORAGE_DISK_SSD")["help"]
    )


def test_advice_for_a_cpu_feature_is_what_nova_does_not_undo(
    diagnose_on: Callable[..., Any],
) -> None:
    """nova-compute removes such a trait that an operator sets."""
    argv = ["--extra-spec", "trait:HW_CPU_X86_AVX2=required"]
    found = diagnose_on({"a": _host()}, *argv)
    assert (
        "Add a host with it, or name a newer model in [libvirt] cpu_models"
        in _of(found, "HW_CPU_X86_AVX2")["help"]
    )


def test_advice_against_hosts_with_several_cpu_models_is_the_flavor(
    diagnose_on: Callable[..., Any],
) -> None:
    several = "CUSTOM_COMPUTE_SEVERAL_CPU_MODELS"
    argv = ["--extra-spec", f"trait:{several}=forbidden"]
    found = diagnose_on({"a": _host(traits=[*_COMMON, several])}, *argv)
    advice = _of(found, several)["help"]
    assert "Name the CPU features in the flavor" in advice


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
    policy: str, advice: str, diagnose_on: Callable[..., Any]
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
    found = diagnose_on(hosts, *argv, code=0)
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
    command: str, code: int, cli: Cli
) -> None:
    argv = [
        "--filter=noop",
        "--extra-spec=resources1:VCPU=1",
        "--extra-spec=resources2:VCPU=1",
    ]
    printed = "".join(cli.run(command, *argv, code=code))
    assert "set the flavor extra spec group_policy to none" in printed


@pytest.mark.parametrize("trait", ["CUSTOM_NOPE", "HW_CPU_X86_AVX2"])
def test_misspelt_key_of_a_trait_is_the_answer_before_its_name(
    trait: str, diagnose_on: Callable[..., Any]
) -> None:
    argv = ["--extra-spec", f"traits:{trait}=required"]
    found = diagnose_on({"a": _host()}, *argv)
    assert found["stage"] == "refused"
    assert f"Did you mean 'trait:{trait}'?" in found["message"]


def test_trait_known_only_from_the_snapshot_is_not_reported_as_unknown(
    cli: Cli,
) -> None:
    hosts = {"a": _host("HW_CPU_FUTURE")}
    fleet = {"taken_at": "2026-11-21T03:00:00Z", "hosts": hosts}
    argv = ["diagnose", "--hosts", cli.place("fleet.json", fleet)]
    argv += ["--extra-spec", "trait:HW_CPU_FUTURE=required"]
    found = cli.json(*argv)
    assert _of(found, "HW_CPU_FUTURE")["state"] == "met"
    out, _ = cli.run(*argv)
    assert "The fleet was read at 2026-11-21T03:00:00Z." in out


def test_rejection_by_a_filter_names_it_as_its_cause(
    cli: Cli, diagnose_on: Callable[..., Any]
) -> None:
    conf = cli.place(
        "nova.conf",
        "[prefilter]\nenabled_filters = image_metadata\nunknown_values ="
        " reject\n",
    )
    argv = ["--property", "hw_vif_model=nope", "--config-file", conf]
    found = diagnose_on({"a": _host()}, *argv)
    assert found["stage"] == "rejected"
    assert found["by"] == "image_metadata"
    assert "'nope'" in found["message"]


def test_rejection_of_the_request_itself_names_the_request_as_its_cause(
    diagnose_on: Callable[..., Any],
) -> None:
    argv = [
        "--extra-spec=trait:not-a-name=required",
        "--extra-spec=resources:VCPU=x",
    ]
    found = diagnose_on({"a": _host()}, *argv)
    assert found["stage"] == "rejected"
    assert found["by"] == "request"


def test_advice_for_same_subtree_names_the_groups(
    cli: Cli, diagnose_on: Callable[..., Any]
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
    spec = cli.place("spec.json", document)
    argv = ["--request-spec", spec, "--filter=noop"]
    hosts = {"a": _host(providers=devices)}
    found = diagnose_on(hosts, *argv)
    (subtree,) = (
        each for each in found["requirements"] if each["kind"] == "tree"
    )
    assert "_a, _b" in subtree["help"]
    assert subtree["candidates_without_it"] == 1
    fleet = str(cli.folder / "hosts.json")
    out, _ = cli.run("diagnose", "--hosts", fleet, *argv, code=2)
    assert "same_subtree=_a,_b" in out
    assert "named by the request" not in out


@pytest.mark.parametrize("command", ["diagnose", "explain", "candidates"])
def test_command_warns_once_of_an_extra_spec_that_it_reads_several_times(
    command: str, cli: Cli
) -> None:
    argv = ["--extra-spec", "resources:VCPU=abc", "-f", "json"]
    _, err = cli.run(command, *argv)
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
    monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    cli.json("diagnose", "--example", "impossible", code=2)
    assert "groups of hosts" in terminal.getvalue()
