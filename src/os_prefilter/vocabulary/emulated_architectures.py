# SPDX-License-Identifier: Apache-2.0

"""Row and traits of emulated guest architectures.

Frozen: no row, trait or feature is added here, because few clouds emulate; no
other file defines such a trait.
"""

from collections.abc import Iterable, Mapping

from os_prefilter.common.trait_names import CUSTOM_PREFIX, Trait
from os_prefilter.vocabulary import machine_types
from os_prefilter.vocabulary.model import (
    Constraints,
    Incompatible,
    Row,
    Spelling,
    terms,
)

# The architectures that os-traits 3.9 has a COMPUTE_ARCH_* for and Nova
# accepts.
_STANDARD = "aarch64 mipsel ppc64le s390x x86_64"
_CUSTOM = " ".join(
    sorted(set(machine_types.ARCHITECTURES.split()) - set(_STANDARD.split()))
)

# Nova gives a CD-ROM the bus of the host's architecture, IDE on x86_64, which
# these do not have.
_OTHER_BUSES = (("cdrom_bus", ("scsi", "usb", "sata")),)
_ON_IDE = Incompatible(
    "image_type",
    "iso",
    unless=_OTHER_BUSES,
    on=Trait("HW_ARCH_X86_64"),
)

EMULATION = Row(
    "emulation_architecture",
    terms("COMPUTE_ARCH", _STANDARD) | terms("CUSTOM_COMPUTE_ARCH", _CUSTOM),
    image_property="hw_emulation_architecture",
    spelling=Spelling(older=machine_types.ARCHITECTURE_ALIASES),
    constraints=dict.fromkeys(
        ("aarch64", "armv7l", "ppc64", "ppc64le", "s390x"),
        Constraints(incompatible_in_nova=(_ON_IDE,)),
    ),
)

# The values of which libvirt says something else of guests of i686 than of
# those of x86_64, but for the default machine type: compared with 9.0 and
# the guests of tests/guests/starts. They have other firmware, and Nova
# emulates them.
_APART_FOR_I686 = (
    ("firmware_type", "uefi"),
    ("viommu_model", "auto"),
    ("viommu_model", "intel"),
)


def qualify(rows: Iterable[Row]) -> Mapping[tuple[Trait, str], Trait]:
    """Return the qualified traits: (trait, architecture) -> trait.

    Of rows ``per_architecture``; it means the same for such guests.
    """
    by_name = {row.name: row for row in rows}
    by_machine = {
        term.trait: machine_types.MACHINES[value]
        for value, term in by_name["machine_type"].values.items()
    }
    defaults = by_name["default_machine"].values
    by_default = {
        term.trait: machine_types.MACHINES.get(
            value, machine_types.PLATFORM_ARCHITECTURES
        )
        for value, term in defaults.items()
    }
    apart = [(by_name[row], value) for row, value in _APART_FOR_I686]
    apart += [
        (by_name["default_machine"], family)
        for family in machine_types.families_of("i686")
    ]
    of_i686 = {row.values[value].trait for row, value in apart}
    architectures: dict[Trait | None, tuple[str, ...]] = {
        **by_machine,
        **by_default,
    }
    found: dict[tuple[Trait, str], Trait] = {}
    for row in by_name.values():
        for trait in sorted(row.traits) if row.per_architecture else ():
            own = [
                *architectures.get(trait, machine_types.PLATFORM_ARCHITECTURES)
            ]
            if trait in of_i686:
                own.append("i686")
            name = trait.removeprefix(CUSTOM_PREFIX)
            for architecture in own:
                found[trait, architecture] = Trait(
                    f"{CUSTOM_PREFIX}{architecture.upper()}_{name}"
                )
    return found


def traits_of_emulation(
    qualified: Mapping[tuple[Trait, str], Trait],
) -> Mapping[Trait, str]:
    """Return trait -> architecture, of traits about emulated guests."""
    found: dict[Trait, str] = {}
    for (_, architecture), trait in qualified.items():
        # Each x86_64 host runs guests of i686, whether or not the cloud offers
        # to emulate.
        if architecture != "i686":
            found[trait] = architecture
    for value, term in EMULATION.values.items():
        if term.trait and term.opt_in:
            found[term.trait] = value
    return found


def trait_of_platform(architecture: str) -> Trait | None:
    """Return the trait by which Nova's drivers report an architecture.

    Hosts with it may have guests of it, or of its platform.

    That of x86_64 for i686; None if Nova has none, as for sparc.
    """
    term = EMULATION.values[machine_types.guest_architecture(architecture)]
    return None if term.opt_in else term.trait
