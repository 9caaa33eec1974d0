# SPDX-License-Identifier: Apache-2.0

"""Which machine type Nova's own libvirt driver gives to a server in each
operation, on Nova's fake libvirt.

It is started as ``pc``; then the default of all hosts becomes q35. This is a
program of unittest, which ``test_machine_types.py`` runs: Nova has one
configuration for a process.
"""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import uuid4

os.environ["OS_NOVA_DISABLE_EVENTLET_PATCHING"] = "true"
os.environ["OS_WSGI__API_PASTE_CONFIG"] = str(
    Path(sysconfig.get_path("data"), "etc", "nova", "api-paste.ini")
)
os.environ["OS_API__RESPONSE_VALIDATION"] = "ignore"


import nova.tests.functional  # noqa: F401
from nova import context, objects
from nova.tests.functional.libvirt import base
from nova.virt.libvirt import utils
from nova.virt.libvirt.driver import LibvirtDriver


class MachineTypes(base.ServersTestBase):  # type: ignore[misc]
    """The machine types of all guests that the driver built, and the one that
    it keeps.
    """

    microversion = "latest"
    ADMIN_API = True

    def setUp(self) -> None:
        """Start a server whose machine type is the default, and change the
        default.
        """
        super().setUp()
        self.built: list[str] = []
        build = LibvirtDriver._get_guest_config

        def building(driver: Any, *args: Any, **options: Any) -> Any:
            guest = build(driver, *args, **options)
            self.built.append(guest.os_mach_type)
            return guest

        for name, replacement in (
            ("_get_guest_config", building),
            ("_create_image", mock.Mock(return_value=(True, True))),
            ("migrate_disk_and_power_off", mock.Mock(return_value="[]")),
        ):
            self.enterContext(
                mock.patch.object(LibvirtDriver, name, replacement)
            )
        self.start_compute("source")
        self.start_compute("other")
        self.flags(hw_machine_type="x86_64=pc", group="libvirt")
        self.server = self._create_server(networks="none", host="source")
        self.flags(hw_machine_type="x86_64=q35", group="libvirt")

    def check(self, machine: str) -> None:
        """Compare what the second guest got, which is kept from now on."""
        assert self.built == ["pc", machine]
        admin = context.get_admin_context()
        instance = objects.Instance.get_by_uuid(
            admin, self.server["id"], expected_attrs=["system_metadata"]
        )
        assert instance.system_metadata["image_hw_machine_type"] == machine

    def test_evacuation(self) -> None:
        self.computes["source"].stop()
        service = self.api.get_services(host="source", binary="nova-compute")[
            0
        ]["id"]
        self.api.put_service_force_down(service, True)
        self._evacuate_server(self.server, expected_state="SHUTOFF")
        self.check("pc")

    def test_unshelving(self) -> None:
        self._shelve_server(self.server, expected_state="SHELVED_OFFLOADED")
        self._unshelve_server(self.server)
        self.check("pc")

    def test_cold_migration(self) -> None:
        self._migrate_server(self.server)
        self.check("q35")

    def test_resize(self) -> None:
        self._resize_server(self.server, self._create_flavor(id=77, vcpu=2))
        self.check("q35")

    def test_rebuild(self) -> None:
        other = self.glance.create(
            None,
            {**self.glance.auto_disk_config_enabled_image, "id": str(uuid4())},
        )
        self._rebuild_server(self.server, other["id"])
        self.check("q35")

    def test_rescue(self) -> None:
        Path(
            utils.get_instance_path(objects.Instance(uuid=self.server["id"]))
        ).mkdir(parents=True, exist_ok=True)
        self.api.post_server_action(self.server["id"], {"rescue": {}})
        rescued = self._wait_for_state_change(self.server, "RESCUE")
        self.api.post_server_action(self.server["id"], {"unrescue": None})
        self._wait_for_state_change(rescued, "ACTIVE")
        self.check("q35")
