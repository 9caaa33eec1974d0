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
    Properties,
    Required,
    device_required_by,
    pipeline_of,
    required_by,
    spec_of,
)
from tests.support.hosts import OFFERED, few_libvirt_hosts
from tests.support.tables import cases, pairs

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
    options = {"emulated_architectures": sorted(offered)}
    for value in row.values:
        expected = _expected(row, value, offered)
        if row.image_property:
            spec = spec_of({row.image_property: value})
            found = required_by("image_metadata", spec, **options)
            assert found == expected, value
        if row.extra_spec:
            spec = spec_of(extra_specs={row.extra_spec: value})
            found = required_by("image_metadata", spec, **options)
            assert found == expected, value


def _expected(row: Row, value: str, offered: frozenset[str]) -> Required:
    term = row.values[value]
    trait = term.trait
    if trait in TRAITS_OF_EMULATION and not offered:
        trait = trait_of_platform(value)
    expected: Required = []
    if trait:
        expected.append((trait, term.required, "root"))
    for default in _defaults_without(row, value, offered):
        expected.append((default, False, "root"))
    return expected


def _defaults_without(
    row: Row, value: str, offered: frozenset[str]
) -> list[Trait]:
    """Return the traits of default machine types that never have a value."""
    # A guest without an ISO image has no CD-ROM that its machine type would
    # have to support.
    if row.name == "cdrom_bus":
        return []
    families = sorted(families_without(row.name, value))
    terms = [_DEFAULT_MACHINE.values[family] for family in families]
    defaults = [Trait(str(term.trait)) for term in terms]
    if row.name != "emulation_architecture":
        return defaults
    # Any host may run a guest of an architecture that nothing is reported
    # about.
    if not offered and not trait_of_platform(value):
        return []
    # Of the architecture's own machine types where hosts emulate it; of those
    # of an unknown one nothing is said.
    platform = guest_architecture(value)
    if not offered and platform in PLATFORM_ARCHITECTURES:
        return defaults
    pairs = [(trait, platform) for trait in defaults]
    return [QUALIFIED[pair] for pair in pairs if pair in QUALIFIED]


@pytest.mark.parametrize(
    "beside",
    [
        {},
        {"hw_machine_type": "virt"},
        {"hw_video_model": "vga"},
        {"hw_firmware_type": "uefi"},
    ],
    ids=["alone", "machine type", "video", "firmware"],
)
def test_own_guests_of_a_host_say_nothing_of_an_architecture_that_no_trait_is_of(
    beside: Properties,
) -> None:
    """Where the cloud does not offer to emulate it; such a requirement is left
    out with a note.
    """
    spec = spec_of({"hw_emulation_architecture": "armv7l", **beside})
    decision = pipeline_of("image_metadata").apply(spec)
    assert decision.requirements == ()
    assert len(decision.notes) == 1 + len(beside)
    reason = "armv7l is not in [prefilter] emulated_architectures: not req"
    for note in decision.notes:
        assert reason in str(note)


@pytest.mark.parametrize("offered", [[], ["s390x"]], ids=str)
def test_device_of_an_architecture_without_a_trait_is_required_all_the_same(
    offered: list[str],
) -> None:
    pipeline = pipeline_of("image_metadata", emulated_architectures=offered)
    emulated = {"hw_emulation_architecture": "sparc"}
    decision = pipeline.apply(spec_of({**emulated, "hw_vif_model": "e1000"}))
    required = [item.trait for item in decision.requirements if item.required]
    assert required == ["COMPUTE_NET_VIF_MODEL_E1000"]
    (note,) = decision.notes
    assert note.source == "image property hw_emulation_architecture=sparc"
    option = "[prefilter] emulated_architectures"
    assert note.reason == f"sparc is not in {option}: not required"


def _check_traits(properties: Properties, expected: str) -> None:
    required = device_required_by("image_metadata", spec_of(properties))
    assert [trait for trait, *_ in required] == expected.split()


_TRAITS = cases("""
# Properties | the traits that they require
os_distro=debian hw_time_hpet=true            |
architecture=x86_64                           | HW_ARCH_X86_64
architecture=aarch64 hw_architecture=x86_64   | HW_ARCH_X86_64
hypervisor_type=xapi                          | CUSTOM_HYPERVISOR_TYPE_XEN
vm_mode=hv                                    | CUSTOM_VM_MODE_HVM
vmware_adaptertype=                           |
vmware_adaptertype=ide                        | COMPUTE_STORAGE_BUS_IDE
vmware_adaptertype=lsiLogic                   | COMPUTE_STORAGE_BUS_SCSI CUSTOM_COMPUTE_SCSI_MODEL_LSILOGIC
vmware_adaptertype=paraVirtual                | COMPUTE_STORAGE_BUS_SCSI CUSTOM_COMPUTE_SCSI_MODEL_VMPVSCSI
vmware_adaptertype=lsiLogicsas hw_disk_bus=ide | COMPUTE_STORAGE_BUS_IDE CUSTOM_COMPUTE_SCSI_MODEL_LSISAS1068
# Nova's libvirt driver adds the controller whatever disks the guest has.
hw_scsi_model=virtio-scsi                     | CUSTOM_COMPUTE_SCSI_MODEL_VIRTIO_SCSI
hw_disk_bus=scsi hw_scsi_model=foo            | COMPUTE_STORAGE_BUS_SCSI
# Nova makes a k of the Kelvin sign, too.
img_hv_type=\u212avm                          | CUSTOM_HYPERVISOR_TYPE_KVM
hw_vif_model=VirtualE1000e                    | COMPUTE_NET_VIF_MODEL_E1000E
hw_usb_model=none                             |
# One trait twice: two properties, two sources, one requirement in the query.
hw_disk_bus=usb hw_cdrom_bus=usb              | COMPUTE_STORAGE_BUS_USB COMPUTE_STORAGE_BUS_USB
""")


@pytest.mark.parametrize(("properties", "expected"), _TRAITS)
def test_legacy_names_and_combined_properties_require_the_expected_traits(
    properties: str, expected: str
) -> None:
    _check_traits({**pairs(properties)}, expected)


@pytest.mark.parametrize(
    "properties", [{}, {"hw_vif_model": None}], ids=["none", "removed"]
)
def test_image_without_properties_requires_nothing(
    properties: Properties,
) -> None:
    """Clients print null for a property that was removed."""
    _check_traits(properties, "")


def test_version_of_a_machine_type_may_be_anything() -> None:
    machine = "pc-q35-</script>&limit=1\n"
    _check_traits({"hw_machine_type": machine}, "CUSTOM_COMPUTE_MACHINE_Q35")


_TRICK = "virtio,!COMPUTE_STATUS_DISABLED"
_BAD_VALUES = {
    "integer": 7,
    "float": 1.5,
    "list": ["virtio"],
    "mapping": {"a": "b"},
    "trick": _TRICK,
    "line break": "virtio\nERROR fake",
    "long": "x" * 100_000,
    "bytes": b"virtio",
}


@pytest.mark.parametrize("value", _BAD_VALUES.values(), ids=_BAD_VALUES)
def test_unknown_value_keeps_the_other_traits(
    value: object, caplog: pytest.LogCaptureFixture
) -> None:
    """With one warning on one short ASCII line, whatever the tenant wrote;
    upstream's filter drops all traits.
    """
    bad = {"hw_vif_model": value, "hw_disk_bus": value}
    spec = spec_of({**bad, "hw_video_model": "vga"})
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


@pytest.mark.parametrize("value", _BAD_VALUES.values(), ids=_BAD_VALUES)
def test_unknown_value_is_rejected_by_option(value: object) -> None:
    properties = {"hw_disk_bus": "scsi", "hw_video_model": value}
    spec = spec_of(properties)
    pipeline = pipeline_of("image_metadata", unknown_values="reject")
    message = "hw_video_model has the unknown value .* bochs, cirrus"
    with pytest.raises(UnknownValue, match=message) as caught:
        pipeline.apply(spec)
    assert "\n" not in str(caught.value)
    assert spec == spec_of(properties)


_QEMU = "CUSTOM_HYPERVISOR_TYPE_QEMU"
_HVM = "CUSTOM_VM_MODE_HVM"


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        ("", []),
        (_QEMU, [_QEMU]),
        ("CUSTOM_HYPERVISOR_TYPE_*", [_QEMU]),
        ("CUSTOM_VM_MODE_*", [_HVM]),
        ("*", [_QEMU, _HVM]),
    ],
)
def test_custom_traits_are_required_only_if_reported_traits_lists_them(
    reported: str, expected: list[str]
) -> None:
    """No driver of Nova reports them."""
    options = {"reported_traits": reported.split()}
    pipeline = pipeline_of("image_metadata", **options)
    spec = spec_of({"img_hv_type": "qemu", "hw_vm_mode": "hvm"})
    decision = pipeline.apply(spec)
    assert [item.trait for item in decision.requirements] == expected
    assert len(decision.notes) == 2 - len(expected)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("hw_firmware_type", "uefi"),
        ("hw_usb_model", "qemu-xhci"),
        ("hw_architecture", "armv7l"),
    ],
)
@pytest.mark.parametrize("reported", ["", "COMPUTE_* HW_ARCH_*"])
def test_standard_traits_of_no_nova_driver_are_required_only_if_reported_traits_lists_them(
    name: str, value: str, reported: str
) -> None:
    options = {"reported_traits": reported.split()}
    found = required_by("image_metadata", spec_of({name: value}), **options)
    assert len(found) == bool(reported)


_EMULATION = ("COMPUTE_ARCH_AARCH64", True, "root")
_VIRTIO = ("COMPUTE_GRAPHICS_MODEL_VIRTIO", True, "root")


def _required_of_aarch64(properties: Properties, *reported: str) -> Required:
    """Return what is required where clouds offer to emulate aarch64."""
    spec = spec_of({"hw_emulation_architecture": "aarch64", **properties})
    found = required_by(
        "image_metadata",
        spec,
        reported_traits=list(reported),
        emulated_architectures=["aarch64", "s390x"],
    )
    return sorted(found)


@pytest.mark.parametrize(
    ("name", "value", "plain"),
    [
        ("hw_firmware_type", "uefi", "COMPUTE_FIRMWARE_UEFI"),
        ("hw_machine_type", "virt", "CUSTOM_COMPUTE_MACHINE_VIRT"),
    ],
)
def test_trait_of_own_guests_is_never_required_for_guests_of_an_emulated_architecture(
    name: str, value: str, plain: str
) -> None:
    """Of a trait that no driver of Nova reports; its drivers add up what
    guests of any architecture have.
    """
    properties: Properties = {name: value}
    qualified = f"CUSTOM_AARCH64_{plain.removeprefix('CUSTOM_')}"
    assert _required_of_aarch64(properties, plain) == [_EMULATION]
    both = _required_of_aarch64(properties, plain, qualified)
    assert both == [_EMULATION, (qualified, True, "root")]
    properties["hw_video_model"] = "virtio"
    assert _required_of_aarch64(properties) == [_EMULATION, _VIRTIO]


@pytest.mark.parametrize("offered", [[], ["s390x"]], ids=str)
@pytest.mark.parametrize(
    ("name", "value", "plain"),
    [
        ("hw_firmware_type", "uefi", "COMPUTE_FIRMWARE_UEFI"),
        ("hw_machine_type", "virt", "CUSTOM_COMPUTE_MACHINE_VIRT"),
        ("hw_disk_bus", "scsi", "COMPUTE_STORAGE_BUS_SCSI"),
    ],
)
def test_hosts_of_its_own_architecture_remain_for_an_image_whose_architecture_is_not_offered_for_emulation(
    name: str, value: str, plain: str, offered: list[str]
) -> None:
    """The plain traits are required, and the plain default machine types
    forbidden that such a guest never has.
    """
    spec = spec_of({"hw_emulation_architecture": "aarch64", name: value})
    found = required_by("image_metadata", spec, emulated_architectures=offered)
    required = {trait for trait, wanted, _ in found if wanted}
    forbidden = {trait for trait, wanted, _ in found if not wanted}
    assert required == {"COMPUTE_ARCH_AARCH64", plain}
    is_named = name == "hw_machine_type"
    default = "CUSTOM_COMPUTE_DEFAULT_MACHINE_"
    assert (f"{default}Q35" in forbidden) is not is_named
    assert f"{default}VIRT" not in forbidden
    for trait in forbidden:
        assert trait.startswith(default)


@pytest.mark.parametrize(
    ("name", "value", "architecture"),
    [
        ("hw_viommu_model", "intel", "aarch64"),
        ("hw_viommu_model", "virtio", "s390x"),
        ("hw_firmware_type", "uefi", "s390x"),
        ("hw_vif_model", "spapr-vlan", "x86_64"),
    ],
)
def test_device_that_no_guest_of_the_emulated_architecture_has_is_refused(
    name: str, value: str, architecture: str
) -> None:
    """Whatever hosts report; the late check of each host refuses it as
    well.
    """
    emulated: Properties = {"hw_emulation_architecture": architecture}
    pipeline = pipeline_of("image_metadata")
    pipeline.apply(spec_of(emulated))
    spec = spec_of({**emulated, name: value})
    source = f"hw_emulation_architecture={architecture}"
    with pytest.raises(ImpossibleCombination, match=source):
        pipeline.apply(spec)
    for facts in few_libvirt_hosts():
        assert unsupported(spec, facts)
