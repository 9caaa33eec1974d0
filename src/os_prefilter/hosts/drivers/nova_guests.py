# SPDX-License-Identifier: Apache-2.0

"""Guests that do not start as Nova's libvirt driver builds them.

Although libvirt and QEMU have what they require.

Each rule was seen with real guests, whose XML Nova 32 to 34 had generated on
x86_64 hosts (``tests/guests/starts``). What libvirt or QEMU refuses was seen
with 9.0 and 11.3, and counts as a no in between; with others, and with a newer
Nova, it is not known, and nothing is refused. But redirected USB ports without
SPICE, which a check in the source of a later libvirt refuses as well, are a no
from 9.0 on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from os_prefilter.hosts.drivers.libvirt_facts import LibvirtFacts, Version
from os_prefilter.vocabulary.machine_types import (
    PLATFORM_ARCHITECTURES,
    guest_architecture,
)

_NEWEST_NOVA = 34
# From this release on Nova leaves the choice of the firmware to libvirt.
_LIBVIRT_CHOOSES_FIRMWARE = 33
_OLDEST_TRIED: Version = (9, 0, 0)
_NEXT_UNTRIED: Version = (11, 4, 0)
# Seen with these, and not with 9.0 and 7.2; since when is not known.
_REFUSES_ACPI: Version = (11, 3, 0)
_EIM_WITHOUT_KVM: Version = (7, 3, 0)


def refusal(
    facts: LibvirtFacts, row: str, value: str, architecture: str
) -> str:
    """Return why a guest of Nova does not start; empty if it may."""
    if (
        not facts.built_by_nova
        or row not in _ROWS
        or (facts.nova_release or 0) > _NEWEST_NOVA
    ):
        return ""
    reason = _ROWS[row](facts, value, architecture)
    if not reason:
        return ""
    nova = f"Nova {facts.nova_release or ''}".rstrip()
    return f"as {nova} builds the guest: {reason}"


def _libvirt_was_tried(facts: LibvirtFacts) -> bool:
    return _OLDEST_TRIED <= facts.libvirt_version < _NEXT_UNTRIED


def _emulation_architecture(
    facts: LibvirtFacts, value: str, _architecture: str
) -> str:
    guest = guest_architecture(value)
    if facts.architecture != "x86_64" or guest == facts.architecture:
        return ""
    if guest not in PLATFORM_ARCHITECTURES:
        return (
            "it gets the machine type pc or PCI devices, which that"
            " architecture does not have"
        )
    if not _libvirt_was_tried(facts):
        return ""
    if guest == "s390x":
        return "it gets a USB tablet, and no USB controller"
    if (
        guest in {"ppc64", "ppc64le"}
        and facts.libvirt_version >= _REFUSES_ACPI
    ):
        return "it gets ACPI, which libvirt 11.3 refuses for pseries"
    return _uefi(facts) if guest == "aarch64" else ""


def _machine_type(_facts: LibvirtFacts, value: str, _architecture: str) -> str:
    return (
        "it gets PCI devices, and the machine type has no PCI bus"
        if value in {"isapc", "microvm"}
        else ""
    )


def _firmware_type(facts: LibvirtFacts, value: str, architecture: str) -> str:
    if value == "uefi":
        return _uefi(facts)
    return (
        "it gets ACPI, which needs UEFI there"
        if architecture == "aarch64" and _libvirt_was_tried(facts)
        else ""
    )


def _uefi(facts: LibvirtFacts) -> str:
    release = facts.nova_release or 0
    is_9_0 = facts.libvirt_version[:2] == (9, 0)
    if release >= _LIBVIRT_CHOOSES_FIRMWARE and is_9_0:
        return (
            "it gets the attribute secure='no', which libvirt 9.0 refuses for"
            " firmware that it chooses itself"
        )
    return ""


def _usb_input(facts: LibvirtFacts, value: str, architecture: str) -> str:
    if (
        value != "virtio"
        and architecture == "s390x"
        and _libvirt_was_tried(facts)
    ):
        return "it gets a USB tablet, and no USB controller"
    return ""


def _usb_redirection(
    facts: LibvirtFacts, _value: str, _architecture: str
) -> str:
    if facts.spice_enabled or facts.libvirt_version < _OLDEST_TRIED:
        return ""
    return (
        "it gets no SPICE graphics ([spice] enabled is off), without which"
        " libvirt refuses redirected USB ports"
    )


def _viommu_model(facts: LibvirtFacts, value: str, architecture: str) -> str:
    if architecture not in {"x86_64", "i686", "aarch64"}:
        return "Nova has a vIOMMU only for x86_64 and aarch64"
    if not _libvirt_was_tried(facts):
        return ""
    if architecture == "aarch64":
        return "it gets an I/O APIC, which is x86's"
    if value in {"auto", "virtio"}:
        return "it gets attributes that libvirt refuses for a vIOMMU of virtio"
    is_emulated = (
        facts.virt_type == "qemu" or architecture != facts.architecture
    )
    if is_emulated and facts.hypervisor_version < _EIM_WITHOUT_KVM:
        return (
            "it gets extended interrupt mode, which QEMU 7.2 and older have"
            " only with KVM"
        )
    return ""


_ROWS: Mapping[str, Callable[[LibvirtFacts, str, str], str]] = {
    "emulation_architecture": _emulation_architecture,
    "machine_type": _machine_type,
    "firmware_type": _firmware_type,
    "viommu_model": _viommu_model,
    "input_bus": _usb_input,
    "pointer_model": _usb_input,
    "usb_redirection": _usb_redirection,
}
