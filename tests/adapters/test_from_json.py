# SPDX-License-Identifier: Apache-2.0

"""Requests from files: each form is read, and each problem says where it is."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from nova import objects

from os_prefilter import (
    NetworkRequest,
    RequestSpec,
    ServerOptions,
    allocation_candidates_query,
)
from os_prefilter.adapters.from_json import (
    flavor_from,
    image_from,
    read_json,
    request_spec_from,
)
from os_prefilter.common.errors import DocumentError
from os_prefilter.documents.files import MAX_BYTES
from os_prefilter.request.view import Request
from tests.conftest import device_required_by, pipeline_of
from tests.support.nova_objects import nova_spec

_UUID = "33333333-3333-4333-8333-33333333333"
# What openstackclient 8 prints, shortened.
_IMAGE: dict[str, Any] = {
    "container_format": "bare",
    "disk_format": "vmdk",
    "id": "6c1f",
    "min_disk": 0,
    "name": "appliance",
    "properties": {
        "hw_vif_model": "e1000e",
        "os_hidden": False,
        "stores": "file",
        "trait:HW_CPU_X86_AVX2": "required",
    },
    "protected": False,
    "tags": [],
    "visibility": "public",
}
_FLAVOR: dict[str, Any] = {
    "OS-FLV-DISABLED:disabled": False,
    "OS-FLV-EXT-DATA:ephemeral": 5,
    "access_project_ids": None,
    "disk": 20,
    "id": "1",
    "name": "m1.small",
    "os-flavor-access:is_public": True,
    "properties": {"hw:sound_model": "ac97"},
    "ram": 2048,
    "rxtx_factor": 1.0,
    "swap": 0,
    "vcpus": 2,
}


def test_openstackclient_image_and_flavor_json_is_read_as_a_request() -> None:
    spec = RequestSpec(flavor_from(_FLAVOR, "f"), image_from(_IMAGE, "i"))
    assert device_required_by("image_metadata", spec) == [
        ("COMPUTE_NET_VIF_MODEL_E1000E", True, "root"),
        ("COMPUTE_SOUND_MODEL_AC97", True, "root"),
    ]
    resources = "resources=DISK_GB%3A25%2CMEMORY_MB%3A2048%2CVCPU%3A2"
    assert resources in allocation_candidates_query(spec)
    assert spec.image
    assert spec.image.disk_format == "vmdk"
    assert spec.image.name == "appliance"


def test_empty_and_null_flavor_fields_of_older_clients_are_accepted() -> None:
    empty = {
        "swap": "",
        "OS-FLV-EXT-DATA:ephemeral": None,
        "properties": None,
    }
    flavor = flavor_from(_FLAVOR | empty, "f")
    assert flavor.swap == 0
    assert flavor.ephemeral_gb == 0
    assert flavor.extra_specs == {}


def _request(**fields: object) -> dict[str, Any]:
    """Return a request in the plain form."""
    return {"flavor": {"vcpus": 1}, **fields}


def _stored(spec: Any) -> dict[str, Any]:
    """Return what Nova writes into its table request_specs."""
    document: dict[str, Any] = json.loads(json.dumps(spec.obj_to_primitive()))
    return document


_NORTH: dict[str, Any] = {"project_id": "p", "availability_zone": "north"}


@pytest.mark.parametrize(
    "document",
    [
        _stored(
            nova_spec(**_NORTH, scheduler_hints={"group": ["g"], "x": []})
        ),
        _request(**_NORTH, scheduler_hints={"group": "g", "x": None}),
    ],
    ids=["Nova's, each hint a list", "plain"],
)
def test_project_zone_and_hints_of_a_request_spec_are_read(
    document: dict[str, Any],
) -> None:
    read = request_spec_from(document, "the request")
    assert read.project_id == "p"
    assert read.availability_zone == "north"
    assert read.scheduler_hints == {"group": ["g"], "x": []}


def test_project_zone_and_hints_may_be_missing() -> None:
    read = request_spec_from(_request(scheduler_hints=None), "the request")
    assert read.project_id is None
    assert read.availability_zone is None
    assert read.scheduler_hints == {}


def test_hint_that_is_a_mapping_is_refused() -> None:
    document = _request(scheduler_hints={"group": {"a": "b"}})
    problem = (
        r"scheduler_hints\.group is a mapping; expected a string, or a list of"
    )
    with pytest.raises(DocumentError, match=problem):
        request_spec_from(document, "the request")


_PCI_ID = "11111111-1111-4111-8111-111111111111"


def _spec_with_a_pci_request() -> Any:
    request = objects.InstancePCIRequest(
        count=1, request_id=_PCI_ID, alias_name="gpu", spec=[{}]
    )
    return nova_spec(
        {
            "hw_vif_model": "e1000e",
            "hw_time_hpet": "true",
            "trait:HW_CPU_X86_AVX2": "required",
        },
        {"resources:VGPU": "1"},
        pci_requests=objects.InstancePCIRequests(requests=[request]),
        is_bfv=False,
    )


def _in_a_row_of_the_database(document: dict[str, Any]) -> dict[str, Any]:
    return {"id": 1, "instance_uuid": "x", "spec": json.dumps(document)}


@pytest.mark.parametrize(
    "document",
    [
        _stored(_spec_with_a_pci_request()),
        _in_a_row_of_the_database(_stored(_spec_with_a_pci_request())),
    ],
    ids=["object", "row of the database"],
)
def test_request_spec_stored_by_nova_gives_the_same_requirements_and_query_as_the_object(
    document: dict[str, Any],
) -> None:
    """PCI requests and image traits included."""
    spec = _spec_with_a_pci_request()
    read = request_spec_from(document, "r")
    assert read.pci_request_ids == {_PCI_ID}
    pipeline = pipeline_of("image_metadata", "hpet", "owner", "image_type")
    requirements = pipeline.apply(read).requirements
    assert requirements == pipeline.apply(spec).requirements
    query = allocation_candidates_query(read)
    assert query == allocation_candidates_query(spec)


def test_plain_json_request_is_translated_into_the_placement_query() -> None:
    spec = request_spec_from(
        {
            "flavor": {"vcpus": 1, "memory_mb": 512},
            "is_bfv": True,
            "requested_resources": [
                {
                    "requester_id": "p",
                    "resources": {"VGPU": 1},
                    "required_traits": ["OWNER_NOVA"],
                }
            ],
            "request_level_params": {
                "root_required": ["COMPUTE_NODE"],
                "same_subtree": [["p", "q"]],
            },
            "requested_destination": {
                "aggregates": [f"{_UUID}1,{_UUID}2"],
                "forbidden_aggregates": [f"{_UUID}3"],
            },
        },
        "r",
    )
    assert spec.image is None
    query = unquote(allocation_candidates_query(spec, None))
    assert query.split("&") == [
        f"member_of=!in:{_UUID}3",
        f"member_of=in:{_UUID}1,{_UUID}2",
        "requiredp=OWNER_NOVA",
        "resources=MEMORY_MB:512,VCPU:1",
        "resourcesp=VGPU:1",
        "root_required=COMPUTE_NODE",
        "same_subtree=p,q",
    ]


_CELL = objects.CellMapping(
    uuid=f"{_UUID}1",
    name="cell1",
    transport_url="rabbit://",
    database_connection="mysql://",
)


@pytest.mark.parametrize(
    ("destination", "exists", "cell"),
    [
        (objects.Destination(cell=_CELL), True, f"{_UUID}1"),
        (
            objects.Destination(allow_cross_cell_move=True),
            True,
            "of the server",
        ),
        (objects.Destination(aggregates=[f"{_UUID}1"]), False, None),
    ],
    ids=["in its cell", "into another cell", "new"],
)
def test_cell_of_a_stored_request_says_that_the_server_exists(
    destination: Any, exists: bool, cell: str | None
) -> None:
    spec = nova_spec(requested_destination=destination)
    read = request_spec_from(_stored(spec), "r")
    assert Request(spec).server_exists == exists
    assert Request(read).server_exists == exists
    assert read.requested_destination is not None
    assert read.requested_destination.cell == cell


@pytest.mark.parametrize(
    ("cell", "expected"),
    [("c", "c"), ({"name": "c"}, "of the server"), ({}, None), ("", None)],
)
def test_cell_in_the_plain_form_is_read(
    cell: object, expected: str | None
) -> None:
    destination = {"cell": cell, "in_tree": None}
    read = request_spec_from(_request(requested_destination=destination), "r")
    assert read.requested_destination is not None
    assert read.requested_destination.cell == expected


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("/no/such/file", "no such file"),
        ("/", "is a directory"),
        ("/dev/zero", "a named pipe, a socket or a device"),
        ("a\0b", "cannot be read"),
    ],
    ids=["missing", "directory", "device", "NUL"],
)
def test_path_that_is_no_file_is_refused_with_the_reason(
    path: str, problem: str
) -> None:
    with pytest.raises(DocumentError, match=problem):
        read_json(path)


def test_too_large_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "large.json"
    with path.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(DocumentError, match="larger than 64 MiB"):
        read_json(path)


@pytest.mark.parametrize("empty", [{}, None, ""])
def test_properties_of_a_flavor_count_where_its_extra_specs_are_empty(
    empty: object,
) -> None:
    properties = {"hw:viommu_model": "intel"}
    flavor = {"extra_specs": empty, "properties": properties}
    spec = request_spec_from({"flavor": flavor}, "r.json")
    assert spec.flavor.extra_specs == properties


def _with_group(**fields: Any) -> dict[str, Any]:
    return {
        "flavor": {},
        "requested_resources": [{"requester_id": "p", **fields}],
    }


_WRONG: dict[str, dict[str, Any]] = {
    "no flavor in it": {},
    "it has no flavor, but 'flavour'. Correct the name.": {"flavour": {}},
    "it has no image, but 'img'": {"flavor": {}, "img": {}},
    "it has no image, but image_meta. Rename it": {
        "flavor": {},
        "image_meta": {"properties": {"a": "b"}},
    },
    "image: 'hw_vif_model' is not among": {
        "flavor": {},
        "image": {"disk_format": "raw", "hw_vif_model": "igb"},
    },
    "flavor: it has no extra_specs, but 'extra_spec'": {
        "flavor": {"extra_spec": {}}
    },
    "flavor: it has no vcpus, but 'vcpu'": {"flavor": {"vcpu": 1, "ram": 512}},
    "it has no requested_resources, but 'requested_ressources'": {
        "flavor": {},
        "requested_ressources": [],
    },
    "scheduler_hints is a list; expected names with values": {
        "flavor": {},
        "scheduler_hints": ["a"],
    },
    "it has no scheduler_hints, but 'scheduler_hint'": {
        "flavor": {},
        "scheduler_hint": {},
    },
    "group 'p': it has no required_traits, but 'required_trait'": _with_group(
        required_trait=["X"]
    ),
    "flavor is 7; expected names": {"flavor": 7},
    "flavor.vcpus is true": {"flavor": {"vcpus": True}},
    "flavor.vcpus is -1": {"flavor": {"vcpus": -1}},
    "flavor.extra_specs.a is 1; expected a string": {
        "flavor": {"extra_specs": {"a": 1}}
    },
    "flavor.extra_specs is \"a='b'\"": {"flavor": {"extra_specs": "a='b'"}},
    "image.properties is": {
        "flavor": {},
        "image": {"properties": "hw_vif_model='e1000'"},
    },
    "traits_required is 'X'; expected a list": {
        "flavor": {},
        "image": {"properties": {"traits_required": "X"}},
    },
    "is_bfv is 'no'": {"flavor": {}, "is_bfv": "no"},
    "requested_resources is a mapping; expected a list": {
        "flavor": {},
        "requested_resources": {"a": 1},
    },
    r"requested_resources\[0\] has no requester_id": {
        "flavor": {},
        "requested_resources": [{}],
    },
    r"required_traits\[0\] is 1; expected a string": _with_group(
        required_traits=[1]
    ),
    "pci_requests.requests\\[0\\] is 1": {
        "flavor": {},
        "pci_requests": {"requests": [1]},
    },
    "spec: not JSON: .*the key 'flavor' is given twice": {
        "spec": '{"flavor": {}, "flavor": null}'
    },
}


@pytest.mark.parametrize(("problem", "document"), _WRONG.items(), ids=_WRONG)
def test_field_of_the_wrong_name_or_type_is_refused_and_named(
    problem: str, document: dict[str, Any]
) -> None:
    with pytest.raises(DocumentError, match=f"^r.json: .*{problem}"):
        request_spec_from(document, "r.json")


@pytest.mark.parametrize(
    "document",
    [
        {"flavor": {}, "image_id": "x", "imagemeta": {}},
        {"flavor": {}, "image": None, "image_ref": "x"},
        {
            "flavor": {},
            "requested_networks": [],
            "requested_destination": None,
        },
        _with_group(forbidden_aggregates=["x"]),
        {"flavor": {"extra_specs": []}},
    ],
    ids=[
        "no spelling mistake",
        "image_ref",
        "empty fields",
        "forbidden aggregates",
        "empty list",
    ],
)
def test_field_that_may_be_empty_or_another_services_is_read(
    document: dict[str, Any],
) -> None:
    spec = request_spec_from(document, "r.json")
    assert spec.flavor.extra_specs == {}


@pytest.mark.parametrize(
    "name",
    ["a\nb", "\x9b31m", "\u2028", "x" * 5_000],
    ids=["line break", "escape sequence", "line separator", "long"],
)
def test_text_of_a_tenant_in_an_error_is_escaped_and_cut(name: str) -> None:
    document = _with_group(resources={name: {}})
    with pytest.raises(DocumentError) as caught:
        request_spec_from(document, "r.json")
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300


_AS_LIST_AND_OBJECTS = pytest.mark.parametrize(
    "form",
    [list, lambda items: {"objects": items}],
    ids=["list", "Nova's objects"],
)


@_AS_LIST_AND_OBJECTS
def test_requested_networks_are_read_as_a_list_and_as_nova_writes_its_objects(
    form: Any,
) -> None:
    items = [
        {"network_id": "n", "port_id": None},
        {"port_id": "p", "subnet_id": "s", "vnic_type": "normal", "tag": "t"},
    ]
    document = _request(requested_networks=form(items))
    spec = request_spec_from(document, "the request")
    assert spec.requested_networks == [
        NetworkRequest("n"),
        NetworkRequest(None, "p", "s", "normal", "t"),
    ]


@_AS_LIST_AND_OBJECTS
def test_requested_network_with_a_field_of_the_wrong_type_is_refused(
    form: Any,
) -> None:
    document = _request(requested_networks=form([{"network_id": 5}]))
    problem = r"requested_networks.*network_id is 5"
    with pytest.raises(DocumentError, match=problem):
        request_spec_from(document, "the request")


def test_server_options_are_read() -> None:
    document = _request(server_options={"nic_tag": True, "shares": False})
    spec = request_spec_from(document, "the request")
    assert spec.server_options == ServerOptions(nic_tag=True)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"share": True}, "unknown key 'share'; did you mean shares?"),
        ({"shares": "yes"}, "server_options.shares is 'yes'"),
        (["shares"], "server_options is "),
    ],
    ids=["unknown", "another type", "list"],
)
def test_server_options_of_another_form_are_refused(
    options: object, problem: str
) -> None:
    document = _request(server_options=options)
    with pytest.raises(DocumentError, match=re.escape(problem)):
        request_spec_from(document, "the request")


_OPTIONAL = """image is_bfv requested_resources pci_requests requested_destination request_level_params scheduler_hints
    requested_networks server_options project_id availability_zone"""


@pytest.mark.parametrize("name", _OPTIONAL.split())
@pytest.mark.parametrize(
    "empty", [None, {}, []], ids=["null", "mapping", "list"]
)
def test_request_spec_with_an_empty_field_is_read_and_can_be_scheduled_or_is_refused(
    name: str, empty: object
) -> None:
    """An empty mapping was taken for the destination itself."""
    document = {"flavor": {"vcpus": 1, "ram": 512}, name: empty}
    try:
        spec = request_spec_from(document, "FILE")
    except DocumentError as error:
        assert name in str(error)
        return
    pipeline_of("image_metadata", "availability_zone").apply(spec)
    assert allocation_candidates_query(spec)
