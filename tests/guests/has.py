# SPDX-License-Identifier: Apache-2.0

"""What a started guest has: its live XML, and the devices that QEMU itself
lists.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple
from xml.etree.ElementTree import Element

_DEVICE = re.compile(r"^ *dev: ([\w-]+)", re.MULTILINE)
_VIRTIO = "-(pci|ccw|device|pci-non-transitional|pci-transitional)"


class Seen(NamedTuple):
    xml: Element
    """libvirt's live XML."""
    devices: list[str]
    """QEMU's devices by type, one for each (``info qtree``)."""
    tree: str
    """The same with their properties, and its TPM."""

    def has(self, pattern: str) -> bool:
        """Return whether QEMU has a device whose type is a pattern."""
        return any(re.fullmatch(pattern, device) for device in self.devices)

    def has_element(self, path: str) -> bool:
        return self.xml.find(path) is not None

    def values_of(self, path: str, attribute: str) -> list[str | None]:
        """Return an attribute of each of these elements of the XML."""
        return [each.get(attribute) for each in self.xml.iterfind(path)]

    def all_are(self, path: str, attribute: str, value: str) -> bool:
        """Return whether elements of the XML, which a guest may lack, have
        this value of an attribute.
        """
        return set(self.values_of(path, attribute)) <= {value}


def seen(xml: Element, tree: str) -> Seen:
    """Return a started guest by its live XML and QEMU's tree of devices."""
    return Seen(xml, _DEVICE.findall(tree), tree)


def missing(guest: Seen, asked: Mapping[str, str]) -> tuple[str, ...]:
    """Return the rows of which a guest does not have the value that was asked
    for.
    """
    return tuple(
        row
        for row, value in asked.items()
        if row in _HAS and not _HAS[row](guest, value)
    )


def _by_devices(types: Mapping[str, str]) -> Callable[[Seen, str], bool]:
    """Return a check that QEMU has the device of a value, and none that stands
    for another value.
    """

    def check(guest: Seen, value: str) -> bool:
        return all(
            guest.has(pattern) == (other == value)
            for other, pattern in types.items()
        )

    return check


_VIDEO = {
    "vga": "VGA",
    "cirrus": "(isa-)?cirrus-vga",
    "vmvga": "vmware-svga",
    "qxl": "qxl(-vga)?",
    "virtio": f"virtio-(vga|gpu{_VIRTIO})",
    "bochs": "bochs-display",
}
_OTHER_VIFS = "e1000 e1000e igb ne2k_pci pcnet rtl8139 spapr-vlan vmxnet3"
_VIFS = {model: model for model in _OTHER_VIFS.split()}
_VIFS["virtio"] = f"virtio-net{_VIRTIO}"
_SCSI = {
    "lsilogic": "lsi(53c895a)?",
    "lsisas1068": "mptsas1068",
    "lsisas1078": "megasas",
    "vmpvscsi": "pvscsi",
    "virtio-scsi": f"virtio-scsi{_VIRTIO}",
    "ibmvscsi": "spapr-vscsi",
}
_SOUND = {
    "ac97": "AC97",
    "es1370": "ES1370",
    "ich6": "intel-hda",
    "ich9": "ich9-intel-hda",
    "sb16": "sb16",
    "usb": "usb-audio",
    "virtio": f"virtio-sound{_VIRTIO}",
}
_DISKS = {
    "virtio": f"virtio-blk{_VIRTIO}",
    "ide": "ide-hd",
    "sata": "ide-hd",
    "scsi": "scsi-hd",
    "usb": "usb-storage",
}
_CDROMS = {
    "ide": "ide-cd",
    "sata": "ide-cd",
    "scsi": "scsi-cd",
    "usb": "usb-storage",
}


def _has_disk(
    kind: str, types: Mapping[str, str]
) -> Callable[[Seen, str], bool]:
    disk = f"devices/disk[@device='{kind}']"

    def check(guest: Seen, value: str) -> bool:
        if not guest.has_element(disk):
            return True
        is_on_bus = guest.all_are(f"{disk}/target", "bus", value)
        return is_on_bus and guest.has(types[value])

    return check


def _has_sound(guest: Seen, value: str) -> bool:
    # A part of each board: libvirt gives it what it plays to.
    if value == "pcspk":
        plays = guest.has_element("devices/sound[@model='pcspk']")
        return plays and guest.has("isa-pcspk")
    return _by_devices(_SOUND)(guest, value)


def _has_usb_model(guest: Seen, value: str) -> bool:
    if value == "none":
        return not guest.has(".*(usb-uhci.*|xhci|ehci.*|ohci)")
    models = {"nec-xhci": "nec-usb-xhci", "qemu-xhci": "qemu-xhci"}
    return guest.has(models[value])


def _has_viommu(guest: Seen, value: str) -> bool:
    models = set(guest.values_of("devices/iommu", "model"))
    if value == "auto":
        return bool(models)
    types = {"intel": "intel-iommu", "virtio": f"virtio-iommu{_VIRTIO}"}
    if models != {value}:
        return False
    return value == "smmuv3" or guest.has(types[value])


def _has_firmware(guest: Seen, value: str) -> bool:
    has_uefi = guest.has_element("os/loader[@type='pflash']")
    return has_uefi == (value == "uefi")


def _has_secure_boot(guest: Seen, value: str) -> bool:
    feature = "feature[@enabled='yes'][@name='secure-boot']"
    enabled = guest.has_element(f"os/firmware/{feature}")
    secure = guest.has_element("os/loader[@secure='yes']")
    # "optional" may be either.
    return value == "optional" or (enabled or secure) == (value == "required")


def _has_tpm(attribute: str, path: str) -> Callable[[Seen, str], bool]:
    """Return a check of the XML, and that QEMU has the model of TPM which the
    XML has (``info tpm``).
    """

    def check(guest: Seen, value: str) -> bool:
        tpm = guest.xml.find("devices/tpm")
        if tpm is None or f"model={tpm.get('model')}" not in guest.tree:
            return False
        return guest.has_element(f"{path}[@{attribute}='{value}']")

    return check


def _has_input(guest: Seen, value: str) -> bool:
    pattern = {"usb": "usb-tablet", "virtio": f"virtio-tablet{_VIRTIO}"}[value]
    tablet = "devices/input[@type='tablet']"
    return guest.has(pattern) and guest.all_are(tablet, "bus", value)


def _has_watchdog(guest: Seen, value: str) -> bool:
    watchdog = "devices/watchdog[@model='i6300esb']"
    actions = guest.values_of(watchdog, "action")
    expected = [] if value == "disabled" else [value]
    return actions == expected and guest.has("i6300esb") == bool(actions)


def _has_scsi_model(guest: Seen, value: str) -> bool:
    # libvirt adds others for disks of other buses.
    return guest.has(_SCSI[value])


def _has_usb_redirection(guest: Seen, value: str) -> bool:
    return guest.devices.count("usb-redir") == int(value)


def _has_hpet(guest: Seen, value: str) -> bool:
    return guest.has("hpet") == (value == "true")


def _has_packed_virtqueue(guest: Seen, value: str) -> bool:
    # Off is what QEMU does by itself.
    if value == "false":
        return True
    return f"packed = {value}" in guest.tree and guest.has(_VIFS["virtio"])


def _is_stateless(guest: Seen, value: str) -> bool:
    stateless = guest.has_element("os/loader[@stateless='yes']")
    return stateless == (value == "true")


def _has_address_space(guest: Seen, value: str) -> bool:
    return guest.has_element(f"cpu/maxphysaddr[@mode='{value}']")


def _has_pointer(guest: Seen, _value: str) -> bool:
    return guest.has("usb-tablet")


_HAS: Mapping[str, Callable[[Seen, str], bool]] = {
    "vif_model": _by_devices(_VIFS),
    "video_model": _by_devices(_VIDEO),
    "disk_bus": _has_disk("disk", _DISKS),
    "cdrom_bus": _has_disk("cdrom", _CDROMS),
    "scsi_model": _has_scsi_model,
    "sound_model": _has_sound,
    "usb_model": _has_usb_model,
    "usb_redirection": _has_usb_redirection,
    "viommu_model": _has_viommu,
    "firmware_type": _has_firmware,
    "time_hpet": _has_hpet,
    "packed_virtqueue": _has_packed_virtqueue,
    "tpm_version": _has_tpm("version", "devices/tpm/backend"),
    "tpm_model": _has_tpm("model", "devices/tpm"),
    "secure_boot": _has_secure_boot,
    "firmware_stateless": _is_stateless,
    "maxphysaddr_mode": _has_address_space,
    "input_bus": _has_input,
    "pointer_model": _has_pointer,
    "watchdog": _has_watchdog,
}
"""Row -> whether a guest has a value of it."""
