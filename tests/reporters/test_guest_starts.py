"""The law's third side: what the reporter says of recorded hosts, against real guests that were started there."""

import json
from pathlib import Path
from typing import Any

import pytest

from os_prefilter import unsupported
from os_prefilter.errors import RequestRejected
from os_prefilter.reporters.guest_starts import NOT_KNOWN, STARTS, Record, records
from os_prefilter.reporters.libvirt_facts import GuestFacts, LibvirtFacts
from tests.guests.cases import Case

_HOSTS = Path(__file__).parents[1] / "guests" / "hosts"


def _host(record: Record) -> LibvirtFacts:
    """Return the host on which the guests of a record were started."""
    found = json.loads((_HOSTS / f"libvirt-{record.libvirt}-{record.virt_type}.json").read_text())
    guests = {name: GuestFacts(**_frozen(guest)) for name, guest in found.pop("guests").items()}
    return LibvirtFacts(**_frozen(found), guests=guests, nova_release=record.nova)


def _frozen(found: dict[str, Any]) -> dict[str, Any]:
    sets = {"libvirt_version": tuple, "hypervisor_version": tuple}
    return {
        name: sets.get(name, frozenset)(value) if isinstance(value, list) else value for name, value in found.items()
    }


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
        return ", ".join(map(str, unsupported(case.spec(facts.architecture), facts)))
    except RequestRejected as error:
        return str(error)


@pytest.mark.parametrize("record", records(), ids=_name)
def test_late_check_accepts_what_starts_and_refuses_what_does_not(record: Record) -> None:
    facts = _host(record)
    wrong = []
    for case, outcome in _outcomes(record).items():
        refused = _refused(case, facts)
        if not outcome.startswith(NOT_KNOWN) and bool(refused) == (outcome == STARTS):
            wrong.append(f"{case}: {outcome}; late check: {refused or 'accepts'}")
    assert wrong == []
