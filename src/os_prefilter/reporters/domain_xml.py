"""Guest settings as elements of libvirt's domain XML.

Each element is complete in itself; the driver puts it where the domain has its kind: ``<clock>`` and ``<os>`` once,
devices among its own. A device that the driver describes anyway (its disks, its interfaces) takes the attributes of
:func:`device_models` instead.
"""

from collections.abc import Iterator
from xml.etree.ElementTree import Element, SubElement, tostring

from os_prefilter.platforms import families_without
from os_prefilter.reporters import GuestSettings

# Setting -> attribute and its element, of devices that the driver describes itself.
_MODELS = {
    "vif_model": "interface",
    "disk_bus": "disk",
    "cdrom_bus": "cdrom",
}
# Rows of devices that may be on USB.
_MAY_NEED_USB = ("disk_bus", "cdrom_bus", "sound_model")


def domain_elements(settings: GuestSettings) -> list[str]:
    """Return the elements, ``<clock>`` first, as XML text.

    On pc and q35 the timer is always written, as there or as not: libvirt's own default has changed with QEMU's. Other
    machine types have none, and some do not take the element.
    """
    return [tostring(element, encoding="unicode") for element in _elements(settings)]


def device_models(settings: GuestSettings) -> dict[str, str]:
    """Return the models and buses of devices that the driver describes: ``{"interface": "e1000e", "disk": "scsi"}``."""
    found = {kind: settings.value(name) for name, kind in _MODELS.items()}
    return {kind: value for kind, value in found.items() if value}


def _elements(settings: GuestSettings) -> Iterator[Element]:
    # microvm does not even take "no".
    if settings.architecture == "x86_64" and settings.family not in families_without("time_hpet", "true"):
        clock = Element("clock", offset="utc")
        present = "yes" if settings.value("time_hpet") == "true" else "no"
        SubElement(clock, "timer", name="hpet", present=present)
        yield clock
    yield from _firmware(settings)
    if model := settings.value("video_model"):
        video = Element("video")
        SubElement(video, "model", type=model)
        yield video
    if model := settings.value("sound_model"):
        yield Element("sound", model=model)
    model = settings.value("usb_model")
    # As Nova does: a guest with a USB device gets a controller, whatever was asked for.
    if model and not (model == "none" and any(settings.value(row) == "usb" for row in _MAY_NEED_USB)):
        yield Element("controller", type="usb", index="0", model=model)
    if model := settings.value("viommu_model"):
        # Of the machine types that can have one, q35 is x86's, and virt is that of 32-bit ARM as well.
        automatic = "intel" if settings.architecture == "x86_64" else "smmuv3"
        yield Element("iommu", model=automatic if model == "auto" else model)
    if version := settings.value("tpm_version"):
        tpm = Element("tpm", model=settings.value("tpm_model") or "tpm-tis")
        SubElement(tpm, "backend", type="emulator", version=version)
        yield tpm


def _firmware(settings: GuestSettings) -> Iterator[Element]:
    firmware = settings.value("firmware_type")
    secure = settings.value("secure_boot") == "required"
    if not (settings.machine or firmware or secure):
        return
    system = Element("os")
    kind = SubElement(system, "type", arch=settings.architecture)
    kind.text = "hvm"
    if settings.machine:
        kind.set("machine", settings.machine)
    if firmware == "uefi" or secure:
        system.set("firmware", "efi")
        loader = {"secure": "yes"} if secure else {}
        if settings.value("firmware_stateless") == "true":
            loader["stateless"] = "yes"
        if loader:
            SubElement(system, "loader", loader)
    yield system
