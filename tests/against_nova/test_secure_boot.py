# SPDX-License-Identifier: Apache-2.0

"""Secure Boot is refused exactly where Nova's libvirt driver gives the guest
none.
"""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

import nova.conf
import pytest
from nova import objects
from nova.virt.libvirt import config as nova_config
from nova.virt.libvirt import driver

from os_prefilter.common.errors import NeverStarts
from os_prefilter.service import Service
from os_prefilter.vocabulary.options import Options
from tests.support.nova_objects import nova_spec

_HOST_TRAITS = {"x86_64": "HW_ARCH_X86_64", "aarch64": "HW_ARCH_AARCH64"}
_MACHINES = {"x86_64": "q35", "aarch64": "virt"}


@pytest.fixture(autouse=True)
def _kvm() -> Iterator[None]:
    nova.conf.CONF.set_override("virt_type", "kvm", "libvirt")
    yield
    nova.conf.CONF.clear_override("virt_type", "libvirt")


def has_secure_boot(properties: dict[str, str], host: str) -> bool:
    """Return whether Nova's driver gives a guest Secure Boot, on a host of an
    architecture that has it.
    """
    spec = nova_spec(properties)
    drv = driver.LibvirtDriver.__new__(driver.LibvirtDriver)
    drv._host = mock.Mock(supports_uefi=True, supports_secure_boot=True)
    drv._host.get_capabilities.return_value.host.cpu.arch = host
    # Before Nova 33 the driver looks for the loader itself.
    drv._host.get_loader.return_value = ("loader", "variables", True)
    guest = nova_config.LibvirtConfigGuest()
    guest.virt_type, guest.os_type = "kvm", "hvm"
    instance = objects.Instance(system_metadata={}, flavor=spec.flavor)
    own = (
        {"hw_architecture": host}
        if "hw_architecture" not in properties
        else {}
    )
    image = nova_spec({**properties, **own}).image
    with (
        mock.patch(
            "nova.virt.libvirt.utils.get_machine_type",
            return_value=_MACHINES[host],
        ),
        mock.patch.object(drv, "_get_guest_config_sysinfo", return_value=None),
    ):
        drv._configure_guest_by_virt_type(guest, instance, image, spec.flavor)
    return bool(guest.os_loader_secure)


@pytest.mark.parametrize("host", ["x86_64", "aarch64"])
@pytest.mark.parametrize(
    "firmware", [{}, {"hw_firmware_type": "uefi"}], ids=["no firmware", "UEFI"]
)
@pytest.mark.parametrize(
    "named", [False, True], ids=["any architecture", "named"]
)
def test_host_is_refused_exactly_where_nova_gives_the_guest_no_secure_boot(
    host: str, firmware: dict[str, str], named: bool
) -> None:
    properties = {
        "os_secure_boot": "required",
        **firmware,
        **({"hw_architecture": host} if named else {}),
    }
    service = Service.from_names(
        "image_metadata", options=Options(nova_builds_guests=True)
    )
    try:
        requirements = service.decide(nova_spec(properties)).requirements
        is_refused = (_HOST_TRAITS[host], False) in {
            (each.trait, each.required) for each in requirements
        }
    except NeverStarts:
        is_refused = True
    assert is_refused is not has_secure_boot(properties, host)
