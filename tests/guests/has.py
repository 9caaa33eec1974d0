# SPDX-License-Identifier: Apache-2.0

"""What a started guest has: its live XML, and the devices that QEMU itself
lists.
"""

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

    def all_are(self, path: str, attribute: str, value: str) -> bool:
        """Return whether elements of the XML, which a guest may lack, have
        this value of an attribute.
        """
        return {
            element.get(attribute) for element in self.xml.iterfind(path)
        } <= {value}


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
_VIFS = {"virtio": f"virtio-net{_VIRTIO}"}
_VIFS |= {
    model: model
    for model in (
        "e1000",
        "e1000e",
        "igb",
        "ne2k_pci",
        "pcnet",
        "rtl8139",
        "spapr-vlan",
        "vmxnet3",
    )
}
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
    def check(guest: Seen, value: str) -> bool:
        disks = guest.xml.findall(f"devices/disk[@device='{kind}']")
        return not disks or (
            guest.all_are(
                f"devices/disk[@device='{kind}']/target", "bus", value
            )
            and guest.has(types[value])
        )

    return check


def _has_sound(guest: Seen, value: str) -> bool:
    # A part of each board: libvirt gives it what it plays to.
    if value == "pcspk":
        return (
            guest.has("isa-pcspk")
            and guest.xml.find("devices/sound[@model='pcspk']") is not None
        )
    return _by_devices(_SOUND)(guest, value)


def _has_usb_model(guest: Seen, value: str) -> bool:
    models = {"nec-xhci": "nec-usb-xhci", "qemu-xhci": "qemu-xhci"}
    return (
        not guest.has(".*(usb-uhci.*|xhci|ehci.*|ohci)")
        if value == "none"
        else guest.has(models[value])
    )


def _has_viommu(guest: Seen, value: str) -> bool:
    models = {
        each.get("model") for each in guest.xml.iterfind("devices/iommu")
    }
    types = {"intel": "intel-iommu", "virtio": f"virtio-iommu{_VIRTIO}"}
    return (
        bool(models)
        if value == "auto"
        else models == {value}
        and (value == "smmuv3" or guest.has(types[value]))
    )


def _has_firmware(guest: Seen, value: str) -> bool:
    loader = guest.xml.find("os/loader")
    return (loader is not None and loader.get("type") == "pflash") == (
        value == "uefi"
    )


def _has_secure_boot(guest: Seen, value: str) -> bool:
    enabled = (
        guest.xml.find(
            "os/firmware/feature[@enabled='yes'][@name='secure-boot']"
        )
        is not None
    )
    secure = guest.xml.find("os/loader[@secure='yes']") is not None
    # "optional" may be either.
    return value == "optional" or (enabled or secure) == (value == "required")


def _has_tpm(attribute: str, path: str) -> Callable[[Seen, str], bool]:
    """Return a check of the XML, and that QEMU has the model of TPM which the
    XML has (``info tpm``).
    """

    def check(guest: Seen, value: str) -> bool:
        tpm = guest.xml.find("devices/tpm")
        has_model = (
            tpm is not None and f"model={tpm.get('model')}" in guest.tree
        )
        return (
            has_model
            and guest.xml.find(f"{path}[@{attribute}='{value}']") is not None
        )

    return check


def _has_input(guest: Seen, value: str) -> bool:
    pattern = {"usb": "usb-tablet", "virtio": f"virtio-tablet{_VIRTIO}"}[value]
    return guest.has(pattern) and guest.all_are(
        "devices/input[@type='tablet']", "bus", value
    )


def _has_watchdog(guest: Seen, value: str) -> bool:
    actions = [
        each.get("action")
        for each in guest.xml.iterfind("devices/watchdog[@model='i6300esb']")
    ]
    return actions == ([] if value == "disabled" else [value]) and guest.has(
        "i6300esb"
    ) == bool(actions)


_HAS: Mapping[str, Callable[[Seen, str], bool]] = {
    "vif_model": _by_devices(_VIFS),
    "video_model": _by_devices(_VIDEO),
    "disk_bus": _has_disk("disk", _DISKS),
    "cdrom_bus": _has_disk("cdrom", _CDROMS),
    # libvirt adds others for disks of other buses.
    "scsi_model": lambda guest, value: guest.has(_SCSI[value]),
    "sound_model": _has_sound,
    "usb_model": _has_usb_model,
    "usb_redirection": lambda guest, value: (
        guest.devices.count("usb-redir") == int(value)
    ),
    "viommu_model": _has_viommu,
    "firmware_type": _has_firmware,
    "time_hpet": lambda guest, value: guest.has("hpet") == (value == "true"),
    "packed_virtqueue": lambda guest, value: (
        (f"packed = {value}" in guest.tree and guest.has(_VIFS["virtio"]))
        # Off is what QEMU does by itself.
        or value == "false"
    ),
    "tpm_version": _has_tpm("version", "devices/tpm/backend"),
    "tpm_model": _has_tpm("model", "devices/tpm"),
    "secure_boot": _has_secure_boot,
    "firmware_stateless": lambda guest, value: (
        (guest.xml.find("os/loader[@stateless='yes']") is not None)
        == (value == "true")
    ),
    "maxphysaddr_mode": lambda guest, value: (
        guest.xml.find(f"cpu/maxphysaddr[@mode='{value}']") is not None
    ),
    "input_bus": _has_input,
    "pointer_model": lambda guest, _value: guest.has("usb-tablet"),
    "watchdog": _has_watchdog,
}
"""Row -> whether a guest has a value of it."""
