# SPDX-License-Identifier: Apache-2.0

"""The probe against a binding made up here: what is asked, and that a libvirt
that fails never becomes "cannot".

The real one: test_libvirt_real.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from os_prefilter.adapters.libvirt.host import LibvirtHost
from os_prefilter.adapters.nova_conf import LibvirtSettings
from os_prefilter.common.errors import ProbeFailed
from os_prefilter.common.trait_names import Trait
from os_prefilter.hosts.capabilities import unknown_traits
from tests.support.libvirt_xml import (
    X86_MACHINES,
    FakeError,
    FakeLibvirt,
    capabilities,
    domain_capabilities,
)
from tests.support.qemu import public_folder, qemu

KVM = LibvirtSettings(virt_type="kvm")
CALLS_OF_A_PROBE = 14


def host_of(
    monkeypatch: pytest.MonkeyPatch,
    libvirt: FakeLibvirt,
    settings: LibvirtSettings = KVM,
    uri: str = "",
) -> LibvirtHost:
    monkeypatch.setitem(sys.modules, "libvirt", libvirt)
    return LibvirtHost(uri, settings)


def failure_of(
    monkeypatch: pytest.MonkeyPatch, answers: dict[str, object]
) -> ProbeFailed:
    libvirt = FakeLibvirt(answers)
    with pytest.raises(ProbeFailed) as raised:
        host_of(monkeypatch, libvirt).facts()
    assert libvirt.opened == 0
    assert str(raised.value).isprintable()
    return raised.value


def test_a_probe_gives_all_facts_by_one_query_for_each_family_of_machine_types(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each call can take seconds. Nothing is asked of what has no known name,
    and of foreign domain types.
    """
    libvirt = FakeLibvirt()
    facts = host_of(monkeypatch, libvirt).facts()
    assert (facts.host, facts.architecture, facts.virt_type) == (
        "compute-1",
        "x86_64",
        "kvm",
    )
    assert (facts.libvirt_version, facts.hypervisor_version) == (
        (9, 0, 0),
        (7, 2, 22),
    )
    assert set(facts.guests) == {"x86_64", "i686"}
    assert facts.emulated == {"aarch64"}
    assert facts.guests["x86_64"].machines == set(X86_MACHINES)
    assert facts.guests["x86_64"].buses == {"ide", "scsi", "virtio", "sata"}
    assert (libvirt.calls[0], libvirt.opened, len(libvirt.calls)) == (
        ("open", "qemu:///system"),
        0,
        CALLS_OF_A_PROBE,
    )
    assert libvirt.asked == [
        *(
            (None, "i686", machine, "qemu")
            for machine in (None, "isapc", "microvm", "q35")
        ),
        *(
            (None, "x86_64", machine, "kvm")
            for machine in (None, "isapc", "microvm", "q35")
        ),
    ]


def test_probe_queries_every_family_if_the_default_machine_type_is_in_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    libvirt = FakeLibvirt()
    usual: Any = libvirt.answers["getDomainCapabilities"]

    def answer(
        emulator: None, architecture: str, machine: str | None, domain: str
    ) -> str:
        if machine is None and architecture == "x86_64":
            return domain_capabilities(machine="x-remote").decode()
        return str(usual(emulator, architecture, machine, domain))

    libvirt.answers["getDomainCapabilities"] = answer
    facts = host_of(monkeypatch, libvirt).facts()
    asked = [
        machine
        for _, architecture, machine, _ in libvirt.asked
        if architecture == "x86_64"
    ]
    assert (asked, facts.guests["x86_64"].default_machine) == (
        [None, "isapc", "microvm", "pc", "q35"],
        "pc",
    )


def test_probe_of_lxc_queries_no_domain_capabilities(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    libvirt = FakeLibvirt(
        {"getCapabilities": capabilities(guests={"x86_64": "lxc"}).decode()}
    )
    facts = host_of(
        monkeypatch, libvirt, LibvirtSettings(virt_type="lxc")
    ).facts()
    assert (facts.virt_type, dict(facts.guests), libvirt.asked) == (
        "lxc",
        {},
        [],
    )


@pytest.mark.parametrize("lives", range(CALLS_OF_A_PROBE - 1))
def test_connection_lost_at_any_call_raises_probe_failed_and_the_next_probe_works(
    monkeypatch: pytest.MonkeyPatch, lives: int
) -> None:
    """No facts with holes; the connection is let go; the next probe opens
    another and gives the same facts.
    """
    libvirt = FakeLibvirt()
    host = host_of(monkeypatch, libvirt)
    expected, calls = host.facts(), libvirt.calls[:]
    libvirt.calls, libvirt.lives = [], lives
    with pytest.raises(ProbeFailed) as raised:
        host.facts()
    assert libvirt.opened == 0
    name, *arguments = calls[lives]
    call = f"{name}({', '.join(map(repr, arguments))})"
    assert str(raised.value).startswith(f"The probe failed at {call}")
    assert ": Cannot write data: Broken pipe. " in str(raised.value)
    libvirt.lives = 1_000
    assert host.facts() == expected


def test_probe_succeeds_even_if_closing_the_connection_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All answers were there."""
    libvirt = FakeLibvirt(lives=CALLS_OF_A_PROBE - 1)
    assert host_of(monkeypatch, libvirt).facts().guests
    assert libvirt.calls[-1] == ("close",)


@pytest.mark.parametrize(
    "code",
    [FakeLibvirt.VIR_ERR_OPERATION_DENIED, FakeLibvirt.VIR_ERR_ACCESS_DENIED],
)
def test_access_denied_error_says_that_the_connection_is_read_only(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    denied = FakeError(
        "operation forbidden: read only access prevents"
        " virConnectGetDomainCapabilities",
        code,
    )
    message = str(failure_of(monkeypatch, {"getDomainCapabilities": denied}))
    assert "qemu:///system: operation forbidden" in message
    assert "The connection is read-only" in message


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        (
            {"open": FakeError("Failed to connect\nsocket")},
            "open('qemu:///system'): Failed to connect socket. Check",
        ),
        (
            {"getCapabilities": FakeError("internal\x1b[2J error")},
            r"getCapabilities() of qemu:///system: internal\x1b[2J",
        ),
        (
            {"getCapabilities": FakeError("")},
            "getCapabilities() of qemu:///system: no explanation. Check",
        ),
        (
            {"getCapabilities": "<capabilities"},
            "getCapabilities() of qemu:///system: not XML of libvirt",
        ),
        (
            {"getDomainCapabilities": "garbage\n"},
            "'i686', None, 'qemu') of qemu:///system: not XML of libvirt",
        ),
        (
            {
                "getDomainCapabilities": (
                    lambda *_: domain_capabilities("i686", "xen").decode()
                )
            },
            (
                "'i686', None, 'qemu') of qemu:///system: these are domain"
                " capabilities of type 'xen'"
            ),
        ),
        # libvirt's "not known", which would read as too old for everything.
        (
            {"getVersion": 0},
            "getVersion() of qemu:///system: 0 is not a version",
        ),
        (
            {"getLibVersion": 0},
            "getLibVersion() of qemu:///system: 0 is not a version",
        ),
    ],
)
def test_libvirt_error_or_unusable_response_raises_probe_failed_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, answers: dict[str, object], says: str
) -> None:
    assert says in str(failure_of(monkeypatch, answers))


@pytest.mark.parametrize(
    ("uri", "answer", "smm"),
    [
        ("qemu:///system", 1, True),
        ("qemu:///system", 0, False),
        ("qemu:///session", 0, False),
        ("qemu+unix:///system?socket=/run/libvirt/libvirt-sock", 0, False),
        # Of a KVM of another machine, and of one that cannot be asked, nothing
        # is known.
        ("qemu+ssh://compute-2/system", 0, None),
        ("qemu+tcp://[compute-2/system", 0, None),
        ("qemu:///system", OSError("Inappropriate ioctl for device"), None),
        ("qemu:///system", None, None),
    ],
)
def test_probe_asks_the_kvm_of_this_machine_for_system_management_mode(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    uri: str,
    answer: int | OSError | None,
    smm: bool | None,
) -> None:
    """It is a file that stands for /dev/kvm here; None: there is none."""
    asked: list[tuple[int, int]] = []

    def ioctl(_device: int, request: int, argument: int) -> int:
        asked.append((request, argument))
        if isinstance(answer, OSError):
            raise answer
        return answer or 0

    device = tmp_path / "kvm"
    if answer is not None:
        device.touch()
    monkeypatch.setattr(
        "os_prefilter.adapters.libvirt.host.KVM_DEVICE", str(device)
    )
    monkeypatch.setattr("fcntl.ioctl", ioctl)
    monkeypatch.setattr("os.uname", lambda: SimpleNamespace(machine="x86_64"))
    host = host_of(monkeypatch, FakeLibvirt(), uri=uri)
    assert host.facts().smm is smm
    assert set(asked) <= {(0xAE03, 117)}
    assert f", SMM {smm}," in host.identity()
    monkeypatch.setattr("os.uname", lambda: SimpleNamespace(machine="aarch64"))
    assert host.facts().smm is None


def test_identity_changes_only_with_upgrades_capabilities_or_the_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    libvirt = FakeLibvirt()
    host = host_of(monkeypatch, libvirt)
    first = host.identity()
    assert (host.identity(), libvirt.asked, libvirt.opened) == (first, [], 0)
    upgraded = {
        "getHostname": "compute-2",
        "getLibVersion": 9_001_000,
        "getVersion": 8_000_000,
        "getCapabilities": capabilities(siblings=("0-1",)).decode(),
    }
    for name, answer in upgraded.items():
        changed = host_of(monkeypatch, FakeLibvirt({name: answer})).identity()
        assert changed != first
        assert changed.isprintable()


def test_identity_raises_probe_failed_if_the_connection_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for lives in range(4):
        libvirt = FakeLibvirt(lives=lives)
        with pytest.raises(ProbeFailed, match="Broken pipe"):
            host_of(monkeypatch, libvirt).identity()
        assert libvirt.opened == 0
        (handler,) = libvirt.handlers
        assert handler(None, ["an error"]) is None


@pytest.mark.parametrize(
    ("settings", "uri"),
    [
        ({}, "qemu:///system"),
        ({"virt_type": "lxc"}, "lxc:///"),
        ({"virt_type": "parallels"}, "parallels:///system"),
        ({"virt_type": "lxc", "connection_uri": "lxc://host/"}, "lxc://host/"),
    ],
)
def test_default_uri_is_the_one_nova_would_use(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], uri: str
) -> None:
    assert (
        host_of(monkeypatch, FakeLibvirt(), LibvirtSettings(**settings)).uri
        == uri
    )


@pytest.fixture
def folder() -> Iterator[Path]:
    with public_folder() as found:
        yield found


def _with_emulators(**paths: str) -> FakeLibvirt:
    """Return a libvirt with the QEMUs at some paths, by architecture."""
    libvirt = FakeLibvirt()
    usual: Any = libvirt.answers["getDomainCapabilities"]

    def answer(emulator: None, architecture: str, *more: Any) -> str:
        found = str(usual(emulator, architecture, *more))
        return found.replace("/usr/bin/qemu", paths[architecture])

    libvirt.answers["getDomainCapabilities"] = answer
    offered = str(libvirt.answers["getCapabilities"])
    for architecture, path in paths.items():
        arch = f"<arch name='{architecture}'>"
        offered = offered.replace(arch, f"{arch}<emulator>{path}</emulator>")
    libvirt.answers["getCapabilities"] = offered
    return libvirt


def test_probe_asks_the_qemu_of_each_architecture_for_its_devices(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    own = qemu(folder, "e1000", "igb")
    other = qemu(folder, "e1000", name="qemu-i386")
    libvirt = _with_emulators(x86_64=own, i686=other)
    facts = host_of(monkeypatch, libvirt).facts()
    assert facts.guests["x86_64"].devices == frozenset(("e1000", "igb"))
    assert facts.guests["i686"].devices == frozenset(("e1000",))
    assert unknown_traits(facts) == {}


@pytest.mark.parametrize(
    ("version", "uri", "reason"),
    [
        # As in the container of nova-compute beside that of libvirt.
        ("", "qemu:///system", "it cannot be run"),
        ("8.2.0", "qemu:///system", "has the version 8.2.0 here, and the"),
        ("7.2.22", "qemu+ssh://host/system", "is on another machine"),
        ("7.2.22", "qemu+tcp://[host/system", "is on another machine"),
    ],
)
def test_probe_knows_no_devices_of_a_qemu_that_is_not_that_of_libvirt(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    version: str,
    uri: str,
    reason: str,
) -> None:
    path = str(folder / "qemu")
    if version:
        qemu(folder, "e1000", version=version)
    libvirt = _with_emulators(x86_64=path, i686=path)
    facts = host_of(monkeypatch, libvirt, uri=uri).facts()
    guest = facts.guests["x86_64"]
    assert guest.devices is None
    assert reason in guest.devices_unknown
    assert guest.devices_unknown.isprintable()
    unknown = unknown_traits(facts)[Trait("COMPUTE_NET_VIF_MODEL_E1000")]
    assert unknown.endswith(guest.devices_unknown)


def test_identity_changes_when_a_qemu_is_replaced_or_goes(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    """A package of the same version may have other devices."""
    path = qemu(folder, "e1000")
    host = host_of(monkeypatch, _with_emulators(x86_64=path, i686=path))
    identities = [host.identity(), host.identity()]
    qemu(folder, "e1000", "igb", name="new")
    (folder / "new").replace(path)
    identities.append(host.identity())
    Path(path).unlink()
    identities.append(host.identity())
    assert identities[0] == identities[1]
    assert len(set(identities)) == 3


def test_identity_raises_probe_failed_if_the_capabilities_are_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    libvirt = FakeLibvirt({"getCapabilities": "garbage"})
    with pytest.raises(ProbeFailed, match="not XML of libvirt"):
        host_of(monkeypatch, libvirt).identity()
