"""The content of a request: all that filters can see of it, as a value to compare.

Filters keep nothing and read nothing else, so requests of the same content get the same answer. Most instances of a
cloud are started from few images with few flavors: what filters found out for one is the answer to the next.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from operator import attrgetter
from typing import Any

from os_prefilter.request.nova_objects import PREFIX, field_of, keeps_fields_in_dict, set_fields_of
from os_prefilter.request.spec import FLAVOR_FIELDS, IMAGE_FIELDS, Flavor, Image, RequestLevelParams, RequestSpec

_NOTHING: Mapping[str, object] = {}
_NO_IMAGE = Image()
_amounts_of = attrgetter(*FLAVOR_FIELDS)
_COMPARED = frozenset((str, int, bool, type(None)))
# What is read of an object of Nova's; where one of these is no field, it may be there all the same.
_OF_SPEC = frozenset(
    ("flavor", "image", "is_bfv", "request_level_params", "requested_resources", "pci_requests"),
)
_OF_FLAVOR = frozenset(("extra_specs", *FLAVOR_FIELDS))
_OF_IMAGE = frozenset(("properties", *IMAGE_FIELDS))
_OF_PARAMS = frozenset(("root_required", "root_forbidden"))


Content = tuple[object, ...]
"""The class of the request spec, the number of its image properties, then three tuples: their names and those of the
extra specs; the values of the fields, the properties and the extra specs; the types of the values, as 1, 1.0 and True
are equal, but do not mean the same. Last what the root must have and must not have, None for nothing.

A plain tuple, because one is made for each request."""


def content_of(request_spec: Any) -> Content | None:
    """Return the content of a request spec; None for one that is not to be compared.

    That is any object but ours and Nova's, and a request with groups of devices or ports: those are hardly ever the
    same.

    :raises TypeError, AttributeError: if a part is not what it should be; whoever reads it says more.
    """
    kind = request_spec.__class__
    if kind is RequestSpec:
        return _of_ours(request_spec)
    return _of_novas(request_spec) if _has_fields(kind, _OF_SPEC) else None


def without_lists(content: Content) -> Content:
    """Return the same content with tuples for lists, which have no hash: Nova keeps an image's traits in one."""
    kind, number, names, values, *rest = content
    return (
        kind,
        number,
        names,
        tuple(tuple(each) if isinstance(each, list) else each for each in _items(values)),
        *rest,
    )


def is_certain(content: Content) -> bool:
    """Whether what is equal means the same: names are texts; values are texts, whole numbers, lists of texts."""
    _, _, names, values, types, *_ = content
    return all(type(name) is str for name in _items(names)) and all(
        kind in _COMPARED or (isinstance(value, tuple) and all(type(each) is str for each in value))
        for kind, value in zip(_items(types), _items(values), strict=True)
    )


def length_of(content: Content) -> int:
    """Return how many characters the texts in a content have together."""
    parts = [part for each in content[2:] for part in _items(each)]
    return sum(
        len(text) for part in parts for text in (part if isinstance(part, tuple) else (part,)) if type(text) is str
    )


def _items(value: Any) -> Iterable[Any]:
    return value or ()


def _of_ours(spec: RequestSpec) -> Content | None:
    flavor, image, params = spec.flavor, spec.image, spec.request_level_params
    if spec.requested_resources or spec.pci_request_ids:
        return None
    if flavor.__class__ is not Flavor or params.__class__ is not RequestLevelParams:
        return None
    if image is None:
        image = _NO_IMAGE
    elif image.__class__ is not Image:
        return None
    fields = (spec.is_bfv, image.disk_format, *_amounts_of(flavor))
    return _content(
        RequestSpec, fields, image.properties, flavor.extra_specs, params.root_required, params.root_forbidden
    )


def _of_novas(spec: Any) -> Content | None:
    of_spec = vars(spec)
    if of_spec.get(_REQUESTED_RESOURCES) or field_of(of_spec.get(_PCI_REQUESTS), "requests"):
        return None
    of_flavor, of_image = _fields_of(of_spec.get(_FLAVOR), _OF_FLAVOR), _fields_of(of_spec.get(_IMAGE), _OF_IMAGE)
    of_params = _fields_of(of_spec.get(_PARAMS), _OF_PARAMS)
    if of_flavor is None or of_image is None or of_params is None:
        return None
    properties = of_image.get(_PROPERTIES)
    if properties is not None:
        if not hasattr(properties, "fields"):
            return None
        properties = set_fields_of(properties)
    fields = (of_spec.get(_IS_BFV), of_image.get(_DISK_FORMAT), *map(of_flavor.get, _AMOUNTS))
    return _content(
        spec.__class__,
        fields,
        properties,
        of_flavor.get(_EXTRA_SPECS),
        of_params.get(_ROOT_REQUIRED),
        of_params.get(_ROOT_FORBIDDEN),
    )


_FLAVOR, _IMAGE, _PARAMS = PREFIX + "flavor", PREFIX + "image", PREFIX + "request_level_params"
_REQUESTED_RESOURCES, _PCI_REQUESTS = PREFIX + "requested_resources", PREFIX + "pci_requests"
_IS_BFV, _DISK_FORMAT = PREFIX + "is_bfv", PREFIX + "disk_format"
_PROPERTIES, _EXTRA_SPECS = PREFIX + "properties", PREFIX + "extra_specs"
_AMOUNTS = tuple(PREFIX + name for name in FLAVOR_FIELDS)
_ROOT_REQUIRED, _ROOT_FORBIDDEN = PREFIX + "root_required", PREFIX + "root_forbidden"


def _content(  # noqa: PLR0913, PLR0917 - what a request has
    kind: type, fields: tuple[object, ...], properties: Any, extra_specs: Any, required: Any, forbidden: Any
) -> Content:
    properties = _NOTHING if properties is None else properties
    extra_specs = _NOTHING if extra_specs is None else extra_specs
    values = (*fields, *properties.values(), *extra_specs.values())
    return (
        kind,
        len(properties),
        (*properties, *extra_specs),
        values,
        tuple(map(type, values)),
        frozenset(required) if required else None,
        frozenset(forbidden) if forbidden else None,
    )


def _fields_of(part: Any, read: frozenset[str]) -> Mapping[str, Any] | None:
    if part is None:
        return _NOTHING
    return vars(part) if _has_fields(part.__class__, read) else None


@cache
def _has_fields(kind: Any, read: frozenset[str]) -> bool:
    """Whether a class is one of oslo.versionedobjects that has what is read as fields, where they are looked for."""
    return hasattr(kind, "obj_attr_is_set") and read <= set(kind.fields) and keeps_fields_in_dict(kind)
