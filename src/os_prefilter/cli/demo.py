"""``os-prefilter demo``: the story of the bundled requests on the example fleet."""

import argparse
import textwrap
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from cliff.columns import FormattableColumn

from os_prefilter.cli.arguments import (
    add_pipeline_arguments,
    asks_live_placement,
    embedded_placement,
    fleet_from,
    pipeline_from,
    reported_from,
)
from os_prefilter.cli.cloud import connection_of
from os_prefilter.cli.listing import Listing
from os_prefilter.errors import PlacementRefused, UnknownTraits
from os_prefilter.operators.candidates import Found, ask_live_placement, ask_placement
from os_prefilter.operators.examples import Example, example_requests
from os_prefilter.operators.explain import Line, lines_of
from os_prefilter.pipeline.decision import Decision
from os_prefilter.pipeline.pipeline import Pipeline
from os_prefilter.request.spec import RequestSpec

_COLUMNS = ("Request", "Required, by whom", "Hosts that remain", "Without filters, also")
_WIDTH = 38
_ANY_WIDTH = 10_000

_Ask = Callable[[RequestSpec, Decision], Found]


class Demo(Listing):
    """Tell, for each bundled request, what was asked, what was required and by whom, and which hosts remain."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the command."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        add_pipeline_arguments(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[tuple[str, ...], list[Any]]:
        """Return the columns and rows of the table."""
        where, pipeline, rows = (_of_cloud if asks_live_placement(parsed_args) else _of_fleet)(parsed_args)
        names = ", ".join(each.name for each in pipeline.filters) or "none"
        self.tell(f"{where}; filters: {names}.")
        if parsed_args.formatter in ("csv", "value"):
            # They have one line for a row and no structure in a cell.
            return _COLUMNS, [tuple("; ".join(cell.lines(_ANY_WIDTH)) for cell in row) for row in rows]
        return _COLUMNS, rows


class _Cell(FormattableColumn[Any]):
    """A cell of several lines in a table; a list or an object in JSON and YAML."""

    def lines(self, width: int) -> list[str]:
        """Return the lines for people, sentences wrapped at ``width``."""
        raise NotImplementedError

    def human_readable(self) -> str:
        # The empty line parts it from the next request.
        return "\n".join([*self.lines(_WIDTH), ""])


class _Asked(_Cell):
    """A request: its title and what it asks for."""

    def lines(self, width: int) -> list[str]:
        example: Example = self._value
        return [*textwrap.wrap(f"{example.name}: {example.title}", width), *(f"  {each}" for each in example.asked())]

    def machine_readable(self) -> dict[str, Any]:
        example: Example = self._value
        return {"name": example.name, "title": example.title, "asked": example.asked()}


class _Required(_Cell):
    """Lines of an explanation."""

    def lines(self, width: int) -> list[str]:
        return [told for line in self._value for told in _told(line, width)] or ["nothing"]

    def machine_readable(self) -> list[dict[str, str]]:
        return [line._asdict() for line in self._value]


class _Hosts(_Cell):
    """Names of hosts."""

    def lines(self, width: int) -> list[str]:  # noqa: ARG002 - names are not wrapped
        return list(self._value) or ["none"]

    def machine_readable(self) -> list[str]:
        return list(self._value)


_Told = tuple[str, Pipeline, list[tuple[_Cell, ...]]]
"""Where the hosts are, the pipeline, and a row for each request."""


def _of_fleet(arguments: argparse.Namespace) -> _Told:
    fleet = fleet_from(arguments)
    pipeline = pipeline_from(arguments, fleet)
    with embedded_placement(fleet) as placement:
        rows = [_row(each, pipeline, partial(ask_placement, placement=placement.client)) for each in _examples()]
    hosts = len(fleet.instance_hosts)
    where = f"{hosts} host{'s' * (hosts != 1)} in a real Placement on SQLite"
    return where, pipeline, rows


def _of_cloud(arguments: argparse.Namespace) -> _Told:
    from os_prefilter.adapters.cloud.connection import placement_of  # noqa: PLC0415

    ask = partial(ask_live_placement, placement=placement_of(connection_of(arguments)))
    pipeline = pipeline_from(arguments, reported_from(arguments))
    return "The Placement of the cloud", pipeline, [_row(each, pipeline, ask) for each in _examples()]


def _examples() -> Iterable[Example]:
    return example_requests().values()


def _row(example: Example, pipeline: Pipeline, ask: _Ask) -> tuple[_Cell, ...]:
    spec = example.request_spec()
    decision = pipeline.apply(spec)
    hosts = _hosts(spec, decision, ask)
    without = _hosts(example.request_spec(), Decision(()), ask)
    spared = [host for host in without if host not in hosts]
    return _Asked(example), _Required(lines_of(decision)), _Hosts(hosts), _Hosts(spared)


def _hosts(spec: RequestSpec, decision: Decision, ask: _Ask) -> tuple[str, ...]:
    try:
        hosts: tuple[str, ...] = ask(spec, decision).candidates.hosts
    except (PlacementRefused, UnknownTraits):
        # A fleet of somebody's own may not have the resource class of a bundled request, nor an old cloud a trait.
        return ()
    return hosts


def _told(line: Line, width: int) -> list[str]:
    if not line.trait:
        return textwrap.wrap(f"({line.because})", width, subsequent_indent=" ")
    sign = "" if line.rule == "required" else "!"
    scope = "" if line.scope == "root" else f" on {line.scope}"
    return [f"{line.by}: {sign}{line.trait}{scope}"]
