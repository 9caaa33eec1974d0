# SPDX-License-Identifier: Apache-2.0

"""Requests from files: each kind is understood, and each problem says where it
is.
"""

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from nova import objects

from os_prefilter import (
    NetworkRequest,
    RequestSpec,
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
    assert (
        "resources=DISK_GB%3A25%2CMEMORY_MB%3A2048%2CVCPU%3A2"
        in allocation_candidates_query(spec)
    )
    assert spec.image
    assert (spec.image.disk_format, spec.image.name) == ("vmdk", "appliance")


def test_empty_and_null_flavor_fields_of_older_clients_are_accepted() -> None:
    flavor = flavor_from(
        {
            **_FLAVOR,
            "swap": "",
            "OS-FLV-EXT-DATA:ephemeral": None,
            "properties": None,
        },
        "f",
    )
    assert (flavor.swap, flavor.ephemeral_gb, flavor.extra_specs) == (0, 0, {})


def _stored(spec: Any) -> dict[str, Any]:
    """Return what Nova writes into its table request_specs."""
    document: dict[str, Any] = json.loads(json.dumps(spec.obj_to_primitive()))
    return document


def test_project_zone_and_hints_of_a_request_spec_are_read() -> None:
    """Nova keeps each hint as a list; other services may have a single value,
    and null for none.
    """
    fields: dict[str, Any] = {"project_id": "p", "availability_zone": "north"}
    plain = {
        "flavor": {"vcpus": 1},
        **fields,
        "scheduler_hints": {"group": "g", "x": None},
    }
    for document in (
        _stored(
            nova_spec(**fields, scheduler_hints={"group": ["g"], "x": []})
        ),
        plain,
    ):
        read = request_spec_from(document, "the request")
        assert (read.project_id, read.availability_zone) == ("p", "north")
        assert read.scheduler_hints == {"group": ["g"], "x": []}
    bare = request_spec_from(
        {"flavor": {"vcpus": 1}, "scheduler_hints": None}, "the request"
    )
    assert (bare.project_id, bare.availability_zone, bare.scheduler_hints) == (
        None,
        None,
        {},
    )
    with pytest.raises(
        DocumentError,
        match=(
            r"scheduler_hints\.group is a mapping; expected a string, or a"
            r" list of"
        ),
    ):
        request_spec_from(
            {"flavor": {"vcpus": 1}, "scheduler_hints": {"group": {"a": "b"}}},
            "the request",
        )


def test_request_spec_stored_by_nova_gives_the_same_requirements_and_query_as_the_object() -> (
    None
):
    """PCI requests and image traits included."""
    uuid = "11111111-1111-4111-8111-111111111111"
    request = objects.InstancePCIRequest(
        count=1, request_id=uuid, alias_name="gpu", spec=[{}]
    )
    properties = {
        "hw_vif_model": "e1000e",
        "hw_time_hpet": "true",
        "trait:HW_CPU_X86_AVX2": "required",
    }
    pci = objects.InstancePCIRequests(requests=[request])
    spec = nova_spec(
        properties, {"resources:VGPU": "1"}, pci_requests=pci, is_bfv=False
    )
    document, pipeline = (
        _stored(spec),
        pipeline_of("image_metadata", "hpet", "owner", "image_type"),
    )
    for each in (
        document,
        {"id": 1, "instance_uuid": "x", "spec": json.dumps(document)},
    ):
        read, again = request_spec_from(each, "r"), spec.obj_clone()
        assert read.pci_request_ids == {uuid}
        assert (
            pipeline.apply(read).requirements
            == pipeline.apply(again).requirements
        )
        assert allocation_candidates_query(
            read
        ) == allocation_candidates_query(again)


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
    assert (
        unquote(allocation_candidates_query(spec, None))
        == f"member_of=!in:{_UUID}3&member_of=in:{_UUID}1,{_UUID}2&requiredp=OWNER_NOVA&resources=MEMORY_MB:512,VCPU:1"
        "&resourcesp=VGPU:1&root_required=COMPUTE_NODE&same_subtree=p,q"
    )


_CELL = objects.CellMapping(
    uuid=f"{_UUID}1",
    name="cell1",
    transport_url="rabbit://",
    database_connection="mysql://",
)


@pytest.mark.parametrize(
    ("destination", "exists"),
    [
        (objects.Destination(cell=_CELL), True),
        (objects.Destination(allow_cross_cell_move=True), True),
        (objects.Destination(aggregates=[f"{_UUID}1"]), False),
    ],
    ids=["in its cell", "into another cell", "new"],
)
def test_cell_of_a_stored_request_says_that_the_server_exists(
    destination: Any, exists: bool
) -> None:
    spec = nova_spec(requested_destination=destination)
    read = request_spec_from(_stored(spec), "r")
    assert (Request(spec).server_exists, Request(read).server_exists) == (
        exists,
        exists,
    )
    assert read.requested_destination is not None
    assert read.requested_destination.cell in (
        f"{_UUID}1",
        "of the server",
        None,
    )


@pytest.mark.parametrize(
    ("cell", "expected"),
    [("c", "c"), ({"name": "c"}, "of the server"), ({}, None), ("", None)],
)
def test_cell_in_the_plain_form_is_read(
    cell: object, expected: str | None
) -> None:
    read = request_spec_from(
        {
            "flavor": {"vcpus": 1},
            "requested_destination": {"cell": cell, "in_tree": None},
        },
        "r",
    )
    assert read.requested_destination is not None
    assert read.requested_destination.cell == expected


def test_missing_special_or_too_large_file_is_refused_with_the_reason(
    tmp_path: Path,
) -> None:
    with (tmp_path / "large.json").open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    for path, message in (
        ("/no/such/file", "no such file"),
        ("/", "is a directory"),
        ("/dev/zero", "a named pipe, a socket or a device"),
        ("a\0b", "cannot be read"),
        (tmp_path / "large.json", "larger than 64 MiB"),
    ):
        with pytest.raises(DocumentError, match=message):
            read_json(path)


def test_properties_of_a_flavor_count_beside_empty_extra_specs() -> None:
    values: list[Any] = [{}, None, ""]
    for empty in values:
        document = {
            "flavor": {
                "extra_specs": empty,
                "properties": {"hw:viommu_model": "intel"},
            }
        }
        assert request_spec_from(document, "r.json").flavor.extra_specs == {
            "hw:viommu_model": "intel"
        }


def _with_group(**fields: Any) -> dict[str, Any]:
    return {
        "flavor": {},
        "requested_resources": [{"requester_id": "p", **fields}],
    }


_WRONG: list[tuple[dict[str, Any], str | None]] = [
    ({}, "no flavor in it"),
    ({"flavour": {}}, "it has no flavor, but 'flavour'. Correct the name."),
    ({"flavor": {}, "img": {}}, "it has no image, but 'img'"),
    ({"flavor": {}, "image_id": "x", "imagemeta": {}}, None),
    (
        {"flavor": {}, "image_meta": {"properties": {"a": "b"}}},
        "it has no image, but image_meta. Rename it",
    ),
    ({"flavor": {}, "image": None, "image_ref": "x"}, None),
    (
        {"flavor": {}, "image": {"disk_format": "raw", "hw_vif_model": "igb"}},
        "image: 'hw_vif_model' stands beside",
    ),
    (
        {"flavor": {"extra_spec": {}}},
        "flavor: it has no extra_specs, but 'extra_spec'",
    ),
    (
        {"flavor": {"vcpu": 1, "ram": 512}},
        "flavor: it has no vcpus, but 'vcpu'",
    ),
    (
        {"flavor": {}, "requested_ressources": []},
        "it has no requested_resources, but 'requested_ressources'",
    ),
    (
        {
            "flavor": {},
            "requested_networks": [],
            "requested_destination": None,
        },
        None,
    ),
    (
        {"flavor": {}, "scheduler_hints": ["a"]},
        "scheduler_hints is a list; expected names with values",
    ),
    (
        {"flavor": {}, "scheduler_hint": {}},
        "it has no scheduler_hints, but 'scheduler_hint'",
    ),
    (
        _with_group(required_trait=["X"]),
        "group 'p': it has no required_traits, but 'required_trait'",
    ),
    (_with_group(forbidden_aggregates=["x"]), None),
    ({"flavor": 7}, "flavor is 7; expected names"),
    ({"flavor": {"vcpus": True}}, "flavor.vcpus is true"),
    ({"flavor": {"vcpus": -1}}, "flavor.vcpus is -1"),
    (
        {"flavor": {"extra_specs": {"a": 1}}},
        "flavor.extra_specs.a is 1; expected a string",
    ),
    ({"flavor": {"extra_specs": []}}, None),
    ({"flavor": {"extra_specs": "a='b'"}}, "flavor.extra_specs is \"a='b'\""),
    (
        {"flavor": {}, "image": {"properties": "hw_vif_model='e1000'"}},
        "image.properties is",
    ),
    (
        {"flavor": {}, "image": {"properties": {"traits_required": "X"}}},
        "traits_required is 'X'; expected a list",
    ),
    ({"flavor": {}, "is_bfv": "no"}, "is_bfv is 'no'"),
    (
        {"flavor": {}, "requested_resources": {"a": 1}},
        "requested_resources is a mapping; expected a list",
    ),
    (
        {"flavor": {}, "requested_resources": [{}]},
        r"requested_resources\[0\] has no requester_id",
    ),
    (
        _with_group(required_traits=[1]),
        r"required_traits\[0\] is 1; expected a string",
    ),
    (
        {"flavor": {}, "pci_requests": {"requests": [1]}},
        "pci_requests.requests\\[0\\] is 1",
    ),
    (
        {"spec": '{"flavor": {}, "flavor": null}'},
        "spec: not JSON: .*the key 'flavor' is given twice",
    ),
]


def test_field_of_the_wrong_type_is_refused_and_named() -> None:
    for document, message in _WRONG:
        if message is None:
            assert (
                request_spec_from(document, "r.json").flavor.extra_specs == {}
            )
        else:
            with pytest.raises(DocumentError, match=f"^r.json: .*{message}"):
                request_spec_from(document, "r.json")
    # What a tenant wrote is escaped and cut.
    for name in ("a\nb", "\x9b31m", "\u2028", "x" * 5_000):
        with pytest.raises(DocumentError) as caught:
            request_spec_from(_with_group(resources={name: {}}), "r.json")
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "form", [lambda items: items, lambda items: {"objects": items}]
)
def test_requested_networks_are_read_as_a_list_and_as_nova_writes_its_objects(
    form: Any,
) -> None:
    items = [
        {"network_id": "n", "port_id": None},
        {"port_id": "p", "subnet_id": "s", "vnic_type": "normal", "tag": None},
    ]
    spec = request_spec_from(
        {"flavor": {"vcpus": 1}, "requested_networks": form(items)},
        "the request",
    )
    assert spec.requested_networks == [
        NetworkRequest("n"),
        NetworkRequest(None, "p", "s", "normal"),
    ]
    with pytest.raises(
        DocumentError, match=r"requested_networks.*network_id is 5"
    ):
        request_spec_from(
            {
                "flavor": {"vcpus": 1},
                "requested_networks": form([{"network_id": 5}]),
            },
            "the request",
        )


_OPTIONAL = """image is_bfv requested_resources pci_requests requested_destination request_level_params scheduler_hints
    requested_networks project_id availability_zone"""


@pytest.mark.parametrize("name", _OPTIONAL.split())
@pytest.mark.parametrize(
    "empty", [None, {}, []], ids=["null", "mapping", "list"]
)
def test_request_spec_with_an_empty_field_is_read_and_can_be_scheduled_or_is_refused(
    name: str, empty: object
) -> None:
    """An empty mapping was taken for the destination itself."""
    try:
        spec = request_spec_from(
            {"flavor": {"vcpus": 1, "ram": 512}, name: empty}, "FILE"
        )
    except DocumentError as error:
        assert name in str(error)
        return
    pipeline_of("image_metadata", "availability_zone").apply(spec)
    assert allocation_candidates_query(spec)
