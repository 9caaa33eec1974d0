# SPDX-License-Identifier: Apache-2.0

"""Real guests on a QEMU that lacks what Red Hat leaves out.

A program hides these devices of the machine's QEMU and refuses them, so that
libvirt, which asks it by other means, knows nothing of that.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from xml.etree.ElementTree import SubElement, tostring

import pytest
from defusedxml.ElementTree import fromstring

from os_prefilter import unsupported
from os_prefilter.adapters.libvirt.qemu import devices_of
from os_prefilter.hosts.capabilities import capability_traits
from os_prefilter.hosts.drivers.libvirt_facts import LibvirtFacts
from os_prefilter.hosts.drivers.qemu_devices import DEVICES
from os_prefilter.vocabulary import BY_NAME
from os_prefilter.vocabulary.machine_types import FAMILIES_WITHOUT
from tests.guests.cases import SOME_VALUES, Case, without_effect
from tests.guests.record import as_built, built, probed
from tests.guests.records import NOT_KNOWN, STARTS
from tests.guests.starter import Guest, Outcome, Starter
from tests.services.libvirt.connection import needs_libvirt, uri
from tests.support.hosts import RED_HATS_NOT
from tests.support.qemu import lean_qemu, public_folder
from tests.support.zipping import zip_equal

pytestmark = needs_libvirt

_REAL = "/usr/bin/qemu-system-x86_64"
_ROWS = ("vif_model", "scsi_model", "sound_model", "usb_model", "watchdog")
_LOST = {
    (row, value)
    for (row, value), needed in DEVICES.items()
    if set(needed.split()) & set(RED_HATS_NOT.split())
}


@pytest.fixture(scope="module")
def emulator() -> Iterator[str]:
    with public_folder() as folder:
        yield lean_qemu(folder, _REAL, RED_HATS_NOT.split())


@pytest.fixture(scope="module")
def host(emulator: str) -> LibvirtFacts:
    facts = probed(uri(), "qemu")
    if facts.architecture != "x86_64" or not Path(_REAL).exists():
        pytest.skip("it is not known which devices QEMU lacks there")
    lean = replace(facts.guests["x86_64"], devices=devices_of(emulator))
    return replace(facts, guests={**facts.guests, "x86_64": lean})


@pytest.fixture(scope="module", params=["our settings", "Nova"])
def facts(request: pytest.FixtureRequest, host: LibvirtFacts) -> LibvirtFacts:
    return as_built(host, by_nova=request.param == "Nova")


def _cases() -> Iterator[Case]:
    """Yield each value of a device on a machine type that can have it."""
    for row in _ROWS:
        for value in SOME_VALUES.get(row, BY_NAME[row].values):
            if "pc" not in FAMILIES_WITHOUT.get((row, value), ()):
                yield Case("x86_64", "pc", row, value)


def _on(emulator: str, guest: Guest) -> Guest:
    """Return a guest with another QEMU."""
    if guest.refusal:
        return guest
    domain = fromstring(guest.xml)
    devices = domain.find("devices")
    assert devices is not None
    for each in devices.findall("emulator"):
        devices.remove(each)
    SubElement(devices, "emulator").text = emulator
    return guest._replace(xml=tostring(domain, encoding="unicode"))


def _started(
    facts: LibvirtFacts, emulator: str, folder: Path
) -> dict[Case, Outcome]:
    some = list(_cases())
    guests = built(some, facts, uri(), folder)
    libvirt = import_module("libvirt")
    with (
        closing(libvirt.open(uri())) as connection,
        closing(Starter(connection)) as starter,
    ):
        outcomes = starter.outcomes(_on(emulator, each) for each in guests)
        return dict(zip_equal(some, outcomes))


def test_late_check_accepts_the_guests_that_start_on_a_lean_qemu(
    facts: LibvirtFacts, emulator: str, tmp_path: Path
) -> None:
    outcomes = _started(facts, emulator, tmp_path)
    known = {
        case: outcome
        for case, outcome in outcomes.items()
        if outcome.answer != NOT_KNOWN
    }
    assert len(known) > len(outcomes) * 3 // 4
    wrong = []
    for case, outcome in known.items():
        refused = unsupported(case.spec("x86_64"), facts)
        has = outcome.answer == STARTS
        # A note says that Nova ignores some of these.
        if outcome.lacks:
            has = set(outcome.lacks) <= without_effect(case, facts)
        if bool(refused) is has:
            wrong.append(f"{case}: {outcome}, late check {refused}")
    assert wrong == []
    lost = {(case.row, case.value) for case in known} & _LOST
    assert lost == _LOST
    started = {
        (case.row, case.value)
        for case, outcome in known.items()
        if outcome.answer == STARTS
    }
    assert not started & _LOST


def test_lean_host_reports_no_device_that_its_qemu_hides(
    facts: LibvirtFacts,
) -> None:
    traits = capability_traits(facts)
    for row, value in _LOST:
        assert not traits[str(BY_NAME[row].values[value].trait)]
