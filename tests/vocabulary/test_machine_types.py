"""The table of what machine types can never have, against what libvirt says of each machine type."""

import pytest

from os_prefilter.adapters.libvirt.documents import DomainCapabilities
from os_prefilter.vocabulary.machine_types import MACHINES, OTHER, families_without, family_of, guest_architecture
from tests.support.corpus import corpus_answers

_QEMU = [answer for answer in corpus_answers() if answer.domain_type in ("kvm", "qemu")]
_KNOWN = [answer for answer in _QEMU if family_of(answer.machine) != OTHER]


def _can(answer: DomainCapabilities, row: str, value: str) -> bool:
    return family_of(answer.machine) not in families_without(row, value)


@pytest.mark.parametrize("answer", _KNOWN, ids=[answer.where for answer in _KNOWN])
@pytest.mark.parametrize("bus", ["ide", "sata"])
def test_ide_and_sata_support_of_each_machine_type_matches_libvirt(answer: DomainCapabilities, bus: str) -> None:
    assert (bus in answer.guest.buses) == _can(answer, "disk_bus", bus)


@pytest.mark.parametrize("answer", _KNOWN, ids=[answer.where for answer in _KNOWN])
def test_no_device_or_firmware_offered_by_libvirt_is_denied(answer: DomainCapabilities) -> None:
    """But for floppies outside x86, which it lists for every machine type but pseries, and which never appear there."""
    for row, values in (
        ("disk_bus", answer.guest.buses - {"fdc"}),
        ("tpm_model", answer.guest.tpm_models),
        ("video_model", answer.guest.video_models),
    ):
        assert {value for value in values if not _can(answer, row, value)} == set()
    if answer.guest.secure_boot:
        assert _can(answer, "secure_boot", "required")
    if answer.guest.uefi:
        assert _can(answer, "firmware_type", "uefi")


def test_machine_type_family_maps_to_itself_and_i686_guests_to_x86_64() -> None:
    assert {family_of(family) for family in MACHINES} == set(MACHINES)
    assert guest_architecture("i686") == "x86_64"
    assert [guest_architecture(name) for name in ("aarch64", "sparc", "")] == ["aarch64", "sparc", ""]
