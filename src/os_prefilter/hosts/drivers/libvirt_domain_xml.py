# SPDX-License-Identifier: Apache-2.0

"""Guest settings as elements of libvirt's domain XML.

Each element is complete; the driver merges ``<clock>``, ``<os>`` and ``<cpu>``
into its own, and adds the devices. Devices that the driver writes anyway
(disks, interfaces) take :func:`device_models` and :func:`driver_attributes`
instead. The other settings, by row of the vocabulary, are left to the driver:

- ``hypervisor_type``: the type of the domain, which is the host's virt_type,
  or qemu where it emulates
- ``vm_mode``: a domain of QEMU is hvm
- ``tpm_secret_security``: access to the secret that encrypts the TPM's state,
  which the driver makes and keeps
- ``device_profile``: the devices that Cyborg has bound are host devices
- ``image_type``: the driver's image backend reads it
- ``pci_numa_affinity_policy``: the scheduler and the driver choose the devices
  by it
- ``mem_encryption``: its model decides
- ``mem_encryption_model``: <launchSecurity> has values of the host's
  processor, and its devices need more
- ``cpu_policy``: the driver pins the CPUs (<cputune>)
- ``cpu_thread_policy``: the driver chooses the host's threads that it pins to
- ``emulator_threads_policy``: the driver pins the emulator's threads
  (<emulatorpin>)
"""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree.ElementTree import Element, SubElement, tostring

from os_prefilter.hosts.reporter import GuestSettings
from os_prefilter.vocabulary.machine_types import (
    LIBVIRT_ARCHITECTURES,
    families_without,
    guest_architecture,
)

# Row -> device that the driver writes itself.
_MODELS = {"vif_model": "interface", "disk_bus": "disk", "cdrom_bus": "cdrom"}
# Rows of devices that may be on USB.
_MAY_NEED_USB = ("disk_bus", "cdrom_bus", "sound_model")
# Where libvirt adds no USB controller: machine types, and architectures of
# emulated guests, whose default machine type the host does not report.
_WITHOUT_USB = {"virt", "s390-ccw-virtio", "aarch64", "armv7l", "s390x"}


def domain_elements(settings: GuestSettings) -> list[str]:
    """Return the elements, ``<clock>`` first, as XML text.

    On pc and q35 the timer is always written, present or not: libvirt's
    default has changed with QEMU's. Other machine types have none, and some
    refuse the element.
    """
    return [
        tostring(element, encoding="unicode")
        for element in _elements(settings)
    ]


def device_models(settings: GuestSettings) -> dict[str, str]:
    """Return the models and buses of devices that the driver writes.

    ``{"interface": "e1000e", "disk": "scsi"}``
    """
    return {
        kind: value
        for name, kind in _MODELS.items()
        if (value := settings.value(name))
    }


def driver_attributes(settings: GuestSettings) -> dict[str, dict[str, str]]:
    """Return attributes for ``<driver>`` of devices that the driver writes.

    ``{"interface": {"packed": "on"}}``

    libvirt accepts packed virtqueues only for interfaces of the model virtio.
    Without a requested model, the driver knows which it gives.
    """
    if settings.value("packed_virtqueue") != "true":
        return {}
    return {"interface": {"packed": "on"}}


def _elements(settings: GuestSettings) -> Iterator[Element]:
    is_x86 = guest_architecture(settings.architecture) == "x86_64"
    # microvm does not even take "no".
    if is_x86 and settings.family not in families_without("time_hpet", "true"):
        clock = Element("clock", offset="utc")
        present = "yes" if settings.value("time_hpet") == "true" else "no"
        SubElement(clock, "timer", name="hpet", present=present)
        yield clock
    yield from _system(settings)
    if mode := settings.value("maxphysaddr_mode"):
        cpu = Element("cpu")
        address = SubElement(cpu, "maxphysaddr", mode=mode)
        if settings.physical_address_bits:
            address.set("bits", str(settings.physical_address_bits))
        yield cpu
    if model := settings.value("video_model"):
        video = Element("video")
        SubElement(video, "model", type=model)
        yield video
    if model := settings.value("sound_model"):
        yield Element("sound", model=model)
    yield from _usb_input_and_watchdog(settings)
    # As in Nova: whatever disks the guest has. Without a model libvirt adds
    # the controller that it prefers.
    if model := settings.value("scsi_model"):
        yield Element("controller", type="scsi", index="0", model=model)
    if model := settings.value("viommu_model"):
        # Of the machine types that can have one, q35 is x86's, and virt is
        # that of 32-bit ARM as well.
        automatic = "intel" if is_x86 else "smmuv3"
        yield Element("iommu", model=automatic if model == "auto" else model)
    if version := settings.value("tpm_version"):
        tpm = Element("tpm", model=settings.value("tpm_model") or "tpm-tis")
        SubElement(tpm, "backend", type="emulator", version=version)
        yield tpm


def _usb_input_and_watchdog(settings: GuestSettings) -> Iterator[Element]:
    """Yield USB devices, input devices and a watchdog, as Nova does.

    libvirt adds a controller where none is written, on most machine types.
    """
    bus = settings.value("input_bus") or ""
    pointer = bus or ("usb" if settings.value("pointer_model") else "")
    ports = int(settings.value("usb_redirection") or 0)
    controller = settings.value("usb_model") or ""
    if (
        ports
        or pointer == "usb"
        or any(settings.value(row) == "usb" for row in _MAY_NEED_USB)
    ):
        # As in Nova: a guest with a USB device gets a controller in any case.
        if controller == "none":
            controller = ""
        platform = settings.family or settings.architecture
        if not controller and platform in _WITHOUT_USB:
            controller = "qemu-xhci"
    if controller:
        yield Element("controller", type="usb", index="0", model=controller)
    if pointer:
        yield Element("input", type="tablet", bus=pointer)
    if bus:
        yield Element("input", type="keyboard", bus=bus)
    for _ in range(ports):
        yield Element("redirdev", bus="usb", type="spicevmc")
    if (action := settings.value("watchdog") or "disabled") != "disabled":
        yield Element("watchdog", model="i6300esb", action=action)


def _system(settings: GuestSettings) -> Iterator[Element]:
    firmware = settings.value("firmware_type")
    secure = settings.value("secure_boot") == "required"
    is_i686 = settings.architecture == "i686"
    if not (
        settings.machine
        or firmware
        or secure
        or is_i686
        or settings.value("emulation_architecture")
    ):
        return
    system = Element("os")
    architecture = settings.architecture
    name = LIBVIRT_ARCHITECTURES.get(architecture, architecture)
    kind = SubElement(system, "type", arch=name)
    kind.text = "hvm"
    if settings.machine:
        kind.set("machine", settings.machine)
    if firmware == "uefi" or secure:
        system.set("firmware", "efi")
        # As in Nova: off unless requested. Otherwise libvirt prefers firmware
        # that has it.
        feature = SubElement(system, "firmware")
        enabled = "yes" if secure else "no"
        SubElement(feature, "feature", name="secure-boot", enabled=enabled)
        loader = {}
        # No secure="no": libvirt 9.0 refuses it. It means system management
        # mode, which is x86's.
        if secure and architecture == "x86_64":
            loader["secure"] = "yes"
        if settings.value("firmware_stateless") == "true":
            loader["stateless"] = "yes"
        if loader:
            SubElement(system, "loader", loader)
    yield system
