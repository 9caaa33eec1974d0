"""Requests in one line."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from os_prefilter.request.spec import Flavor, Image, RequestSpec

_NONE: Mapping[str, Any] = MappingProxyType({})


def request_of(
    properties: Mapping[str, object] | None = _NONE,
    extra_specs: Mapping[str, str] | None = None,
    *,
    disk_format: Any = None,
    memory_mb: int = 512,
    **fields: Any,
) -> RequestSpec:
    """Return a small request with an image of these properties and a flavor of these extra specs.

    :param properties: None for a request without an image
    :param disk_format: of the image; a text, or what a test wants there instead
    :param memory_mb: of the flavor, MiB
    :param fields: other fields of :class:`os_prefilter.RequestSpec`: ``is_bfv`` where it boots from a volume,
        ``requested_resources`` for groups of ports and devices, or a whole ``flavor``
    """
    image = None if properties is None else Image(dict(properties), disk_format=disk_format)
    flavor = Flavor(vcpus=1, memory_mb=memory_mb, root_gb=1, extra_specs=dict(extra_specs or {}))
    return RequestSpec(**{"flavor": flavor, "image": image, **fields})
