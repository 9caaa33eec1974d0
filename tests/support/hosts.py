# SPDX-License-Identifier: Apache-2.0

"""Made-up hosts, one for each difference that reporters can see."""

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
from os_prefilter.hosts.drivers.vmware import VmwareFacts
from os_prefilter.hosts.reporter import HostFacts
from os_prefilter.vocabulary import ROWS
from os_prefilter.vocabulary.machine_types import ARCHITECTURES

_X86_BUSES = frozenset(("ide", "fdc", "scsi", "virtio", "usb", "sata"))
_ARM_BUSES = frozenset(("fdc", "scsi", "virtio", "usb", "sata"))
_ALL_TPM = frozenset(("1.2", "2.0"))

X86 = GuestFacts(
    default_machine="pc",
    machines=frozenset(
        (
            "pc",
            "q35",
            "isapc",
            "microvm",
            "pc-i440fx-7.2",
            "pc-q35-7.2",
            "xenpv",
        )
    ),
    machines_are_complete=True,
    buses=_X86_BUSES,
    video_models=frozenset(
        ("vga", "cirrus", "vmvga", "qxl", "virtio", "none", "bochs")
    ),
    tpm_models=frozenset(("tpm-tis", "tpm-crb")),
    tpm_versions=frozenset(("2.0",)),
    uefi=True,
    secure_boot=True,
    mem_encryption=frozenset(("amd-sev", "amd-sev-es", "intel-tdx")),
    usb_redirection=True,
)
ARM = GuestFacts(
    default_machine="virt",
    machines=frozenset(("virt", "virt-7.2", "raspi3b")),
    buses=_ARM_BUSES,
    video_models=frozenset(("vga", "virtio", "none", "bochs", "vmvga")),
    tpm_models=frozenset(("tpm-tis",)),
    tpm_versions=None,
    uefi=True,
)
S390 = GuestFacts(
    default_machine="s390-ccw-virtio",
    machines=frozenset(("s390-ccw-virtio",)),
    buses=frozenset(("fdc", "scsi", "virtio", "usb")),
    video_models=frozenset(("virtio", "none")),
    usb_redirection=False,
)
POWER = GuestFacts(
    default_machine="pseries",
    machines=frozenset(("pseries", "powernv")),
    buses=frozenset(("sata", "scsi", "virtio", "usb")),
    video_models=frozenset(("vga", "virtio", "none", "bochs")),
    tpm_models=frozenset(("tpm-spapr",)),
    tpm_versions=_ALL_TPM,
)
RISCV = GuestFacts(
    default_machine="spike",
    machines=frozenset(("spike", "virt")),
    buses=_ARM_BUSES,
    uefi=True,
)
NOTHING = GuestFacts(
    default_machine="my-machine-type", machines=frozenset(("my-machine-type",))
)


_Q35 = GuestFacts(
    default_machine="q35",
    machines=frozenset(("q35", "pc")),
    buses=_X86_BUSES,
    video_models=X86.video_models,
    tpm_models=X86.tpm_models,
    tpm_versions=_ALL_TPM,
    usb_redirection=True,
    uefi=True,
)
_MICROVM = replace(
    _Q35,
    default_machine="microvm",
    machines=frozenset(("microvm", "isapc")),
    buses=_X86_BUSES - {"ide"},
)
_FEW_DEVICES = GuestFacts(
    default_machine="pc-q35-7.2",
    machines=frozenset(("q35",)),
    buses=_X86_BUSES - {"ide"},
    video_models=frozenset(("virtio",)),
    tpm_versions=_ALL_TPM,
    usb_redirection=False,
)


OLD: tuple[Version, Version] = ((8, 0, 0), (6, 2, 0))
NEW: tuple[Version, Version] = ((10, 4, 0), (9, 1, 0))
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
_VERSIONS: tuple[tuple[Version, Version], ...] = (
    OLD,
    ((8, 3, 0), (7, 2, 22)),
    ((8, 6, 0), (8, 0, 0)),
    ((8, 7, 0), (7, 2, 0)),
    ((9, 0, 0), (7, 2, 22)),
    ((9, 3, 0), (7, 2, 0)),
    ((9, 2, 99), (8, 0, 0)),
    ((9, 3, 0), (8, 0, 0)),
    ((10, 4, 0), (8, 1, 99)),
    ((10, 3, 0), (8, 2, 0)),
    NEW,
)
_GUESTS = (
    ("x86_64", {"x86_64": X86}),
    (
        "x86_64",
        {
            "x86_64": X86,
            "aarch64": ARM,
            "armv7l": ARM,
            "ppc64": POWER,
            "s390x": S390,
            "sparc": NOTHING,
        },
    ),
    ("x86_64", {"x86_64": _Q35}),
    # Its own guests have fewer devices than those of an architecture for which
    # Nova has no trait.
    (
        "x86_64",
        {
            "x86_64": _FEW_DEVICES,
            "aarch64": NOTHING,
            "armv7l": ARM,
        },
    ),
    ("x86_64", {"x86_64": _MICROVM}),
    ("x86_64", {"x86_64": NOTHING}),
    ("aarch64", {"aarch64": ARM}),
    (
        "aarch64",
        {"aarch64": ARM, "armv7l": ARM, "x86_64": _Q35},
    ),
    ("armv7l", {"armv7l": ARM}),
    ("s390x", {"s390x": S390, "x86_64": X86}),
    ("ppc64le", {"ppc64le": POWER}),
    ("ppc64", {"ppc64": POWER, "ppc64le": POWER}),
    ("riscv64", {"riscv64": RISCV}),
)


EVERY_ARCHITECTURE = frozenset(ARCHITECTURES.split())
"""The option ``emulated_architectures`` with all values."""
OFFERED: tuple[frozenset[str], ...] = (frozenset(), EVERY_ARCHITECTURE)
"""The option with no value, and with all."""


def libvirt_hosts() -> Iterator[LibvirtFacts]:
    """Yield hosts over virt types, architectures, machine types and
    versions.
    """
    hosts = product(_GUESTS, ("kvm", "qemu"), _VERSIONS, OFFERED)
    for (architecture, guests), virt_type, (libvirt, qemu), emulated in hosts:
        is_kvm = virt_type == "kvm"
        is_newest = qemu == NEW[1]
        has_swtpm = libvirt > OLD[0]
        secrets = ("user", "host") if is_newest else ("deployment",)
        yield LibvirtFacts(
            architecture=architecture,
            emulated_architectures=emulated,
            virt_type=virt_type,
            libvirt_version=libvirt,
            hypervisor_version=qemu,
            guests=guests,
            smt=is_kvm,
            smm=None if is_newest else has_swtpm,
            swtpm_enabled=has_swtpm,
            tpm_secret_security=frozenset(secrets),
            images_type="rbd" if is_newest else "default",
            force_raw_images=is_kvm,
            cpu_mode="host-passthrough" if is_newest else "",
            spice_enabled=is_newest,
            built_by_nova=is_kvm,
            nova_release=None if qemu == OLD[1] else 34,
        )
    machines = ("q35", "microvm", "my-machine-type")
    for machine, emulated in product(machines, OFFERED):
        i686 = replace(
            X86,
            default_machine=machine,
            uefi=machine == "q35",
            secure_boot=False,
        )
        guests = {**KVM.guests, "i686": i686}
        yield replace(KVM, guests=guests, emulated_architectures=emulated)
    without_qemu = product(
        ("lxc", "parallels"), ("x86_64", "aarch64"), (OLD[0], NEW[0]), OFFERED
    )
    for virt_type, architecture, libvirt, emulated in without_qemu:
        yield LibvirtFacts(
            architecture=architecture,
            emulated_architectures=emulated,
            virt_type=virt_type,
            libvirt_version=libvirt,
        )


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
    hyperthreading = "HW_CPU_HYPERTHREADING"
    yield VmwareFacts()
    yield VmwareFacts(
        other_traits=frozenset((hyperthreading, "HW_CPU_X86_AMD_SEV"))
    )
    yield FakeFacts()
    yield FakeFacts(can={})
    yield FakeFacts(can=every_value)
    yield FakeFacts(can=every_value, emulated_architectures=EVERY_ARCHITECTURE)
    yield IronicFacts()
    yield IronicFacts(
        architecture="x86_64",
        boot_mode="uefi",
        secure_boot=True,
        bios={"LogicalProc": BiosSetting()},
    )
    yield IronicFacts(
        architecture="aarch64",
        other_traits=frozenset((hyperthreading, "COMPUTE_FIRMWARE_UEFI")),
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
