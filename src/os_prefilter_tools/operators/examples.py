# SPDX-License-Identifier: Apache-2.0

"""The bundled example requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from os_prefilter.documents.strict_yaml import parse_yaml
from os_prefilter.request.spec import Flavor, Image, RequestSpec

_FILE = "requests.yaml"


@dataclass(frozen=True)
class Example:
    """A realistic request."""

    name: str
    title: str
    flavor: Mapping[str, Any]
    image: Mapping[str, Any]

    def request_spec(self) -> RequestSpec:
        """Return a new copy of the request, because filters change it."""
        return RequestSpec(Flavor(**self.flavor), Image(**self.image))

    def list_requested(self) -> list[str]:
        """Return properties, extra specs and format, as ``key=value``."""
        extra_specs = self.flavor.get("extra_specs", {})
        requested = {**self.image.get("properties", {}), **extra_specs}
        if "disk_format" in self.image:
            requested["disk_format"] = self.image["disk_format"]
        return [f"{key}={value}" for key, value in requested.items()]


def example_requests() -> dict[str, Example]:
    """Return the bundled requests by name, in the order of their file."""
    # A package, not its folder: Python 3.9 asks for the former.
    file = resources.files("os_prefilter_tools") / "data" / _FILE
    data = file.read_bytes()
    document: Any = parse_yaml(data, _FILE)
    return {
        name: Example(name, **each)
        for name, each in document["requests"].items()
    }
