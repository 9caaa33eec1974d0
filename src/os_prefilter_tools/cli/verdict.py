# SPDX-License-Identifier: Apache-2.0

"""``os-prefilter verdict``: whether to enable shadow filters."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from os_prefilter.common.errors import DocumentError
from os_prefilter.common.quoting import escape_line, pluralize, shorten
from os_prefilter_agent.cli.context import values_of
from os_prefilter_agent.cli.listing import Cell, Listing, Rows
from os_prefilter_agent.cli.program import ERROR, NO_HOST
from os_prefilter_tools.cli.filters_and_hosts import FiltersAndHosts
from os_prefilter_tools.operators.boots import (
    NovaFile,
    read_boots,
    read_outcomes,
)
from os_prefilter_tools.operators.decisions import (
    decisions_in,
    distinct_logs,
)
from os_prefilter_tools.operators.verdict import (
    ENABLE,
    NO,
    NUMBERS,
    REPORT,
    UNKNOWN,
    FilterResult,
    HostTraits,
    judge_filters,
)

COLUMNS = ("Filter", "List", *NUMBERS, "Verdict", "Why", "Details")
_OF_ENABLED: tuple[str, ...] = ("Boots", "Failed", "Not known")
# The most urgent first.
_CODES = {NO: NO_HOST, REPORT: NO_HOST, UNKNOWN: ERROR, ENABLE: 0}
_DETAIL = (
    "{host} {trait} ({source}): {failed} failed, {run} run: {server} {fault}"
)
_ADVICE = (
    "none has required anything of a server. Name filters in [prefilter]"
    " shadow_filters of the schedulers, with decision_history, and read the"
    " log of a week from then on."
)
_OTHER_LOG = (
    "decisions without a server or request: {}. Give the log of"
    " nova-scheduler, which has both."
)
_MOST_LINES = 3
_MOST_DETAILS = 100


class ShowVerdict(Listing):
    """Show what shadow filters would have changed, and which to enable.

    It joins the log of a service with [prefilter] decision_history and
    shadow_filters with what became of the servers.
    """

    arguments = " PATH ..."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        text = "read this log of the service; - is the standard input"
        parser.add_argument("paths", metavar="PATH", nargs="+", help=text)
        text = (
            "read what became of the servers from this file: a JSON object"
            " with Nova's response to each path of its API; default: ask the"
            " cloud"
        )
        parser.add_argument("--servers", metavar="FILE", help=text)
        text = (
            "read the traits of hosts from this fleet file; default: the"
            " cloud's hosts, else the bundled example"
        )
        parser.add_argument("--hosts", metavar="FILE", help=text)
        self.add_cloud_argument(
            parser, "read hosts and servers from this cloud in clouds.yaml"
        )

    def take_action(self, parsed_args: argparse.Namespace) -> Rows:
        warn = partial(self.print_line, warning=True)
        nova = self._nova(parsed_args.servers)
        with self.context.progress() as progress:
            logged = decisions_in(parsed_args.paths, warn)
            history = read_boots(logged, progress)
            if not history.boots:
                advice = _ADVICE
                if history.unnamed:
                    advice = _OTHER_LOG.format(history.unnamed)
                raise DocumentError("no boot", advice)
            fleet = values_of(FiltersAndHosts, parsed_args).fleet(
                self.context, traits_only=True, progress=progress
            )
            source = parsed_args.servers or "Nova"
            outcomes = read_outcomes(history, nova, source, progress)
        results = judge_filters(history, outcomes, HostTraits(fleet))
        boots = len(history.boots)
        logs = escape_line(", ".join(distinct_logs(parsed_args.paths)))
        self.print_line(
            f"Decisions: {history.decisions} in {logs}, since {history.first}."
            f" Boots: {boots}, judged by the traits that hosts have now."
        )
        if len(outcomes) < boots:
            warn(
                f"Judged: {len(outcomes)} of {boots} boots, spread over the"
                " time, those first that a shadow filter would have changed."
                " The log of fewer days has fewer boots."
            )
        if unknown := list(outcomes.values()).count(None):
            warn(
                f"Not known: what became of {pluralize(unknown, 'boot')}. Such"
                " servers are purged, or not built yet."
            )
        verdicts = [each.judge()[0] for each in results if each.is_shadow]
        if not verdicts:
            warn(f"No shadow filter: {_ADVICE}")
        worst = min(verdicts, key=list(_CODES).index, default=UNKNOWN)
        self.exit_code = _CODES[worst]
        return COLUMNS, list(map(_row, results))

    def _nova(self, path: str | None) -> Any:
        """Return Nova's API, or its responses in a file."""
        if path:
            return NovaFile(path)
        if not self.context.has_cloud:
            raise DocumentError(
                "--servers",
                "it needs a cloud to ask, or a file. Give --os-cloud NAME or"
                " --servers FILE.",
            )
        from os_prefilter_tools.adapters.cloud.service import (  # noqa: PLC0415
            CloudService,
        )

        return CloudService(self.context.connection, "compute")


def _row(result: FilterResult) -> tuple[Any, ...]:
    names, verdict = _OF_ENABLED, ("", "")
    if result.is_shadow:
        names, verdict = NUMBERS, result.judge()
    return (
        escape_line(result.filter),
        "shadow" if result.is_shadow else "enabled",
        *(result.numbers[name] if name in names else "" for name in NUMBERS),
        *verdict,
        _details(result),
    )


def _details(result: FilterResult) -> Cell:
    """Return what hosts lacked; of an enabled filter, what failed."""
    values, lines = [], []
    for place, builds in result.places.items():
        # A failure with a fault, if there is one.
        _, fault, server = max(builds)
        failed = sum(has_failed for has_failed, *_ in builds)
        if not (failed or result.is_shadow):
            continue
        run = len(builds) - failed
        numbers = {"failed": failed, "run": run, "server": server}
        values.append({**place._asdict(), **numbers, "fault": fault})
    values.sort(key=lambda each: (-each["failed"], -each["run"]))
    for each in values[:_MOST_DETAILS]:
        text = _DETAIL.format_map(each)
        lines.append(" ".join(text.split()))
    shown = shorten(lines, _MOST_LINES, len(values))
    return Cell(values[:_MOST_DETAILS], "\n".join(shown), "; ".join(lines))
