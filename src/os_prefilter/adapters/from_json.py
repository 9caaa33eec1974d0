# SPDX-License-Identifier: Apache-2.0

"""Read requests from JSON.

The forms are what Nova stores, what the openstack client prints, the bodies of
the APIs, and a plain form of our own.

Each problem is a DocumentError with the file, the place in it, the value and
what was expected.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from os_prefilter.common.errors import DocumentError
from os_prefilter.common.quoting import find_misspelt, quote
from os_prefilter.documents.files import read_bytes
from os_prefilter.documents.schema import find_mistakes, mapping
from os_prefilter.documents.strict_json import parse_json, strict
from os_prefilter.request import spec
from os_prefilter.request.view import (
    GROUP_FIELDS,
    OTHER_IMAGE_NAMES,
    SPEC_FIELDS,
    loose_properties,
)

_NOVA_DATA = "nova_object.data"
# Only that there is one counts.
_SOME_CELL = "of the server"


def _or_empty(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a value that may be left empty.

    Clients print None, "", [] and {} for nothing.
    """
    return {"if": {"enum": [None, "", False, 0, [], {}]}, "else": schema}


def _mapping_of(**properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "expected": "names with values",
    }


def _each(schema: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return dict.fromkeys(names, schema)


_TEXT = {"type": ["string", "null"]}
_STRINGS = _or_empty(
    {"type": "array", "items": {"type": "string", "expected": "a string"}}
)
_STRING_LISTS = _or_empty({"type": "array", "items": _STRINGS})
_NUMBER = {
    "if": {"enum": [None, ""]},
    "else": {
        "type": "integer",
        "minimum": 0,
        "expected": "a whole number of at least 0",
    },
}
_IMAGE = _mapping_of(
    properties=_or_empty(
        _mapping_of(traits_required=_or_empty({"type": "array"}))
    ),
    **_each(_TEXT, "disk_format", "id", "name"),
)
_VOLUME = _mapping_of(
    volume_image_metadata=_or_empty(
        {"if": {"type": "string"}, "else": _mapping_of()}
    ),
    **_each(_TEXT, "id", "name"),
)
_EXTRA_SPECS = _or_empty(
    {
        **_mapping_of(),
        "additionalProperties": {
            "type": "string",
            "expected": "a string, as all extra specs are",
        },
    }
)
_SIZES = {
    "vcpus": ("vcpus",),
    "memory_mb": ("memory_mb", "ram"),
    "root_gb": ("root_gb", "disk"),
    "ephemeral_gb": ("ephemeral_gb", "OS-FLV-EXT-DATA:ephemeral"),
    "swap": ("swap",),
}
"""Field of a flavor -> its names in documents, Nova's first."""
_FLAVOR = _mapping_of(
    **_each(_EXTRA_SPECS, "extra_specs", "properties"),
    **{name: _NUMBER for names in _SIZES.values() for name in names},
    name=_TEXT,
)
_GROUP = {
    **_mapping_of(
        requester_id={"type": "string", "expected": "the suffix of the group"},
        resources=_or_empty(
            {**_mapping_of(), "additionalProperties": _NUMBER}
        ),
        **_each(
            _STRINGS,
            "required_traits",
            "forbidden_traits",
            "forbidden_aggregates",
        ),
        aggregates=_STRING_LISTS,
        in_tree=_TEXT,
    ),
    "required": ["requester_id"],
}
_NETWORK_FIELDS = ("network_id", "port_id", "subnet_id", "vnic_type", "tag")
_NETWORKS = _or_empty(
    {"type": "array", "items": _mapping_of(**_each(_TEXT, *_NETWORK_FIELDS))}
)
_HINT = {
    "if": {"type": ["string", "null"]},
    "else": {
        "type": "array",
        "items": {"type": ["string", "null"]},
        "expected": "a string, or a list of strings",
    },
}
_REQUESTED_NETWORKS = {
    "if": {"type": "object"},
    "then": _mapping_of(objects=_NETWORKS),
    "else": _NETWORKS,
}
_SERVER_OPTIONS = mapping(
    {}, _each({"type": "boolean"}, *spec.ServerOptions._fields)
)
_PCI_REQUESTS = _or_empty({"type": "array", "items": _mapping_of()})
_CELL = _or_empty(
    {
        "type": ["object", "string"],
        "expected": "the cell of a server, or its UUID",
    }
)
_DESTINATION = {
    "if": {"type": "null"},
    "else": _mapping_of(
        **_each(_STRINGS, "aggregates", "forbidden_aggregates"),
        in_tree=_TEXT,
        cell=_CELL,
    ),
}
_LEVEL = _mapping_of(
    **_each(_STRINGS, "root_required", "root_forbidden"),
    same_subtree=_STRING_LISTS,
)
_SPEC = {
    **_mapping_of(
        flavor=_FLAVOR,
        image={"if": {"type": "null"}, "else": _IMAGE},
        is_bfv={"type": ["boolean", "null"]},
        **_each(_TEXT, "project_id", "availability_zone"),
        requested_networks=_REQUESTED_NETWORKS,
        scheduler_hints=_or_empty(
            {**_mapping_of(), "additionalProperties": _HINT}
        ),
        requested_resources=_or_empty({"type": "array", "items": _GROUP}),
        pci_requests=_or_empty(_mapping_of(requests=_PCI_REQUESTS)),
        requested_destination=_DESTINATION,
        request_level_params=_or_empty(_LEVEL),
        server_options=_or_empty(_SERVER_OPTIONS),
    ),
    "required": ["flavor"],
}


# The fields that Glance has for each image (its schema "image").
_IMAGE_FIELDS = """
checksum container_format created_at direct_url disk_format file id locations
min_disk min_ram name os_hash_algo os_hash_value os_hidden owner protected
schema self size status stores tags updated_at virtual_size visibility
"""

# What Cinder keeps of an image next to its properties, and Nova takes out of
# them (nova/block_device.py); Cinder writes the last one itself.
_NO_PROPERTIES = frozenset(
    (
        "image_id",
        "image_name",
        "checksum",
        "container_format",
        "disk_format",
        "min_disk",
        "min_ram",
        "size",
        "signature_verified",
    )
)

_VOLUME_FIELDS = frozenset(("bootable", "volume_image_metadata"))
_MOST_TEXT = 256 * 1024
VOLUME = "a volume"
"""The kind of document that has an image's properties in its metadata."""
_KINDS = (
    # Before all others: in Glance's API a property of any name is among
    # these.
    ("an image", ("disk_format", "container_format")),
    (VOLUME, ("bootable", "size")),
    ("a server", ("flavor", "status")),
    ("a hypervisor", ("hypervisor_hostname",)),
    ("a quota", ("cores",)),
    ("metadata definitions", ("namespace",)),
    ("a file of hosts", ("hosts",)),
    ("a request spec", (_NOVA_DATA,)),
    ("a request spec", ("spec",)),
    ("a request spec", ("flavor",)),
    ("a list of images", ("images",)),
    ("a list of flavors", ("flavors",)),
    ("a list of servers", ("servers",)),
    ("a list of volumes", ("volumes",)),
    ("a flavor", ("ram",)),
    ("a flavor", ("memory_mb",)),
    ("a flavor", ("vcpus",)),
    ("an image", ("disk_format",)),
    (VOLUME, ("volume_image_metadata",)),
    ("a volume backup", ("volume_id", "object_count")),
    ("a volume snapshot", ("volume_id",)),
    # Bodies of the APIs.
    (VOLUME, ("volume",)),
    ("a server", ("server",)),
    ("a volume snapshot", ("snapshot",)),
)
"""What a document is -> the fields that it has; the first that fits."""


def kind_of(document: Mapping[str, Any]) -> str:
    """Return what a document is, by its fields; empty if that is not known."""
    for kind, fields in _KINDS:
        if all(field in document for field in fields):
            return kind
    return ""


def not_of_kind(
    kind: str, document: Mapping[str, Any], path: str | Path, *others: str
) -> DocumentError:
    """Return the error for a document that is not an image or a flavor.

    Read as one, it would require nothing.

    :param kind: ``image``, ``flavor`` or ``volume``
    :param others: what is read instead of one as well
    """
    # Of the API; where a request spec is expected, one without an image.
    is_body = list(document) == ["flavor"]
    found = "a flavor" if is_body else kind_of(document)
    what = f"this is no {kind}"
    if found and found.split()[-1] != kind:
        what = f"this is {found}, no {kind}"
    commands = " or ".join(
        f"'openstack {each} show -f json'" for each in (kind, *others)
    )
    return DocumentError(path, f"{what}. Expected the output of {commands}.")


def properties_beside_fields(image: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties that are among the fields, as in Glance's API."""
    fields = _IMAGE_FIELDS.split()
    return {name: value for name, value in image.items() if name not in fields}


def read_json(path: str | Path) -> dict[str, Any]:
    """Return the JSON object in a file.

    :raises DocumentError: there is no such file, it cannot be read, or holds
        no JSON object
    """
    try:
        document: Any = parse_json(read_bytes(path), path)
    except DocumentError as error:
        if Path(path).suffix in (".yaml", ".yml"):
            raise DocumentError(
                path,
                f"{error.problem} YAML is not read here: print it with '-f"
                " json'.",
            ) from error
        raise
    if isinstance(document, list) and document:
        raise DocumentError(
            path,
            "the document is a list; expected names with values: 'show' prints"
            " them, not 'list'.",
        )
    _check(_mapping_of(), document, path, "")
    return dict(document)


def image_from(
    document: object,
    path: str | Path,
    where: str = "image",
    *,
    or_volume: bool = True,
) -> spec.Image:
    """Return the image in a document.

    The output of ``openstack image show -f json``, a response of Glance's API,
    the image of a request spec, or a bootable volume, as the client or
    Cinder's API has it.

    :param or_volume: False where a volume is an error
    :raises DocumentError: it is not one; the message begins with ``where``
    """
    _check(_mapping_of(), document, path, where)
    data = without_key("image", document)
    if or_volume and kind_of(data) == VOLUME:
        return _image_of_bootable_volume(data, path)
    others = properties_beside_fields(data)
    has_properties = "properties" in data
    others.pop("properties", None)
    is_image = "disk_format" in data or (has_properties and not others)
    if kind_of(data) not in ("", "an image") or not is_image:
        kinds = ["volume"] if or_volume else []
        raise not_of_kind("image", data, path, *kinds)
    if not has_properties:
        data = {**data, "properties": others}
    _check(_IMAGE, data, path, where)
    loose = loose_properties(others) if has_properties else ""
    if loose:
        raise DocumentError(
            path,
            f"{quote(loose)} is among its fields, and others are among its"
            " properties. Move it into properties.",
        )
    return _image(data)


def without_key(name: str, document: Any) -> dict[str, Any]:
    """Return what an API's response has under its only key."""
    if list(document) == [name] and isinstance(document[name], dict):
        document = document[name]
    return dict(document)


def _image_of_bootable_volume(
    document: Mapping[str, Any], path: str | Path
) -> spec.Image:
    """Return the image in the metadata of a volume.

    :raises DocumentError: no server boots from the volume
    """
    volume = without_key("volume", document)
    _check(_VOLUME, volume, path, "volume")
    if _VOLUME_FIELDS.isdisjoint(volume):
        raise DocumentError(
            path,
            "this is a volume without bootable and volume_image_metadata."
            " Expected the output of 'openstack volume show -f json'.",
        )
    # The client prints a boolean, older ones and Cinder a text. Nova takes a
    # volume of which it is not known for bootable.
    if str(volume.get("bootable", True)).lower() != "true":
        raise DocumentError(
            path,
            "this is a volume that is not bootable. Expected a volume from"
            " which a server boots, or an image.",
        )
    metadata = volume.get("volume_image_metadata")
    if isinstance(metadata, str) and metadata:
        volume["volume_image_metadata"] = _mapping_in(metadata, path)
    return image_of_volume(volume)


def _mapping_in(text: str, path: str | Path) -> dict[str, Any]:
    """Return the mapping that a client printed as a text.

    JSON, or as Python shows it, which the client's tables have.
    """
    # Cinder's quota allows 64 KiB; the tree of a long text takes much memory.
    readers = (strict, ast.literal_eval) if len(text) <= _MOST_TEXT else ()
    for read in readers:
        with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            found = read(text)
            if isinstance(found, dict):
                return found
    raise DocumentError(
        path,
        f"volume: volume_image_metadata is {quote(text)}; expected names with"
        " values. Give the output of 'openstack volume show -f json'.",
    )


def image_of_volume(volume: Mapping[str, Any]) -> spec.Image:
    """Return the image that Nova reads in the metadata of a volume.

    As Nova's ``get_image_metadata_from_volume``: without a format.
    """
    metadata = volume.get("volume_image_metadata") or {}
    properties = {
        name: value
        for name, value in metadata.items()
        if name not in _NO_PROPERTIES
    }
    return spec.Image(properties, name=volume.get("name") or volume.get("id"))


def flavor_from(document: object, path: str | Path) -> spec.Flavor:
    """Return the flavor in a document.

    The output of ``openstack flavor show -f json``, or the flavor of a request
    spec.

    :raises DocumentError: it is not one
    """
    _check(_FLAVOR, document, path, "flavor")
    return _flavor(document)


def request_spec_from(document: object, path: str | Path) -> spec.RequestSpec:
    """Return the request spec as Nova stores it, or in the plain form.

    Nova's table is ``request_specs``.

    The plain form has the same fields without Nova's envelopes: ``image``,
    ``flavor``, ``is_bfv``, ``requested_resources``, ``pci_requests``,
    ``requested_destination``, ``project_id``, ``availability_zone``,
    ``scheduler_hints``, ``requested_networks``, ``server_options`` and
    ``request_level_params``. A whole row of the table, with the JSON as the
    string ``spec``, is understood too.

    :raises DocumentError: it is not one, or has no flavor
    """
    data = request_spec_fields(document, path)
    kind = kind_of(data)
    if kind not in ("", "a request spec"):
        raise DocumentError(
            path,
            f"this is {kind}, no request spec. Expected what Nova stores in"
            " its table request_specs.",
        )
    _check_spelling(SPEC_FIELDS, data, path, "")
    if data.get("flavor") is None:
        raise DocumentError(
            path,
            "no flavor in it. Expected a request spec with flavor and image.",
        )
    _check(_SPEC, data, path, "request spec")
    _check_spelling(
        ("extra_specs", "properties", "vcpus", "memory_mb"),
        data["flavor"],
        path,
        "flavor: ",
    )
    if data.get("image"):
        _check_spelling(("properties",), data["image"], path, "image: ")
        loose = loose_properties(data["image"])
        if loose:
            raise DocumentError(
                path,
                f"image: {quote(loose)} is not among its properties. Move it"
                " into properties.",
            )
    for name in OTHER_IMAGE_NAMES:
        if data.get(name) and "image" not in data:
            raise DocumentError(
                path,
                f"it has no image, but {name}. Rename it, or set image to"
                " null.",
            )
    for each in data.get("requested_resources") or ():
        _check_spelling(
            GROUP_FIELDS,
            each,
            path,
            f"requested_resources: group {quote(each['requester_id'])}: ",
        )
    image = data.get("image")
    return spec.RequestSpec(
        flavor=_flavor(data["flavor"]),
        image=None if image is None else _image(image),
        is_bfv=bool(data.get("is_bfv")),
        requested_resources=list(
            map(_group, data.get("requested_resources") or ())
        ),
        pci_request_ids=_pci_request_ids(data.get("pci_requests") or {}),
        requested_destination=_destination(data.get("requested_destination")),
        project_id=data.get("project_id"),
        availability_zone=data.get("availability_zone"),
        scheduler_hints=_hints(data.get("scheduler_hints") or {}),
        requested_networks=_networks(data.get("requested_networks")),
        request_level_params=_level(data.get("request_level_params") or {}),
        server_options=spec.ServerOptions(
            **(data.get("server_options") or {})
        ),
    )


def request_spec_fields(document: object, path: str | Path) -> dict[str, Any]:
    """Return the fields of a stored request spec, without Nova's envelopes.

    Their values are not checked.

    :raises DocumentError: it is none
    """
    try:
        data = _without_envelopes(document)
        if isinstance(data, dict) and isinstance(data.get("spec"), str):
            data = _without_envelopes(strict(data["spec"]))
    except ValueError as error:
        raise DocumentError(
            path, f"spec: not JSON: {quote(str(error))}"
        ) from error
    except RecursionError as error:
        raise DocumentError(
            path, "the request spec is nested too deeply."
        ) from error
    _check(_mapping_of(), data, path, "request spec")
    return dict(data)


def _check_spelling(
    names: Sequence[str], data: Mapping[str, Any], path: str | Path, where: str
) -> None:
    """Refuse a document with a misspelt field.

    Otherwise it would be ignored, like the other fields that only Nova reads.
    """
    others = [str(key)[:100] for key in data if key not in names]
    for name in names:
        if name not in data and (close := find_misspelt(name, others)):
            raise DocumentError(
                path,
                f"{where}it has no {name}, but {quote(close)}. Correct the"
                " name.",
            )


def _check(
    schema: Mapping[str, Any], document: object, path: str | Path, where: str
) -> None:
    mistakes = find_mistakes(
        schema, document, "it" if where else "the document"
    )
    if mistakes:
        prefix = f"{where}: " if where else ""
        raise DocumentError(path, prefix + mistakes[0].text)


def _image(data: Any) -> spec.Image:
    properties = dict(data.get("properties") or {})
    for trait in properties.pop("traits_required", None) or ():
        properties[f"trait:{trait}"] = "required"
    return spec.Image(
        properties=properties,
        **{name: data.get(name) for name in ("disk_format", "id", "name")},
    )


def _flavor(data: Any) -> spec.Flavor:
    # Clients print both; the one that is filled is meant.
    specs = data.get("extra_specs") or data.get("properties")
    # The client prints an empty string for none.
    sizes = {
        field: next(filter(None, map(data.get, names)), 0)
        for field, names in _SIZES.items()
    }
    return spec.Flavor(
        extra_specs=dict(specs or {}), name=data.get("name"), **sizes
    )


def _group(data: Mapping[str, Any]) -> spec.RequestGroup:
    resources = data.get("resources") or {}
    return spec.RequestGroup(
        requester_id=data["requester_id"],
        resources={name: amount or 0 for name, amount in resources.items()},
        required_traits=_set(data, "required_traits"),
        forbidden_traits=_set(data, "forbidden_traits"),
        aggregates=_lists(data.get("aggregates")),
        forbidden_aggregates=_set(data, "forbidden_aggregates"),
        in_tree=data.get("in_tree"),
    )


def _pci_request_ids(pci_requests: Mapping[str, Any]) -> frozenset[str]:
    found = set()
    for each in pci_requests.get("requests") or ():
        # Requests without an alias are Neutron ports:
        # nova/objects/instance_pci_requests.py.
        name = each.get("request_id")
        if each.get("alias_name") and isinstance(name, str):
            found.add(name)
    return frozenset(found)


def _destination(data: Mapping[str, Any] | None) -> spec.Destination | None:
    if not data:
        return None
    return spec.Destination(
        aggregates=data.get("aggregates") or None,
        forbidden_aggregates=_set(data, "forbidden_aggregates") or None,
        in_tree=data.get("in_tree"),
        cell=_cell(data),
    )


def _hints(data: Mapping[str, Any]) -> dict[str, list[str]]:
    found = {}
    for name, value in data.items():
        values = value if isinstance(value, list) else [value]
        found[name] = [each for each in values if each is not None]
    return found


def _networks(data: Any) -> list[spec.NetworkRequest]:
    # Nova's objects have their items below a name of its own.
    items = data.get("objects") if isinstance(data, dict) else data
    return [
        spec.NetworkRequest(*map(each.get, _NETWORK_FIELDS))
        for each in items or ()
    ]


def _level(data: Mapping[str, Any]) -> spec.RequestLevelParams:
    return spec.RequestLevelParams(
        root_required=_set(data, "root_required"),
        root_forbidden=_set(data, "root_forbidden"),
        same_subtree=_lists(data.get("same_subtree")),
    )


def _set(data: Mapping[str, Any], name: str) -> set[str]:
    """Return a list of strings as a set; it may be left empty."""
    return set(data.get(name) or ())


def _cell(destination: Mapping[str, Any]) -> str | None:
    """Return the cell of a server that exists; None for a new server."""
    cell = destination.get("cell")
    if isinstance(cell, dict) and cell:
        # Nova's whole mapping, with the passwords of the cell.
        cell = cell.get("uuid") or _SOME_CELL
    if not cell and destination.get("allow_cross_cell_move"):
        return _SOME_CELL
    return str(cell) if cell else None


def _lists(values: Iterable[list[str] | None] | None) -> list[list[str]]:
    return [each or [] for each in values or ()]


def _without_envelopes(value: object) -> Any:
    """Replace each ``{"nova_object.data": {...}}`` by what is in it."""
    while isinstance(value, dict) and _NOVA_DATA in value:
        value = value[_NOVA_DATA]
    if isinstance(value, dict):
        return {key: _without_envelopes(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_without_envelopes(each) for each in value]
    return value
