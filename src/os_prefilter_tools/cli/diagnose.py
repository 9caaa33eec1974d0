# SPDX-License-Identifier: Apache-2.0

"""``os-prefilter diagnose``: why no host remains for a request."""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any
from urllib.parse import unquote

import yaml

from os_prefilter.common.errors import (
    DocumentError,
    PlacementUnavailable,
    PrefilterError,
)
from os_prefilter.common.placement_values import is_resource_class
from os_prefilter.common.quoting import (
    describe_error,
    escape_line,
    join_first_names,
    pluralize,
)
from os_prefilter.vocabulary.options import TraitScope
from os_prefilter_agent.cli.context import Context, add_repeatable, values_of
from os_prefilter_agent.cli.listing import Rows
from os_prefilter_agent.cli.program import NO_HOST
from os_prefilter_tools.cli.filters_and_hosts import FiltersAndHosts
from os_prefilter_tools.cli.request_arguments import (
    RequestArguments,
    RequestListing,
)
from os_prefilter_tools.fleet.demand import (
    AGGREGATE,
    RESOURCE,
    Condition,
)
from os_prefilter_tools.fleet.model import Fleet
from os_prefilter_tools.fleet.server import HostFilter
from os_prefilter_tools.operators.decisions import LoggedDecision, decisions_in
from os_prefilter_tools.operators.diagnose import result
from os_prefilter_tools.operators.diagnose.diagnose import (
    after_host_filters,
    diagnose,
)

_COLUMNS = (
    "No.",
    "Requirement",
    "Required by",
    "Lack it",
    "Lack only it",
    "Hosts without it",
    "State",
)
_ERROR = 1
# The usual scopes of resources and traits are not printed.
_MOST_NAMES = 5
_MOST_LINES = 20
_MOST_SETS = 5


class DiagnoseRequest(RequestListing):
    """Show why no host remains for a request, and suggest changes."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        text = (
            "with --server: also show what the scheduler recorded of it in"
            " this log; see 'decisions' (repeatable)"
        )
        add_repeatable(parser, "--history", "PATH", text)

    def take_action(self, parsed_args: argparse.Namespace) -> Rows:
        """Return the columns and rows of the table of requirements."""
        self._recorded = self._read_history(parsed_args)
        try:
            self._diagnosis = self._diagnose(parsed_args)
        except PrefilterError as error:
            if not self._recorded:
                raise
            # A server that is deleted, or a cloud that does not respond: the
            # history still has the decision of that moment.
            self._diagnosis = result.Diagnosis(result.NO_ANSWER, str(error))
        self._diagnosis = _with_history(self._diagnosis, self._recorded)
        self.exit_code = {result.CANDIDATES: 0, result.NO_ANSWER: _ERROR}.get(
            self._diagnosis.stage, NO_HOST
        )
        return _COLUMNS, [
            self._row(each) for each in self._diagnosis.requirements
        ]

    def _read_history(
        self, arguments: argparse.Namespace
    ) -> list[LoggedDecision]:
        """Return the recorded decisions on the server, the latest first."""
        if arguments.history and not arguments.server:
            raise DocumentError(
                "--history", "it needs the server. Give --server ID."
            )
        decisions = decisions_in(
            arguments.history, partial(self.print_line, warning=True)
        )
        found = [
            each
            for each in decisions
            if each.server == arguments.server.lower()
        ]
        if arguments.history and not found:
            self.print_line(
                "No decision about this server is in the history.",
                warning=True,
            )
        return sorted(found, key=attrgetter("time"), reverse=True)

    def _diagnose(self, arguments: argparse.Namespace) -> result.Diagnosis:
        asked = values_of(FiltersAndHosts, arguments)
        spec = values_of(RequestArguments, arguments).read(self.context)
        try:
            fleet = asked.fleet(self.context)
            # The candidates are the same, and no requirement is listed twice.
            service = asked.service(fleet, self.context)
            service = replace(
                service,
                options=replace(service.options, trait_scope=TraitScope.ROOT),
            )
        except PlacementUnavailable as error:
            return result.Diagnosis(result.NO_ANSWER, str(error))
        self._names = {
            uuid: aggregate.name
            for uuid, aggregate in fleet.aggregates.items()
        }
        live = asked.asks_live_placement(self.context)
        with (
            _placement(self.context if live else None, fleet) as placement,
            self.context.progress() as progress,
        ):
            found = diagnose(
                spec, service, fleet, placement, live=live, progress=progress
            )
        if not (live and arguments.server and found.candidates):
            return found
        try:
            run_filters = _load_nova_filters()
            runs = run_filters(
                self.context.connection,
                spec,
                arguments.server,
                found.candidates,
                asked.config_file,
            )
            return after_host_filters(found, (*runs,))
        except Exception as error:  # noqa: BLE001 - of Nova's own code, without the installation that it expects
            reason = (
                str(error)
                if isinstance(error, PrefilterError)
                else describe_error(error)
            )
            if isinstance(error, ModuleNotFoundError) and error.name == "nova":
                reason = (
                    "Nova is not installed for this Python. Run this where"
                    " nova-scheduler is."
                )
            return replace(
                found,
                notes=(
                    *found.notes,
                    f"Nova's host filters were not run: {reason}",
                ),
            )

    def produce_output(
        self, parsed_args: argparse.Namespace, column_names: Any, data: Any
    ) -> int:
        """Print all parts, the result first.

        csv and value have the table of requirements alone.
        """
        self.context.write_notes()
        write = self.app.stdout.write
        if parsed_args.formatter == "json":
            write(f"{json.dumps(self._diagnosis.as_document(), indent=2)}\n")
        elif parsed_args.formatter == "yaml":
            write(
                yaml.safe_dump(
                    self._diagnosis.as_document(),
                    sort_keys=False,
                    allow_unicode=True,
                )
            )
        elif parsed_args.formatter != "table":
            super().produce_output(parsed_args, column_names, data)
        else:
            stage = self._diagnosis.stage
            if self._diagnosis.by:
                stage += f" by {self._diagnosis.by}"
            line = escape_line(f"Stage: {stage}. {self._diagnosis.message}")
            write(f"{line}\n")
            if data:
                # First: the sections below name requirements by their number.
                write("\n")
                super().produce_output(parsed_args, column_names, data)
            for title, lines in self._sections():
                write(f"\n{title}\n")
                for line in lines[:_MOST_LINES]:
                    write(f"  {line}\n")
                more = len(lines) - _MOST_LINES
                if more > 0:
                    write(f"  and {more} more; -f json has all\n")
            if self._diagnosis.query:
                query = unquote(self._diagnosis.query)
                line = escape_line(f"GET /allocation_candidates?{query}")
                write(f"\n{line}\n")
        return 0

    def _row(self, finding: result.Finding) -> tuple[Any, ...]:
        return (
            finding.number,
            self._describe(finding.condition),
            f"{finding.by}: {finding.because}",
            finding.hosts_lacking,
            finding.hosts_lacking_only_this,
            finding.candidates_without_it,
            finding.state,
        )

    def _describe(self, condition: Condition) -> str:
        text = str(condition)
        if condition.kind == RESOURCE:
            text = f"{condition.amount} {condition.names[0]}"
        elif condition.kind == AGGREGATE:
            names = ", ".join(
                self._names.get(name, name) for name in condition.names
            )
            text = f"in {'one' if condition.wanted else 'none'} of {names}"
        if not condition.suffix:
            return escape_line(text)
        suffixes = condition.suffix.split(",")
        groups = join_first_names(suffixes, _MOST_NAMES)
        if len(suffixes) > 1:
            groups = f"each of {groups}"
        return escape_line(f"{text} on {groups}")

    def _sections(self) -> Iterator[tuple[str, list[str]]]:
        """Yield titles and lines: what fails, then the hosts behind it."""
        found = self._diagnosis
        if self._recorded:
            lines = [f"{each.time} {each.outcome}" for each in self._recorded]
            yield (
                "Recorded when the server was scheduled, the latest first",
                lines,
            )
        short = {
            each.number: f"{each.number} ({self._describe(each.condition)})"
            for each in found.requirements
        }
        yield from self._sections_of_requirements(short)
        yield from self._sections_of_hosts(short)

    def _sections_of_requirements(
        self, short: Mapping[int, str]
    ) -> Iterator[tuple[str, list[str]]]:
        found = self._diagnosis
        if found.candidates:
            yield "Candidates", [_names(found.candidates)]
        elif found.conflicts:
            freed = {
                each.number for each in found.requirements if each.free_on
            }
            lines = []
            for each in found.conflicts:
                names = _join_and([short[no] for no in each.requirements])
                lines.append(f"{names}: {_verdict(each, freed)}")
            yield (
                (
                    "Smallest sets of requirements that no host meets (each"
                    " set must be broken)"
                ),
                lines,
            )
        in_conflict = {
            number
            for conflict in found.conflicts
            for number in conflict.requirements
        }
        helpful = [
            each
            for each in found.requirements
            if each.number in in_conflict or each.state == result.UNKNOWN
        ]
        helpful.sort(
            key=lambda each: (-each.candidates_without_it, -each.hosts_lacking)
        )
        lines = [
            f"{short[each.number]}: {each.help}{_others(each)}"
            for each in helpful
        ]
        if lines and not found.candidates:
            yield "Suggested changes, most effective first", lines

    def _sections_of_hosts(
        self, short: Mapping[int, str]
    ) -> Iterator[tuple[str, list[str]]]:
        found = self._diagnosis
        if found.host_filters:
            lines = []
            for each in found.host_filters:
                line = escape_line(f"{each.name}: {each.left} left")
                if each.excluded:
                    line += f"; excluded: {_names(each.excluded)}"
                if each.not_known:
                    not_known = ", ".join(each.not_known)
                    line += escape_line(f"; not known: {not_known}")
                lines.append(line)
            yield (
                (
                    "Nova's host filters, run on the candidates as the APIs"
                    " show them now"
                ),
                lines,
            )
        if found.notes:
            yield "Notes", [escape_line(note) for note in found.notes]
        if found.nearest and not found.candidates:
            lines = []
            for near in found.nearest:
                lacks = [
                    f"{short[lack.requirement]}: {lack.has}"
                    for lack in near.lacks
                ]
                lines.append(f"{_names(near.hosts)}: {'; '.join(lacks)}")
            yield (
                (
                    "Nearest hosts, and what they have instead of the"
                    " requirements that they fail"
                ),
                lines,
            )
        if found.accounts:
            lines = [
                _account(each.without, each.hosts) for each in found.accounts
            ]
            yield (
                (
                    f"The {found.hosts} hosts grouped by the requirements that"
                    " they fail"
                ),
                lines,
            )


def _load_nova_filters() -> Callable[..., Iterator[HostFilter]]:
    """Import what runs Nova's host filters, without other libraries' warnings.

    :raises ImportError: Nova is not installed
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from os_prefilter_tools.adapters.cloud.nova_filters import (  # noqa: PLC0415
            run_filters,
        )
    return run_filters


def _with_history(
    diagnosis: result.Diagnosis, recorded: Sequence[LoggedDecision]
) -> result.Diagnosis:
    """Add what the scheduler recorded of the server to its diagnosis.

    :param recorded: the latest first. A host filter that left no host then is
        the cause, unless it is known to leave some now
    """
    diagnosis = replace(
        diagnosis, recorded=tuple(each._asdict() for each in recorded)
    )
    if (
        diagnosis.stage != result.CANDIDATES
        or not recorded
        or not recorded[0].hosts
    ):
        return diagnosis
    last = recorded[0].hosts[-1]
    if last["after"] or is_resource_class(last["by"]):
        return diagnosis
    if any(
        each.name == last["by"] and not each.not_known
        for each in diagnosis.host_filters
    ):
        return diagnosis
    then = (
        f"At {recorded[0].time} {last['by']} left none of"
        f" {pluralize(last['before'], 'host')}."
    )
    return replace(
        diagnosis,
        stage=result.HOST_FILTERS,
        by=last["by"],
        message=f"{then} Now {diagnosis.message}",
    )


@contextmanager
def _placement(context: Context | None, fleet: Fleet) -> Iterator[Any]:
    """Yield the cloud's Placement, or an empty one with the fleet's names."""
    if context:
        yield context.placement
        return
    # Placement takes seconds to import.
    from os_prefilter_tools.adapters.embedded import (  # noqa: PLC0415
        EmbeddedPlacement,
    )

    with EmbeddedPlacement() as placement:
        # A standard name that is missing is newer than this Placement, which
        # then refuses a query with it.
        placement.know(
            fleet.custom_traits,
            (
                name
                for name in fleet.resource_classes
                if name.startswith("CUSTOM_")
            ),
        )
        yield placement.client


def _verdict(conflict: result.Conflict, freed: set[int]) -> str:
    """Say whether a host could meet requirements that none meets now."""
    if conflict.ever:
        number = len(conflict.requirements)
        has = {1: "has it", 2: "has both"}.get(number, "has all")
        return f"no host {has}, however empty"
    if freed.isdisjoint(conflict.requirements):
        return "no host now"
    return "no host now; one could if it were empty"


def _account(failed: Sequence[tuple[int, ...]], hosts: Sequence[str]) -> str:
    """Return a line of hosts and the requirements that they fail.

    :param failed: a host with a choice of providers fails one of several sets
    """
    number = pluralize(len(hosts), "host")
    verb = "fails" if len(hosts) == 1 else "fail"
    if not failed[0]:
        verb = "meets" if len(hosts) == 1 else "meet"
        return f"{number} {verb} all requirements: {_names(hosts)}"
    sets = []
    for requirements in failed[:_MOST_SETS]:
        what = "requirement" if len(requirements) == 1 else "requirements"
        sets.append(f"only {what} {_join_and(list(map(str, requirements)))}")
    if len(failed) > _MOST_SETS:
        sets.append(f"{len(failed) - _MOST_SETS} more sets")
    return f"{number} {verb} {', or '.join(sets)}: {_names(hosts)}"


def _join_and(names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0]
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _others(finding: result.Finding) -> str:
    """Say what else excludes the hosts that meet a requirement."""
    if not finding.others_kept_out_by:
        return ""
    total = sum(finding.others_kept_out_by.values())
    reasons = "; ".join(
        f"{reason} ({count})"
        for reason, count in finding.others_kept_out_by.items()
    )
    return f" Hosts that meet it and lack something else: {total}: {reasons}."


def _names(hosts: Sequence[str]) -> str:
    return join_first_names(hosts, _MOST_NAMES)
