# SPDX-License-Identifier: Apache-2.0

"""``os-prefilter decisions``: the history of decisions of a service."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial
from heapq import nlargest
from uuid import UUID

from os_prefilter.common.errors import DocumentError
from os_prefilter.common.quoting import escape_line
from os_prefilter_agent.cli.listing import Listing, Rows
from os_prefilter_tools.operators.decisions import (
    SHADOW,
    LoggedDecision,
    decisions_in,
    distinct_logs,
)
from os_prefilter_tools.operators.explain import line_of


class Decisions(Listing):
    """Show what past requests required and why they were rejected.

    It reads the log of a service with [prefilter] decision_history.
    """

    arguments = " PATH ..."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        text = "read this log of the service; - is the standard input"
        parser.add_argument("paths", metavar="PATH", nargs="+", help=text)
        parser.add_argument(
            "--server",
            metavar="UUID",
            type=UUID,
            help="show only decisions about this server",
        )
        text = (
            "show only this request, such as req-1b0d6a72-..., with a line for"
            " each requirement"
        )
        parser.add_argument("--request-id", metavar="ID", help=text)
        text = "show only requests that were rejected or failed"
        parser.add_argument("--rejected", action="store_true", help=text)
        text = "show the latest N decisions; default: %(default)s"
        parser.add_argument(
            "--limit", metavar="N", type=int, default=1000, help=text
        )

    def take_action(self, parsed_args: argparse.Namespace) -> Rows:
        self._read = self._matching = 0
        # A history may be larger than the memory.
        latest = [
            each
            for *_, each in sorted(
                nlargest(parsed_args.limit, self._wanted(parsed_args))
            )
        ]
        if not self._read:
            advice = (
                "none can be read. Check that [prefilter] decision_history is"
                " true, and that no line is cut."
            )
            raise DocumentError("no decision", advice)
        logs = escape_line(", ".join(distinct_logs(parsed_args.paths)))
        text = (
            f"Decisions: {self._read} in {logs}; {self._matching} match, the"
            f" latest {len(latest)} shown"
        )
        is_cut = len(latest) < self._matching
        self.print_line(
            f"{text}; a higher --limit shows more." if is_cut else f"{text}.",
            warning=is_cut,
        )
        if parsed_args.formatter in ("json", "yaml"):
            names = LoggedDecision._fields
            # As recorded: lines without shadow filters have no such key.
            number = len(names) - (not any(each.shadow for each in latest))
            return names[:number], [each[:number] for each in latest]
        if parsed_args.request_id is not None:
            columns = (
                "Time",
                "Server",
                "Trait",
                "Rule",
                "On",
                "By",
                "Because of",
            )
            return columns, [line for each in latest for line in _lines(each)]
        lines = [
            (each.time, each.request or "", each.server or "", each.outcome)
            for each in latest
        ]
        return ("Time", "Request", "Server", "Result"), lines

    def _wanted(
        self, arguments: argparse.Namespace
    ) -> Iterator[tuple[str, int, LoggedDecision]]:
        """Yield the selected decisions, and warn of damaged lines."""
        request_id = arguments.request_id
        for each in decisions_in(
            arguments.paths, partial(self.print_line, warning=True)
        ):
            self._read += 1
            if arguments.server and each.server != str(arguments.server):
                continue
            if request_id is not None and each.request != request_id:
                continue
            if arguments.rejected and each.result in ("passed", SHADOW):
                continue
            self._matching += 1
            yield each.time, self._matching, each


def _lines(each: LoggedDecision) -> Iterator[tuple[str, ...]]:
    """Yield the requirements of a decision, and why it was rejected.

    They look as in ``explain``; the reason comes first.
    """
    where = (each.time, each.server or "")
    if each.result == SHADOW:
        yield (*where, "", SHADOW, "", "", each.outcome)
    if each.reason is not None:
        yield (*where, "", each.result, "", "", each.reason)
    for step in each.hosts:
        hosts = f"{step['after']} of {step['before']} hosts"
        yield (*where, "", hosts, "", step["by"], "")
    for item in each.items():
        yield (*where, *line_of(item))
    for note in each.notes:
        yield (*where, "", "note", "", "", note)
    if each.left_out:
        yield (
            *where,
            "",
            "left out",
            "",
            "",
            f"{each.left_out} more requirements, preferences and notes",
        )
    elif each.reason is None and not (
        each.requirements
        or each.aggregates
        or each.preferences
        or each.notes
        or each.shadow
    ):
        yield (*where, "", "nothing required", "", "", "")
