# SPDX-License-Identifier: Apache-2.0

"""The platform of a guest: architecture, machine type, disk buses."""

from typing import NamedTuple

from os_prefilter.common.placement_values import resource_amount
from os_prefilter.request.view import Request, cached_per_request
from os_prefilter.vocabulary import BY_NAME, machine_types

_ARCHITECTURE = BY_NAME["architecture"]
_EMULATION = BY_NAME["emulation_architecture"]
_MACHINE = BY_NAME["machine_type"]


class Guest(NamedTuple):
    """The platform that a request describes.

    Empty where it leaves that to the host.
    """

    architecture: str = ""
    """The architecture to emulate, which may be the host's own.

    Also i686 where x86_64 hosts run it unasked.
    """
    architecture_source: str = ""
    family: str = ""
    """The family of the machine type.

    Of an architecture without known machine types, an unknown one.
    """
    family_source: str = ""
    takes_default: bool = True
    """True if the host's default machine type counts."""
    default_architecture: str = ""
    """The architecture whose default counts; empty for the host's own.

    Nova takes that of ``hw_architecture``, so it is not that of a guest of
    i686 by ``hw_emulation_architecture`` alone.
    """
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

        That is its machine type, or an architecture to emulate of whose
        machine types none can have it.
        """
        if (row, value) in machine_types.NEVER_OF.get(self.architecture, ()):
            return self.architecture_source
        without = self.families_without(row, value)
        if self.family:
            return (
                self.family_source
                if self.family in without and not self.is_kept
                else ""
            )
        never = (
            self.architecture
            and machine_types.families_of(self.architecture) <= without
        )
        return self.architecture_source if never else ""


@cached_per_request
def guest_of(request: Request) -> Guest:
    """Return the platform of a request's guest.

    Unknown values are left out: the rows' own filters report them.
    """
    properties = request.image_properties
    emulated = _EMULATION.canonical(
        properties.get("hw_emulation_architecture")
    )
    family = _MACHINE.canonical(properties.get("hw_machine_type")) or ""
    is_i686 = (
        _ARCHITECTURE.canonical(properties.get("hw_architecture")) == "i686"
    )
    architecture = emulated or ("i686" if is_i686 else "")
    source = (
        "image property"
        f" hw_{'emulation_' if emulated else ''}architecture={architecture}"
        if architecture
        else ""
    )
    family_source = (
        f"{request.place_of('hw_machine_type')}={family}" if family else ""
    )
    platform = machine_types.guest_architecture(architecture)
    if (
        architecture
        and not family
        and platform not in machine_types.PLATFORM_ARCHITECTURES
    ):
        family = machine_types.OTHER
        family_source = source
    return Guest(
        architecture,
        source,
        family,
        family_source,
        request.takes_default_machine_type,
        "i686" if is_i686 and platform == "x86_64" else platform,
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
