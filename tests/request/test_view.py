# SPDX-License-Identifier: Apache-2.0

"""The view reads Nova's objects, fields unset or not, and ours alike, and
changes neither.
"""

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

_ALL = (
    *(
        "image_metadata",
        "hpet",
        "owner",
        "deploy_config",
        "image_type",
        "compute_status",
        "accelerators",
    ),
    *(
        "packed_virtqueue",
        "ephemeral_encryption",
        "sound_model",
        "tpm_secret_security",
    ),
)


@pytest.mark.parametrize("name", _ALL)
def test_unset_nova_fields_add_no_requirements(name: str) -> None:
    expected = {
        "owner": ["OWNER_NOVA"],
        "compute_status": ["COMPUTE_STATUS_DISABLED"],
    }
    for fields in (
        {},
        {"image": None},
        {"image": objects.ImageMeta()},
        {"image": objects.ImageMeta(properties=objects.ImageMetaProps())},
        {
            "image": None,
            "is_bfv": True,
            "pci_requests": None,
            "requested_resources": None,
        },
    ):
        found = (
            pipeline_of(name)
            .apply(objects.RequestSpec(flavor=nova_flavor(), **fields))
            .requirements
        )
        assert [item.trait for item in found] == expected.get(name, []), fields


def test_reading_the_request_view_lazy_loads_no_nova_field() -> None:
    spec = objects.RequestSpec(flavor=nova_flavor(), image=None)
    before = nova_base.obj_to_primitive(spec)
    request = Request(spec)
    _ = (
        request.pci_request_ids,
        request.requested_groups,
        request.image_traits,
        request.flavor_groups,
    )
    _ = (
        request.boots_from_volume,
        request.image_property("hw_vif_model"),
        request.extra_spec("x"),
    )
    allocation_candidates_query(spec)
    assert nova_base.obj_to_primitive(spec) == before


def test_process_reqspec_reads_the_global_configuration() -> None:
    """Nova's signature, on Nova's CONF; nothing is enabled by default."""
    spec = nova_spec({"hw_vif_model": "e1000e"})
    assert process_reqspec(None, spec).requirements == ()
    default_service.use(None)
    cfg.CONF.set_override("enabled_filters", ["image_metadata"], "prefilter")
    assert [
        item.trait for item in process_reqspec(None, spec).requirements
    ] == ["COMPUTE_NET_VIF_MODEL_E1000E"]
    assert spec.root_required == {"COMPUTE_NET_VIF_MODEL_E1000E"}
    default_service.use(pipeline_of("compute_status"))
    process_reqspec(None, spec)
    assert spec.root_forbidden == {"COMPUTE_STATUS_DISABLED"}


_SPEC: Any = RequestSpec
_IMAGE: Any = Image
_FLAVOR: Any = Flavor
_PLAIN = SimpleNamespace
_REFUSED: list[tuple[object, str]] = [
    (
        None,
        (
            "it is not an object with fields; os_prefilter.adapters.from_json"
            " reads JSON"
        ),
    ),
    (
        {"flavor": {}},
        (
            "it is not an object with fields; os_prefilter.adapters.from_json"
            " reads JSON"
        ),
    ),
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
    *(
        (
            _SPEC(
                Flavor(),
                requested_networks=[_PLAIN(port_id="1", **{name[:-1]: "1"})],
            ),
            (
                f"one of its requested_networks has no field {name};"
                f" '{name[:-1]}' may"
            ),
        )
        for name in ("network_id", "subnet_id", "vnic_type")
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


def test_object_that_is_not_a_request_spec_is_refused() -> None:
    """It would ask for nothing, and every host would do."""

    @Declaration(reads=("networks", "scheduler_hints"))
    def reads_all(request: Request) -> Requirements:
        _ = request.requested_groups, request.networks, request.scheduler_hints
        return NOTHING

    for thing, problem in _REFUSED:
        with pytest.raises(
            UnsuitableRequestSpec,
            match=(
                f"A {type(thing).__name__} is no RequestSpec that filters can"
                f" work on: {problem}"
            ),
        ):
            Service((as_filter("reads_all", reads_all),)).apply(thing)


class _NotLoaded:
    disk_format = "raw"
    hw_vif_model = property(attrgetter("of_the_image_service"))


class _WithMethod:
    flavor = Flavor()

    def get_scheduler_hint(self) -> None:
        """Nova's has it, too."""


def test_object_with_a_part_of_the_fields_is_read() -> None:
    for spec in (
        SimpleNamespace(flavor=Flavor()),
        SimpleNamespace(
            flavor=Flavor(),
            image=Image(MappingProxyType({"hw_vif_model": "igb"})),
        ),
        SimpleNamespace(flavor=Flavor(), image=_NotLoaded()),
        SimpleNamespace(flavor=Flavor(), image=None, image_ref="x"),
        SimpleNamespace(
            flavor=Flavor(),
            requested_networks=[],
            project_id="x",
            image_id="x",
        ),
        _WithMethod(),
        SimpleNamespace(
            flavor=SimpleNamespace(vcpus=1),
            image=SimpleNamespace(disk_format="raw"),
        ),
        objects.RequestSpec(flavor=nova_flavor()),
        mock.MagicMock(
            flavor=Flavor(),
            image=None,
            requested_resources=[],
            request_level_params=None,
        ),
    ):
        assert Request(spec).image_traits is not None
    # Under our name or Nova's.
    for name, value in (
        ("pci_request_ids", {"x"}),
        ("pci_requests", _PLAIN(requests=[_PLAIN(request_id="x")])),
    ):
        assert Request(
            _PLAIN(flavor=Flavor(), **{name: value})
        ).pci_request_ids == {"x"}
    readers = PartReaders(Flavor, ("ram", "swap"), {"ram": "memory_mb"})
    for part, expected in (
        (Flavor(3, 512, swap=1), [512, 1, True]),
        (None, [None, None, True]),
        (_PLAIN(memory_mb=512), [512, None, False]),
        (_PLAIN(ram=512), [512, None, False]),
    ):
        assert [*readers[part.__class__](part)] == expected
    params = objects.RequestLevelParams(root_required={"X"})
    assert [*PartReaders(Flavor, (*params.fields,))[params.__class__](params)][
        -1
    ] is True
    request = Request(
        _PLAIN(
            flavor=Flavor(),
            project_id=5,
            requested_resources=[_PLAIN(requester_id="p")],
        )
    )
    assert (request.networks, request.project_id) == ((), "5")
    group = RequestGroup("p", {}, frozenset(), frozenset(), (), frozenset())
    assert request.requested_groups == {"p": group}
    assert not request.is_of_host("p")
    assert not request.is_of_host("q")
    assert Request(
        spec_of(requested_resources=[RequestGroup("p", {"VCPU": 1})])
    ).is_of_host("p")
    # As it is; and nothing else for what libosinfo knows.
    assert Request(spec_of({"x": None})).image_properties == {"x": None}
    assert Request(
        spec_of(), implied={"hw_disk_bus": "virtio"}
    ).image_properties == {"hw_disk_bus": "virtio"}


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
