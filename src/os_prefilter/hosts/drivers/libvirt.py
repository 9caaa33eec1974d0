# SPDX-License-Identifier: Apache-2.0

"""Capabilities of libvirt hosts.

KVM and QEMU by domain capabilities and QEMU's list of devices, LXC and
Parallels by lists. Versions decide only what neither says.

The lists and versions are those of Nova 34 (``nova/virt/libvirt/vif.py``,
``blockinfo.py``, ``driver.py``). The page "What a libvirt host reports" lists
where this reporter differs from Nova's driver, and why.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import NamedTuple

from os_prefilter.common.trait_names import Trait
from os_prefilter.hosts.drivers import nova_guests
from os_prefilter.hosts.drivers.libvirt_facts import (
    GuestFacts,
    LibvirtFacts,
    Version,
)
from os_prefilter.hosts.drivers.qemu_devices import (
    DEVICES,
    devices_for,
    list_missing,
)
from os_prefilter.hosts.reporter import Reporter, traits_reported_by_nova
from os_prefilter.vocabulary import BY_NAME, I686, LACKING
from os_prefilter.vocabulary.machine_types import (
    MACHINES,
    family_of,
    guest_architecture,
)

_ANY: Version = (0, 0, 0)
_QEMU_VIFS = (
    "virtio ne2k_pci pcnet rtl8139 e1000 e1000e spapr-vlan vmxnet3 igb"
)
_BUSES = {"lxc": "lxc", "parallels": "ide scsi"}
_POSSIBLE: Mapping[str, Mapping[str, str]] = {
    "vif_model": {
        "kvm": _QEMU_VIFS,
        "qemu": f"{_QEMU_VIFS} lan9118",
        "parallels": "virtio rtl8139 e1000",
    },
    "disk_bus": _BUSES,
    "cdrom_bus": _BUSES,
    "video_model": {"parallels": "vga"},
    # src/vz/vz_utils.c in libvirt.
    "scsi_model": {"parallels": "virtio-scsi"},
    # A KVM host runs images for QEMU as well (LP#1837756).
    "hypervisor_type": {
        "kvm": "kvm qemu",
        "qemu": "qemu",
        "lxc": "lxc",
        "parallels": "parallels",
    },
    "vm_mode": {
        "kvm": "hvm",
        "qemu": "hvm",
        "lxc": "exe",
        "parallels": "hvm exe",
    },
}
"""Row -> virt type -> its values, separated by spaces.

QEMU's domain capabilities have the rest; other virt types have none.
"""

_DEVICES_AND_VERSIONS = """
packed_virtqueue usb_model input_bus pointer_model firmware_stateless
maxphysaddr_mode watchdog
"""
"""Rows that QEMU's devices, and versions, decide alone."""
_ONLY_QEMU = f"""{_DEVICES_AND_VERSIONS}
sound_model usb_redirection viommu_model firmware_type machine_type
default_machine time_hpet tpm_version tpm_model tpm_secret_security
"""
# Nova's driver reports the first two for every virt_type; no value of the
# others requires a trait.
_ALWAYS = (
    "device_profile pci_numa_affinity_policy cpu_policy"
    " emulator_threads_policy mem_encryption"
)


class Needs(NamedTuple):
    """The versions that a value needs."""

    libvirt: Version = _ANY
    qemu: Version = _ANY
    since_qemu: Version = _ANY
    """With this QEMU and newer ones only."""


VERSIONS: Mapping[tuple[str, str], Needs] = {
    # Older ones pass it on as a card that they do not know.
    ("vif_model", "igb"): Needs(libvirt=(9, 3, 0)),
    # Older ones refuse the name, whatever QEMU has.
    ("sound_model", "virtio"): Needs(libvirt=(10, 4, 0)),
    # libvirt's docs/formatdomain.rst. Nova has it since 29, which needs newer
    # ones; a Nova 27 runs on libvirt 6.0.
    ("packed_virtqueue", "true"): Needs(libvirt=(6, 3, 0)),
    ("viommu_model", "virtio"): Needs(libvirt=(8, 3, 0)),
    # Older ones ignore the elements of these, without an error.
    ("firmware_stateless", "true"): Needs(libvirt=(8, 6, 0)),
    ("maxphysaddr_mode", "emulate"): Needs(libvirt=(8, 7, 0)),
    ("maxphysaddr_mode", "passthrough"): Needs(libvirt=(8, 7, 0)),
    # Nova's minimum; libvirt lists what the processor has.
    ("mem_encryption_model", "amd-sev-es"): Needs(qemu=(8, 0, 0)),
    # It is part of the machine types, and in no list of devices. libvirt 9.0
    # passes -soundhw for it, and 11.3 does not; in between it was not tried.
    # QEMU 7.1 dropped that option (docs/about/removed-features.rst).
    ("sound_model", "pcspk"): Needs(libvirt=(9, 1, 0), since_qemu=(7, 1, 0)),
}
"""(row, value) -> the versions that it needs, beside QEMU's devices.

No list of libvirt's or QEMU's has what these say.
"""


def refusal(
    facts: LibvirtFacts, row: str, value: str, architecture: str
) -> str:
    """Return why the host cannot do ``value`` of ``row``; empty if it can.

    Also empty where that is not known (:func:`unknown`).

    ``architecture`` is i686, or empty for guests of the host's own.
    """
    virt_type, is_qemu = facts.virt_type, facts.is_qemu
    guest = architecture or facts.architecture
    if not is_qemu and row in _ONLY_QEMU.split():
        return f"not possible on {virt_type} hosts"
    possible = _POSSIBLE.get(row)
    guests = facts.guests.get(guest)
    reason = ""
    if possible is not None and (virt_type in possible or not is_qemu):
        values = possible.get(virt_type, "").split()
        reason = _one_of(values, value, f"possible on {virt_type} hosts")
    elif architecture and guests is None:
        reason = f"the host has no QEMU for {guest} guests"
    elif row in _ROWS:
        reason = _ROWS[row](facts, value, guest, guests or GuestFacts())
    if is_qemu and not reason:
        reason = _too_old(facts, row, value)
    if is_qemu and not reason:
        reason = _lacking_device(facts, row, value, guest)
    return reason or nova_guests.refusal(facts, row, value, guest)


def unknown(facts: LibvirtFacts) -> dict[Trait, str]:
    """Return why it is not known whether the host has some traits.

    All that virt_type and other options decide, where the configuration is
    not known; else what neither QEMU nor libvirt lists.
    """
    if facts.configuration_unknown:
        return _depending_on_configuration(facts.configuration_unknown)
    return _not_listed(facts) if facts.is_qemu else {}


def _not_listed(facts: LibvirtFacts) -> dict[Trait, str]:
    """Return the traits of devices and TPMs of which there is no list."""
    found: dict[Trait, str] = {}
    for row, value in (*DEVICES, ("viommu_model", "auto")):
        own = BY_NAME[row].values[value].trait
        for architecture in ("", "i686"):
            trait = own
            if own and architecture:
                trait = I686.get(own)
            guest = architecture or facts.architecture
            guests = facts.guests.get(guest, GuestFacts())
            if (
                trait
                and guests.devices is None
                and devices_for(facts, row, value, guest)
                and not refusal(facts, row, value, architecture)
            ):
                found[trait] = (
                    f"QEMU's devices are not known: {guests.devices_unknown}"
                )
    own_guests = facts.guests.get(facts.architecture, GuestFacts())
    if own_guests.tpm_versions is None:
        for version, term in BY_NAME["tpm_version"].values.items():
            if term.trait and not refusal(facts, "tpm_version", version, ""):
                found[term.trait] = (
                    "this libvirt does not list the versions of its emulated"
                    " TPM"
                )
    for trait in LACKING.keys() & found.keys():
        found[LACKING[trait]] = found[trait]
    return found


def _depending_on_configuration(reason: str) -> dict[Trait, str]:
    """Return all traits but those of the host's own processor.

    virt_type alone decides them.
    """
    found: dict[Trait, str] = {}
    for row in REPORTER.owns - {"architecture"}:
        for trait in BY_NAME[row].traits:
            for each in (trait, I686.get(trait, trait)):
                found[each] = (
                    f"nova-compute's configuration is not known: {reason}"
                )
    return found


def _lacking_device(
    facts: LibvirtFacts, row: str, value: str, guest: str
) -> str:
    """Return which device for a value QEMU does not have."""
    devices = facts.guests.get(guest, GuestFacts()).devices
    if devices is None:
        return ""
    needed = devices_for(facts, row, value, guest)
    missing = list_missing(needed, devices)
    if not missing:
        return ""
    return f"this QEMU has no device {' and no '.join(missing)}"


def _too_old(facts: LibvirtFacts, row: str, value: str) -> str:
    """Return which of libvirt and QEMU is too old for a value."""
    needs = VERSIONS.get((row, value))
    if not needs or facts.hypervisor_version < needs.since_qemu:
        return ""
    older = facts.list_older(needs.libvirt, needs.qemu)
    return "; ".join(
        f"needs {what} {needed}, found {found}"
        for what, found, needed in older
    )


def _one_of(values: Collection[str], value: str, what: str) -> str:
    if value in values:
        return ""
    return f"{what}: {', '.join(sorted(values)) or 'none'}"


# -- what depends on the guests of an architecture
# -----------------------------------------------------------------------------


def _viommu_model(
    _facts: LibvirtFacts, value: str, architecture: str, _guests: GuestFacts
) -> str:
    possible = {
        "auto": ("x86_64", "aarch64", "armv7l"),
        "virtio": ("x86_64", "aarch64"),
        "intel": ("x86_64",),
        "smmuv3": ("aarch64", "armv7l"),
    }[value]
    if guest_architecture(architecture) in possible:
        return ""
    return (
        f"it is for guests of {' and '.join(possible)}, not of {architecture}"
    )


def _machine_type(
    _facts: LibvirtFacts, value: str, architecture: str, guests: GuestFacts
) -> str:
    wanted = value
    names: Collection[str] = guests.machines
    if value in MACHINES or not guests.machines_are_complete:
        # By family: a family is named, or not all versions are listed.
        wanted = family_of(value)
        names = set(map(family_of, guests.machines))
    if wanted in names:
        return ""
    return f"QEMU has no machine type {wanted} for {architecture} guests"


def _default_machine(
    _facts: LibvirtFacts, value: str, _architecture: str, guests: GuestFacts
) -> str:
    default = guests.default_machine
    if default and family_of(default) == value:
        return ""
    return f"the default is {default or 'not known'}"


def _time_hpet(
    _facts: LibvirtFacts, _value: str, architecture: str, guests: GuestFacts
) -> str:
    if architecture != "x86_64":
        return f"guests of {architecture} have no HPET; only x86 has one"
    if any(family_of(name) in ("pc", "q35") for name in guests.machines):
        return ""
    return "it needs machine type pc or q35, and QEMU has neither"


# -- what depends on the host, and the guests of its own architecture
# --------------------------------------------------


def _scsi_model(
    facts: LibvirtFacts, value: str, _architecture: str, _guests: GuestFacts
) -> str:
    if value == "buslogic":
        return "QEMU has no such controller"
    if value == "ibmvscsi" and facts.architecture not in MACHINES["pseries"]:
        return f"it is for guests of {' and '.join(MACHINES['pseries'])}"
    return ""


def _cpu_thread_policy(
    facts: LibvirtFacts, value: str, _architecture: str, _guests: GuestFacts
) -> str:
    if value == "isolate":
        return "the cores run several threads" if facts.smt else ""
    if facts.smt:
        return ""
    return (
        "each core runs one thread (no SMT, or libvirt's capabilities list no"
        " topology)"
    )


def _image_type(
    facts: LibvirtFacts, value: str, _architecture: str, _guests: GuestFacts
) -> str:
    if (
        value == "qcow2"
        and facts.images_type in ("rbd", "lvm")
        and not facts.force_raw_images
    ):
        return (
            f"images_type is {facts.images_type} and force_raw_images is off"
        )
    if value == "ploop" and facts.virt_type == "parallels":
        return ""
    if value in ("aki", "ami", "ari", "iso", "raw", "qcow2"):
        return ""
    return f"Nova's libvirt driver runs no {value} images"


def _tpm(
    facts: LibvirtFacts, values: Collection[str], value: str, what: str
) -> str:
    if not facts.swtpm_enabled:
        return "[libvirt] swtpm_enabled is off"
    return _one_of(values, value, what)


def _tpm_version(
    facts: LibvirtFacts, value: str, _architecture: str, guests: GuestFacts
) -> str:
    versions: Collection[str] = ()
    if guests.tpm_models:
        # Old versions of libvirt do not list them, and swtpm may have either.
        versions = (value,)
        if guests.tpm_versions is not None:
            versions = guests.tpm_versions
    what = "versions of libvirt's emulated TPM"
    return _tpm(facts, versions, value, what)


def _secure_boot(
    facts: LibvirtFacts, _value: str, architecture: str, guests: GuestFacts
) -> str:
    if architecture == "aarch64" and not facts.built_by_nova:
        # <loader secure> in libvirt's capabilities is about x86's SMM; what
        # the firmware itself has is not listed.
        return "" if guests.uefi else "libvirt found no UEFI firmware"
    if not guests.secure_boot:
        return "libvirt found no UEFI firmware with secure boot"
    if facts.virt_type == "kvm" and facts.smm is False:
        return (
            "KVM here has no System Management Mode, which UEFI firmware with"
            " secure boot needs"
        )
    return ""


def _mem_encryption_model(
    facts: LibvirtFacts, value: str, _architecture: str, guests: GuestFacts
) -> str:
    found = guests.mem_encryption
    if facts.virt_type != "kvm":
        return "it needs virt_type kvm"
    if value == "amd-sev-es" and {value, "amd-sev-snp"} <= found:
        return "the host has SEV-SNP, with which Nova offers no SEV-ES"
    if (
        value == "intel-tdx"
        and value in found
        and facts.cpu_mode != "host-passthrough"
    ):
        return "it needs [libvirt] cpu_mode host-passthrough"
    return _one_of(found, value, "libvirt's models of memory encryption")


def _sound_model(
    _facts: LibvirtFacts, value: str, architecture: str, _guests: GuestFacts
) -> str:
    if value == "pcspk" and guest_architecture(architecture) != "x86_64":
        return f"it is part of x86's machine types, not of {architecture}"
    return ""


def _firmware_type(
    _facts: LibvirtFacts, value: str, architecture: str, guests: GuestFacts
) -> str:
    # "bios" is the firmware that QEMU has for a machine type, none on ARM's,
    # as in Nova.
    if value == "bios" or guests.uefi:
        return ""
    return f"libvirt found no UEFI firmware for {architecture} guests"


def _architecture(facts: LibvirtFacts, value: str, *_: object) -> str:
    if guest_architecture(value) == facts.architecture:
        return ""
    return f"the host is {facts.architecture}"


def _emulation_architecture(
    facts: LibvirtFacts, value: str, *_: object
) -> str:
    platform = guest_architecture(value)
    is_own = facts.is_qemu and platform == facts.architecture
    if is_own or platform in facts.emulated:
        return ""
    return f"the host has no QEMU for {value} guests"


def _usb_redirection(
    _facts: LibvirtFacts, _value: str, _architecture: str, guests: GuestFacts
) -> str:
    # The port leads to SPICE; a QEMU may have been built without.
    if guests.usb_redirection is False:
        return "libvirt lists no redirected USB devices, or no SPICE graphics"
    return ""


def _lacking(row: str, facts: LibvirtFacts, value: str, *_: object) -> str:
    """Return why the host need not report that it lacks a device."""
    if not facts.built_by_nova:
        return "no driver of Nova reports its devices"
    reported = value
    if row == "vif_model":
        reported = _POSSIBLE[row].get(facts.virt_type, "")
    # Nova's driver applies the versions of these as well.
    is_too_old = value in {"igb", "virtio"} and _too_old(facts, row, value)
    if value not in reported.split() or is_too_old:
        return "Nova's driver does not report the device either"
    return "" if refusal(facts, row, value, "") else "the host has the device"


def _cpu_models(facts: LibvirtFacts, *_: object) -> str:
    """Return why the CPU features that Nova reports are of one model."""
    if not facts.built_by_nova:
        return "no driver of Nova reports its CPU features"
    if facts.virt_type not in {"kvm", "qemu"} or facts.cpu_mode != "custom":
        return "guests get one CPU model: [libvirt] cpu_mode is not custom"
    several = len(set(facts.cpu_models)) > 1
    return "" if several else "[libvirt] cpu_models has one model"


# (facts, value, guest architecture, what libvirt can give such guests) ->
# reason
_ROWS: Mapping[str, Callable[[LibvirtFacts, str, str, GuestFacts], str]] = {
    **dict.fromkeys(
        ("disk_bus", "cdrom_bus"),
        lambda _, value, guest, guests: _one_of(
            guests.buses, value, f"possible for {guest} guests"
        ),
    ),
    "video_model": lambda _, value, guest, guests: _one_of(
        guests.video_models, value, f"possible for {guest} guests"
    ),
    "viommu_model": _viommu_model,
    "sound_model": _sound_model,
    "firmware_type": _firmware_type,
    "machine_type": _machine_type,
    "default_machine": _default_machine,
    "cpu_models": _cpu_models,
    "lacking_vif_model": partial(_lacking, "vif_model"),
    "lacking_sound_model": partial(_lacking, "sound_model"),
    "time_hpet": _time_hpet,
    **dict.fromkeys(
        ("ephemeral_encryption", "ephemeral_encryption_format"),
        lambda *_: "no image backend of Nova 34 encrypts ephemeral disks",
    ),
    "architecture": _architecture,
    "emulation_architecture": _emulation_architecture,
    "scsi_model": _scsi_model,
    "usb_redirection": _usb_redirection,
    "cpu_thread_policy": _cpu_thread_policy,
    "image_type": _image_type,
    "tpm_version": _tpm_version,
    "tpm_model": lambda facts, value, _, guests: _tpm(
        facts, guests.tpm_models, value, "libvirt's TPM models"
    ),
    "tpm_secret_security": lambda facts, value, *_: _tpm(
        facts,
        facts.tpm_secret_security,
        value,
        "[libvirt] supported_tpm_secret_security",
    ),
    "secure_boot": _secure_boot,
    "mem_encryption_model": _mem_encryption_model,
}


def reported_by_nova(facts: LibvirtFacts) -> frozenset[str]:
    """Return the traits that Nova's libvirt driver writes itself.

    It asks libvirt for KVM guests of each architecture, and so finds the
    host's own as the only emulated one.
    """
    if facts.virt_type != "kvm":
        return traits_reported_by_nova()
    emulated = BY_NAME["emulation_architecture"]
    own = emulated.values.get(facts.architecture)
    return traits_reported_by_nova() - (
        emulated.traits - {own.trait if own else None}
    )


REPORTER = Reporter(
    LibvirtFacts,
    refusal,
    # Not the rows of other packages.
    owns=frozenset(
        (
            *_POSSIBLE,
            *_ROWS,
            *_DEVICES_AND_VERSIONS.split(),
            *_ALWAYS.split(),
        )
    ),
    reported_by_nova=reported_by_nova,
    unknown=unknown,
)
"""The reporter ``libvirt``."""
