# SPDX-License-Identifier: Apache-2.0

"""Outcomes of real guests: each value of the vocabulary on each machine type,
started with some libvirts and QEMUs.

The records are in ``tests/guests/starts``; ``tests.guests.record`` writes
them. They verify the reporter.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from os_prefilter.hosts.drivers.libvirt_facts import GuestFacts, LibvirtFacts

RECORDS = Path(__file__).parent / "starts"
HOSTS = Path(__file__).parent / "hosts"
STARTS = "starts"
REFUSED = "refused"
NOT_KNOWN = "not known"

Outcomes = Mapping[str, str]
"""Value -> :data:`STARTS`, or :data:`REFUSED` or :data:`NOT_KNOWN` with the
reason after a colon.
"""


class Record(NamedTuple):
    """The guests that were started with one libvirt, and the driver that wrote
    their XML.
    """

    libvirt: str
    qemu: str
    virt_type: str
    """``kvm`` or ``qemu``; guests of an emulated architecture are ``qemu`` in
    either case.
    """
    nova: int | None
    """The release of Nova whose driver wrote the XML; None: our guest
    settings.
    """
    guests: Mapping[str, Mapping[str, Outcomes]]
    """Architecture, or architecture and machine type -> row, empty for a guest
    that requires nothing -> outcomes.
    """


@cache
def records() -> tuple[Record, ...]:
    found = [
        Record(**json.loads(path.read_bytes()))
        for path in RECORDS.glob("*.json")
    ]
    return tuple(
        sorted(
            found,
            key=lambda each: (
                [*map(int, each.libvirt.split("."))],
                each.virt_type,
                each.nova or 0,
            ),
        )
    )


def host_of(record: Record) -> LibvirtFacts:
    """Return the host on which the guests of a record were started."""
    found = json.loads(
        (
            HOSTS / f"libvirt-{record.libvirt}-{record.virt_type}.json"
        ).read_text()
    )
    guests = {
        name: GuestFacts(**_frozen(guest))
        for name, guest in found.pop("guests").items()
    }
    return LibvirtFacts(
        **_frozen(found),
        guests=guests,
        built_by_nova=record.nova is not None,
        nova_release=record.nova,
    )


def _frozen(found: dict[str, Any]) -> dict[str, Any]:
    sets = {"libvirt_version": tuple, "hypervisor_version": tuple}
    return {
        name: (
            sets.get(name, frozenset)(value)
            if isinstance(value, list)
            else value
        )
        for name, value in found.items()
    }
