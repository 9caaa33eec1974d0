# SPDX-License-Identifier: Apache-2.0

"""``os-prefilter offer ...``: what a cloud offers to its customers.

The offer is a document, or metadata definitions in its Glance.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from os_prefilter.common.errors import DocumentError
from os_prefilter.common.quoting import escape_line, join_names, pluralize
from os_prefilter_agent.cli.context import CloudCommand, values_of
from os_prefilter_agent.cli.listing import Cell, Listing, Rows
from os_prefilter_agent.cli.output import (
    add_output_arguments,
    check_output,
    write_output,
)
from os_prefilter_agent.cli.program import NO_HOST
from os_prefilter_tools.cli.filters_and_hosts import (
    FiltersAndHosts,
    add_pipeline_arguments,
)
from os_prefilter_tools.operators.offer.formats import as_json, as_markdown
from os_prefilter_tools.operators.offer.metadefs import MARK, namespaces
from os_prefilter_tools.operators.offer.offered_values import (
    DEFAULT_ZONE,
    Offer,
    find_offer,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from os_prefilter_tools.adapters.cloud.metadefs import MetadefChange

_FORMATS = {"markdown": as_markdown, "json": as_json}


class DescribeOffer(CloudCommand):
    """Describe for customers which properties and extra specs work here.

    The document names no host.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_pipeline_arguments(self, parser)
        parser.add_argument(
            "--format",
            choices=_FORMATS,
            default="markdown",
            help="default: %(default)s",
        )
        text = (
            "describe each zone or aggregate separately; default: the cloud as"
            " a whole"
        )
        parser.add_argument("--by", choices=("zone", "aggregate"), help=text)
        text = (
            "count hosts whose aggregates have no zone to this one; default:"
            " %(default)s"
        )
        parser.add_argument(
            "--default-zone", metavar="NAME", default=DEFAULT_ZONE, help=text
        )
        parser.add_argument(
            "--count",
            action="store_true",
            help="also show how many hosts serve each value",
        )
        add_output_arguments(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Write the document; return 2 if there is no enabled host."""
        check_output(parsed_args.output, force=parsed_args.force)
        asked = values_of(FiltersAndHosts, parsed_args)
        fleet = asked.fleet(self.context)
        found = find_offer(
            fleet,
            asked.service(fleet, self.context),
            parsed_args.by or "",
            parsed_args.default_zone,
        )
        if parsed_args.by and found.hosts and not found.places:
            raise DocumentError(
                "--by",
                "no aggregate has a name here. Leave out --by, or name the"
                " aggregates.",
            )
        text = _FORMATS[parsed_args.format](found, count=parsed_args.count)
        write_output(
            text, parsed_args.output, self.app.stdout, force=parsed_args.force
        )
        return _tell_about(self, found)


class PublishOffer(Listing):
    """Plan the offer as Glance's metadata definitions; --apply writes it."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_pipeline_arguments(self, parser)
        parser.add_argument(
            "--apply",
            action="store_true",
            help="write the changes; default: only show them",
        )

    def take_action(self, parsed_args: argparse.Namespace) -> Rows:
        # cliff imports every command at its start, and the SDK takes a second
        # to import.
        if not self.context.has_cloud:
            raise DocumentError(
                "--os-cloud",
                "it is needed, as the values go to the Glance of a cloud. Name"
                " a cloud.",
            )
        from os_prefilter_tools.adapters.cloud.metadefs import (  # noqa: PLC0415
            plan_metadefs,
            write_metadefs,
        )

        asked = values_of(FiltersAndHosts, parsed_args)
        fleet = asked.fleet(self.context)
        found = find_offer(fleet, asked.service(fleet, self.context))
        self.exit_code = _tell_about(self, found)
        changes: list[MetadefChange] = []
        if found.hosts:
            changes = plan_metadefs(
                self.context.connection, namespaces(found), MARK
            )
            if parsed_args.apply:
                write_metadefs(self.context.connection, changes)
        rows = [row for each in changes for row in _rows(each)]
        if not rows:
            self.print_line(
                "Nothing was changed."
                if not found.hosts
                else "Nothing is left to do."
            )
        else:
            written = (
                "written"
                if parsed_args.apply
                else "planned; nothing was written without --apply"
            )
            self.print_line(f"{pluralize(len(rows), 'change')} {written}.")
        return ("Namespace", "Property", "Change", "Before", "After"), rows


def _tell_about(command: CloudCommand, found: Offer) -> int:
    """Print what an operator must know of the offer; return the exit code."""
    if found.waiting:
        names = join_names(found.waiting)
        advice = (
            "Values that they would require are not checked; 'os-prefilter"
            " readiness' shows the compute nodes."
        )
        command.print_line(
            f"Filters that wait for compute nodes to report: {names}."
            f" {advice}",
            warning=True,
        )
    if not found.hosts:
        command.print_line(
            "No host is an enabled compute node: one with COMPUTE_NODE that is"
            " not disabled.",
            warning=True,
        )
    return 0 if found.hosts else NO_HOST


def _rows(change: MetadefChange) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of the plan for a change.

    A new namespace has a row for each property, too.
    """
    body = change.body or {}
    after = body if change.name and change.method != "DELETE" else None
    yield (
        change.namespace,
        escape_line(change.name),
        change.what,
        _values(change.before),
        _values(after),
    )
    if change.what == "create":
        for name, definition in body["properties"].items():
            yield (
                change.namespace,
                escape_line(name),
                "add",
                _values(None),
                _values(definition),
            )


def _values(definition: Mapping[str, Any] | None) -> Cell:
    """Return a cell with the values of a property.

    Without any for none, or free text.
    """
    values = [str(each) for each in (definition or {}).get("enum") or ()]
    text = ", ".join(map(escape_line, values)) or (
        "any text" if definition else ""
    )
    return Cell(values, text, text)
