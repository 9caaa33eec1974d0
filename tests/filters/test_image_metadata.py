# SPDX-License-Identifier: Apache-2.0

"""image_metadata: every image property of the vocabulary becomes the trait
that a host reports for it.
"""

from __future__ import annotations

import pytest

from os_prefilter.common.errors import ImpossibleCombination, UnknownValue
from os_prefilter.common.trait_names import Trait
from os_prefilter.service import Service
from os_prefilter.vocabulary import BY_NAME, DEVICES, rows_required_by
from os_prefilter.vocabulary.machine_types import families_without
from os_prefilter.vocabulary.model import Row
from os_prefilter.vocabulary.options import Options
from tests.conftest import (
    Properties,
    Required,
    device_required_by,
    pipeline_of,
    required_by,
    spec_of,
)
from tests.support.tables import cases, pairs

_ROWS = rows_required_by("image_metadata")
_DEFAULT_MACHINE = BY_NAME["default_machine"]


@pytest.mark.parametrize("row", _ROWS, ids=lambda row: row.name)
def test_each_value_requires_its_trait_and_forbids_default_machines_that_lack_it(
    row: Row,
) -> None:
    """By enumeration: image property and flavor extra spec alike; and no host
    whose default machine never has it.
    """
    for value in row.values:
        expected = _expected(row, value)
        if row.image_property:
            spec = spec_of({row.image_property: value})
            found = required_by("image_metadata", spec)
            assert found == expected, value
        if row.extra_spec:
            spec = spec_of(extra_specs={row.extra_spec: value})
            found = required_by("image_metadata", spec)
            assert found == expected, value


def _expected(row: Row, value: str) -> Required:
    term = row.values[value]
    trait = term.trait
    expected: Required = []
    if trait:
        expected.append((trait, term.required, "root"))
    for default in _defaults_without(row, value):
        expected.append((default, False, "root"))
    return expected


def _defaults_without(row: Row, value: str) -> list[Trait]:
    """Return the traits of default machine types that never have a value."""
    # A guest without an ISO image has no CD-ROM that its machine type would
    # have to support.
    if row.name == "cdrom_bus":
        return []
    families = sorted(families_without(row.name, value))
    terms = [_DEFAULT_MACHINE.values[family] for family in families]
    return [Trait(str(term.trait)) for term in terms]


_EMULATED = {"hw_emulation_architecture": "aarch64"}
_ARM_EMULATOR = ("COMPUTE_ARCH_AARCH64", True, "root")


@pytest.mark.parametrize("row", _ROWS, ids=lambda row: row.name)
def test_emulated_guest_requires_its_emulator_and_no_device(row: Row) -> None:
    """Each device gets a note instead: hosts report those of guests of their
    own architecture.
    """
    if row.name not in DEVICES or not row.image_property:
        return
    for value, term in row.values.items():
        spec = spec_of({**_EMULATED, row.image_property: value})
        decision = pipeline_of("image_metadata").apply(spec)
        found = [each[:3] for each in decision.requirements]
        assert found == [_ARM_EMULATOR]
        assert len(decision.notes) == bool(term.trait)


def test_note_on_a_device_of_an_emulated_guest_says_what_to_do() -> None:
    spec = spec_of({**_EMULATED, "hw_disk_bus": "scsi"})
    (note,) = pipeline_of("image_metadata").apply(spec).notes
    assert note.source == "image property hw_disk_bus=scsi"
    assert note.warn
    assert note.reason == (
        "not required: hosts report the devices of guests of their own"
        " architecture, not of emulated ones (aarch64); boot one to see whether"
        " it has the device, or set hw_architecture instead of"
        " hw_emulation_architecture to use hosts of that architecture"
    )


def test_preferred_device_of_an_emulated_guest_is_noted_as_well() -> None:
    spec = spec_of({**_EMULATED, "hw_disk_bus": "scsi"})
    pipeline = pipeline_of("image_metadata", preferred_properties=["disk_bus"])
    decision = pipeline.apply(spec)
    assert decision.preferences == ()
    assert len(decision.notes) == 1


def test_emulated_guest_with_a_machine_type_that_lacks_the_device_is_refused() -> (
    None
):
    """Whatever the architecture is, q35 has no IDE."""
    devices = {"hw_machine_type": "q35", "hw_disk_bus": "ide"}
    with pytest.raises(ImpossibleCombination):
        required_by("image_metadata", spec_of({**_EMULATED, **devices}))


def test_architecture_that_no_nova_driver_reports_is_required_if_reported() -> (
    None
):
    spec = spec_of({"hw_emulation_architecture": "sparc"})
    assert required_by("image_metadata", spec) == [
        ("CUSTOM_COMPUTE_ARCH_SPARC", True, "root")
    ]
    assert required_by("image_metadata", spec, reported_traits=[]) == []


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


_IN_NOVA = Options(nova_builds_guests=True, reported_traits=("*",))


def _forbidden_in_nova(trait: str) -> list[str]:
    service = Service.from_names("image_metadata", options=_IN_NOVA)
    decision = service.decide(spec_of({f"trait:{trait}": "required"}))
    return [item.trait for item in decision.requirements if not item.required]


def test_hosts_where_nova_reports_a_device_wrongly_are_forbidden_for_its_trait() -> (
    None
):
    assert _forbidden_in_nova("COMPUTE_NET_VIF_MODEL_PCNET") == [
        "CUSTOM_COMPUTE_LACKS_NET_VIF_MODEL_PCNET"
    ]


@pytest.mark.parametrize(
    ("trait", "forbidden"),
    [
        ("HW_CPU_X86_AVX2", ["CUSTOM_COMPUTE_SEVERAL_CPU_MODELS"]),
        ("HW_CPU_X86_AMD_SEV", []),
        ("COMPUTE_NODE", []),
    ],
)
def test_hosts_with_several_cpu_models_are_forbidden_for_cpu_features_alone(
    trait: str, forbidden: list[str]
) -> None:
    assert _forbidden_in_nova(trait) == forbidden
