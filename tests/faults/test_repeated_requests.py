"""What a pipeline remembers of earlier requests changes no decision; ``tests/exhaustive/test_load.py`` has the load."""

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import pytest
from nova import objects

from os_prefilter import Flavor, Image, RequestSpec, allocation_candidates_query
from os_prefilter.service.loading import installed_filters
from tests.conftest import pipeline_of, spec_of
from tests.support.nova_objects import nova_flavor, nova_spec

Make = Callable[[dict[str, Any], dict[str, str]], Any]
_GPU = {"resources:VGPU": "1", "tier:class": "gold"}
# 1, True and "1" are one key of a dictionary; the source says what the request says.
_PROPERTIES: list[dict[str, Any]] = [
    *({"hw_time_hpet": value} for value in (True, 1, "1", "true", 1.0, "yes")),
    *({"hw_vif_model": value} for value in ("e1000e", "E1000E", "VirtualE1000e")),
    *({"hw_usb_model": f"own-{number}", "os_version": f"{number}"} for number in range(20)),
]
_NOVAS: list[dict[str, Any]] = [
    *({"hw_time_hpet": value} for value in ("1", "true", "no")),
    *({"hw_vif_model": "e1000e", "os_version": f"{number}"} for number in range(20)),
    {"hw_firmware_type": "uefi", "os_secure_boot": "required", "os_distro": "windows"},
    {"trait:HW_CPU_X86_AVX2": "required", "hw_viommu_model": "virtio"},
]


def _pipeline() -> Any:
    return pipeline_of(*(name for name in installed_filters() if name != "rules"), trait_scope="root_and_unsuffixed")


def _answer(pipeline: Any, request_spec: Any) -> list[str]:
    decision = pipeline.apply(request_spec)
    return [*map(str, (*decision.requirements, *decision.notes)), allocation_candidates_query(request_spec)]


@pytest.mark.parametrize(
    ("make", "properties"), [(spec_of, [*_PROPERTIES, *_NOVAS]), (nova_spec, _NOVAS)], ids=("ours", "nova")
)
def test_threads_sharing_a_pipeline_decide_each_request_as_one_that_serves_it_alone(
    make: Make, properties: list[dict[str, Any]]
) -> None:
    """Each request six times, in any order."""
    requests = [(each, extra_specs) for each in properties for extra_specs in ({}, _GPU)]
    alone = [_answer(_pipeline(), make(*each)) for each in requests]
    shared, order = _pipeline(), [number for number in range(len(requests)) for _ in range(6)]
    Random(7).shuffle(order)  # noqa: S311 - the same each time
    interval = sys.getswitchinterval()
    sys.setswitchinterval(interval / 100)
    try:
        with ThreadPoolExecutor(4) as threads:
            found = list(threads.map(lambda number: _answer(shared, make(*requests[number])), order))
    finally:
        sys.setswitchinterval(interval)
    assert found == [alone[number] for number in order]


def test_cached_decision_is_not_used_for_an_image_or_a_flavor_changed_in_place() -> None:
    pipeline = _pipeline()
    properties, extra_specs = {"hw_vif_model": "e1000e"}, {"resources:VGPU": "1"}
    image, flavor = Image(properties, disk_format="qcow2"), Flavor(vcpus=1, memory_mb=512, extra_specs=extra_specs)
    novas = objects.ImageMeta.from_dict({"disk_format": "qcow2", "properties": properties})
    nova = nova_flavor(extra_specs=extra_specs)
    _answer(pipeline, RequestSpec(flavor, image))
    _answer(pipeline, objects.RequestSpec(flavor=nova, image=novas))
    properties["hw_vif_model"] = novas.properties.hw_vif_model = "virtio"
    image.disk_format = novas.disk_format = "raw"
    extra_specs["hw:sound_model"] = nova.extra_specs["hw:sound_model"] = "virtio"
    changed = Flavor(1, 512, extra_specs=dict(extra_specs)), Image(dict(properties), disk_format="raw")
    assert _answer(pipeline, RequestSpec(flavor, image)) == _answer(_pipeline(), RequestSpec(*changed))
    expected = nova_spec(properties, extra_specs)
    expected.image.disk_format = "raw"
    assert _answer(pipeline, objects.RequestSpec(flavor=nova, image=novas)) == _answer(_pipeline(), expected)
