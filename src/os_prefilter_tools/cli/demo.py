# SPDX-License-Identifier: Apache-2.0

"""``os-prefilter demo``: bundled requests, their requirements and hosts."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

from cliff.utils import terminal_width

from os_prefilter.common.errors import (
    PlacementRefused,
    RequestRejected,
    UnknownTraits,
)
from os_prefilter.common.quoting import pluralize
from os_prefilter.pipeline.decision import Decision
from os_prefilter.request.query import query_of
from os_prefilter.request.spec import RequestSpec
from os_prefilter.service import Service
from os_prefilter_agent.cli.context import values_of
from os_prefilter_agent.cli.listing import Cell, Listing, Rows
from os_prefilter_tools.cli.filters_and_hosts import (
    Backend,
    FiltersAndHosts,
    add_pipeline_arguments,
)
from os_prefilter_tools.operators.examples import Example, example_requests
from os_prefilter_tools.operators.explain import Explanation, lines_of

_COLUMNS = (
    "Request",
    "Required, by whom",
    "Hosts that remain",
    "Without filters, also",
)
_WIDTH = 100
_OF_NOVA = "compute_status"
"""The filter that each release of Nova always runs for each request.

Newer releases run two more that concern bundled requests: owner (Nova 34) and
sound_model (Nova 32).
"""


class _Result(NamedTuple):
    """A request, what the filters require, and its hosts."""

    example: Example
    required: Sequence[Explanation]
    hosts: Sequence[str]
    also: Sequence[str]
    """The further hosts that Placement offers without the filters."""


class Demo(Listing):
    """Show bundled requests with the filters' requirements and their hosts."""

    _results: Sequence[_Result]
    _where: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_pipeline_arguments(self, parser)

    def take_action(self, parsed_args: argparse.Namespace) -> Rows:
        asked = values_of(FiltersAndHosts, parsed_args)
        with asked.backend(self.context) as backend:
            self._results = [
                _ask(example, backend)
                for example in example_requests().values()
            ]
        self._where = "the hosts of the cloud"
        if backend.fleet:
            hosts = pluralize(len(backend.fleet.instance_hosts), "host")
            self._where = f"{hosts} in a real Placement on SQLite"
        if not _is_plain_table(parsed_args):
            filters = ", ".join(each.name for each in backend.service.filters)
            where = self._where[0].upper() + self._where[1:]
            self.print_line(f"{where}; filters: {filters or 'none'}.")
        return _COLUMNS, [_row(result) for result in self._results]

    def produce_output(
        self, parsed_args: argparse.Namespace, column_names: Any, data: Any
    ) -> int:
        """Print paragraphs in place of a table.

        Four columns would need 140 characters, or 100 lines.
        """
        if not _is_plain_table(parsed_args):
            return super().produce_output(parsed_args, column_names, data)
        self.context.write_notes()
        width = parsed_args.max_width
        if width < 1:
            width = _WIDTH
            if sys.stdout.isatty():
                width = min(terminal_width() or _WIDTH, _WIDTH)
        self.app.stdout.writelines(
            f"{line}\n"
            for line in _paragraphs(self._results, self._where, width)
        )
        return 0


def _is_plain_table(parsed_args: argparse.Namespace) -> bool:
    """Return True for a table of all columns, in the order of the requests."""
    return (
        parsed_args.formatter == "table"
        and not parsed_args.columns
        and not parsed_args.sort_columns
    )


def _ask(example: Example, backend: Backend) -> _Result:
    """Ask Placement for a request, with the filters and without them."""
    spec = example.request_spec()
    decision = backend.service.apply(spec)
    hosts = _hosts(spec, decision, backend)
    spec = example.request_spec()
    without = _hosts(spec, Service.from_names(_OF_NOVA).apply(spec), backend)
    also = [host for host in without if host not in hosts]
    return _Result(example, lines_of(decision), hosts, also)


def _hosts(
    spec: RequestSpec, decision: Decision, backend: Backend
) -> tuple[str, ...]:
    try:
        return tuple(backend.ask(query_of(spec), decision).candidates.hosts)
    except (PlacementRefused, RequestRejected, UnknownTraits):
        # Another fleet may lack the resource class of a bundled request, or an
        # old cloud a trait.
        return ()


def _row(result: _Result) -> tuple[Cell, ...]:
    example = result.example
    requested = example.list_requested()
    about = {
        "name": example.name,
        "title": example.title,
        "requested": requested,
    }
    title = f"{example.name}: {example.title}"
    properties = [f"  {each}" for each in requested]
    required = [line._asdict() for line in result.required]
    lines = [
        _format_line(line)
        if not line.trait
        else f"{line.by}: {_format_line(line)}"
        for line in result.required
    ]
    return (
        _cell(about, [title, *properties]),
        _cell(required, lines or ["nothing"]),
        _cell(list(result.hosts), result.hosts or ["none"]),
        _cell(result.also, result.also or ["none"]),
    )


def _cell(value: Any, lines: Sequence[str]) -> Cell:
    line = "; ".join(lines)
    return Cell(value, line, line)


def _format_line(line: Explanation) -> str:
    if not line.trait:
        return f"({line.because})"
    sign = "!" if line.rule == "forbidden" else ""
    scope = "" if line.scope == "root" else f" on {line.scope}"
    return f"{sign}{line.trait}{scope}"


def _paragraphs(
    results: Sequence[_Result], where: str, width: int
) -> Iterator[str]:
    """Yield the lines of what the numbers say and of each request."""
    also = sum(len(result.also) for result in results)
    offered = also + sum(len(result.hosts) for result in results)
    without_host = sum(not result.hosts for result in results)
    yield from textwrap.wrap(
        f"{pluralize(len(results), 'request')}, {where}. Without the filters"
        f" Placement offers them {pluralize(offered, 'host')} in all,"
        f" {also} of which cannot serve the request;"
        f" {pluralize(without_host, 'request')} no host can serve.",
        width,
    )
    yield from textwrap.wrap(
        'After "not" are the hosts that only the filters exclude; Nova itself'
        " excludes disabled ones.",
        width,
    )
    in_each = [set(map(_generalize, result.required)) for result in results]
    in_all = set.intersection(*in_each)
    common = dict.fromkeys(
        line
        for line in map(_generalize, results[0].required)
        if line in in_all
    )
    if common:
        text = f"Required for every request (! is forbidden): {_join(common)}."
        yield from textwrap.wrap(text, width)
    yield ""
    for result in results:
        yield from _paragraph(result, in_all, width)


def _paragraph(
    result: _Result, in_all: Collection[Explanation], width: int
) -> Iterator[str]:
    example = result.example
    # The requirement of the disk format is among those of every request.
    properties = [
        each
        for each in example.list_requested()
        if not each.startswith("disk_format=")
    ]
    title = f"{example.name}: {example.title}"
    if properties:
        title += f" ({', '.join(properties)})"
    lines = [title]
    own = [line for line in result.required if _generalize(line) not in in_all]
    required = [line for line in own if line.trait]
    if required:
        lines.append(f"  requires {_join(required)}")
    lines += [f"  {line.because}" for line in own if not line.trait]
    hosts = f"  hosts: {', '.join(result.hosts) or 'none'}"
    if result.also:
        hosts += f"; not {', '.join(result.also)}"
    lines.append(hosts)
    for line in lines:
        yield from textwrap.wrap(
            line,
            width,
            subsequent_indent="    ",
            break_long_words=False,
            break_on_hyphens=False,
        )


def _generalize(line: Explanation) -> Explanation:
    """Return the line that requests have in common."""
    trait = line.trait
    if line.by == "image_type" and trait:
        trait = "COMPUTE_IMAGE_TYPE_*"
    return line._replace(trait=trait, because="" if trait else line.because)


def _join(lines: Iterable[Explanation]) -> str:
    """Return the requirements, those of one filter together."""
    texts = []
    for by, each in groupby(lines, attrgetter("by")):
        traits = ", ".join(map(_format_line, each))
        texts.append(f"{traits} ({by})")
    return "; ".join(texts)
