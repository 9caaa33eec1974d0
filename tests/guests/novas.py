# SPDX-License-Identifier: Apache-2.0

"""The XML of a guest as Nova's own libvirt driver generates it, from the
release that is installed.
"""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path
from typing import Any

# Before Nova is imported: it would else patch the whole process.
os.environ["OS_NOVA_DISABLE_EVENTLET_PATCHING"] = "true"

import os_vif
from nova import context, objects
from nova.conf import CONF, neutron
from nova.network import model
from nova.virt import fake
from nova.virt.libvirt import blockinfo, utils
from nova.virt.libvirt.driver import LibvirtDriver
from oslo_utils import uuidutils

from os_prefilter.hosts.drivers.libvirt_facts import LibvirtFacts
from tests.guests.cases import Case
from tests.guests.starter import TPM_SECRET, Guest


class NovasDriver:
    """Nova's libvirt driver, connected, which builds no guest but writes its
    XML.

    :param folder: for what Nova writes down of instances
    """

    def __init__(self, uri: str, facts: LibvirtFacts, folder: Path) -> None:
        objects.register_all()
        os_vif.initialize()
        CONF([], project="nova", default_config_files=[])
        neutron.register_dynamic_opts(CONF)
        CONF.set_override("instances_path", str(folder))
        CONF.set_override("state_path", str(folder))
        for option, value in (
            ("virt_type", facts.virt_type),
            ("connection_uri", uri),
            ("swtpm_enabled", True),
        ):
            CONF.set_override(option, value, "libvirt")
        self._facts = facts
        self._context = context.get_admin_context()
        self._driver = LibvirtDriver(fake.FakeVirtAPI())

    @staticmethod
    def release() -> int:
        """Return the release of Nova that is installed: 34."""
        return int(version("nova").partition(".")[0])

    def guest_of(self, case: Case) -> Guest:
        """Return the guest, or why Nova builds none."""
        # The processor of a virtual machine may be one that QEMU's models of
        # it do not start with.
        own = case.architecture == self._facts.architecture
        CONF.set_override("cpu_mode", "none" if own else None, "libvirt")
        # Guests of the other rows have the default console alone.
        CONF.set_override(
            "enabled",
            self._facts.spice_enabled and "usb_redirection" in case.asked,
            "spice",
        )
        try:
            return Guest(self._xml(case), asked=case.asked)
        except Exception as error:  # noqa: BLE001 - of Nova's, each of which fails the spawn
            return Guest("", f"{type(error).__name__}: {error}")

    def _xml(self, case: Case) -> str:
        properties = case.properties(self._facts.architecture)
        disk_format = properties.pop("disk_format", "raw")
        sizes = dict.fromkeys(("min_disk", "min_ram"), 0) | {
            "size": 1,
            "container_format": "bare",
        }
        about = {
            "id": uuidutils.generate_uuid(),
            "disk_format": disk_format,
            "properties": properties,
        }
        image = objects.ImageMeta.from_dict({**about, **sizes})
        instance = _instance(image, case.extra_specs)
        Path(utils.get_instance_path(instance)).mkdir(
            parents=True, exist_ok=True
        )
        devices: dict[str, Any] = dict.fromkeys(("root_device_name", "swap"))
        devices |= {
            name: []
            for name in ("image", "ephemerals", "block_device_mapping")
        }
        disks = blockinfo.get_disk_info(
            self._facts.virt_type, instance, image, devices
        )
        return str(
            self._driver._get_guest_xml(
                self._context, instance, _network(), disks, image
            )
        )


def _instance(image: Any, extra_specs: dict[str, str]) -> Any:
    sizes = {"memory_mb": 128, "vcpus": 1, "root_gb": 1, "ephemeral_gb": 0}
    flavor = objects.Flavor(
        id=1,
        name="small",
        flavorid="1",
        swap=0,
        extra_specs=extra_specs,
        **sizes,
    )
    unset = (
        *(
            "os_type",
            "vm_mode",
            "architecture",
            "root_device_name",
            "default_ephemeral_device",
            "default_swap_device",
        ),
        *(
            "ephemeral_key_uuid",
            "key_data",
            "numa_topology",
            "vcpu_model",
            "resources",
            "trusted_certs",
        ),
    )
    texts = {
        "display_name": "guest",
        "host": "host",
        "project_id": "project",
        "user_id": "user",
    }
    instance = objects.Instance(
        id=1,
        uuid=uuidutils.generate_uuid(),
        flavor=flavor,
        image_ref=image.id,
        system_metadata={"vtpm_secret_uuid": TPM_SECRET},
        metadata={},
        pci_devices=objects.PciDeviceList(),
        pci_requests=objects.InstancePCIRequests(requests=[]),
        tags=objects.TagList(),
        **dict.fromkeys(("kernel_id", "ramdisk_id", "config_drive"), ""),
        **dict.fromkeys(unset),
        **sizes,
        **texts,
    )
    instance.old_flavor = instance.new_flavor = None
    return instance


def _network() -> Any:
    """Return one port: a network card is what its model is asked for."""
    ids = [uuidutils.generate_uuid() for _ in range(3)]
    network = model.Network(
        id=ids[0],
        bridge="bridge",
        label="network",
        subnets=[],
        meta={"injected": False},
    )
    kind = {
        "type": "ovs",
        "vnic_type": "normal",
        "details": {"port_filter": False},
    }
    address = {
        "address": "52:54:00:00:00:01",
        "devname": "tap0",
        "ovs_interfaceid": ids[1],
    }
    return model.NetworkInfo(
        [model.VIF(id=ids[2], network=network, **kind, **address)]
    )
