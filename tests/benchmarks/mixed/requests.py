#    Licensed under the Apache License, Version 2.0 (the "License"); you may
#    not use this file except in compliance with the License. You may obtain
#    a copy of the License at
#
#         http://www.apache.org/licenses/LICENSE-2.0
#
#    Unless required by applicable law or agreed to in writing, software
#    distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
#    WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
#    License for the specific language governing permissions and limitations
#    under the License.

"""The requests: images, flavors, and in which order they come. The shares are assumptions; each says its reason."""

import random
from collections.abc import Mapping
from typing import Any, NamedTuple

from nova import objects

from tests.benchmarks.mixed.hosts import METAL
from tests.support.nova_objects import nova_spec

_X86 = {"hw_architecture": "x86_64"}
_ARM = {"hw_architecture": "aarch64"}
_UEFI = {"hw_firmware_type": "uefi", "hw_machine_type": "q35"}
_METAL_RESOURCES = {f"resources:{METAL}": "1", **{f"resources:{n}": "0" for n in ("VCPU", "MEMORY_MB", "DISK_GB")}}


class Image(NamedTuple):
    name: str
    share: int
    """Of a thousand requests."""
    properties: Mapping[str, str]
    disk_format: str = "qcow2"
    metal: Mapping[str, str] | None = None
    """The extra specs of its flavor, for bare metal; None for a virtual machine of any size."""


class Size(NamedTuple):
    name: str
    share: int
    vcpus: int
    memory_mb: int
    disk_gb: int


class Boot(NamedTuple):
    number: int
    image: Image
    size: Size
    life: int
    """After so many further requests the instance ends."""

    @property
    def resources(self) -> dict[str, int]:
        if self.image.metal is not None:
            return {METAL: 1}
        return {"VCPU": self.size.vcpus, "MEMORY_MB": self.size.memory_mb, "DISK_GB": self.size.disk_gb}

    @property
    def uuid(self) -> str:
        return f"00000000-0000-4000-8000-{self.number:012}"


IMAGES: tuple[Image, ...] = (
    # Most images are a distribution's own cloud image, which names nothing. In a cloud of two architectures an image
    # must say which is its own: no scheduler can know it else.
    Image("linux", 385, _X86),
    Image("linux raw", 40, _X86, "raw"),
    # What Glance's documentation and most vendors' guides recommend beside: virtio-scsi.
    Image(
        "linux virtio", 130, _X86 | {"hw_disk_bus": "scsi", "hw_scsi_model": "virtio-scsi", "hw_vif_model": "virtio"}
    ),
    Image("linux uefi", 70, _X86 | _UEFI | {"hw_disk_bus": "virtio", "hw_vif_model": "virtio"}),
    # Windows: with drivers of its own (e1000, IDE), with virtio's, and as Windows 11 and Server 2025 want it.
    Image("windows old", 60, _X86 | {"hw_disk_bus": "ide", "hw_vif_model": "e1000", "hw_video_model": "vga"}),
    Image("windows virtio", 60, _X86 | {"hw_disk_bus": "virtio", "hw_vif_model": "virtio", "os_type": "windows"}),
    Image("windows hpet", 15, _X86 | {"hw_time_hpet": "true", "hw_disk_bus": "sata", "hw_vif_model": "e1000e"}),
    Image(
        "windows secure",
        50,
        _X86 | _UEFI | {"os_secure_boot": "required", "hw_tpm_version": "2.0", "hw_tpm_model": "tpm-crb"},
    ),
    # A virtual desktop.
    Image("desktop", 20, _X86 | {"hw_video_model": "qxl", "hw_sound_model": "ich9", "hw_usb_model": "qemu-xhci"}),
    # As Nova's documentation of the VMware driver says; the second leaves the hypervisor out.
    Image(
        "vmware",
        40,
        _X86 | {"img_hv_type": "vmware", "hw_vif_model": "VirtualVmxnet3", "vmware_adaptertype": "paraVirtual"},
        "vmdk",
    ),
    Image("vmware untold", 25, _X86 | {"vmware_adaptertype": "lsiLogic", "hw_vif_model": "VirtualVmxnet3"}, "vmdk"),
    Image("arm", 35, _ARM | {"hw_firmware_type": "uefi"}),
    Image("arm virtio", 20, _ARM | {"hw_disk_bus": "scsi", "hw_vif_model": "virtio", "hw_video_model": "virtio"}),
    # Rare ones.
    Image("i686", 8, {"hw_architecture": "i686", "hw_disk_bus": "ide", "hw_vif_model": "pcnet"}),
    Image("nfv", 8, _X86 | _UEFI | {"hw_viommu_model": "intel", "hw_virtio_packed_ring": "true"}),
    Image("igb", 4, _X86 | {"hw_vif_model": "igb"}),
    # Bare metal: an image that says nothing, one that names its architecture, and a flavor that wants a setting.
    Image("metal", 8, {}, "qcow2", {}),
    Image("metal x86_64", 6, _X86, "qcow2", {}),
    Image("metal ht off", 6, {}, "qcow2", {"deploy-config:hyperthreading": "disabled"}),
    # What no host of this cloud can do: left over from Xen, and two properties that exclude each other.
    Image("of xen", 5, _X86 | {"img_hv_type": "xen", "hw_vif_model": "netfront"}, "vhd"),
    Image("impossible", 5, _X86 | {"hw_machine_type": "q35", "hw_disk_bus": "ide"}),
)
"""All images; their shares add up to 1,000."""

SIZES: tuple[Size, ...] = (
    Size("small", 25, 1, 2_048, 20),
    Size("medium", 30, 2, 4_096, 40),
    Size("large", 25, 4, 8_192, 80),
    Size("xlarge", 12, 8, 32_768, 160),
    Size("memory", 6, 16, 131_072, 200),
    Size("huge", 2, 32, 262_144, 400),
)


def boots(number: int, seed: int) -> list[Boot]:
    """Return so many requests: of each image its exact share, but at least one, in random order."""
    random_ = random.Random(f"requests {seed}")
    whole = {image.name: max(1, image.share * number // 1000) for image in IMAGES}
    images = [image for image in IMAGES for _ in range(whole[image.name])]
    images += random_.choices(IMAGES, [image.share for image in IMAGES], k=max(0, number - len(images)))
    random_.shuffle(images)
    sizes = random_.choices(SIZES, [size.share for size in SIZES], k=len(images))
    return [
        Boot(index, image, size, int(random_.expovariate(1 / 60)))
        for index, (image, size) in enumerate(zip(images, sizes, strict=True))
    ]


def spec_of(boot: Boot) -> Any:
    """Return Nova's own request spec, as its API makes it for a new server."""
    metal, size = boot.image.metal, boot.size
    extra_specs = {} if metal is None else _METAL_RESOURCES | dict(metal)
    unset = ("availability_zone", "instance_group", "pci_requests", "numa_topology", "ignore_hosts", "force_hosts")
    spec = nova_spec(
        dict(boot.image.properties),
        extra_specs,
        instance_uuid=boot.uuid,
        project_id="project",
        user_id="user",
        is_bfv=False,
        num_instances=1,
        requested_networks=objects.NetworkRequestList(objects=[]),
        requested_resources=[],
        scheduler_hints={},
        security_groups=objects.SecurityGroupList(objects=[]),
        limits=objects.SchedulerLimits(),
        **dict.fromkeys((*unset, "force_nodes", "requested_destination", "retry")),
    )
    spec.image.id, spec.image.disk_format = boot.uuid, boot.image.disk_format
    spec.flavor.vcpus, spec.flavor.memory_mb, spec.flavor.root_gb = size.vcpus, size.memory_mb, size.disk_gb
    spec.flavor.flavorid = size.name
    return spec
