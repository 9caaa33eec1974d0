# SPDX-License-Identifier: Apache-2.0

"""Guest settings as libvirt's XML: one element for each, and nothing that was
not requested.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import product
from typing import Any
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
from os_prefilter.hosts.drivers.libvirt_facts import LibvirtFacts
from os_prefilter.hosts.reporter import GuestSettings, Setting
from os_prefilter.request.spec import RequestSpec
from os_prefilter.vocabulary import ROWS
from os_prefilter.vocabulary.machine_types import ARCHITECTURES
from os_prefilter.vocabulary.model import Row
from tests.conftest import ExtraSpecs, Properties, spec_of
from tests.support.hosts import KVM, X86, libvirt_hosts
from tests.support.nova_objects import nova_spec
from tests.support.tables import cases

_SMMU = '<iommu model="smmuv3" />'
_INTEL = '<iommu model="intel" />'
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


_EVERY_VALUE = {row.name: frozenset(row.values) for row in ROWS}


def _settings(
    architecture: str = "x86_64", family: str = "pc", **values: str
) -> GuestSettings:
    settings = (Setting(name, value, "test") for name, value in values.items())
    return GuestSettings(tuple(settings), architecture, family=family)


def _elements(
    properties: Properties | None = None, facts: LibvirtFacts = KVM
) -> list[str]:
    return domain_elements(guest_settings(spec_of(properties), facts))


_HPET = '<clock offset="utc"><timer name="hpet" present="yes" /></clock>'


def test_hpet_timer_is_written_first() -> None:
    elements = _elements({"hw_time_hpet": "true", "hw_sound_model": "ich9"})
    assert elements == [_HPET, '<sound model="ich9" />']


def test_hpet_timer_is_switched_off_where_it_is_not_requested() -> None:
    assert _elements({}) == [_NO_TIMER]


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
    ("properties", "input_devices"),
    [
        ({"hw_input_bus": "usb"}, 2),
        ({"hw_input_bus": "virtio", "hw_pointer_model": "usbtablet"}, 2),
        ({"hw_pointer_model": "usbtablet"}, 1),
    ],
    ids=["USB", "virtio", "tablet"],
)
@pytest.mark.parametrize("ports", [None, 0, 3])
def test_input_devices_redirected_ports_and_watchdog_are_those_of_novas_driver(
    properties: Properties, input_devices: int, ports: int | None
) -> None:
    properties = {**properties, "hw_watchdog_action": "pause"}
    if ports is not None:
        properties["hw_redirected_usb_ports"] = ports
    spec = nova_spec(properties)
    nova = object.__new__(driver.LibvirtDriver)
    guest = config.LibvirtConfigGuest()
    guest.os_type = "hvm"
    nova._guest_add_pointer_device(guest, spec.image)
    nova._guest_add_keyboard_device(guest, spec.image)
    nova._add_redirected_usb_ports(guest, spec.flavor, None, spec.image)
    nova._guest_add_watchdog_action(guest, spec.flavor, spec.image)
    theirs = [
        canonicalize(device.to_xml(), strip_text=True)
        for device in guest.devices
    ]
    _, *ours = map(canonicalize, domain_elements(guest_settings(spec, KVM)))
    assert ours == theirs
    watchdogs = 1
    assert len(ours) == input_devices + watchdogs + (ports or 0)


@pytest.mark.parametrize(
    "device", ["input_bus", "disk_bus", "cdrom_bus", "sound_model"]
)
def test_guest_with_a_usb_device_keeps_its_usb_controller(device: str) -> None:
    """Without one libvirt starts no such guest; nor does Nova leave it out,
    even if the image says ``none``.
    """
    settings = _settings(usb_model="none", **{device: "usb"})
    assert "controller" not in "".join(domain_elements(settings))


@pytest.mark.parametrize("architecture", ARCHITECTURES.split())
def test_each_value_that_a_host_accepts_for_an_architecture_can_be_written(
    architecture: str,
) -> None:
    machines = {
        "x86_64": "q35",
        "i686": "q35",
        "aarch64": "virt",
        "armv7l": "virt",
    }
    machine = machines.get(architecture, "other")
    facts = FakeFacts(
        can={**_EVERY_VALUE, "default_machine": frozenset((machine,))},
    )
    emulated: Properties = {"hw_emulation_architecture": architecture}
    written: set[str] = set()
    for row in ROWS:
        if not row.image_property:
            continue
        for value in row.values:
            spec = spec_of({**emulated, row.image_property: value})
            with suppress(RequestRejected):
                written.update(domain_elements(guest_settings(spec, facts)))
    models = {element for element in written if element.startswith("<iommu")}
    assert _VIOMMU_AUTO.get(architecture, _SMMU) in models


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
    properties: Properties, smm: bool | None, used: bool
) -> None:
    """As in Nova, where the request asks for UEFI."""
    spec = spec_of({**properties, "os_secure_boot": "optional"})
    settings = guest_settings(spec, replace(KVM, smm=smm))
    value = "required" if used else "disabled"
    assert settings.value("secure_boot") == value
    source = "image property os_secure_boot=optional"
    assert settings.settings[-1].source == source
    assert ('<loader secure="yes" />' in domain_elements(settings)[1]) is used


@pytest.mark.parametrize(
    "firmware", [{}, {"hw_firmware_type": "bios"}], ids=["default", "BIOS"]
)
def test_optional_secure_boot_gives_no_guest_uefi(
    firmware: Properties,
) -> None:
    properties = {"hw_machine_type": "q35", "os_secure_boot": "optional"}
    assert _elements({**properties, **firmware})[1:] == [
        '<os><type arch="x86_64" machine="q35">hvm</type></os>'
    ]


@pytest.mark.parametrize("make_spec", [spec_of, nova_spec])
@pytest.mark.parametrize(
    ("properties", "extra_specs", "host_bits", "bits"),
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
    properties: Properties,
    extra_specs: ExtraSpecs,
    host_bits: int | None,
    bits: str,
    make_spec: Callable[[Properties, ExtraSpecs], Any],
) -> None:
    emulated = {"hw_maxphysaddr_mode": "emulate", **properties}
    facts = replace(KVM, physical_address_bits=host_bits)
    settings = guest_settings(make_spec(emulated, extra_specs), facts)
    assert domain_elements(settings)[1:] == [
        f'<cpu><maxphysaddr mode="emulate" bits="{bits}" /></cpu>'
    ]


def test_address_bits_are_not_written_with_passthrough() -> None:
    """Libvirt refuses them."""
    properties = {"hw_maxphysaddr_mode": "passthrough"}
    assert _elements({**properties, "hw_maxphysaddr_bits": "42"})[1:] == [
        '<cpu><maxphysaddr mode="passthrough" /></cpu>'
    ]


def test_address_bits_are_not_written_without_a_mode() -> None:
    assert _elements({"hw_maxphysaddr_bits": "42"}) == [_NO_TIMER]


@pytest.mark.parametrize("architecture", ARCHITECTURES.split())
def test_emulated_architecture_is_written_by_the_name_of_libvirt(
    architecture: str,
) -> None:
    facts = replace(
        KVM,
        emulated=frozenset((architecture,)),
    )
    name = "armv6l" if architecture == "armv6" else architecture
    elements = _elements({"hw_emulation_architecture": architecture}, facts)
    assert f'<os><type arch="{name}">hvm</type></os>' in elements


@pytest.mark.parametrize("machine", ["microvm", "isapc"])
def test_machine_type_without_hpet_gets_no_timer_element(machine: str) -> None:
    """Of microvm QEMU does not take the element, not even for "no"."""
    assert _elements({"hw_machine_type": machine}) == [
        f'<os><type arch="x86_64" machine="{machine}">hvm</type></os>'
    ]
    guests = {"x86_64": replace(X86, default_machine=machine)}
    assert _elements({}, replace(KVM, guests=guests)) == []


def test_device_models_maps_each_device_to_its_requested_model() -> None:
    spec = spec_of(
        {
            "hw_vif_model": "e1000e",
            "hw_disk_bus": "scsi",
            "hw_cdrom_bus": "sata",
        }
    )
    assert device_models(guest_settings(spec, KVM)) == {
        "interface": "e1000e",
        "disk": "scsi",
        "cdrom": "sata",
    }


def test_device_without_a_requested_model_is_left_to_the_driver() -> None:
    assert device_models(guest_settings(spec_of(), KVM)) == {}


@pytest.mark.parametrize(
    ("properties", "attributes"),
    [
        (
            {"hw_virtio_packed_ring": "true", "hw_vif_model": "virtio"},
            {"interface": {"packed": "on"}},
        ),
        ({"hw_virtio_packed_ring": "false"}, {}),
        ({}, {}),
    ],
    ids=["on", "off", "nothing"],
)
def test_virtio_interfaces_get_the_packed_virtqueues_that_are_requested(
    properties: Properties, attributes: dict[str, dict[str, str]]
) -> None:
    settings = guest_settings(spec_of(properties), KVM)
    assert driver_attributes(settings) == attributes


# Without the one or the other some rows mean nothing.
_OTHER_PROPERTIES: tuple[Properties, ...] = (
    {},
    {"hw_firmware_type": "uefi"},
    {"hw_tpm_version": "2.0"},
)
_EVERY_HOST = tuple(libvirt_hosts())


def _rendered(spec: RequestSpec) -> list[object]:
    facts = FakeFacts(
        can={**_EVERY_VALUE, "default_machine": frozenset(("q35",))}
    )
    settings = guest_settings(spec, facts)
    return [
        domain_elements(settings),
        device_models(settings),
        driver_attributes(settings),
    ]


def _is_rendered(row: Row) -> bool:
    """Return whether a value of the row changes anything that is written."""
    for others, value in product(_OTHER_PROPERTIES, row.values):
        properties = dict(others)
        extra_specs = {}
        if row.image_property:
            properties[row.image_property] = value
        elif row.extra_spec:
            extra_specs[row.extra_spec] = value
        with suppress(RequestRejected):
            written = _rendered(spec_of(properties, extra_specs))
            if written != _rendered(spec_of(others)):
                return True
    return False


def _is_reported(row: Row) -> bool:
    """Return whether a libvirt host can have a value of the row."""
    if not row.traits:
        return True
    values = [value for value, term in row.values.items() if term.trait]
    return any(
        not libvirt.refusal(host, row.name, value, "")
        for host, value in product(_EVERY_HOST, values)
    )


def test_each_row_is_rendered_or_left_to_the_driver_by_name() -> None:
    """A row that a libvirt host can do is an element, a model or an attribute;
    or the docstring has it.
    """
    left = {
        row.name
        for row in ROWS
        if row.required_by and _is_reported(row) and not _is_rendered(row)
    }
    docstring = str(libvirt_domain_xml.__doc__)
    listed = re.findall(r"^- ``(\w+)``", docstring, re.MULTILINE)
    assert left == set(listed), (
        "docs/CONTRIBUTING.rst, 'Add a row', says where a row is rendered"
    )
