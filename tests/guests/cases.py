"""The guests that are started: each value of each row, on each machine type, and one of each architecture."""

from collections.abc import Iterator
from typing import NamedTuple

from os_prefilter import RequestSpec
from os_prefilter.hosts.drivers.libvirt_facts import LibvirtFacts
from os_prefilter.vocabulary import BY_NAME
from os_prefilter.vocabulary.machine_types import MACHINES
from tests.conftest import spec_of

ROWS = (
    *("vif_model", "video_model", "disk_bus", "cdrom_bus", "scsi_model", "sound_model", "usb_model", "viommu_model"),
    *("firmware_type", "time_hpet", "packed_virtqueue", "tpm_version", "tpm_model", "secure_boot"),
    *("firmware_stateless", "maxphysaddr_mode", "usb_redirection", "input_bus", "pointer_model", "watchdog"),
)
"""The rows that change the guest's XML; memory encryption needs processors that no test can count on."""

SOME_VALUES = {"usb_redirection": ("1", "15")}
"""The values of a row that are started, where not all: the least and the most of a number."""
# What a value means nothing without.
_BESIDE = {
    "cdrom_bus": {"disk_format": "iso"},
    "scsi_model": {"hw_disk_bus": "scsi"},
    "tpm_model": {"hw_tpm_version": "2.0"},
    "secure_boot": {"hw_firmware_type": "uefi"},
    "firmware_stateless": {"hw_firmware_type": "uefi"},
    "maxphysaddr_mode": {"hw_maxphysaddr_bits": "40"},
}
_NEEDS_NOTHING = {("maxphysaddr_mode", "passthrough")}


_S390X = ("vif_model e1000e", "usb_model qemu-xhci", "sound_model usb", "input_bus usb", "pointer_model usbtablet")
NOT_SAID = frozenset(
    (
        *(("9.0", "ours", f"s390x s390-ccw-virtio {asked}") for asked in _S390X),
        ("9.0", "ours", "s390x s390-ccw-virtio usb_redirection 1"),
        ("9.0", "ours", "s390x s390-ccw-virtio usb_redirection 15"),
        # Its tablet is no USB device, unlike that of the other guests of s390x that Nova builds.
        ("9.0", "Nova", "s390x s390-ccw-virtio input_bus virtio"),
        ("9.0", "Nova", "x86_64 q35 secure_boot optional"),
        # On KVM without System Management Mode.
        ("11.3", "Nova", "x86_64 q35 secure_boot optional"),
    )
)
"""(libvirt, driver, guest) of which no trait says what became of the guest. A trait speaks of guests of the host's own
architecture, but for rows that are asked for by architecture; that of UEFI speaks of guests without Secure Boot."""


class Case(NamedTuple):
    """A guest with one thing asked for, or none."""

    architecture: str
    machine: str = ""
    """The machine type that the image names; empty if it names none."""
    row: str = ""
    value: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, self)) or "nothing"

    @property
    def device(self) -> str:
        """What must be found in the guest: see :attr:`tests.guests.starter.Guest.device`."""
        if self[2:] == ("time_hpet", "true"):
            return "hpet"
        return "interface" if self.row == "vif_model" else ""

    def properties(self, own: str) -> dict[str, object]:
        """Return the image's properties, with its format under ``disk_format``.

        :param own: the architecture of the host
        """
        found: dict[str, object] = {}
        if self.architecture != own:
            found["hw_emulation_architecture"] = self.architecture
        if self.machine:
            found["hw_machine_type"] = self.machine
        if self.row:
            if (self.row, self.value) not in _NEEDS_NOTHING:
                found |= _BESIDE.get(self.row, {})
            found[str(BY_NAME[self.row].image_property)] = self.value
        return found

    def spec(self, own: str) -> RequestSpec:
        """Return the request for the guest."""
        properties = self.properties(own)
        disk_format = properties.pop("disk_format", "raw")
        return spec_of(properties, disk_format=str(disk_format))


def cases(facts: LibvirtFacts) -> Iterator[Case]:
    """Yield the guests to start on a host: those that it has an emulator for."""
    for architecture in BY_NAME["emulation_architecture"].values:
        if architecture in facts.guests:
            yield Case(architecture)
    own = facts.architecture
    platforms = [(own, ""), *((guest, machine) for machine, guests in MACHINES.items() for guest in guests)]
    for architecture, machine in platforms:
        if architecture not in facts.guests:
            continue
        if machine:
            yield Case(architecture, machine)
        for row in ROWS:
            for value in SOME_VALUES.get(row, BY_NAME[row].values):
                yield Case(architecture, machine, row, value)


def not_said(case: Case, facts: LibvirtFacts) -> tuple[str, str, str]:
    """Return the key of a guest in :data:`NOT_SAID`."""
    return ".".join(map(str, facts.libvirt_version[:2])), "Nova" if facts.built_by_nova else "ours", str(case)
