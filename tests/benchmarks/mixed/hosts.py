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

"""The hosts of the mixed cloud: ten kinds, what each can do, and the traits by which it says so.

Hosts of a kind are alike but for what is in use on them. What a host can do is in its facts, as a probe would have
found them; traits and late checks both come from these facts.
"""

import random
from dataclasses import dataclass, replace

from os_prefilter.hosts.capabilities import capability_traits
from os_prefilter.hosts.drivers.ironic_facts import BiosSetting, IronicFacts
from os_prefilter.hosts.drivers.libvirt_facts import GuestFacts, LibvirtFacts
from os_prefilter.hosts.drivers.vmware import VmwareFacts
from os_prefilter.hosts.reporter import HostFacts
from os_prefilter.vocabulary import BY_NAME
from os_prefilter_tools.fleet.model import Fleet, Inventory, Provider, provider_uuid
from tests.benchmarks.mixed.ways import WANTED
from tests.support.reporting_fleets import by_nova_alone, by_the_agent

IN_USE = 0.7
"""How full the hosts are at the start, on average."""

METAL = "CUSTOM_BAREMETAL_GOLD"

# What Nova's compute manager and its libvirt driver say of any host of theirs (COMPUTE_DRIVER capabilities).
_NODE = frozenset(("COMPUTE_NODE", "OWNER_NOVA"))
_LIBVIRT = _NODE | {
    *("COMPUTE_ACCELERATORS", "COMPUTE_DEVICE_TAGGING", "COMPUTE_RESCUE_BFV", "COMPUTE_SOCKET_PCI_NUMA_AFFINITY"),
    *("COMPUTE_NET_ATTACH_INTERFACE", "COMPUTE_NET_ATTACH_INTERFACE_WITH_TAG", "COMPUTE_TRUSTED_CERTS"),
    *("COMPUTE_VOLUME_ATTACH", "COMPUTE_VOLUME_ATTACH_WITH_TAG", "COMPUTE_VOLUME_EXTEND"),
    "COMPUTE_VOLUME_MULTI_ATTACH",
}
_X86_CPU = frozenset(("HW_CPU_X86_AESNI", "HW_CPU_X86_AVX", "HW_CPU_X86_AVX2", "HW_CPU_X86_SSE42", "HW_CPU_X86_VMX"))


def _set(names: str) -> frozenset[str]:
    return frozenset(names.split())


_X86 = GuestFacts(
    default_machine="pc",
    machines=_set("pc q35 isapc microvm"),
    buses=_set("ide fdc scsi virtio usb sata"),
    video_models=_set("vga cirrus vmvga qxl virtio none bochs"),
    tpm_models=_set("tpm-tis tpm-crb"),
    tpm_versions=_set("2.0"),
    uefi=True,
    secure_boot=True,
)
# A distribution that builds QEMU without spice and with q35 for the default.
_X86_Q35 = replace(_X86, default_machine="q35", machines=_set("pc q35"), video_models=_set("vga virtio none bochs"))
_X86_OLD = replace(_X86, tpm_models=_set(""))
_ARM = GuestFacts(
    default_machine="virt",
    machines=_set("virt"),
    buses=_set("fdc scsi virtio usb sata"),
    video_models=_set("vga virtio none bochs"),
    tpm_models=_set("tpm-tis"),
    tpm_versions=_set("2.0"),
    uefi=True,
)
_ARM_OLD = replace(_ARM, tpm_models=_set(""))
_SERVER = {
    "VCPU": Inventory(64, max_unit=64, allocation_ratio=4.0),
    "MEMORY_MB": Inventory(524_288, reserved=4_096, max_unit=524_288),
    "DISK_GB": Inventory(4_000, max_unit=4_000),
}
# A vSphere cluster is one host to Nova.
_CLUSTER = {
    "VCPU": Inventory(512, max_unit=128, allocation_ratio=4.0),
    "MEMORY_MB": Inventory(4_194_304, reserved=32_768, max_unit=1_048_576),
    "DISK_GB": Inventory(32_000, max_unit=16_000),
}
_NODE_OF_METAL = {METAL: Inventory(1, max_unit=1)}


@dataclass(frozen=True)
class Kind:
    name: str
    share: int
    """Of a hundred hosts."""
    facts: HostFacts
    resources: dict[str, Inventory]
    supported: tuple[tuple[str, str, str], ...]
    """What Nova's driver says for ImagePropertiesFilter: (architecture, hypervisor type, mode)."""
    others: frozenset[str] = _NODE
    """Traits that no reporter of ours is about."""

    @property
    def nova_traits(self) -> frozenset[str]:
        """The traits that Nova's own driver reports."""
        if not isinstance(self.facts, IronicFacts):
            return self.others | by_nova_alone(self.facts)
        # The driver adds the types of images to the traits of the node.
        found = {trait for trait, has in capability_traits(self.facts).items() if has}
        return self.others | self.facts.other_traits | (found & BY_NAME["image_type"].traits)

    @property
    def our_traits(self) -> frozenset[str]:
        """The traits of the host with our agent beside Nova's driver."""
        return self.nova_traits | by_the_agent(self.facts, {key for part in WANTED for key in part.keys})


def _kvm(name: str, share: int, versions: str, guests: GuestFacts) -> Kind:
    """Return KVM hosts of one libvirt and one QEMU; what is there for a TPM is in the facts about guests."""
    libvirt, qemu = (tuple(map(int, text.split("."))) for text in versions.split())
    is_x86 = guests is not _ARM and guests is not _ARM_OLD
    architecture, runs = ("x86_64", ("i686", "x86_64")) if is_x86 else ("aarch64", ("aarch64",))
    facts = LibvirtFacts(
        host=name,
        architecture=architecture,
        virt_type="kvm",
        libvirt_version=libvirt,
        hypervisor_version=qemu,
        guests={architecture: guests},
        smt=is_x86,
        swtpm_enabled=bool(guests.tpm_models),
        built_by_nova=True,
    )
    supported = tuple((arch, hypervisor, "hvm") for arch in runs for hypervisor in ("qemu", "kvm"))
    return Kind(name, share, facts, _SERVER, supported, _LIBVIRT | (_X86_CPU if is_x86 else frozenset()))


def _metal(name: str, share: int, *settings: str) -> Kind:
    facts = IronicFacts(
        host=name,
        architecture="x86_64",
        boot_mode="uefi",
        bios_interface="redfish",
        bios={each: BiosSetting("Enabled", allowed=("Enabled", "Disabled")) for each in settings},
    )
    return Kind(name, share, facts, _NODE_OF_METAL, (("x86_64", "baremetal", "hvm"),))


KINDS: tuple[Kind, ...] = (
    _kvm("kvm-8.2", 26, "10.0.0 8.2.2", _X86),
    _kvm("kvm-9.1-q35", 22, "10.10.0 9.1.0", _X86_Q35),
    _kvm("kvm-7.2", 14, "9.0.0 7.2.22", _X86),
    _kvm("kvm-6.2", 15, "8.0.0 6.2.0", _X86_OLD),
    _kvm("kvm-6.2-bios", 5, "8.0.0 6.2.0", replace(_X86_OLD, uefi=False, secure_boot=False)),
    Kind(
        "vmware",
        6,
        VmwareFacts(host="vmware"),
        _CLUSTER,
        (("i686", "vmware", "hvm"), ("x86_64", "vmware", "hvm")),
        _NODE | {"COMPUTE_NET_ATTACH_INTERFACE", "COMPUTE_VOLUME_ATTACH"},
    ),
    _kvm("arm-8.2", 5, "10.0.0 8.2.2", _ARM),
    _kvm("arm-6.2", 2, "8.0.0 6.2.0", _ARM_OLD),
    # Hyperthreading can be switched, or has no setting.
    _metal("metal-ht", 3, "LogicalProc", "NumLock"),
    _metal("metal", 2, "NumLock"),
)
"""All kinds; their shares add up to 100."""

_BY_KIND = {kind.name: kind for kind in KINDS}


def hosts(number: int, seed: int) -> list[Provider]:
    """Return so many hosts in random order, without traits, with what is in use on each."""
    random_ = random.Random(f"hosts {seed}")
    kinds = [kind for kind in KINDS for _ in range(number * kind.share // 100)]
    kinds += [KINDS[0]] * (number - len(kinds))
    random_.shuffle(kinds)
    return [_host(f"{kind.name}-{index:04}", kind, random_) for index, kind in enumerate(kinds)]


def kind_of(host: str) -> Kind:
    return _BY_KIND[host.rpartition("-")[0]]


def _host(name: str, kind: Kind, random_: random.Random) -> Provider:
    # 0.7 on average, and a third of the hosts above 0.8.
    full = random_.betavariate(3.5, 1.5)
    return Provider(name, provider_uuid(name), {each: _used(kind, each, full, random_) for each in kind.resources})


def _used(kind: Kind, resource_class: str, full: float, random_: random.Random) -> Inventory:
    inventory = kind.resources[resource_class]
    if inventory.total == 1:
        return replace(inventory, used=int(random_.random() < IN_USE))
    capacity = (inventory.total - inventory.reserved) * inventory.allocation_ratio
    return replace(inventory, used=max(1, int(capacity * min(1.0, full * random_.uniform(0.9, 1.05)))))


def fleet(providers: list[Provider], *, ours: bool) -> Fleet:
    """Return the hosts with the traits of Nova's drivers, and with ours beside them if ``ours``."""
    traits = {kind.name: kind.our_traits if ours else kind.nova_traits for kind in KINDS}
    return Fleet(tuple(replace(each, traits=traits[kind_of(each.name).name]) for each in providers))
