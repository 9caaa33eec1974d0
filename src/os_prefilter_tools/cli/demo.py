# SPDX-License-Identifier: Apache-2.0

"""``os-prefilter demo``: the bundled requests, their requirements and their
hosts.
"""

import argparse
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from os_prefilter.common.errors import PlacementRefused, UnknownTraits
from os_prefilter.common.quoting import pluralize
from os_prefilter.pipeline.decision import Decision
from os_prefilter.request.query import query_of
from os_prefilter.request.spec import RequestSpec
from os_prefilter_tools.cli.context import values_of
from os_prefilter_tools.cli.filters_and_hosts import (
    Backend,
    FiltersAndHosts,
    add_pipeline_arguments,
)
from os_prefilter_tools.cli.listing import Cell, Listing
from os_prefilter_tools.operators.examples import Example, example_requests
from os_prefilter_tools.operators.explain import Explanation, lines_of

_COLUMNS = (
    "Request",
    "Required, by whom",
    "Hosts that remain",
    "Without filters, also",
)
_WIDTH = 38


class Demo(Listing):
    """Show each bundled request with its requirements, their filters, and the
    hosts that remain.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_pipeline_arguments(self, parser)

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], list[Any]]:
        with values_of(FiltersAndHosts, parsed_args).backend(
            self.context
        ) as backend:
            rows = [
                _row(each, backend) for each in example_requests().values()
            ]
        names = (
            ", ".join(each.name for each in backend.service.filters) or "none"
        )
        where = "The Placement of the cloud"
        if backend.fleet:
            where = (
                f"{pluralize(len(backend.fleet.instance_hosts), 'host')} in a"
                " real Placement on SQLite"
            )
        self.tell(f"{where}; filters: {names}.")
        return _COLUMNS, rows


def _row(example: Example, backend: Backend) -> tuple[Cell, ...]:
    spec = example.request_spec()
    decision = backend.service.apply(spec)
    hosts = _hosts(spec, decision, backend)
    without = _hosts(example.request_spec(), Decision(()), backend)
    spared = [host for host in without if host not in hosts]
    requested, required = example.list_requested(), lines_of(decision)
    title, properties = (
        f"{example.name}: {example.title}",
        [f"  {each}" for each in requested],
    )
    lines = list(map(_format_line, required)) or ["nothing"]
    folded = [
        (
            textwrap.fill(each, _WIDTH, subsequent_indent=" ")
            if each.startswith("(")
            else each
        )
        for each in lines
    ]
    about = {
        "name": example.name,
        "title": example.title,
        "requested": requested,
    }
    return (
        _cell(
            about,
            [title, *properties],
            [textwrap.fill(title, _WIDTH), *properties],
        ),
        _cell([line._asdict() for line in required], lines, folded),
        _cell(list(hosts), hosts or ["none"]),
        _cell(spared, spared or ["none"]),
    )


def _cell(
    value: Any, lines: Sequence[str], folded: Iterable[str] = ()
) -> Cell:
    """Return a cell of lines, for a table ``folded`` if they are given."""
    # The empty line separates it from the next request.
    return Cell(value, "\n".join([*(folded or lines), ""]), "; ".join(lines))


def _hosts(
    spec: RequestSpec, decision: Decision, backend: Backend
) -> tuple[str, ...]:
    try:
        return tuple(backend.ask(query_of(spec), decision).candidates.hosts)
    except (PlacementRefused, UnknownTraits):
        # Another fleet may lack the resource class of a bundled request, or an
        # old cloud a trait.
        return ()


def _format_line(line: Explanation) -> str:
    if not line.trait:
        return f"({line.because})"
    sign = "" if line.rule == "required" else "!"
    scope = "" if line.scope == "root" else f" on {line.scope}"
    return f"{line.by}: {sign}{line.trait}{scope}"
