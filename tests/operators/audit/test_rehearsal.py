# SPDX-License-Identifier: Apache-2.0

"""A rehearsed upgrade predicts what upgraded hosts report."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from errno import EACCES
from itertools import permutations
from pathlib import Path
from random import Random
from typing import Any

import pytest

from os_prefilter import Flavor, Image, RequestSpec
from os_prefilter.adapters.placement.client import PlacementClient
from os_prefilter.adapters.placement.trait_sync import ProviderTraits
from os_prefilter.common.errors import DocumentError
from os_prefilter.common.quoting import quote
from os_prefilter.hosts.desired_traits import Mode, goal_of
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
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.adapters.fleet_reader import read_fleet
from os_prefilter_tools.fleet.model import Fleet, provider_uuid
from os_prefilter_tools.fleet.server import Server
from os_prefilter_tools.operators.audit.destinations import Destinations
from os_prefilter_tools.operators.audit.image_audit import FilterChange
from os_prefilter_tools.operators.audit.rehearsal import (
    become,
    read_canaries,
    rehearse,
)
from os_prefilter_tools.operators.audit.server_audit import (
    STRANDED,
    ServerAudit,
    audit_servers,
)
from tests.conftest import pipeline_of, times
from tests.guests.records import host_of, records
from tests.support.corpus import corpus_hosts
from tests.support.hosts import X86
from tests.support.reporting_fleets import (
    REPORTS,
    Report,
    by_nova_alone,
    by_the_agent,
    fleet_of,
    wanted_by,
)
from tests.support.zipping import zip_equal

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
    rows = [dict(zip_equal(COLUMNS, row)) for row in capabilities(facts)]
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
        "the fleet has no host 'canary', and as a file: there is no such file."
        " Check the path.",
    ),
    "name that no file can have": (
        [f"host-*={'x' * 5000}"],
        f"the fleet has no host {quote('x' * 5000)}, and as a file: the file cannot be read:"
        " File name too long. Check the path and its permissions.",
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
            for name, each in zip_equal(traits, hosts)
        )
    )


def _older_release(path: Path) -> None:
    rows = json.loads(printed_by(_recorded_hosts()[0]))
    path.write_text(json.dumps(rows[:-1]))


def _number_for_a_name(path: Path) -> None:
    rows = json.loads(printed_by(_recorded_hosts()[0]))
    row = {"Trait": 5, "Host has it": "yes"}
    path.write_text(json.dumps([*rows, row]))


def _two_rows_of_a_trait(path: Path) -> None:
    rows = [
        {"Trait": "COMPUTE_NODE", "Host has it": "yes"},
        {"Trait": "COMPUTE_NODE", "Host has it": "no"},
    ]
    path.write_text(json.dumps(rows))


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
    "a name that is a number": (
        _number_for_a_name,
        "expected what 'os-prefilter capabilities show -f json' prints.",
    ),
    "two rows of a trait": (
        _two_rows_of_a_trait,
        "row 2 is a second one of 'COMPUTE_NODE'. Print it again with"
        " 'os-prefilter capabilities show -f json'.",
    ),
    "an answer that is neither yes nor no": (
        lambda path: path.write_text(
            '[{"Trait": "COMPUTE_NODE", "Host has it": "maybe"}]'
        ),
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


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (Path.mkdir, "this is a directory; give the path of a file."),
        (
            os.mkfifo,
            "this is a named pipe, a socket or a device; give the path of a"
            " regular file.",
        ),
    ],
    ids=["directory", "named pipe"],
)
def test_path_of_no_file_is_refused(
    make: Callable[[Path], object], problem: str, tmp_path: Path
) -> None:
    path = tmp_path / "canary"
    make(path)
    with pytest.raises(DocumentError) as caught:
        read_canaries([f"*={path}"], THREE)
    assert str(caught.value) == (
        f"--becoming: the fleet has no host {quote(str(path))}, and as a file:"
        f" {problem}"
    )


def test_file_that_cannot_be_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object) -> None:
        raise PermissionError(EACCES, "Permission denied")

    path = tmp_path / "canary"
    path.touch()
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(DocumentError, match="cannot be read: Permission"):
        read_canaries([f"*={path}"], THREE)


def test_file_of_another_driver_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "canary.json"
    path.write_text(printed_by(VmwareFacts()))
    fleet = fleet_of([by_the_agent(_recorded_hosts()[0])])
    with pytest.raises(DocumentError, match="is of another kind than"):
        read_canaries([f"host-0={path}"], fleet)


def _marked(facts: LibvirtFacts, *machine_types: str) -> LibvirtFacts:
    """Return a host whose libvirt marks machine types as deprecated."""
    guests = {
        name: replace(guest, deprecated_machines=frozenset(machine_types))
        for name, guest in facts.guests.items()
    }
    return replace(facts, guests=guests)


_KVM = [each for each in _recorded_hosts() if each.virt_type == "kvm"]
OLD = _marked(_KVM[0], "pc-i440fx-1.4", "pc-i440fx-2.4")
NEW = _marked(_KVM[-1], "pc-i440fx-2.4")
_PROPERTIES: tuple[dict[str, str], ...] = (
    {},
    {"hw_video_model": "qxl"},
    {"hw_video_model": "virtio"},
    {"hw_vif_model": "igb"},
    {"hw_sound_model": "virtio"},
    {"hw_machine_type": "q35", "hw_firmware_type": "uefi"},
    {"trait:CUSTOM_RACK_7": "required"},
    {"trait:HW_CPU_X86_AVX512F": "required"},
)
_FILTERS = ("image_metadata", "image_type", "hpet", "compute_status")
WANTED = wanted_by()


# The agent of this host reports no CPU.
_BY_OTHERS = sorted(OWN.difference(names_of_cpu("a CPU")))


def _random_fleet(random: Random) -> Fleet:
    """Return old hosts, of which some report and some are changed by hand."""
    traits = []
    for _ in range(random.randint(2, 4)):
        own = random.sample(_BY_OTHERS, random.randint(0, 3))
        traits.append(by_the_agent(OLD, WANTED) | set(own))
    return fleet_of([*traits, by_the_agent(NEW, WANTED)])


def _upgrade(client: PlacementClient, host: str) -> None:
    """Upgrade a host in Placement: its nova-compute reports, then its agent."""
    uuid = provider_uuid(host)
    generation, traits = client.provider_traits(uuid)
    lost = by_nova_alone(OLD) - by_nova_alone(NEW)
    client.set_provider_traits(
        uuid, generation, (traits - lost) | by_nova_alone(NEW)
    )
    goal = goal_of(NEW, WANTED, Mode.BESIDE)
    ProviderTraits(client, host).sync_once(goal)


def _servers(random: Random, fleet: Fleet) -> list[Server]:
    names = [host.name for host in fleet.hosts]
    flavor = Flavor(2, 2048, 20)
    return [
        Server(
            RequestSpec(flavor, Image(random.choice(_PROPERTIES), "qcow2")),
            host=random.choice(names),
            uuid=f"id-{number}",
            machine_type=random.choice(("pc-i440fx-1.4", "pc-i440fx-2.4")),
        )
        for number in range(8)
    ]


def _destinations(audit: ServerAudit) -> set[object]:
    return {
        (server.id, line.now, line.if_died, line.without, line.conflict)
        for line in audit.lines
        for server in line.servers
    }


@pytest.mark.parametrize("seed", range(times(1)))
def test_rehearsal_and_then_the_change_give_the_same_audit(seed: int) -> None:
    random = Random(seed)  # noqa: S311
    with EmbeddedPlacement(_random_fleet(random)) as placement:
        client = placement.client
        now = read_fleet(client)
        last = len(now.hosts) - 1
        canaries = read_canaries([f"host-*=host-{last}"], now)
        # Of a wave, some.
        some = random.sample(sorted(canaries), random.randint(1, last))
        canaries = {name: canaries[name] for name in some}
        rehearsed = become(now, canaries)
        client.ensure_traits(rehearsed.custom_traits)
        for name in some:
            _upgrade(client, name)
        real = read_fleet(client)
    differences = [
        expected.traits ^ host.traits
        for expected, host in zip_equal(rehearsed.hosts, real.hosts)
    ]
    assert differences == [frozenset()] * len(real.hosts)
    servers, pipeline = _servers(random, now), pipeline_of(*_FILTERS)
    before = Destinations(now, pipeline)
    predicted = audit_servers(
        servers, Destinations(rehearsed, pipeline, before=before)
    )
    found = audit_servers(servers, Destinations(real, pipeline))
    assert _destinations(predicted) == _destinations(found)
    assert predicted.count(*STRANDED) == found.count(*STRANDED)
    marked = found.machine_types.deprecated
    assert predicted.machine_types.deprecated == marked


def test_servers_on_machine_types_that_are_gone_or_marked_are_counted() -> (
    None
):
    fleet = fleet_of([by_the_agent(OLD, WANTED), by_the_agent(NEW, WANTED)])
    pipeline = pipeline_of(*_FILTERS)
    now = Destinations(fleet, pipeline)
    after = become(fleet, read_canaries(["host-0=host-1"], fleet))
    servers = [
        Server(RequestSpec(Flavor(1, 512)), "host-0", name, machine_type=name)
        for name in ("pc-i440fx-1.4", "pc-i440fx-2.4", "pc-q35-7.2", "")
    ]
    found = audit_servers(servers, Destinations(after, pipeline, before=now))
    types = found.machine_types
    assert list(types.gone) == [("host-0", "pc-i440fx-1.4")]
    assert list(types.deprecated) == [("host-0", "pc-i440fx-2.4")]
    assert types.judged == 3
    assert types.not_known == 1
    assert not audit_servers(servers, now).machine_types.gone


REPORTED_ALL = by_the_agent(OLD, WANTED)
UPGRADED = by_the_agent(NEW, WANTED)


def _meanwhile(*hosts: set[str]) -> dict[str, tuple[int, str]]:
    """Return what happens to each trait while all hosts become like the last."""
    fleet = fleet_of(hosts)
    pipeline = pipeline_of(*_FILTERS, wait_for_reports=True)
    canaries = read_canaries([f"*=host-{len(hosts) - 1}"], fleet)
    change = FilterChange(pipeline, pipeline)
    found = rehearse(fleet, become(fleet, canaries), change, canaries)
    return {
        trait: (each.hosts, each.effect)
        for each in found.mixed
        for trait in each.traits
        if each.filter == "image_metadata"
    }


def test_traits_that_only_some_hosts_have_are_named_with_their_time() -> None:
    meanwhile = _meanwhile(REPORTED_ALL, REPORTED_ALL, UPGRADED)
    assert meanwhile["COMPUTE_GRAPHICS_MODEL_QXL"] == (
        2,
        "enforced: excludes each from its upgrade on",
    )
    assert meanwhile["COMPUTE_NET_VIF_MODEL_IGB"] == (
        2,
        "enforced: excludes each until its upgrade",
    )
    assert "COMPUTE_NET_VIF_MODEL_VIRTIO" not in meanwhile


def test_row_is_deferred_until_all_hosts_that_have_not_reported_do() -> None:
    meanwhile = _meanwhile(REPORTED_ALL, by_nova_alone(OLD), UPGRADED)
    machine = "CUSTOM_COMPUTE_MACHINE_Q35"
    assert meanwhile[machine] == (1, "deferred until all are upgraded")


def test_row_is_deferred_while_the_canary_has_no_agent() -> None:
    meanwhile = _meanwhile(REPORTED_ALL, REPORTED_ALL, by_nova_alone(NEW))
    machine = "CUSTOM_COMPUTE_MACHINE_Q35"
    assert meanwhile[machine] == (3, "deferred until the canary reports")


def test_row_that_is_deferred_before_and_after_is_not_named() -> None:
    alone = by_nova_alone(OLD)
    meanwhile = _meanwhile(alone, alone, by_nova_alone(NEW))
    assert "CUSTOM_COMPUTE_MACHINE_Q35" not in meanwhile
