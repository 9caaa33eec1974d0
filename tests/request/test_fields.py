# SPDX-License-Identifier: Apache-2.0

"""Fields of Nova's objects are read, and copied, as their public interface
does.
"""

from __future__ import annotations

from threading import Lock
from typing import Any
from unittest import mock

import pytest
from nova import objects

from os_prefilter import Flavor, Request
from os_prefilter.common.errors import FilterFailed, UnsuitableRequestSpec
from os_prefilter.request import fields
from os_prefilter.request.fields import field_of, set_fields_of
from os_prefilter.request.query import allocation_candidates_query
from os_prefilter.service import Service
from os_prefilter.service.loading import as_filter
from tests.conftest import pipeline_of
from tests.support.nova_objects import nova_flavor, nova_spec

_OBJECTS = [
    nova_spec(
        {
            "hw_vif_model": "e1000e",
            "hw_time_hpet": "no",
            "trait:HW_CPU_X86_AVX2": "required",
        },
        is_bfv=False,
    ),
    objects.RequestSpec(),
    objects.RequestSpec(
        flavor=nova_flavor(), image=None, requested_resources=None
    ),
    objects.ImageMetaProps(),
    objects.ImageMeta(disk_format="raw"),
    objects.ImageMetaProps.from_dict(
        {"hw_boot_menu": "yes", "hw_numa_nodes": 2, "img_hv_type": "kvm"}
    ),
    nova_flavor(),
    objects.RequestGroup(requester_id="x", resources={"VGPU": 1}),
    objects.RequestLevelParams(),
    objects.Destination(aggregates=["a"]),
    objects.InstancePCIRequest(
        count=1,
        request_id="11111111-1111-4111-8111-111111111111",
        alias_name="gpu",
    ),
]


@pytest.fixture(
    params=[True, False], ids=["from __dict__", "by the public interface"]
)
def fields_in_dict(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> bool:
    """Whether fields are read from the object's attributes.

    It must work without: oslo.versionedobjects may keep its fields elsewhere
    one day.
    """
    if not request.param:
        monkeypatch.setattr(
            fields, "keeps_fields_in_dict", lambda _kind: False
        )
    return bool(request.param)


@pytest.mark.parametrize(
    "thing", _OBJECTS, ids=lambda thing: type(thing).__name__
)
def test_fields_read_equal_those_of_the_objects_public_interface(
    thing: Any, fields_in_dict: bool
) -> None:
    assert fields.keeps_fields_in_dict(thing.__class__) is fields_in_dict
    expected = {
        name: getattr(thing, name)
        for name in thing.fields
        if thing.obj_attr_is_set(name)
    }
    assert set_fields_of(thing) == expected
    for name in thing.fields:
        value = expected.get(name)
        if value is None:
            value = "default"
        assert field_of(thing, name, "default") == value


@pytest.mark.usefixtures("fields_in_dict")
def test_property_of_a_class_is_read_as_a_field() -> None:
    assert field_of(_OBJECTS[-1], "source") == 0


def test_field_of_an_object_without_it_is_the_default() -> None:
    assert field_of(None, "x", 3) == 3
    assert field_of(object(), "x", 3) == 3


class _WithService:
    """Mixin for a versioned object whose constructor needs a service."""

    def __init__(self, service: object, **fields: Any) -> None:
        super().__init__(**fields)
        self.service = service

    @classmethod
    def obj_name(cls) -> str:
        """Return the name of Nova's class, which its fields expect."""
        return cls.__name__.removeprefix("_")


class _RequestSpec(_WithService, objects.RequestSpec):  # type: ignore[misc]
    pass


class _Flavor(_WithService, objects.Flavor):  # type: ignore[misc]
    pass


class _RequestGroup(_WithService, objects.RequestGroup):  # type: ignore[misc]
    pass


def _rejects(_context: Any, spec: Any) -> bool:
    spec.flavor.extra_specs["trait:OWNER_NOVA"] = "required"
    spec.is_bfv = True
    spec.root_required.add("OWNER_NOVA")
    raise ValueError("half-way")


def _spec(service: object) -> Any:
    flavor = _Flavor(
        service, vcpus=1, memory_mb=512, root_gb=1, ephemeral_gb=0, swap=0
    )
    flavor.extra_specs = {"resources:VGPU": "1"}
    image = objects.ImageMeta.from_dict(
        {"properties": {"hw_vif_model": "e1000e"}}
    )
    return _RequestSpec(service, flavor=flavor, image=image)


def test_class_of_nova_whose_constructor_takes_arguments_is_scheduled_like_its_base() -> (
    None
):
    spec = _spec(Lock())
    base = nova_spec({"hw_vif_model": "e1000e"}, {"resources:VGPU": "1"})
    pipeline = pipeline_of("image_metadata", "owner")
    requirements = pipeline.apply(spec).requirements
    assert requirements == pipeline.apply(base).requirements
    query = allocation_candidates_query(spec)
    assert query == allocation_candidates_query(base)


def test_flavor_of_a_subclass_is_copied_before_it_is_changed() -> None:
    spec = _spec(Lock())
    chosen = spec.flavor
    pipeline_of("owner").apply(spec)
    assert chosen.extra_specs == {"resources:VGPU": "1"}
    assert "trait_owned_VGPU:OWNER_NOVA" in spec.flavor.extra_specs
    assert spec.flavor.service is spec.service
    assert "extra_specs" in spec.flavor.obj_what_changed()


def test_object_that_two_fields_share_is_shared_in_the_copy() -> None:
    spec = _spec(Lock())
    again = f"{fields.PREFIX}again"
    vars(spec)[again] = spec.flavor
    copy = fields.clone_of(spec)
    assert vars(copy)[again] is copy.flavor


def test_request_spec_of_a_subclass_is_restored_with_what_is_no_field() -> (
    None
):
    service = Lock()
    spec = _spec(service)
    flavor = repr(spec.flavor)
    image = repr(spec.image)
    with pytest.raises(FilterFailed, match="half-way"):
        Service((as_filter("rejects", _rejects),)).apply(spec)
    assert repr(spec.flavor) == flavor
    assert repr(spec.image) == image
    assert "is_bfv" not in spec
    assert not spec.root_required
    assert spec.service is service
    assert spec.flavor.service is service


def test_part_that_cannot_be_copied_is_refused_with_the_cause() -> None:
    group = _RequestGroup(
        "a service", requester_id="port", resources={"VGPU": 1}
    )
    spec = nova_spec(requested_resources=[group])
    cause = (
        r"A RequestSpec is no .* cannot be copied .*__init__\(\) missing 1"
        r" required positional argument"
    )
    with pytest.raises(UnsuitableRequestSpec, match=cause):
        Service((as_filter("rejects", _rejects),)).apply(spec)


def test_copy_of_an_object_that_computes_its_fields_is_refused() -> None:
    problem = "A MagicMock is no .* its fields are not all in its __dict__"
    spec = mock.MagicMock(
        flavor=Flavor(),
        image=None,
        requested_resources=[],
        request_level_params=None,
    )
    request = Request(spec)
    with pytest.raises(UnsuitableRequestSpec, match=problem):
        request.copy_spec()
