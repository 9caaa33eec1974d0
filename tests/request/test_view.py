# SPDX-License-Identifier: Apache-2.0

"""The view reads Nova's objects and ours, and changes neither."""

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

_ALWAYS_REQUIRED = {
    "image_metadata": [],
    "hpet": [],
    "owner": ["OWNER_NOVA"],
    "deploy_config": [],
    "image_type": [],
    "compute_status": ["COMPUTE_STATUS_DISABLED"],
    "accelerators": [],
    "packed_virtqueue": [],
    "ephemeral_encryption": [],
    "sound_model": [],
    "tpm_secret_security": [],
}


def _unset_fields() -> dict[str, dict[str, object]]:
    """Return new objects, so that no filter changes those of another case."""
    return {
        "no field": {},
        "image is None": {"image": None},
        "image without fields": {"image": objects.ImageMeta()},
        "properties without fields": {
            "image": objects.ImageMeta(properties=objects.ImageMetaProps())
        },
        "groups are None": {
            "image": None,
            "is_bfv": True,
            "pci_requests": None,
            "requested_resources": None,
        },
    }


@pytest.mark.parametrize("unset", _unset_fields())
@pytest.mark.parametrize(("name", "expected"), _ALWAYS_REQUIRED.items())
def test_unset_nova_fields_add_no_requirements(
    name: str, expected: list[str], unset: str
) -> None:
    fields = _unset_fields()[unset]
    spec = objects.RequestSpec(flavor=nova_flavor(), **fields)
    decision = pipeline_of(name).apply(spec)
    assert [item.trait for item in decision.requirements] == expected


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
_NO_OBJECT = (
    "it is not an object with fields; os_prefilter.adapters.from_json reads"
    " JSON"
)
_REFUSED: list[tuple[object, str]] = [
    (None, _NO_OBJECT),
    ({"flavor": {}}, _NO_OBJECT),
    (
        "m1.small",
        "it is of the type str, with none of the fields flavor, image[.;]",
    ),
    ([_SPEC(Flavor())], "it is of the type list"),
    (RequestSpec, "it is not an object with fields"),
    (Flavor(), "it is of the type Flavor"),
    (nova_flavor(), "it is of the type Flavor"),
    (objects.ImageMeta(), "it is of the type ImageMeta"),
    (_PLAIN(), "it is of the type SimpleNamespace"),
    (
        _PLAIN(flavour=Flavor(), image=None),
        "it has no field flavor; 'flavour' may be meant for flavor",
    ),
    (
        _PLAIN(flavor=Flavor(), img=Image()),
        "it has no field image; 'img' may be meant for image",
    ),
    (
        _PLAIN(flavor=_PLAIN(extra_spec={})),
        (
            "its flavor is of the type SimpleNamespace, with none of the"
            " fields extra_specs, .*; 'extra_spec' may"
        ),
    ),
    (
        _PLAIN(image=_PLAIN(property={})),
        (
            "its image is of the type SimpleNamespace, with none of the fields"
            " properties, .*; 'property' may"
        ),
    ),
    (
        _PLAIN(flavor=Flavor(), image_meta=Image()),
        "it has no field image, but image_meta; rename it",
    ),
    (
        _PLAIN(flavor=Flavor(), image_ref="x"),
        "it has no field image, but image_ref",
    ),
    (
        _SPEC(Flavor(), SdkImage(hw_vif_model="igb", disk_format="raw")),
        "its image has 'hw_vif_model' beside its properties",
    ),
    (_SPEC(Image(), Flavor()), "its image is of the type Flavor"),
    (_SPEC({"vcpus": 1}), "its flavor is of the type dict"),
    (
        _SPEC(_FLAVOR(extra_specs=["trait:X"])),
        "its flavor's extra_specs are a list",
    ),
    (
        _SPEC(Flavor(), {"hw_vif_model": "igb"}),
        "its image is of the type dict",
    ),
    (
        _SPEC(Flavor(), _IMAGE("hw_vif_model=igb")),
        "its image's properties are a str",
    ),
    (
        _SPEC(Flavor(), requested_destination={"in_tree": "x"}),
        "its requested_destination is of the type dict",
    ),
    (
        _SPEC(Flavor(), requested_resources=[{"requester_id": "1"}]),
        "one of its requested_resources is of the type dict",
    ),
    (
        _SPEC(Flavor(), requested_networks=[{"port_id": "1"}]),
        "one of its requested_networks is of the type dict",
    ),
    (
        _PLAIN(flavor=Flavor(), image=None, requested_ressources=[]),
        "it has no field requested_resources; 'requested_",
    ),
    (
        _PLAIN(flavor=Flavor(), image=None, scheduler_hint={}),
        "it has no field scheduler_hints; 'scheduler_hint' may",
    ),
    (
        _PLAIN(flavor=_PLAIN(extra_specs={}, vcpus=1, ram=512)),
        "its flavor has no field memory_mb; 'ram' may be meant",
    ),
    (
        _SPEC(SdkFlavor(vcpus=1, ram=512, disk=1), None),
        "its flavor has no field [a-z]+_[a-z]+; '[a-z]+' may be meant",
    ),
    (
        _PLAIN(image=_PLAIN(properties={}, disk_fromat="raw")),
        "its image has no field disk_format; 'disk_fromat' may",
    ),
    (
        _SPEC(Flavor(), request_level_params={"root_required": {"X"}}),
        "its request_level_params is of the type dict",
    ),
    (
        _SPEC(
            Flavor(),
            request_level_params=_PLAIN(root_require={"X"}, same_subtree=[]),
        ),
        "its .* has no field root_required",
    ),
    (
        _SPEC(
            Flavor(),
            requested_destination=_PLAIN(aggregats=["x"], in_tree=None),
        ),
        "its requested_destination has no field aggregates; 'aggregats' may",
    ),
    (
        _SPEC(
            Flavor(),
            requested_resources=[
                _PLAIN(requester_id="1", resources={}, required_trait={"X"})
            ],
        ),
        (
            "one of its requested_resources has no field required_traits;"
            " 'required_trait' may"
        ),
    ),
    (
        _SPEC(
            Flavor(), requested_networks=[_PLAIN(port_id="1", network_i="1")]
        ),
        (
            "one of its requested_networks has no field network_id;"
            " 'network_i' may"
        ),
    ),
    (
        _SPEC(
            Flavor(), requested_networks=[_PLAIN(port_id="1", subnet_i="1")]
        ),
        (
            "one of its requested_networks has no field subnet_id; 'subnet_i'"
            " may"
        ),
    ),
    (
        _SPEC(
            Flavor(), requested_networks=[_PLAIN(port_id="1", vnic_typ="1")]
        ),
        (
            "one of its requested_networks has no field vnic_type; 'vnic_typ'"
            " may"
        ),
    ),
    (
        _SPEC(_PLAIN(vcpus=1, ephemeral_g=1)),
        "its flavor has no field ephemeral_gb; 'ephemeral_g' may",
    ),
    (
        _SPEC(
            Flavor(), requested_destination=_PLAIN(aggregates=[], in_tre="x")
        ),
        "its requested_destination has no field in_tree; 'in_tre' may",
    ),
    (objects.RequestSpec(), "it has no flavor"),
    (_SPEC(None, Image({"hw_vif_model": "igb"})), "it has no flavor"),
    (_PLAIN(image=Image({"hw_vif_model": "igb"})), "it has no flavor"),
    (
        _SPEC(Flavor(), scheduler_hints=["group=a"]),
        "its scheduler_hints are a list, not a mapping",
    ),
    (
        _SPEC(Flavor(), scheduler_hints="group=a"),
        "its scheduler_hints are a str, not a mapping",
    ),
]


@Declaration(reads=("networks", "scheduler_hints"))
def _reads_all(request: Request) -> Requirements:
    for name in ("requested_groups", "networks", "scheduler_hints"):
        getattr(request, name)
    return NOTHING


@pytest.mark.parametrize(
    ("thing", "problem"),
    _REFUSED,
    ids=[problem for _, problem in _REFUSED],
)
def test_object_that_is_not_a_request_spec_is_refused(
    thing: object, problem: str
) -> None:
    """It would ask for nothing, and every host would do."""
    service = Service((as_filter("reads_all", _reads_all),))
    kind = type(thing).__name__
    message = f"A {kind} is no RequestSpec that filters can work on: {problem}"
    with pytest.raises(UnsuitableRequestSpec, match=message):
        service.apply(thing)


class _NotLoaded:
    disk_format = "raw"
    hw_vif_model = property(attrgetter("not_loaded"))


class _WithMethod:
    flavor = Flavor()

    def get_scheduler_hint(self) -> None:
        """Nova's has it, too."""


_PARTIAL: dict[str, object] = {
    "flavor alone": _PLAIN(flavor=Flavor()),
    "read-only properties": _PLAIN(
        flavor=Flavor(),
        image=Image(MappingProxyType({"hw_vif_model": "igb"})),
    ),
    "image not loaded": _PLAIN(flavor=Flavor(), image=_NotLoaded()),
    "image_ref with an image": _PLAIN(
        flavor=Flavor(), image=None, image_ref="x"
    ),
    "fields of Nova": _PLAIN(
        flavor=Flavor(), requested_networks=[], project_id="x", image_id="x"
    ),
    "with a method": _WithMethod(),
    "plain flavor and image": _PLAIN(
        flavor=_PLAIN(vcpus=1), image=_PLAIN(disk_format="raw")
    ),
    "Nova's with a flavor alone": objects.RequestSpec(flavor=nova_flavor()),
    "mock": mock.MagicMock(
        flavor=Flavor(),
        image=None,
        requested_resources=[],
        request_level_params=None,
    ),
}


@pytest.mark.parametrize("spec", _PARTIAL.values(), ids=_PARTIAL)
def test_object_with_a_part_of_the_fields_is_read(spec: object) -> None:
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


@pytest.mark.parametrize(
    ("flavor", "expected"),
    [
        (Flavor(3, 512, swap=1), [512, 1, True]),
        (None, [None, None, True]),
        (_PLAIN(memory_mb=512), [512, None, False]),
        (_PLAIN(ram=512), [512, None, False]),
    ],
    ids=["all fields", "no object", "one field", "under another name"],
)
def test_fields_of_a_part_are_read_with_whether_it_has_all(
    flavor: object, expected: list[object]
) -> None:
    readers = PartReaders(Flavor, ("ram", "swap"), {"ram": "memory_mb"})
    assert list(readers[type(flavor)](flavor)) == expected


def test_nova_object_with_unset_fields_has_all_fields() -> None:
    params = objects.RequestLevelParams(root_required={"X"})
    readers = PartReaders(Flavor, tuple(params.fields))
    assert list(readers[type(params)](params))[-1] is True


def test_field_that_is_not_there_is_read_as_empty() -> None:
    group = _PLAIN(requester_id="p")
    request = Request(_PLAIN(flavor=Flavor(), requested_resources=[group]))
    assert request.networks == ()
    assert request.requested_groups == {
        "p": RequestGroup("p", {}, frozenset(), frozenset(), (), frozenset())
    }


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
