"""What a conformance test is about."""

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from typing import Any, NamedTuple, NoReturn

import pytest

from os_prefilter.conf.options import Options
from os_prefilter.request.spec import Destination, Image, RequestSpec
from os_prefilter.testing.law import choices, spec_with


class Subject(NamedTuple):
    """A filter, and what it is given."""

    plugin: str | Callable[..., Any]
    options: Options
    facts: Mapping[str, object]
    asks: tuple[RequestSpec, ...]
    """Requests for which it asks for something."""

    @property
    def requests(self) -> list[RequestSpec]:
        """The requests that are gone through one by one: the author's, then each value of the vocabulary."""
        return [*self.asks, *(spec_with((choice,)) for choice in choices())]


def broken(law: str) -> NoReturn:
    """Let the test fail with what is wrong, without a traceback: it would show this kit, not the plugin."""
    pytest.fail(law, pytrace=False)


def told(spec: Any) -> str:
    """Return a request for a message, cut."""
    flavor, image = getattr(spec, "flavor", None), getattr(spec, "image", None)
    parts = [f"image properties {getattr(image, 'properties', None)!a}" if image is not None else "no image"]
    if disk_format := getattr(image, "disk_format", None):
        parts.append(f"disk_format {disk_format!a}")
    parts.append(f"flavor extra specs {getattr(flavor, 'extra_specs', None)!a}")
    parts += ["boots from a volume"] * bool(getattr(spec, "is_bfv", False))
    text = ", ".join(parts)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


_LONGEST = 400


def twin(spec: RequestSpec) -> RequestSpec:
    """Return a request of the same content: all is different of which a pipeline takes no notice."""
    image = spec.image and replace(spec.image, id="another-id", name="another-name")
    other = replace(spec, flavor=replace(spec.flavor, name="another-name"), image=image or Image(name="another-name"))
    return replace(
        other,
        requested_destination=Destination(aggregates=["another"]),
        request_level_params=replace(copy(spec.request_level_params), same_subtree=[["a", "b"]]),
    )
