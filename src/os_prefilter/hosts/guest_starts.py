"""Outcomes of real guests: each value of the vocabulary on each machine type, started with some libvirts and QEMUs.

The records are in ``data/guest_starts``; the tests in ``tests/guests`` start the guests and write them. They verify the
reporter, which never reads them. For hosts with another libvirt or QEMU the outcome is not known.
"""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from typing import NamedTuple

from os_prefilter.hosts.drivers.libvirt_facts import LibvirtFacts
from os_prefilter.vocabulary.machine_types import family_of, guest_architecture

STARTS = "starts"
REFUSED = "refused"
NOT_KNOWN = "not known"

# Rows that are not in the guest's configuration, or do not affect its start.
_SHOWN_BY_NO_GUEST = """
architecture default_machine hypervisor_type vm_mode image_type device_profile ephemeral_encryption
ephemeral_encryption_format pci_numa_affinity_policy cpu_thread_policy
"""

Outcomes = Mapping[str, str]
"""Value -> :data:`STARTS`, or :data:`REFUSED` or :data:`NOT_KNOWN` with the reason after a colon."""


class Record(NamedTuple):
    """The guests that were started with one libvirt, and the driver that wrote their XML."""

    libvirt: str
    """Its version: ``9.0.0``."""
    qemu: str
    virt_type: str
    """``kvm`` or ``qemu``; guests of an emulated architecture are ``qemu`` in either case."""
    nova: int | None
    """The release of Nova whose driver wrote the XML; None: our guest settings."""
    guests: Mapping[str, Mapping[str, Outcomes]]
    """Architecture, or architecture and machine type -> row, empty for a guest that requires nothing -> outcomes."""

    @property
    def number(self) -> int:
        """Number of its guests."""
        return sum(len(outcomes) for rows in self.guests.values() for outcomes in rows.values())


@cache
def records() -> tuple[Record, ...]:
    """Return all records, the oldest libvirt first."""
    folder = resources.files("os_prefilter.data").joinpath("guest_starts")
    found = [Record(**json.loads(each.read_bytes())) for each in folder.iterdir() if each.name.endswith(".json")]
    return tuple(sorted(found, key=lambda record: (_series(record.libvirt), record.virt_type, record.nova or 0)))


def evidence(facts: LibvirtFacts, row: str, value: str, architecture: str) -> str:
    """Return the outcome of real guests that required ``value`` of ``row`` on hosts like this one.

    :return: :data:`STARTS` if one did on any machine type of the host, :data:`REFUSED` if none did, :data:`NOT_KNOWN`
        where no guest could tell or none was started with this libvirt and QEMU; empty for what no guest can show
    """
    if row in _SHOWN_BY_NO_GUEST.split():
        return ""
    guest = guest_architecture(value if row == "emulation_architecture" else architecture) or facts.architecture
    found = set(_outcomes(_record_of(facts, guest), facts, guest, row, value))
    return next((outcome for outcome in (STARTS, REFUSED, NOT_KNOWN) if outcome in found), NOT_KNOWN)


def is_recorded(facts: LibvirtFacts) -> bool:
    """Whether guests were started with such a libvirt and QEMU, built by the same driver."""
    return _record_of(facts, facts.architecture) is not None


def _record_of(facts: LibvirtFacts, guest: str) -> Record | None:
    virt_types = (facts.virt_type,) if guest == facts.architecture else (facts.virt_type, "qemu")
    return next(
        (
            record
            for virt_type in virt_types
            for record in records()
            if (record.virt_type, record.nova) == (virt_type, facts.nova_release)
            and bool(record.nova) == facts.built_by_nova
            and facts.architecture == "x86_64"
            and _series(record.libvirt) == facts.libvirt_version[:2]
            and _series(record.qemu) == facts.hypervisor_version[:2]
        ),
        None,
    )


def _outcomes(record: Record | None, facts: LibvirtFacts, guest: str, row: str, value: str) -> Iterator[str]:
    """Yield the outcomes of the guests that require a value, one for each machine type of the host."""
    if record is None:
        return
    machines = {family_of(machine) for machine in facts.guests[guest].machines} if guest in facts.guests else set()
    platforms = [guest, *(f"{guest} {machine}" for machine in sorted(machines))]
    if row == "machine_type":
        platforms, row, value = [f"{guest} {value}"], "", ""
    elif row == "emulation_architecture":
        row, value = "", ""
    for platform in platforms:
        outcome = record.guests.get(platform, {}).get(row, {}).get(value)
        if outcome:
            yield outcome.partition(":")[0]


def _series(version: str) -> tuple[int, ...]:
    """Return major and minor of a version: 9.0 of 9.0.0."""
    return tuple(map(int, version.split(".")[:2]))
