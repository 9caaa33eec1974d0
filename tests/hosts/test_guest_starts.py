# SPDX-License-Identifier: Apache-2.0

"""The law's third side: what the reporter says of recorded hosts, against real
guests that were started there.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from os_prefilter import unsupported
from os_prefilter.common.errors import RequestRejected
from os_prefilter.hosts.drivers.libvirt_facts import LibvirtFacts
from os_prefilter.vocabulary.machine_types import FAMILIES_WITHOUT, MACHINES
from tests.guests.cases import (
    NOT_SAID,
    ROWS,
    SOME_VALUES,
    Case,
    is_left_out,
    not_said,
)
from tests.guests.records import (
    NOT_KNOWN,
    REFUSED,
    STARTS,
    Record,
    host_of,
    records,
)

# Memory encryption needs processors that the machine has not.
_NOT_STARTED = frozenset(("mem_encryption_model",))
# They came after the records of that libvirt.
_NEWER_ROWS = {
    "11.3.0": {"input_bus", "pointer_model", "usb_redirection", "watchdog"}
}
# There is none for such a machine type; libvirt, which finds none, cannot tell
# more.
_NO_FIRMWARE = frozenset(
    (("firmware_type", "uefi"), ("secure_boot", "required"))
)


def _name(record: Record) -> str:
    return f"libvirt-{record.libvirt}-{record.virt_type}-{f'nova-{record.nova}' if record.nova else 'ours'}"


def _outcomes(record: Record) -> dict[Case, str]:
    return {
        Case(*platform.partition(" ")[::2], row, value): outcome
        for platform, rows in record.guests.items()
        for row, outcomes in rows.items()
        for value, outcome in outcomes.items()
    }


def _refused(case: Case, facts: LibvirtFacts) -> str:
    try:
        return ", ".join(
            map(str, unsupported(case.spec(facts.architecture), facts))
        )
    except RequestRejected as error:
        return str(error)


def test_late_check_accepts_what_starts_and_refuses_what_does_not() -> None:
    """But for what no trait says; nothing more is left out than that."""
    left_out: set[object] = set()
    for record in records():
        wrong = {
            case: (said, not_said(case, host_of(record)))
            for case, said in _disagreements(record)
        }
        left_out.update(reason for _, reason in wrong.values())
        assert {
            case: each
            for case, each in wrong.items()
            if each[1] not in NOT_SAID
        } == {}, _name(record)
    assert left_out == NOT_SAID


def _disagreements(record: Record) -> Iterator[tuple[Case, str]]:
    facts = host_of(record)
    for case, outcome in _outcomes(record).items():
        if is_left_out(case, facts):
            continue
        refused = _refused(case, facts)
        if not outcome.startswith(NOT_KNOWN) and bool(refused) == (
            outcome == STARTS
        ):
            yield case, f"{outcome}; late check: {refused or 'accepts'}"


@pytest.mark.parametrize("record", records(), ids=_name)
def test_each_row_was_started_but_those_newer_than_the_record(
    record: Record,
) -> None:
    for rows in record.guests.values():
        if len(rows) > 1:
            assert set(ROWS) - rows.keys() == _NEWER_ROWS.get(
                record.libvirt, set()
            )


def test_each_never_is_proven_by_the_libvirts_that_were_tried() -> None:
    """Or Nova's own code refuses it: its rules are those of the vIOMMU and of
    memory encryption.
    """
    ours = [record for record in records() if record.nova is None]
    assert len({record.libvirt for record in ours}) > 1
    for (row, value), families in FAMILIES_WITHOUT.items():
        if value not in SOME_VALUES.get(row, (value,)):
            continue
        for platform in (
            f"{guest} {family}"
            for family in families
            for guest in MACHINES.get(family, ())
        ):
            answers = {
                record.guests[platform]
                .get(row, {})
                .get(value, "")
                .partition(":")[0]
                for record in ours
                if platform in record.guests
            }
            assert STARTS not in answers, (row, value, platform)
            assert (
                REFUSED in answers
                or row in _NOT_STARTED
                or (row, value) in _NO_FIRMWARE
            ), (row, value, platform)
