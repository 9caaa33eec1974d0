#    Licensed under the Apache License, Version 2.0 (the "License"); you may
#    not use this file except in compliance with the License. You may obtain
#    a copy of the License at
#
#         http://www.apache.org/licenses/LICENSE-2.0
#
#    Unless required by applicable law or agreed to in writing, software
#    distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
#    WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
#    License for the specific language governing permissions and limitations
#    under the License.

"""Outcomes of real guests: each value of the vocabulary on each machine type, started with some libvirts and QEMUs.

The records are in ``tests/guests/starts``; ``tests.guests.record`` writes them. They verify the reporter.
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
"""Value -> :data:`STARTS`, or :data:`REFUSED` or :data:`NOT_KNOWN` with the reason after a colon."""


class Record(NamedTuple):
    """The guests that were started with one libvirt, and the driver that wrote their XML."""

    libvirt: str
    qemu: str
    virt_type: str
    """``kvm`` or ``qemu``; guests of an emulated architecture are ``qemu`` in either case."""
    nova: int | None
    """The release of Nova whose driver wrote the XML; None: our guest settings."""
    guests: Mapping[str, Mapping[str, Outcomes]]
    """Architecture, or architecture and machine type -> row, empty for a guest that requires nothing -> outcomes."""


@cache
def records() -> tuple[Record, ...]:
    found = [Record(**json.loads(path.read_bytes())) for path in RECORDS.glob("*.json")]
    return tuple(sorted(found, key=lambda each: ([*map(int, each.libvirt.split("."))], each.virt_type, each.nova or 0)))
