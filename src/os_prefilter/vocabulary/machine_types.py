# SPDX-License-Identifier: Apache-2.0

"""Guest platforms: architectures, machine types, and what these lack.

A host that offers a device on one machine type does not offer it on every one:
q35 has no IDE, isapc no HPET. Nova's libvirt driver reports what any machine
type of any architecture has. The table here has the families of machine types
that cannot have a device, with any version of QEMU (``hw/*/`` in QEMU,
``src/qemu/qemu_validate.c`` in libvirt); the tests compare it with libvirt's
capabilities (ADR 0004).
"""

from __future__ import annotations

from collections.abc import Mapping

ARCHITECTURES = (
    "aarch64 alpha armv6 armv7b armv7l cris i686 ia64 lm32 m68k microblaze"
    " microblazeel mips mips64 mips64el mipsel openrisc parisc parisc64 ppc"
    " ppc64 ppc64le ppcemb ppcle s390 s390x sh4 sh4eb sparc sparc64 unicore32"
    " x86_64 xtensa xtensaeb"
)
"""The architectures that Nova knows (``nova/objects/fields.py``), by space."""

ARCHITECTURE_ALIASES: Mapping[str, str] = {
    "amd64": "x86_64",
    "i386": "i686",
    "i486": "i686",
    "i586": "i686",
    "x86_32": "i686",
    "x86_32p": "i686",
}

LIBVIRT_ARCHITECTURES: Mapping[str, str] = {"armv6": "armv6l"}
"""Nova's name of an architecture -> libvirt's, where they differ.

As in ``src/util/virarch.c``.
"""

OTHER = "other"
"""The family of a machine type that is in no family of :data:`MACHINES`."""

MACHINES: Mapping[str, tuple[str, ...]] = {
    "isapc": ("x86_64",),
    "microvm": ("x86_64",),
    "pc": ("x86_64",),
    "pseries": ("ppc64", "ppc64le"),
    "q35": ("x86_64",),
    "s390-ccw-virtio": ("s390x",),
    "virt": ("aarch64", "armv7l"),
}
"""Family of machine types -> the architectures of their guests."""

MACHINE_PREFIXES: Mapping[str, str] = {
    "pc-q35-": "q35",
    "pc-i440fx-": "pc",
    "pseries-": "pseries",
    "s390-ccw-virtio-": "s390-ccw-virtio",
    "virt-": "virt",
}
"""How the names of exact versions begin: ``pc-q35-9.1``."""

PLATFORM_ARCHITECTURES = tuple(
    sorted({arch for archs in MACHINES.values() for arch in archs})
)
"""The architectures whose machine types are known.

The same device may exist for one of them and not for another.
"""

_EVERYWHERE = frozenset((*MACHINES, OTHER))
_BUS_ROWS = ("disk_bus", "cdrom_bus")
# libvirt puts devices of these machine types on a PCI bus; isapc and microvm
# have none. QEMU for s390x has few PCI devices, and no version had more than
# these; virtio is a channel device there.
_PCI = "pc q35 pseries virt other"
_VIRTIO = f"{_PCI} s390-ccw-virtio"
_ISA = "isapc pc q35 other"
_X86 = "isapc microvm pc q35 other"

# (row, value) -> the families of machine types that can have it, with any
# version; OTHER where that is not known. All others refuse it: seen with each
# libvirt and QEMU of tests/guests/starts, or in Nova's code. Without an entry,
# every family may have the value.
_ONLY_ON: dict[tuple[str, str], str] = {
    **{
        ("vif_model", nic): _PCI
        for nic in ("e1000", "ne2k_pci", "pcnet", "rtl8139", "vmxnet3")
    },
    **{("vif_model", nic): _VIRTIO for nic in ("e1000e", "igb", "virtio")},
    # Soldered onto boards of ARM's.
    ("vif_model", "lan9118"): "other",
    ("vif_model", "spapr-vlan"): "pseries",
    **{
        ("video_model", model): _PCI
        for model in ("bochs", "cirrus", "qxl", "vga", "vmvga")
    },
    ("video_model", "virtio"): _VIRTIO,
    # isapc has it, and libvirt does not use it.
    **{(row, "ide"): "pc other" for row in _BUS_ROWS},
    **{(row, "sata"): _PCI for row in _BUS_ROWS},
    **{
        (row, bus): _VIRTIO
        for row in _BUS_ROWS
        for bus in ("scsi", "usb", "virtio")
    },
    # libvirt refuses these buses for such devices, whatever the machine type.
    **{(row, "fdc"): "" for row in _BUS_ROWS},
    ("cdrom_bus", "virtio"): "",
    **{
        ("scsi_model", model): _PCI
        for model in ("lsilogic", "lsisas1068", "lsisas1078", "vmpvscsi")
    },
    ("scsi_model", "virtio-scsi"): _VIRTIO,
    # QEMU calls it spapr-vscsi.
    ("scsi_model", "ibmvscsi"): "pseries",
    **{
        ("sound_model", model): _PCI
        for model in ("ac97", "es1370", "ich6", "ich9", "virtio")
    },
    ("sound_model", "usb"): _VIRTIO,
    **{("sound_model", model): _ISA for model in ("pcspk", "sb16")},
    ("usb_model", "nec-xhci"): _PCI,
    ("usb_model", "qemu-xhci"): _VIRTIO,
    ("input_bus", "usb"): _VIRTIO,
    ("input_bus", "virtio"): _VIRTIO,
    ("pointer_model", "usbtablet"): _VIRTIO,
    **{("usb_redirection", str(number)): _VIRTIO for number in range(1, 16)},
    **{
        ("watchdog", action): _PCI
        for action in ("none", "pause", "poweroff", "reset")
    },
    # Of network cards, which need a bus.
    ("packed_virtqueue", "true"): _VIRTIO,
    # Nova: InvalidVIOMMUMachineType.
    ("viommu_model", "auto"): "q35 virt",
    ("viommu_model", "virtio"): "q35 virt",
    ("viommu_model", "intel"): "q35",
    ("viommu_model", "smmuv3"): "virt",
    # isapc and microvm accept it and silently give none.
    ("time_hpet", "true"): "pc q35",
    # Others have no such firmware. For microvm Fedora alone has some, an
    # experimental port, and libvirt gives such a guest no disk from which it
    # could boot.
    ("firmware_type", "uefi"): "pc q35 virt",
    # On x86 it needs system management mode, which libvirt and the firmware
    # support only on q35.
    ("secure_boot", "required"): "q35 virt",
    ("tpm_version", "1.2"): _X86,
    ("tpm_model", "tpm-crb"): _X86,
    ("tpm_model", "tpm-tis"): f"{_X86} virt",
    # The CPU of isapc has 32 bits.
    ("maxphysaddr_mode", "emulate"): "microvm pc q35 other",
    ("maxphysaddr_mode", "passthrough"): _X86,
    # Nova: InvalidMachineType.
    **{
        ("mem_encryption_model", model): "q35"
        for model in ("amd-sev", "amd-sev-es", "amd-sev-snp", "intel-tdx")
    },
}
FAMILIES_WITHOUT: Mapping[tuple[str, str], frozenset[str]] = {
    key: _EVERYWHERE - set(families.split())
    for key, families in _ONLY_ON.items()
}
"""(row, value) -> the families of machine types that can never have it."""

I686_FAMILIES = frozenset(
    (*(name for name, guests in MACHINES.items() if "x86_64" in guests), OTHER)
)
"""The families of machine types of guests of i686."""

# QEMU's processors for i686 have 32 bits, and libvirt has Secure Boot for
# x86_64 alone.
NEVER_OF_I686 = frozenset(
    (("maxphysaddr_mode", "emulate"), ("secure_boot", "required"))
)
"""(row, value) pairs that no machine type of i686 has."""


def family_of(machine: str) -> str:
    """Return the family of a machine type: ``q35`` for ``pc-q35-9.1``.

    :data:`OTHER` for an unknown one.
    """
    if machine in MACHINES:
        return machine
    return next(
        (
            family
            for prefix, family in MACHINE_PREFIXES.items()
            if machine.startswith(prefix)
        ),
        OTHER,
    )


def guest_architecture(architecture: str) -> str:
    """Return the platform of an architecture: x86_64 for i686."""
    return "x86_64" if architecture == "i686" else architecture


def families_without(row: str, value: str) -> frozenset[str]:
    """Return the families of machine types that never have a row's value."""
    return FAMILIES_WITHOUT.get((row, value), frozenset())
