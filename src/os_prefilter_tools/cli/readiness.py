# SPDX-License-Identifier: Apache-2.0

"""``os-prefilter readiness``: enforced and deferred requirements."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace

from os_prefilter.common.errors import DocumentError
from os_prefilter.common.quoting import escape_line, join_first_names
from os_prefilter.request.filter_contract import LoadedFilter
from os_prefilter.vocabulary.options import Options
from os_prefilter_agent.cli.configuration import read_configuration
from os_prefilter_agent.cli.context import values_of
from os_prefilter_agent.cli.listing import Cell, Listing, Rows
from os_prefilter_tools.cli.filters_and_hosts import (
    FiltersAndHosts,
    add_pipeline_arguments,
)
from os_prefilter_tools.operators.readiness import (
    DEFERRED,
    configured_filters,
    find_unwanted,
    readiness,
)

COLUMNS = ("Filter", "Row", "Traits", "State", "Not reported", "Compute nodes")
NOT_READY = 2
"""The exit code with ``--check`` if anything is deferred."""

_MOST_NAMES = 3


class ShowReadiness(Listing):
    """Show deferred requirements, and the hosts that have not reported."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_pipeline_arguments(self, parser)
        parser.add_argument(
            "--check",
            action="store_true",
            help="exit with code 2 if anything is deferred",
        )
        text = (
            "delete from Placement the names by which only other sections"
            " [prefilter] want rows, and print these rows: agents stop"
            " reporting them within two hours; a scheduler that wants them"
            " says so again"
        )
        parser.add_argument(
            "--forget-unwanted", action="store_true", help=text
        )

    def take_action(self, parsed_args: argparse.Namespace) -> Rows:
        """Return the table; ``--check`` exits 2 if anything is deferred."""
        asked = values_of(FiltersAndHosts, parsed_args)
        is_live = asked.asks_live_placement(self.context) and bool(
            asked.config_file
        )
        if parsed_args.forget_unwanted and not is_live:
            raise DocumentError(
                "--forget-unwanted",
                "give --os-cloud, and --config-file with the schedulers'"
                " section.",
            )
        fleet = asked.fleet(self.context, traits_only=True)
        service = asked.service(fleet, self.context, with_shadow=True)
        # Without a configuration the table shows what could be required.
        options = (
            service.options
            if asked.config_file
            else replace(service.options, reported_traits=("*",))
        )
        lines = readiness(fleet, service.filters, options)
        deferred = sum(line.state == DEFERRED for line in lines)
        self.exit_code = NOT_READY if parsed_args.check and deferred else 0
        with_lines = {line.filter for line in lines}
        others = [
            each.name
            for each in service.filters
            if each.name not in with_lines
        ]
        self.print_line(
            f"{len(lines) - deferred} enforced, {deferred} deferred."
        )
        if deferred and not any(line.unreported for line in lines):
            self.print_line(
                "There is no compute node: no host has the trait"
                " COMPUTE_NODE.",
                warning=True,
            )
        if others:
            self.print_line(
                "These filters need no capability reports:"
                f" {escape_line(', '.join(others))}."
            )
        if is_live:
            # As the section is: the service of a command also knows traits
            # that hosts have and it does not name.
            section = configured_filters(read_configuration(asked.config_file))
            self._look_for_unwanted(
                *section, forget=parsed_args.forget_unwanted
            )
        return COLUMNS, [
            (
                *line[:2],
                _names(line.traits, 1),
                line.state,
                len(line.unreported),
                _names(line.unreported, _MOST_NAMES),
            )
            for line in lines
        ]

    def _look_for_unwanted(
        self,
        filters: Sequence[LoadedFilter],
        options: Options,
        *,
        forget: bool,
    ) -> None:
        """Show, or remove, markers of schedulers with other sections.

        Agents learn by these names in Placement what only other sections
        require.

        The traits themselves stay: a scheduler with another section may name
        one in a query now.
        """
        placement = self.context.placement
        names, rows = find_unwanted(
            placement.custom_traits() - placement.traits_in_use(),
            filters,
            options,
        )
        for trait in names if forget else ():
            placement.delete_trait(trait)
        if names:
            what = (
                "Removed from Placement"
                if forget
                else "In Placement, and not wanted by this section"
            )
            advice = "" if forget else " --forget-unwanted removes them."
            self.print_line(
                f"{what}: {join_first_names(names, _MOST_NAMES)}.{advice}"
            )
        if rows:
            self.print_line(
                f"Rows that agents stop reporting{'' if forget else ' then'}:"
                f" {', '.join(rows)}."
            )


def _names(names: Sequence[str], most: int) -> Cell:
    """Return names as a cell: some in a table, all in other formats."""
    return Cell(
        list(names),
        join_first_names(names, most),
        " ".join(map(escape_line, names)),
    )
