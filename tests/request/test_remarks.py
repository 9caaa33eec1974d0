# SPDX-License-Identifier: Apache-2.0

"""What a request writes to no effect is noted: names that Nova does not know,
and traits without their property.
"""

import pytest

from os_prefilter import Request
from os_prefilter.request.remarks import remarks_in_nova
from os_prefilter.request.spec import Flavor, Image, RequestSpec
from os_prefilter.vocabulary import ROWS
from os_prefilter.vocabulary.image_properties import KEPT_BY_NOVA, LEGACY_NAMES
from os_prefilter.vocabulary.options import Options
from os_prefilter_tools.operators.property_names import notes_on_names
from os_prefilter_tools.testing import request_of

_DROPPED = "Nova does not know it, and drops it"
_NO_SUCH = "Nova knows no such extra spec"


def _names(
    properties: dict[str, object], extra_specs: dict[str, str]
) -> list[str]:
    return [
        str(note)
        for note in notes_on_names(
            Request(request_of(properties, extra_specs))
        )
    ]


_PROPERTIES = {
    "hw_vif_modle": f"{_DROPPED}. Did you mean hw_vif_model?",
    "vif_model": f"{_DROPPED}. Did you mean hw_vif_model?",
    "hw:cpu_policy": f"{_DROPPED}. Did you mean hw_cpu_policy?",
    "hw_warp_drive": _DROPPED,
    "img_\nx": _DROPPED,
}
# Of Nova, Glance, Cinder, Ironic, clients and users.
_FINE = """vmware_adaptertype hw_numa_cpus.0 trait:CUSTOM_X deploy-config:raid kernel_id ramdisk_id os_version os_hidden
    os_hash_algo image_type cinder_img_volume_type os_shutdown_timeout os_glance_import_task boot_mode
    os_acme_weekend owner_specified.openstack.md5 base_image_ref os_name"""


def test_image_property_that_nova_does_not_know_is_noted_with_the_nearest() -> (
    None
):
    for name, problem in _PROPERTIES.items():
        place = f"image property {name}".replace("\n", "\\n")
        assert _names({name: "x"}, {}) == [f"{place}: {problem}"]
    for name in (
        *sorted(KEPT_BY_NOVA),
        *LEGACY_NAMES,
        *_FINE.split(),
        "hw_" + "x" * 5000,
    ):
        assert _names({name: "x"}, {}) == []


_EXTRA_SPECS = {
    "hw:cpu_polcy": f"{_NO_SUCH}. Did you mean hw:cpu_policy?",
    "hw_cpu_policy": f"{_NO_SUCH}. Did you mean hw:cpu_policy?",
    "resource:VGPU": f"{_NO_SUCH}. Did you mean 'resources:VGPU'?",
    "deploy_config:raid": f"{_NO_SUCH}. Did you mean 'deploy-config:raid'?",
    "os:warp": _NO_SUCH,
    "hw_vif_model": "no effect: Nova reads hw_vif_model of an image alone",
    # Of an image alone, and under another namespace; not the nearest name,
    # which is about something else.
    "hw:vif_model": "no effect: Nova reads hw_vif_model of an image alone",
    "hw:video_model": "no effect: Nova reads hw_video_model of an image alone",
    "hw:firmware_type": (
        "no effect: Nova reads hw_firmware_type of an image alone"
    ),
    "hw:machine_type": (
        "no effect: Nova reads hw_machine_type of an image alone"
    ),
    "os:distro": "no effect: Nova reads os_distro of an image alone",
    "hw:secure_boot": f"{_NO_SUCH}. Did you mean os:secure_boot?",
    "os:watchdog_action": f"{_NO_SUCH}. Did you mean hw:watchdog_action?",
    "hw:cpu_model": _NO_SUCH,
    "traits:CUSTOM_LICENSED": (
        "a trait of a request group named s, which Placement refuses without "
        "resources. Did you mean 'trait:CUSTOM_LICENSED'?"
    ),
}
# Of Nova, and the operator's own.
_FINE_OF_FLAVORS = """resources:VGPU resources1:VCPU trait_gpu:CUSTOM_X preferred_trait:CUSTOM_X quota:cpu_shares
    hw:numa_cpus.3 pci_passthrough:alias capabilities:boot_mode deploy-config:raid group_policy
    aggregate_instance_extra_specs:ssd ssd os_distro acme:secure_boot ops:team licence:windows cpu_arch :"""


def test_extra_spec_that_nova_does_not_know_is_noted_with_the_nearest() -> (
    None
):
    for name, problem in _EXTRA_SPECS.items():
        assert _names({}, {name: "x"}) == [
            f"flavor extra spec {name}: {problem}"
        ]
    for name in (
        *_FINE_OF_FLAVORS.split(),
        *(row.extra_spec for row in ROWS if row.extra_spec),
    ):
        assert _names({}, {name: "x"}) == []


def test_at_most_ten_names_of_an_image_and_no_odd_one_are_noted() -> None:
    names: dict[object, object] = {
        f"hw_{number}": "x" for number in range(1000)
    } | {5: "x", None: "y"}
    spec = RequestSpec(Flavor(1, 512), Image(names))  # type: ignore[arg-type]
    assert len(list(notes_on_names(Request(spec)))) == 10


_NAMED: list[tuple[str, dict[str, object], dict[str, str], str]] = [
    ("CUSTOM_COMPUTE_TIME_HPET", {}, {}, "hw_time_hpet"),
    ("CUSTOM_COMPUTE_TIME_HPET", {"hw_time_hpet": "no"}, {}, "hw_time_hpet"),
    ("CUSTOM_COMPUTE_TIME_HPET", {"hw_time_hpet": "yes"}, {}, ""),
    ("CUSTOM_X86_64_COMPUTE_TIME_HPET", {}, {}, "hw_time_hpet"),
    ("COMPUTE_SECURITY_TPM_2_0", {}, {}, "hw_tpm_version or hw:tpm_version"),
    ("COMPUTE_SECURITY_TPM_2_0", {}, {"hw:tpm_version": "2.0"}, ""),
    ("COMPUTE_SECURITY_TPM_TIS", {}, {"hw:tpm_version": "2.0"}, ""),
    (
        "COMPUTE_SECURITY_TPM_CRB",
        {},
        {"hw:tpm_version": "2.0"},
        "hw_tpm_model or hw:tpm_model",
    ),
    (
        "COMPUTE_SECURITY_UEFI_SECURE_BOOT",
        {},
        {},
        "os_secure_boot or os:secure_boot",
    ),
    ("COMPUTE_STORAGE_BUS_SCSI", {"hw_cdrom_bus": "scsi"}, {}, ""),
    ("COMPUTE_STORAGE_BUS_SCSI", {}, {}, "hw_disk_bus or hw_cdrom_bus"),
    ("CUSTOM_COMPUTE_MACHINE_Q35", {"hw_machine_type": "pc-q35-9.1"}, {}, ""),
    (
        "HW_CPU_X86_AMD_SEV",
        {},
        {},
        "hw_mem_encryption_model or hw:mem_encryption_model",
    ),
    ("HW_CPU_X86_AMD_SEV", {}, {"hw:mem_encryption": "true"}, ""),
]
# They say what a host is, or nothing that Nova switches on.
_OF_HOSTS = """HW_ARCH_X86_64 HW_CPU_HYPERTHREADING CUSTOM_HYPERVISOR_TYPE_KVM CUSTOM_X COMPUTE_NODE COMPUTE_IMAGE_TYPE_RAW"""


def test_trait_by_name_without_its_property_is_noted() -> None:
    for trait, properties, extra_specs, told in (
        *_NAMED,
        *((trait, {}, {}, "") for trait in _OF_HOSTS.split()),
    ):
        reason = (
            f"Nova only chooses a host by it; it builds the guest by {told},"
            " which does not ask for it"
        )
        in_flavor = request_of(
            properties, {**extra_specs, f"trait:{trait}": "required"}
        )
        in_image = request_of(
            {**properties, f"trait:{trait}": "required"}, extra_specs
        )
        for spec, place in (
            (in_flavor, "flavor extra spec"),
            (in_image, "image property"),
        ):
            notes = [
                str(note) for note in remarks_in_nova(Request(spec), Options())
            ]
            assert notes == [
                f"{place} trait:{trait}=required: {reason}"
            ] * bool(told), trait
    # Of another provider, forbidden, or malformed.
    for others in (
        {"trait:CUSTOM_COMPUTE_TIME_HPET": "forbidden"},
        {
            "resources_gpu:VGPU": "1",
            "trait_gpu:CUSTOM_COMPUTE_TIME_HPET": "required",
        },
        {"trait:a b": "required"},
    ):
        assert not list(
            remarks_in_nova(Request(request_of({}, others)), Options())
        )


_UEFI_ALONE = (
    "Nova reads it under UEFI alone, which only aarch64 has by default; set"
    " hw_firmware_type=uefi"
)
_TABLET = (
    "Nova gives a guest with a USB tablet or disk another one;"
    " hw_input_bus=virtio avoids the tablet"
)


def test_property_that_another_one_makes_meaningless_is_noted() -> None:
    ignored: list[tuple[str, dict[str, object], str]] = [
        ("hw_pointer_model=usbtablet", {}, ""),
        (
            "hw_pointer_model=usbtablet",
            {"hw_input_bus": "virtio"},
            "Nova gives the guest the tablet of hw_input_bus instead",
        ),
        ("hw_usb_model=none", {}, _TABLET),
        ("hw_usb_model=none", {"hw_input_bus": "virtio"}, ""),
        (
            "hw_usb_model=none",
            {"hw_input_bus": "virtio", "hw_disk_bus": "usb"},
            _TABLET,
        ),
        (
            "hw_usb_model=none",
            {"hw_input_bus": "virtio", "hw_cdrom_bus": "usb"},
            "",
        ),
        (
            "hw_tpm_model=tpm-crb",
            {},
            "it means nothing without hw_tpm_version",
        ),
        ("os_secure_boot=optional", {"hw_machine_type": "q35"}, _UEFI_ALONE),
        ("os_secure_boot=required", {}, _UEFI_ALONE),
        ("os_secure_boot=required", {"hw_firmware_type": "uefi"}, ""),
        ("os_secure_boot=optional", {"hw_architecture": "aarch64"}, ""),
        (
            "os_secure_boot=optional",
            {"hw_architecture": "aarch64", "hw_firmware_type": "bios"},
            _UEFI_ALONE,
        ),
        ("os_secure_boot=disabled", {}, ""),
        ("hw_tpm_model=tpm-crb", {"hw_tpm_version": "2.0"}, ""),
    ]
    for asked, others, reason in ignored:
        name, _, value = asked.partition("=")
        notes = remarks_in_nova(
            Request(request_of({name: value, **others}, {})), Options()
        )
        assert [(str(note), note.warn) for note in notes] == [
            (f"{asked}: {reason}", True)
        ] * bool(reason)
    # A contradiction is for the filters.
    spec = request_of(
        {"hw_tpm_version": "2.0", "hw_tpm_model": "tpm-crb"},
        {"hw:tpm_model": "tpm-tis"},
    )
    assert not list(remarks_in_nova(Request(spec), Options()))


@pytest.mark.parametrize(
    ("properties", "disk_format", "is_noted"),
    [
        (
            {
                "hw_machine_type": "q35",
                "hw_cdrom_bus": "ide",
                "img_config_drive": "mandatory",
            },
            "qcow2",
            True,
        ),
        (
            {
                "hw_machine_type": "q35",
                "hw_cdrom_bus": "sata",
                "img_config_drive": "mandatory",
            },
            "qcow2",
            False,
        ),
        (
            {
                "hw_machine_type": "q35",
                "hw_cdrom_bus": "ide",
                "img_config_drive": "optional",
            },
            "qcow2",
            False,
        ),
        (
            {
                "hw_machine_type": "pc",
                "hw_cdrom_bus": "ide",
                "img_config_drive": "mandatory",
            },
            "qcow2",
            False,
        ),
        # The filters reject it.
        (
            {
                "hw_machine_type": "q35",
                "hw_cdrom_bus": "ide",
                "img_config_drive": "mandatory",
            },
            "iso",
            False,
        ),
    ],
)
def test_config_drive_on_a_bus_that_the_machine_type_lacks_is_noted(
    properties: dict[str, object], disk_format: str, is_noted: bool
) -> None:
    """It is a CD-ROM but with ``config_drive_format = vfat`` in the host's
    nova.conf, which no request says.
    """
    spec = RequestSpec(Flavor(), Image(properties, disk_format=disk_format))
    notes = [str(note) for note in remarks_in_nova(Request(spec), Options())]
    reason = (
        "the config drive is a CD-ROM by default, and with image property"
        " hw_machine_type=q35 no guest has one"
    )
    assert (
        any(
            note.startswith(f"image property hw_cdrom_bus=ide: {reason}")
            for note in notes
        )
        is is_noted
    )
