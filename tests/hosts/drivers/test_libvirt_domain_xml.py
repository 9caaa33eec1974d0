# SPDX-License-Identifier: Apache-2.0

"""Guest settings as libvirt's XML: one element for each, and nothing that was
not requested.
"""

import re
from contextlib import suppress
from dataclasses import replace
from itertools import product
from xml.etree.ElementTree import canonicalize

import pytest
from nova.virt.libvirt import config, driver

from os_prefilter.common.errors import RequestRejected
from os_prefilter.hosts.driver_check import guest_settings
from os_prefilter.hosts.drivers import libvirt, libvirt_domain_xml
from os_prefilter.hosts.drivers.fake import FakeFacts
from os_prefilter.hosts.drivers.libvirt_domain_xml import (
    device_models,
    domain_elements,
    driver_attributes,
)
from os_prefilter.hosts.reporter import GuestSettings, Setting
from os_prefilter.request.spec import RequestSpec
from os_prefilter.vocabulary import ROWS
from os_prefilter.vocabulary.machine_types import ARCHITECTURES
from os_prefilter.vocabulary.model import Row
from tests.conftest import spec_of
from tests.support.hosts import KVM, NOTHING, X86, libvirt_hosts
from tests.support.nova_objects import nova_spec
from tests.support.tables import cases

_SMMU, _INTEL = '<iommu model="smmuv3" />', '<iommu model="intel" />'
_VIOMMU_AUTO = {
    "x86_64": _INTEL,
    "i686": _INTEL,
    "aarch64": _SMMU,
    "armv7l": _SMMU,
}
_UEFI = (
    '<os firmware="efi"><type arch="x86_64">hvm</type>'
    '<firmware><feature name="secure-boot" enabled="{}" /></firmware>{}</os>'
)
_NO_TIMER = '<clock offset="utc"><timer name="hpet" present="no" /></clock>'


def _settings(
    architecture: str = "x86_64", family: str = "pc", **values: str
) -> GuestSettings:
    settings = (Setting(name, value, "test") for name, value in values.items())
    return GuestSettings(tuple(settings), architecture, family=family)


_HPET = '<clock offset="utc"><timer name="hpet" present="yes" /></clock>'


def test_hpet_timer_is_written_first_whether_on_or_off() -> None:
    spec = spec_of({"hw_time_hpet": "true", "hw_sound_model": "ich9"})
    elements = domain_elements(guest_settings(spec, KVM))
    assert elements == [_HPET, '<sound model="ich9" />']
    assert domain_elements(guest_settings(spec_of(), KVM)) == [_NO_TIMER]


def test_guest_without_hpet_gets_no_timer() -> None:
    assert domain_elements(GuestSettings((), "aarch64")) == []


_ELEMENTS = cases("""
x86_64 pc video_model=virtio   | <video><model type="virtio" /></video>
x86_64 pc usb_model=qemu-xhci  | <controller type="usb" index="0" model="qemu-xhci" />
x86_64 pc usb_model=none disk_bus=ide     | <controller type="usb" index="0" model="none" />
x86_64 pc usb_model=nec-xhci disk_bus=usb | <controller type="usb" index="0" model="nec-xhci" />
aarch64 virt cdrom_bus=usb             | <controller type="usb" index="0" model="qemu-xhci" />
s390x s390-ccw-virtio disk_bus=usb     | <controller type="usb" index="0" model="qemu-xhci" />
x86_64 pc scsi_model=virtio-scsi | <controller type="scsi" index="0" model="virtio-scsi" />
x86_64 pc viommu_model=auto    | <iommu model="intel" />
x86_64 pc viommu_model=virtio  | <iommu model="virtio" />
aarch64 virt viommu_model=auto | <iommu model="smmuv3" />
x86_64 pc tpm_version=2.0 tpm_model=tpm-crb | <tpm model="tpm-crb"><backend type="emulator" version="2.0" /></tpm>
x86_64 pc tpm_version=2.0      | <tpm model="tpm-tis"><backend type="emulator" version="2.0" /></tpm>
i686 pc                        | <os><type arch="i686">hvm</type></os>
x86_64 pc firmware_type=bios   | <os><type arch="x86_64">hvm</type></os>
""")


def _parsed(text: str) -> GuestSettings:
    """Return settings in the form ``architecture family name=value``."""
    architecture, family, *pairs = text.split()
    values = dict(pair.split("=") for pair in pairs)
    return _settings(architecture, family, **values)


@pytest.mark.parametrize(("text", "element"), _ELEMENTS)
def test_each_setting_becomes_one_element(text: str, element: str) -> None:
    settings = _parsed(text)
    timer = [_NO_TIMER] if settings.family == "pc" else []
    assert domain_elements(settings) == [*timer, element]


_FIRMWARE = cases("""
# Besides firmware_type=uefi | secure boot enabled | the loader
| no |
secure_boot=disabled firmware_stateless=true     | no  | <loader stateless="yes" />
secure_boot=required firmware_stateless=true     | yes | <loader secure="yes" stateless="yes" />
""")


@pytest.mark.parametrize(("values", "enabled", "loader"), _FIRMWARE)
def test_uefi_firmware_is_without_secure_boot_unless_it_is_required(
    values: str, enabled: str, loader: str
) -> None:
    settings = _parsed(f"x86_64 pc firmware_type=uefi {values}")
    element = _UEFI.format(enabled, loader)
    assert domain_elements(settings) == [_NO_TIMER, element]


@pytest.mark.parametrize(
    "properties",
    [
        {"hw_input_bus": "usb"},
        {"hw_input_bus": "virtio", "hw_pointer_model": "usbtablet"},
        {"hw_pointer_model": "usbtablet"},
    ],
)
@pytest.mark.parametrize("ports", [None, 0, 3])
def test_input_devices_redirected_ports_and_watchdog_are_those_of_novas_driver(
    properties: dict[str, object], ports: int | None
) -> None:
    redirected = {} if ports is None else {"hw_redirected_usb_ports": ports}
    spec = nova_spec(
        {**properties, "hw_watchdog_action": "pause", **redirected}
    )
    nova, guest = (
        object.__new__(driver.LibvirtDriver),
        config.LibvirtConfigGuest(),
    )
    guest.os_type = "hvm"
    nova._guest_add_pointer_device(guest, spec.image)
    nova._guest_add_keyboard_device(guest, spec.image)
    nova._add_redirected_usb_ports(guest, spec.flavor, None, spec.image)
    nova._guest_add_watchdog_action(guest, spec.flavor, spec.image)
    theirs = [
        canonicalize(device.to_xml(), strip_text=True)
        for device in guest.devices
    ]
    ours = [
        canonicalize(each)
        for each in domain_elements(guest_settings(spec, KVM))[1:]
    ]
    assert ours == theirs
    assert len(ours) == 2 + ("hw_input_bus" in properties) + (ports or 0)


def test_guest_with_a_usb_device_keeps_its_usb_controller() -> None:
    """Without one libvirt starts no such guest; nor does Nova leave it out,
    even if the image says ``none``.
    """
    for device in ("input_bus", "disk_bus", "cdrom_bus", "sound_model"):
        elements = domain_elements(
            _settings(usb_model="none", **{device: "usb"})
        )
        assert not any("controller" in element for element in elements)


@pytest.mark.parametrize("architecture", ARCHITECTURES.split())
def test_each_value_that_a_host_accepts_for_an_architecture_can_be_written(
    architecture: str,
) -> None:
    can = {row.name: frozenset(row.values) for row in ROWS}
    default = {
        "x86_64": "q35",
        "i686": "q35",
        "aarch64": "virt",
        "armv7l": "virt",
    }.get(architecture, "other")
    facts = FakeFacts(
        can={**can, "default_machine": frozenset((default,))},
        emulated_architectures=frozenset((architecture,)),
    )
    written: set[str] = set()
    for row in ROWS:
        for value in row.values if row.image_property else ():
            spec = spec_of(
                {
                    "hw_emulation_architecture": architecture,
                    str(row.image_property): value,
                }
            )
            with suppress(RequestRejected):
                written.update(domain_elements(guest_settings(spec, facts)))
    models = {element for element in written if element.startswith("<iommu")}
    assert (
        models >= {_VIOMMU_AUTO[architecture]}
        if architecture in _VIOMMU_AUTO
        else not models
    )


@pytest.mark.parametrize(
    ("properties", "smm", "used"),
    [
        ({"hw_machine_type": "q35", "hw_firmware_type": "uefi"}, None, True),
        ({"hw_machine_type": "q35", "hw_firmware_type": "uefi"}, True, True),
        ({"hw_machine_type": "q35", "hw_firmware_type": "uefi"}, False, False),
        ({"hw_machine_type": "pc", "hw_firmware_type": "uefi"}, True, False),
        ({"hw_firmware_type": "uefi"}, True, False),
    ],
)
def test_optional_secure_boot_is_used_where_the_host_has_it(
    properties: dict[str, object], smm: bool | None, used: bool
) -> None:
    """As in Nova, beside UEFI that was asked for."""
    settings = guest_settings(
        spec_of({**properties, "os_secure_boot": "optional"}),
        replace(KVM, smm=smm),
    )
    assert settings.value("secure_boot") == (
        "required" if used else "disabled"
    )
    assert (
        settings.settings[-1].source
        == "image property os_secure_boot=optional"
    )
    assert ('<loader secure="yes" />' in domain_elements(settings)[1]) is used


def test_optional_secure_boot_gives_no_guest_uefi() -> None:
    properties: tuple[dict[str, object], ...] = (
        {},
        {"hw_firmware_type": "bios"},
    )
    for each in properties:
        settings = guest_settings(
            spec_of(
                {
                    "hw_machine_type": "q35",
                    "os_secure_boot": "optional",
                    **each,
                }
            ),
            KVM,
        )
        assert domain_elements(settings)[1:] == [
            '<os><type arch="x86_64" machine="q35">hvm</type></os>'
        ]


@pytest.mark.parametrize(
    ("properties", "extra_specs", "has", "bits"),
    [
        ({"hw_maxphysaddr_bits": "42"}, {}, None, "42"),
        # Nova's own images have a number.
        ({"hw_maxphysaddr_bits": 42}, {}, 42, "42"),
        # As in Nova, the flavor counts.
        (
            {"hw_maxphysaddr_bits": "42"},
            {"hw:maxphysaddr_bits": "46"},
            48,
            "46",
        ),
        # What QEMU gives; libvirt before 9.2 starts no guest without a number.
        ({}, {}, None, "40"),
        ({}, {}, 48, "40"),
        ({}, {}, 39, "39"),
    ],
)
def test_emulated_address_space_always_has_its_bits(
    properties: dict[str, object],
    extra_specs: dict[str, str],
    has: int | None,
    bits: str,
) -> None:
    asked = {"hw_maxphysaddr_mode": "emulate", **properties}
    for spec in (spec_of(asked, extra_specs), nova_spec(asked, extra_specs)):
        settings = guest_settings(
            spec, replace(KVM, physical_address_bits=has)
        )
        assert domain_elements(settings)[1:] == [
            f'<cpu><maxphysaddr mode="emulate" bits="{bits}" /></cpu>'
        ]


def test_address_bits_are_written_for_an_emulated_address_space_alone() -> (
    None
):
    """Libvirt refuses them beside passthrough."""
    passed = guest_settings(
        spec_of(
            {"hw_maxphysaddr_mode": "passthrough", "hw_maxphysaddr_bits": "42"}
        ),
        KVM,
    )
    assert domain_elements(passed)[1:] == [
        '<cpu><maxphysaddr mode="passthrough" /></cpu>'
    ]
    assert domain_elements(
        guest_settings(spec_of({"hw_maxphysaddr_bits": "42"}), KVM)
    ) == [_NO_TIMER]


def test_emulated_architecture_is_written_by_the_name_of_libvirt() -> None:
    for architecture in ARCHITECTURES.split():
        offered = frozenset((architecture,))
        facts = replace(
            KVM,
            guests={"x86_64": X86, architecture: NOTHING},
            emulated_architectures=offered,
        )
        settings = guest_settings(
            spec_of({"hw_emulation_architecture": architecture}), facts
        )
        name = {"armv6": "armv6l"}.get(architecture, architecture)
        assert f'<os><type arch="{name}">hvm</type></os>' in domain_elements(
            settings
        )


@pytest.mark.parametrize("machine", ["microvm", "isapc"])
def test_machine_type_without_hpet_gets_no_timer_element(machine: str) -> None:
    """Of microvm QEMU does not take the element, not even for "no"."""
    asked = guest_settings(spec_of({"hw_machine_type": machine}), KVM)
    assert domain_elements(asked) == [
        f'<os><type arch="x86_64" machine="{machine}">hvm</type></os>'
    ]
    default = replace(
        KVM, guests={"x86_64": replace(X86, default_machine=machine)}
    )
    assert domain_elements(guest_settings(spec_of(), default)) == []


def test_device_models_maps_each_device_to_its_requested_model() -> None:
    settings = guest_settings(
        spec_of(
            {
                "hw_vif_model": "e1000e",
                "hw_disk_bus": "scsi",
                "hw_cdrom_bus": "sata",
            }
        ),
        KVM,
    )
    assert device_models(settings) == {
        "interface": "e1000e",
        "disk": "scsi",
        "cdrom": "sata",
    }
    assert device_models(guest_settings(spec_of(), KVM)) == {}


def test_virtio_interfaces_get_the_packed_virtqueues_that_are_asked_for() -> (
    None
):
    packed = guest_settings(
        spec_of({"hw_virtio_packed_ring": "true", "hw_vif_model": "virtio"}),
        KVM,
    )
    assert driver_attributes(packed) == {"interface": {"packed": "on"}}
    for spec in (spec_of({"hw_virtio_packed_ring": "false"}), spec_of()):
        assert driver_attributes(guest_settings(spec, KVM)) == {}


_BESIDE: tuple[dict[str, object], ...] = (
    {},
    {"hw_firmware_type": "uefi"},
    {"hw_tpm_version": "2.0"},
)
"""Without the one or the other some rows mean nothing."""


def test_each_row_is_rendered_or_left_to_the_driver_by_name() -> None:
    """A row that a libvirt host can do is an element, a model or an attribute;
    or the docstring has it.
    """
    facts = FakeFacts(
        can={
            **{row.name: frozenset(row.values) for row in ROWS},
            "default_machine": frozenset(("q35",)),
        }
    )

    def rendered(spec: RequestSpec) -> object:
        settings = guest_settings(spec, facts)
        return (
            domain_elements(settings),
            device_models(settings),
            driver_attributes(settings),
        )

    def is_rendered(row: Row) -> bool:
        for beside, value in product(_BESIDE, row.values):
            properties = (
                {**beside, row.image_property: value}
                if row.image_property
                else beside
            )
            extra_specs = (
                {}
                if row.image_property or not row.extra_spec
                else {row.extra_spec: value}
            )
            with suppress(RequestRejected):
                if rendered(spec_of(properties, extra_specs)) != rendered(
                    spec_of(beside)
                ):
                    return True
        return False

    def is_promised(row: Row) -> bool:
        return not row.traits or any(
            not libvirt.refusal(host, row.name, value, "")
            for host, (value, term) in product(
                libvirt_hosts(), row.values.items()
            )
            if term.trait
        )

    promised = [row for row in ROWS if row.required_by and is_promised(row)]
    left = {row.name for row in promised if not is_rendered(row)}
    listed = re.findall(
        r"^- ``(\w+)``", str(libvirt_domain_xml.__doc__), re.MULTILINE
    )
    assert left == set(listed), (
        "docs/contribute.rst, 'Add a row', says where a row is rendered"
    )
