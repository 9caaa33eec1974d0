"""What hosts with Cloud Hypervisor can do."""

from __future__ import annotations

from typing import ClassVar

from os_prefilter import HostFacts, Reporter
from os_prefilter.common.dataclasses import dataclass

CAN = {
    "vif_model": {"virtio"},
    # A bus has one trait for disks and CD-ROMs.
    **{bus: {"virtio"} for bus in ("disk_bus", "cdrom_bus")},
    "vm_mode": {"hvm"},
    "gpu_sharing": {"partitions"},
}


@dataclass(frozen=True, kw_only=True)
class CloudHypervisorFacts(HostFacts):
    """What is known of a host."""

    driver: ClassVar[str] = "cloud_hypervisor"

    architecture: str
    has_uefi: bool
    """Whether the firmware is installed."""


def refusal(
    facts: CloudHypervisorFacts, row: str, value: str, architecture: str
) -> str:
    """Return why the host cannot do ``value`` of ``row``; empty if it can."""
    if architecture not in ("", facts.architecture):
        return "Cloud Hypervisor emulates no other architecture"
    if row == "firmware_type":
        return (
            ""
            if value == "uefi" and facts.has_uefi
            else "the firmware is not installed, or not there at all"
        )
    return (
        ""
        if value in CAN[row]
        else f"Cloud Hypervisor has {', '.join(CAN[row])}"
    )


REPORTER = Reporter(
    CloudHypervisorFacts, refusal, owns=frozenset((*CAN, "firmware_type"))
)
