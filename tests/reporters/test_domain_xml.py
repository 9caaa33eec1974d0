"""Guest settings as libvirt's XML: one element for each, and nothing that was not asked for."""

from contextlib import suppress
from dataclasses import replace

import pytest

from os_prefilter.errors import RequestRejected
from os_prefilter.late_check import guest_settings
from os_prefilter.platforms import ARCHITECTURES
from os_prefilter.reporters import GuestSettings, Setting
from os_prefilter.reporters.domain_xml import device_models, domain_elements
from os_prefilter.reporters.fake import FakeFacts
from os_prefilter.vocabulary import ROWS
from tests.conftest import spec_of
from tests.support.hosts import KVM, X86

_SMMU, _INTEL = '<iommu model="smmuv3" />', '<iommu model="intel" />'
_VIOMMU_AUTO = {"x86_64": _INTEL, "i686": _INTEL, "aarch64": _SMMU, "armv7l": _SMMU}
_NO_TIMER = '<clock offset="utc"><timer name="hpet" present="no" /></clock>'


def _settings(**values: str) -> GuestSettings:
    return GuestSettings(tuple(Setting(name, value, "test") for name, value in values.items()), "x86_64", family="pc")


def test_hpet_timer_is_written_first_whether_on_or_off() -> None:
    wanted = guest_settings(spec_of({"hw_time_hpet": "true", "hw_sound_model": "ich9"}), KVM)
    assert domain_elements(wanted) == [
        '<clock offset="utc"><timer name="hpet" present="yes" /></clock>',
        '<sound model="ich9" />',
    ]
    assert domain_elements(guest_settings(spec_of(), KVM)) == [_NO_TIMER]


@pytest.mark.parametrize("architecture", ["aarch64", "s390x", "ppc64le"])
def test_hpet_timer_is_not_written_for_other_architectures(architecture: str) -> None:
    assert domain_elements(GuestSettings((), architecture)) == []


@pytest.mark.parametrize(
    ("settings", "element"),
    [
        (_settings(video_model="virtio"), '<video><model type="virtio" /></video>'),
        (_settings(usb_model="qemu-xhci"), '<controller type="usb" index="0" model="qemu-xhci" />'),
        (_settings(usb_model="none"), '<controller type="usb" index="0" model="none" />'),
        (_settings(viommu_model="intel"), '<iommu model="intel" />'),
        (_settings(viommu_model="auto"), '<iommu model="intel" />'),
        (
            _settings(tpm_version="2.0", tpm_model="tpm-crb"),
            '<tpm model="tpm-crb"><backend type="emulator" version="2.0" /></tpm>',
        ),
        (_settings(firmware_type="uefi"), '<os firmware="efi"><type arch="x86_64">hvm</type></os>'),
        (
            _settings(firmware_type="uefi", secure_boot="required", firmware_stateless="true"),
            '<os firmware="efi"><type arch="x86_64">hvm</type><loader secure="yes" stateless="yes" /></os>',
        ),
        (_settings(firmware_type="bios"), '<os><type arch="x86_64">hvm</type></os>'),
    ],
)
def test_each_setting_becomes_one_element(settings: GuestSettings, element: str) -> None:
    assert domain_elements(settings) == [_NO_TIMER, element]


@pytest.mark.parametrize("device", ["disk_bus", "cdrom_bus", "sound_model"])
def test_guest_with_a_usb_device_keeps_its_usb_controller(device: str) -> None:
    """Without one libvirt starts no such guest; nor does Nova leave it out, even if the image says ``none``."""
    assert not any(
        "controller" in element for element in domain_elements(_settings(usb_model="none", **{device: "usb"}))
    )


@pytest.mark.parametrize("architecture", ARCHITECTURES.split())
def test_each_value_that_a_host_accepts_for_an_architecture_can_be_written(architecture: str) -> None:
    can = {row.name: frozenset(row.values) for row in ROWS}
    facts = FakeFacts(can={**can, "default_machine": frozenset(("q35", "virt"))})
    written: set[str] = set()
    for row in ROWS:
        for value in row.values if row.image_property else ():
            spec = spec_of({"hw_emulation_architecture": architecture, str(row.image_property): value})
            with suppress(RequestRejected):
                written.update(domain_elements(guest_settings(spec, facts)))
    models = {element for element in written if element.startswith("<iommu")}
    assert models >= {_VIOMMU_AUTO[architecture]} if architecture in _VIOMMU_AUTO else not models


def test_the_machine_type_keeps_its_exact_version() -> None:
    settings = guest_settings(spec_of({"hw_machine_type": "pc-i440fx-7.2"}), KVM)
    assert domain_elements(settings)[1] == '<os><type arch="x86_64" machine="pc-i440fx-7.2">hvm</type></os>'


@pytest.mark.parametrize("machine", ["microvm", "isapc"])
def test_machine_type_without_hpet_gets_no_timer_element(machine: str) -> None:
    """Of microvm QEMU does not take the element, not even for "no"."""
    asked = guest_settings(spec_of({"hw_machine_type": machine}), KVM)
    assert domain_elements(asked) == [f'<os><type arch="x86_64" machine="{machine}">hvm</type></os>']
    default = replace(KVM, guests={"x86_64": replace(X86, default_machine=machine)})
    assert domain_elements(guest_settings(spec_of(), default)) == []


def test_device_models_maps_each_device_to_its_requested_model() -> None:
    settings = guest_settings(spec_of({"hw_vif_model": "e1000e", "hw_disk_bus": "scsi", "hw_cdrom_bus": "sata"}), KVM)
    assert device_models(settings) == {"interface": "e1000e", "disk": "scsi", "cdrom": "sata"}
    assert device_models(guest_settings(spec_of(), KVM)) == {}
