"""The content of a request: all that filters can see of it, as a value to compare.

Filters keep nothing and read nothing else, so requests of the same content get the same answer. Most instances of a
cloud are started from few images with few flavors: what filters found out for one is the answer to the next.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

from os_prefilter.request_spec import Flavor, Image, RequestLevelParams, RequestSpec
from os_prefilter.versioned import PREFIX, field_of, keeps_fields_in_dict, set_fields_of

Content = tuple[object, ...]

OF_IMAGE = frozenset(("disk_format",))
"""The fields of an image, beside its properties, that are part of the content."""
OF_FLAVOR = frozenset(("vcpus", "memory_mb", "root_gb", "ephemeral_gb", "swap"))
"""The fields of a flavor, beside its extra specs, that are part of the content."""

_NOTHING: Mapping[str, object] = {}
_NO_IMAGE = Image()
_FLAVOR, _IMAGE, _PARAMS = PREFIX + "flavor", PREFIX + "image", PREFIX + "request_level_params"
_REQUESTED_RESOURCES, _PCI_REQUESTS = PREFIX + "requested_resources", PREFIX + "pci_requests"
_IS_BFV, _DISK_FORMAT = PREFIX + "is_bfv", PREFIX + "disk_format"
_PROPERTIES, _EXTRA_SPECS = PREFIX + "properties", PREFIX + "extra_specs"
_AMOUNTS = tuple(PREFIX + name for name in ("vcpus", "memory_mb", "root_gb", "ephemeral_gb", "swap"))
_ROOT_REQUIRED, _ROOT_FORBIDDEN = PREFIX + "root_required", PREFIX + "root_forbidden"


def content_of(request_spec: Any) -> Content | None:
    """Return the content of a request spec; None for one that is not to be compared.

    That is any object but ours and Nova's, and a request with groups of devices or ports: those are hardly ever the
    same.

    :raises TypeError, AttributeError: if a part is not what it should be; whoever reads it says more.
    """
    kind = request_spec.__class__
    if kind is RequestSpec:
        return _of_ours(request_spec)
    return _of_novas(request_spec) if _is_novas(kind) else None


def without_lists(content: Content) -> Content:
    """Return the same content with tuples for lists, which have no hash: Nova keeps an image's traits in one."""
    return tuple(tuple(value) if isinstance(value, list) else value for value in content)


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
    fields = (
        RequestSpec,
        spec.is_bfv,
        image.disk_format,
        flavor.vcpus,
        flavor.memory_mb,
        flavor.root_gb,
        flavor.ephemeral_gb,
        flavor.swap,
    )
    return _content(fields, image.properties, flavor.extra_specs, params.root_required, params.root_forbidden)


def _of_novas(spec: Any) -> Content | None:
    of_spec = vars(spec)
    if of_spec.get(_REQUESTED_RESOURCES) or field_of(of_spec.get(_PCI_REQUESTS), "requests"):
        return None
    of_flavor, of_image = _fields_of(of_spec.get(_FLAVOR)), _fields_of(of_spec.get(_IMAGE))
    of_params = _fields_of(of_spec.get(_PARAMS))
    if of_flavor is None or of_image is None or of_params is None:
        return None
    properties = of_image.get(_PROPERTIES)
    if properties is not None:
        properties = set_fields_of(properties)
    fields = (spec.__class__, of_spec.get(_IS_BFV), of_image.get(_DISK_FORMAT), *map(of_flavor.get, _AMOUNTS))
    return _content(
        fields, properties, of_flavor.get(_EXTRA_SPECS), of_params.get(_ROOT_REQUIRED), of_params.get(_ROOT_FORBIDDEN)
    )


def _content(fields: Content, properties: Any, extra_specs: Any, required: Any, forbidden: Any) -> Content:
    properties, extra_specs = properties or _NOTHING, extra_specs or _NOTHING
    values = (*fields, *properties.values(), *extra_specs.values())
    return (
        len(properties),
        *properties,
        *extra_specs,
        *values,
        # 1, 1.0 and True are equal, but do not mean the same.
        *map(type, values),
        frozenset(required) if required else None,
        frozenset(forbidden) if forbidden else None,
    )


def _fields_of(part: Any) -> Mapping[str, Any] | None:
    if part is None:
        return _NOTHING
    return vars(part) if _is_novas(part.__class__) else None


@cache
def _is_novas(kind: Any) -> bool:
    return hasattr(kind, "fields") and keeps_fields_in_dict(kind)
