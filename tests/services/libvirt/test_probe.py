# SPDX-License-Identifier: Apache-2.0

"""The probe of a real libvirt: OS_PREFILTER_LIBVIRT_URI names it
(qemu:///system). In CI it must be there.

A call takes seconds where libvirt looks at QEMU anew each time (as where it
may use /dev/kvm and QEMU's user may not), so each virt type is probed once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest
from defusedxml.ElementTree import fromstring, tostring

from os_prefilter.adapters.libvirt.documents import domain_capabilities_from
from os_prefilter.adapters.libvirt.host import LibvirtHost
from os_prefilter.adapters.nova_conf import LibvirtSettings
from os_prefilter.common.errors import ProbeFailed
from os_prefilter.hosts.desired_traits import Mode, goal_of, with_traits
from os_prefilter.hosts.drivers.libvirt_facts import LibvirtFacts
from os_prefilter.hosts.marker_traits import is_deprecated
from tests.services.libvirt.connection import needs_libvirt, uri
from tests.support.libvirt_xml import FakeLibvirt, domain_capabilities

pytestmark = needs_libvirt


@pytest.fixture(scope="session")
def libvirt() -> Any:
    return import_module("libvirt")


@pytest.fixture(scope="session")
def connection(libvirt: Any) -> Iterator[Any]:
    opened = libvirt.open(uri())
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def qemu(libvirt: Any) -> LibvirtFacts:
    """Return what the host can do without KVM."""
    return LibvirtHost(uri(), LibvirtSettings(virt_type="qemu")).facts()


def test_probe_finds_what_the_host_is_and_every_qemu_has(
    qemu: LibvirtFacts, connection: Any
) -> None:
    for version, number in (
        (qemu.libvirt_version, connection.getLibVersion()),
        (qemu.hypervisor_version, connection.getVersion()),
    ):
        major, minor, micro = version
        assert major * 1_000_000 + minor * 1_000 + micro == number
    assert qemu.host == connection.getHostname()
    assert (
        (qemu.architecture, qemu.virt_type)
        == (connection.getInfo()[0], "qemu")
        == ("x86_64", "qemu")
    )
    own = qemu.guests[qemu.architecture]
    assert own.buses >= {"ide", "virtio", "scsi", "sata", "usb", "fdc"}
    assert own.video_models >= {"vga", "virtio", "none"}
    assert own.default_machine == "pc"
    assert own.devices
    assert own.devices >= {"e1000", "virtio-net-pci", "max-x86_64-cpu"}
    # libvirt has other firmware for it, and nothing else.
    of_i686 = qemu.guests["i686"]
    assert of_i686.devices
    assert of_i686.devices >= {"e1000", "virtio-net-pci", "max-i386-cpu"}
    assert (
        replace(
            own,
            uefi=of_i686.uefi,
            secure_boot=False,
            machines=of_i686.machines,
            devices=of_i686.devices,
            host_model=of_i686.host_model,
        )
        == of_i686
    )
    assert own.machines_are_complete
    assert own.machines >= {
        "pc",
        "q35",
        f"pc-i440fx-{major}.{minor}",
        f"pc-q35-{major}.{minor}",
    }


def test_machine_types_that_libvirt_marks_are_reported(
    qemu: LibvirtFacts, connection: Any
) -> None:
    document = fromstring(connection.getCapabilities())
    path = f"guest/arch[@name='{qemu.architecture}']/machine"
    listed = {each.text for each in document.iterfind(path)}
    marked = {
        each.text for each in document.iterfind(f"{path}[@deprecated='yes']")
    }
    # At least one group must be wanted.
    goal = goal_of(qemu, ["AAAAA"], Mode.BESIDE)
    traits = with_traits(frozenset(), goal)
    assert listed
    assert {
        name for name in listed if is_deprecated(str(name), traits)
    } == marked
    assert is_deprecated("none such", traits) is False


def test_read_only_connection_is_named_as_the_cause_of_the_failed_probe(
    libvirt: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    host = LibvirtHost(
        f"{uri()}?socket=/run/libvirt/libvirt-sock-ro",
        LibvirtSettings(virt_type="qemu"),
    )
    with pytest.raises(
        ProbeFailed, match="The connection is read-only"
    ) as raised:
        host.facts()
    # Of the first architecture that it has a QEMU for.
    assert re.search(
        r"getDomainCapabilities\(None, '\w+', None, 'qemu'\) of qemu:",
        str(raised.value),
    )
    assert capfd.readouterr().err == ""


def test_fake_libvirt_binding_matches_the_real_one(libvirt: Any) -> None:
    for name, value in vars(FakeLibvirt).items():
        assert not name.startswith("VIR_") or value == getattr(libvirt, name)
    functions = (
        "getLibVersion getVersion getHostname getCapabilities"
        " getDomainCapabilities compareHypervisorCPU close"
    )
    for name in functions.split():
        assert callable(getattr(libvirt.virConnect, name))


def test_cpus_are_equal_exactly_where_libvirt_calls_them_identical(
    qemu: LibvirtFacts, connection: Any, libvirt: Any
) -> None:
    """The host's own CPU, and it without one of its features."""
    data = connection.getDomainCapabilities(None, "x86_64", None, "qemu")
    root = fromstring(data)
    emulator, machine = root.findtext("path"), root.findtext("machine")
    mode = root.find("cpu/mode[@name='host-model']")
    assert mode is not None
    own = list(mode)
    required = mode.findall("feature[@policy='require']")
    assert len(required) > 10
    cpus = [own, *([x for x in own if x is not left] for left in required)]
    verdicts = set()
    for elements in cpus:
        cpu = "".join(tostring(x, encoding="unicode") for x in elements)
        verdict = connection.compareHypervisorCPU(
            emulator, "x86_64", machine, "qemu", f"<cpu>{cpu}</cpu>"
        )
        described = domain_capabilities(domain="qemu", host_model=cpu)
        found = domain_capabilities_from("own", described).guest.host_model
        is_equal = found == qemu.guests["x86_64"].host_model
        is_identical = verdict == libvirt.VIR_CPU_COMPARE_IDENTICAL
        assert is_equal == is_identical, cpu
        verdicts.add(verdict)
    assert verdicts == {
        libvirt.VIR_CPU_COMPARE_IDENTICAL,
        libvirt.VIR_CPU_COMPARE_SUPERSET,
    }
