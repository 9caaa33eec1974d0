# SPDX-License-Identifier: Apache-2.0

"""libvirt: versions, HPET, machine types and architectures; and Nova's own
late checks over all their values.
"""

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
from os_prefilter.vocabulary import BY_NAME, TRAITS_OF_EMULATION
from tests.conftest import spec_of
from tests.support.hosts import (
    ARM,
    EVERY_ARCHITECTURE,
    KVM,
    LXC,
    NOTHING,
    POWER,
    RISCV,
    S390,
    X86,
)
from tests.support.nova_objects import nova_spec

QEMU = replace(KVM, virt_type="qemu")
PARALLELS = replace(LXC, virt_type="parallels")


@pytest.mark.parametrize(
    ("properties", "refused"),
    [
        (
            {"hw_time_hpet": "true", "hw_architecture": "aarch64"},
            "the host is x86_64",
        ),
        (
            {"hw_time_hpet": "true", "hw_emulation_architecture": "aarch64"},
            "only x86 has one",
        ),
        (
            {"hw_viommu_model": "smmuv3"},
            "it is for guests of aarch64 and armv7l, not of x86_64",
        ),
        ({"hw_machine_type": "virt"}, "no machine type virt for x86_64"),
        # The exact version: what no trait says, and the driver must refuse.
        ({"hw_machine_type": "pc-i440fx-7.2"}, None),
        (
            {"hw_machine_type": "pc-i440fx-99.0"},
            "hw_machine_type=pc-i440fx-99.0: QEMU has no machine type pc-i440",
        ),
        (
            {"hw_emulation_architecture": "i686", "hw_firmware_type": "uefi"},
            "no UEFI firmware for i686 guests",
        ),
        ({"hw_machine_type": "my-board"}, "unknown value"),
        ({"hw_emulation_architecture": "sparc"}, "no QEMU for sparc"),
        ({"img_hv_type": "xen"}, "possible on kvm hosts: kvm, qemu"),
        ({"hw_tpm_version": "2.0"}, "swtpm_enabled is off"),
        ({"hw_scsi_model": "buslogic"}, "QEMU has no such controller"),
        (
            {"hw_scsi_model": "ibmvscsi", "hw_disk_bus": "scsi"},
            "it is for guests of ppc64 and ppc64le",
        ),
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
    """In a cloud that offers to emulate every architecture; tests/guests has
    what really starts.
    """
    guests = {
        "x86_64": X86,
        "aarch64": ARM,
        "s390x": S390,
        "i686": replace(X86, uefi=False),
    }
    facts = replace(
        KVM, guests=guests, emulated_architectures=EVERY_ARCHITECTURE
    )
    found = unsupported(spec_of(properties), facts)
    if refused is None:
        assert found == []
    else:
        assert any(refused in str(item) for item in found), found
        assert all(
            item.property.startswith("image property ") for item in found
        )


@pytest.mark.parametrize(
    ("architecture", "offered", "refused"),
    [
        ("x86_64", "", False),
        ("i686", "", False),
        ("s390x", "aarch64", True),
        ("s390x", "s390x", False),
        # No driver of Nova reports a trait of it: the host's QEMU is the only
        # guide.
        ("sparc", "", False),
        ("sparc", "sparc", False),
    ],
)
def test_late_check_refuses_to_emulate_an_architecture_that_the_cloud_does_not_offer(
    architecture: str, offered: str, refused: bool
) -> None:
    guests = {"x86_64": X86, "aarch64": ARM, "s390x": S390, "sparc": NOTHING}
    facts = replace(
        KVM, guests=guests, emulated_architectures=frozenset(offered.split())
    )
    found = [
        str(item)
        for item in unsupported(
            spec_of({"hw_emulation_architecture": architecture}), facts
        )
    ]
    reason = f"{architecture} is not in [prefilter] emulated_architectures"
    assert (
        found
        == [
            f"image property hw_emulation_architecture={architecture}:"
            f" {reason}"
        ]
        * refused
    )


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
    """But for Nova's trait of the host's own architecture, and guests of i686,
    which run on each x86_64 host.
    """
    facts = replace(
        KVM,
        guests={"x86_64": X86, "i686": X86, "s390x": S390, "sparc": NOTHING},
    )
    able = {
        trait
        for trait, reason in refusals(
            replace(facts, emulated_architectures=EVERY_ARCHITECTURE)
        ).items()
        if not reason
    }
    found = refusals(
        replace(facts, emulated_architectures=frozenset(offered.split()))
    )
    about = {**TRAITS_OF_EMULATION, Trait("COMPUTE_ARCH_S390X"): "s390x"}
    assert {trait: found[trait] for trait in able if found[trait]} == {
        trait: f"{about[trait]} is not in [prefilter] emulated_architectures"
        for trait in able
        if about.get(trait, "") in withheld.split()
    }
    assert {about[trait] for trait in able if found[trait]} == set(
        withheld.split()
    )
    assert not found[Trait("CUSTOM_I686_COMPUTE_DEFAULT_MACHINE_PC")]
    # The reason of a host without the QEMU comes first.
    assert (
        refusals(KVM)[Trait("COMPUTE_ARCH_S390X")]
        == "the host has no QEMU for s390x guests"
    )


@pytest.mark.parametrize(
    ("facts", "has"),
    [
        (KVM, True),
        (replace(KVM, smm=True), True),
        (replace(KVM, smm=False), False),
        # QEMU itself emulates it.
        (replace(QEMU, smm=False), True),
        (
            replace(
                KVM,
                smm=True,
                guests={"x86_64": replace(X86, secure_boot=False)},
            ),
            False,
        ),
    ],
)
def test_secure_boot_trait_needs_a_kvm_with_system_management_mode(
    facts: LibvirtFacts, has: bool
) -> None:
    assert capability_traits(facts)["COMPUTE_SECURITY_UEFI_SECURE_BOOT"] is has
    wanted = {"hw_machine_type": "q35", "hw_firmware_type": "uefi"}
    assert (
        unsupported(spec_of({**wanted, "os_secure_boot": "required"}), facts)
        == []
    ) is has
    assert (
        unsupported(spec_of({**wanted, "os_secure_boot": "disabled"}), facts)
        == []
    )


_ARM_HOST = replace(
    KVM, architecture="aarch64", guests={"aarch64": ARM}, swtpm_enabled=True
)
_S390_HOST = replace(
    KVM, architecture="s390x", guests={"s390x": S390}, swtpm_enabled=True
)
_ARM_AND_S390 = replace(
    _ARM_HOST,
    guests={"aarch64": ARM, "s390x": S390},
    emulated_architectures=EVERY_ARCHITECTURE,
)
_X86_AND_S390 = replace(
    KVM,
    guests={"x86_64": X86, "s390x": S390},
    emulated_architectures=EVERY_ARCHITECTURE,
)
_OLD_S390_HOST = replace(_S390_HOST, hypervisor_version=(7, 2, 0))
_NOVAS = replace(KVM, built_by_nova=True)
_OLD = replace(KVM, libvirt_version=(9, 0, 0), hypervisor_version=(7, 2, 0))
_I686_HOST = replace(
    _NOVAS, guests={"x86_64": X86, "i686": replace(X86, default_machine="q35")}
)
_RAW = replace(KVM, force_raw_images=False)
_NO_PC = "it needs machine type pc or q35, and QEMU has neither"
_NOT_LISTED = "libvirt lists no redirected USB devices, or no SPICE graphics"
_NO_HPET = "guests of aarch64 have no HPET; only x86 has one"
_IO_APIC = "it gets an I/O APIC, which is x86's"
_TABLET = "it gets a USB tablet, and no USB controller"
_ONE_THREAD = (
    "each core runs one thread (no SMT, or libvirt's capabilities list no"
    " topology)"
)
_NO_SPICE = (
    "it gets no SPICE graphics ([spice] enabled is off), without which libvirt"
    " refuses redirected USB ports"
)
_SECURE_NO = (
    "it gets the attribute secure='no', which libvirt 9.0 refuses for firmware"
    " that it chooses itself"
)
_ATTRIBUTES = "it gets attributes that libvirt refuses for a vIOMMU of virtio"


def _at(libvirt: Version, qemu: Version) -> LibvirtFacts:
    return replace(KVM, libvirt_version=libvirt, hypervisor_version=qemu)


def _by_nova(
    release: int, libvirt: Version, host: LibvirtFacts = KVM
) -> LibvirtFacts:
    return replace(
        host, libvirt_version=libvirt, built_by_nova=True, nova_release=release
    )


def _with(**guests: Any) -> LibvirtFacts:
    return replace(KVM, guests={"x86_64": replace(X86, **guests)})


@pytest.mark.parametrize(
    ("facts", "asked", "reason"),
    [
        (_at((9, 3, 0), (8, 0, 0)), "vif_model igb", ""),
        (
            _at((9, 3, 0), (7, 2, 22)),
            "vif_model igb",
            "needs QEMU 8.0.0, found 7.2.22",
        ),
        (
            _at((9, 2, 99), (8, 0, 0)),
            "vif_model igb",
            "needs libvirt 9.3.0, found 9.2.99",
        ),
        (
            _OLD,
            "vif_model igb",
            "needs libvirt 9.3.0, found 9.0.0; needs QEMU 8.0.0, found 7.2.0",
        ),
        (
            _at((9, 0, 0), (7, 1, 0)),
            "sound_model pcspk",
            "needs libvirt 9.1.0, found 9.0.0",
        ),
        (QEMU, "time_hpet true", ""),
        (LXC, "time_hpet true", "not possible on lxc hosts"),
        (PARALLELS, "time_hpet true", "not possible on parallels hosts"),
        (_ARM_HOST, "time_hpet true", _NO_HPET),
        # An x86 guest is possible there, but not required by the timer alone.
        (
            replace(_ARM_HOST, guests={"aarch64": ARM, "x86_64": X86}),
            "time_hpet true",
            _NO_HPET,
        ),
        (_with(machines={"isapc", "microvm"}), "time_hpet true", _NO_PC),
        (_with(machines={"pc-q35-7.2"}), "time_hpet true", ""),
        (_with(machines={"pc-i440fx-7.2"}), "time_hpet true", ""),
        (
            replace(KVM, smt=True),
            "cpu_thread_policy isolate",
            "the cores run several threads",
        ),
        (replace(KVM, smt=True), "cpu_thread_policy require", ""),
        (KVM, "cpu_thread_policy isolate", ""),
        (KVM, "cpu_thread_policy require", _ONE_THREAD),
        (
            KVM,
            "image_type ploop",
            "Nova's libvirt driver runs no ploop images",
        ),
        (PARALLELS, "image_type ploop", ""),
        (
            PARALLELS,
            "image_type vhd",
            "Nova's libvirt driver runs no vhd images",
        ),
        *(
            (KVM, f"image_type {value}", "")
            for value in ("aki", "ami", "ari", "iso", "raw")
        ),
        (_RAW, "image_type qcow2", ""),
        (
            replace(_RAW, images_type="rbd"),
            "image_type qcow2",
            "images_type is rbd and force_raw_images is off",
        ),
        (
            replace(_RAW, images_type="lvm"),
            "image_type qcow2",
            "images_type is lvm and force_raw_images is off",
        ),
        (LXC, "video_model vga", "possible on lxc hosts: none"),
        # Without a list of all machine types, versions are not compared.
        (_ARM_HOST, "machine_type virt-99.0", ""),
        (_with(machines={"pc-q35-7.2"}), "machine_type q35", ""),
        (_ARM_HOST, "secure_boot required", ""),
        (
            replace(_ARM_HOST, guests={"aarch64": NOTHING}),
            "secure_boot required",
            "libvirt found no UEFI firmware",
        ),
        (
            _by_nova(34, (9, 0, 0), _ARM_HOST),
            "secure_boot required",
            "libvirt found no UEFI firmware with secure boot",
        ),
        (_ARM_HOST, "tpm_version 1.2", ""),
        (
            _S390_HOST,
            "tpm_version 1.2",
            "versions of libvirt's emulated TPM: none",
        ),
        (
            replace(KVM, swtpm_enabled=True),
            "tpm_version 1.2",
            "versions of libvirt's emulated TPM: 2.0",
        ),
        (_ARM_HOST, "tpm_model tpm-crb", "libvirt's TPM models: tpm-tis"),
        (
            replace(_ARM_HOST, architecture="armv7l", guests={"armv7l": ARM}),
            "viommu_model auto",
            "",
        ),
        (
            _NOVAS,
            "viommu_model auto",
            f"as Nova builds the guest: {_ATTRIBUTES}",
        ),
        (
            replace(_NOVAS, virt_type="qemu", hypervisor_version=(7, 3, 0)),
            "viommu_model intel",
            "",
        ),
        (_by_nova(32, (9, 0, 0)), "firmware_type uefi", ""),
        (
            _by_nova(33, (9, 0, 0)),
            "firmware_type uefi",
            f"as Nova 33 builds the guest: {_SECURE_NO}",
        ),
        (_by_nova(33, (9, 1, 0)), "firmware_type uefi", ""),
        # An old libvirt lists no such devices, and may have them.
        (_with(usb_redirection=None), "usb_redirection 2", ""),
        (_with(usb_redirection=False), "usb_redirection 2", _NOT_LISTED),
        (
            _by_nova(34, (9, 0, 0)),
            "usb_redirection 1",
            f"as Nova 34 builds the guest: {_NO_SPICE}",
        ),
        (
            _by_nova(34, (12, 0, 0)),
            "usb_redirection 1",
            f"as Nova 34 builds the guest: {_NO_SPICE}",
        ),
        (
            replace(_by_nova(34, (9, 0, 0)), spice_enabled=True),
            "usb_redirection 1",
            "",
        ),
        # An own driver gives such a guest SPICE; a newer Nova and an older
        # libvirt were not tried.
        (_OLD, "usb_redirection 1", ""),
        (_by_nova(35, (9, 0, 0)), "usb_redirection 1", ""),
        (_by_nova(34, (8, 9, 0)), "usb_redirection 1", ""),
        (_OLD_S390_HOST, "input_bus usb", "needs QEMU 7.3.0, found 7.2.0"),
        (
            _OLD_S390_HOST,
            "pointer_model usbtablet",
            "needs QEMU 7.3.0, found 7.2.0",
        ),
        (_OLD_S390_HOST, "input_bus virtio", ""),
        (_S390_HOST, "input_bus usb", ""),
        (_S390_HOST, "pointer_model usbtablet", ""),
        (
            _S390_HOST,
            "watchdog pause",
            "QEMU has no watchdog of the model i6300esb for s390x",
        ),
        (
            _by_nova(34, (10, 4, 0), _S390_HOST),
            "input_bus usb",
            f"as Nova 34 builds the guest: {_TABLET}",
        ),
        (
            _by_nova(34, (10, 4, 0), _S390_HOST),
            "pointer_model usbtablet",
            f"as Nova 34 builds the guest: {_TABLET}",
        ),
        (_by_nova(34, (10, 4, 0), _S390_HOST), "input_bus virtio", ""),
        (
            _by_nova(34, (11, 3, 99)),
            "viommu_model virtio",
            f"as Nova 34 builds the guest: {_ATTRIBUTES}",
        ),
        (_by_nova(34, (11, 4, 0)), "viommu_model virtio", ""),
        (
            _by_nova(34, (11, 3, 99), _ARM_HOST),
            "viommu_model smmuv3",
            f"as Nova 34 builds the guest: {_IO_APIC}",
        ),
        (_by_nova(34, (11, 4, 0), _ARM_HOST), "viommu_model smmuv3", ""),
        (_I686_HOST, "default_machine q35 i686", ""),
        (_I686_HOST, "viommu_model intel i686", ""),
        # On other hosts no guest of another architecture was tried.
        (
            _by_nova(34, (11, 4, 0), _X86_AND_S390),
            "emulation_architecture s390x",
            "",
        ),
        (
            _by_nova(34, (11, 3, 99), _ARM_AND_S390),
            "emulation_architecture s390x",
            "",
        ),
    ],
)
def test_host_has_the_trait_of_each_value_or_the_reason_why_not(
    facts: LibvirtFacts, asked: str, reason: str
) -> None:
    row, value, architecture = (*asked.split(), facts.architecture)[:3]
    assert refusal(facts, row, value, architecture) == reason
    term = BY_NAME[row].values.get(value)
    if (
        architecture == facts.architecture
        and term
        and term.trait
        and term.required
    ):
        assert refusals(facts)[term.trait] == reason


@pytest.mark.parametrize(
    ("models", "options", "able"),
    [
        ({"amd-sev", "amd-sev-es"}, {}, {"amd-sev", "amd-sev-es"}),
        ({"amd-sev", "amd-sev-es"}, {"virt_type": "qemu"}, set()),
        ({"amd-sev-es", "amd-sev-snp"}, {}, {"amd-sev-snp"}),
        (
            {"amd-sev", "amd-sev-es"},
            {"hypervisor_version": (7, 2, 0)},
            {"amd-sev"},
        ),
        ({"intel-tdx"}, {}, set()),
        ({"intel-tdx"}, {"cpu_mode": "host-model"}, set()),
        ({"intel-tdx"}, {"cpu_mode": "host-passthrough"}, {"intel-tdx"}),
    ],
)
def test_memory_encryption_models_are_those_that_nova_would_offer(
    models: set[str], options: dict[str, Any], able: set[str]
) -> None:
    facts = replace(
        KVM,
        guests={"x86_64": replace(X86, mem_encryption=frozenset(models))},
        **options,
    )
    values = nova_fields.MemEncryptionModel.ALL
    assert {
        model
        for model in values
        if not refusal(facts, "mem_encryption_model", model, "")
    } == able


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
        assert blockinfo.is_disk_bus_valid_for_virt(
            facts.virt_type, bus
        ) != bool(refusal(facts, "disk_bus", bus, ""))


@pytest.mark.parametrize("bus", ["scsi", "virtio", None])
def test_scsi_controller_is_the_one_that_nova_adds_whatever_disks_the_guest_has(
    bus: str | None,
) -> None:
    facts = replace(KVM, architecture="ppc64le", guests={"ppc64le": POWER})
    for model in nova_fields.SCSIModel.ALL:
        spec = nova_spec(
            {"hw_scsi_model": model, **({"hw_disk_bus": bus} if bus else {})}
        )
        theirs = driver.LibvirtDriver._get_scsi_controller(spec.image).to_xml(
            pretty_print=False
        )
        if model == "buslogic":
            assert "QEMU has no such controller" in str(
                unsupported(spec, facts)
            )
        else:
            (ours,) = domain_elements(guest_settings(spec, facts))
            assert fromstring(ours).attrib == fromstring(theirs).attrib
    # Without a model it is the one that libvirt prefers.
    spec = nova_spec({"hw_disk_bus": "scsi"})
    assert driver.LibvirtDriver._get_scsi_controller(spec.image) is None
    assert not any(
        "controller" in element
        for element in domain_elements(guest_settings(spec, KVM))
    )


@pytest.mark.parametrize(
    ("facts", "models"),
    [
        (
            KVM,
            {
                "lsilogic",
                "lsisas1068",
                "lsisas1078",
                "virtio-scsi",
                "vmpvscsi",
            },
        ),
        (
            replace(KVM, guests={"x86_64": X86, "ppc64": POWER}),
            set(nova_fields.SCSIModel.ALL) - {"buslogic"},
        ),
        (LXC, set()),
        (PARALLELS, {"virtio-scsi"}),
    ],
)
def test_scsi_models_are_those_of_the_virt_type_and_the_architectures(
    facts: LibvirtFacts, models: set[str]
) -> None:
    assert {
        each
        for each in nova_fields.SCSIModel.ALL
        if not refusal(facts, "scsi_model", each, "")
    } == models


_PLATFORMS: Mapping[str, tuple[str, ...]] = {
    "x86_64": ("pc", "q35", "pc-i440fx-7.2", "pc-q35-7.2", "isapc", "microvm"),
    "aarch64": ("virt", "virt-7.2"),
    "ppc64le": ("pseries",),
    "s390x": ("s390-ccw-virtio",),
}


@pytest.mark.parametrize("architecture", _PLATFORMS)
def test_viommu_models_match_nova_except_on_the_wrong_architecture(
    architecture: str,
) -> None:
    """But for the models of one architecture on the other, which Nova hands to
    libvirt (intended difference 2).
    """
    guests = {"x86_64": X86, "aarch64": ARM, "ppc64le": POWER, "s390x": S390}
    facts = replace(
        KVM,
        architecture=architecture,
        guests={architecture: guests[architecture]},
    )
    drv = driver.LibvirtDriver.__new__(driver.LibvirtDriver)
    drv._host = SimpleNamespace(
        has_min_version=lambda *_args, **_options: True
    )
    flavor = SimpleNamespace(extra_specs={})
    for machine, model in product(
        _PLATFORMS[architecture], nova_fields.VIOMMUModel.ALL
    ):
        image = ImageMeta(
            properties=ImageMetaProps(
                hw_architecture=architecture, hw_viommu_model=model
            )
        )
        try:
            drv._get_iommu_model(
                SimpleNamespace(os_mach_type=machine), image, flavor
            )
            nova = True
        except (
            nova_exception.InvalidVIOMMUMachineType,
            nova_exception.InvalidVIOMMUArchitecture,
        ):
            nova = False
        ours = not unsupported(
            spec_of({"hw_viommu_model": model, "hw_machine_type": machine}),
            facts,
        )
        wrong_architecture = (model, architecture) in {
            ("intel", "aarch64"),
            ("smmuv3", "x86_64"),
        }
        assert ours == (nova and not wrong_architecture), (machine, model)


def test_minimum_versions_match_those_of_nova() -> None:
    """Nova knows nothing of the rest, which is about pcspk and s390x."""
    nova = {
        ("vif_model", "igb"): Needs(
            libvirt=driver.MIN_IGB_LIBVIRT_VERSION,
            qemu=driver.MIN_IGB_QEMU_VERSION,
        ),
        ("sound_model", "virtio"): Needs(
            libvirt=driver.MIN_VIRTIO_SOUND_LIBVIRT_VERSION,
            qemu=driver.MIN_VIRTIO_SOUND_QEMU_VERSION,
        ),
        ("viommu_model", "virtio"): Needs(
            libvirt=driver.MIN_LIBVIRT_VIOMMU_VIRTIO_MODEL
        ),
        ("firmware_stateless", "true"): Needs(
            libvirt=driver.MIN_LIBVIRT_STATELESS_FIRMWARE
        ),
        ("maxphysaddr_mode", "emulate"): Needs(
            libvirt=driver.MIN_LIBVIRT_MAXPHYSADDR
        ),
        ("maxphysaddr_mode", "passthrough"): Needs(
            libvirt=driver.MIN_LIBVIRT_MAXPHYSADDR
        ),
        ("mem_encryption_model", "amd-sev-es"): Needs(
            qemu=nova_host.MIN_QEMU_SEV_ES_VERSION
        ),
    }
    assert nova.items() <= VERSIONS.items()


def test_architecture_unknown_to_nova_reports_no_architecture_trait() -> None:
    facts = replace(KVM, architecture="riscv64", guests={"riscv64": RISCV})
    traits = capability_traits(facts)
    assert not any(
        has for trait, has in traits.items() if trait.startswith("HW_ARCH_")
    )
    assert traits["CUSTOM_COMPUTE_DEFAULT_MACHINE_OTHER"]
