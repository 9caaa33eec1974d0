# SPDX-License-Identifier: Apache-2.0

"""Builders of requests, pipelines, host facts and a Placement.

The pytest plugin offers them as fixtures.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from os_prefilter.hosts.drivers.fake import FakeFacts
from os_prefilter.hosts.reporter import HostFacts
from os_prefilter.request.filter_contract import NEEDS, LoadedFilter
from os_prefilter.request.spec import Flavor, Image, RequestSpec
from os_prefilter.service import Service
from os_prefilter.service.deployment_facts import Fact
from os_prefilter.service.loading import as_filter, load_filters
from os_prefilter.vocabulary.options import Options
from os_prefilter_tools.fleet.model import Fleet
from os_prefilter_tools.fleet.reader import (
    example_fleet,
    load_fleet,
    parse_fleet,
)

if TYPE_CHECKING:
    from os_prefilter.adapters.placement.client import PlacementClient

ALL_REPORTED = Options(reported_traits=("*",))
"""The options of tests: ``CUSTOM_`` traits are required.

As where ``reported_traits`` names them.
"""

_NONE: Mapping[str, Any] = MappingProxyType({})


def request_of(
    properties: Mapping[str, object] | None = _NONE,
    extra_specs: Mapping[str, str] | None = None,
    *,
    disk_format: Any = None,
    memory_mb: int = 512,
    **fields: Any,
) -> RequestSpec:
    """Return a small request with these properties and extra specs.

    :param properties: None for a request without an image
    :param disk_format: of the image; tests may give something else than text
    :param memory_mb: of the flavor, MiB
    :param fields: other fields of :class:`os_prefilter.RequestSpec`:
        ``is_bfv`` for boot from volume, ``requested_resources`` for groups of
        ports and devices, or a whole ``flavor``
    """
    image = None
    if properties is not None:
        image = Image(dict(properties), disk_format=disk_format)
    flavor = Flavor(
        vcpus=1,
        memory_mb=memory_mb,
        root_gb=1,
        extra_specs=dict(extra_specs or {}),
    )
    return RequestSpec(**{"flavor": flavor, "image": image, **fields})


def pipeline_of(
    *filters: str | Callable[..., Any],
    options: Options = ALL_REPORTED,
    facts: Mapping[str, object] | None = None,
) -> Service:
    """Return a pipeline of these filters.

    Each by the name of its entry point or as the function itself.

    :param options: by default, hosts report all traits
    :param facts: values of the deployment facts that the filters need, by name
    :raises ConfigurationError: as at the start of a service
    """
    known = {
        name: Fact(name, lambda _context, value=value: value, float("inf"))  # type: ignore[misc]
        for name, value in (facts or {}).items()
    }
    provided = NEEDS | known.keys()
    loaded: list[LoadedFilter] = []
    for each in filters:
        if isinstance(each, str):
            loaded += load_filters([each], provided)
        else:
            loaded.append(
                as_filter(
                    getattr(each, "__name__", type(each).__name__),
                    each,
                    provided,
                )
            )
    return Service(tuple(loaded), options, known)


def facts_of(kind: type[HostFacts] = FakeFacts, **values: Any) -> HostFacts:
    """Return the facts of a host.

    :param kind: the facts class of its reporter
    :param values: its fields; ``can`` of ``FakeFacts`` maps each row to a list
        of values
    """
    if "can" in values and kind is FakeFacts:
        values["can"] = {
            row: frozenset(some) for row, some in values["can"].items()
        }
    return kind(**values)


@contextmanager
def placement_with(
    fleet: Fleet | Mapping[str, Any] | str | Path | None = None,
) -> Iterator[PlacementClient]:
    """Run a real Placement with a fleet in this process, and yield its client.

    :param fleet: a mapping as in a fleet file, the path of one, or a fleet;
        None for the bundled example
    :raises DocumentError: if the fleet is not valid
    """
    from os_prefilter_tools.adapters.embedded import (  # noqa: PLC0415 - Placement takes seconds to import
        EmbeddedPlacement,
    )

    if fleet is None:
        fleet = example_fleet()
    elif isinstance(fleet, (str, Path)):
        fleet = load_fleet(fleet)
    elif not isinstance(fleet, Fleet):
        fleet = parse_fleet(
            json.dumps(fleet).encode(), "the fleet of the test"
        )
    with EmbeddedPlacement(fleet) as placement:
        yield placement.client
