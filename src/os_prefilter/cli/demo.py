"""``os-prefilter demo``: the story of the bundled requests on the example fleet."""

import argparse
import textwrap
from typing import Any

from cliff.columns import FormattableColumn

from os_prefilter.cli.arguments import add_pipeline_arguments, embedded_placement, fleet_from, pipeline_from
from os_prefilter.cli.listing import Listing
from os_prefilter.operators.candidates import find_candidates
from os_prefilter.operators.examples import Example, example_requests
from os_prefilter.operators.explain import Line, lines_of
from os_prefilter.pipeline import Pipeline

_COLUMNS = ("Request", "Required, by whom", "Hosts that remain", "Without filters, also")
_WIDTH = 38


class Demo(Listing):
    """Tell, for each bundled request, what was asked, what was required and by whom, and which hosts remain."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the command."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        add_pipeline_arguments(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[tuple[str, ...], list[Any]]:
        """Return the columns and rows of the table."""
        fleet = fleet_from(parsed_args)
        pipeline = pipeline_from(parsed_args, fleet)
        with embedded_placement(fleet) as placement:
            rows = [_row(example, pipeline, placement.client) for example in example_requests().values()]
        self.app.stderr.write(
            f"{len(fleet.hosts)} hosts in a real Placement on SQLite; filters: "
            f"{', '.join(each.name for each in pipeline.filters) or 'none'}.\n"
        )
        if parsed_args.formatter in ("csv", "value"):
            # They have one line for a row and no structure in a cell.
            return _COLUMNS, [
                tuple("; ".join(cell.human_readable().split("\n")).strip("; ") for cell in row) for row in rows
            ]
        return _COLUMNS, rows


class _Asked(FormattableColumn[Any]):
    """A request: its title and what it asks for, one below the other."""

    def human_readable(self) -> str:
        example: Example = self._value
        lines = textwrap.wrap(f"{example.name}: {example.title}", _WIDTH)
        # The empty line parts it from the next request.
        return "\n".join([*lines, *(f"  {each}" for each in example.asked()), ""])

    def machine_readable(self) -> dict[str, Any]:
        example: Example = self._value
        return {"name": example.name, "title": example.title, "asked": example.asked()}


class _Required(FormattableColumn[Any]):
    """Lines of an explanation."""

    def human_readable(self) -> str:
        return "\n".join([*map(_told, self._value), ""]).lstrip("\n") or "nothing\n"

    def machine_readable(self) -> list[dict[str, str]]:
        return [line._asdict() for line in self._value]


class _Hosts(FormattableColumn[Any]):
    """Names of hosts."""

    def human_readable(self) -> str:
        return "\n".join([*self._value, ""]).lstrip("\n") or "none\n"

    def machine_readable(self) -> list[str]:
        return list(self._value)


def _row(example: Example, pipeline: Pipeline, placement: Any) -> tuple[FormattableColumn[Any], ...]:
    found = find_candidates(example.request_spec(), pipeline, placement)
    without = find_candidates(example.request_spec(), Pipeline(()), placement).candidates.hosts
    hosts = found.candidates.hosts
    spared = [host for host in without if host not in hosts]
    return _Asked(example), _Required(lines_of(found.decision)), _Hosts(hosts), _Hosts(spared)


def _told(line: Line) -> str:
    if not line.trait:
        return textwrap.fill(f"({line.because})", _WIDTH, subsequent_indent=" ")
    sign = "" if line.rule == "required" else "!"
    scope = "" if line.scope == "root" else f" on {line.scope}"
    return f"{line.by}: {sign}{line.trait}{scope}"
