# SPDX-License-Identifier: Apache-2.0

"""Which rows a filter looks at, and the filters that need nothing but rows of
the vocabulary.
"""

import random
from collections.abc import Callable, Iterable, Iterator

import pytest

from os_prefilter import (
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
from os_prefilter.request.row_requirements import require_rows
from os_prefilter.request.values import rows_of, value_of
from os_prefilter.request.view import Request
from os_prefilter.service.loading import installed_filters
from os_prefilter.vocabulary import BY_NAME, ROWS, rows_required_by
from os_prefilter.vocabulary.model import Row, UnknownValues
from os_prefilter.vocabulary.options import Options
from tests.conftest import (
    device_required_by,
    pipeline_of,
    required_by,
    spec_of,
)

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
    chance = random.Random(number)  # noqa: S311 - the same each time
    for _ in range(400):
        properties: dict[str, object] = dict(
            chance.choices(_PROPERTIES, k=chance.randint(0, 5))
        )
        if chance.random() < 0.3:
            properties |= [chance.choice(_LEGACY)]
        extra_specs = dict(
            chance.choices(_EXTRA_SPECS, k=chance.randint(0, 4))
        )
        if chance.random() < 0.3:
            properties[f"trait:{chance.choice(_TRAITS)}"] = "required"
        if chance.random() < 0.3:
            suffix, value = (
                chance.choice(["", "_X"]),
                chance.choice(["required", "forbidden"]),
            )
            extra_specs[f"trait{suffix}:{chance.choice(_TRAITS)}"] = value
        image = Image(properties, chance.choice([None, "qcow2", "zz"]))
        yield RequestSpec(
            Flavor(1, 1, extra_specs=extra_specs),
            image,
            is_bfv=chance.random() < 0.3,
        )


@pytest.mark.parametrize("unknown", [UnknownValues.SKIP, UnknownValues.REJECT])
@pytest.mark.parametrize("name", _NAMES)
def test_rows_skipped_for_a_request_would_not_change_the_filters_result(
    name: str, unknown: UnknownValues
) -> None:
    every, options = (
        rows_required_by(name),
        Options(unknown_values=unknown, reported_traits=("*",)),
    )
    for spec in _specs(_NAMES.index(name)):
        assert _answer(
            spec, lambda request: rows_of(request, name), options
        ) == _answer(spec, lambda _: every, options)


def _answer(
    spec: RequestSpec,
    rows: Callable[[Request], Iterable[Row]],
    options: Options,
) -> Requirements | str:
    request = Request(spec)
    try:
        return require_rows(request, rows(request), options)
    except RequestRejected as error:
        return str(error)


def test_unknown_hw_firmware_type_is_rejected_without_hw_firmware_stateless() -> (
    None
):
    with pytest.raises(UnknownValue, match="hw_firmware_type"):
        allocation_candidates_query(
            RequestSpec(Flavor(1, 1), Image({"hw_firmware_type": "zz"}))
        )


def test_disk_format_requires_its_trait_unless_the_instance_boots_from_a_volume() -> (
    None
):
    for disk_format in BY_NAME["image_type"].values:
        expected = [
            (f"COMPUTE_IMAGE_TYPE_{disk_format.upper()}", True, "root")
        ]
        assert (
            device_required_by("image_type", spec_of(disk_format=disk_format))
            == expected
        )
        assert (
            device_required_by(
                "image_type", spec_of(disk_format=disk_format, is_bfv=True)
            )
            == []
        )
    # Only filters with a switch read traits.
    assert (
        device_required_by(
            "image_type",
            spec_of({"trait:a b": "required"}, disk_format=disk_format),
        )
        == expected
    )
    for unknown in (None, "", "rbd", "qcow2,!X", 7):
        assert (
            device_required_by("image_type", spec_of(disk_format=unknown))
            == []
        )


@pytest.mark.parametrize(
    ("name", "shown"),
    [("fpga", "fpga"), ("x\ny", "x\\ny"), ("x" * 9_000, "x" * 64)],
    ids=["plain", "line break", "long"],
)
def test_source_has_the_name_of_a_device_profile_on_one_line(
    name: str, shown: str
) -> None:
    """Not the key of the row, which no one has written."""
    spec = spec_of(extra_specs={"accel:device_profile": name})
    (item,) = pipeline_of("accelerators").apply(spec).requirements
    assert item.source == f"flavor extra spec accel:device_profile={shown}"
    assert item.properties == (f"accel:device_profile={shown}",)
    assert item.trait == "COMPUTE_ACCELERATORS"


_REFUSED: list[tuple[str, dict[str, str], dict[str, str]]] = [
    (
        "tpm_secret_security",
        {"hw_tpm_version": "2.0"},
        {"hw:tpm_secret_security": "vault"},
    ),
    (
        "tpm_secret_security",
        {"hw_tpm_version": "2.0"},
        {"hw:tpm_secret_security": "USER"},
    ),
    ("sound_model", {}, {"hw:sound_model": "Virtio"}),
    ("image_metadata", {}, {"hw:sound_model": "Virtio"}),
    (
        "ephemeral_encryption",
        {"hw_ephemeral_encryption": "true"},
        {"hw:ephemeral_encryption_format": "LUKS"},
    ),
]


def test_value_that_novas_filters_refuse_is_refused_whatever_unknown_values_says() -> (
    None
):
    for name, properties, extra_specs in _REFUSED:
        for unknown_values in ("skip", "reject"):
            with pytest.raises(UnknownValue, match="Values that exist: "):
                pipeline_of(name, unknown_values=unknown_values).apply(
                    spec_of(properties, extra_specs)
                )
    # Other rows that look at it leave that to its filter.
    assert (
        value_of(
            Request(spec_of({}, {"hw:sound_model": "Virtio"})),
            BY_NAME["sound_model"],
        )
        is None
    )


def test_value_that_another_one_implies_requires_no_trait_of_its_own() -> None:
    usb, virtio = (
        "CUSTOM_COMPUTE_INPUT_BUS_USB",
        "CUSTOM_COMPUTE_INPUT_BUS_VIRTIO",
    )
    for beside, expected in (
        ({}, [usb]),
        ({"hw_input_bus": "usb"}, [usb, usb]),
        ({"hw_input_bus": "virtio"}, [virtio]),
    ):
        spec = spec_of({"hw_pointer_model": "usbtablet", **beside})
        assert [
            trait for trait, _, _ in device_required_by("image_metadata", spec)
        ] == expected


def test_value_of_novas_query_is_refused_if_it_is_unknown_or_the_machine_type_never_has_it() -> (
    None
):
    unknown = spec_of({"os_secure_boot": "odd"})
    assert required_by("image_metadata", unknown) == []
    # One note, also if a second row looks at the value.
    spec = spec_of(
        {
            "hw_ephemeral_encryption": "maybe",
            "hw_ephemeral_encryption_format": "luks",
        }
    )
    (note,) = pipeline_of("ephemeral_encryption").apply(spec).notes
    assert note.source == "image property hw_ephemeral_encryption"
    with pytest.raises(UnknownValue, match="os_secure_boot"):
        pipeline_of("image_metadata", unknown_values="reject").apply(unknown)
    tpm = "hw_tpm_version=2.0 with the default tpm_model tpm-tis"
    for first, second, problem in (
        (
            "os_secure_boot=required",
            "hw_machine_type=isapc",
            "os_secure_boot=required",
        ),
        (
            "os_secure_boot=required",
            "hw_architecture=i686",
            "os_secure_boot=required",
        ),
        (
            "hw_vif_model=spapr-vlan",
            "hw_emulation_architecture=aarch64",
            "hw_vif_model=spapr-vlan",
        ),
        ("hw_tpm_version=2.0", "hw_machine_type=pseries", tpm),
    ):
        (name, value), (beside, chosen) = first.split("="), second.split("=")
        with pytest.raises(
            ImpossibleCombination, match=f"{problem} is impossible .*{second}"
        ):
            required_by(
                "image_metadata", spec_of({name: value, beside: chosen})
            )
    # The CD-ROM of an image on a volume may be none.
    required_by(
        "image_metadata",
        spec_of(
            {"hw_machine_type": "virt", "hw_cdrom_bus": "ide"},
            disk_format="iso",
            is_bfv=True,
        ),
    )


def test_default_machine_types_without_a_device_are_forbidden() -> None:
    both: dict[str, object] = {
        "os_secure_boot": "required",
        "hw_tpm_version": "2.0",
    }
    defaults = [
        "ISAPC",
        "MICROVM",
        "OTHER",
        "PC",
        "PSERIES",
        "S390_CCW_VIRTIO",
    ]
    expected = [
        (f"CUSTOM_COMPUTE_DEFAULT_MACHINE_{family}", False, "root")
        for family in defaults
    ]
    assert sorted(required_by("image_metadata", spec_of(both))) == expected
    # Of i686, hosts tell what they have apart.
    i686: dict[str, object] = {
        "hw_architecture": "i686",
        "hw_firmware_type": "uefi",
    }
    names = [
        "COMPUTE_FIRMWARE_UEFI",
        *(f"COMPUTE_DEFAULT_MACHINE_{family}" for family in defaults[:3]),
    ]
    of_i686 = [
        trait for trait, _, _ in required_by("image_metadata", spec_of(i686))
    ]
    assert of_i686 == [
        "HW_ARCH_X86_64",
        *(f"CUSTOM_I686_{name}" for name in names),
    ]
