# SPDX-License-Identifier: Apache-2.0

"""Audit of servers: which have no destination.

Now, if a host dies, or if hosts are drained.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from enum import Enum
from typing import NamedTuple, Optional

from os_prefilter.common.dataclasses import dataclass
from os_prefilter.common.errors import RequestRejected
from os_prefilter.common.host_sets import size_of
from os_prefilter.common.progress import Progress, no_progress
from os_prefilter.common.quoting import escape_line, pluralize, quote
from os_prefilter_tools.fleet.demand import Demand
from os_prefilter_tools.fleet.server import Server
from os_prefilter_tools.operators.audit.destinations import (
    Destinations,
    JudgedServer,
    LostTo,
    NotInFleet,
    ServerRequirement,
)
from os_prefilter_tools.operators.audit.entry_list import Broken
from os_prefilter_tools.operators.audit.host_filters import find_not_judged
from os_prefilter_tools.operators.audit.image_audit import (
    LONGEST_NAME,
    Counts,
    short_line,
)
from os_prefilter_tools.operators.audit.joint_placement import (
    JointPlacement,
    Moving,
)

MOST_HOSTS = 20
"""The most destinations of a line that are named."""


class ServerVerdict(str, Enum):
    """The prospect of a server, most urgent first."""

    # As in enum.StrEnum, which Python 3.10 does not have.
    __str__ = str.__str__

    REJECTED = "rejected by filters"
    NONE_IF_EMPTY = "no capable host"
    NONE = "no destination"
    NONE_IF_DIED = "none if its host died"
    NONE_WITHOUT = "none without the drained hosts"
    NOT_ALL_WITHOUT = "not all if drained"
    NOT_ALL_IF_DIED = "not all if its host died"
    LOSES = "loses destinations"
    """Only of a rehearsal: it would be ``ok``, with fewer destinations."""
    UNKNOWN = "not judged"
    """It would be ``ok``, but a part of its request was not judged."""
    OK = "ok"


URGENT = tuple(ServerVerdict)
STRANDED = frozenset(URGENT) - {
    ServerVerdict.LOSES,
    ServerVerdict.UNKNOWN,
    ServerVerdict.OK,
}
"""Verdicts of servers without a destination, alone or all together."""


class Name(NamedTuple):
    """A server's ID and name, as printable lines."""

    id: str
    name: str


def _name_of(server: Server) -> Name:
    return Name(short_line(server.uuid), short_line(server.name))


@dataclass(slots=True)
class ServerLine:
    """Servers of one project and host with equal destinations and reason."""

    host: str
    """Empty for servers without a host."""
    project: str
    before: int = 0
    """The set of hosts that may take each of them before a rehearsed upgrade.
    """
    lost: LostTo = ()
    """What the hosts that they lose by it do not meet then."""
    now: int = 0
    """The set of hosts that may take each of them.

    See :mod:`os_prefilter_tools.fleet.host_index`.
    """
    if_died: int = 0
    without: int = 0
    verdict: ServerVerdict = ServerVerdict.OK
    conflict: tuple[ServerRequirement, ...] = ()
    if_empty: int = 0
    """How many other hosts could take them if empty.

    Counted only if there is none now.
    """
    reason: str = ""
    """Why they are not ``ok``.

    The request is rejected or not known, each destination is lost with the
    host, or not all servers find one.

    Empty for other verdicts.
    """
    servers: list[Name] = field(default_factory=list)


class Resident(NamedTuple):
    """A server in a rehearsed upgrade."""

    name: Name
    host: str
    own: int
    """The set of its host; empty if it has none in the fleet."""
    before: int
    """The hosts that it may be on as they are, its own among them."""
    after: int
    """The hosts that it may be on once they are upgraded."""
    moving: Moving

    def places(self, upgraded: int) -> int:
        """Return the hosts that it may be on when some are upgraded."""
        return self.before & ~upgraded | self.after & upgraded

    def count_missing(self, upgraded: int) -> int:
        """Return how many such hosts it lacks to have a destination."""
        needed = 2 if self.own else 1
        return max(0, needed - size_of(self.places(upgraded)))


class HostSum(NamedTuple):
    """The servers of one host."""

    host: str
    servers: int
    stranded: int
    """How many have no destination if the host died, each for itself."""
    placed: int
    """How many of them find a destination at the same time, at least."""

    @property
    def is_short(self) -> bool:
        """True if some have a destination each, and find none together."""
        return self.placed < self.servers - self.stranded

    def __str__(self) -> str:
        text = f"{self.placed} of {pluralize(self.servers, 'server')}"
        return f"at least {text}" if self.is_short else text


ByMachineType = dict[tuple[str, str], list[Name]]
"""Host and machine type -> the servers."""


@dataclass(slots=True)
class MachineTypes:
    """Servers by whether libvirt marks their machine types on their hosts."""

    judged: int = 0
    not_known: int = 0
    """Servers whose machine type, or whose host's marks, are not known."""
    deprecated: ByMachineType = field(default_factory=dict)
    """On types that the host marks as deprecated."""
    gone: ByMachineType = field(default_factory=dict)
    """On types that a rehearsed upgrade of the host removes."""

    def add(self, server: Server, destinations: Destinations) -> None:
        """Count a server that has a host."""
        is_deprecated = destinations.is_deprecated(server)
        if is_deprecated is None:
            self.not_known += 1
            return
        self.judged += 1
        before = destinations.before
        # QEMU marks a machine type as deprecated until it removes it.
        if is_deprecated or (before and before.is_deprecated(server)):
            servers = self.deprecated if is_deprecated else self.gone
            machine_type = short_line(server.current_machine_type)
            key = short_line(server.host), machine_type
            servers.setdefault(key, []).append(_name_of(server))


@dataclass(frozen=True)
class ServerAudit:
    """All servers against one fleet."""

    lines: tuple[ServerLine, ...]
    """Servers without a destination first."""
    servers: int
    hosts: int
    drained: tuple[str, ...]
    of_hosts: tuple[HostSum, ...]
    """The hosts with servers, most servers without a destination first."""
    of_projects: tuple[tuple[str, int, int], ...]
    """Project, its servers, and how many have no destination.

    Those with most of them come first.
    """
    if_drained: HostSum | None
    """The servers of all drained hosts together."""
    unknown: tuple[tuple[NotInFleet, int], ...]
    """Names that the fleet does not have, and how many servers give them."""
    notes: Counts
    """Unknown values and deferred requirements, with counts of servers."""
    not_judged: Counts
    """Parts of requests that are not judged, and how many servers have them.
    """
    no_place: Counts
    """Why servers that are in no line need no place, and how many."""
    machine_types: MachineTypes
    """Of the servers that have a host."""
    without_cpu: Mapping[str, Sequence[Name]]
    """Host -> its servers of which no destination has the host's CPU.

    Servers without any destination are not among them.
    """
    names: tuple[str, ...]
    """The names of the hosts, by their numbers."""
    is_rehearsal: bool = False
    residents: Sequence[Resident] = ()
    """The servers of a rehearsed upgrade."""

    def count(self, *verdicts: ServerVerdict) -> int:
        """Return how many servers have one of the verdicts."""
        return sum(
            len(line.servers)
            for line in self.lines
            if line.verdict in verdicts
        )


_Leaving = tuple[Optional[Moving], Optional[Moving]]
"""A server with its destinations if its host died.

And without the drained hosts; None if its request is rejected.
"""


def audit_servers(
    servers: Iterable[Server],
    destinations: Destinations,
    without: Sequence[str] = (),
    progress: Progress = no_progress,
    left_out: Broken = lambda _text: None,
) -> ServerAudit:
    """Find the destinations of each server.

    :param without: names of hosts that are drained
    :param left_out: called with an entry that differs from an earlier one of
        the same server
    :raises DocumentError: if the fleet has no host of one of these names
    :raises PrefilterError: if a filter fails; a request that it rejects is a
        result
    """
    drained = destinations.hosts_named(without)
    lines: dict[tuple[object, ...], ServerLine] = {}
    unknown, notes = Counter[NotInFleet](), Counter[str]()
    not_judged, no_place = Counter[str](), Counter[str]()
    machine_types = MachineTypes()
    without_cpu: dict[str, list[Name]] = {}
    by_host: dict[int, list[_Leaving]] = {}
    residents: list[Resident] = []
    count = 0
    for server in _members_last(_each_once(servers, left_out)):
        if server.no_place:
            no_place[server.no_place] += 1
            continue
        count += 1
        line, leaving, remarks, parts = _judge(server, destinations, drained)
        notes.update(remarks)
        key = (
            line.host,
            line.project,
            line.before,
            line.lost,
            line.now,
            line.if_died,
            line.without,
            line.verdict,
            line.conflict,
            line.reason,
        )
        lines.setdefault(key, line).servers.append(_name_of(server))
        if server.host:
            machine_types.add(server, destinations)
        if destinations.lacks_cpu(server, line.now):
            without_cpu.setdefault(line.host, []).append(_name_of(server))
        own = destinations.number_of(server)
        if own is not None:
            by_host.setdefault(own, []).append(leaving)
        if destinations.before:
            residents.append(_resident(server, line, leaving, destinations))
        not_judged.update(parts)
        unknown.update(destinations.unknown_of(server))
        progress("servers", count, None)
    names = destinations.index.names
    together = JointPlacement(destinations.index)
    if_drained = None
    # In an order that is not that of the servers: the searches share their
    # steps.
    if drained:
        moving = [
            left
            for own, some in by_host.items()
            if drained >> own & 1
            for _, left in some
        ]
        if_drained = _place(", ".join(without), moving, together)
    sums = {}
    for number, own in enumerate(sorted(by_host, key=names.__getitem__), 1):
        dying = [left for left, _ in by_host[own]]
        of_host = _place(names[own], dying, together, own)
        sums[of_host.host] = of_host
        progress("hosts that die", number, len(by_host))
    drained_names = destinations.index.names_of(drained)
    moving_from = set(map(escape_line, drained_names))
    for line in lines.values():
        with_others = if_drained if line.host in moving_from else None
        _judge_together(line, with_others, sums.get(line.host))
    ordered = sorted(
        lines.values(),
        key=lambda line: (URGENT.index(line.verdict), line.host, line.project),
    )
    of_hosts = sorted(
        sums.values(),
        key=lambda each: (
            -each.stranded,
            each.placed - each.servers,
            each.host,
        ),
    )
    return ServerAudit(
        lines=tuple(ordered),
        servers=count,
        hosts=len(names),
        drained=drained_names,
        of_hosts=tuple(of_hosts),
        of_projects=tuple(_count_by_project(lines.values())),
        if_drained=if_drained,
        unknown=tuple(unknown.most_common()),
        notes=tuple(notes.most_common()),
        not_judged=tuple(not_judged.most_common()),
        no_place=tuple(no_place.most_common()),
        machine_types=machine_types,
        without_cpu=without_cpu,
        names=names,
        is_rehearsal=destinations.before is not None,
        residents=residents,
    )


def _count_by_project(
    lines: Iterable[ServerLine],
) -> list[tuple[str, int, int]]:
    """Return each project, its servers, and those without a destination."""
    of_project, stranded = Counter[str](), Counter[str]()
    for line in lines:
        of_project[line.project] += len(line.servers)
        if line.verdict in STRANDED:
            stranded[line.project] += len(line.servers)
    of_projects = [
        (project, number, stranded[project])
        for project, number in of_project.items()
    ]
    of_projects.sort(key=lambda row: (-row[2], -row[1], row[0]))
    return of_projects


def _each_once(
    servers: Iterable[Server], left_out: Broken
) -> Iterator[Server]:
    """Yield each server once: counted again, it would need its place twice."""
    seen: dict[str, int] = {}
    for server in servers:
        # A hash in place of the server: a million of them need the memory of
        # one.
        entry = hash(repr(server))
        if not server.uuid or server.uuid not in seen:
            seen[server.uuid] = entry
            yield server
        elif seen[server.uuid] != entry:
            left_out(
                f"server {quote(server.uuid)}: it is there twice, with"
                " different data; the first entry was judged. Select each"
                " server once."
            )


def _members_last(servers: Iterable[Server]) -> Iterator[Server]:
    """Yield the members of server groups last.

    Then the hosts of each group are known.
    """
    members = []
    for server in servers:
        if server.group is None:
            yield server
        else:
            server.group.hosts[server.uuid] = server.host
            members.append(server)
    yield from members


def _judge(
    server: Server, destinations: Destinations, drained: int
) -> tuple[ServerLine, _Leaving, set[str], Sequence[str]]:
    """Return the line of one server, its move, its notes, and gaps.

    Gaps are what is not judged.
    """
    line = ServerLine(short_line(server.host), short_line(server.project))
    line.before = destinations.find_before(server)
    parts = [escape_line(each) for each in server.not_judged]
    try:
        judged = destinations.judge(server)
    except RequestRejected as error:
        line.verdict, line.reason = ServerVerdict.REJECTED, str(error)
        return line, (None, None), set(), parts
    parts += (
        each
        for each in find_not_judged(server.request, judged.sources)
        if each not in parts
    )
    lost = line.before & ~judged.now
    line.lost = destinations.find_lost_to(judged, lost)
    _judge_alone(line, judged, server, destinations, drained)
    if line.verdict == ServerVerdict.OK:
        line.reason = _why_not_judged(server, destinations, parts)
        if line.reason:
            line.verdict = ServerVerdict.UNKNOWN
    demand, group = judged.kind.demand, server.group
    leaving = (
        Moving(demand, line.if_died, group),
        Moving(demand, line.without, group),
    )
    notes = {
        str(note)
        for note in judged.sources.decision.notes
        if note.warn or note.waits
    }
    return line, leaving, notes, parts


def _resident(
    server: Server,
    line: ServerLine,
    leaving: _Leaving,
    destinations: Destinations,
) -> Resident:
    number, (moving, _) = destinations.number_of(server), leaving
    own = 0 if number is None else 1 << number
    after = line.now
    if moving:
        # It comes back to the amounts that it had.
        after |= own & destinations.find_if_empty(moving.demand)
    return Resident(
        _name_of(server),
        line.host,
        own,
        line.before | own,
        after,
        moving or Moving(Demand({}), 0),
    )


def _judge_alone(
    line: ServerLine,
    judged: JudgedServer,
    server: Server,
    destinations: Destinations,
    drained: int,
) -> None:
    """Fill in the destinations of one server, the verdict and its reason."""
    line.now, line.if_died = judged.now, judged.if_died
    line.without = judged.now & ~drained
    if line.now and not line.if_died:
        line.verdict = ServerVerdict.NONE_IF_DIED
        line.reason = "each other host would use what this one shares"
        return
    if line.without:
        return
    if line.now:
        line.verdict = ServerVerdict.NONE_WITHOUT
        no_other = "every other host is drained"
    else:
        drained = 0
        line.if_empty = destinations.count_if_empty(judged)
        line.verdict = ServerVerdict.NONE_IF_EMPTY
        if line.if_empty:
            line.verdict = ServerVerdict.NONE
        no_other = "the fleet has no other host"
    if server.group and judged.capable & ~drained:
        line.reason = (
            f"its server group ({server.group.policy}) excludes each other"
            " host that could take it"
        )
        return
    line.conflict = destinations.conflict(judged, drained)
    if not judged.others & ~drained:
        line.reason = no_other


def _why_not_judged(
    server: Server, destinations: Destinations, parts: Sequence[str]
) -> str:
    """Return why the destinations of a server are no all-clear.

    Empty if they are one.
    """
    if server.unknown:
        return escape_line(server.unknown)
    if server.host and destinations.number_of(server) is None:
        # Which of the destinations is its own host is not known, nor whether
        # it is drained.
        return (
            f"the fleet has no host {quote(server.host[:LONGEST_NAME])}, on"
            " which it is"
        )
    lost = 0
    if server.group:
        lost = server.group.count_lost(destinations.index.numbers)
    if lost:
        return (
            f"the hosts of {pluralize(lost, 'member')} of its server group are"
            " not known"
        )
    return "; ".join(parts)


def _judge_together(
    line: ServerLine, if_drained: HostSum | None, of_host: HostSum | None
) -> None:
    """Mark lines whose servers have hosts, but not all at the same time.

    All servers of a host move together.
    """
    if line.verdict not in (ServerVerdict.OK, ServerVerdict.UNKNOWN):
        return
    if if_drained and if_drained.is_short:
        line.verdict = ServerVerdict.NOT_ALL_WITHOUT
        line.reason = (
            f"{if_drained} of the drained hosts find a place at the same time"
        )
    elif of_host and of_host.is_short:
        line.verdict = ServerVerdict.NOT_ALL_IF_DIED
        line.reason = f"{of_host} of its host find a place at the same time"
    elif line.verdict == ServerVerdict.OK and line.before & ~line.now:
        line.verdict = ServerVerdict.LOSES


def _place(
    host: str,
    servers: Sequence[Moving | None],
    together: JointPlacement,
    gone: int | None = None,
) -> HostSum:
    """Place the servers of a host."""
    movable = [each for each in servers if each and each.hosts]
    placed = len(movable)
    if placed > 1:
        placed = len(together.place(movable, gone))
    stranded = len(servers) - len(movable)
    return HostSum(escape_line(host), len(servers), stranded, placed)
