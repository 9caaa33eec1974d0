# SPDX-License-Identifier: Apache-2.0

"""Rows and summaries of an audit of images or servers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from os_prefilter.common.host_sets import numbers_in
from os_prefilter.common.quoting import (
    escape_line,
    join_first_names,
    pluralize,
    shorten,
)
from os_prefilter.request.query import BY_REQUEST
from os_prefilter_agent.cli.listing import Cell
from os_prefilter_tools.operators.audit import image_audit, server_audit
from os_prefilter_tools.operators.audit.destinations import ServerRequirement
from os_prefilter_tools.operators.audit.entry_list import LeftOut

_MOST_NAMES = 3
_FIRST = 10
_MOST_SHOWN = 10
_ONLY = {
    "changed": image_audit.CHANGED,
    "unschedulable": image_audit.BECOMES_UNSCHEDULABLE,
}


@dataclass(frozen=True, slots=True)
class ItemList:
    """A line of a summary: how many items there are, and the first ones."""

    what: str
    items: Sequence[str]
    number: int
    """Of all, where ``items`` are but some of them."""

    def __str__(self) -> str:
        first = [item.rstrip(".") for item in self.items[:_MOST_SHOWN]]
        return (
            f"{self.what}: {self.number}:"
            f" {'; '.join(shorten(first, _MOST_SHOWN, self.number))}."
        )


class Totals(str):
    """A line of a summary whose numbers a page shows in another way."""

    __slots__ = ()


SummaryLine: TypeAlias = "str | ItemList"
"""A line of a summary; a page shows all items of a list."""


def first_of(
    what: str, items: Sequence[str], count: int | None = None
) -> Iterator[ItemList]:
    """Yield the line of the items, if there are any."""
    if items:
        yield ItemList(what, items, len(items) if count is None else count)


def cut(name: str) -> str:
    """Return a name that is no wider than a column of a table should be."""
    return name if len(name) <= 40 else f"{name[:37]}..."  # noqa: PLR2004


def escape_formula(text: str) -> str:
    """Return text that a spreadsheet does not execute as a formula: tenants
    name images.
    """
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def format_loss(loss: image_audit.Loss) -> str:
    """Format a requirement with its filter and the hosts that lack it."""
    cause, sign = loss.cause, "!" if loss.cause.rule == "forbidden" else ""
    on = f" on {escape_line(cause.on)}" if cause.on else ""
    return (
        f"{sign}{cause.trait}{on} by {cause.by}: {loss.lacking}"
        f" ({loss.lacking_only} by it alone)"
    )


def image_rows(
    found: image_audit.Audit, *, only: str | None, is_csv: bool
) -> tuple[tuple[str, ...], list[Any]]:
    """Return the columns and rows of the listing.

    :param only: ``changed``, ``unschedulable``, or None for all
    """
    waiting = ("Waiting",) * found.is_waiting
    columns = (
        "Images",
        "Count",
        "Flavor",
        "Before",
        *waiting,
        "After",
        "Verdict",
        "Lost to",
    )
    verdicts = _ONLY[only] if only else frozenset(image_audit.ImageVerdict)
    lines = (line for line in found.lines if line.verdict in verdicts)
    return columns, [
        _image_row(line, is_csv=is_csv, is_waiting=found.is_waiting)
        for line in lines
    ]


def _image_row(
    line: image_audit.ImageLine, *, is_csv: bool, is_waiting: bool
) -> tuple[Any, ...]:
    names, flavor = "; ".join(line.names), line.flavor
    if is_csv:
        names, flavor = escape_formula(names), escape_formula(flavor)
    lost = [format_loss(loss) for loss in line.losses]
    lost += [f"only together: {line.combined}"] * bool(line.combined)
    losses = [
        {
            **loss.cause._asdict(),
            "hosts_lacking": loss.lacking,
            "hosts_lacking_only_this": loss.lacking_only,
        }
        for loss in line.losses
    ]
    return (
        Cell(
            list(line.names),
            "\n".join(
                shorten(
                    [cut(name) for name in line.names[:_MOST_NAMES]],
                    _MOST_NAMES,
                    line.images,
                )
            ),
            names,
        ),
        line.images,
        flavor,
        *(
            each.bit_count()
            for each in (line.before, *[line.waiting] * is_waiting, line.after)
        ),
        f"{line.verdict}: {line.reason}" if line.reason else str(line.verdict),
        Cell(losses, "\n".join(lost), "; ".join(lost)),
    )


def image_document(
    result: image_audit.Audit, left_out: LeftOut
) -> dict[str, Any]:
    """Return the summary for JSON and YAML."""
    return {
        "images": result.images,
        "flavors": result.flavors,
        "hosts": result.hosts,
        "verdicts": {
            str(verdict): result.count(verdict)
            for verdict in image_audit.ImageVerdict
        },
        "not_met": [
            {**cause._asdict(), "images": images}
            for cause, images in result.unserved
        ],
        "unused_hosts": list(result.unused),
        "newly_unused_hosts": list(result.newly_unused),
        "not_required_yet": dict(result.waits),
        "not_required": dict(result.unknown),
        "left_out": left_out.as_document(),
    }


def image_summary(result: image_audit.Audit) -> Iterator[SummaryLine]:
    """Yield the lines beside the listing."""
    flavors = f" with {pluralize(result.flavors, 'flavor')} each" * bool(
        result.flavors
    )
    groups = pluralize(len(result.lines), "group")
    yield Totals(
        f"{pluralize(result.images, 'image')}{flavors}, in {groups}, on"
        f" {pluralize(result.hosts, 'host')}."
    )
    if result.lines:
        verdict = image_audit.ImageVerdict
        yield Totals(
            "Become unschedulable:"
            f" {result.count(*image_audit.BECOMES_UNSCHEDULABLE)}. Lose hosts:"
            f" {result.count(verdict.LOSES)}. Were unschedulable before:"
            f" {result.count(verdict.ALREADY, verdict.ALREADY_REJECTED)}."
        )
        yield from first_of(
            "No host meets",
            [
                f"{cause.rule} {cause.trait} ({cause.because};"
                f" {pluralize(images, 'image')})"
                for cause, images in result.unserved
            ],
        )
        yield from first_of("Hosts that serve no image", result.unused)
        yield from first_of(
            "Hosts that served an image before", result.newly_unused
        )
    yield from first_of(
        "Not required yet",
        [
            f"{text} ({pluralize(number, 'image')})"
            for text, number in result.waits
        ],
    )
    if result.is_waiting:
        yield (
            "Waiting: hosts until every compute node has reported. After:"
            " hosts from then on; a host that has not reported counts as"
            " incapable."
        )
    unknown = [
        f"{text} ({pluralize(number, 'image')})"
        for text, number in result.unknown
    ]
    yield from first_of("Not required", unknown)


def server_rows(
    found: server_audit.ServerAudit, *, only_stranded: bool, is_csv: bool
) -> tuple[tuple[str, ...], list[Any]]:
    """Return the columns and rows of the listing."""
    without = ("Without",) * bool(found.drained)
    columns = (
        "Host",
        "Project",
        "Servers",
        "Count",
        "Now",
        "If died",
        *without,
        "Verdict",
        "Why",
        "Destinations",
    )
    lines = [
        line
        for line in found.lines
        if not only_stranded or line.verdict in server_audit.STRANDED
    ]
    return columns, [_server_row(line, found, is_csv=is_csv) for line in lines]


def _server_row(
    line: server_audit.ServerLine,
    found: server_audit.ServerAudit,
    *,
    is_csv: bool,
) -> tuple[Any, ...]:
    escape = escape_formula if is_csv else str
    names = [server.name or server.id for server in line.servers]
    sets = (line.now, line.if_died, *[line.without] * bool(found.drained))
    why = line.reason or format_conflict(line.conflict)
    hosts = [
        found.names[number]
        for number in numbers_in(line.now)[: server_audit.MOST_HOSTS]
    ]
    return (
        escape(line.host),
        escape(line.project),
        Cell(
            [server._asdict() for server in line.servers],
            "\n".join(
                shorten(
                    [cut(name) for name in names[:_MOST_NAMES]],
                    _MOST_NAMES,
                    len(names),
                )
            ),
            escape("; ".join(map(format_name, line.servers))),
        ),
        len(line.servers),
        *(each.bit_count() for each in sets),
        str(line.verdict),
        Cell(
            {
                "requirements": [each._asdict() for each in line.conflict],
                "if_empty": line.if_empty,
                "text": why,
            },
            why,
            why,
        ),
        Cell(
            hosts,
            "\n".join(
                shorten(hosts[:_MOST_NAMES], _MOST_NAMES, line.now.bit_count())
            ),
            "; ".join(hosts),
        ),
    )


def format_name(server: server_audit.Name) -> str:
    """Return the name of a server and its ID."""
    return (
        f"{server.name} ({server.id})"
        if server.name and server.id
        else server.name or server.id
    )


def format_conflict(conflict: Sequence[ServerRequirement]) -> str:
    """Format requirements that no host meets together."""
    return " + ".join(
        f"{each.text}{f' by {each.by}' * (each.by != BY_REQUEST)}"
        f" ({each.because})"
        for each in conflict
    )


def server_document(
    found: server_audit.ServerAudit,
    left_out: LeftOut,
    not_read: str,
    host_filters: Sequence[str],
) -> dict[str, Any]:
    """Return the summary for JSON and YAML.

    :param not_read: why not all servers were read; empty if they were
    :param host_filters: enabled host filters that are not judged for any
        server
    """
    return {
        "is_complete": not not_read,
        "not_read": not_read,
        "servers": found.servers,
        "hosts": found.hosts,
        "verdicts": {
            str(verdict): found.count(verdict)
            for verdict in server_audit.URGENT
        },
        "drained": (
            {"hosts": list(found.drained), **found.if_drained._asdict()}
            if found.if_drained
            else None
        ),
        "if_host_died": [each._asdict() for each in found.of_hosts],
        "projects": [
            {"project": project, "servers": number, "stranded": stranded}
            for project, number, stranded in found.of_projects
        ],
        "not_in_the_fleet": [
            {**each._asdict(), "servers": number}
            for each, number in found.unknown
        ],
        "not_judged": dict(found.not_judged),
        "host_filters_not_judged": list(host_filters),
        "need_no_place": dict(found.no_place),
        "not_required": dict(found.notes),
        "left_out": left_out.as_document(),
    }


def server_summary(found: server_audit.ServerAudit) -> Iterator[SummaryLine]:
    """Yield the lines beside the listing."""
    yield Totals(
        f"{pluralize(found.servers, 'server')} on"
        f" {pluralize(len(found.of_hosts), 'host')} of {found.hosts}."
    )
    counts = [
        f"{verdict}: {found.count(verdict)}"
        for verdict in server_audit.URGENT
        if found.count(verdict)
    ]
    yield Totals(f"Verdicts: {'; '.join(counts)}.")
    hosts = [
        f"{each.host} ({each} placed)"
        for each in found.of_hosts
        if each.placed < each.servers
    ]
    yield from first_of(
        "Hosts with servers that find no place if the host dies", hosts
    )
    if found.if_drained:
        drained = join_first_names(found.drained, _FIRST)
        yield (
            f"Drained: {drained}: {found.if_drained} find a place at the same"
            " time."
        )
    projects = [
        f"{project or 'no project'} ({stranded} of {number})"
        for project, number, stranded in found.of_projects
    ]
    yield from first_of(
        "Projects",
        projects[: sum(stranded > 0 for *_, stranded in found.of_projects)],
    )
    yield from first_of(
        "Not in the fleet",
        [
            f"{each.what} {each.name} ({number})"
            for each, number in found.unknown
        ],
    )
    yield from first_of(
        "Not judged",
        [
            f"{text} ({pluralize(number, 'server')})"
            for text, number in found.not_judged
        ],
    )
    yield from first_of(
        "Need no place",
        [
            f"{text} ({pluralize(number, 'server')})"
            for text, number in found.no_place
        ],
    )
    notes = [
        f"{text} ({pluralize(number, 'server')})"
        for text, number in found.notes
    ]
    yield from first_of("Not required", notes)
