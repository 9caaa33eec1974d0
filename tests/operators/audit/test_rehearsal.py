# SPDX-License-Identifier: Apache-2.0

"""A rehearsed upgrade predicts what upgraded hosts report."""

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from os_prefilter.common.errors import DocumentError
from os_prefilter.hosts.drivers.libvirt_facts import LibvirtFacts
from os_prefilter.hosts.drivers.vmware import VmwareFacts
from os_prefilter.hosts.marker_traits import (
    CPU,
    DEPRECATED,
    ON_PROVIDERS,
    names_of_cpu,
)
from os_prefilter.hosts.reporter import HostFacts
from os_prefilter_agent.capabilities import COLUMNS, capabilities
from os_prefilter_tools.fleet.model import Fleet
from os_prefilter_tools.operators.audit.rehearsal import become, read_canaries
from tests.guests.records import host_of, records
from tests.support.corpus import corpus_hosts
from tests.support.hosts import X86
from tests.support.reporting_fleets import (
    REPORTS,
    Report,
    by_nova_alone,
    by_the_agent,
    fleet_of,
)

OWN = {
    "CUSTOM_RACK_7",
    "CUSTOM_LICENSED_WINDOWS",
    "HW_CPU_X86_AVX512F",
    "HW_NIC_SRIOV",
    "OWNER_NOVA",
    "COMPUTE_STATUS_DISABLED",
    "COMPUTE_REMOTE_MANAGED_PORTS",
    *names_of_cpu("a CPU"),
}
"""Traits of one host that its virt driver does not decide."""


def _recorded_hosts() -> list[LibvirtFacts]:
    """Return this project's real hosts: libvirt 9.0 and 11.3, with Nova 34."""
    return [host_of(record) for record in records() if record.nova]


def _pairs(*fleets: Iterable[LibvirtFacts]) -> Iterable[Any]:
    """Yield hosts of one machine before and after an upgrade."""
    for hosts in fleets:
        for before, after in permutations(hosts, 2):
            if (before.architecture, before.virt_type, before.smt) == (
                after.architecture,
                after.virt_type,
                after.smt,
            ):
                yield pytest.param(
                    before,
                    after,
                    id=f"{before.virt_type} {before.libvirt_version} to"
                    f" {after.libvirt_version} {before.architecture}",
                )


def printed_by(facts: HostFacts) -> str:
    """Return what ``capabilities show -f json`` prints on a host."""
    rows = [
        dict(zip(COLUMNS, row, strict=True)) for row in capabilities(facts)
    ]
    return json.dumps(rows)


def upgraded(fleet: Fleet, *options: str) -> list[set[str]]:
    hosts = become(fleet, read_canaries(options, fleet)).hosts
    return [set(host.traits) for host in hosts]


@pytest.mark.parametrize("report", REPORTS[:3])
@pytest.mark.parametrize(
    ("before", "after"), _pairs(_recorded_hosts(), corpus_hosts())
)
def test_host_becomes_what_the_real_upgraded_host_reports(
    before: LibvirtFacts, after: LibvirtFacts, report: Report
) -> None:
    fleet = fleet_of([report(before) | OWN, report(after)])
    host, canary = upgraded(fleet, "host-[0-9]=host-1")
    assert canary == {"COMPUTE_NODE"} | report(after)
    of_hardware = ("HW_", CPU)
    hardware = {
        each for each in report(before) if each.startswith(of_hardware)
    }
    software = {
        each for each in report(after) if not each.startswith(of_hardware)
    }
    assert host == {"COMPUTE_NODE"} | OWN | hardware | software


@pytest.mark.parametrize(("before", "after"), _pairs(_recorded_hosts()))
def test_file_of_a_canary_says_the_same_as_its_report(
    before: LibvirtFacts, after: LibvirtFacts, tmp_path: Path
) -> None:
    path = tmp_path / "canary.json"
    path.write_text(printed_by(after))
    fleet = fleet_of([by_the_agent(before), by_the_agent(after)])
    (by_file, _) = upgraded(fleet, f"host-0={path}")
    (by_host, _) = upgraded(fleet, "host-0=host-1")
    assert _without_markers(by_file) == _without_markers(by_host)
    assert not any(each.startswith(DEPRECATED) for each in by_file)


def _without_markers(traits: set[str]) -> set[str]:
    return {each for each in traits if not each.startswith(ON_PROVIDERS)}


WITHOUT_LIST = LibvirtFacts(
    architecture="x86_64",
    virt_type="kvm",
    libvirt_version=(11, 3, 0),
    hypervisor_version=(10, 0, 0),
    guests={"x86_64": replace(X86, devices=None)},
    built_by_nova=True,
)


def test_what_a_file_does_not_know_stays(tmp_path: Path) -> None:
    """Devices of a QEMU that does not list them are not known there."""
    before = _recorded_hosts()[0]
    path = tmp_path / "canary.json"
    path.write_text(printed_by(WITHOUT_LIST))
    had = by_the_agent(before)
    (host,) = upgraded(fleet_of([had]), f"*={path}")
    sounds = {each for each in had if each.startswith("COMPUTE_SOUND_")}
    assert sounds
    assert sounds <= host


KVM = by_nova_alone(_recorded_hosts()[0])
THREE = fleet_of([KVM, KVM, KVM])


def test_canary_that_its_pattern_matches_stays_as_it_is() -> None:
    assert list(read_canaries(["host-*=host-1"], THREE)) == [
        "host-0",
        "host-2",
    ]


def test_canary_that_another_pattern_matches_stays_as_it_is() -> None:
    options = ["host-[02]=host-1", "host-1=host-2"]
    with pytest.raises(DocumentError) as caught:
        read_canaries(options, THREE)
    assert str(caught.value) == (
        "--becoming: 'host-1' matches only canaries. Give a pattern of names"
        " of hosts."
    )


ARM = KVM - {"HW_ARCH_X86_64"} | {"HW_ARCH_AARCH64"}
VMWARE = {"COMPUTE_NODE", "COMPUTE_IMAGE_TYPE_VMDK", "HW_ARCH_X86_64"}
_ADVICE = "Give a pattern without it."
_REFUSED = {
    "no equals sign": (
        ["host-*"],
        "'host-*': expected PATTERN=HOST or PATTERN=FILE, such as"
        " 'kvm-*=kvm-canary'.",
    ),
    "no pattern": (
        ["=host-1"],
        "'=host-1': expected PATTERN=HOST or PATTERN=FILE, such as"
        " 'kvm-*=kvm-canary'.",
    ),
    "no canary": (
        ["host-*="],
        "'host-*=': expected PATTERN=HOST or PATTERN=FILE, such as"
        " 'kvm-*=kvm-canary'.",
    ),
    "no host": (
        ["Host-*=host-1"],
        "'Host-*' matches no host. Give a pattern of names of hosts.",
    ),
    "only the canary": (
        ["host-1=host-1"],
        "'host-1' matches only canaries. Give a pattern of names of hosts.",
    ),
    "two patterns": (
        ["host-0=host-1", "host-[02]=host-1"],
        "both 'host-0' and 'host-[02]' match 'host-0'. Each host must match"
        " one pattern.",
    ),
    "neither a host nor a file": (
        ["host-*=canary"],
        "'canary' is neither a host nor a file. Name a resource provider of a"
        " host, or what 'os-prefilter capabilities show -f json' printed.",
    ),
    "another architecture": (
        ["arm=host-1"],
        "'arm' matches 'arm', which is of another kind than the canary"
        f" 'host-1': it has HW_ARCH_AARCH64, not HW_ARCH_X86_64. {_ADVICE}",
    ),
    "another driver": (
        ["vmware=host-1"],
        "'vmware' matches 'vmware', which is of another kind than the canary"
        f" 'host-1': only one of them reports devices. {_ADVICE}",
    ),
    "another hypervisor": (
        ["agent=host-1"],
        "'agent' matches 'agent', which is of another kind than the canary"
        " 'host-1': it has CUSTOM_HYPERVISOR_TYPE_VMWARE, not"
        f" CUSTOM_HYPERVISOR_TYPE_KVM. {_ADVICE}",
    ),
}


@pytest.mark.parametrize(
    ("options", "problem"), _REFUSED.values(), ids=_REFUSED
)
def test_option_that_cannot_be_meant_is_refused(
    options: list[str], problem: str
) -> None:
    fleet = _named(
        {
            "host-0": KVM,
            "host-1": KVM | {"CUSTOM_HYPERVISOR_TYPE_KVM"},
            "host-2": KVM,
            "arm": ARM,
            "vmware": VMWARE,
            "agent": KVM | {"CUSTOM_HYPERVISOR_TYPE_VMWARE"},
        }
    )
    with pytest.raises(DocumentError) as caught:
        read_canaries(options, fleet)
    assert str(caught.value) == f"--becoming: {problem}"


def _named(traits: dict[str, set[str]]) -> Fleet:
    hosts = fleet_of(list(traits.values())).hosts
    return Fleet(
        tuple(
            each.__class__(
                name, each.uuid, each.resources, each.traits | {"COMPUTE_NODE"}
            )
            for name, each in zip(traits, hosts, strict=True)
        )
    )


def _older_release(path: Path) -> None:
    rows = json.loads(printed_by(_recorded_hosts()[0]))
    path.write_text(json.dumps(rows[:-1]))


_FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "older release": (
        _older_release,
        "it does not say whether the host has CUSTOM_I686_COMPUTE_DEFAULT_MACHINE_Q35: another"
        " release of os-prefilter printed it, or not all of it. Print it"
        " again, with this release.",
    ),
    "fleet": (
        lambda path: path.write_text('{"hosts": {}}'),
        "expected what 'os-prefilter capabilities show -f json' prints.",
    ),
    "list of names": (
        lambda path: path.write_text('["a"]'),
        "expected what 'os-prefilter capabilities show -f json' prints.",
    ),
    "number": (
        lambda path: path.write_text("7"),
        "expected what 'os-prefilter capabilities show -f json' prints.",
    ),
    "names that are lists": (
        lambda path: path.write_text('[{"Trait": [], "Host has it": "yes"}]'),
        "expected what 'os-prefilter capabilities show -f json' prints.",
    ),
    "table": (
        lambda path: path.write_text("+---+"),
        "line 1, column 1: broken JSON: Expecting value.",
    ),
    "empty": (
        lambda path: path.write_text(""),
        "the file is empty; expected JSON. Check the command that wrote it.",
    ),
    "directory": (
        Path.mkdir,
        "this is a directory; give the path of a file.",
    ),
    "named pipe": (
        os.mkfifo,
        "this is a named pipe, a socket or a device; give the path of a"
        " regular file.",
    ),
}


@pytest.mark.parametrize(("make", "problem"), _FILES.values(), ids=_FILES)
def test_file_of_something_else_is_refused(
    make: Callable[[Path], object], problem: str, tmp_path: Path
) -> None:
    path = tmp_path / "canary.json"
    make(path)
    with pytest.raises(DocumentError) as caught:
        read_canaries([f"*={path}"], THREE)
    assert str(caught.value) == f"{path}: {problem}"


def test_file_of_another_driver_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "canary.json"
    path.write_text(printed_by(VmwareFacts()))
    fleet = fleet_of([by_the_agent(_recorded_hosts()[0])])
    with pytest.raises(DocumentError, match="is of another kind than"):
        read_canaries([f"host-0={path}"], fleet)
