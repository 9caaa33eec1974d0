# SPDX-License-Identifier: Apache-2.0

"""Capability reporters, one file a virt driver.

A reporter is one function: why a host, given its facts, cannot do a value of a
row of the vocabulary::

    def refusal(
        facts: HostFacts, row: str, value: str, architecture: str
    ) -> str:
        if value in CAN.get(row, ()):
            return ""
        return "this driver has no such device"

It does no I/O, keeps no state, and covers every value of every row that it
owns. The same reasons make, in one place each, the traits of the host
(``capabilities``), the driver-side check and the guest settings
(:mod:`os_prefilter.hosts.driver_check`).

To add one: derive a class from :class:`HostFacts` with the name of the driver,
write the function, and name the :class:`Reporter` in an entry point of the
same name under ``os_prefilter.capability_reporters``. ``fake.py`` is the
worked example.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, ClassVar, NamedTuple

from os_prefilter.common.dataclasses import dataclass
from os_prefilter.common.trait_names import Trait
from os_prefilter.vocabulary import BY_NAME, opt_in_traits, table
from os_prefilter.vocabulary.config_templates import BUNDLED, Templates


@dataclass(frozen=True, kw_only=True)
class HostFacts:
    """The facts of one host; a virt driver adds fields.

    A value that a probe did not get is never guessed.
    """

    driver: ClassVar[str] = ""
    """The name of the reporter for them."""

    host: str = "this host"
    """Its name, for messages."""
    architecture: str = ""
    """The architecture of its processors, by Nova's name; empty if unknown."""
    physical_address_bits: int | None = None
    """The address width of its processors; None if that is not known."""
    other_traits: frozenset[str] = frozenset()
    """Traits that operators or other services have set.

    They count for rows that the reporter does not own.
    """
    templates: Templates = BUNDLED
    """The deployment's configuration templates."""
    built_by_nova: bool = False
    """True if Nova's driver builds its guests.

    False for a driver that uses our guest settings.
    """

    @property
    def needs_address_bits(self) -> bool:
        """True if an emulated address space needs a number of bits."""
        return False

    @property
    def deprecated_machines(self) -> frozenset[str] | None:
        """The machine types that are deprecated; None if not known."""
        return None

    @property
    def cpu(self) -> str:
        """A text that hosts with the same CPU share; empty if not known."""
        return ""


Refusal = Callable[[Any, str, str, str], str]
"""``(facts, row name, value, guest architecture) -> reason``.

Empty if the host can do it.

The architecture is ``i686`` for what guests of i686 have apart on hosts of
x86_64; else it is empty, for guests of the host's own. A reporter with
``Reporter.configured`` is also asked about configuration templates: row
``deploy-config:TYPE``.
"""

TraitsOf = Callable[[Any], frozenset[str]]
"""``facts -> traits``."""


def traits_reported_by_nova(_facts: object = None) -> frozenset[str]:
    """Return the vocabulary's traits that Nova's own virt drivers report."""
    every = frozenset[str]().union(*(row.traits for row in table()))
    return every - opt_in_traits()


# In Nova, only the libvirt driver writes traits of these rows.
_DEVICES = """
vif_model video_model disk_bus cdrom_bus viommu_model sound_model
packed_virtqueue emulation_architecture tpm_version tpm_model
tpm_secret_security mem_encryption_model
"""


def traits_without_devices(_facts: object) -> frozenset[str]:
    """Return what Nova's virt drivers other than libvirt report.

    No traits of devices.
    """
    return traits_reported_by_nova().difference(
        *(BY_NAME[row].traits for row in _DEVICES.split())
    )


@dataclass(frozen=True)
class Reporter:
    """The capabilities of the hosts of a virt driver."""

    facts: type[HostFacts]
    refusal: Refusal
    owns: frozenset[str] = field(
        default_factory=lambda: frozenset(row.name for row in table())
    )
    """The rows that it reports, by default all.

    It never touches the traits of the others.
    """
    configured: Callable[[Any], Mapping[Trait, str]] | None = None
    """Returns ``{trait: reason}`` for traits of configuration templates.

    A reason is empty if the host has the trait. None where
    hosts are not configured by request.
    """
    reported_by_nova: TraitsOf = traits_reported_by_nova
    """The traits that a nova-compute with this virt driver writes itself.

    Beside it they are not ours to write.
    """
    unknown: Callable[[Any], Mapping[Trait, str]] = lambda _facts: {}
    """The traits that the facts say nothing about now, and why.

    They are not reported, and an earlier report stays as it is.
    """


class Setting(NamedTuple):
    """One setting that the driver must give the guest."""

    name: str
    """The row of the vocabulary: ``time_hpet``."""
    value: str
    source: str


@dataclass(frozen=True, slots=True)
class GuestSettings:
    """The settings that the driver must give the guest.

    ``drivers.libvirt_domain_xml`` renders them for libvirt.
    """

    settings: tuple[Setting, ...]
    architecture: str
    """The architecture of the guest."""
    machine: str = ""
    """The requested machine type, as in the image; empty for the host's."""
    family: str = ""
    """The family of the machine type that the guest gets.

    Empty where the driver has no machine types.
    """
    physical_address_bits: int | None = None
    """The address width of the guest's processors.

    None unless ``maxphysaddr_mode`` is ``emulate``.
    """

    def value(self, name: str) -> str | None:
        """Return the value of a row; None if the request has none."""
        for setting in self.settings:
            if setting.name == name:
                return setting.value
        return None
