# SPDX-License-Identifier: Apache-2.0

"""``os-prefilter audit``: the hosts of all images, volumes or servers.

Images and volumes before and after filters are enabled, servers if they move.
"""

from __future__ import annotations

import argparse
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from os_prefilter.common.errors import DocumentError, PrefilterError
from os_prefilter.common.quoting import escape_line
from os_prefilter.service import Service
from os_prefilter_agent.cli.context import values_of
from os_prefilter_agent.cli.deadline import UntilStopped
from os_prefilter_agent.cli.listing import Listing, Rows
from os_prefilter_agent.cli.output import check_output, write_output
from os_prefilter_agent.cli.program import NO_HOST
from os_prefilter_tools.cli import audit_rows
from os_prefilter_tools.cli.audit_arguments import (
    AuditArguments,
    add_audit_arguments,
)
from os_prefilter_tools.cli.audit_page import Lines, render_page
from os_prefilter_tools.cli.audit_rows import first_of
from os_prefilter_tools.cli.filters_and_hosts import names_in
from os_prefilter_tools.operators.audit.destinations import Destinations
from os_prefilter_tools.operators.audit.entry_list import LeftOut
from os_prefilter_tools.operators.audit.image_audit import (
    BECOMES_UNSCHEDULABLE,
    Audit,
    FilterChange,
    audit_images,
)
from os_prefilter_tools.operators.audit.rehearsal import Rehearsal
from os_prefilter_tools.operators.audit.server_audit import (
    STRANDED,
    ServerAudit,
    ServerVerdict,
    audit_servers,
)
from os_prefilter_tools.operators.audit.waves import find_waves


class AuditFilters(Listing):
    """Show the hosts of each image or server, and why others are excluded.

    An image, or a bootable volume with --volumes, has its hosts before and
    after filters are enabled.
    """

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_audit_arguments(self, parser)

    def take_action(self, parsed_args: argparse.Namespace) -> Rows:
        asked = values_of(AuditArguments, parsed_args)
        asked.check(self.context)
        check_output(asked.html, force=asked.force)
        is_csv = parsed_args.formatter == "csv"
        return (
            self._images(asked, is_csv=is_csv)
            if asked.servers is None
            else self._servers(asked, is_csv=is_csv)
        )

    def _images(self, asked: AuditArguments, *, is_csv: bool) -> Rows:
        left_out = LeftOut()
        what, read = "image", asked.read_images
        if asked.volumes is not None:
            what, read = "volume", asked.read_volumes
        with self.context.progress() as progress, _each_warning_once():
            fleet = asked.fleet(
                self.context, traits_only=True, progress=progress
            )
            change = asked.change(fleet, self.context)
            rehearsal = asked.rehearse(fleet, change.after, self.context)
            if rehearsal:
                change = rehearsal.change
            found = audit_images(
                read(self.context, left_out),
                fleet,
                change,
                what=what,
                flavors=asked.flavors(self.context),
                becoming=rehearsal.fleet if rehearsal else None,
                progress=progress,
            )
        if not found.images:
            advice = f"What 'openstack {what} list' prints has no properties."
            article = "an" if what == "image" else "a bootable"
            expected = f"{article} {what}: %s {advice}"
            path = str(asked.volumes or asked.images or "") or None
            raise _nothing_to_audit(what, path, left_out, expected)
        self.exit_code = NO_HOST if found.count(*BECOMES_UNSCHEDULABLE) else 0
        filters = {
            "before": _names_of(change.before),
            "after": _names_of(change.after),
        }
        self.about = {
            "filters": filters,
            "summary": audit_rows.image_document(found, left_out),
        }
        before = ", ".join(filters["before"]) or "none"
        applied = f"{_describe_filters(asked, change)} Before: {before}."
        lines: Lines = [(applied, False)]
        if not fleet.has_inventories:
            judged = (
                "Only traits were read: resource classes of hosts are not"
                " judged."
            )
            lines.append((judged, bool(fleet.changed_while_read)))
        lines += ((text, False) for text in audit_rows.image_summary(found))
        self._finish(asked, found, lines, left_out, rehearsal)
        return audit_rows.image_rows(found, only=asked.only, is_csv=is_csv)

    def _servers(self, asked: AuditArguments, *, is_csv: bool) -> Rows:
        left_out = LeftOut()
        with self.context.progress() as progress, _each_warning_once():
            fleet = asked.fleet(self.context)
            change = asked.change(fleet, self.context)
            was = destinations = Destinations(fleet, change.after)
            rehearsal = asked.rehearse(fleet, change.after, self.context)
            if rehearsal:
                then = rehearsal.change.after
                destinations = Destinations(rehearsal.fleet, then, before=was)
            with UntilStopped() as reading:
                servers = reading.items(
                    asked.read_servers(self.context, left_out)
                )
                found = audit_servers(
                    servers,
                    destinations,
                    names_in(asked.without),
                    progress,
                    left_out,
                )
            waves = None
            if rehearsal and asked.waves:
                waves = find_waves(
                    found.residents,
                    was.index,
                    destinations.index,
                    destinations.hosts_named(rehearsal.upgraded),
                    asked.waves,
                )
        not_read = escape_line(reading.reason)
        if not_read and not found.servers:
            raise PrefilterError(
                f"no server was read: {not_read.rstrip('.')}. Give it more"
                " time, or a file of servers."
            )
        if not (found.servers or found.no_place):
            path = str(asked.servers) if asked.servers else None
            raise _nothing_to_audit(
                "server", path, left_out, "a server that can be judged: %s"
            )
        host_filters = asked.host_filters_not_judged()
        # Only 0 is an all-clear.
        is_clear = not (
            not_read
            or left_out.count
            or host_filters
            or found.count(ServerVerdict.UNKNOWN)
        )
        is_stranded = found.count(*STRANDED) or (
            waves and (waves.stranded or waves.in_the_way)
        )
        self.exit_code = NO_HOST if is_stranded else int(not is_clear)
        self.about = {
            "filters": _names_of(change.after),
            "summary": audit_rows.server_document(
                found, left_out, not_read, host_filters
            ),
        }
        lines: Lines = [(_describe_filters(asked, change), False)]
        if not_read:
            problem = (
                "Not all servers were read, only the first"
                f" {found.servers}: {not_read}"
            )
            lines.append((problem, True))
        lines += ((text, False) for text in audit_rows.server_summary(found))
        if waves:
            document = audit_rows.waves_document(waves, found)
            self.about["waves"] = document
            summary = audit_rows.waves_summary(document)
            lines += ((text, False) for text in summary)
        what = "Host filters that may exclude more hosts"
        lines += ((text, True) for text in first_of(what, host_filters))
        self._finish(asked, found, lines, left_out, rehearsal)
        return audit_rows.server_rows(
            found, only_stranded=asked.only == "unschedulable", is_csv=is_csv
        )

    def _finish(
        self,
        asked: AuditArguments,
        found: Audit | ServerAudit,
        lines: Lines,
        left_out: LeftOut,
        rehearsal: Rehearsal | None,
    ) -> None:
        """Write the page, if requested, and print the lines.

        Each line has whether it is a warning.
        """
        if rehearsal:
            document = audit_rows.rehearsal_document(rehearsal)
            self.about = {**(self.about or {}), "rehearsal": document}
            summary = audit_rows.rehearsal_summary(rehearsal)
            lines += ((text, False) for text in summary)
        for text in first_of("Left out", left_out.first, left_out.count):
            lines.append((text, True))
        if asked.html:
            page = render_page(found, [*self.context.notes, *lines])
            write_output(
                page,
                asked.html,
                self.app.stdout,
                force=asked.force,
                private=True,
            )
        for line, warning in lines:
            self.print_line(str(line), warning=warning)


def _names_of(service: Service) -> list[str]:
    return [each.name for each in service.filters]


def _describe_filters(asked: AuditArguments, change: FilterChange) -> str:
    return (
        f"Filters: {', '.join(_names_of(change.after))}"
        f" ({asked.source_of_filters()})."
    )


def _nothing_to_audit(
    what: str, path: str | None, left_out: LeftOut, expected: str
) -> DocumentError:
    """Return the error of an empty list.

    A command that failed may have written it, and it would look like an
    all-clear.

    :param expected: what no entry is, with a place for the problem of the
        first one
    """
    where = path or "the cloud"
    if left_out.count:
        return DocumentError(
            where, f"no entry is {expected % left_out.first[0]}"
        )
    advice = (
        "Check the command that wrote it."
        if path
        else "Check the project and the roles of the login."
    )
    return DocumentError(
        where, f"it has no {what}, so that there is nothing to audit. {advice}"
    )


@contextmanager
def _each_warning_once() -> Iterator[None]:
    """Log each warning once, not again for each image or service."""
    loggers = [
        logging.getLogger(f"os_prefilter.{name}")
        for name in ("request.extra_specs", "service.conf")
    ]
    seen = Counter[str]()

    def is_new(record: logging.LogRecord) -> bool:
        seen[record.getMessage()] += 1
        return seen[record.getMessage()] == 1

    with ExitStack() as stack:
        for logger in loggers:
            logger.addFilter(is_new)
            stack.callback(logger.removeFilter, is_new)
        yield
