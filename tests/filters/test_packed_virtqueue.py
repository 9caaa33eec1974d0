"""packed_virtqueue: flavor or image switches packed virtqueues on."""

from collections.abc import Callable

import pytest

from os_prefilter.errors import FlavorImageConflict
from tests.conftest import device_asked_by, pipeline_of, spec_of

_ASKED = [("COMPUTE_NET_VIRTIO_PACKED", True, "root")]


@pytest.mark.parametrize(
    ("properties", "extra_specs", "expected"),
    [
        ({}, {}, []),
        ({"hw_virtio_packed_ring": "true"}, {}, _ASKED),
        ({}, {"hw:virtio_packed_ring": "yes"}, _ASKED),
        ({"hw_virtio_packed_ring": True}, {"hw:virtio_packed_ring": "1"}, _ASKED),
        ({"hw_virtio_packed_ring": "false"}, {}, []),
    ],
)
def test_flavor_or_image_requires_packed_virtqueues(
    properties: dict[str, object], extra_specs: dict[str, str], expected: list[object]
) -> None:
    assert device_asked_by("packed_virtqueue", spec_of(properties, extra_specs)) == expected


def test_flavor_and_image_that_disagree_are_an_error() -> None:
    with pytest.raises(FlavorImageConflict):
        pipeline_of("packed_virtqueue").apply(
            spec_of({"hw_virtio_packed_ring": "no"}, {"hw:virtio_packed_ring": "yes"})
        )


def test_only_hosts_with_packed_virtqueues_remain(hosts: Callable[..., tuple[str, ...]]) -> None:
    found = hosts(spec_of({"hw_virtio_packed_ring": "true"}), "packed_virtqueue")
    assert "kvm-new-1" in found
    assert "vmware-1" not in found
