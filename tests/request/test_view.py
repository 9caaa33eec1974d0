# SPDX-License-Identifier: Apache-2.0

"""The view reads Nova's objects and ours, and changes neither."""

from __future__ import annotations

from operator import attrgetter
from types import MappingProxyType, SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from nova import objects
from nova.objects import base as nova_base
from openstack.compute.v2.flavor import Flavor as SdkFlavor
from openstack.image.v2.image import Image as SdkImage
from oslo_config import cfg

from os_prefilter import (
    Flavor,
    Image,
    Request,
    RequestGroup,
    RequestSpec,
    default_service,
    process_reqspec,
)
from os_prefilter.common.errors import UnsuitableRequestSpec
from os_prefilter.request.fields import PartReaders
from os_prefilter.request.filter_contract import Declaration
from os_prefilter.request.query import allocation_candidates_query
from os_prefilter.request.requirements import NOTHING, Requirements
from os_prefilter.service import Service
from os_prefilter.service.loading import as_filter
from tests.conftest import pipeline_of, spec_of
from tests.support.nova_objects import nova_flavor, nova_spec

_REQUIRED_ALWAYS = {
    "owner": ["OWNER_NOVA"],
    "compute_status": ["COMPUTE_STATUS_DISABLED"],
}
_FILTERS = (
    "image_metadata hpet owner deploy_config image_type compute_status"
    " accelerators packed_virtqueue ephemeral_encryption sound_model"
    " tpm_secret_security"
)
_UNSET_GROUPS = {
    "image": None,
    "is_bfv": True,
    "pci_requests": None,
    "requested_resources": None,
}


def _unset_fields() -> dict[str, dict[str, object]]:
    """Return new objects, so that no filter changes those of another case."""
    properties = objects.ImageMetaProps()
    return {
        "no field": {},
        "image is None": {"image": None},
        "image without fields": {"image": objects.ImageMeta()},
        "properties without fields": {
            "image": objects.ImageMeta(properties=properties)
        },
        "groups are None": dict(_UNSET_GROUPS),
    }


@pytest.mark.parametrize("unset", _unset_fields())
@pytest.mark.parametrize("name", _FILTERS.split())
def test_unset_nova_fields_add_no_requirements(name: str, unset: str) -> None:
    fields = _unset_fields()[unset]
    spec = objects.RequestSpec(flavor=nova_flavor(), **fields)
    decision = pipeline_of(name).apply(spec)
    traits = [item.trait for item in decision.requirements]
    assert traits == _REQUIRED_ALWAYS.get(name, [])


def test_reading_the_request_view_lazy_loads_no_nova_field() -> None:
    spec = objects.RequestSpec(flavor=nova_flavor(), image=None)
    before = nova_base.obj_to_primitive(spec)
    request = Request(spec)
    for name in (
        "pci_request_ids",
        "requested_groups",
        "image_traits",
        "flavor_groups",
        "boots_from_volume",
    ):
        getattr(request, name)
    request.image_property("hw_vif_model")
    request.extra_spec("x")
    allocation_candidates_query(spec)
    assert nova_base.obj_to_primitive(spec) == before


def test_process_reqspec_without_configuration_requires_nothing() -> None:
    spec = nova_spec({"hw_vif_model": "e1000e"})
    assert process_reqspec(None, spec).requirements == ()


def test_process_reqspec_reads_the_global_configuration() -> None:
    """Nova's signature, on Nova's CONF."""
    spec = nova_spec({"hw_vif_model": "e1000e"})
    cfg.CONF.set_override("enabled_filters", ["image_metadata"], "prefilter")
    (requirement,) = process_reqspec(None, spec).requirements
    assert requirement.trait == "COMPUTE_NET_VIF_MODEL_E1000E"
    assert spec.root_required == {"COMPUTE_NET_VIF_MODEL_E1000E"}


def test_process_reqspec_uses_the_service_that_was_chosen() -> None:
    spec = nova_spec()
    default_service.use(pipeline_of("compute_status"))
    process_reqspec(None, spec)
    assert spec.root_forbidden == {"COMPUTE_STATUS_DISABLED"}


_SPEC: Any = RequestSpec
_IMAGE: Any = Image
_FLAVOR: Any = Flavor
_PLAIN = SimpleNamespace


@Declaration(reads=("networks", "scheduler_hints"))
def _reads_all(request: Request) -> Requirements:
    for name in ("requested_groups", "networks", "scheduler_hints"):
        getattr(request, name)
    return NOTHING


def _check_refused(thing: object, problem: str) -> None:
    """Check that it is: it would ask for nothing, and any host would do."""
    service = Service((as_filter("reads_all", _reads_all),))
    kind = type(thing).__name__
    message = f"A {kind} is no RequestSpec that filters can work on: {problem}"
    with pytest.raises(UnsuitableRequestSpec, match=message):
        service.apply(thing)


@pytest.mark.parametrize("thing", [None, {"flavor": {}}], ids=["None", "dict"])
def test_thing_without_fields_is_refused_with_what_reads_json(
    thing: object,
) -> None:
    problem = (
        "it is not an object with fields; os_prefilter.adapters.from_json"
    )
    _check_refused(thing, f"{problem} reads JSON")


def test_class_is_refused() -> None:
    _check_refused(RequestSpec, "it is not an object with fields")


@pytest.mark.parametrize(
    ("thing", "kind"),
    [
        ([_SPEC(Flavor())], "list"),
        (Flavor(), "Flavor"),
        (nova_flavor(), "Flavor"),
        (objects.ImageMeta(), "ImageMeta"),
        (_PLAIN(), "SimpleNamespace"),
    ],
    ids=["list", "flavor", "Nova's flavor", "Nova's image", "empty"],
)
def test_object_of_another_type_is_refused(thing: object, kind: str) -> None:
    _check_refused(thing, f"it is of the type {kind}")


def test_text_is_refused_with_the_fields_that_are_missing() -> None:
    fields = "with none of the fields flavor, image[.;]"
    _check_refused("m1.small", f"it is of the type str, {fields}")


@pytest.mark.parametrize(
    "spec",
    [
        objects.RequestSpec(),
        _SPEC(None, Image({"hw_vif_model": "igb"})),
        _PLAIN(image=Image({"hw_vif_model": "igb"})),
    ],
    ids=["Nova's", "ours", "another"],
)
def test_request_without_a_flavor_is_refused(spec: object) -> None:
    _check_refused(spec, "it has no flavor")


def test_misspelt_flavor_is_refused() -> None:
    problem = "it has no field flavor; 'flavour' may be meant for flavor"
    _check_refused(_PLAIN(flavour=Flavor(), image=None), problem)


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("img", Image(), "; 'img' may be meant for image"),
        ("image_meta", Image(), ", but image_meta; rename it"),
        ("image_ref", "x", ", but image_ref"),
    ],
)
def test_image_under_another_name_is_refused(
    name: str, value: object, problem: str
) -> None:
    spec = _PLAIN(flavor=Flavor(), **{name: value})
    _check_refused(spec, f"it has no field image{problem}")


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("requested_ressources", [], "requested_resources; 'requested_"),
        ("scheduler_hint", {}, "scheduler_hints; 'scheduler_hint' may"),
    ],
)
def test_misspelt_field_is_refused(
    name: str, value: object, problem: str
) -> None:
    spec = _PLAIN(flavor=Flavor(), image=None, **{name: value})
    _check_refused(spec, f"it has no field {problem}")


@pytest.mark.parametrize(
    ("part", "name", "field"),
    [
        ("flavor", "extra_spec", "extra_specs"),
        ("image", "property", "properties"),
    ],
)
def test_part_with_none_of_the_fields_is_refused(
    part: str, name: str, field: str
) -> None:
    spec = _PLAIN(**{part: _PLAIN(**{name: {}})})
    kind = f"its {part} is of the type SimpleNamespace"
    fields = f"with none of the fields {field}, .*; '{name}' may"
    _check_refused(spec, f"{kind}, {fields}")


def test_property_beside_the_properties_of_an_image_is_refused() -> None:
    image: Any = SdkImage(hw_vif_model="igb", disk_format="raw")
    problem = "its image has 'hw_vif_model' outside its properties"
    _check_refused(_SPEC(Flavor(), image), problem)


def test_exchanged_image_and_flavor_are_refused() -> None:
    problem = "its image is of the type Flavor"
    _check_refused(_SPEC(Image(), Flavor()), problem)


@pytest.mark.parametrize("part", ["flavor", "image"])
def test_flavor_or_image_that_is_a_mapping_is_refused(part: str) -> None:
    parts = {"flavor": Flavor(), part: {"vcpus": 1}}
    _check_refused(_SPEC(**parts), f"its {part} is of the type dict")


def test_extra_specs_that_are_no_mapping_are_refused() -> None:
    flavor = _FLAVOR(extra_specs=["trait:X"])
    _check_refused(_SPEC(flavor), "its flavor's extra_specs are a list")


def test_image_properties_that_are_no_mapping_are_refused() -> None:
    image = _IMAGE("hw_vif_model=igb")
    problem = "its image's properties are a str"
    _check_refused(_SPEC(Flavor(), image), problem)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("requested_destination", {"in_tree": "x"}),
        ("request_level_params", {"root_required": {"X"}}),
    ],
)
def test_part_of_another_type_is_refused(name: str, value: object) -> None:
    spec = _SPEC(Flavor(), **{name: value})
    _check_refused(spec, f"its {name} is of the type dict")


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("requested_resources", "requester_id"),
        ("requested_networks", "port_id"),
    ],
)
def test_member_of_a_list_of_another_type_is_refused(
    name: str, field: str
) -> None:
    spec = _SPEC(Flavor(), **{name: [{field: "1"}]})
    _check_refused(spec, f"one of its {name} is of the type dict")


@pytest.mark.parametrize(
    ("hints", "kind"), [(["group=a"], "list"), ("group=a", "str")]
)
def test_scheduler_hints_that_are_no_mapping_are_refused(
    hints: object, kind: str
) -> None:
    spec = _SPEC(Flavor(), scheduler_hints=hints)
    problem = f"its scheduler_hints are a {kind}, not a mapping"
    _check_refused(spec, problem)


@pytest.mark.parametrize(
    ("hints", "is_rebuild"),
    [
        pytest.param(None, False, id="no hints"),
        pytest.param({"group": ["a"]}, False, id="another hint"),
        pytest.param({"_nova_check_type": ["rebuild"]}, True, id="list"),
        pytest.param({"_nova_check_type": "rebuild"}, True, id="text"),
    ],
)
def test_request_with_a_forced_host_is_a_rebuild_if_a_hint_says_so(
    hints: object, *, is_rebuild: bool
) -> None:
    spec = spec_of({}, force_hosts=["here"], scheduler_hints=hints)
    assert Request(spec).is_rebuild is is_rebuild


@pytest.mark.parametrize(
    ("name", "field"), [("ram", "memory_mb"), ("ephemeral_g", "ephemeral_gb")]
)
def test_field_of_a_flavor_under_another_name_is_refused(
    name: str, field: str
) -> None:
    flavor = _PLAIN(extra_specs={}, vcpus=1, **{name: 512})
    problem = f"its flavor has no field {field}; '{name}' may be meant"
    _check_refused(_PLAIN(flavor=flavor), problem)


def test_flavor_of_the_sdk_is_refused() -> None:
    flavor: Any = SdkFlavor(vcpus=1, ram=512, disk=1)
    problem = "its flavor has no field [a-z]+_[a-z]+; '[a-z]+' may be meant"
    _check_refused(_SPEC(flavor, None), problem)


def test_misspelt_field_of_an_image_is_refused() -> None:
    image = _PLAIN(properties={}, disk_fromat="raw")
    problem = "its image has no field disk_format; 'disk_fromat' may"
    _check_refused(_PLAIN(image=image), problem)


def test_misspelt_field_of_the_request_level_params_is_refused() -> None:
    params = _PLAIN(root_require={"X"}, same_subtree=[])
    spec = _SPEC(Flavor(), request_level_params=params)
    _check_refused(spec, "its .* has no field root_required")


@pytest.mark.parametrize(
    ("name", "field", "other"),
    [
        ("aggregats", "aggregates", "in_tree"),
        ("in_tre", "in_tree", "aggregates"),
    ],
)
def test_misspelt_field_of_the_destination_is_refused(
    name: str, field: str, other: str
) -> None:
    destination = _PLAIN(**{name: ["x"], other: None})
    spec = _SPEC(Flavor(), requested_destination=destination)
    problem = f"no field {field}; '{name}' may"
    _check_refused(spec, f"its requested_destination has {problem}")


def test_misspelt_field_of_a_group_is_refused() -> None:
    group = _PLAIN(requester_id="1", resources={}, required_trait={"X"})
    spec = _SPEC(Flavor(), requested_resources=[group])
    problem = "no field required_traits; 'required_trait' may"
    _check_refused(spec, f"one of its requested_resources has {problem}")


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("network_i", "network_id"),
        ("subnet_i", "subnet_id"),
        ("vnic_typ", "vnic_type"),
    ],
)
def test_misspelt_field_of_a_network_is_refused(name: str, field: str) -> None:
    network = _PLAIN(port_id="1", **{name: "1"})
    spec = _SPEC(Flavor(), requested_networks=[network])
    problem = f"no field {field}; '{name}' may"
    _check_refused(spec, f"one of its requested_networks has {problem}")


class _NotLoaded:
    disk_format = "raw"
    hw_vif_model = property(attrgetter("not_loaded"))


class _WithMethod:
    flavor = Flavor()

    def get_scheduler_hint(self) -> None:
        """Nova's has it, too."""


_OF_NOVA = {"requested_networks": [], "project_id": "x", "image_id": "x"}
_READ_ONLY = Image(MappingProxyType({"hw_vif_model": "igb"}))


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"image": _READ_ONLY},
        {"image": _NotLoaded()},
        {"image": None, "image_ref": "x"},
        _OF_NOVA,
    ],
    ids=["none", "read-only", "not loaded", "image_ref", "fields of Nova"],
)
def test_object_with_a_flavor_and_a_part_of_the_fields_is_read(
    fields: dict[str, object],
) -> None:
    spec = _PLAIN(flavor=Flavor(), **fields)
    assert Request(spec).image_traits is not None


_MOCK = mock.MagicMock(
    flavor=Flavor(),
    image=None,
    requested_resources=[],
    request_level_params=None,
)
_PARTS = _PLAIN(flavor=_PLAIN(vcpus=1), image=_PLAIN(disk_format="raw"))
_NOVAS = objects.RequestSpec(flavor=nova_flavor())


@pytest.mark.parametrize(
    "spec",
    [_WithMethod(), _PARTS, _NOVAS, _MOCK],
    ids=["with a method", "plain flavor and image", "Nova's", "mock"],
)
def test_object_of_another_class_is_read(spec: object) -> None:
    assert Request(spec).image_traits is not None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("pci_request_ids", {"x"}),
        ("pci_requests", _PLAIN(requests=[_PLAIN(request_id="x")])),
    ],
    ids=["ours", "Nova's"],
)
def test_pci_requests_are_read_under_our_name_or_novas(
    name: str, value: object
) -> None:
    spec = _PLAIN(flavor=Flavor(), **{name: value})
    assert Request(spec).pci_request_ids == {"x"}


_FIELDS_OF_FLAVOR = PartReaders(Flavor, ("ram", "swap"), {"ram": "memory_mb"})


def _read_flavor(flavor: object) -> list[object]:
    return list(_FIELDS_OF_FLAVOR[type(flavor)](flavor))


def test_all_fields_of_a_part_are_read() -> None:
    assert _read_flavor(Flavor(3, 512, swap=1)) == [512, 1, True]


def test_part_without_an_object_has_all_fields() -> None:
    assert _read_flavor(None) == [None, None, True]


@pytest.mark.parametrize("name", ["memory_mb", "ram"])
def test_part_with_one_field_under_either_name_has_not_all(name: str) -> None:
    assert _read_flavor(_PLAIN(**{name: 512})) == [512, None, False]


def test_nova_object_with_unset_fields_has_all_fields() -> None:
    params = objects.RequestLevelParams(root_required={"X"})
    readers = PartReaders(Flavor, tuple(params.fields))
    assert list(readers[type(params)](params))[-1] is True


def test_field_that_is_not_there_is_read_as_empty() -> None:
    group = _PLAIN(requester_id="p")
    request = Request(_PLAIN(flavor=Flavor(), requested_resources=[group]))
    assert request.networks == ()
    empty: frozenset[str] = frozenset()
    expected = RequestGroup("p", {}, empty, empty, (), empty)
    assert request.requested_groups == {"p": expected}


def test_project_id_is_read_as_a_text() -> None:
    assert Request(_PLAIN(flavor=Flavor(), project_id=5)).project_id == "5"


def test_group_is_of_the_host_if_it_requests_the_hosts_resources() -> None:
    groups = [RequestGroup("cpu", {"VCPU": 1}), RequestGroup("empty")]
    request = Request(spec_of(requested_resources=groups))
    assert request.is_of_host("cpu")
    assert not request.is_of_host("empty")
    assert not request.is_of_host("unknown")


def test_group_without_the_field_of_resources_is_not_of_the_host() -> None:
    group = _PLAIN(requester_id="p")
    request = Request(_PLAIN(flavor=Flavor(), requested_resources=[group]))
    assert not request.is_of_host("p")
    assert not request.is_of_host("q")


def test_property_without_a_value_is_kept() -> None:
    assert Request(spec_of({"x": None})).image_properties == {"x": None}


def test_property_that_the_operating_system_implies_is_read() -> None:
    request = Request(spec_of(), implied={"hw_disk_bus": "virtio"})
    assert request.image_properties == {"hw_disk_bus": "virtio"}


def test_request_view_is_read_only() -> None:
    request = Request(nova_spec({}, {"resources1:VGPU": "1"}))
    with pytest.raises(TypeError):
        request.extra_specs["trait:OWNER_NOVA"] = "required"  # type: ignore[index]
    with pytest.raises(AttributeError):
        request.flavor_groups["1"].required_traits.add("OWNER_NOVA")  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        request.flavor_groups["1"].resources["VGPU"] = 2  # type: ignore[index]


_MUTABLE: dict[str, Any] = {"a_list": ["x", ["y"]], "empty": [], "text": "x"}
_UNCHANGEABLE = {"a_list": ("x", ("y",)), "empty": (), "text": "x"}


@pytest.mark.parametrize("name", _MUTABLE)
def test_filter_gets_no_value_of_a_property_that_it_could_change(
    name: str,
) -> None:
    """Else the filters after it, and Nova itself, would read what it has made
    of the list.
    """
    request = Request(spec_of(_MUTABLE))
    assert request.image_properties[name] == _UNCHANGEABLE[name]
    assert request.image_property(name) == _UNCHANGEABLE[name]


def test_filter_gets_the_lists_of_novas_image_as_tuples() -> None:
    spec = nova_spec(
        {
            "hw_numa_nodes": "1",
            "hw_numa_cpus.0": "0-1",
            "trait:CUSTOM_A": "required",
        }
    )
    request = Request(spec)
    assert request.image_properties["traits_required"] == ("CUSTOM_A",)
    assert isinstance(request.image_properties["hw_numa_cpus"], tuple)
    assert request.image_traits == ("CUSTOM_A",)


def test_filter_gets_no_list_of_a_group_or_of_a_field_beyond_the_view_that_it_could_change() -> (
    None
):
    group = RequestGroup("p", {"VGPU": 1}, aggregates=[["a", "b"]])
    spec = SimpleNamespace(
        flavor=SimpleNamespace(extra_specs={}, projects=["x"]),
        requested_resources=[group],
    )
    request = Request(spec)
    assert request.requested_groups["p"].aggregates == (("a", "b"),)
    assert request.flavor_attribute("projects") == ("x",)
