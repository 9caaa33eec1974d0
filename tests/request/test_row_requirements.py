"""Which rows a filter looks at, and the filters that need nothing but rows of the vocabulary."""

import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from os_prefilter import Flavor, Image, RequestSpec, allocation_candidates_query
from os_prefilter.common.errors import RequestRejected, UnknownValue
from os_prefilter.request.requirements import Requirements
from os_prefilter.request.row_requirements import require_rows
from os_prefilter.request.values import rows_of
from os_prefilter.request.view import Request
from os_prefilter.service.loading import installed_filters
from os_prefilter.vocabulary import BY_NAME, ROWS, rows_required_by
from os_prefilter.vocabulary.model import Row, UnknownValues
from os_prefilter.vocabulary.options import Options
from tests.conftest import device_required_by, pipeline_of, spec_of

_ODD = ("zz", "", None, True)
_PROPERTIES = [(str(row.image_property), value) for row in ROWS if row.image_property for value in (*row.values, *_ODD)]
_LEGACY = [(name, value) for row in ROWS for name in row.legacy_names for value in row.values]
_EXTRA_SPECS = [(str(row.extra_spec), value) for row in ROWS if row.extra_spec for value in (*row.values, "zz", "")]
_TRAITS = sorted(trait for row in ROWS for trait in row.traits)
_NAMES = sorted({*installed_filters(), "query"})


def _specs(number: int) -> Iterator[RequestSpec]:
    chance = random.Random(number)  # noqa: S311 - the same each time
    for _ in range(400):
        properties: dict[str, object] = dict(chance.choices(_PROPERTIES, k=chance.randint(0, 5)))
        if chance.random() < 0.3:
            properties |= [chance.choice(_LEGACY)]
        extra_specs = dict(chance.choices(_EXTRA_SPECS, k=chance.randint(0, 4)))
        if chance.random() < 0.3:
            properties[f"trait:{chance.choice(_TRAITS)}"] = "required"
        if chance.random() < 0.3:
            suffix, value = chance.choice(["", "_X"]), chance.choice(["required", "forbidden"])
            extra_specs[f"trait{suffix}:{chance.choice(_TRAITS)}"] = value
        image = Image(properties, chance.choice([None, "qcow2", "zz"]))
        yield RequestSpec(Flavor(1, 1, extra_specs=extra_specs), image, is_bfv=chance.random() < 0.3)


@pytest.mark.parametrize("unknown", [UnknownValues.SKIP, UnknownValues.REJECT])
@pytest.mark.parametrize("name", _NAMES)
def test_rows_skipped_for_a_request_would_not_change_the_filters_result(name: str, unknown: UnknownValues) -> None:
    every, options = rows_required_by(name), Options(unknown_values=unknown, reported_traits=("*",))
    for spec in _specs(_NAMES.index(name)):
        assert _answer(spec, lambda request: rows_of(request, name), options) == _answer(spec, lambda _: every, options)


def _answer(spec: RequestSpec, rows: Callable[[Request], Iterable[Row]], options: Options) -> Requirements | str:
    request = Request(spec)
    try:
        return require_rows(request, rows(request), options)
    except RequestRejected as error:
        return str(error)


def test_unknown_hw_firmware_type_is_rejected_without_hw_firmware_stateless() -> None:
    with pytest.raises(UnknownValue, match="hw_firmware_type"):
        allocation_candidates_query(RequestSpec(Flavor(1, 1), Image({"hw_firmware_type": "zz"})))


_ENCRYPTED = "COMPUTE_EPHEMERAL_ENCRYPTION"
_PACKED = "COMPUTE_NET_VIRTIO_PACKED"
_TPM = "COMPUTE_SECURITY_TPM_SECRET_SECURITY_"
_Case = tuple[str, dict[str, object], dict[str, str], list[str]]
_REQUIRED: list[_Case] = [
    ("accelerators", {}, {"accel:device_profile": ""}, []),
    ("accelerators", {}, {"accel:other": "x"}, []),
    ("accelerators", {}, {"accel:device_profile": "gpu"}, ["COMPUTE_ACCELERATORS"]),
    ("ephemeral_encryption", {"hw_ephemeral_encryption": "true"}, {}, [_ENCRYPTED]),
    ("ephemeral_encryption", {}, {"hw:ephemeral_encryption": "true"}, [_ENCRYPTED]),
    ("ephemeral_encryption", {"hw_ephemeral_encryption": "false"}, {}, []),
    ("ephemeral_encryption", {"hw_ephemeral_encryption_format": "luks"}, {}, []),
    # A value without effect is not refused either.
    ("ephemeral_encryption", {"hw_ephemeral_encryption": "false"}, {"hw:ephemeral_encryption_format": "LUKS"}, []),
    (
        "ephemeral_encryption",
        {"hw_ephemeral_encryption": "true", "hw_ephemeral_encryption_format": "luksv2"},
        {},
        [_ENCRYPTED, f"{_ENCRYPTED}_LUKSV2"],
    ),
    ("packed_virtqueue", {"hw_virtio_packed_ring": "true"}, {}, [_PACKED]),
    ("packed_virtqueue", {}, {"hw:virtio_packed_ring": "yes"}, [_PACKED]),
    ("packed_virtqueue", {"hw_virtio_packed_ring": True}, {"hw:virtio_packed_ring": "1"}, [_PACKED]),
    ("packed_virtqueue", {"hw_virtio_packed_ring": "false"}, {}, []),
    ("sound_model", {"hw_vif_model": "e1000"}, {}, []),
    ("sound_model", {"hw_sound_model": "virtio"}, {}, ["COMPUTE_SOUND_MODEL_VIRTIO"]),
    ("sound_model", {}, {"hw:sound_model": "ich9"}, ["COMPUTE_SOUND_MODEL_ICH9"]),
    ("tpm_secret_security", {}, {"hw:tpm_secret_security": "host"}, []),
    ("tpm_secret_security", {}, {"hw:tpm_model": "tpm-crb"}, []),
    ("tpm_secret_security", {}, {"hw:tpm_version": "2.0"}, [f"{_TPM}USER"]),
    ("tpm_secret_security", {"hw_tpm_version": "1.2"}, {}, [f"{_TPM}USER"]),
    ("tpm_secret_security", {"hw_tpm_version": "2.0"}, {"hw:tpm_secret_security": "host"}, [f"{_TPM}HOST"]),
    ("tpm_secret_security", {"hw_tpm_version": "2.0"}, {"hw:tpm_secret_security": "deployment"}, [f"{_TPM}DEPLOYMENT"]),
    ("tpm_secret_security", {"hw_tpm_version": "3.0"}, {}, []),
    ("noop", {"hw_vif_model": "e1000e"}, {"resources:VGPU": "1"}, []),
]


def test_filter_requires_the_traits_of_its_rows_on_the_root() -> None:
    for name, properties, extra_specs, expected in _REQUIRED:
        found = device_required_by(name, spec_of(properties, extra_specs))
        assert found == [(trait, True, "root") for trait in expected], (name, properties, extra_specs)


def test_disk_format_requires_its_trait_unless_the_instance_boots_from_a_volume() -> None:
    for disk_format in BY_NAME["image_type"].values:
        expected = [(f"COMPUTE_IMAGE_TYPE_{disk_format.upper()}", True, "root")]
        assert device_required_by("image_type", spec_of(disk_format=disk_format)) == expected
        assert device_required_by("image_type", spec_of(disk_format=disk_format, is_bfv=True)) == []
    for unknown in (None, "", "rbd", "qcow2,!X", 7):
        assert device_required_by("image_type", spec_of(disk_format=unknown)) == []


def test_name_of_a_device_profile_stays_out_of_the_source() -> None:
    spec = spec_of(extra_specs={"accel:device_profile": "x\ny"})
    (item,) = pipeline_of("accelerators").apply(spec).requirements
    assert item.source == "flavor extra spec accel:device_profile=any"


_REFUSED: list[tuple[str, dict[str, str], dict[str, str]]] = [
    ("tpm_secret_security", {"hw_tpm_version": "2.0"}, {"hw:tpm_secret_security": "vault"}),
    ("tpm_secret_security", {"hw_tpm_version": "2.0"}, {"hw:tpm_secret_security": "USER"}),
    ("sound_model", {}, {"hw:sound_model": "Virtio"}),
    ("image_metadata", {}, {"hw:sound_model": "Virtio"}),
    ("ephemeral_encryption", {"hw_ephemeral_encryption": "true"}, {"hw:ephemeral_encryption_format": "LUKS"}),
]


def test_value_that_novas_filters_refuse_is_refused_whatever_unknown_values_says() -> None:
    for name, properties, extra_specs in _REFUSED:
        for unknown_values in ("skip", "reject"):
            with pytest.raises(UnknownValue, match="Values that exist: "):
                pipeline_of(name, unknown_values=unknown_values).apply(spec_of(properties, extra_specs))


_REMAINING: list[tuple[str, dict[str, Any], set[str], set[str]]] = [
    ("accelerators", {"extra_specs": {"accel:device_profile": "gpu"}}, {"gpu-cyborg-1"}, {"vmware-1"}),
    ("compute_status", {}, {"kvm-new-1"}, {"kvm-old-3"}),
    ("ephemeral_encryption", {"properties": {"hw_ephemeral_encryption": "true"}}, {"kvm-new-1"}, {"vmware-1"}),
    ("image_metadata", {"properties": {"hw_vif_model": "igb"}}, {"kvm-new-1"}, {"kvm-old-1", "vmware-1"}),
    ("image_metadata", {"properties": {"hw_architecture": "i686"}}, {"kvm-new-1", "gpu-nova-1"}, {"arm-1"}),
    ("image_type", {"disk_format": "qcow2"}, {"kvm-new-1"}, {"vmware-1"}),
    ("packed_virtqueue", {"properties": {"hw_virtio_packed_ring": "true"}}, {"kvm-new-1"}, {"vmware-1"}),
    ("sound_model", {"properties": {"hw_sound_model": "virtio"}}, {"kvm-new-1"}, {"kvm-old-1", "vmware-1"}),
    ("tpm_secret_security", {"extra_specs": {"hw:tpm_version": "2.0"}}, {"kvm-new-1"}, {"arm-1"}),
]


def test_only_hosts_with_the_required_traits_remain_in_placement(hosts: Callable[..., tuple[str, ...]]) -> None:
    for name, fields, remaining, excluded in _REMAINING:
        before, after = set(hosts(spec_of(**fields))), set(hosts(spec_of(**fields), name))
        assert remaining <= after
        assert excluded <= before - after
