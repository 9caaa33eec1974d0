"""``os-prefilter readiness``: which filters can be enforced without excluding a host that can, and what is missing."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from os_prefilter.common.quoting import escape_line, join_first_names
from os_prefilter_tools.cli.context import values_of
from os_prefilter_tools.cli.filters_and_hosts import FiltersAndHosts, add_pipeline_arguments
from os_prefilter_tools.cli.listing import Cell, Listing
from os_prefilter_tools.operators.readiness import CLOSED, readiness, reported_otherwise

COLUMNS = ("Filter", "Row", "Traits", "State", "Without an answer", "Compute nodes")
NOT_READY = 2
"""The exit code with ``--check`` if anything is closed."""

_MOST_NAMES = 3


class ShowReadiness(Listing):
    """Show which filters can be enforced without excluding a host that can, and which hosts hold the others back."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_pipeline_arguments(self, parser)
        parser.add_argument("--check", action="store_true", help="exit with code 2 if anything is closed")

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[tuple[str, ...], list[Any]]:
        """Return the columns and rows of the table; with ``--check`` exit with 2 if anything is closed."""
        asked = values_of(FiltersAndHosts, parsed_args)
        fleet = asked.fleet(self.context, traits_only=True)
        service = asked.service(fleet, self.context)
        # Without a configuration the table shows what could be required.
        options = service.options if asked.config_file else replace(service.options, reported_traits=("*",))
        scope = asked.scope([each.name for each in service.filters], options)
        lines = readiness(fleet, service.filters, options, scope)
        closed = sum(line.state == CLOSED for line in lines)
        self.exit_code = NOT_READY if parsed_args.check and closed else 0
        others = [each.name for each in service.filters if each.name not in {line.filter for line in lines}]
        self.tell(f"{len(lines) - closed} open, {closed} closed.")
        if closed and not any(line.unreported for line in lines):
            self.tell("There is no compute node: no host has the trait COMPUTE_NODE.", warning=True)
        elsewhere = reported_otherwise(fleet, scope) if closed else ()
        if elsewhere:
            advice = (
                "Give the schedulers and the compute nodes the same section, and report again"
                if asked.config_file
                else "Give --config-file with the schedulers' section"
            )
            self.tell(
                f"Reported for other options of [prefilter], or by an earlier release: "
                f"{join_first_names(elsewhere, _MOST_NAMES)}. {advice}.",
                warning=True,
            )
        if others:
            self.tell(f"These filters need no capability reports: {escape_line(', '.join(others))}.")
        return COLUMNS, [(*line[:4], len(line.unreported), _names(line.unreported)) for line in lines]


def _names(hosts: Sequence[str]) -> Cell:
    return Cell(list(hosts), join_first_names(hosts, _MOST_NAMES), " ".join(map(escape_line, hosts)))
