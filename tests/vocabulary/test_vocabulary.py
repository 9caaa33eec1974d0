# SPDX-License-Identifier: Apache-2.0

"""The table is complete, and right against os-traits and Nova."""

from __future__ import annotations

from pathlib import Path

import os_traits
from nova import virt
from nova.objects import fields as nova_fields
from nova.objects import image_meta

from os_prefilter.common.trait_names import is_trait_name, standard_traits
from os_prefilter.vocabulary import BY_NAME, I686, ROWS, opt_in_traits
from os_prefilter.vocabulary.machine_types import (
    FAMILIES_WITHOUT,
    MACHINES,
    family_of,
)
from tests.vocabulary.test_image_properties import valid_values


def test_every_value_has_a_valid_trait_or_a_reason_for_having_none() -> None:
    """Standard names exist in os-traits; CUSTOM_ ones do not exist there under
    their own name; none has a reason.
    """
    known, installed = standard_traits(), {*os_traits.get_traits()}
    for term in [term for row in ROWS for term in row.values.values()]:
        if term.kind == "none":
            assert term.reason
        elif term.kind == "standard":
            assert term.trait in known
        else:
            name = str(term.trait).removeprefix("CUSTOM_")
            assert name not in installed, f"os-traits has {name} now: use it"
            assert is_trait_name(term.trait)


def test_every_row_names_its_property_or_extra_spec_and_the_filters_that_read_it() -> (
    None
):
    assert len(BY_NAME) == len(ROWS)
    # Hosts alone say what their default is, and what they lack.
    of_hosts = {"default_machine", "lacking_vif_model", "lacking_sound_model"}
    of_hosts.add("cpu_models")
    for row in [row for row in ROWS if row.name not in of_hosts]:
        assert row.image_property or row.extra_spec or row.image_attribute
        assert row.required_by
    for row in ROWS:
        assert set(row.spelling.older.values()) <= set(row.values)


def test_row_has_exactly_the_values_that_nova_accepts() -> None:
    """Where Nova has an enumeration; machine types, numbers and disk formats
    have none.
    """
    for row in [row for row in ROWS if not row.boolean]:
        accepted = (
            valid_values(row.image_property) if row.image_property else []
        )
        if row.name == "emulator_threads_policy":
            accepted = nova_fields.CPUEmulatorThreadsPolicy.ALL
        assert not accepted or set(row.values) == set(accepted), (
            f"correct the row {row.name} in vocabulary/"
        )


_LEGACY_PROBES = {
    "vif_model": (
        """VirtualE1000 VIRTUALE1000E virtualpcnet32 VirtualSriovEthernetCard VirtualVmxnet VirtualVmxnet3
        E1000"""
    ),
    "architecture": "i386 i486 i586 x86_32 x86_32p AMD64 X86_64",
    "hypervisor_type": "xapi QEMU VMware",
    "scsi_model": "lsiLogic lsiLogicsas busLogic paraVirtual VIRTIO-SCSI",
    "vm_mode": "pv hv baremetal HVM",
}


def test_legacy_spellings_mean_what_nova_takes_them_for() -> None:
    for name, spellings in _LEGACY_PROBES.items():
        for spelling in spellings.split():
            row = BY_NAME[name]
            props = image_meta.ImageMetaProps.from_dict(
                {row.image_property: spelling}
            )
            assert row.canonical(spelling) == props.get(row.image_property), (
                name,
                spelling,
            )


def test_value_that_is_not_in_the_vocabulary_is_unknown() -> None:
    values = (
        None,
        7,
        ["virtio"],
        {"a": 1},
        "",
        "virtio,!X",
        "virtio\nERROR",
        "x" * 100_000,
        "VIRT\u0131O",
    )
    for row in ROWS:
        if not row.boolean and row.name not in (
            "device_profile",
            "usb_redirection",
        ):
            for value in values:
                assert row.canonical(value) is None or value == (
                    row.depends_on and row.depends_on.default
                ), (
                    row.name,
                    value,
                )


def test_number_of_redirected_usb_ports_is_known_as_text_and_as_number() -> (
    None
):
    """Nova's image has a number, Glance's and the flavor a text."""
    row = BY_NAME["usb_redirection"]
    for value, known in (
        (0, "0"),
        (3, "3"),
        ("15", "15"),
        ("5".zfill(64), "5"),
        (" 3 ", "3"),
        ("00", "0"),
    ):
        assert row.canonical(value) == known
    for value in (16, -1, True, "16", "3.0", "", "5".zfill(65), 10**5000):
        assert row.canonical(value) is None


def test_a_device_profile_may_have_any_name() -> None:
    row = BY_NAME["device_profile"]
    assert [
        row.canonical(name) for name in ("gpu", "a\nb", "x" * 100_000)
    ] == ["any"] * 3
    assert row.canonical("") == ""
    assert row.canonical(7) is None


def test_machine_type_is_mapped_to_its_family() -> None:
    for name, family in {
        "pc": "pc",
        "pc-i440fx-7.2": "pc",
        "pc-q35-rhel9.4.0": "q35",
        "virt-8.2": "virt",
        "pseries-7.2-sxxm": "pseries",
        "s390-ccw-virtio-9.1": "s390-ccw-virtio",
        "microvm": "microvm",
        "isapc": "isapc",
        "pcx": None,
        "q35-9.1": None,
        "none": None,
    }.items():
        assert BY_NAME["machine_type"].canonical(name) == family
        assert family_of(name) == (family or "other")


def test_each_trait_for_i686_is_a_custom_trait_of_its_own() -> None:
    rows = {trait for row in ROWS for trait in row.traits}
    assert I686.keys() <= rows
    assert len(set(I686.values()) - rows) == len(I686)
    for trait in I686.values():
        assert is_trait_name(trait)
        assert trait.startswith("CUSTOM_I686_COMPUTE_")


def test_machine_type_exclusions_name_existing_rows_values_and_families() -> (
    None
):
    for (row, value), families in FAMILIES_WITHOUT.items():
        assert BY_NAME[row].values[value].trait
        assert families <= {*MACHINES, "other"}


def test_standard_opt_in_traits_are_those_that_no_nova_driver_reports() -> (
    None
):
    """All CUSTOM_, and the standard ones that Nova's source names nowhere: the
    day it does, this says so.
    """
    standard = {
        trait for trait in opt_in_traits() if not trait.startswith("CUSTOM_")
    }
    assert standard == {
        "COMPUTE_FIRMWARE_BIOS",
        "COMPUTE_FIRMWARE_UEFI",
        "COMPUTE_USB_MODEL_NEC_XHCI",
        "COMPUTE_USB_MODEL_QEMU_XHCI",
        "HW_ARCH_ARMV7",
    }
    drivers = "".join(
        path.read_text() for path in Path(virt.__file__).parent.rglob("*.py")
    )
    # The driver makes the name from the architecture, which is armv7l.
    assert nova_fields.Architecture.ARMV7 == "armv7l"
    assert "HW_ARCH_ARMV7L" not in os_traits.get_traits()
    for prefix in ("COMPUTE_FIRMWARE", "COMPUTE_USB_MODEL", "HW_ARCH_ARMV7"):
        assert prefix not in drivers
    for prefix in (
        "COMPUTE_SOUND_MODEL",
        "COMPUTE_VIOMMU_MODEL",
        "COMPUTE_NET_VIF_MODEL",
        "COMPUTE_STORAGE_BUS",
    ):
        assert prefix in drivers
