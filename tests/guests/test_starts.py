# SPDX-License-Identifier: Apache-2.0

"""Real guests on the machine's libvirt: no value is a yes that does not start,
or a no that does.

In CI a libvirt that is missing fails these tests. Elsewhere they need
``OS_PREFILTER_LIBVIRT_URI=qemu:///system``, a libvirtd that runs as root, and
QEMU; of architectures without a QEMU nothing is asked.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from os_prefilter import unsupported
from os_prefilter.adapters.libvirt.host import KVM_DEVICE
from os_prefilter.common.errors import RequestRejected
from os_prefilter.hosts.drivers.libvirt_facts import LibvirtFacts
from os_prefilter.request.remarks import remarks_in_nova
from os_prefilter.request.view import Request
from os_prefilter.vocabulary import BY_NAME
from os_prefilter.vocabulary.options import Options
from os_prefilter_tools.testing.law import (
    disagreements,
    options_of,
    pair_cases,
    platform_cases,
    single_cases,
)
from tests.conftest import one_in
from tests.guests import cases as guest_cases
from tests.guests.cases import (
    NEEDY,
    NOT_SAID,
    ROWS,
    SOME_VALUES,
    WAYS,
    Case,
    cases,
    is_left_out,
    may_not_start,
    not_said,
    samples,
    without_effect,
)
from tests.guests.record import as_built, built, probed, started
from tests.guests.records import NOT_KNOWN, REFUSED, STARTS
from tests.guests.starter import Guest, Outcome
from tests.services.libvirt.connection import needs_libvirt, uri
from tests.support.zipping import zip_equal

pytestmark = needs_libvirt


@pytest.fixture(scope="module")
def host() -> LibvirtFacts:
    """Return the host without KVM, which not every machine lets a guest
    use.
    """
    return probed(uri(), "qemu")


@pytest.fixture(scope="module", params=["our settings", "Nova"])
def facts(request: pytest.FixtureRequest, host: LibvirtFacts) -> LibvirtFacts:
    return as_built(host, by_nova=request.param == "Nova")


@pytest.fixture(scope="module")
def outcomes(facts: LibvirtFacts) -> Mapping[Case, Outcome]:
    return started(list(cases(facts)), facts, uri())


def test_late_check_accepts_the_guests_that_start_and_refuses_the_others(
    facts: LibvirtFacts, outcomes: Mapping[Case, Outcome]
) -> None:
    # Else nothing would be known of the others.
    assert outcomes[Case(facts.architecture)].answer == STARTS
    known = {
        case: outcome
        for case, outcome in outcomes.items()
        if outcome.answer != NOT_KNOWN
    }
    assert len(known) > len(outcomes) // 2
    wrong = dict(_disagreements(known, facts))
    assert [
        f"{case}: {outcome}"
        for case, outcome in wrong.items()
        if not_said(case, facts) not in NOT_SAID
    ] == []


def test_guests_have_each_two_or_three_things_that_the_late_check_accepts(
    facts: LibvirtFacts, record_property: Callable[[str, object], None]
) -> None:
    """250 guests of each driver, the same ones but for another
    ``OS_PREFILTER_GUESTS_SEED``.
    """
    some = samples(
        facts, int(os.environ.get("OS_PREFILTER_GUESTS_SEED", "35"))
    )
    accepted = list(
        islice((case for case in some if _accepts(case, facts)), 250)
    )
    found = started(accepted, facts, uri())
    known = {
        case: outcome
        for case, outcome in found.items()
        if outcome.answer != NOT_KNOWN
    }
    assert len(known) > len(found) * 3 // 4
    assert [
        f"{case}: {outcome}" for case, outcome in _disagreements(known, facts)
    ] == []
    record_property("guests", len(known))


def test_value_alone_is_refused_or_noted_where_a_guest_does_not_have_it(
    facts: LibvirtFacts,
) -> None:
    """Without what a user may forget: UEFI for Secure Boot, the version of a
    TPM, the number of address bits.
    """
    # Whether there is a CD-ROM, a driver of its own decides.
    left_out = set() if facts.built_by_nova else {"cdrom_bus"}
    alone = [
        Case(facts.architecture, "", row, value, alone=True)
        for row in NEEDY
        if row not in left_out
        for value in BY_NAME[row].values
    ]
    found = started(alone, facts, uri())
    assert [
        f"{case}: {outcome}" for case, outcome in _disagreements(found, facts)
    ] == []
    lacking = [case for case in found if found[case].lacks]
    lacks = {(case.row, case.value) for case in lacking}
    assert lacks >= {
        ("tpm_model", "tpm-crb"),
        ("tpm_model", "tpm-tis"),
        ("firmware_stateless", "true"),
    }
    if facts.built_by_nova:
        assert ("secure_boot", "required") in lacks
        # A guest without UEFI has no state: a note says so.
        accepted = {case.row for case in lacking if _accepts(case, facts)}
        assert accepted == {"firmware_stateless"}


def test_what_is_told_to_have_no_effect_has_none(facts: LibvirtFacts) -> None:
    """Each value without an effect in a guest of Nova, as a note on the
    request says; it may have one in ours.
    """
    ignored = [
        *(
            Case(facts.architecture, "pc", "usb_model", value)
            for value in ("nec-xhci", "none")
        ),
        Case(
            facts.architecture,
            "pc",
            "pointer_model",
            "usbtablet",
            (("input_bus", "virtio"),),
        ),
        Case(
            facts.architecture,
            "pc",
            "firmware_stateless",
            "true",
            (("firmware_type", "bios"),),
        ),
        Case(facts.architecture, "pc", "time_hpet", "false"),
    ]
    found = started(ignored, facts, uri())
    lacks = [
        case for case, outcome in found.items() if case.row in outcome.lacks
    ]
    in_both = {"pointer_model", "firmware_stateless"}
    assert lacks == (
        ignored
        if facts.built_by_nova
        else [case for case in ignored if case.row in in_both]
    )
    assert all(case.row in without_effect(case, facts) for case in lacks)
    assert all(_accepts(case, facts) for case in lacks)


def test_no_guest_of_nova_starts_with_a_pair_and_each_does_with_the_advice_or_a_disk_on_usb(
    host: LibvirtFacts,
) -> None:
    facts, virtio = as_built(host, by_nova=True), ("input_bus", "virtio")
    advice = {
        Case("x86_64", "pc", "sound_model", "usb", (virtio,)): (
            "usb_model",
            "qemu-xhci",
        ),
        Case("x86_64", "q35", "usb_redirection", "1", (virtio,)): (
            "usb_model",
            "nec-xhci",
        ),
    }
    saved = [
        case._replace(more=(*case.more, other))
        for case, other in advice.items()
    ]
    saved.append(
        Case(
            "x86_64",
            "pc",
            "usb_redirection",
            "1",
            (virtio, ("cdrom_bus", "usb")),
        )
    )
    found = started([*advice, *saved], facts, uri())
    assert [found[case].answer for case in advice] == [REFUSED] * 2
    assert [found[case].answer for case in saved] == [STARTS] * 3
    # Whether the user attaches a disk on USB, no request says.
    assert [_accepts(case, facts) for case in advice] == [True] * 2
    assert [may_not_start(case, facts) for case in advice] == [True] * 2
    assert [_accepts(case, facts) for case in saved] == [True] * 3
    assert [may_not_start(case, facts) for case in saved] == [False] * 3


def test_other_ways_to_ask_give_the_same_guest_or_are_told(
    facts: LibvirtFacts, tmp_path: Path
) -> None:
    """By extra spec as by property; by the name of a trait a switched device
    of ours alone, and nothing else.
    """
    own = facts.architecture
    asked = [
        Case(own, "pc", row, value)
        for row in ROWS
        for value in SOME_VALUES.get(row, BY_NAME[row].values)
    ]
    ways = [
        case._replace(way=way)
        for case in asked
        for way in ("", *WAYS)
        if case.has_way(way)
    ]
    guests = dict(
        zip_equal(ways, map(_without_ids, built(ways, facts, uri(), tmp_path)))
    )
    for case in ways:
        is_device = bool(BY_NAME[case.row].device)
        if case.way == "extra spec" or (
            case.way == "trait" and is_device and not facts.built_by_nova
        ):
            assert guests[case] == guests[case._replace(way="")], case
        elif case.way == "trait":
            assert guests[case] == guests[case._replace(way="nothing")], case
            told = list(remarks_in_nova(Request(case.spec(own)), Options()))
            # Some have it without asking: a TPM is of the model tpm-tis.
            assert told or guests[case] == guests[case._replace(way="")], case
            assert not (is_device and _accepts(case, facts)), case


def _without_ids(guest: Guest) -> str:
    return re.sub(
        "(?s)<metadata>.*</metadata>|[0-9a-f]{8}-[0-9a-f-]{27}",
        "",
        guest.xml or guest.refusal,
    )


def _disagreements(
    known: Mapping[Case, Outcome], facts: LibvirtFacts
) -> Iterator[tuple[Case, Outcome]]:
    """Yield the guests that differ from what the late check says, and from
    what the notes on the request say.
    """
    for case, outcome in known.items():
        if is_left_out(case, facts):
            continue
        has = outcome.answer == STARTS or bool(
            outcome.lacks and set(outcome.lacks) <= without_effect(case, facts)
        )
        may_start = has or may_not_start(case, facts)
        if _accepts(case, facts) not in (has, may_start):
            yield case, outcome


def test_guest_with_secure_boot_starts_if_and_only_if_the_host_says_so() -> (
    None
):
    """Of the virt type that the host has: not every KVM has System Management
    Mode.
    """
    facts = probed(uri(), "kvm" if Path(KVM_DEVICE).exists() else "qemu")
    some = [
        Case(facts.architecture, "q35", "secure_boot", value)
        for value in BY_NAME["secure_boot"].values
    ]
    assert dict(_disagreements(started(some, facts, uri()), facts)) == {}


def test_required_traits_are_reported_if_and_only_if_the_late_check_accepts(
    facts: LibvirtFacts,
) -> None:
    """For each value, and for a sample of the pairs: tests/property has all,
    on hosts that are written down.
    """
    step, options = one_in(20), options_of(facts)
    cases = (
        *single_cases(options),
        *pair_cases(step=step, options=options),
        *platform_cases(step=step, options=options),
    )
    assert list(disagreements(cases, facts)) == []


def test_nova_guest_with_redirected_ports_does_not_start_without_spice(
    host: LibvirtFacts,
) -> None:
    facts = replace(as_built(host, by_nova=True), spice_enabled=False)
    case = Case(facts.architecture, row="usb_redirection", value="1")
    outcome = started([case], facts, uri())[case]
    assert outcome == Outcome(
        REFUSED,
        "unsupported configuration: chardev 'spicevmc' not supported without"
        " spice graphics",
    )
    assert not _accepts(case, facts)


def _accepts(case: Case, facts: LibvirtFacts) -> bool:
    try:
        return not unsupported(case.spec(facts.architecture), facts)
    except RequestRejected:
        return False


def test_old_machine_type_starts_as_nova_builds_the_guest_or_is_refused(
    host: LibvirtFacts,
) -> None:
    """Each version of ``pc`` and ``q35`` up to 2.12 that this QEMU has: those
    before 2.5 lack a device of Nova's.
    """
    facts = as_built(host, by_nova=True)
    old = re.compile(r"pc-(i440fx|q35)-[12]\..*")
    machines = filter(old.fullmatch, facts.guests["x86_64"].machines)
    some = [Case("x86_64", machine) for machine in sorted(machines)]
    found = started(some, facts, uri())
    assert [
        f"{case}: {outcome}"
        for case, outcome in found.items()
        if (outcome.answer == STARTS) is not _accepts(case, facts)
    ] == []
    reasons = {outcome.reason for outcome in found.values() if outcome.reason}
    without_dma = "vmcoreinfo device requires fw_cfg with DMA"
    assert [reason for reason in reasons if without_dma not in reason] == []


def test_guest_of_nova_with_bits_of_a_passed_through_address_space_is_refused(
    host: LibvirtFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = as_built(host, by_nova=True)
    if facts.libvirt_version >= (9, 2, 0):
        pytest.skip("another libvirt")
    monkeypatch.setattr(guest_cases, "_NEEDS_NOTHING", set())
    case = Case("x86_64", "pc", "maxphysaddr_mode", "passthrough")
    outcome = started([case], facts, uri())[case]
    assert outcome.answer == REFUSED
    assert "bits number specification cannot be used" in outcome.reason
    assert not _accepts(case, facts)
