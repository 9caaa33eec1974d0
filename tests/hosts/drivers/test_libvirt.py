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

"""libvirt: versions, HPET, machine types and architectures; and Nova's own late checks over all their values."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
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
from os_prefilter.hosts.capabilities import capability_traits, refusals
from os_prefilter.hosts.driver_check import guest_settings, unsupported
from os_prefilter.hosts.drivers.libvirt import VERSIONS, Needs, refusal
from os_prefilter.hosts.drivers.libvirt_domain_xml import domain_elements
from os_prefilter.hosts.drivers.libvirt_facts import LibvirtFacts, Version
from os_prefilter.vocabulary import HPET, TRAITS_OF_EMULATION
from tests.conftest import spec_of
from tests.support.hosts import ARM, EVERY_ARCHITECTURE, KVM, LXC, NOTHING, POWER, RISCV, S390, X86
from tests.support.nova_objects import nova_spec

QEMU = replace(KVM, virt_type="qemu")
PARALLELS = replace(LXC, virt_type="parallels")


@pytest.mark.parametrize(
    ("libvirt", "qemu", "reason"),
    [
        ((9, 3, 0), (8, 0, 0), ""),
        ((9, 3, 0), (7, 2, 22), "needs QEMU 8.0.0, found 7.2.22"),
        ((9, 2, 99), (8, 0, 0), "needs libvirt 9.3.0, found 9.2.99"),
        ((9, 0, 0), (7, 2, 0), "needs libvirt 9.3.0, found 9.0.0; needs QEMU 8.0.0, found 7.2.0"),
    ],
)
def test_trait_needs_its_minimum_libvirt_and_qemu_versions(libvirt: Version, qemu: Version, reason: str) -> None:
    """Of igb; the versions of each value are compared with Nova's below."""
    facts = replace(KVM, libvirt_version=libvirt, hypervisor_version=qemu)
    assert refusals(facts)[Trait("COMPUTE_NET_VIF_MODEL_IGB")] == reason


@pytest.mark.parametrize(
    ("facts", "has"),
    [
        (QEMU, True),
        (LXC, False),
        (PARALLELS, False),
        (replace(KVM, architecture="aarch64", guests={"aarch64": ARM}), False),
        # An x86 guest is possible there, but not required by the timer alone.
        (replace(KVM, architecture="aarch64", guests={"aarch64": ARM, "x86_64": X86}), False),
        (replace(KVM, guests={"x86_64": replace(X86, machines=frozenset(("isapc", "microvm")))}), False),
        (replace(KVM, guests={"x86_64": replace(X86, machines=frozenset(("pc-q35-7.2",)))}), True),
    ],
)
def test_hpet_trait_needs_an_x86_host_and_a_machine_type_with_hpet(facts: LibvirtFacts, has: bool) -> None:
    assert capability_traits(facts)[HPET] is has


@pytest.mark.parametrize(
    ("properties", "refused"),
    [
        ({"hw_time_hpet": "true", "hw_architecture": "aarch64"}, "the host is x86_64"),
        ({"hw_time_hpet": "true", "hw_emulation_architecture": "aarch64"}, "only x86 has one"),
        ({"hw_viommu_model": "smmuv3"}, "it is for guests of aarch64 and armv7l, not of x86_64"),
        ({"hw_machine_type": "virt"}, "no machine type virt for x86_64"),
        # The exact version: what no trait says, and the driver must refuse.
        ({"hw_machine_type": "pc-i440fx-7.2"}, None),
        ({"hw_machine_type": "pc-i440fx-99.0"}, "no machine type pc-i440fx-99.0"),
        ({"hw_machine_type": "my-board"}, "unknown value"),
        ({"hw_emulation_architecture": "sparc"}, "no QEMU for sparc"),
        ({"img_hv_type": "xen"}, "possible on kvm hosts: kvm, qemu"),
        ({"hw_tpm_version": "2.0"}, "swtpm_enabled is off"),
        ({"hw_scsi_model": "buslogic"}, "QEMU has no such controller"),
        ({"hw_scsi_model": "ibmvscsi", "hw_disk_bus": "scsi"}, "it is for guests of ppc64 and ppc64le"),
        ({"hw_scsi_model": "nosuch"}, "unknown value"),
        ({"hw_redirected_usb_ports": "0", "hw_machine_type": "isapc"}, None),
        ({"hw_redirected_usb_ports": "16"}, "unknown value"),
        ({"hw_watchdog_action": "disabled", "hw_machine_type": "isapc"}, None),
        # Devices that the guest does not get.
        ({"hw_floppy_bus": "fdc", "hw_machine_type": "microvm"}, None),
        ({"hw_rescue_bus": "ide", "hw_machine_type": "q35"}, None),
        ({"hw_cdrom_bus": "ide", "hw_machine_type": "q35"}, None),
    ],
)
def test_late_check_on_a_kvm_host_accepts_or_refuses_each_property(
    properties: dict[str, object], refused: str | None
) -> None:
    """In a cloud that offers to emulate every architecture; tests/guests has what really starts."""
    guests = {"x86_64": X86, "aarch64": ARM, "s390x": S390}
    facts = replace(KVM, guests=guests, emulated_architectures=EVERY_ARCHITECTURE)
    found = unsupported(spec_of(properties), facts)
    if refused is None:
        assert found == []
    else:
        assert any(refused in item.reason for item in found), found
        assert all(item.property.startswith("image property ") for item in found)


@pytest.mark.parametrize(
    ("architecture", "offered", "refused"),
    [
        ("x86_64", "", False),
        ("i686", "", False),
        ("s390x", "aarch64", True),
        ("s390x", "s390x", False),
        # No driver of Nova reports a trait of it: the host's QEMU is the only guide.
        ("sparc", "", False),
        ("sparc", "sparc", False),
    ],
)
def test_late_check_refuses_to_emulate_an_architecture_that_the_cloud_does_not_offer(
    architecture: str, offered: str, refused: bool
) -> None:
    guests = {"x86_64": X86, "aarch64": ARM, "s390x": S390, "sparc": NOTHING}
    facts = replace(KVM, guests=guests, emulated_architectures=frozenset(offered.split()))
    found = [str(item) for item in unsupported(spec_of({"hw_emulation_architecture": architecture}), facts)]
    reason = f"{architecture} is not in [prefilter] emulated_architectures"
    assert found == [f"image property hw_emulation_architecture={architecture}: {reason}"] * refused


@pytest.mark.parametrize(
    ("offered", "withheld"),
    [
        ("", "i686 s390x sparc x86_64"),
        ("s390x", "i686 sparc x86_64"),
        ("x86_64", "i686 s390x sparc"),
        # Its guests have the platform of x86_64.
        ("i686", "s390x sparc"),
        ("i686 s390x sparc", ""),
    ],
)
def test_host_reports_traits_about_emulation_only_of_architectures_that_the_cloud_offers(
    offered: str, withheld: str
) -> None:
    """But for Nova's trait of the host's own architecture, and guests of i686, which run on each x86_64 host."""
    facts = replace(KVM, guests={"x86_64": X86, "i686": X86, "s390x": S390, "sparc": NOTHING})
    able = {
        trait
        for trait, reason in refusals(replace(facts, emulated_architectures=EVERY_ARCHITECTURE)).items()
        if not reason
    }
    found = refusals(replace(facts, emulated_architectures=frozenset(offered.split())))
    about = {**TRAITS_OF_EMULATION, Trait("COMPUTE_ARCH_S390X"): "s390x"}
    assert {trait: found[trait] for trait in able if found[trait]} == {
        trait: f"{about[trait]} is not in [prefilter] emulated_architectures"
        for trait in able
        if about.get(trait, "") in withheld.split()
    }
    assert {about[trait] for trait in able if found[trait]} == set(withheld.split())
    assert not found[Trait("CUSTOM_I686_COMPUTE_DEFAULT_MACHINE_PC")]
    # The reason of a host without the QEMU comes first.
    assert refusals(KVM)[Trait("COMPUTE_ARCH_S390X")] == "the host has no QEMU for s390x guests"


@pytest.mark.parametrize(("release", "starts"), [(32, True), (33, False)])
def test_uefi_on_libvirt_9_0_goes_by_the_release_of_nova(release: int, starts: bool) -> None:
    host = replace(KVM, libvirt_version=(9, 0, 0), built_by_nova=True, nova_release=release)
    assert capability_traits(host)["COMPUTE_FIRMWARE_UEFI"] is starts
    assert capability_traits(replace(host, libvirt_version=(9, 1, 0)))["COMPUTE_FIRMWARE_UEFI"]


def test_guest_that_nova_builds_is_not_refused_on_a_newer_libvirt_than_was_tried() -> None:
    asked = spec_of({"hw_machine_type": "q35", "hw_viommu_model": "virtio"})
    host = replace(KVM, built_by_nova=True, nova_release=34)
    assert unsupported(asked, replace(host, libvirt_version=(11, 3, 99)))
    assert unsupported(asked, replace(host, libvirt_version=(11, 4, 0))) == []
    # On other hosts no guest of another architecture was tried.
    arm = replace(host, architecture="aarch64", guests={"aarch64": ARM, "s390x": S390})
    arm = replace(arm, emulated_architectures=EVERY_ARCHITECTURE)
    mainframe = {"hw_emulation_architecture": "s390x", "hw_machine_type": "s390-ccw-virtio"}
    assert unsupported(spec_of(dict(mainframe)), arm) == []
    smmu = spec_of({"hw_machine_type": "virt", "hw_viommu_model": "smmuv3"})
    assert unsupported(smmu, arm)
    assert unsupported(smmu, replace(arm, libvirt_version=(11, 4, 0))) == []


@pytest.mark.parametrize(
    ("facts", "has"),
    [
        (KVM, True),
        (replace(KVM, smm=True), True),
        (replace(KVM, smm=False), False),
        # QEMU itself emulates it.
        (replace(QEMU, smm=False), True),
        (replace(KVM, smm=True, guests={"x86_64": replace(X86, secure_boot=False)}), False),
    ],
)
def test_secure_boot_trait_needs_a_kvm_with_system_management_mode(facts: LibvirtFacts, has: bool) -> None:
    assert capability_traits(facts)["COMPUTE_SECURITY_UEFI_SECURE_BOOT"] is has
    wanted = {"hw_machine_type": "q35", "hw_firmware_type": "uefi"}
    assert (unsupported(spec_of({**wanted, "os_secure_boot": "required"}), facts) == []) is has
    assert unsupported(spec_of({**wanted, "os_secure_boot": "disabled"}), facts) == []


def test_threads_and_image_types_go_by_the_processor_and_the_options_of_nova() -> None:
    cases: list[tuple[LibvirtFacts, str, str, str]] = [
        (replace(KVM, smt=True), "cpu_thread_policy", "isolate", "the cores run several threads"),
        (replace(KVM, smt=True), "cpu_thread_policy", "require", ""),
        (replace(KVM, smt=False), "cpu_thread_policy", "isolate", ""),
        (KVM, "image_type", "ploop", "Nova's libvirt driver runs no ploop images"),
        (PARALLELS, "image_type", "ploop", ""),
        (PARALLELS, "image_type", "vhd", "Nova's libvirt driver runs no vhd images"),
    ]
    raw = replace(KVM, force_raw_images=False)
    cases += [(KVM, "image_type", value, "") for value in ("aki", "ami", "ari", "iso", "raw")]
    on = "images_type is rbd and force_raw_images is off"
    cases += [(raw, "image_type", "qcow2", ""), (replace(raw, images_type="rbd"), "image_type", "qcow2", on)]
    for facts, row, value, reason in cases:
        assert refusal(facts, row, value, "x86_64") == reason


@pytest.mark.parametrize(
    ("models", "options", "able"),
    [
        ({"amd-sev", "amd-sev-es"}, {}, {"amd-sev", "amd-sev-es"}),
        ({"amd-sev", "amd-sev-es"}, {"virt_type": "qemu"}, set()),
        ({"amd-sev", "amd-sev-es", "amd-sev-snp"}, {}, {"amd-sev", "amd-sev-snp"}),
        ({"amd-sev", "amd-sev-es"}, {"hypervisor_version": (7, 2, 0)}, {"amd-sev"}),
        ({"intel-tdx"}, {}, set()),
        ({"intel-tdx"}, {"cpu_mode": "host-model"}, set()),
        ({"intel-tdx"}, {"cpu_mode": "host-passthrough"}, {"intel-tdx"}),
    ],
)
def test_memory_encryption_models_are_those_that_nova_would_offer(
    models: set[str], options: dict[str, Any], able: set[str]
) -> None:
    facts = replace(KVM, guests={"x86_64": replace(X86, mem_encryption=frozenset(models))}, **options)
    values = nova_fields.MemEncryptionModel.ALL
    assert {model for model in values if not refusal(facts, "mem_encryption_model", model, "")} == able


# -- against Nova ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("facts", [KVM, QEMU, LXC, PARALLELS], ids=lambda facts: facts.virt_type)
def test_vif_models_and_buses_are_those_of_novas_late_check(facts: LibvirtFacts) -> None:
    """Buses on x86, where QEMU has them all; elsewhere Nova accepts what libvirt then refuses."""
    for model in network_model.VIF_MODEL_ALL:
        is_valid = vif.is_vif_model_valid_for_virt(facts.virt_type, model)
        assert is_valid != bool(refusal(facts, "vif_model", model, "")), model
    for bus in nova_fields.DiskBus.ALL:
        assert blockinfo.is_disk_bus_valid_for_virt(facts.virt_type, bus) != bool(refusal(facts, "disk_bus", bus, ""))


@pytest.mark.parametrize("bus", ["scsi", "virtio", None])
def test_scsi_controller_is_the_one_that_nova_adds_whatever_disks_the_guest_has(bus: str | None) -> None:
    facts = replace(KVM, architecture="ppc64le", guests={"ppc64le": POWER})
    for model in nova_fields.SCSIModel.ALL:
        spec = nova_spec({"hw_scsi_model": model, **({"hw_disk_bus": bus} if bus else {})})
        theirs = driver.LibvirtDriver._get_scsi_controller(spec.image).to_xml(pretty_print=False)
        if model == "buslogic":
            assert "QEMU has no such controller" in str(unsupported(spec, facts))
        else:
            (ours,) = domain_elements(guest_settings(spec, facts))
            assert fromstring(ours).attrib == fromstring(theirs).attrib
    # Without a model it is the one that libvirt prefers.
    spec = nova_spec({"hw_disk_bus": "scsi"})
    assert driver.LibvirtDriver._get_scsi_controller(spec.image) is None
    assert not any("controller" in element for element in domain_elements(guest_settings(spec, KVM)))


@pytest.mark.parametrize(
    ("facts", "models"),
    [
        (KVM, {"lsilogic", "lsisas1068", "lsisas1078", "virtio-scsi", "vmpvscsi"}),
        (replace(KVM, guests={"x86_64": X86, "ppc64": POWER}), set(nova_fields.SCSIModel.ALL) - {"buslogic"}),
        (LXC, set()),
        (PARALLELS, {"virtio-scsi"}),
    ],
)
def test_scsi_models_are_those_of_the_virt_type_and_the_architectures(facts: LibvirtFacts, models: set[str]) -> None:
    assert {each for each in nova_fields.SCSIModel.ALL if not refusal(facts, "scsi_model", each, "")} == models


_PLATFORMS: Mapping[str, tuple[str, ...]] = {
    "x86_64": ("pc", "q35", "pc-i440fx-7.2", "pc-q35-7.2", "isapc", "microvm"),
    "aarch64": ("virt", "virt-7.2"),
    "ppc64le": ("pseries",),
    "s390x": ("s390-ccw-virtio",),
}


@pytest.mark.parametrize("architecture", _PLATFORMS)
def test_viommu_models_match_nova_except_on_the_wrong_architecture(architecture: str) -> None:
    """But for the models of one architecture on the other, which Nova hands to libvirt (intended difference 2)."""
    guests = {"x86_64": X86, "aarch64": ARM, "ppc64le": POWER, "s390x": S390}
    facts = replace(KVM, architecture=architecture, guests={architecture: guests[architecture]})
    drv = driver.LibvirtDriver.__new__(driver.LibvirtDriver)
    drv._host = SimpleNamespace(has_min_version=lambda *_args, **_options: True)
    flavor = SimpleNamespace(extra_specs={})
    for machine, model in product(_PLATFORMS[architecture], nova_fields.VIOMMUModel.ALL):
        image = ImageMeta(properties=ImageMetaProps(hw_architecture=architecture, hw_viommu_model=model))
        try:
            drv._get_iommu_model(SimpleNamespace(os_mach_type=machine), image, flavor)
            nova = True
        except (nova_exception.InvalidVIOMMUMachineType, nova_exception.InvalidVIOMMUArchitecture):
            nova = False
        ours = not unsupported(spec_of({"hw_viommu_model": model, "hw_machine_type": machine}), facts)
        wrong_architecture = (model, architecture) in {("intel", "aarch64"), ("smmuv3", "x86_64")}
        assert ours == (nova and not wrong_architecture), (machine, model)


def test_minimum_versions_match_those_of_nova() -> None:
    """Nova knows nothing of the rest, which is about pcspk and s390x."""
    nova = {
        ("vif_model", "igb"): Needs(libvirt=driver.MIN_IGB_LIBVIRT_VERSION, qemu=driver.MIN_IGB_QEMU_VERSION),
        ("sound_model", "virtio"): Needs(
            libvirt=driver.MIN_VIRTIO_SOUND_LIBVIRT_VERSION, qemu=driver.MIN_VIRTIO_SOUND_QEMU_VERSION
        ),
        ("viommu_model", "virtio"): Needs(libvirt=driver.MIN_LIBVIRT_VIOMMU_VIRTIO_MODEL),
        ("firmware_stateless", "true"): Needs(libvirt=driver.MIN_LIBVIRT_STATELESS_FIRMWARE),
        ("maxphysaddr_mode", "emulate"): Needs(libvirt=driver.MIN_LIBVIRT_MAXPHYSADDR),
        ("maxphysaddr_mode", "passthrough"): Needs(libvirt=driver.MIN_LIBVIRT_MAXPHYSADDR),
        ("mem_encryption_model", "amd-sev-es"): Needs(qemu=nova_host.MIN_QEMU_SEV_ES_VERSION),
    }
    assert nova.items() <= VERSIONS.items()


def test_architecture_unknown_to_nova_reports_no_architecture_trait() -> None:
    facts = replace(KVM, architecture="riscv64", guests={"riscv64": RISCV})
    traits = capability_traits(facts)
    assert not any(has for trait, has in traits.items() if trait.startswith("HW_ARCH_"))
    assert traits["CUSTOM_COMPUTE_DEFAULT_MACHINE_OTHER"]


@pytest.mark.parametrize(("listed", "has"), [(True, True), (None, True), (False, False)])
def test_usb_redirection_is_a_no_only_where_libvirt_says_so(listed: bool | None, has: bool) -> None:
    """An old libvirt lists no such devices, and may have them."""
    facts = replace(KVM, guests={"x86_64": replace(X86, usb_redirection=listed)})
    assert capability_traits(facts)["CUSTOM_COMPUTE_USB_REDIRECTION"] is has
    refused = unsupported(spec_of(extra_specs={"hw:redirected_usb_ports": "2"}), facts)
    reason = "hw:redirected_usb_ports=2: libvirt lists no redirected USB devices, or no SPICE graphics"
    assert [str(item) for item in refused] == [f"flavor extra spec {reason}"] * (not has)


@pytest.mark.parametrize(
    ("libvirt", "nova", "spice", "has"),
    [
        ((9, 0, 0), 34, False, False),
        ((12, 0, 0), 34, False, False),
        ((9, 0, 0), 34, True, True),
        # An own driver gives such a guest SPICE; a newer Nova and an older libvirt were not tried.
        ((9, 0, 0), None, False, True),
        ((9, 0, 0), 35, False, True),
        ((8, 9, 0), 34, False, True),
    ],
)
def test_redirected_usb_ports_need_a_host_on_which_nova_gives_guests_spice(
    libvirt: tuple[int, int, int], nova: int | None, *, spice: bool, has: bool
) -> None:
    """Nova adds the ports whatever the console is."""
    facts = replace(
        KVM, libvirt_version=libvirt, built_by_nova=nova is not None, nova_release=nova, spice_enabled=spice
    )
    assert capability_traits(facts)["CUSTOM_COMPUTE_USB_REDIRECTION"] is has
    reasons = [item.reason for item in unsupported(spec_of({"hw_redirected_usb_ports": "1"}), facts)]
    reason = "as Nova 34 builds the guest: it gets no SPICE graphics ([spice] enabled is off), without which"
    assert [each.startswith(reason) for each in reasons] == [True] * (not has)


@pytest.mark.parametrize(
    ("qemu", "nova", "has"), [((7, 2, 0), None, False), ((9, 1, 0), None, True), ((9, 1, 0), 34, False)]
)
def test_usb_input_on_s390x_needs_a_newer_qemu_and_a_driver_that_adds_a_controller(
    qemu: tuple[int, int, int], nova: int | None, has: bool
) -> None:
    facts = LibvirtFacts(
        architecture="s390x",
        virt_type="kvm",
        libvirt_version=(10, 4, 0),
        hypervisor_version=qemu,
        guests={"s390x": S390},
        built_by_nova=nova is not None,
        nova_release=nova,
    )
    traits = capability_traits(facts)
    assert traits["CUSTOM_COMPUTE_INPUT_BUS_USB"] is has
    assert traits["CUSTOM_COMPUTE_INPUT_BUS_VIRTIO"]
    assert not traits["CUSTOM_COMPUTE_WATCHDOG"]
    for name, value in (("hw_input_bus", "usb"), ("hw_pointer_model", "usbtablet")):
        assert (unsupported(spec_of({name: value}), facts) == []) is has
