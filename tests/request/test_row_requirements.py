# SPDX-License-Identifier: Apache-2.0

"""Which rows a filter looks at, and the filters that need nothing but rows of
the vocabulary.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import pytest

from os_prefilter import (
    Destination,
    Flavor,
    Image,
    RequestSpec,
    allocation_candidates_query,
)
from os_prefilter.common.errors import (
    ImpossibleCombination,
    RequestRejected,
    UnknownValue,
)
from os_prefilter.request.requirements import Requirements
from os_prefilter.request.row_requirements import (
    forbid_incapable_hosts,
    require_rows,
)
from os_prefilter.request.values import rows_of, value_of
from os_prefilter.request.view import Request
from os_prefilter.service.loading import installed_filters
from os_prefilter.vocabulary import BY_NAME, ROWS, rows_required_by
from os_prefilter.vocabulary.model import Row, UnknownValues
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

_ODD = ("zz", "", None, True)
_PROPERTIES = [
    (str(row.image_property), value)
    for row in ROWS
    if row.image_property
    for value in (*row.values, *_ODD)
]
_LEGACY = [
    (name, value)
    for row in ROWS
    for name in row.legacy_names
    for value in row.values
]
_EXTRA_SPECS = [
    (str(row.extra_spec), value)
    for row in ROWS
    if row.extra_spec
    for value in (*row.values, "zz", "")
]
_TRAITS = sorted(trait for row in ROWS for trait in row.traits)
_NAMES = sorted({*installed_filters(), "query"})


def _specs(number: int) -> Iterator[RequestSpec]:
    """Yield random requests, the same each time."""
    chance = random.Random(number)  # noqa: S311
    for _ in range(400):
        chosen = chance.choices(_PROPERTIES, k=chance.randint(0, 5))
        properties: Properties = dict(chosen)
        if chance.random() < 0.3:
            name, value = chance.choice(_LEGACY)
            properties[name] = value
        extra_specs = dict(
            chance.choices(_EXTRA_SPECS, k=chance.randint(0, 4))
        )
        if chance.random() < 0.3:
            properties[f"trait:{chance.choice(_TRAITS)}"] = "required"
        if chance.random() < 0.3:
            suffix = chance.choice(["", "_X"])
            named = f"trait{suffix}:{chance.choice(_TRAITS)}"
            extra_specs[named] = chance.choice(["required", "forbidden"])
        disk_format = chance.choice([None, "qcow2", "zz"])
        yield RequestSpec(
            Flavor(1, 1, extra_specs=extra_specs),
            Image(properties, disk_format),
            is_bfv=chance.random() < 0.3,
        )


@pytest.mark.parametrize("unknown", [UnknownValues.SKIP, UnknownValues.REJECT])
@pytest.mark.parametrize("name", _NAMES)
def test_rows_skipped_for_a_request_would_not_change_the_filters_result(
    name: str, unknown: UnknownValues
) -> None:
    options = Options(unknown_values=unknown, reported_traits=("*",))
    every_row = rows_required_by(name)
    for spec in _specs(_NAMES.index(name)):
        few_rows = rows_of(Request(spec), name)
        result = _result(spec, few_rows, options)
        assert result == _result(spec, every_row, options)


def _result(
    spec: RequestSpec, rows: Sequence[Row], options: Options
) -> Requirements | str:
    try:
        return require_rows(Request(spec), rows, options)
    except RequestRejected as error:
        return str(error)


def test_unknown_hw_firmware_type_is_rejected_without_hw_firmware_stateless() -> (
    None
):
    with pytest.raises(UnknownValue, match="hw_firmware_type"):
        allocation_candidates_query(
            RequestSpec(Flavor(1, 1), Image({"hw_firmware_type": "zz"}))
        )


@pytest.mark.parametrize("disk_format", BY_NAME["image_type"].values)
def test_disk_format_requires_its_trait(disk_format: str) -> None:
    spec = spec_of(disk_format=disk_format)
    trait = f"COMPUTE_IMAGE_TYPE_{disk_format.upper()}"
    assert required_by("image_type", spec) == [(trait, True, "root")]


@pytest.mark.parametrize("disk_format", BY_NAME["image_type"].values)
def test_disk_format_of_a_server_on_a_volume_requires_nothing(
    disk_format: str,
) -> None:
    spec = spec_of(disk_format=disk_format, is_bfv=True)
    assert required_by("image_type", spec) == []


def test_filter_without_a_switch_reads_no_traits() -> None:
    spec = spec_of({"trait:a b": "required"}, disk_format="raw")
    expected = [("COMPUTE_IMAGE_TYPE_RAW", True, "root")]
    assert required_by("image_type", spec) == expected


@pytest.mark.parametrize("disk_format", [None, "", "rbd", "qcow2,!X", 7])
def test_unknown_disk_format_requires_nothing(disk_format: object) -> None:
    spec = spec_of(disk_format=disk_format)
    assert required_by("image_type", spec) == []


@pytest.mark.parametrize(
    ("name", "shown"),
    [("fpga", "fpga"), ("x\ny", "x\\ny"), ("x" * 9_000, "x" * 64)],
    ids=["plain", "line break", "long"],
)
def test_source_has_the_name_of_a_device_profile_on_one_line(
    name: str, shown: str
) -> None:
    """Not the key of the row, which no user has written."""
    spec = spec_of(extra_specs={"accel:device_profile": name})
    (item,) = pipeline_of("accelerators").apply(spec).requirements
    assert item.source == f"flavor extra spec accel:device_profile={shown}"
    assert item.properties == (f"accel:device_profile={shown}",)
    assert item.trait == "COMPUTE_ACCELERATORS"


_REFUSED = cases("""
# The filter | properties | extra specs
tpm_secret_security  | hw_tpm_version=2.0           | hw:tpm_secret_security=vault
tpm_secret_security  | hw_tpm_version=2.0           | hw:tpm_secret_security=USER
sound_model          |                              | hw:sound_model=Virtio
image_metadata       |                              | hw:sound_model=Virtio
ephemeral_encryption | hw_ephemeral_encryption=true | hw:ephemeral_encryption_format=LUKS
""")


@pytest.mark.parametrize("unknown_values", ["skip", "reject"])
@pytest.mark.parametrize(("name", "properties", "extra_specs"), _REFUSED)
def test_value_that_novas_filters_refuse_is_refused_whatever_unknown_values_says(
    name: str, properties: str, extra_specs: str, unknown_values: str
) -> None:
    pipeline = pipeline_of(name, unknown_values=unknown_values)
    spec = spec_of({**pairs(properties)}, pairs(extra_specs))
    with pytest.raises(UnknownValue, match="Values that exist: "):
        pipeline.apply(spec)


def test_unknown_value_is_none_for_the_rows_of_other_filters() -> None:
    request = Request(spec_of({}, {"hw:sound_model": "Virtio"}))
    assert value_of(request, BY_NAME["sound_model"]) is None


_USB = ("CUSTOM_COMPUTE_INPUT_BUS_USB", True, "root")
_VIRTIO = ("CUSTOM_COMPUTE_INPUT_BUS_VIRTIO", True, "root")


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ({}, [_USB]),
        ({"hw_input_bus": "usb"}, [_USB, _USB]),
        ({"hw_input_bus": "virtio"}, [_VIRTIO]),
    ],
    ids=["no bus", "usb", "virtio"],
)
def test_value_that_another_one_implies_requires_no_trait_of_its_own(
    others: Properties, expected: Required
) -> None:
    spec = spec_of({"hw_pointer_model": "usbtablet", **others})
    assert device_required_by("image_metadata", spec) == expected


def test_unknown_value_of_novas_query_requires_nothing_or_is_refused() -> None:
    spec = spec_of({"os_secure_boot": "odd"})
    assert required_by("image_metadata", spec) == []
    with pytest.raises(UnknownValue, match="os_secure_boot"):
        required_by("image_metadata", spec, unknown_values="reject")


def test_unknown_value_that_two_rows_read_is_noted_once() -> None:
    spec = spec_of(
        {
            "hw_ephemeral_encryption": "maybe",
            "hw_ephemeral_encryption_format": "luks",
        }
    )
    (note,) = pipeline_of("ephemeral_encryption").apply(spec).notes
    assert note.source == "image property hw_ephemeral_encryption"


_NEVER = cases("""
# Properties | the first, and the other one
os_secure_boot=required hw_machine_type=isapc | os_secure_boot=required | hw_machine_type=isapc
os_secure_boot=required hw_architecture=i686  | os_secure_boot=required | hw_architecture=i686
hw_vif_model=spapr-vlan hw_architecture=i686  | hw_vif_model=spapr-vlan | hw_architecture=i686
hw_tpm_version=2.0 hw_machine_type=pseries | hw_tpm_version=2.0 with the default tpm_model tpm-tis | hw_machine_type=pseries
""")


@pytest.mark.parametrize(("properties", "first", "other"), _NEVER)
def test_value_that_the_guest_never_has_is_refused(
    properties: str, first: str, other: str
) -> None:
    spec = spec_of({**pairs(properties)})
    problem = f"{first} is impossible .*{other}"
    with pytest.raises(ImpossibleCombination, match=problem):
        required_by("image_metadata", spec)


def test_cdrom_bus_of_an_iso_image_on_a_volume_may_be_impossible() -> None:
    """The guest may have no CD-ROM."""
    spec = spec_of(
        {"hw_machine_type": "virt", "hw_cdrom_bus": "ide"},
        disk_format="iso",
        is_bfv=True,
    )
    required_by("image_metadata", spec)


def test_default_machine_types_without_a_device_are_forbidden() -> None:
    spec = spec_of({"os_secure_boot": "required", "hw_tpm_version": "2.0"})
    families = "ISAPC MICROVM OTHER PC PSERIES S390_CCW_VIRTIO"
    assert sorted(required_by("image_metadata", spec)) == [
        (f"CUSTOM_COMPUTE_DEFAULT_MACHINE_{family}", False, "root")
        for family in families.split()
    ]


@pytest.mark.parametrize("resizes", [True, False], ids=["resize", "moves"])
def test_resize_to_a_flavor_with_secure_boot_forbids_hosts_like_a_new_server(
    resizes: bool,
) -> None:
    """A server that moves with its flavor has lived without Secure Boot."""
    spec = spec_of(
        extra_specs={"os:secure_boot": "required"},
        requested_destination=Destination(cell="one"),
    )
    request = Request(spec, has_new_flavor=resizes)
    options = Options(nova_builds_guests=True, reported_traits=("*",))
    rows = [BY_NAME["secure_boot"]]
    found = forbid_incapable_hosts(request, rows, options).requirements
    forbidden = {each.trait for each in found}
    assert ("HW_ARCH_X86_64" in forbidden) is resizes
    assert ("CUSTOM_COMPUTE_DEFAULT_MACHINE_PC" in forbidden) is resizes


def test_i686_requires_traits_of_its_own() -> None:
    """Hosts report what guests of i686 have apart from those of x86_64."""
    spec = spec_of({"hw_architecture": "i686", "hw_firmware_type": "uefi"})
    traits = [trait for trait, *_ in required_by("image_metadata", spec)]
    assert traits == [
        "HW_ARCH_X86_64",
        "CUSTOM_I686_COMPUTE_FIRMWARE_UEFI",
        "CUSTOM_I686_COMPUTE_DEFAULT_MACHINE_ISAPC",
        "CUSTOM_I686_COMPUTE_DEFAULT_MACHINE_MICROVM",
        "CUSTOM_I686_COMPUTE_DEFAULT_MACHINE_OTHER",
    ]
