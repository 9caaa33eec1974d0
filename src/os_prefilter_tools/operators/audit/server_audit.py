"""All servers of a cloud against its hosts: which have no destination, now, if a host dies, or if hosts are drained."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from os_prefilter.common.errors import RequestRejected
from os_prefilter.common.quoting import escape_line, pluralize, quote
from os_prefilter_tools.fleet.server import Server
from os_prefilter_tools.operators.audit.audit import LONGEST_NAME, Progress, count_each
from os_prefilter_tools.operators.audit.destinations import Destinations, Kind, Requirement, Unknown
from os_prefilter_tools.operators.audit.entry_list import Broken, LeftOut
from os_prefilter_tools.operators.audit.together import Together

MOST_HOSTS = 20
"""The most destinations of a line that are named."""
_SHARED = "each other host would use what this one shares"


class Verdict(str, Enum):
    """What a server can expect, most urgent first."""

    # As in enum.StrEnum, which Python 3.10 does not have.
    __str__ = str.__str__

    REJECTED = "rejected by filters"
    NONE_IF_EMPTY = "no capable host"
    NONE = "no destination"
    NONE_IF_DIED = "none if its host died"
    NONE_WITHOUT = "none without the drained hosts"
    NOT_ALL_WITHOUT = "not all if drained"
    NOT_ALL_IF_DIED = "not all if its host died"
    UNKNOWN = "not judged"
    OK = "ok"


URGENT = tuple(Verdict)
STRANDED = frozenset(URGENT) - {Verdict.UNKNOWN, Verdict.OK}
"""Of servers that have no destination, or not each of them at the same time."""


class Name(NamedTuple):
    """A server's ID and name, as printable lines."""

    id: str
    name: str


@dataclass(slots=True)
class Line:
    """Servers of one project on one host with the same destinations, for the same reason."""

    host: str
    """Empty for servers without a host."""
    project: str
    now: int
    """The set of hosts that may take each of them (:mod:`os_prefilter_tools.fleet.host_index`)."""
    if_died: int
    without: int
    verdict: Verdict
    conflict: tuple[Requirement, ...] = ()
    if_empty: int = 0
    """How many other hosts could take them if all were empty; counted only if there is none now."""
    reason: str = ""
    """Why the request is rejected or not known, or each destination is lost with the host, or not all servers find one.

    Empty for other verdicts.
    """
    servers: list[Name] = field(default_factory=list)


class HostSum(NamedTuple):
    """The servers of one host."""

    host: str
    servers: int
    stranded: int
    """How many have no destination if the host died, each for itself."""
    placed: int
    """How many of them find a destination at the same time, at least."""
    is_most: bool
    """Whether it is known that no more of them do."""

    @property
    def is_short(self) -> bool:
        """Whether some find no destination together, each of which has one alone."""
        return self.placed < self.servers - self.stranded

    def __str__(self) -> str:
        least = "" if self.is_most else "at least "
        return f"{least}{self.placed} of {pluralize(self.servers, 'server')}"


@dataclass(frozen=True, slots=True)
class ServerAudit:
    """All servers against one fleet."""

    lines: tuple[Line, ...]
    """Those without a destination first."""
    servers: int
    hosts: int
    drained: tuple[str, ...]
    of_hosts: tuple[HostSum, ...]
    """The hosts with servers; those first whose servers lack most destinations."""
    of_projects: tuple[tuple[str, int, int], ...]
    """Project, its servers, and how many have no destination; those with most of them first."""
    if_drained: HostSum | None
    """The servers of all drained hosts together."""
    unknown: tuple[tuple[Unknown, int], ...]
    """What servers name that the fleet does not have, and how many do."""
    notes: tuple[tuple[str, int], ...]
    """Unknown values and deferred requirements, and how many servers have them."""
    not_judged: tuple[tuple[str, int], ...]
    """What requests have that is not judged, and how many do."""
    names: tuple[str, ...]
    """The names of the hosts, by their numbers."""
    repeated: LeftOut
    """Servers that were there before, with the same entry: each counts once."""

    def count(self, *verdicts: Verdict) -> int:
        """Return how many servers have one of the verdicts."""
        return sum(len(line.servers) for line in self.lines if line.verdict in verdicts)


class _Placed(NamedTuple):
    """A server, and where it could be."""

    kind: Kind | None
    """None if the filters reject its request."""
    own: int | None
    if_died: int
    notes: frozenset[str]


def audit_servers(
    servers: Iterable[Server],
    destinations: Destinations,
    without: Sequence[str] = (),
    progress: Progress = lambda _what, _done, _of: None,
    left_out: Broken = lambda _text: None,
) -> ServerAudit:
    """Find the destinations of each server.

    :param without: names of hosts that are drained
    :param left_out: called with an entry that differs from an earlier one of the same server
    :raises DocumentError: if the fleet has no host of one of these names
    :raises PrefilterError: if a filter fails; a request that it rejects is a result
    """
    drained = destinations.hosts_named(without)
    lines: dict[tuple[object, ...], Line] = {}
    unknown, notes, not_judged = Counter[Unknown](), Counter[str](), Counter[str]()
    by_host: dict[int, list[_Placed]] = {}
    count = 0
    repeated, seen = LeftOut(), dict[str, tuple[str, int]]()
    for server in servers:
        # A hash in place of the server: a million of them need the memory of one.
        entry = server.host, hash(repr(server))
        first = seen.get(server.uuid)
        if server.uuid and first:
            # Counted again, it would need its place twice.
            if first == entry:
                repeated(f"server {quote(server.uuid)}")
            else:
                hosts = f"the hosts {quote(first[0])} and {quote(server.host)}" * (server.host != first[0])
                left_out(
                    f"server {quote(server.uuid)}: it is there twice, with {hosts or 'different data'}; the first "
                    "entry was judged. Select each server once."
                )
            continue
        seen[server.uuid] = entry
        count += 1
        line, placed = _line(server, destinations, drained)
        key = (line.host, line.project, line.now, line.if_died, line.without, line.verdict, line.conflict, line.reason)
        found = lines.setdefault(key, line)
        found.servers.append(Name(_printable(server.uuid), _printable(server.name)))
        if placed.own is not None:
            by_host.setdefault(placed.own, []).append(placed)
        count_each(notes, placed.notes)
        count_each(not_judged, map(escape_line, server.not_judged))
        count_each(unknown, (Unknown(each.what, _printable(each.name)) for each in destinations.unknown_of(server)))
        progress("servers", count, None)
    names = destinations.index.names
    together = Together(destinations.index)
    # In an order that is not that of the servers: the searches share their steps.
    if_drained = _if_drained(by_host, drained, ", ".join(without), together)
    sums = []
    for number, own in enumerate(sorted(by_host, key=names.__getitem__), 1):
        sums.append(_sum_of(names[own], by_host[own], together, own))
        progress("hosts that die", number, len(by_host))
    sum_of = {each.host: each for each in sums}
    moving = {escape_line(name) for name in destinations.index.names_of(drained)}
    for line in lines.values():
        _judge_together(line, if_drained if line.host in moving else None, sum_of.get(line.host))
    ordered = sorted(lines.values(), key=lambda line: (URGENT.index(line.verdict), line.host, line.project))
    return ServerAudit(
        lines=tuple(ordered),
        servers=count,
        hosts=len(names),
        drained=destinations.index.names_of(drained),
        of_hosts=tuple(sorted(sums, key=lambda each: (-each.stranded, each.placed - each.servers, each.host))),
        of_projects=_of_projects(ordered),
        if_drained=if_drained,
        unknown=tuple(unknown.most_common()),
        notes=tuple(notes.most_common()),
        not_judged=tuple(not_judged.most_common()),
        names=names,
        repeated=repeated,
    )


def _line(server: Server, destinations: Destinations, drained: int) -> tuple[Line, _Placed]:
    host, project = _printable(server.host), _printable(server.project)
    own = destinations.number_of(server)
    try:
        judged = destinations.judge(server)
    except RequestRejected as error:
        line = Line(host, project, 0, 0, 0, Verdict.REJECTED, reason=str(error))
        return line, _Placed(None, own, 0, frozenset())
    kind = judged.kind
    now = kind.hosts if own is None else kind.hosts & ~(1 << own)
    if_died = destinations.if_died(kind, own)
    without = now & ~drained
    line = Line(host, project, now, if_died, without, Verdict.OK)
    if not now:
        line.if_empty = destinations.count_if_empty(kind, own)
        line.verdict = Verdict.NONE if line.if_empty else Verdict.NONE_IF_EMPTY
        line.conflict = destinations.conflict(judged, own)
        line.reason = destinations.describe_alone(own)
    elif not if_died:
        line.verdict = Verdict.NONE_IF_DIED
        line.reason = _SHARED
    elif not without:
        line.verdict = Verdict.NONE_WITHOUT
        line.conflict = destinations.conflict(judged, own, drained)
        line.reason = destinations.describe_alone(own, drained)
    elif unknown := server.unknown or _of_no_host(server, own):
        line.verdict = Verdict.UNKNOWN
        line.reason = escape_line(unknown)
    return line, _Placed(kind, own, if_died, judged.notes)


def _of_no_host(server: Server, own: int | None) -> str:
    """Return why a server with a host of another name than any in the fleet is not ok; empty for others.

    Which of the destinations is its own host is not known, nor whether it is drained.
    """
    if not server.host or own is not None:
        return ""
    return f"the fleet has no host {quote(server.host[:LONGEST_NAME])}, on which it is"


def _judge_together(line: Line, if_drained: HostSum | None, of_host: HostSum | None) -> None:
    """Say so where each server of a line has a destination, and not all servers of its host at the same time."""
    if line.verdict not in (Verdict.OK, Verdict.UNKNOWN):
        return
    if if_drained and if_drained.is_short:
        line.verdict = Verdict.NOT_ALL_WITHOUT
        line.reason = f"{if_drained} of the drained hosts find a place at the same time"
    elif of_host and of_host.is_short:
        line.verdict = Verdict.NOT_ALL_IF_DIED
        line.reason = f"{of_host} of its host find a place at the same time"


def _sum_of(host: str, servers: Sequence[_Placed], together: Together, gone: int | None = None) -> HostSum:
    stranded = sum(not each.if_died for each in servers)
    movable = [(each.kind.demand, each.if_died) for each in servers if each.kind and each.if_died]
    if len(movable) <= 1:
        return HostSum(escape_line(host), len(servers), stranded, len(movable), is_most=True)
    found = together.place(movable, gone)
    return HostSum(escape_line(host), len(servers), stranded, len(found.allocations), found.is_most)


def _if_drained(by_host: Mapping[int, list[_Placed]], drained: int, names: str, together: Together) -> HostSum | None:
    """Return the sum of the servers of all drained hosts; None if none is drained."""
    if not drained:
        return None
    moving = [each for own, those in by_host.items() if drained >> own & 1 for each in those]
    left = [each._replace(if_died=each.kind.hosts & ~drained if each.kind else 0) for each in moving]
    return _sum_of(names, left, together)


def _of_projects(lines: Iterable[Line]) -> tuple[tuple[str, int, int], ...]:
    servers, stranded = Counter[str](), Counter[str]()
    for line in lines:
        servers[line.project] += len(line.servers)
        stranded[line.project] += len(line.servers) * (line.verdict in STRANDED)
    rows = ((project, number, stranded[project]) for project, number in servers.items())
    return tuple(sorted(rows, key=lambda row: (-row[2], -row[1], row[0])))


def _printable(text: str) -> str:
    return escape_line(text[:LONGEST_NAME])
