# SPDX-License-Identifier: Apache-2.0

"""The table of what machine types can never have, against guests that real
libvirts started, and their answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from os_prefilter.vocabulary.machine_types import (
    MACHINES,
    OTHER,
    families_without,
    family_of,
    guest_architecture,
)
from tests.guests.records import STARTS, records
from tests.support.corpus import corpus_answers

_BUSES = ("ide", "sata")


def _offered() -> Iterator[tuple[str, str, Mapping[str, set[str]]]]:
    """Yield where, the machine type, and the values that its guests had, or
    that libvirt says they can have, by row.
    """
    # Of Nova's driver, some guests do not start for another reason.
    for record in [each for each in records() if each.nova is None]:
        for platform, rows in record.guests.items():
            machine = platform.partition(" ")[2]
            if machine and "disk_bus" in rows:
                starts = {
                    row: {each for each in values if values[each] == STARTS}
                    for row, values in rows.items()
                }
                yield f"libvirt {record.libvirt}, {platform}", machine, starts
    # Of other libvirts, where OS_PREFILTER_LIBVIRT_DATA names a folder with
    # them.
    for answer in corpus_answers():
        guest = answer.guest
        if answer.domain_type in ("kvm", "qemu"):
            # libvirt lists floppies for every machine type but pseries;
            # outside of x86 they never appear.
            yield (
                answer.where,
                answer.machine,
                {
                    "disk_bus": {*guest.buses} - {"fdc"},
                    "tpm_model": {*guest.tpm_models},
                    "video_model": {*guest.video_models},
                    "secure_boot": (
                        {"required"} if guest.secure_boot else set()
                    ),
                    "firmware_type": {"uefi"} if guest.uefi else set(),
                },
            )


def test_nothing_is_denied_that_real_guests_have_and_ide_and_sata_exactly_where_none_has_them() -> (
    None
):
    families = set()
    for where, machine, offered in _offered():
        family = family_of(machine)
        families.add(family)
        for row, values in offered.items():
            assert {
                value
                for value in values
                if family in families_without(row, value)
            } == set(), (where, row)
        if family != OTHER:
            without = {
                bus
                for bus in _BUSES
                if family in families_without("disk_bus", bus)
            }
            assert {*_BUSES} - offered["disk_bus"] == without, where
    assert families >= {"pc", "q35", "virt", "isapc", "microvm"}


def test_machine_type_family_maps_to_itself_and_i686_guests_to_x86_64() -> (
    None
):
    assert {family_of(family) for family in MACHINES} == set(MACHINES)
    assert guest_architecture("i686") == "x86_64"
    assert [guest_architecture(name) for name in ("aarch64", "sparc", "")] == [
        "aarch64",
        "sparc",
        "",
    ]
