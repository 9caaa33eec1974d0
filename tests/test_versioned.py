"""Reading the fields of Nova's objects gives what their public interface gives."""

from typing import Any

import pytest
from nova import objects

from os_prefilter import versioned
from os_prefilter.versioned import field_of, set_fields_of
from tests.support.nova_objects import nova_flavor, nova_spec

_OBJECTS = [
    nova_spec({"hw_vif_model": "e1000e", "hw_time_hpet": "no", "trait:HW_CPU_X86_AVX2": "required"}, is_bfv=False),
    objects.RequestSpec(),
    objects.RequestSpec(flavor=nova_flavor(), image=None, requested_resources=None),
    objects.ImageMetaProps(),
    objects.ImageMeta(disk_format="raw"),
    objects.ImageMetaProps.from_dict({"hw_boot_menu": "yes", "hw_numa_nodes": 2, "img_hv_type": "kvm"}),
    nova_flavor(),
    objects.RequestGroup(requester_id="x", resources={"VGPU": 1}),
    objects.RequestLevelParams(),
    objects.Destination(aggregates=["a"]),
    objects.InstancePCIRequest(count=1, request_id="11111111-1111-4111-8111-111111111111", alias_name="gpu"),
]


@pytest.mark.parametrize("prefixed", [True, False], ids=["from __dict__", "by the public interface"])
@pytest.mark.parametrize("thing", _OBJECTS, ids=lambda each: type(each).__name__)
def test_fields_read_equal_those_of_the_objects_public_interface(
    thing: Any, prefixed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the shortcut does not work: should oslo.versionedobjects keep its fields elsewhere one day."""
    if not prefixed:
        monkeypatch.setattr(versioned, "keeps_fields_in_dict", lambda _kind: False)
    else:
        assert versioned.keeps_fields_in_dict(thing.__class__)
    expected = {name: getattr(thing, name) for name in thing.fields if thing.obj_attr_is_set(name)}
    assert set_fields_of(thing) == expected
    for name in thing.fields:
        assert field_of(thing, name, "default") == ("default" if expected.get(name) is None else expected[name])


def test_properties_are_read_and_missing_attributes_give_the_default() -> None:
    assert field_of(_OBJECTS[-1], "source") == 0
    assert field_of(None, "x", 3) == 3
    assert field_of(object(), "x", 3) == 3
