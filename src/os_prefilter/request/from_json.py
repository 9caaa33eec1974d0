"""Reading requests from files: what Nova stores, what ``openstack image show`` prints, and a plain form of our own.

Each problem is a DocumentError that says which file, where in it, what was found and what was expected.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from os_prefilter.common.quoting import escape_line, quote
from os_prefilter.documents.files import read_bytes
from os_prefilter.documents.strict_json import strict
from os_prefilter.errors import DocumentError
from os_prefilter.request.spec import Destination, Flavor, Image, RequestGroup, RequestLevelParams, RequestSpec

_NOVA_DATA = "nova_object.data"
_LONGEST_NAME = 80


def read_json(path: str | Path) -> dict[str, Any]:
    """Return the JSON object in a file.

    :raises DocumentError: if there is no such file, it cannot be read, or holds no JSON object.
    """
    data = read_bytes(path)
    try:
        document = strict(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise DocumentError(path, f"byte {error.start} is not UTF-8; save the file as UTF-8.") from error
    except json.JSONDecodeError as error:
        raise DocumentError(path, f"line {error.lineno}, column {error.colno}: not JSON: {error.msg}") from error
    except (RecursionError, ValueError) as error:
        # Nested too deeply, a key that is given twice, NaN, or a number of more than 4,300 digits.
        raise DocumentError(path, f"not JSON that can be read: {quote(str(error))}") from error
    return _mapping(document, path, "the document")


def image_from(document: object, path: str | Path, where: str = "image") -> Image:
    """Return the image in the output of ``openstack image show -f json`` or in a request spec."""
    data = _mapping(document, path, where)
    properties = dict(_mapping(data.get("properties") or {}, path, f"{where}.properties"))
    for trait in _list(properties.pop("traits_required", None) or [], path, f"{where}.properties.traits_required"):
        properties[f"trait:{trait}"] = "required"
    return Image(
        properties=properties,
        disk_format=_text(data, "disk_format", path, where),
        id=_text(data, "id", path, where),
        name=_text(data, "name", path, where),
    )


def flavor_from(document: object, path: str | Path, where: str = "flavor") -> Flavor:
    """Return the flavor in the output of ``openstack flavor show -f json`` or in a request spec."""
    data = _mapping(document, path, where)
    specs_name = "extra_specs" if "extra_specs" in data else "properties"
    specs = _mapping(data.get(specs_name) or {}, path, f"{where}.{specs_name}")
    for key, value in specs.items():
        if not isinstance(value, str):
            raise DocumentError(path, f"{where}.{specs_name}: {quote(key)} is {quote(value)}; extra specs are strings.")
    return Flavor(
        vcpus=_number(data, ("vcpus",), path, where),
        memory_mb=_number(data, ("memory_mb", "ram"), path, where),
        root_gb=_number(data, ("root_gb", "disk"), path, where),
        ephemeral_gb=_number(data, ("ephemeral_gb", "OS-FLV-EXT-DATA:ephemeral"), path, where),
        swap=_number(data, ("swap",), path, where),
        extra_specs=dict(specs),
        name=_text(data, "name", path, where),
    )


def request_spec_from(document: object, path: str | Path) -> RequestSpec:
    """Return the request spec in what Nova stores in its table ``request_specs``, or in the plain form.

    The plain form has the same fields without Nova's envelopes: ``image``, ``flavor``, ``is_bfv``,
    ``requested_resources``, ``pci_requests``, ``requested_destination`` and ``request_level_params``. A whole row of
    the table, with the JSON as the string ``spec``, is understood too.
    """
    data = _unwrapped(document, path, "request spec")
    if isinstance(data.get("spec"), str):
        try:
            data = _unwrapped(strict(data["spec"]), path, "spec")
        except (ValueError, RecursionError) as error:
            raise DocumentError(path, f"spec: not JSON: {quote(str(error))}") from error
    if data.get("flavor") is None:
        raise DocumentError(path, "no flavor in it. Expected a request spec with flavor and image.")
    image = data.get("image")
    return RequestSpec(
        flavor=flavor_from(data["flavor"], path),
        image=None if image is None else image_from(image, path),
        is_bfv=_flag(data, "is_bfv", path),
        requested_resources=[
            _group_from(each, path, f"requested_resources[{index}]")
            for index, each in enumerate(_list(data.get("requested_resources") or [], path, "requested_resources"))
        ],
        pci_request_ids=_pci_request_ids(data, path),
        requested_destination=_destination_from(data.get("requested_destination"), path),
        request_level_params=_level_from(data.get("request_level_params"), path),
    )


def _group_from(document: object, path: str | Path, where: str) -> RequestGroup:
    data = _mapping(document, path, where)
    resources = _mapping(data.get("resources") or {}, path, f"{where}.resources")
    requester = data.get("requester_id")
    if not isinstance(requester, str):
        raise DocumentError(path, f"{where}.requester_id is {quote(requester)}; expected the suffix of the group.")
    return RequestGroup(
        requester_id=requester,
        resources={name: _number(resources, (name,), path, f"{where}.resources") for name in resources},
        required_traits=_strings(data, "required_traits", path, where),
        forbidden_traits=_strings(data, "forbidden_traits", path, where),
        aggregates=_string_lists(data, "aggregates", path, where),
        forbidden_aggregates=_strings(data, "forbidden_aggregates", path, where),
        in_tree=_text(data, "in_tree", path, where),
    )


def _destination_from(document: object, path: str | Path) -> Destination | None:
    where = "requested_destination"
    if document is None:
        return None
    data = _mapping(document, path, where)
    return Destination(
        aggregates=_ordered_strings(data, "aggregates", path, where) or None,
        forbidden_aggregates=_strings(data, "forbidden_aggregates", path, where) or None,
        in_tree=_text(data, "in_tree", path, where),
    )


def _level_from(document: object, path: str | Path) -> RequestLevelParams:
    where = "request_level_params"
    data = _mapping(document or {}, path, where)
    return RequestLevelParams(
        root_required=_strings(data, "root_required", path, where),
        root_forbidden=_strings(data, "root_forbidden", path, where),
        same_subtree=_string_lists(data, "same_subtree", path, where),
    )


def _pci_request_ids(data: Mapping[str, Any], path: str | Path) -> frozenset[str]:
    requests = _list(
        _mapping(data.get("pci_requests") or {}, path, "pci_requests").get("requests") or [], path, "pci_requests"
    )
    found = (_mapping(each, path, "pci_requests.requests") for each in requests)
    # Those without an alias are ports of Neutron's: nova/objects/instance_pci_requests.py.
    return frozenset(
        each["request_id"] for each in found if each.get("alias_name") and isinstance(each.get("request_id"), str)
    )


def _unwrapped(document: object, path: str | Path, where: str) -> dict[str, Any]:
    try:
        return _mapping(_without_envelopes(document), path, where)
    except RecursionError as error:
        raise DocumentError(path, f"{where} is nested too deeply to be one.") from error


def _without_envelopes(value: object) -> Any:
    """Replace each ``{"nova_object.data": {...}}`` by what is in it."""
    while isinstance(value, dict) and _NOVA_DATA in value:
        value = value[_NOVA_DATA]
    if isinstance(value, dict):
        return {key: _without_envelopes(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_without_envelopes(each) for each in value]
    return value


def _mapping(value: object, path: str | Path, where: str) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise DocumentError(path, f"{where} is {quote(value)}; expected names with values.")
    return value


def _list(value: object, path: str | Path, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise DocumentError(path, f"{where} is {quote(value)}; expected a list.")
    return value


def _ordered_strings(data: Mapping[str, Any], name: str, path: str | Path, where: str) -> list[str]:
    values = _list(data.get(name) or [], path, f"{where}.{name}")
    for value in values:
        if not isinstance(value, str):
            raise DocumentError(path, f"{where}.{name} has {quote(value)} in it; expected strings.")
    return values


def _strings(data: Mapping[str, Any], name: str, path: str | Path, where: str) -> set[str]:
    return set(_ordered_strings(data, name, path, where))


def _string_lists(data: Mapping[str, Any], name: str, path: str | Path, where: str) -> list[list[str]]:
    lists = _list(data.get(name) or [], path, f"{where}.{name}")
    return [_ordered_strings({name: each}, name, path, where) for each in lists]


def _text(data: Mapping[str, Any], name: str, path: str | Path, where: str) -> str | None:
    value = data.get(name)
    if value is not None and not isinstance(value, str):
        raise DocumentError(path, f"{where}.{name} is {quote(value)}; expected a string.")
    return value


def _flag(data: Mapping[str, Any], name: str, path: str | Path) -> bool:
    value = data.get(name)
    if value is not None and not isinstance(value, bool):
        raise DocumentError(path, f"{name} is {quote(value)}; expected true or false.")
    return bool(value)


def _number(data: Mapping[str, Any], names: tuple[str, ...], path: str | Path, where: str) -> int:
    """Return the first of ``names`` that is there; 0 for none, and for the empty string that some clients print."""
    for name in names:
        value = data.get(name)
        if value is None or value == "":
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            # The name may be that of a resource class, which is whatever the document says.
            place = f"{where}.{escape_line(name[:_LONGEST_NAME])}"
            raise DocumentError(path, f"{place} is {quote(value)}; expected a whole number of at least 0.")
        return value
    return 0
