"""Real guests on the machine's libvirt: no value is a yes that does not start, or a no that does.

In CI a libvirt that is missing fails these tests. Elsewhere they need ``OS_PREFILTER_LIBVIRT_URI=qemu:///system``, a
libvirtd that runs as root, and QEMU; of architectures without a QEMU nothing is asked.
"""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from os_prefilter import unsupported
from os_prefilter.common.errors import RequestRejected
from os_prefilter.hosts.drivers.libvirt_facts import LibvirtFacts
from os_prefilter_tools.testing.law import disagreements, single_cases
from tests.guests.cases import NOT_SAID, Case, cases, not_said
from tests.guests.record import as_built, probed, started
from tests.guests.records import NOT_KNOWN, REFUSED, STARTS
from tests.guests.starter import Outcome
from tests.services.libvirt.connection import needs_libvirt, uri

pytestmark = needs_libvirt


@pytest.fixture(scope="module")
def host() -> LibvirtFacts:
    """Return the host without KVM, which not every machine lets a guest use."""
    return probed(uri(), "qemu")


@pytest.fixture(scope="module", params=["our settings", "Nova"])
def facts(request: pytest.FixtureRequest, host: LibvirtFacts) -> LibvirtFacts:
    """Return the host with each driver that builds guests."""
    return as_built(host, by_nova=request.param == "Nova")


@pytest.fixture(scope="module")
def outcomes(facts: LibvirtFacts) -> Mapping[Case, Outcome]:
    """Return what became of all guests."""
    return started(list(cases(facts)), facts, uri())


def test_late_check_accepts_the_guests_that_start_and_refuses_the_others(
    facts: LibvirtFacts, outcomes: Mapping[Case, Outcome]
) -> None:
    # Else nothing would be known of the others.
    assert outcomes[Case(facts.architecture)].answer == STARTS
    known = {case: outcome for case, outcome in outcomes.items() if outcome.answer != NOT_KNOWN}
    assert len(known) > len(outcomes) // 2
    assert [
        f"{case}: {outcome}"
        for case, outcome in known.items()
        if _accepts(case, facts) != (outcome.answer == STARTS) and not_said(case, facts) not in NOT_SAID
    ] == []


def test_required_traits_are_reported_if_and_only_if_the_late_check_accepts(facts: LibvirtFacts) -> None:
    assert list(disagreements(single_cases(facts.emulated_architectures, by_nova=facts.built_by_nova), facts)) == []
    without = replace(facts, emulated_architectures=frozenset())
    assert list(disagreements(single_cases(by_nova=facts.built_by_nova), without)) == []


def test_nova_guest_with_redirected_ports_does_not_start_without_spice(host: LibvirtFacts) -> None:
    facts = replace(as_built(host, by_nova=True), spice_enabled=False)
    case = Case(facts.architecture, row="usb_redirection", value="1")
    outcome = started([case], facts, uri())[case]
    assert outcome == Outcome(
        REFUSED, "unsupported configuration: chardev 'spicevmc' not supported without spice graphics"
    )
    assert not _accepts(case, facts)


def _accepts(case: Case, facts: LibvirtFacts) -> bool:
    try:
        return not unsupported(case.spec(facts.architecture), facts)
    except RequestRejected:
        return False
