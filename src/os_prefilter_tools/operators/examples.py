"""The bundled example requests."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from os_prefilter.adapters.from_json import request_spec_from
from os_prefilter.documents.strict_yaml import parse_yaml
from os_prefilter.request.spec import RequestSpec

_FILE = "requests.yaml"


@dataclass(frozen=True, slots=True)
class Example:
    """A realistic request."""

    name: str
    title: str
    document: Mapping[str, Any]

    def request_spec(self) -> RequestSpec:
        """Return a new copy of the request, because filters change it."""
        return request_spec_from(dict(self.document), f"{_FILE}: {self.name}")

    def list_requested(self) -> list[str]:
        """Return its properties, extra specs and disk format, each as ``key=value``."""
        spec = self.request_spec()
        requested = [f"{key}={value}" for key, value in (spec.image.properties if spec.image else {}).items()]
        requested += [f"{key}={value}" for key, value in spec.flavor.extra_specs.items()]
        if spec.image and spec.image.disk_format:
            requested.append(f"disk_format={spec.image.disk_format}")
        return requested


def example_requests() -> dict[str, Example]:
    """Return the bundled requests by name, in the order of their file."""
    data = resources.files("os_prefilter_tools.data").joinpath(_FILE).read_bytes()
    document: Any = parse_yaml(data, _FILE)
    return {
        name: Example(name, each["title"], {key: value for key, value in each.items() if key != "title"})
        for name, each in document["requests"].items()
    }
