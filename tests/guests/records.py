# SPDX-License-Identifier: Apache-2.0

"""Outcomes of real guests: each value of the vocabulary on each machine type,
started with some libvirts and QEMUs.

The records are in ``tests/guests/starts``; ``tests.guests.record`` writes
them. They verify the reporter.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

RECORDS = Path(__file__).parent / "starts"
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
