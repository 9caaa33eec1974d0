# SPDX-License-Identifier: Apache-2.0

"""Rows and summaries of an audit of images, volumes or servers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Union

from os_prefilter.common.host_sets import numbers_in, size_of, union
from os_prefilter.common.quoting import (
    escape_line,
    join_first_names,
    pluralize,
    shorten,
)
from os_prefilter.request.query import BY_REQUEST
from os_prefilter_agent.cli.listing import Cell, Rows
from os_prefilter_tools.operators.audit import image_audit, server_audit
from os_prefilter_tools.operators.audit.destinations import (
    LostTo,
    ServerRequirement,
)
from os_prefilter_tools.operators.audit.entry_list import LeftOut
from os_prefilter_tools.operators.audit.rehearsal import Rehearsal
from os_prefilter_tools.operators.audit.server_audit import ByMachineType
from os_prefilter_tools.operators.audit.waves import Waves

_MOST_NAMES = 3
_FIRST = 10
_MOST_SHOWN = 10
_ONLY = {
    "changed": image_audit.CHANGED,
    "unschedulable": image_audit.BECOMES_UNSCHEDULABLE,
}


@dataclass(frozen=True)
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


SummaryLine = Union[str, ItemList]
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
    cause = loss.cause
    sign = "!" if cause.rule == "forbidden" else ""
    on = f" on {escape_line(cause.on)}" if cause.on else ""
    return (
        f"{sign}{cause.trait}{on} by {cause.by}: {loss.lacking}"
        f" ({loss.lacking_only} by it alone)"
    )


def image_rows(
    found: image_audit.Audit, *, only: str | None, is_csv: bool
) -> Rows:
    """Return the columns and rows of the listing.

    :param only: ``changed``, ``unschedulable``, or None for all
    """
    columns = [f"{found.what}s".capitalize(), "Count", "Flavor", "Before"]
    if found.is_waiting:
        columns.append("Waiting")
    columns += ["After", "Verdict", "Lost to"]
    verdicts = _ONLY[only] if only else frozenset(image_audit.ImageVerdict)
    return tuple(columns), [
        _image_row(line, is_csv=is_csv, is_waiting=found.is_waiting)
        for line in found.lines
        if line.verdict in verdicts
    ]


def _image_row(
    line: image_audit.ImageLine, *, is_csv: bool, is_waiting: bool
) -> tuple[Any, ...]:
    escape = escape_formula if is_csv else str
    names = list(line.names)
    images = Cell(names, _first_names(names), escape("; ".join(names)))
    sets = [line.before, line.after]
    if is_waiting:
        sets.insert(1, line.waiting)
    verdict = str(line.verdict)
    if line.reason:
        verdict += f": {line.reason}"
    lost = [format_loss(loss) for loss in line.losses]
    if line.combined:
        lost.append(f"only together: {line.combined}")
    losses = [
        {
            **loss.cause._asdict(),
            "hosts_lacking": loss.lacking,
            "hosts_lacking_only_this": loss.lacking_only,
        }
        for loss in line.losses
    ]
    return (
        images,
        len(names),
        escape(line.flavor),
        *(size_of(each) for each in sets),
        verdict,
        Cell(losses, "\n".join(lost), "; ".join(lost)),
    )


def _first_names(names: Sequence[str]) -> str:
    first = [cut(name) for name in names[:_MOST_NAMES]]
    return "\n".join(shorten(first, _MOST_NAMES, len(names)))


def image_document(
    result: image_audit.Audit, left_out: LeftOut
) -> dict[str, Any]:
    """Return the summary for JSON and YAML."""
    verdicts = {
        str(verdict): result.count(verdict)
        for verdict in image_audit.ImageVerdict
    }
    key = f"{result.what}s"
    not_met = [
        {**cause._asdict(), key: number} for cause, number in result.unserved
    ]
    return {
        key: result.images,
        "flavors": result.flavors,
        "hosts": result.hosts,
        "verdicts": verdicts,
        "not_met": not_met,
        "unused_hosts": list(result.unused),
        "newly_unused_hosts": list(result.newly_unused),
        "not_required_yet": dict(result.waits),
        "not_required": dict(result.unknown),
        "guest_systems": [each._asdict() for each in result.systems],
        "hosts_without_cpu_features": list(result.without_cpu_features),
        "left_out": left_out.as_document(),
    }


def image_summary(result: image_audit.Audit) -> Iterator[SummaryLine]:
    """Yield the lines beside the listing."""
    what = result.what
    images = pluralize(result.images, what)
    if result.flavors:
        images += f" with {pluralize(result.flavors, 'flavor')} each"
    groups = pluralize(len(result.lines), "group")
    hosts = pluralize(result.hosts, "host")
    yield Totals(f"{images}, in {groups}, on {hosts}.")
    if result.lines:
        verdict = image_audit.ImageVerdict
        refused = result.count(verdict.REFUSED)
        if refused:
            yield Totals(f"Refused by Nova at each boot: {refused}.")
        yield Totals(
            "Become unschedulable:"
            f" {result.count(*image_audit.BECOMES_UNSCHEDULABLE)}. Lose hosts:"
            f" {result.count(verdict.LOSES)}. Were unschedulable before:"
            f" {result.count(verdict.ALREADY, verdict.ALREADY_REJECTED)}."
        )
        unserved = [
            f"{cause.rule} {cause.trait} ({cause.because};"
            f" {pluralize(number, what)})"
            for cause, number in result.unserved
        ]
        yield from first_of("No host meets", unserved)
        yield from first_of(f"Hosts that serve no {what}", result.unused)
        article = "a" if what == "volume" else "an"
        yield from first_of(
            f"Hosts that served {article} {what} before", result.newly_unused
        )
    systems = []
    for each in result.systems:
        names = join_first_names(each.hosts, _MOST_NAMES) or "none"
        number = pluralize(each.images, what)
        text = f"{each.because}: {len(each.hosts)} of {hosts}: {names}"
        systems.append(f"{text} ({number})")
    yield from first_of("CPUs that the systems need", systems)
    if systems:
        yield from first_of(
            "Hosts that report no CPU features", result.without_cpu_features
        )
    yield from first_of("Not required yet", _counted(result.waits, what))
    if result.is_waiting:
        yield (
            "Waiting: hosts until every compute node has reported. After:"
            " hosts from then on; a host that has not reported counts as"
            " incapable."
        )
    yield from first_of("Not required", _counted(result.unknown, what))


def _counted(texts: Iterable[tuple[str, int]], what: str) -> list[str]:
    """Return texts, each with the number of images or servers."""
    return [f"{text} ({pluralize(number, what)})" for text, number in texts]


def server_rows(
    found: server_audit.ServerAudit, *, only_stranded: bool, is_csv: bool
) -> Rows:
    """Return the columns and rows of the listing."""
    columns = ["Host", "Project", "Servers", "Count", "Now", "If died"]
    if found.is_rehearsal:
        columns[-2:] = ["Before", "After", "If died"]
    if found.drained:
        columns.append("Without")
    columns += ["Verdict", "Why", "Destinations"]
    if found.is_rehearsal:
        columns.append("Lost to")
    return tuple(columns), [
        _server_row(line, found, is_csv=is_csv)
        for line in found.lines
        if not only_stranded or line.verdict in server_audit.STRANDED
    ]


def _server_row(
    line: server_audit.ServerLine,
    found: server_audit.ServerAudit,
    *,
    is_csv: bool,
) -> tuple[Any, ...]:
    escape = escape_formula if is_csv else str
    names = [server.name or server.id for server in line.servers]
    servers = Cell(
        [server._asdict() for server in line.servers],
        _first_names(names),
        escape("; ".join(map(format_name, line.servers))),
    )
    sets = [line.now, line.if_died]
    if found.is_rehearsal:
        sets.insert(0, line.before)
    if found.drained:
        sets.append(line.without)
    why = line.reason or format_conflict(line.conflict)
    reason = {
        "requirements": [each._asdict() for each in line.conflict],
        "if_empty": line.if_empty,
        "text": why,
    }
    hosts = [
        found.names[number]
        for number in numbers_in(line.now)[: server_audit.MOST_HOSTS]
    ]
    shown = shorten(hosts[:_MOST_NAMES], _MOST_NAMES, size_of(line.now))
    lost = []
    if found.is_rehearsal:
        lost.append(_lost_to(line.lost))
    return (
        escape(line.host),
        escape(line.project),
        servers,
        len(line.servers),
        *(size_of(each) for each in sets),
        str(line.verdict),
        Cell(reason, why, why),
        Cell(hosts, "\n".join(shown), "; ".join(hosts)),
        *lost,
    )


def _lost_to(losses: LostTo) -> Cell:
    texts = [f"{format_conflict([each])}: {hosts}" for each, hosts in losses]
    value = [
        {**each._asdict(), "hosts_lacking": hosts} for each, hosts in losses
    ]
    return Cell(value, "\n".join(texts), "; ".join(texts))


def format_name(server: server_audit.Name) -> str:
    """Return the name of a server and its ID."""
    if server.name and server.id:
        return f"{server.name} ({server.id})"
    return server.name or server.id


def format_conflict(conflict: Sequence[ServerRequirement]) -> str:
    """Format requirements that no host meets together."""
    texts = []
    for each in conflict:
        by = "" if each.by == BY_REQUEST else f" by {each.by}"
        texts.append(f"{each.text}{by} ({each.because})")
    return " + ".join(texts)


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
    verdicts = {
        str(verdict): found.count(verdict) for verdict in server_audit.URGENT
    }
    if not found.is_rehearsal:
        del verdicts[server_audit.ServerVerdict.LOSES]
    drained = None
    if found.if_drained:
        drained = {"hosts": list(found.drained), **found.if_drained._asdict()}
    projects = [
        {"project": project, "servers": number, "stranded": stranded}
        for project, number, stranded in found.of_projects
    ]
    not_in_the_fleet = [
        {**each._asdict(), "servers": number} for each, number in found.unknown
    ]
    types = found.machine_types
    machine_types = {
        "judged": types.judged,
        "not_known": types.not_known,
        "deprecated": _machine_types(types.deprecated),
    }
    if found.is_rehearsal:
        machine_types["gone"] = _machine_types(types.gone)
    without_cpu = [
        {"host": host, "servers": [server._asdict() for server in servers]}
        for host, servers in sorted(found.without_cpu.items())
    ]
    return {
        "is_complete": not not_read,
        "not_read": not_read,
        "servers": found.servers,
        "hosts": found.hosts,
        "verdicts": verdicts,
        "drained": drained,
        "if_host_died": [each._asdict() for each in found.of_hosts],
        "projects": projects,
        "not_in_the_fleet": not_in_the_fleet,
        "not_judged": dict(found.not_judged),
        "host_filters_not_judged": list(host_filters),
        "need_no_place": dict(found.no_place),
        "deprecated_machine_types": machine_types,
        "no_destination_with_the_cpu": without_cpu,
        "not_required": dict(found.notes),
        "left_out": left_out.as_document(),
    }


def _machine_types(found: ByMachineType) -> list[dict[str, Any]]:
    return [
        {
            "host": host,
            "machine_type": machine_type,
            "servers": [server._asdict() for server in servers],
        }
        for (host, machine_type), servers in sorted(found.items())
    ]


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
        if stranded
    ]
    yield from first_of("Projects", projects)
    yield from first_of(
        "On machine types that libvirt marks as deprecated",
        _describe_machine_types(found.machine_types.deprecated),
    )
    yield from first_of(
        "On machine types that are gone then",
        _describe_machine_types(found.machine_types.gone),
    )
    # Without agents it is not known of any server, as of VMware's.
    if found.machine_types.judged and found.machine_types.not_known:
        servers = pluralize(found.machine_types.not_known, "server")
        yield f"Not known whether libvirt marks the machine type: {servers}."
    without_cpu = [
        f"on {host} ({pluralize(len(servers), 'server')})"
        for host, servers in sorted(
            found.without_cpu.items(), key=lambda item: -len(item[1])
        )
    ]
    yield from first_of(
        "No destination has the CPU of the server's host, for live migration",
        without_cpu,
    )
    unknown = [
        f"{each.what} {each.name} ({number})" for each, number in found.unknown
    ]
    yield from first_of("Not in the fleet", unknown)
    for title, texts in (
        ("Not judged", found.not_judged),
        ("Need no place", found.no_place),
        ("Not required", found.notes),
    ):
        yield from first_of(title, _counted(texts, "server"))


def _describe_machine_types(found: ByMachineType) -> list[str]:
    most_first = sorted(
        found.items(), key=lambda item: (-len(item[1]), item[0])
    )
    return [
        f"{machine_type} on {host} ({pluralize(len(servers), 'server')})"
        for (host, machine_type), servers in most_first
    ]


def rehearsal_document(found: Rehearsal) -> dict[str, Any]:
    """Return a rehearsed upgrade for JSON and YAML."""
    upgraded: dict[str, list[str]] = {}
    for host, canary in found.upgraded.items():
        upgraded.setdefault(canary.name, []).append(host)
    return {
        "upgraded": upgraded,
        "traits_lost": dict(found.lost),
        "traits_won": dict(found.won),
        "meanwhile": [each._asdict() for each in found.mixed],
    }


def rehearsal_summary(found: Rehearsal) -> Iterator[SummaryLine]:
    """Yield the lines about a rehearsed upgrade."""
    names = sorted({each.name for each in found.upgraded.values()})
    yield (
        f"Upgraded: {pluralize(len(found.upgraded), 'host')}, like"
        f" {escape_line(', '.join(names))}."
    )
    yield from first_of("Traits lost", _counted(found.lost, "host"))
    yield from first_of("Traits won", _counted(found.won, "host"))
    meanwhile = [
        f"{each.filter}, {each.row}: {join_first_names(each.traits, 1)}:"
        f" {each.effect} ({pluralize(each.hosts, 'host')})"
        for each in found.mixed
    ]
    yield from first_of("While only some are upgraded", meanwhile)


def waves_document(
    found: Waves, audited: server_audit.ServerAudit
) -> dict[str, Any]:
    """Return waves of an upgrade for JSON and YAML."""

    def names_of(hosts: int) -> list[str]:
        return [escape_line(audited.names[each]) for each in numbers_in(hosts)]

    waves = []
    for wave in found.waves:
        servers = [each for each in audited.residents if each.own & wave]
        shut_down = [
            each.name._asdict() for each in servers if each.before == each.own
        ]
        waves.append(
            {
                "hosts": names_of(wave),
                "servers": len(servers),
                "shut_down": shut_down,
            }
        )
    upgraded = union(found.waves)
    stranded = [
        {
            **each.name._asdict(),
            "host": each.host,
            "keep": each.count_missing(upgraded),
            "hosts": names_of(each.before & ~each.after & upgraded),
        }
        for each in found.stranded
    ]
    in_the_way = [
        {**each.name._asdict(), "host": each.host} for each in found.in_the_way
    ]
    return {"waves": waves, "stranded": stranded, "in_the_way": in_the_way}


def waves_summary(document: dict[str, Any]) -> Iterator[SummaryLine]:
    """Yield the lines about waves of an upgrade."""

    def name_of(server: dict[str, Any]) -> str:
        return f"{server['name'] or server['id']} on {server['host']}"

    waves = []
    for wave in document["waves"]:
        text = pluralize(wave["servers"], "server")
        if wave["shut_down"]:
            text += f", {len(wave['shut_down'])} of them shut down"
        waves.append(f"{', '.join(wave['hosts'])} ({text})")
    yield from first_of("Waves", waves)
    stranded = [
        f"{name_of(each)} (keep {each['keep']} of"
        f" {join_first_names(each['hosts'], _FIRST)} out of the upgrade)"
        for each in document["stranded"]
    ]
    yield from first_of("Without a destination after any order", stranded)
    yield from first_of(
        "Moved by no order that was found",
        list(map(name_of, document["in_the_way"])),
    )
