# SPDX-License-Identifier: Apache-2.0

"""Capabilities of hosts of Nova's VMware driver.

That is what the driver reads, not all that vSphere could do.

Source: ``nova/virt/vmwareapi`` in Nova 34. It reports an architecture and the
image types, and no device model. It silently ignores any other property, and
the guest starts without what was required. That is a no here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from os_prefilter.common.dataclasses import dataclass
from os_prefilter.hosts.reporter import (
    HostFacts,
    Reporter,
    traits_without_devices,
)
from os_prefilter.vocabulary import BY_NAME
from os_prefilter.vocabulary.machine_types import guest_architecture

# Of disks (images.py, VMwareImage.from_image; any other value is ignored).
# hw_cdrom_bus is not read: a CD-ROM is always on IDE. But a bus has one trait
# for both, so CD-ROMs count as disks do: else no image with hw_disk_bus=scsi
# could be placed.
_BUSES = ("the disk buses", frozenset(("ide", "scsi")))

# row -> what it is called, the values
_CAN: Mapping[str, tuple[str, frozenset[str]]] = {
    # vm_util.py, convert_vif_model: anything else is an error.
    "vif_model": (
        "the VIF models",
        frozenset(["e1000", "e1000e", "pcnet", "sriov", "vmxnet", "vmxnet3"]),
    ),
    **dict.fromkeys(("disk_bus", "cdrom_bus"), _BUSES),
    # images.py again. Any other model is ignored: the adapter is then LSI
    # Logic.
    "scsi_model": (
        "the SCSI models",
        frozenset(("buslogic", "lsilogic", "lsisas1068", "vmpvscsi")),
    ),
    # vmops.py, _get_extra_specs: efi or bios in the configuration of the
    # virtual machine.
    "firmware_type": ("the firmware", frozenset(("bios", "uefi"))),
    # host.py, supported_instances.
    "hypervisor_type": ("the hypervisor type", frozenset(("vmware",))),
    "vm_mode": ("the virtual machine mode", frozenset(("hvm",))),
    # driver.py, capabilities; images.py refuses what is not in
    # constants.DISK_FORMATS_ALL.
    "image_type": ("the image types", frozenset(("iso", "vmdk"))),
}
# A guest always has VMware's own video card; the driver leaves the timer as
# vSphere has it.
_IGNORED = """
video_model emulation_architecture viommu_model sound_model usb_model
usb_redirection input_bus pointer_model watchdog machine_type time_hpet
packed_virtqueue ephemeral_encryption ephemeral_encryption_format tpm_version
tpm_model tpm_secret_security secure_boot firmware_stateless maxphysaddr_mode
pci_numa_affinity_policy
"""
_NEVER = {
    "default_machine": "VMware has none of QEMU's machine types",
    **dict.fromkeys(
        ("lacking_vif_model", "lacking_sound_model"),
        "Nova's VMware driver reports no devices",
    ),
    "cpu_models": "Nova's VMware driver reports no CPU features",
    "device_profile": "Nova's VMware driver attaches no accelerators",
}


@dataclass(frozen=True, kw_only=True)
class VmwareFacts(HostFacts):
    """The facts of a vSphere cluster: the same for each, as the driver is."""

    driver: ClassVar[str] = "vmware"

    architecture: str = "x86_64"


def refusal(
    facts: VmwareFacts, row: str, value: str, architecture: str
) -> str:
    """Return why the host cannot do ``value`` of ``row``; empty if it can.

    ``architecture`` is that of the guest.
    """
    term = BY_NAME[row].values.get(value)
    if term and term.trait is None:
        return ""
    guest = guest_architecture(
        value if row == "architecture" else architecture
    )
    if guest not in ("", facts.architecture):
        return (
            f"VMware runs guests of {facts.architecture} only, not of {guest}"
        )
    if row == "architecture":
        return ""
    if row in _CAN:
        what, values = _CAN[row]
        if value in values:
            return ""
        return f"VMware has {what} {', '.join(sorted(values))}, not {value}"
    ignored = BY_NAME[row].image_property or BY_NAME[row].extra_spec
    return _NEVER.get(row) or f"Nova's VMware driver ignores {ignored}"


# Operators may set traits for what the processors of a cluster have (threads,
# encryption of memory).
REPORTER = Reporter(
    VmwareFacts,
    refusal,
    owns=frozenset(("architecture", *_CAN, *_IGNORED.split(), *_NEVER)),
    reported_by_nova=traits_without_devices,
)
"""The reporter ``vmware``."""
