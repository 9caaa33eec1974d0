# SPDX-License-Identifier: Apache-2.0

"""A USB device is refused only where Nova's libvirt driver certainly gives the
guest no USB controller.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

import nova.conf
import pytest
from nova import objects
from nova.virt import hardware
from nova.virt.libvirt import blockinfo, driver
from nova.virt.libvirt import config as nova_config

from os_prefilter import unsupported
from os_prefilter.request.remarks import remarks_in_nova
from os_prefilter.service import Service
from os_prefilter.vocabulary.options import Options
from tests.support.hosts import KVM
from tests.support.nova_objects import nova_spec

pytestmark = pytest.mark.skipif(
    not hasattr(hardware, "get_redirected_usb_ports"),
    reason="This Nova drops the properties of the pairs.",
)

_NOVAS_HOST = replace(KVM, built_by_nova=True, spice_enabled=True)
_PAIR = {"hw_input_bus": "virtio", "hw_redirected_usb_ports": "1"}
_SOUND = {"hw_input_bus": "virtio", "hw_sound_model": "usb"}
_NONE = "none"
# A volume is nowhere in a request spec.
_VOLUME = {
    "mount_device": "/dev/sdb",
    "disk_bus": "usb",
    "device_type": "disk",
}
_GUESTS: dict[
    str, tuple[dict[str, str], str, list[dict[str, str]], str | None]
] = {
    # What the image has beside the pair, whether the user wants a config
    # drive, volumes -> the model that Nova writes.
    "alone": ({}, "", [], _NONE),
    "model named": ({"hw_usb_model": "qemu-xhci"}, "", [], "qemu-xhci"),
    "disk on USB": ({"hw_disk_bus": "usb"}, "", [], None),
    "ppc64": ({"hw_architecture": "ppc64"}, "", [], None),
    "ppc64le": ({"hw_architecture": "ppc64le"}, "", [], None),
    "emulated ppc64le": (
        {"hw_emulation_architecture": "ppc64le"},
        "",
        [],
        None,
    ),
    "config drive on USB": ({"hw_cdrom_bus": "usb"}, "True", [], None),
    "CD-ROM on USB without a config drive": (
        {"hw_cdrom_bus": "usb"},
        "",
        [],
        _NONE,
    ),
    "mandatory config drive on USB": (
        {"hw_cdrom_bus": "usb", "img_config_drive": "mandatory"},
        "",
        [],
        None,
    ),
    "config drive on the default bus": ({}, "True", [], _NONE),
    "volume on USB": ({}, "", [_VOLUME], None),
}
_each_guest = pytest.mark.parametrize(
    ("more", "config_drive", "volumes", "model"), _GUESTS.values(), ids=_GUESTS
)


@pytest.fixture(autouse=True)
def _kvm() -> Iterator[None]:
    nova.conf.CONF.set_override("virt_type", "kvm", "libvirt")
    yield
    nova.conf.CONF.clear_override("virt_type", "libvirt")


def controller_of(
    spec: Any, config_drive: str, volumes: list[dict[str, str]]
) -> str | None:
    """Return the model of USB controller that Nova's driver writes; None where
    libvirt chooses one.
    """
    instance = objects.Instance(
        flavor=spec.flavor,
        ephemeral_gb=0,
        system_metadata={},
        image_ref="",
        config_drive=config_drive,
        launched_at=None,
    )
    instance.system_metadata = {
        f"image_{name}": value
        for name, value in spec.image.properties.to_dict().items()
    }
    devices = {
        "root_device_name": None,
        "swap": None,
        "image": [],
        "ephemerals": [],
        "block_device_mapping": volumes,
    }
    drv = driver.LibvirtDriver.__new__(driver.LibvirtDriver)
    guest = nova_config.LibvirtConfigGuest()
    guest.os_type = "hvm"
    for disk in blockinfo.get_disk_info("kvm", instance, spec.image, devices)[
        "mapping"
    ].values():
        device = nova_config.LibvirtConfigGuestDisk()
        device.target_bus = disk["bus"]
        guest.add_device(device)
    drv._guest_add_pointer_device(guest, spec.image)
    drv._guest_add_keyboard_device(guest, spec.image)
    drv._guest_add_usb_root_controller(guest, spec.flavor, spec.image)
    (found,) = [
        each
        for each in guest.devices
        if isinstance(each, nova_config.LibvirtConfigGuestUSBHostController)
    ]
    model: str | None = found.model
    return model


@_each_guest
def test_nova_gives_the_guest_this_controller(
    more: dict[str, str],
    config_drive: str,
    volumes: list[dict[str, str]],
    model: str | None,
) -> None:
    with mock.patch.object(blockinfo, "update_bdm"):
        assert (
            controller_of(nova_spec(_PAIR | more), config_drive, volumes)
            == model
        )


@_each_guest
@pytest.mark.parametrize("pair", [_PAIR, _SOUND], ids=["ports", "sound"])
def test_request_that_may_have_a_controller_is_not_rejected(
    pair: dict[str, str],
    more: dict[str, str],
    config_drive: str,
    volumes: list[dict[str, str]],
    model: str | None,
) -> None:
    """Whether there is a volume or a config drive, no request spec says: it is
    the same without one.
    """
    options = Options(nova_builds_guests=True, reported_traits=("*",))
    service = replace(
        Service.from_names("image_metadata", options=options),
        remark=remarks_in_nova,
    )
    decision = service.decide(nova_spec(pair | more))
    is_saved = not {"hw_usb_model", "hw_disk_bus"}.isdisjoint(
        more
    ) or "ppc64" in str(more)
    advice = [
        note
        for note in decision.notes
        if "set hw_usb_model=qemu-xhci as well" in note.reason
    ]
    assert bool(advice) is not is_saved
    assert all(note.warn for note in advice)


@pytest.mark.parametrize("pair", [_PAIR, _SOUND], ids=["ports", "sound"])
def test_host_accepts_what_the_filters_accept(pair: dict[str, str]) -> None:
    assert unsupported(nova_spec(pair), _NOVAS_HOST) == []
    assert (
        unsupported(
            nova_spec(pair | {"hw_usb_model": "qemu-xhci"}), _NOVAS_HOST
        )
        == []
    )
