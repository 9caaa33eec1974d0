# SPDX-License-Identifier: Apache-2.0

"""The guests that are started: each value of each row, on each machine type,
and one of each architecture.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import NamedTuple

from os_prefilter import RequestSpec
from os_prefilter.common.errors import RequestRejected
from os_prefilter.hosts.drivers.libvirt_facts import LibvirtFacts
from os_prefilter.request.remarks import remarks_in_nova
from os_prefilter.request.view import Request
from os_prefilter.vocabulary import BY_NAME
from os_prefilter.vocabulary.machine_types import MACHINES
from os_prefilter.vocabulary.options import Options
from os_prefilter_tools.testing.law import (
    list_requiring_filters,
    options_of,
)
from tests.conftest import spec_of

ROWS = (
    *(
        "vif_model",
        "video_model",
        "disk_bus",
        "cdrom_bus",
        "scsi_model",
        "sound_model",
        "usb_model",
        "viommu_model",
    ),
    *(
        "firmware_type",
        "time_hpet",
        "packed_virtqueue",
        "tpm_version",
        "tpm_model",
        "secure_boot",
    ),
    *(
        "firmware_stateless",
        "maxphysaddr_mode",
        "usb_redirection",
        "input_bus",
        "pointer_model",
        "watchdog",
    ),
)
"""The rows that change the guest's XML; memory encryption needs processors
that no test can count on.
"""

WAYS = ("extra spec", "trait", "nothing")
"""Ways to ask for a value beside its image property; with ``nothing`` there is
only what it means nothing without.
"""

SOME_VALUES = {"usb_redirection": ("1", "15")}
"""The values of a row that are started, where not all: the least and the most
of a number.
"""
# libvirt says the same of guests of x86_64 in all else; samples of pairs have
# the other rows.
_APART_FOR_I686 = (
    "firmware_type",
    "viommu_model",
    "maxphysaddr_mode",
    "secure_boot",
    "time_hpet",
)
# What a value means nothing without.
_BESIDE = {
    "cdrom_bus": {"disk_format": "iso"},
    "scsi_model": {"hw_disk_bus": "scsi"},
    "tpm_model": {"hw_tpm_version": "2.0"},
    "secure_boot": {"hw_firmware_type": "uefi"},
    "firmware_stateless": {"hw_firmware_type": "uefi"},
    "maxphysaddr_mode": {"hw_maxphysaddr_bits": "40"},
}
_NEEDS_NOTHING = {("maxphysaddr_mode", "passthrough")}
NEEDY = tuple(_BESIDE)
"""The rows whose values mean nothing, or do not start, without another."""

NOT_SAID = frozenset(
    (
        ("9.0", "Nova", "x86_64 q35 secure_boot optional"),
        # On KVM without System Management Mode.
        ("11.3", "Nova", "x86_64 q35 secure_boot optional"),
    )
)
"""(libvirt, driver, guest) of which no trait says what became of the guest:
that of UEFI speaks of guests without Secure Boot.
"""


class Case(NamedTuple):
    architecture: str
    machine: str = ""
    """The machine type that the image names; empty if it names none."""
    row: str = ""
    value: str = ""
    more: tuple[tuple[str, str], ...] = ()
    """Other rows and values that are asked for as well."""
    way: str = ""
    """One of :data:`WAYS` if it is not asked for by image property."""
    distro: str = ""
    """The system that implies the value, which then no property names."""
    alone: bool = False
    """True to leave out what the value means nothing without."""

    def __str__(self) -> str:
        return (
            " ".join(
                filter(
                    None,
                    (
                        *self[:4],
                        *(text for pair in self.more for text in pair),
                        self.way,
                        "alone" if self.alone else "",
                    ),
                )
            )
            or "nothing"
        )

    def has_way(self, way: str) -> bool:
        row = BY_NAME[self.row]
        return {
            "extra spec": bool(row.extra_spec),
            "trait": bool(row.values[self.value].trait),
        }.get(way, True)

    @property
    def extra_specs(self) -> dict[str, str]:
        row = BY_NAME.get(self.row)
        if not row or self.way not in ("extra spec", "trait"):
            return {}
        if self.way == "trait":
            return {f"trait:{row.values[self.value].trait}": "required"}
        return {str(row.extra_spec): self.value}

    @property
    def asked(self) -> dict[str, str]:
        """What must be found in the guest: row -> value."""
        return dict(
            (*([(self.row, self.value)] if self.row else []), *self.more)
        )

    def is_emulated(self, own: str) -> bool:
        """Return whether the guest's architecture is neither the host's nor
        i686.
        """
        return self.architecture not in (own, "i686")

    def properties(self, own: str) -> dict[str, object]:
        """Return the image's properties, with its format under
        ``disk_format``.

        :param own: the architecture of the host
        """
        found: dict[str, object] = {}
        if self.is_emulated(own):
            found["hw_emulation_architecture"] = self.architecture
        elif self.architecture != own:
            found["hw_architecture"] = self.architecture
        if self.machine:
            found["hw_machine_type"] = self.machine
        for row, value in self.asked.items():
            if not self.alone and (row, value) not in _NEEDS_NOTHING:
                found = _BESIDE.get(row, {}) | found
            if self.distro:
                found["os_distro"] = self.distro
            elif not self.way:
                found[BY_NAME[row].image_property or "disk_format"] = value
        return found

    def spec(self, own: str) -> RequestSpec:
        properties = self.properties(own)
        disk_format = properties.pop("disk_format", "raw")
        return spec_of(
            properties, self.extra_specs, disk_format=str(disk_format)
        )


def cases(facts: LibvirtFacts) -> Iterator[Case]:
    """Yield the guests to start on a host: those that it has an emulator
    for.
    """
    has_qemu = {*facts.guests, *facts.emulated}
    for architecture in BY_NAME["emulation_architecture"].values:
        if architecture in has_qemu:
            yield Case(architecture)
    own = facts.architecture
    platforms = [
        (own, ""),
        *(
            (guest, machine)
            for machine, guests in MACHINES.items()
            for guest in guests
        ),
    ]
    for architecture, machine in (*platforms, ("i686", "pc"), ("i686", "q35")):
        if architecture not in has_qemu:
            continue
        if machine:
            yield Case(architecture, machine)
        for row in ROWS if architecture != "i686" else _APART_FOR_I686:
            for value in SOME_VALUES.get(row, BY_NAME[row].values):
                yield Case(architecture, machine, row, value)


def samples(facts: LibvirtFacts, seed: int) -> Iterator[Case]:
    """Yield guests of the host and of i686 with two or three things asked for,
    without an end.

    :param seed: the same samples for the same seed
    """
    random = Random(seed)  # noqa: S311 - not for secrets
    platforms = [
        (guest, machine)
        for guest in (facts.architecture, "i686")
        for machine in ("", "pc", "q35")
    ]
    while True:
        rows = random.sample(ROWS, random.choice((2, 3)))
        values = [
            (
                row,
                random.choice(list(SOME_VALUES.get(row, BY_NAME[row].values))),
            )
            for row in rows
        ]
        yield Case(*random.choice(platforms), *values[0], tuple(values[1:]))


def without_effect(case: Case, facts: LibvirtFacts) -> set[str]:
    """Return the rows of which a guest may start without the value, as a note
    on the request says, which is not rejected.

    But for one that no scheduler can know: Nova says no timer to QEMU where
    that runs without KVM, and "pc" has one.
    """
    told = set()
    with suppress(RequestRejected):
        notes = remarks_in_nova(
            Request(case.spec(facts.architecture)),
            options_of(facts),
            list_requiring_filters(),
        )
        told = {
            note.source.partition("=")[0]
            for note in notes
            if "may not start" not in note.reason
        }
    if facts.built_by_nova and case.asked.get("secure_boot") == "required":
        # The note says what to set; hosts of x86 are refused.
        told.discard("os_secure_boot")
    rows = {row for row in case.asked if BY_NAME[row].image_property in told}
    on_qemu = (
        facts.built_by_nova
        and facts.virt_type == "qemu"
        and case.asked.get("time_hpet") == "false"
    )
    return rows | ({"time_hpet"} if on_qemu else set())


def is_left_out(case: Case, facts: LibvirtFacts) -> bool:
    """Return whether a guest is emulated and has a device, or the default
    machine type that Nova gives it, which is that of the host's architecture.

    No trait and no late check is about these.
    """
    takes_default = facts.built_by_nova and not case.machine
    return case.is_emulated(facts.architecture) and (
        bool(case.row) or takes_default
    )


def may_not_start(case: Case, facts: LibvirtFacts) -> bool:
    """Return whether a note says that a guest of Nova may not start: it
    depends on disks that no request has.
    """
    notes = remarks_in_nova(Request(case.spec(facts.architecture)), Options())
    return facts.built_by_nova and any(
        "may not start" in note.reason for note in notes
    )


def not_said(case: Case, facts: LibvirtFacts) -> tuple[str, str, str]:
    """Return the key of a guest in :data:`NOT_SAID`."""
    return (
        ".".join(map(str, facts.libvirt_version[:2])),
        "Nova" if facts.built_by_nova else "ours",
        str(case),
    )
