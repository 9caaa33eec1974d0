"""``os-prefilter decisions``: the history of decisions of a service."""

import argparse
import os
from collections.abc import Iterator
from heapq import nlargest
from typing import Any
from uuid import UUID

from os_prefilter.common.errors import DocumentError
from os_prefilter.common.quoting import escape_line, pluralize
from os_prefilter_tools.cli.listing import Listing
from os_prefilter_tools.operators.decisions import DecisionFile, LoggedDecision
from os_prefilter_tools.operators.explain import line_of


class Decisions(Listing):
    """Show what past requests required and why they were rejected, from the log of a service."""

    arguments = " PATH ..."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        text = "read this log of the service; - is the standard input"
        parser.add_argument("paths", metavar="PATH", nargs="+", help=text)
        parser.add_argument("--server", metavar="UUID", type=UUID, help="show only decisions about this server")
        text = "show only this request, such as req-1b0d6a72-..., with a line for each requirement"
        parser.add_argument("--request-id", metavar="ID", help=text)
        text = "show only requests that were rejected or failed"
        parser.add_argument("--rejected", action="store_true", help=text)
        text = "show the latest N decisions; default: %(default)s"
        parser.add_argument("--limit", metavar="N", type=int, default=1000, help=text)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[tuple[str, ...], list[Any]]:
        self._read = self._matching = self._damaged = 0
        # A history may be larger than the memory.
        latest = [each for *_, each in sorted(nlargest(parsed_args.limit, self._wanted(parsed_args)))]
        if not self._read:
            advice = "the log is empty; check that [prefilter] decision_history is true."
            if self._damaged:
                advice = "each line of a decision is damaged. Check the format of the log and what cuts its lines."
            raise DocumentError("no decision", advice)
        logs = escape_line(", ".join(parsed_args.paths))
        text = f"Decisions: {self._read} in {logs}; {self._matching} match, the latest {len(latest)} shown"
        is_cut = len(latest) < self._matching
        self.tell(f"{text}; a higher --limit shows more." if is_cut else f"{text}.", warning=is_cut)
        if parsed_args.formatter in ("json", "yaml"):
            return LoggedDecision._fields, latest
        if parsed_args.request_id is not None:
            columns = ("Time", "Server", "Trait", "Rule", "On", "By", "Because of")
            return columns, [line for each in latest for line in _lines(each)]
        return ("Time", "Request", "Server", "Result"), list(map(_line, latest))

    def _wanted(self, arguments: argparse.Namespace) -> Iterator[tuple[str, int, LoggedDecision]]:
        """Yield the decisions that the arguments describe, by time and place, and warn of damaged lines."""
        # A file may be named twice.
        for path in {each if each == "-" else os.path.realpath(each): each for each in arguments.paths}.values():
            file = DecisionFile(path)
            for each in file:
                self._read += 1
                if (
                    (arguments.server is None or each.server == str(arguments.server))
                    and (arguments.request_id is None or each.request == arguments.request_id)
                    and (not arguments.rejected or each.result != "passed")
                ):
                    self._matching += 1
                    yield each.time, self._matching, each
            if file.damaged:
                number, first = len(file.damaged), file.damaged[0]
                self._damaged += number
                problem = f"left out {pluralize(number, 'damaged decision')}, the first one here."
                self.tell(str(DocumentError(file.path, problem, first)), warning=True)


def _line(each: LoggedDecision) -> tuple[object, ...]:
    if each.reason is not None:
        result = f"{each.result}: {each.reason}"
    else:
        number = len(each.requirements) + len(each.aggregates)
        result = pluralize(number, "requirement") if number else "no requirement"
    return each.time, each.request or "", each.server or "", result


def _lines(each: LoggedDecision) -> Iterator[tuple[str, ...]]:
    """Yield the requirements of a decision as ``explain`` shows them, and before them why it was rejected."""
    where = (each.time, each.server or "")
    if each.reason is not None:
        yield (*where, "", each.result, "", "", each.reason)
    yield from ((*where, "", f"{step['after']} of {step['before']} hosts", "", step["by"], "") for step in each.hosts)
    for item in each.items():
        yield (*where, *line_of(item))
    for note in each.notes:
        yield (*where, "", "not required", "", "", note)
    if each.left_out:
        yield (*where, "", "left out", "", "", f"{each.left_out} more requirements, preferences and notes")
    elif each.reason is None and not (each.requirements or each.aggregates or each.preferences or each.notes):
        yield (*where, "", "nothing required", "", "", "")
