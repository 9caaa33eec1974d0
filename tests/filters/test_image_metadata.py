# SPDX-License-Identifier: Apache-2.0

"""image_metadata: every image property of the vocabulary becomes the trait
that a host reports for it.
"""

import pytest

from os_prefilter import unsupported
from os_prefilter.common.errors import ImpossibleCombination, UnknownValue
from os_prefilter.common.trait_names import Trait
from os_prefilter.vocabulary import (
    BY_NAME,
    QUALIFIED,
    TRAITS_OF_EMULATION,
    rows_required_by,
    trait_of_platform,
)
from os_prefilter.vocabulary.machine_types import (
    PLATFORM_ARCHITECTURES,
    families_without,
    guest_architecture,
)
from os_prefilter.vocabulary.model import Row
from tests.conftest import (
    device_required_by,
    pipeline_of,
    required_by,
    spec_of,
)
from tests.support.hosts import OFFERED, few_libvirt_hosts

_ROWS = rows_required_by("image_metadata")
_DEFAULT_MACHINE = BY_NAME["default_machine"]


@pytest.mark.parametrize(
    "offered", OFFERED, ids=["own-architecture", "every-architecture"]
)
@pytest.mark.parametrize("row", _ROWS, ids=lambda row: row.name)
def test_each_value_requires_its_trait_and_forbids_default_machines_that_lack_it(
    row: Row, offered: frozenset[str]
) -> None:
    """By enumeration: image property and flavor extra spec alike; and no host
    whose default machine never has it.
    """
    for value in row.values:
        expected = _expected(row, value, offered)
        options = {"emulated_architectures": sorted(offered)}
        for spec in (
            spec_of({str(row.image_property): value}),
            spec_of(extra_specs={str(row.extra_spec): value}),
        ):
            if (
                row.extra_spec
                if spec.flavor.extra_specs
                else row.image_property
            ):
                assert (
                    required_by("image_metadata", spec, **options) == expected
                ), value


def _expected(
    row: Row, value: str, offered: frozenset[str]
) -> list[tuple[str, bool, str]]:
    trait = row.values[value].trait
    if trait in TRAITS_OF_EMULATION and not offered:
        trait = trait_of_platform(value)
    expected = (
        [(str(trait), row.values[value].required, "root")] if trait else []
    )
    # A guest without an ISO image has no CD-ROM that its machine type would
    # have to support.
    families = (
        []
        if row.name == "cdrom_bus"
        else sorted(families_without(row.name, value))
    )
    defaults = [
        Trait(str(_DEFAULT_MACHINE.values[family].trait))
        for family in families
    ]
    if row.name == "emulation_architecture":
        # Of the architecture's own machine types where hosts emulate it; of
        # those of an unknown one nothing is said.
        platform = guest_architecture(value)
        of_platform = [
            QUALIFIED[found]
            for trait in defaults
            if (found := (trait, platform)) in QUALIFIED
        ]
        defaults = (
            of_platform
            if offered or platform not in PLATFORM_ARCHITECTURES
            else defaults
        )
        # Any host may run a guest of an architecture that nothing is reported
        # about.
        defaults = defaults if offered or trait_of_platform(value) else []
    return [*expected, *((str(trait), False, "root") for trait in defaults)]


def test_own_guests_of_a_host_say_nothing_of_an_architecture_that_no_trait_is_of() -> (
    None
):
    """Where the cloud does not offer to emulate it; such a requirement is left
    out with a note.
    """
    besides = [
        {},
        {"hw_machine_type": "virt"},
        {"hw_video_model": "vga"},
        {"hw_firmware_type": "uefi"},
    ]
    for beside in besides:
        decision = pipeline_of("image_metadata").apply(
            spec_of({"hw_emulation_architecture": "armv7l", **beside})
        )
        assert decision.requirements == ()
        assert len(decision.notes) == 1 + len(beside)
        assert all(
            "armv7l is not in [prefilter] emulated_architectures: not req"
            in str(x)
            for x in decision.notes
        )
    for offered in ([], ["s390x"]):
        spec = spec_of(
            {"hw_emulation_architecture": "sparc", "hw_vif_model": "e1000"}
        )
        decision = pipeline_of(
            "image_metadata", emulated_architectures=offered
        ).apply(spec)
        assert [
            item.trait for item in decision.requirements if item.required
        ] == ["COMPUTE_NET_VIF_MODEL_E1000"]
        (note,) = decision.notes
        assert note.source == "image property hw_emulation_architecture=sparc"
        assert (
            note.reason
            == "sparc is not in [prefilter] emulated_architectures: not"
            " required"
        )


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, []),
        ({"os_distro": "debian", "hw_time_hpet": "true"}, []),
        # Clients print null for a property that was removed.
        ({"hw_vif_model": None}, []),
        ({"architecture": "x86_64"}, ["HW_ARCH_X86_64"]),
        (
            {"architecture": "aarch64", "hw_architecture": "x86_64"},
            ["HW_ARCH_X86_64"],
        ),
        ({"hypervisor_type": "xapi"}, ["CUSTOM_HYPERVISOR_TYPE_XEN"]),
        ({"vm_mode": "hv"}, ["CUSTOM_VM_MODE_HVM"]),
        ({"vmware_adaptertype": "ide"}, ["COMPUTE_STORAGE_BUS_IDE"]),
        (
            {"vmware_adaptertype": "lsiLogic"},
            ["COMPUTE_STORAGE_BUS_SCSI", "CUSTOM_COMPUTE_SCSI_MODEL_LSILOGIC"],
        ),
        (
            {"vmware_adaptertype": "paraVirtual"},
            ["COMPUTE_STORAGE_BUS_SCSI", "CUSTOM_COMPUTE_SCSI_MODEL_VMPVSCSI"],
        ),
        (
            {"vmware_adaptertype": "lsiLogicsas", "hw_disk_bus": "ide"},
            [
                "COMPUTE_STORAGE_BUS_IDE",
                "CUSTOM_COMPUTE_SCSI_MODEL_LSISAS1068",
            ],
        ),
        # Nova's libvirt driver adds the controller whatever disks the guest
        # has.
        (
            {"hw_scsi_model": "virtio-scsi"},
            ["CUSTOM_COMPUTE_SCSI_MODEL_VIRTIO_SCSI"],
        ),
        (
            {"hw_disk_bus": "scsi", "hw_scsi_model": "foo"},
            ["COMPUTE_STORAGE_BUS_SCSI"],
        ),
        ({"vmware_adaptertype": ""}, []),
        # Nova makes a k of the Kelvin sign, too; a version of a machine type
        # may be anything.
        ({"img_hv_type": "\u212avm"}, ["CUSTOM_HYPERVISOR_TYPE_KVM"]),
        (
            {"hw_machine_type": "pc-q35-</script>&limit=1\n"},
            ["CUSTOM_COMPUTE_MACHINE_Q35"],
        ),
        ({"hw_vif_model": "VirtualE1000e"}, ["COMPUTE_NET_VIF_MODEL_E1000E"]),
        ({"hw_usb_model": "none"}, []),
        # One trait twice: two properties, two sources, one requirement in the
        # query.
        (
            {"hw_disk_bus": "usb", "hw_cdrom_bus": "usb"},
            ["COMPUTE_STORAGE_BUS_USB", "COMPUTE_STORAGE_BUS_USB"],
        ),
    ],
)
def test_legacy_names_and_combined_properties_require_the_expected_traits(
    properties: dict[str, object], expected: list[str]
) -> None:
    assert [
        trait
        for trait, _, _ in device_required_by(
            "image_metadata", spec_of(properties)
        )
    ] == expected


_TRICK = "virtio,!COMPUTE_STATUS_DISABLED"
_BAD_VALUES = [
    7,
    1.5,
    ["virtio"],
    {"a": "b"},
    _TRICK,
    "virtio\nERROR fake",
    "x" * 100_000,
    b"virtio",
]


def test_unknown_value_keeps_the_other_traits_or_is_rejected_by_option(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With one warning on one short ASCII line, whatever the tenant wrote;
    upstream's filter drops all traits.
    """
    for value in _BAD_VALUES:
        caplog.clear()
        spec = spec_of(
            {
                "hw_vif_model": value,
                "hw_disk_bus": value,
                "hw_video_model": "vga",
            }
        )
        pipeline_of("image_metadata").apply(spec)
        assert spec.root_required == {"COMPUTE_GRAPHICS_MODEL_VGA"}
        (warning,) = [
            record.getMessage()
            for record in caplog.records
            if record.levelname == "WARNING"
        ]
        assert "\n" not in warning
        assert warning.isascii()
        assert len(warning) < 500

        spec = spec_of({"hw_disk_bus": "scsi", "hw_video_model": value})
        with pytest.raises(
            UnknownValue,
            match="hw_video_model has the unknown value .* bochs, cirrus",
        ) as caught:
            pipeline_of("image_metadata", unknown_values="reject").apply(spec)
        assert "\n" not in str(caught.value)
        assert spec == spec_of(
            {"hw_disk_bus": "scsi", "hw_video_model": value}
        )


def test_traits_that_no_nova_driver_reports_are_required_only_if_reported_traits_lists_them() -> (
    None
):
    """CUSTOM_ ones, and standard ones that no driver of Nova reports."""
    spec = {"img_hv_type": "qemu", "hw_vm_mode": "hvm"}
    qemu, hvm = "CUSTOM_HYPERVISOR_TYPE_QEMU", "CUSTOM_VM_MODE_HVM"
    for reported, expected in (
        ([], []),
        ([qemu], [qemu]),
        (["CUSTOM_HYPERVISOR_TYPE_*"], [qemu]),
        (["CUSTOM_VM_MODE_*"], [hvm]),
        (["*"], [qemu, hvm]),
    ):
        decision = pipeline_of(
            "image_metadata", reported_traits=reported
        ).apply(spec_of(spec))
        assert [item.trait for item in decision.requirements] == expected
        assert len(decision.notes) == 2 - len(expected)
    standard = {
        "hw_firmware_type": "uefi",
        "hw_usb_model": "qemu-xhci",
        "hw_architecture": "armv7l",
    }
    for name, value in standard.items():
        for reported, number in (([], 0), (["COMPUTE_*", "HW_ARCH_*"], 1)):
            assert (
                len(
                    required_by(
                        "image_metadata",
                        spec_of({name: value}),
                        reported_traits=reported,
                    )
                )
                == number
            ), name


def test_trait_of_own_guests_is_never_required_for_guests_of_an_emulated_architecture() -> (
    None
):
    """Of a trait that no driver of Nova reports; its drivers add up what
    guests of any architecture have.
    """
    emulation, virtio = (
        ("COMPUTE_ARCH_AARCH64", True, "root"),
        ("COMPUTE_GRAPHICS_MODEL_VIRTIO", True, "root"),
    )

    def required(
        spec: dict[str, object], *reported: str
    ) -> list[tuple[str, bool, str]]:
        options = {
            "reported_traits": list(reported),
            "emulated_architectures": ["aarch64", "s390x"],
        }
        spec = {"hw_emulation_architecture": "aarch64", **spec}
        return sorted(required_by("image_metadata", spec_of(spec), **options))

    for name, value, trait in (
        ("firmware_type", "uefi", "FIRMWARE_UEFI"),
        ("machine_type", "virt", "MACHINE_VIRT"),
    ):
        spec: dict[str, object] = {f"hw_{name}": value}
        plain = (
            f"COMPUTE_{trait}"
            if name == "firmware_type"
            else f"CUSTOM_COMPUTE_{trait}"
        )
        qualified = f"CUSTOM_AARCH64_COMPUTE_{trait}"
        assert required(spec, plain) == [emulation]
        assert required(spec, plain, qualified) == [
            emulation,
            (qualified, True, "root"),
        ]
        assert required({**spec, "hw_video_model": "virtio"}) == [
            emulation,
            virtio,
        ]


@pytest.mark.parametrize("offered", [[], ["s390x"]], ids=str)
@pytest.mark.parametrize(
    ("properties", "plain"),
    [
        ({"hw_firmware_type": "uefi"}, "COMPUTE_FIRMWARE_UEFI"),
        ({"hw_machine_type": "virt"}, "CUSTOM_COMPUTE_MACHINE_VIRT"),
        ({"hw_disk_bus": "scsi"}, "COMPUTE_STORAGE_BUS_SCSI"),
    ],
)
def test_hosts_of_its_own_architecture_remain_for_an_image_whose_architecture_is_not_offered_for_emulation(
    properties: dict[str, object], plain: str, offered: list[str]
) -> None:
    """The plain traits are required, and the plain default machine types
    forbidden that such a guest never has.
    """
    spec = spec_of({"hw_emulation_architecture": "aarch64", **properties})
    required = set(
        required_by("image_metadata", spec, emulated_architectures=offered)
    )
    assert {trait for trait, wanted, _ in required if wanted} == {
        "COMPUTE_ARCH_AARCH64",
        plain,
    }
    forbidden = {trait for trait, wanted, _ in required if not wanted}
    named = "hw_machine_type" in properties
    assert ("CUSTOM_COMPUTE_DEFAULT_MACHINE_Q35" in forbidden) is not named
    assert "CUSTOM_COMPUTE_DEFAULT_MACHINE_VIRT" not in forbidden
    assert all(
        trait.startswith("CUSTOM_COMPUTE_DEFAULT_MACHINE_")
        for trait in forbidden
    )


def test_device_that_no_guest_of_the_emulated_architecture_has_is_refused() -> (
    None
):
    """Whatever hosts report; the late check of each host refuses it as
    well.
    """
    for name, value, architecture in (
        ("hw_viommu_model", "intel", "aarch64"),
        ("hw_viommu_model", "virtio", "s390x"),
        ("hw_firmware_type", "uefi", "s390x"),
        ("hw_vif_model", "spapr-vlan", "x86_64"),
    ):
        emulated = {"hw_emulation_architecture": architecture}
        pipeline = pipeline_of("image_metadata")
        pipeline.apply(spec_of(emulated))
        with pytest.raises(
            ImpossibleCombination,
            match=f"hw_emulation_architecture={architecture}",
        ):
            pipeline.apply(spec_of({**emulated, name: value}))
        for facts in few_libvirt_hosts():
            assert unsupported(spec_of({**emulated, name: value}), facts)
