"""The platform that a request asks its guest to have: an architecture to emulate, a machine type."""

from typing import NamedTuple

from os_prefilter.platforms import OTHER, PLATFORM_ARCHITECTURES, guest_architecture
from os_prefilter.request import Request
from os_prefilter.vocabulary import BY_NAME

_EMULATION = BY_NAME["emulation_architecture"]
_MACHINE = BY_NAME["machine_type"]


class Guest(NamedTuple):
    """What a request says of the platform; empty where it leaves that to the host."""

    architecture: str = ""
    """The architecture to emulate; the host's own may be meant as well."""
    architecture_source: str = ""
    family: str = ""
    """The family of machine types that is asked for; of an architecture without known machine types, an unknown one."""
    family_source: str = ""
    takes_default: bool = True
    """Whether the host's default machine type counts where no family is asked for."""

    @property
    def has_own_traits(self) -> bool:
        """Whether hosts say by traits of their own what such an emulated guest can have."""
        return self.architecture in PLATFORM_ARCHITECTURES


def guest_of(request: Request) -> Guest:
    """Return the platform of a request's guest; values that nobody knows are left to those who ask for the rows."""
    emulated = _EMULATION.canonical(request.image_property(str(_EMULATION.image_property)))
    family = _MACHINE.canonical(request.image_property(str(_MACHINE.image_property))) or ""
    architecture = guest_architecture(emulated or "")
    source = f"image property {_EMULATION.image_property}={emulated}" if emulated else ""
    family_source = f"{request.place_of(str(_MACHINE.image_property))}={family}" if family else ""
    if architecture and not family and architecture not in PLATFORM_ARCHITECTURES:
        family, family_source = OTHER, source
    return Guest(architecture, source, family, family_source, request.takes_default_machine_type)
