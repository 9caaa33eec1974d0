"""What the start of a guest tells: a host that lacks what the guest needs, or does not answer, is never a no."""

from collections.abc import Iterator
from contextlib import closing
from importlib import import_module
from typing import Any

import pytest

from tests.guests.records import NOT_KNOWN, REFUSED, STARTS
from tests.guests.starter import Guest, Outcome, Starter
from tests.services.libvirt.connection import needs_libvirt, uri
from tests.services.own_services import needs, own_libvirtd

_GUEST = (
    "<domain type='qemu'><name>guest</name><memory unit='MiB'>64</memory><os{}><type arch='{}'>hvm</type>{}</os>"
    "<features><acpi/></features><devices>{}</devices></domain>"
)


def guest(architecture: str = "x86_64", *, firmware: str = "", loader: str = "", devices: str = "") -> Guest:
    return Guest(_GUEST.format(firmware, architecture, loader, devices))


@pytest.fixture(scope="module")
def connection() -> Iterator[Any]:
    with closing(import_module("libvirt").open(uri())) as opened:
        yield opened


def outcomes(connection: Any, *guests: Guest) -> list[Outcome]:
    with closing(Starter(connection)) as starter:
        return list(starter.outcomes(guests))


@needs_libvirt
@pytest.mark.parametrize(
    ("some", "answer", "reason"),
    [
        (guest(), STARTS, ""),
        (guest(devices="<disk device='disk'><source/><target dev='fda' bus='fdc'/></disk>"), REFUSED, "bus type 'fdc'"),
        (Guest("", "InvalidVIOMMUMachineType"), REFUSED, "InvalidVIOMMUMachineType"),
        (guest(devices="<emulator>/usr/bin/qemu-system-gone</emulator>"), NOT_KNOWN, "Cannot check QEMU binary"),
        (guest("lm32"), NOT_KNOWN, "No emulator found for arch 'lm32'"),
        (guest(firmware=" firmware='efi'", loader="<loader stateless='yes'/>"), NOT_KNOWN, "Unable to find"),
    ],
)
def test_outcome_says_whether_the_guest_starts(connection: Any, some: Guest, answer: str, reason: str) -> None:
    (outcome,) = outcomes(connection, some)
    assert (outcome.answer, reason in outcome.reason) == (answer, True)


@needs_libvirt
def test_libvirt_without_rights_is_not_known() -> None:
    with closing(import_module("libvirt").openReadOnly(uri())) as connection:
        ((answer, reason),) = outcomes(connection, guest())
    assert (answer, "forbidden" in reason) == (NOT_KNOWN, True)


@needs_libvirt
def test_hpet_counts_only_where_the_guest_has_one(connection: Any) -> None:
    timer = "<clock offset='utc'><timer name='hpet' present='yes'/></clock><devices>"
    pc, isapc = (
        guest().xml.replace("<devices>", timer).replace("arch='x86_64'", f"arch='x86_64' machine='{machine}'")
        for machine in ("pc", "isapc")
    )
    isapc = isapc.replace("<devices>", "<devices><controller type='usb' model='none'/><memballoon model='none'/>")
    found = outcomes(connection, Guest(pc, device="hpet"), Guest(isapc, device="hpet"))
    assert found == [Outcome(STARTS), Outcome(REFUSED, "the guest starts without the hpet")]


@needs("libvirtd")
def test_guest_that_hangs_and_those_after_it_are_not_known() -> None:
    with own_libvirtd() as (service, own_uri), closing(import_module("libvirt").open(own_uri)) as connection:
        starter = Starter(connection, timeout=1.0)
        service.stop()
        try:
            found = list(starter.outcomes([guest()] * 8))
        finally:
            service.go_on()
        starter.close()
    assert found == [Outcome(NOT_KNOWN, "no answer in 1 s")] * 8
