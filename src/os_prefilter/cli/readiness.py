"""``os-prefilter readiness``: which filters can be enforced without excluding a host that can, and what is missing."""

import argparse
from dataclasses import replace
from typing import Any

from cliff.columns import FormattableColumn

from os_prefilter.cli.arguments import add_pipeline_arguments, pipeline_from, traits_from
from os_prefilter.cli.listing import Listing
from os_prefilter.common.quoting import escape_line, join_first_names
from os_prefilter.operators.readiness import CLOSED, readiness

COLUMNS = ("Filter", "Row", "Traits", "State", "Without an answer", "Compute nodes")
NOT_READY = 2
"""The exit code with ``--check`` if anything is closed."""

_MOST_NAMES = 3


class Readiness(Listing):
    """Show which filters can be enforced without excluding a host that can, and which hosts hold the others back."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the command."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        add_pipeline_arguments(parser)
        parser.add_argument("--check", action="store_true", help="exit with code 2 if anything is closed")
        return parser

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Print the table; with ``--check`` return 2 if anything is closed."""
        super().run(parsed_args)
        return NOT_READY if parsed_args.check and self._closed else 0

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[tuple[str, ...], list[Any]]:
        """Return the columns and rows of the table."""
        fleet = traits_from(parsed_args)
        pipeline = pipeline_from(parsed_args, fleet)
        # Without a configuration it is the question what could be asked for.
        options = pipeline.options if parsed_args.config_file else replace(pipeline.options, reported_traits=("*",))
        lines = readiness(fleet, pipeline.filters, options)
        self._closed = sum(line.state == CLOSED for line in lines)
        others = [each.name for each in pipeline.filters if each.name not in {line.filter for line in lines}]
        self.tell(f"{len(lines) - self._closed} open, {self._closed} closed.")
        if self._closed and not any(line.unreported for line in lines):
            self.tell("There is no compute node: no host has the trait COMPUTE_NODE.", warning=True)
        if others:
            self.tell(f"Hosts are not asked for what these filters need: {escape_line(', '.join(others))}.")
        if parsed_args.formatter in ("csv", "value"):
            return COLUMNS, [
                (*line[:4], len(line.unreported), " ".join(map(escape_line, line.unreported))) for line in lines
            ]
        return COLUMNS, [(*line[:4], len(line.unreported), _Names(line.unreported)) for line in lines]


class _Names(FormattableColumn[Any]):
    """Names of hosts: all of them for machines, the first for people."""

    def human_readable(self) -> str:
        return join_first_names(self._value, _MOST_NAMES)

    def machine_readable(self) -> list[str]:
        return list(self._value)
