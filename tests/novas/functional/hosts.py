# SPDX-License-Identifier: Apache-2.0

"""Hosts that do not exist, and the virt driver of a nova-compute on them: the
one fake of these tests.

The driver is Nova's own fake driver, which starts nothing, plus what a real
one does and that lacks: it tells Nova the architectures and hypervisors of its
host, and checks at the last moment whether the host can do what is asked for.
That check is the library's late check. Only the hypervisor is missing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import os_traits
from nova import conf, exception, objects
from nova.virt import fake
from os_resource_classes import VGPU

import os_prefilter
from os_prefilter.adapters.placement.client import PlacementClient
from os_prefilter.adapters.placement.trait_sync import ProviderTraits
from os_prefilter.hosts.capabilities import reporter_of
from os_prefilter.hosts.desired_traits import Mode, goal_of
from os_prefilter.hosts.drivers.fake import FakeFacts
from os_prefilter.hosts.drivers.libvirt_facts import LibvirtFacts
from os_prefilter.hosts.drivers.vmware import VmwareFacts
from os_prefilter.hosts.reporter import HostFacts
from os_prefilter.vocabulary import BY_NAME
from os_prefilter.vocabulary.options import Options
from os_prefilter_tools.fleet.model import provider_uuid
from tests.support import hosts
from tests.support.every_trait import CUSTOM_TRAITS, EVERY_KEY

GPU_OF_CYBORG, GPU_OF_NOVA = "gpu-of-cyborg", "gpu-of-nova"

_NEW_KVM = LibvirtFacts(
    architecture="x86_64",
    virt_type="kvm",
    libvirt_version=hosts.NEW[0],
    hypervisor_version=hosts.NEW[1],
    guests={"x86_64": hosts.X86},
)
_HOSTS: Mapping[str, HostFacts] = {
    "nothing": FakeFacts(),
    "lxc": LibvirtFacts(
        architecture="x86_64", virt_type="lxc", libvirt_version=hosts.NEW[0]
    ),
    "vmware": VmwareFacts(),
    "arm": replace(
        _NEW_KVM, architecture="aarch64", guests={"aarch64": hosts.ARM}
    ),
    "old": replace(
        _NEW_KVM, libvirt_version=hosts.OLD[0], hypervisor_version=hosts.OLD[1]
    ),
    "emulator": replace(
        _NEW_KVM,
        virt_type="qemu",
        emulated=frozenset(("s390x",)),
    ),
    "kvm": replace(_NEW_KVM, smt=True),
    "q35": replace(
        _NEW_KVM, guests={"x86_64": replace(hosts.X86, default_machine="q35")}
    ),
    GPU_OF_CYBORG: FakeFacts(),
    GPU_OF_NOVA: FakeFacts(),
}
FACTS: Mapping[str, HostFacts] = {
    name: replace(facts, host=name) for name, facts in _HOSTS.items()
}
"""Host -> what is known of it. Each has more memory than the next: the
scheduler tries them in this order.
"""

ATTEMPTS: defaultdict[str, list[str]] = defaultdict(list)
"""Server -> the hosts that tried to start it, in order; of all drivers in the
process.
"""

_OPTIONS = (
    "supports_device_tagging",
    "supports_trusted_certs",
    "supports_multiattach",
    "supports_virtio_fs",
    "supports_mem_backing_file",
)
"""Capabilities that the first of the hosts does not have."""

MACHINE_TYPES: defaultdict[str, list[str | None]] = defaultdict(list)
"""Server -> the machine type that it got, or would have got, at each attempt.
"""

DRIVERS: dict[str, HostDriver] = {}
"""Host -> its driver."""


class HostDriver(fake.FakeDriver):  # type: ignore[misc]
    """Nova's virt driver on one of the hosts."""

    def __init__(self, virtapi: Any, read_only: bool = False) -> None:  # noqa: FBT002 - as Nova calls it
        self.facts = FACTS[conf.CONF.host]
        self.memory_mb = (
            len(FACTS) - list(FACTS).index(self.facts.host)
        ) * 1_000_000
        super().__init__(virtapi, read_only)
        DRIVERS[self.facts.host] = self
        if self.facts.host == "nothing":
            lacks = dict.fromkeys(_OPTIONS, False)
            self.capabilities: dict[str, bool] = {
                **fake.FakeDriver.capabilities,
                **lacks,
            }
        self.host_status_base["supported_instances"] = list(
            _supported_instances(self.facts)
        )

    def capabilities_as_traits(self) -> dict[str, bool]:
        """Return what Nova's driver answers for; its answers are those of the
        reporter.
        """
        traits: dict[str, bool] = super().capabilities_as_traits()
        known = os_prefilter.capability_traits(self.facts)
        return {trait: known.get(trait, can) for trait, can in traits.items()}

    def update_provider_tree(
        self, provider_tree: Any, nodename: str, allocations: Any = None
    ) -> None:
        """Report the inventory, on one of the hosts with a GPU that the driver
        can share out.
        """
        super().update_provider_tree(provider_tree, nodename, allocations)
        if nodename == GPU_OF_NOVA:
            name = _gpu(nodename)
            if not provider_tree.exists(name):
                provider_tree.new_child(name, nodename)
            provider_tree.update_inventory(name, {VGPU: _inventory()})
            provider_tree.add_traits(name, os_traits.OWNER_NOVA)

    def spawn(
        self,
        context: Any,
        instance: Any,
        image_meta: Any,
        *args: Any,
        **options: Any,
    ) -> None:
        """Start a server, if the host can do what it asks for; Nova's driver
        comes here for those that move, too.
        """
        self._check(instance, image_meta or instance.image_meta)
        super().spawn(context, instance, image_meta, *args, **options)

    def _check(self, instance: Any, image: Any) -> None:
        """Do the late check.

        :raises os_prefilter.common.errors.UnsupportedByHost: if the host
            cannot do what is asked for.
        :raises nova.exception.ComputeResourcesUnavailable: if it has none of
            the GPUs that were allocated.
        """
        ATTEMPTS[instance.uuid].append(self.facts.host)
        self._keep_machine_type(instance, image)
        request = objects.RequestSpec(flavor=instance.flavor, image=image)
        os_prefilter.guest_settings(request, self.facts)
        asks_for_gpu = f"resources:{VGPU}" in instance.flavor.extra_specs
        if asks_for_gpu and self.facts.host != GPU_OF_NOVA:
            raise exception.ComputeResourcesUnavailable(
                reason="the driver manages no such GPU"
            )

    def _keep_machine_type(self, instance: Any, image: Any) -> None:
        """Do what Nova's libvirt driver does where it builds a guest
        (``_configure_guest_by_virt_type``).
        """
        machine_type = image.properties.get("hw_machine_type")
        if (
            machine_type is None
            and isinstance(self.facts, LibvirtFacts)
            and "x86_64" in self.facts.guests
        ):
            machine_type = self.facts.guests["x86_64"].default_machine
            instance.system_metadata["image_hw_machine_type"] = machine_type
        MACHINE_TYPES[instance.uuid].append(machine_type)


def report(placement: PlacementClient) -> None:
    """Write to Placement what each host can do, as the agent does, and the
    GPUs that Cyborg's agent found.

    Of one of them its driver says that it is Cyborg's, of the other it does
    not.
    """
    for facts in FACTS.values():
        report_host(placement, facts)
    root = placement.request(
        "GET", f"/resource_providers?name={GPU_OF_CYBORG}"
    )["resource_providers"][0]["uuid"]
    generation = "resource_provider_generation"
    for name, traits in (
        (_gpu(GPU_OF_CYBORG), [os_traits.OWNER_CYBORG]),
        (f"{_gpu(GPU_OF_CYBORG)}-untagged", []),
    ):
        url = f"/resource_providers/{provider_uuid(name)}"
        body = {
            "name": name,
            "uuid": provider_uuid(name),
            "parent_provider_uuid": root,
        }
        placement.request("POST", "/resource_providers", body)
        placement.request(
            "PUT",
            f"{url}/inventories",
            {"inventories": {VGPU: _inventory()}, generation: 0},
        )
        placement.request(
            "PUT", f"{url}/traits", {"traits": traits, generation: 1}
        )


def report_host(placement: PlacementClient, facts: HostFacts) -> None:
    placement.ensure_traits(CUSTOM_TRAITS)
    goal = goal_of(facts, EVERY_KEY, Mode.ALONE, Options())
    ProviderTraits(placement, facts.host).sync(goal)


def _gpu(host: str) -> str:
    return f"{host}_pci_0000_84_00_0"


def _inventory() -> dict[str, float]:
    return {
        "total": 8,
        "reserved": 0,
        "min_unit": 1,
        "max_unit": 8,
        "step_size": 1,
        "allocation_ratio": 1.0,
    }


def _supported_instances(facts: HostFacts) -> Iterator[tuple[str, str, str]]:
    """Return what Nova's ImagePropertiesFilter is told: architecture,
    hypervisor type and mode.
    """
    refusal = reporter_of(facts).refusal

    def can(row: str) -> set[str]:
        return {
            value
            for value in BY_NAME[row].values
            if not refusal(facts, row, value, "")
        }

    return product(
        can("architecture") | can("emulation_architecture"),
        can("hypervisor_type"),
        can("vm_mode"),
    )
