"""image_type: the host must read the image's disk format, unless it boots from a volume."""

from collections.abc import Callable

import pytest

from os_prefilter.vocabulary import BY_NAME
from tests.conftest import asked_by, spec_of


@pytest.mark.parametrize("disk_format", BY_NAME["image_type"].values)
def test_each_disk_format_requires_its_trait(disk_format: str) -> None:
    spec = spec_of(disk_format=disk_format)
    assert asked_by("image_type", spec) == [(f"COMPUTE_IMAGE_TYPE_{disk_format.upper()}", True, "root")]


@pytest.mark.parametrize("disk_format", [None, "", "rbd", "qcow2,!X", 7])
def test_missing_or_unknown_disk_format_requires_nothing(disk_format: object) -> None:
    assert asked_by("image_type", spec_of(disk_format=disk_format)) == []


def test_boot_from_volume_requires_nothing() -> None:
    assert asked_by("image_type", spec_of(disk_format="qcow2", is_bfv=True)) == []


def test_only_hosts_that_support_the_disk_format_remain(hosts: Callable[..., tuple[str, ...]]) -> None:
    assert "vmware-1" in hosts(spec_of(disk_format="qcow2"))
    found = hosts(spec_of(disk_format="qcow2"), "image_type")
    assert "vmware-1" not in found
    assert "kvm-new-1" in found
