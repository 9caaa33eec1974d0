# SPDX-License-Identifier: Apache-2.0

"""QEMU's devices behind the values of the vocabulary.

The names are those of ``qemu-system-x86_64 -machine none -device help``, as
libvirt passes them to QEMU (``src/qemu/qemu_command.c``). A build of QEMU that
lacks one starts no guest with the value.

Values without an entry need no device that QEMU lists:

- ``pcspk`` is part of x86's machine types, and ``smmuv3`` an option of the
  machine type virt
- on ARM ``lan9118``, which is soldered onto boards
- buses, video models and TPMs are in libvirt's domain capabilities, which
  follow QEMU's list themselves
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from os_prefilter.hosts.drivers.libvirt_facts import LibvirtFacts, Version

_ARM = ("aarch64", "armv7l")
_VIRTIO_NET = "virtio-net-pci|virtio-net-ccw"
# From this version on, Nova's "auto" is virtio's.
_AUTO_IS_VIRTIO: Version = (8, 3, 0)

# On s390x, virtio's are channel devices.
DEVICES: Mapping[tuple[str, str], str] = {
    ("vif_model", "e1000"): "e1000",
    ("vif_model", "e1000e"): "e1000e",
    ("vif_model", "igb"): "igb",
    ("vif_model", "lan9118"): "lan9118",
    ("vif_model", "ne2k_pci"): "ne2k_pci",
    ("vif_model", "pcnet"): "pcnet",
    ("vif_model", "rtl8139"): "rtl8139",
    ("vif_model", "spapr-vlan"): "spapr-vlan",
    ("vif_model", "virtio"): _VIRTIO_NET,
    ("vif_model", "vmxnet3"): "vmxnet3",
    ("packed_virtqueue", "true"): _VIRTIO_NET,
    ("scsi_model", "ibmvscsi"): "spapr-vscsi",
    ("scsi_model", "lsilogic"): "lsi53c895a",
    ("scsi_model", "lsisas1068"): "mptsas1068",
    ("scsi_model", "lsisas1078"): "megasas",
    ("scsi_model", "virtio-scsi"): "virtio-scsi-pci|virtio-scsi-ccw",
    ("scsi_model", "vmpvscsi"): "pvscsi",
    # libvirt's default codec.
    ("sound_model", "ich6"): "intel-hda hda-duplex",
    ("sound_model", "ich9"): "ich9-intel-hda hda-duplex",
    ("sound_model", "ac97"): "AC97",
    ("sound_model", "es1370"): "ES1370",
    ("sound_model", "sb16"): "sb16",
    ("sound_model", "usb"): "usb-audio",
    ("sound_model", "virtio"): "virtio-sound-pci",
    ("usb_model", "nec-xhci"): "nec-usb-xhci",
    ("usb_model", "qemu-xhci"): "qemu-xhci",
    ("input_bus", "usb"): "usb-tablet usb-kbd",
    ("input_bus", "virtio"): (
        "virtio-tablet-pci|virtio-tablet-ccw"
        " virtio-keyboard-pci|virtio-keyboard-ccw"
    ),
    # It has the trait of the input bus.
    ("pointer_model", "usbtablet"): "usb-tablet usb-kbd",
    **{("usb_redirection", str(ports)): "usb-redir" for ports in range(1, 16)},
    **{
        ("watchdog", action): "i6300esb"
        for action in ("none", "pause", "poweroff", "reset")
    },
    ("viommu_model", "intel"): "intel-iommu",
    ("viommu_model", "virtio"): "virtio-iommu-pci",
}
"""(row, value) -> all the devices that it needs, separated by spaces.

With ``|`` between devices, it needs one of them.
"""


def devices_for(
    facts: LibvirtFacts, row: str, value: str, architecture: str
) -> str:
    """Return the devices for a value, as in :data:`DEVICES`; empty for none.

    :param architecture: the guest's, by Nova's name
    """
    if (row, value) == ("viommu_model", "auto"):
        if facts.built_by_nova and facts.libvirt_version >= _AUTO_IS_VIRTIO:
            value = "virtio"
        elif architecture in ("x86_64", "i686"):
            value = "intel"
    if value == "lan9118" and architecture in _ARM:
        return ""
    return DEVICES.get((row, value), "")


def list_missing(needed: str, devices: Iterable[str]) -> list[str]:
    """Return the needed devices that a QEMU does not have.

    :param needed: as in :data:`DEVICES`
    """
    found = frozenset(devices)
    return [
        each for each in needed.split() if found.isdisjoint(each.split("|"))
    ]
