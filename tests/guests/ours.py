# SPDX-License-Identifier: Apache-2.0

"""The XML of a guest with the settings of this library, as a driver of its own
would write it.
"""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree.ElementTree import Element, SubElement, fromstring, tostring

from os_prefilter.hosts.driver_check import _Check
from os_prefilter.hosts.drivers.libvirt_domain_xml import (
    device_models,
    domain_elements,
    driver_attributes,
)
from os_prefilter.hosts.drivers.libvirt_facts import (
    GuestFacts,
    LibvirtFacts,
)
from os_prefilter.hosts.reporter import GuestSettings
from os_prefilter.vocabulary.machine_types import (
    LIBVIRT_ARCHITECTURES,
    PLATFORM_ARCHITECTURES,
    guest_architecture,
)
from tests.guests.cases import Case
from tests.guests.starter import Guest

# Of disks and CD-ROMs, by their bus.
_TARGETS = {"virtio": "vda", "ide": "hda", "fdc": "fda", "xen": "xvda"}


def guest_of(case: Case, facts: LibvirtFacts) -> Guest:
    # Without checking the host: what it refuses is started as well.
    settings = _Check(case.spec(facts.architecture), facts).settings()
    architecture = case.architecture
    root = Element(
        "domain",
        type=facts.virt_type if architecture == facts.architecture else "qemu",
    )
    for tag, text in (("name", "guest"), ("memory", "131072"), ("vcpu", "1")):
        SubElement(root, tag).text = text
    elements = [fromstring(text) for text in domain_elements(settings)]  # noqa: S314 - our own
    system = next(
        (element for element in elements if element.tag == "os"), None
    )
    if system is None:
        system = Element("os")
        SubElement(
            system,
            "type",
            arch=LIBVIRT_ARCHITECTURES.get(architecture, architecture),
        ).text = "hvm"
    if (
        architecture == "aarch64"
        and facts.guests.get(architecture, GuestFacts(uefi=True)).uefi
        and not settings.value("firmware_type")
    ):
        # As every cloud image there needs it, Nova's guests have it unless
        # they are told otherwise.
        system.set("firmware", "efi")
    machine = case.machine
    if not machine and architecture in facts.guests:
        machine = facts.guests[architecture].default_machine
    if machine:
        system[0].set("machine", machine)
    root.append(system)
    if architecture in ("x86_64", "i686") or system.get("firmware"):
        SubElement(SubElement(root, "features"), "acpi")
    root.extend(
        element for element in elements if element.tag in ("clock", "cpu")
    )
    devices = SubElement(root, "devices")
    devices.extend(_devices(settings))
    devices.extend(
        element
        for element in elements
        if element.tag not in ("os", "clock", "cpu")
    )
    if _has_no_usb(architecture, machine) and not devices.findall(
        "controller[@type='usb']"
    ):
        SubElement(devices, "controller", type="usb", model="none")
    if settings.value("video_model"):
        SubElement(devices, "graphics", type="vnc")
    if devices.find("redirdev") is not None:
        SubElement(devices, "graphics", type="spice")
    SubElement(devices, "memballoon", model="none")
    return Guest(tostring(root, encoding="unicode"), asked=case.asked)


def _devices(settings: GuestSettings) -> Iterator[Element]:
    """Yield the devices that the driver describes itself, with the models that
    were asked for.
    """
    models = device_models(settings)
    for kind, device in (("disk", "disk"), ("cdrom", "cdrom")):
        # The only disk of an ISO image is its CD-ROM.
        if (bus := models.get(kind)) and (
            kind == "cdrom" or "cdrom" not in models
        ):
            disk = Element("disk", type="file", device=device)
            SubElement(disk, "source", file="disk")
            SubElement(disk, "target", dev=_TARGETS.get(bus, "sda"), bus=bus)
            yield disk
    attributes = driver_attributes(settings).get("interface")
    if "interface" in models or attributes:
        interface = Element("interface", type="user")
        SubElement(interface, "model", type=models.get("interface", "virtio"))
        SubElement(interface, "driver", attributes or {})
        yield interface


def _has_no_usb(architecture: str, machine: str) -> bool:
    """Whether libvirt would give the guest a USB controller that its machine
    type cannot have.
    """
    return (
        machine in ("isapc", "microvm")
        or guest_architecture(architecture) not in PLATFORM_ARCHITECTURES
    )
