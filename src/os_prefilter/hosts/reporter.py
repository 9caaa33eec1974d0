"""Capability reporters, one file a virt driver.

A reporter knows one thing: why a host, as its facts describe it, cannot do a value of a row of the vocabulary::

    def refusal(facts: HostFacts, row: str, value: str, architecture: str) -> str:
        return "" if value in CAN.get(row, ()) else "this driver has no such device"

It does no I/O, changes nothing, and answers for every value of every row that it owns. From these answers come, in one
place each, the traits of the host (``capabilities``), the driver's late check and its guest settings
(:mod:`os_prefilter.hosts.late_check`): so they cannot disagree.

To add one: derive a class from :class:`HostFacts` with the name of the driver, write the function, and name the
:class:`Reporter` in an entry point of the same name under ``os_prefilter.capability_reporters``. ``fake.py`` is the
worked example.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from os_prefilter.vocabulary import table
from os_prefilter.vocabulary.config_templates import Template, Templates


@dataclass(frozen=True, kw_only=True)
class HostFacts:
    """What is known of one host; a virt driver adds its own. A value that a probe did not get is never guessed here."""

    driver: ClassVar[str] = ""
    """The name of the reporter that reads them."""

    host: str = "this host"
    """Its name, for messages."""
    architecture: str = ""
    """Of its processors, as Nova spells it; empty if there is none to speak of."""
    physical_address_bits: int | None = None
    """Of its processors; None if that is not known."""
    other_traits: frozenset[str] = frozenset()
    """Traits that others have set on it; they count where the reporter does not own a row."""
    templates: Templates | None = None
    """The deployment's configuration templates; None for the bundled ones."""


Refusal = Callable[[Any, str, str, str], str]
"""``(facts, row name, value, guest architecture) -> reason``, empty if the host can do it.

The architecture is empty where a guest of the host's own is meant, and for rows that are not ``per_architecture``.
"""

Configure = Callable[[Any, Template], str]
"""``(facts, configuration template) -> reason``, empty if the host can be configured so."""


Evidence = Callable[[Any, str, str, str], str]
"""``(facts, row name, value, guest architecture) -> what became of real guests``: ``starts``, ``refused`` or
``not known``; empty for what no guest can show."""


def _every_row() -> frozenset[str]:
    return frozenset(row.name for row in table())


@dataclass(frozen=True)
class Reporter:
    """What a virt driver's hosts can do."""

    facts: type[HostFacts]
    refusal: Refusal
    owns: frozenset[str] = field(default_factory=_every_row)
    """The rows that it answers for, by default all; it never touches the traits of the others."""
    configure: Configure | None = None
    """Answers for the traits of configuration templates; None where nothing is configured by request."""
    evidence: Evidence | None = None
    """What real guests showed; None where none was started."""


class Setting(NamedTuple):
    """One thing that the driver must give the guest."""

    name: str
    """The row of the vocabulary: ``time_hpet``."""
    value: str
    source: str


@dataclass(frozen=True, slots=True)
class GuestSettings:
    """What the driver must give the guest. ``drivers.libvirt_domain_xml`` renders it for libvirt."""

    settings: tuple[Setting, ...]
    architecture: str
    """Of the guest."""
    machine: str = ""
    """The machine type that is asked for, by the name that the image gives; empty leaves it to the host."""
    family: str = ""
    """The family of the machine type that the guest gets; empty where the driver has no machine types."""
    physical_address_bits: int | None = None
    """Of the guest's processors, if ``maxphysaddr_mode`` is ``emulate``; else None."""

    def value(self, name: str) -> str | None:
        """Return the value of a row of the vocabulary; None if the request does not say."""
        return next((setting.value for setting in self.settings if setting.name == name), None)
