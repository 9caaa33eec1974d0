# SPDX-License-Identifier: Apache-2.0

"""The platform of a guest: architecture, machine type, disk buses."""

from __future__ import annotations

from typing import NamedTuple

from os_prefilter.common.placement_values import resource_amount
from os_prefilter.common.trait_names import Trait
from os_prefilter.request.view import Request, cached_per_request
from os_prefilter.vocabulary import BY_NAME, I686, machine_types

_ARCHITECTURE = BY_NAME["architecture"]
_EMULATION = BY_NAME["emulation_architecture"]
_MACHINE = BY_NAME["machine_type"]
_DEFAULT_MACHINES = {
    family: Trait(str(term.trait))
    for family, term in BY_NAME["default_machine"].values.items()
}
I686_SOURCE = "image property hw_architecture=i686"


class Guest(NamedTuple):
    """The platform that a request describes.

    Empty where it leaves that to the host.
    """

    emulated: str = ""
    """The architecture to emulate: ``hw_emulation_architecture``.

    Hosts report what guests of their own architecture have, so the devices of
    an emulated one are not matched.
    """
    is_i686: bool = False
    """True for a guest of i686, which hosts of x86_64 run."""
    family: str = ""
    """The family of the machine type."""
    family_source: str = ""
    takes_default: bool = True
    """True if the host's default machine type counts."""
    is_kept: bool = False
    """True if the family is that of a server that exists.

    Its guest may be of another one: Nova's libvirt driver writes the host's
    default over what is kept when it rescues a server, and then starts the old
    guest again.
    """
    optional_devices: frozenset[str] = frozenset()
    """Rows of devices that Nova may leave out of the guest.

    So the machine type need not have them.
    """

    def families_without(self, row: str, value: str) -> frozenset[str]:
        """Return the families of machine types that rule out a row's value.

        A guest with it cannot start on them.
        """
        return (
            frozenset()
            if row in self.optional_devices
            else machine_types.families_without(row, value)
        )

    def what_rules_out(self, row: str, value: str) -> str:
        """Return the part of the platform that rules out a row's value, or "".

        That is its machine type, or i686 if none of its machine types can have
        it.
        """
        if self.is_i686 and (row, value) in machine_types.NEVER_OF_I686:
            return I686_SOURCE
        without = self.families_without(row, value)
        if self.family:
            return (
                self.family_source
                if self.family in without and not self.is_kept
                else ""
            )
        never = self.is_i686 and without >= machine_types.I686_FAMILIES
        return I686_SOURCE if never else ""

    def default_machines_without(self, row: str, value: str) -> list[Trait]:
        """Return the traits of default machine types without a row's value.

        None where another default does not matter to the guest.
        """
        if self.family or not self.takes_default:
            return []
        families = sorted(self.families_without(row, value))
        traits = [_DEFAULT_MACHINES[family] for family in families]
        if self.is_i686:
            traits = [I686[trait] for trait in traits if trait in I686]
        return traits


@cached_per_request
def guest_of(request: Request) -> Guest:
    """Return the platform of a request's guest.

    Unknown values are left out: the rows' own filters report them.
    """
    properties = request.image_properties
    emulated = (
        _EMULATION.canonical(properties.get("hw_emulation_architecture")) or ""
    )
    architecture = _ARCHITECTURE.canonical(properties.get("hw_architecture"))
    family = _MACHINE.canonical(properties.get("hw_machine_type")) or ""
    family_source = (
        f"{request.place_of('hw_machine_type')}={family}" if family else ""
    )
    return Guest(
        emulated,
        architecture == "i686" and not emulated,
        family,
        family_source,
        # Hosts report the default of their own architecture's guests.
        request.takes_default_machine_type and not emulated,
        bool(request.kept_machine_type),
        _optional_disks(request),
    )


def _optional_disks(request: Request) -> frozenset[str]:
    """Return the rows of buses on which the guest may have no device.

    As Nova's ``blockinfo.get_disk_info`` has it: an ISO image is the guest's
    CD-ROM, and its only disk unless the flavor has more. A config drive is a
    CD-ROM as well, but no request says for certain whether there is one: the
    user, the host and its ``config_drive_format`` decide. On a volume, an ISO
    image is a CD-ROM in some releases of Nova.
    """
    if request.image_attribute("disk_format") != "iso":
        return _CDROM
    more = any(
        (resource_amount(request.flavor_attribute(name)) or 0) > 0
        for name in ("ephemeral_gb", "swap")
    )
    return (_CDROM if request.boots_from_volume else _NONE) | (
        _NONE if more else _DISK
    )


_NONE: frozenset[str] = frozenset()
_CDROM = frozenset(("cdrom_bus",))
_DISK = frozenset(("disk_bus",))
