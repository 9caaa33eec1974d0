# SPDX-License-Identifier: Apache-2.0

"""libvirt: versions, HPET, machine types and architectures; and Nova's own
late checks over all their values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from defusedxml.ElementTree import fromstring
from nova import exception as nova_exception
from nova.network import model as network_model
from nova.objects import fields as nova_fields
from nova.objects.image_meta import ImageMeta, ImageMetaProps
from nova.virt.libvirt import blockinfo, driver, vif
from nova.virt.libvirt import host as nova_host

from os_prefilter.common.trait_names import Trait
from os_prefilter.hosts.capabilities import (
    capability_traits,
    refusals,
    unknown_traits,
)
from os_prefilter.hosts.driver_check import guest_settings, unsupported
from os_prefilter.hosts.drivers.libvirt import VERSIONS, Needs, refusal
from os_prefilter.hosts.drivers.libvirt_domain_xml import domain_elements
from os_prefilter.hosts.drivers.libvirt_facts import (
    GuestFacts,
    LibvirtFacts,
    Version,
)
from os_prefilter.vocabulary import BY_NAME
from tests.conftest import spec_of
from tests.support.hosts import (
    ARM,
    KVM,
    LXC,
    NOTHING,
    POWER,
    RED_HATS_NOT,
    RISCV,
    S390,
    X86,
)
from tests.support.nova_objects import nova_spec
from tests.support.tables import cases, pairs

QEMU = replace(KVM, virt_type="qemu")
PARALLELS = replace(LXC, virt_type="parallels")


_SEVERAL = replace(
    KVM,
    guests={"x86_64": X86, "i686": replace(X86, uefi=False)},
    emulated=frozenset(("aarch64", "s390x")),
)


def _properties(text: str) -> dict[str, object]:
    """Return image properties in the form ``name=value name=value``."""
    return {**pairs(text)}


_REFUSED = cases("""
hw_time_hpet=true hw_architecture=aarch64           | the host is x86_64
hw_viommu_model=smmuv3           | it is for guests of aarch64 and armv7l, not of x86_64
hw_machine_type=virt             | no machine type virt for x86_64
# The exact version: what no trait says, and the driver must refuse.
hw_machine_type=pc-i440fx-99.0   | hw_machine_type=pc-i440fx-99.0: QEMU has no machine type pc-i440
hw_architecture=i686 hw_firmware_type=uefi | no UEFI firmware for i686 guests
hw_machine_type=my-board         | unknown value
hw_emulation_architecture=sparc  | no QEMU for sparc
img_hv_type=xen                  | possible on kvm hosts: kvm, qemu
hw_tpm_version=2.0               | swtpm_enabled is off
hw_scsi_model=buslogic           | QEMU has no such controller
hw_scsi_model=ibmvscsi hw_disk_bus=scsi | it is for guests of ppc64 and ppc64le
hw_scsi_model=nosuch             | unknown value
hw_redirected_usb_ports=16       | unknown value
""")


@pytest.mark.parametrize(("properties", "reason"), _REFUSED)
def test_late_check_on_a_kvm_host_refuses_what_the_host_cannot_do(
    properties: str, reason: str
) -> None:
    """tests/guests has what really starts."""
    found = unsupported(spec_of(_properties(properties)), _SEVERAL)
    assert any(reason in str(item) for item in found)
    for item in found:
        assert item.property.startswith("image property ")


_ACCEPTED = cases("""
hw_machine_type=pc-i440fx-7.2
hw_redirected_usb_ports=0 hw_machine_type=isapc
hw_watchdog_action=disabled hw_machine_type=isapc
# Devices that the guest does not get.
hw_floppy_bus=fdc hw_machine_type=microvm
hw_rescue_bus=ide hw_machine_type=q35
hw_cdrom_bus=ide hw_machine_type=q35
""")


@pytest.mark.parametrize("properties", _ACCEPTED)
def test_late_check_on_a_kvm_host_accepts_what_the_host_can_do(
    properties: str,
) -> None:
    assert unsupported(spec_of(_properties(properties)), _SEVERAL) == []


_EMULATING = replace(KVM, emulated=frozenset(("aarch64", "s390x", "sparc")))


@pytest.mark.parametrize("architecture", ["x86_64", "i686", "s390x", "sparc"])
def test_host_emulates_the_architectures_that_it_has_a_qemu_for(
    architecture: str,
) -> None:
    """Its own one needs none."""
    trait = BY_NAME["emulation_architecture"].values[architecture].trait
    spec = spec_of({"hw_emulation_architecture": architecture})
    assert unsupported(spec, _EMULATING) == []
    assert capability_traits(_EMULATING)[str(trait)]
    is_own = architecture in ("x86_64", "i686")
    assert capability_traits(KVM)[str(trait)] is is_own
    assert (unsupported(spec, KVM) == []) is is_own


@pytest.mark.parametrize("facts", [LXC, PARALLELS], ids=["lxc", "parallels"])
def test_host_without_qemu_emulates_nothing(facts: LibvirtFacts) -> None:
    row = BY_NAME["emulation_architecture"]
    for value in row.values:
        assert refusal(facts, row.name, value, "")


def test_reason_of_a_host_without_the_qemu_names_the_architecture() -> None:
    reason = refusals(KVM)[Trait("COMPUTE_ARCH_S390X")]
    assert reason == "the host has no QEMU for s390x guests"


def _with(**guests: Any) -> LibvirtFacts:
    return replace(KVM, guests={"x86_64": replace(X86, **guests)})


@pytest.mark.parametrize(
    ("facts", "has"),
    [
        (KVM, True),
        (replace(KVM, smm=True), True),
        (replace(KVM, smm=False), False),
        # QEMU itself emulates it.
        (replace(QEMU, smm=False), True),
        (replace(_with(secure_boot=False), smm=True), False),
    ],
    ids=["not known", "SMM", "no SMM", "QEMU", "no firmware"],
)
def test_secure_boot_trait_needs_a_kvm_with_system_management_mode(
    facts: LibvirtFacts, *, has: bool
) -> None:
    traits = capability_traits(facts)
    assert traits["COMPUTE_SECURITY_UEFI_SECURE_BOOT"] is has
    wanted = {"hw_machine_type": "q35", "hw_firmware_type": "uefi"}
    required = spec_of({**wanted, "os_secure_boot": "required"})
    assert (unsupported(required, facts) == []) is has
    disabled = spec_of({**wanted, "os_secure_boot": "disabled"})
    assert unsupported(disabled, facts) == []


def _on(
    architecture: str, guests: Any, host: LibvirtFacts = KVM, **fields: Any
) -> LibvirtFacts:
    """Return a host of an architecture, with guests of that alone."""
    fields |= {"architecture": architecture, "guests": {architecture: guests}}
    return replace(host, **fields)


def _with_versions(libvirt: Version, qemu: Version) -> LibvirtFacts:
    return replace(KVM, libvirt_version=libvirt, hypervisor_version=qemu)


def _without(devices: str, guests: GuestFacts = X86) -> GuestFacts:
    """Return what guests of a QEMU without some devices have."""
    assert guests.devices is not None
    return replace(guests, devices=guests.devices - frozenset(devices.split()))


def _by_nova(
    release: int, libvirt: Version, host: LibvirtFacts = KVM, **fields: Any
) -> LibvirtFacts:
    fields |= {"libvirt_version": libvirt, "nova_release": release}
    return replace(host, built_by_nova=True, **fields)


_ARM_HOST = _on("aarch64", ARM, swtpm_enabled=True)
_S390_HOST = _on("s390x", S390, swtpm_enabled=True)
_ARM_AND_S390 = replace(
    _ARM_HOST,
    emulated=frozenset(("s390x",)),
)
_X86_AND_S390 = replace(
    KVM,
    emulated=frozenset(("s390x",)),
)
_OLD = (9, 0, 0)
_TRIED = (11, 3, 99)
_UNTRIED = (11, 4, 0)
_RAW = replace(KVM, force_raw_images=False)
_BY_SOME_NOVA = replace(KVM, built_by_nova=True)
_Q35_FOR_I686 = {"x86_64": X86, "i686": replace(X86, default_machine="q35")}
LEFT_OUT = (
    "pcnet lsi53c895a AC97 intel-hda hda-duplex nec-usb-xhci usb-kbd usb-redir"
    " i6300esb intel-iommu"
)
_HOSTS = {
    "kvm": KVM,
    "qemu": QEMU,
    "lxc": LXC,
    "parallels": PARALLELS,
    "aarch64": _ARM_HOST,
    "aarch64 with x86_64 guests": replace(
        _ARM_HOST, emulated=frozenset(("x86_64",))
    ),
    "aarch64 without firmware": _on("aarch64", NOTHING, swtpm_enabled=True),
    "armv7l": _on("armv7l", ARM, swtpm_enabled=True),
    "s390x": _S390_HOST,
    "s390x, QEMU 7.2": _on(
        "s390x",
        _without("e1000e igb qemu-xhci usb-audio usb-tablet usb-kbd", S390),
    ),
    "libvirt 9.3, QEMU 8.0": _with_versions((9, 3, 0), (8, 0, 0)),
    "libvirt 9.3, QEMU 7.2": _on(
        "x86_64", _without("igb"), libvirt_version=(9, 3, 0)
    ),
    "lean": _on("x86_64", _without(LEFT_OUT)),
    "lean, i686": replace(
        KVM, guests={"x86_64": X86, "i686": _without("intel-iommu")}
    ),
    "Nova, lean": _by_nova(34, _UNTRIED, _on("x86_64", _without(LEFT_OUT))),
    "libvirt 9.2, QEMU 8.0": _with_versions((9, 2, 99), (8, 0, 0)),
    "libvirt 9.0, QEMU 7.2": _with_versions(_OLD, (7, 2, 0)),
    "libvirt 9.0, QEMU 7.1": _with_versions(_OLD, (7, 1, 0)),
    "isapc": _with(machines={"isapc", "microvm"}),
    "q35": _with(machines={"pc-q35-7.2"}),
    "i440fx": _with(machines={"pc-i440fx-7.2"}),
    "threads": replace(KVM, smt=True),
    "TPM": replace(KVM, swtpm_enabled=True),
    "no raw": _RAW,
    "no raw, rbd": replace(_RAW, images_type="rbd"),
    "no raw, lvm": replace(_RAW, images_type="lvm"),
    # An old libvirt lists no such devices, and may have them.
    "USB not known": _with(usb_redirection=None),
    "no USB": _with(usb_redirection=False),
    "Nova": _BY_SOME_NOVA,
    "Nova, i686": replace(_BY_SOME_NOVA, guests=_Q35_FOR_I686),
    "Nova, QEMU 7.3": replace(
        _BY_SOME_NOVA, virt_type="qemu", hypervisor_version=(7, 3, 0)
    ),
    "Nova 32": _by_nova(32, _OLD),
    "Nova 33": _by_nova(33, _OLD),
    "Nova 33, libvirt 9.1": _by_nova(33, (9, 1, 0)),
    "Nova 34": _by_nova(34, _OLD),
    "Nova 34, SPICE": _by_nova(34, _OLD, spice_enabled=True),
    "Nova 34, libvirt 8.9": _by_nova(34, (8, 9, 0)),
    "Nova 34, libvirt 11.3": _by_nova(34, _TRIED),
    "Nova 34, libvirt 11.4": _by_nova(34, _UNTRIED),
    "Nova 34, libvirt 12": _by_nova(34, (12, 0, 0)),
    "Nova 34, aarch64": _by_nova(34, _OLD, _ARM_HOST),
    "Nova 34, aarch64, libvirt 11.3": _by_nova(34, _TRIED, _ARM_HOST),
    "Nova 34, aarch64, libvirt 11.4": _by_nova(34, _UNTRIED, _ARM_HOST),
    "Nova 34, s390x": _by_nova(34, (10, 4, 0), _S390_HOST),
    "Nova 34, x86_64 and s390x": _by_nova(34, _UNTRIED, _X86_AND_S390),
    "Nova 34, aarch64 and s390x": _by_nova(34, _TRIED, _ARM_AND_S390),
    "Nova 35": _by_nova(35, _OLD),
}
_REASONS = cases("""
libvirt 9.3, QEMU 8.0 | vif_model igb     |
libvirt 9.3, QEMU 7.2 | vif_model igb     | this QEMU has no device igb
libvirt 9.2, QEMU 8.0 | vif_model igb     | needs libvirt 9.3.0, found 9.2.99
libvirt 9.0, QEMU 7.2 | vif_model igb     | needs libvirt 9.3.0, found 9.0.0
lean | vif_model pcnet        | this QEMU has no device pcnet
lean | vif_model virtio       |
lean | vif_model lan9118      | possible on kvm hosts: e1000, e1000e, igb, ne2k_pci, pcnet, rtl8139, spapr-vlan, virtio, vmxnet3
lean | scsi_model lsilogic    | this QEMU has no device lsi53c895a
lean | scsi_model virtio-scsi |
lean | sound_model ac97       | this QEMU has no device AC97
lean | sound_model ich6       | this QEMU has no device intel-hda and no hda-duplex
lean | sound_model pcspk      |
lean | usb_model nec-xhci     | this QEMU has no device nec-usb-xhci
lean | input_bus usb          | this QEMU has no device usb-kbd
lean | pointer_model usbtablet | this QEMU has no device usb-kbd
lean | usb_redirection 15     | this QEMU has no device usb-redir
lean | watchdog reset         | this QEMU has no device i6300esb
lean | viommu_model intel     | this QEMU has no device intel-iommu
lean | viommu_model auto      | this QEMU has no device intel-iommu
lean | viommu_model virtio    |
Nova, lean | viommu_model auto |
lean, i686 | viommu_model intel      |
lean, i686 | viommu_model intel i686 | this QEMU has no device intel-iommu
libvirt 9.0, QEMU 7.1 | sound_model pcspk | needs libvirt 9.1.0, found 9.0.0
qemu      | time_hpet true |
lxc       | time_hpet true | not possible on lxc hosts
parallels | time_hpet true | not possible on parallels hosts
aarch64   | time_hpet true | guests of aarch64 have no HPET; only x86 has one
# An x86 guest is possible there, but not required by the timer alone.
aarch64 with x86_64 guests | time_hpet true | guests of aarch64 have no HPET; only x86 has one
isapc     | time_hpet true | it needs machine type pc or q35, and QEMU has neither
q35       | time_hpet true |
i440fx    | time_hpet true |
threads   | cpu_thread_policy isolate | the cores run several threads
threads   | cpu_thread_policy require |
kvm       | cpu_thread_policy isolate |
kvm       | cpu_thread_policy require | each core runs one thread (no SMT, or libvirt's capabilities list no topology)
kvm       | image_type ploop | Nova's libvirt driver runs no ploop images
parallels | image_type ploop |
parallels | image_type vhd   | Nova's libvirt driver runs no vhd images
kvm       | image_type aki   |
kvm       | image_type ami   |
kvm       | image_type ari   |
kvm       | image_type iso   |
kvm       | image_type raw   |
no raw      | image_type qcow2 |
no raw, rbd | image_type qcow2 | images_type is rbd and force_raw_images is off
no raw, lvm | image_type qcow2 | images_type is lvm and force_raw_images is off
lxc       | video_model vga  | possible on lxc hosts: none
# Without a list of all machine types, versions are not compared.
aarch64   | machine_type virt-99.0 |
q35       | machine_type q35 |
aarch64                  | secure_boot required |
aarch64 without firmware | secure_boot required | libvirt found no UEFI firmware
Nova 34, aarch64         | secure_boot required | libvirt found no UEFI firmware with secure boot
aarch64   | tpm_version 1.2   |
s390x     | tpm_version 1.2   | versions of libvirt's emulated TPM: none
TPM       | tpm_version 1.2   | versions of libvirt's emulated TPM: 2.0
aarch64   | tpm_model tpm-crb | libvirt's TPM models: tpm-tis
armv7l    | viommu_model auto |
aarch64   | sound_model pcspk | it is part of x86's machine types, not of aarch64
s390x     | sound_model pcspk | it is part of x86's machine types, not of s390x
aarch64   | sound_model ac97  |
Nova      | viommu_model auto | as Nova builds the guest: it gets attributes that libvirt refuses for a vIOMMU of virtio
Nova, QEMU 7.3       | viommu_model intel |
Nova 32              | firmware_type uefi |
Nova 33              | firmware_type uefi | as Nova 33 builds the guest: it gets the attribute secure='no', which libvirt 9.0 refuses for firmware that it chooses itself
Nova 33, libvirt 9.1 | firmware_type uefi |
USB not known        | usb_redirection 2 |
no USB               | usb_redirection 2 | libvirt lists no redirected USB devices, or no SPICE graphics
Nova 34              | usb_redirection 1 | as Nova 34 builds the guest: it gets no SPICE graphics ([spice] enabled is off), without which libvirt refuses redirected USB ports
Nova 34, libvirt 12  | usb_redirection 1 | as Nova 34 builds the guest: it gets no SPICE graphics ([spice] enabled is off), without which libvirt refuses redirected USB ports
Nova 34, SPICE       | usb_redirection 1 |
# An own driver gives such a guest SPICE; a newer Nova and an older libvirt
# were not tried.
libvirt 9.0, QEMU 7.2 | usb_redirection 1 |
Nova 35               | usb_redirection 1 |
Nova 34, libvirt 8.9  | usb_redirection 1 |
s390x, QEMU 7.2 | input_bus usb           | this QEMU has no device usb-tablet and no usb-kbd
s390x, QEMU 7.2 | pointer_model usbtablet | this QEMU has no device usb-tablet and no usb-kbd
s390x, QEMU 7.2 | input_bus virtio        |
s390x           | input_bus usb           |
s390x           | pointer_model usbtablet |
s390x           | watchdog pause          | this QEMU has no device i6300esb
Nova 34, s390x  | input_bus usb           | as Nova 34 builds the guest: it gets a USB tablet, and no USB controller
Nova 34, s390x  | pointer_model usbtablet | as Nova 34 builds the guest: it gets a USB tablet, and no USB controller
Nova 34, s390x  | input_bus virtio        |
Nova 34, libvirt 11.3 | viommu_model virtio | as Nova 34 builds the guest: it gets attributes that libvirt refuses for a vIOMMU of virtio
Nova 34, libvirt 11.4 | viommu_model virtio |
Nova 34, aarch64, libvirt 11.3 | viommu_model smmuv3 | as Nova 34 builds the guest: it gets an I/O APIC, which is x86's
Nova 34, aarch64, libvirt 11.4 | viommu_model smmuv3 |
Nova, i686      | default_machine q35 i686 |
Nova, i686      | viommu_model intel i686  |
# On other hosts no guest of another architecture was tried.
Nova 34, x86_64 and s390x  | emulation_architecture s390x |
Nova 34, aarch64 and s390x | emulation_architecture s390x |
""")


@pytest.mark.parametrize(("host", "asked", "reason"), _REASONS)
def test_host_has_the_trait_of_each_value_or_the_reason_why_not(
    host: str, asked: str, reason: str
) -> None:
    facts = _HOSTS[host]
    row, value, *other = asked.split()
    architecture = other[0] if other else ""
    assert refusal(facts, row, value, architecture) == reason
    term = BY_NAME[row].values.get(value)
    if not other and term and term.trait and term.required:
        assert refusals(facts)[term.trait] == reason


_MODELS = cases("""
# libvirt's models | the option | what Nova would offer
amd-sev amd-sev-es     |                           | amd-sev amd-sev-es
amd-sev amd-sev-es     | virt_type=qemu            |
amd-sev-es amd-sev-snp |                           | amd-sev-snp
intel-tdx              |                           |
intel-tdx              | cpu_mode=host-model       |
intel-tdx              | cpu_mode=host-passthrough | intel-tdx
""")


def _able_to_encrypt(facts: LibvirtFacts) -> set[str]:
    return {
        model
        for model in nova_fields.MemEncryptionModel.ALL
        if not refusal(facts, "mem_encryption_model", model, "")
    }


@pytest.mark.parametrize(("models", "option", "able"), _MODELS)
def test_memory_encryption_models_are_those_that_nova_would_offer(
    models: str, option: str, able: str
) -> None:
    facts = _with(mem_encryption=frozenset(models.split()))
    name, _, value = option.partition("=")
    options: dict[str, Any] = {name: value} if option else {}
    facts = replace(facts, **options)
    assert _able_to_encrypt(facts) == set(able.split())


def test_sev_es_needs_a_newer_qemu() -> None:
    facts = _with(mem_encryption=frozenset(("amd-sev", "amd-sev-es")))
    old = replace(facts, hypervisor_version=(7, 2, 0))
    assert _able_to_encrypt(old) == {"amd-sev"}


# -- against Nova
# -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "facts", [KVM, QEMU, LXC, PARALLELS], ids=lambda facts: facts.virt_type
)
def test_vif_models_and_buses_are_those_of_novas_late_check(
    facts: LibvirtFacts,
) -> None:
    """Buses on x86, where QEMU has them all; elsewhere Nova accepts what
    libvirt then refuses.
    """
    for model in network_model.VIF_MODEL_ALL:
        is_valid = vif.is_vif_model_valid_for_virt(facts.virt_type, model)
        assert is_valid != bool(refusal(facts, "vif_model", model, "")), model
    for bus in nova_fields.DiskBus.ALL:
        is_valid = blockinfo.is_disk_bus_valid_for_virt(facts.virt_type, bus)
        assert is_valid != bool(refusal(facts, "disk_bus", bus, "")), bus


_POWER_HOST = _on("ppc64le", POWER)
_CONTROLLER = driver.LibvirtDriver._get_scsi_controller


@pytest.mark.parametrize("bus", ["scsi", "virtio", None])
@pytest.mark.parametrize(
    "model", sorted({*nova_fields.SCSIModel.ALL} - {"buslogic"})
)
def test_scsi_controller_is_the_one_that_nova_adds_whatever_disks_the_guest_has(
    model: str, bus: str | None
) -> None:
    properties = {"hw_scsi_model": model}
    if bus:
        properties["hw_disk_bus"] = bus
    spec = nova_spec(properties)
    theirs = _CONTROLLER(spec.image).to_xml(pretty_print=False)
    (ours,) = domain_elements(guest_settings(spec, _POWER_HOST))
    assert fromstring(ours).attrib == fromstring(theirs).attrib


@pytest.mark.parametrize("bus", ["scsi", "virtio", None])
def test_scsi_model_that_qemu_does_not_have_is_refused(
    bus: str | None,
) -> None:
    properties = {"hw_scsi_model": "buslogic"}
    if bus:
        properties["hw_disk_bus"] = bus
    found = unsupported(nova_spec(properties), _POWER_HOST)
    assert "QEMU has no such controller" in str(found)


def test_scsi_controller_without_a_model_is_left_to_libvirt() -> None:
    spec = nova_spec({"hw_disk_bus": "scsi"})
    assert _CONTROLLER(spec.image) is None
    for element in domain_elements(guest_settings(spec, KVM)):
        assert "controller" not in element


_ON_X86 = {"lsilogic", "lsisas1068", "lsisas1078", "virtio-scsi", "vmpvscsi"}
_POWER_HOST = _on("ppc64", POWER)


@pytest.mark.parametrize(
    ("facts", "models"),
    [
        (KVM, _ON_X86),
        (_POWER_HOST, {*nova_fields.SCSIModel.ALL} - {"buslogic"}),
        (LXC, set()),
        (PARALLELS, {"virtio-scsi"}),
    ],
    ids=["x86_64", "ppc64", "lxc", "parallels"],
)
def test_scsi_models_are_those_of_the_virt_type_and_the_architectures(
    facts: LibvirtFacts, models: set[str]
) -> None:
    able = {
        each
        for each in nova_fields.SCSIModel.ALL
        if not refusal(facts, "scsi_model", each, "")
    }
    assert able == models


_PLATFORMS: Mapping[str, tuple[str, ...]] = {
    "x86_64": ("pc", "q35", "pc-i440fx-7.2", "pc-q35-7.2", "isapc", "microvm"),
    "aarch64": ("virt", "virt-7.2"),
    "ppc64le": ("pseries",),
    "s390x": ("s390-ccw-virtio",),
}
_GUESTS = {"x86_64": X86, "aarch64": ARM, "ppc64le": POWER, "s390x": S390}
_REFUSED_BY_NOVA = (
    nova_exception.InvalidVIOMMUMachineType,
    nova_exception.InvalidVIOMMUArchitecture,
)
_WRONG_ARCHITECTURE = {("intel", "aarch64"), ("smmuv3", "x86_64")}


def _nova_accepts(machine: str, **properties: str) -> bool:
    nova = driver.LibvirtDriver.__new__(driver.LibvirtDriver)
    nova._host = SimpleNamespace(has_min_version=lambda *_, **_options: True)
    image = ImageMeta(properties=ImageMetaProps(**properties))
    guest = SimpleNamespace(os_mach_type=machine)
    try:
        nova._get_iommu_model(guest, image, SimpleNamespace(extra_specs={}))
    except _REFUSED_BY_NOVA:
        return False
    return True


@pytest.mark.parametrize("model", nova_fields.VIOMMUModel.ALL)
@pytest.mark.parametrize("architecture", _PLATFORMS)
def test_viommu_models_match_nova_except_on_the_wrong_architecture(
    architecture: str, model: str
) -> None:
    """But for the models of one architecture on the other, which Nova hands to
    libvirt (intended difference 2).
    """
    facts = _on(architecture, _GUESTS[architecture])
    for machine in _PLATFORMS[architecture]:
        nova = _nova_accepts(
            machine, hw_architecture=architecture, hw_viommu_model=model
        )
        spec = spec_of({"hw_viommu_model": model, "hw_machine_type": machine})
        expected = nova and (model, architecture) not in _WRONG_ARCHITECTURE
        assert (not unsupported(spec, facts)) == expected, machine


_MAXPHYSADDR = Needs(libvirt=driver.MIN_LIBVIRT_MAXPHYSADDR)
# Nova's minimum versions of QEMU for these are not here: QEMU lists them.
_NOVAS_VERSIONS = {
    ("vif_model", "igb"): Needs(driver.MIN_IGB_LIBVIRT_VERSION),
    ("sound_model", "virtio"): Needs(driver.MIN_VIRTIO_SOUND_LIBVIRT_VERSION),
    ("viommu_model", "virtio"): Needs(driver.MIN_LIBVIRT_VIOMMU_VIRTIO_MODEL),
    ("firmware_stateless", "true"): Needs(
        driver.MIN_LIBVIRT_STATELESS_FIRMWARE
    ),
    ("maxphysaddr_mode", "emulate"): _MAXPHYSADDR,
    ("maxphysaddr_mode", "passthrough"): _MAXPHYSADDR,
    ("mem_encryption_model", "amd-sev-es"): Needs(
        qemu=nova_host.MIN_QEMU_SEV_ES_VERSION
    ),
}


@pytest.mark.parametrize("value", _NOVAS_VERSIONS, ids=" ".join)
def test_minimum_versions_match_those_of_nova(value: tuple[str, str]) -> None:
    """Nova knows nothing of the rest, which is about pcspk."""
    assert VERSIONS[value] == _NOVAS_VERSIONS[value]


def test_architecture_unknown_to_nova_reports_no_architecture_trait() -> None:
    traits = capability_traits(_on("riscv64", RISCV))
    for trait, has in traits.items():
        assert not (has and trait.startswith("HW_ARCH_"))
    assert traits["CUSTOM_COMPUTE_DEFAULT_MACHINE_OTHER"]


_DESK = replace(
    KVM,
    guests={
        "x86_64": replace(X86, devices=None),
        "i686": replace(X86, devices=None),
    },
)
_NOT_KNOWN = "QEMU's devices are not known: no list of them is given"


def test_device_is_not_known_without_the_list_of_qemu() -> None:
    """What is certain in any case stays a no; what needs no device stays as
    it is.
    """
    unknown = unknown_traits(_DESK)
    assert unknown[Trait("COMPUTE_NET_VIF_MODEL_VIRTIO")] == _NOT_KNOWN
    assert unknown[Trait("CUSTOM_COMPUTE_WATCHDOG")] == _NOT_KNOWN
    assert unknown[Trait("COMPUTE_VIOMMU_MODEL_AUTO")] == _NOT_KNOWN
    assert (
        unknown[Trait("CUSTOM_I686_COMPUTE_VIOMMU_MODEL_INTEL")] == _NOT_KNOWN
    )
    assert "CUSTOM_COMPUTE_SCSI_MODEL_BUSLOGIC" not in unknown
    assert "CUSTOM_COMPUTE_SCSI_MODEL_IBMVSCSI" not in unknown
    assert "COMPUTE_VIOMMU_MODEL_SMMUV3" not in unknown
    assert "COMPUTE_STORAGE_BUS_VIRTIO" not in unknown
    traits = capability_traits(_DESK)
    assert traits.keys() == capability_traits(KVM).keys()
    assert not any(traits[trait] for trait in unknown)
    assert refusals(_DESK).keys() == traits.keys()


@pytest.mark.parametrize(
    ("fields", "unknown"),
    [
        ({"tpm_versions": None}, {"1_2", "2_0"}),
        ({"tpm_versions": frozenset(("2.0",))}, set()),
        ({"tpm_versions": None, "tpm_models": frozenset()}, set()),
    ],
    ids=["not listed", "listed", "no TPM"],
)
def test_tpm_versions_are_not_known_where_libvirt_lists_none(
    fields: dict[str, Any], unknown: set[str]
) -> None:
    facts = replace(_with(**fields), swtpm_enabled=True)
    expected = {f"COMPUTE_SECURITY_TPM_{version}" for version in unknown}
    assert set(unknown_traits(facts)) == expected
    assert unknown_traits(replace(facts, swtpm_enabled=False)) == {}


@pytest.mark.parametrize("facts", [KVM, LXC, PARALLELS])
def test_nothing_is_unknown_with_the_list_and_without_qemu(
    facts: LibvirtFacts,
) -> None:
    assert unknown_traits(facts) == {}


@pytest.mark.parametrize("rule", ["required", "forbidden"])
def test_late_check_accepts_what_is_not_known(rule: str) -> None:
    spec = spec_of(
        {"hw_scsi_model": "lsilogic", "hw_vif_model": "pcnet"},
        {"trait:COMPUTE_NET_VIF_MODEL_E1000": rule},
    )
    assert unsupported(spec, _DESK) == []


def test_red_hats_qemu_lacks_eleven_values_that_debians_has() -> None:
    """Measured by its list of devices; libvirt and QEMU are as new."""
    lean = _on("x86_64", _without(RED_HATS_NOT))
    lost = {
        trait
        for trait, has in capability_traits(KVM).items()
        if has and not capability_traits(lean)[trait]
    }
    assert lost == {
        "COMPUTE_NET_VIF_MODEL_NE2K_PCI",
        "COMPUTE_NET_VIF_MODEL_PCNET",
        "COMPUTE_NET_VIF_MODEL_VMXNET3",
        "COMPUTE_SOUND_MODEL_AC97",
        "COMPUTE_SOUND_MODEL_ES1370",
        "COMPUTE_SOUND_MODEL_SB16",
        "COMPUTE_SOUND_MODEL_USB",
        "CUSTOM_COMPUTE_SCSI_MODEL_LSILOGIC",
        "CUSTOM_COMPUTE_SCSI_MODEL_LSISAS1068",
        "CUSTOM_COMPUTE_SCSI_MODEL_LSISAS1078",
        "CUSTOM_COMPUTE_SCSI_MODEL_VMPVSCSI",
    }
