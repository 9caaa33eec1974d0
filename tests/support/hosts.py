# SPDX-License-Identifier: Apache-2.0

"""Made-up hosts, one for each difference that reporters can see."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

from os_prefilter.hosts.drivers.fake import FakeFacts
from os_prefilter.hosts.drivers.ironic_facts import BiosSetting, IronicFacts
from os_prefilter.hosts.drivers.libvirt_facts import (
    GuestFacts,
    LibvirtFacts,
    Version,
)
from os_prefilter.hosts.drivers.qemu_devices import DEVICES
from os_prefilter.hosts.drivers.vmware import VmwareFacts
from os_prefilter.hosts.reporter import HostFacts
from os_prefilter.vocabulary import ROWS


def _set(names: str) -> frozenset[str]:
    return frozenset(names.split())


_ALL_TPM = _set("1.2 2.0")
_ARM_BUSES = _set("fdc scsi virtio usb sata")
_X86_BUSES = _ARM_BUSES | {"ide"}
_X86_MACHINES = "pc q35 isapc microvm pc-i440fx-7.2 pc-q35-7.2 xenpv"

EVERY_DEVICE = frozenset(
    name for needed in DEVICES.values() for name in re.split("[ |]", needed)
)
"""The devices that some value needs."""
_NOT_ON_S390 = "spapr-vlan spapr-vscsi lan9118 i6300esb intel-iommu"
_NOT_ON_POWER = "lan9118 intel-iommu"
RED_HATS_NOT = (
    "pcnet ne2k_pci vmxnet3 lsi53c895a mptsas1068 megasas pvscsi AC97 ES1370"
    " sb16 usb-audio"
)
"""The devices of Debian's QEMU that Red Hat leaves out."""

_Q35 = GuestFacts(
    default_machine="q35",
    machines=_set("q35 pc"),
    buses=_X86_BUSES,
    video_models=_set("vga cirrus vmvga qxl virtio none bochs"),
    tpm_models=_set("tpm-tis tpm-crb"),
    tpm_versions=_ALL_TPM,
    usb_redirection=True,
    uefi=True,
    devices=EVERY_DEVICE,
)
X86 = replace(
    _Q35,
    default_machine="pc",
    machines=_set(_X86_MACHINES),
    machines_are_complete=True,
    tpm_versions=_set("2.0"),
    secure_boot=True,
    mem_encryption=_set("amd-sev amd-sev-es intel-tdx"),
)
ARM = GuestFacts(
    default_machine="virt",
    machines=_set("virt virt-7.2 raspi3b"),
    buses=_ARM_BUSES,
    video_models=_set("vga virtio none bochs vmvga"),
    tpm_models=_set("tpm-tis"),
    tpm_versions=None,
    uefi=True,
    devices=EVERY_DEVICE,
)
S390 = GuestFacts(
    default_machine="s390-ccw-virtio",
    machines=_set("s390-ccw-virtio"),
    buses=_set("fdc scsi virtio usb"),
    video_models=_set("virtio none"),
    usb_redirection=False,
    devices=EVERY_DEVICE - _set(_NOT_ON_S390),
)
POWER = GuestFacts(
    default_machine="pseries",
    machines=_set("pseries powernv"),
    buses=_set("sata scsi virtio usb"),
    video_models=_set("vga virtio none bochs"),
    tpm_models=_set("tpm-spapr"),
    tpm_versions=_ALL_TPM,
    devices=EVERY_DEVICE - _set(_NOT_ON_POWER),
)
RISCV = GuestFacts(
    default_machine="spike",
    machines=_set("spike virt"),
    buses=_ARM_BUSES,
    uefi=True,
    devices=EVERY_DEVICE,
)
NOTHING = GuestFacts(
    default_machine="my-machine-type",
    machines=_set("my-machine-type"),
    devices=frozenset(),
)


_MICROVM = replace(
    _Q35,
    default_machine="microvm",
    machines=_set("microvm isapc"),
    buses=_ARM_BUSES,
)
_FEW_DEVICES = GuestFacts(
    default_machine="pc-q35-7.2",
    machines=_set("q35"),
    devices=EVERY_DEVICE - _set(RED_HATS_NOT),
    buses=_ARM_BUSES,
    video_models=_set("virtio"),
    tpm_versions=_ALL_TPM,
    usb_redirection=False,
)


def _version(text: str) -> Version:
    major, minor, micro = text.split(".")
    return int(major), int(minor), int(micro)


def _versions(line: str) -> tuple[Version, Version]:
    """Return the versions of libvirt and of QEMU in a line."""
    libvirt, qemu = line.split()
    return _version(libvirt), _version(qemu)


OLD = _versions("8.0.0 6.2.0")
NEW = _versions("10.4.0 9.1.0")
_BETWEEN = (
    "8.3.0 7.2.22",
    "8.6.0 8.0.0",
    "8.7.0 7.2.0",
    "9.0.0 7.2.22",
    "9.3.0 7.2.0",
    "9.2.99 8.0.0",
    "9.3.0 8.0.0",
    "10.4.0 8.1.99",
    "10.3.0 8.2.0",
)
_VERSIONS = (OLD, *map(_versions, _BETWEEN), NEW)
KVM = LibvirtFacts(
    architecture="x86_64",
    virt_type="kvm",
    libvirt_version=NEW[0],
    hypervisor_version=NEW[1],
    guests={"x86_64": X86},
)
LXC = LibvirtFacts(
    architecture="x86_64", virt_type="lxc", libvirt_version=NEW[0]
)


def _guests() -> Iterator[tuple[str, GuestFacts, str]]:
    """Yield architectures of hosts, what their guests have, and what they
    emulate.
    """
    yield "x86_64", X86, ""
    yield "x86_64", X86, "aarch64 armv7l ppc64 s390x sparc"
    yield "x86_64", _Q35, ""
    yield "x86_64", _FEW_DEVICES, "aarch64 armv7l"
    yield "x86_64", _MICROVM, ""
    yield "x86_64", NOTHING, ""
    yield "x86_64", replace(X86, devices=None), ""
    yield "aarch64", ARM, ""
    yield "aarch64", ARM, "armv7l x86_64"
    yield "armv7l", ARM, ""
    yield "s390x", S390, "x86_64"
    yield "ppc64le", POWER, ""
    yield "ppc64", POWER, "ppc64le"
    yield "riscv64", RISCV, ""


def libvirt_hosts() -> Iterator[LibvirtFacts]:
    """Yield hosts over virt types, architectures, machine types and
    versions.
    """
    hosts = product(_guests(), ("kvm", "qemu"), _VERSIONS)
    for (architecture, guest, emulated), virt_type, (libvirt, qemu) in hosts:
        is_kvm = virt_type == "kvm"
        is_newest = qemu == NEW[1]
        has_swtpm = libvirt > OLD[0]
        secrets = "user host" if is_newest else "deployment"
        host = LibvirtFacts(
            architecture=architecture,
            virt_type=virt_type,
            libvirt_version=libvirt,
            hypervisor_version=qemu,
            guests={architecture: guest},
            emulated=_set(emulated),
        )
        host = replace(
            host,
            smt=is_kvm,
            smm=None if is_newest else has_swtpm,
            swtpm_enabled=has_swtpm,
            tpm_secret_security=_set(secrets),
            cpu_mode="host-passthrough" if is_newest else "",
            spice_enabled=is_newest,
        )
        yield replace(
            host,
            images_type="rbd" if is_newest else "default",
            force_raw_images=is_kvm,
            built_by_nova=is_kvm,
            nova_release=None if qemu == OLD[1] else 34,
        )
    for machine in ("q35", "microvm", "my-machine-type"):
        i686 = replace(
            X86,
            default_machine=machine,
            uefi=machine == "q35",
            secure_boot=False,
        )
        guests = {**KVM.guests, "i686": i686}
        yield replace(KVM, guests=guests)
    without_qemu = product(
        ("lxc", "parallels"), ("x86_64", "aarch64"), (OLD[0], NEW[0])
    )
    for virt_type, architecture, libvirt in without_qemu:
        yield LibvirtFacts(
            architecture=architecture,
            virt_type=virt_type,
            libvirt_version=libvirt,
        )


def with_every_device(facts: LibvirtFacts) -> LibvirtFacts:
    """Return a host with all devices that a QEMU of its version can have."""
    newer = set()
    if facts.hypervisor_version < (8, 0, 0):
        newer.add("igb")
    if facts.hypervisor_version < (8, 2, 0):
        newer.add("virtio-sound-pci")
    guests = {
        name: replace(guest, devices=EVERY_DEVICE - newer)
        for name, guest in facts.guests.items()
    }
    return replace(facts, guests=guests)


def few_libvirt_hosts() -> Iterator[LibvirtFacts]:
    """Yield a host of each virt type, for what takes long: the oldest versions
    with QEMU, the newest with KVM and without QEMU.
    """
    without_qemu = (NEW[0], LXC.hypervisor_version)
    for facts in libvirt_hosts():
        versions = (facts.libvirt_version, facts.hypervisor_version)
        if facts.virt_type == "qemu":
            is_one = versions == OLD
        else:
            is_one = versions in (NEW, without_qemu)
        if is_one:
            yield facts


def other_hosts() -> Iterator[HostFacts]:
    every_value = {row.name: frozenset(row.values) for row in ROWS}
    yield VmwareFacts()
    yield VmwareFacts(
        other_traits=_set("HW_CPU_HYPERTHREADING HW_CPU_X86_AMD_SEV")
    )
    yield FakeFacts()
    yield FakeFacts(can={})
    yield FakeFacts(can=every_value)
    yield IronicFacts()
    yield IronicFacts(
        architecture="x86_64",
        boot_mode="uefi",
        secure_boot=True,
        bios={"LogicalProc": BiosSetting()},
    )
    yield IronicFacts(
        architecture="aarch64",
        other_traits=_set("HW_CPU_HYPERTHREADING COMPUTE_FIRMWARE_UEFI"),
    )


def declared_by_nova(driver: Any) -> dict[str, bool]:
    """Return trait of a capability -> whether Nova's driver class declares it."""
    # Late: other tests need these hosts where no Nova is.
    from nova.virt import driver as nova_driver  # noqa: PLC0415

    capabilities = dict(nova_driver.ComputeDriver.capabilities)
    capabilities.update(driver.capabilities)
    traits = nova_driver.CAPABILITY_TRAITS_MAP
    return {
        traits[name]: supported
        for name, supported in capabilities.items()
        if name in traits
    }


def with_cpu_models(*models: str) -> LibvirtFacts:
    """Return a host of Nova's whose guests have one of these CPU models."""
    return replace(
        KVM,
        built_by_nova=True,
        nova_release=34,
        cpu_mode="custom",
        cpu_models=models,
    )
