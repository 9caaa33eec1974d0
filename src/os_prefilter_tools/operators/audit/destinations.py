# SPDX-License-Identifier: Apache-2.0

"""Destinations of a running server (ADR 0011).

Now, if its host died, and if other hosts were drained.

A destination is a host that Placement would return for the server's request
with the filters applied, except its own host and disabled ones. The server's
own allocation stays where it is, as it does while Nova moves a server.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import cached_property
from typing import NamedTuple

import os_traits

from os_prefilter.common.dataclasses import dataclass
from os_prefilter.common.errors import DocumentError, RequestRejected
from os_prefilter.common.host_sets import (
    numbers_in,
    set_of,
    size_of,
    smallest_disjoint,
)
from os_prefilter.common.quoting import escape_line, quote
from os_prefilter.hosts.marker_traits import is_deprecated
from os_prefilter.request.fields import clone_of
from os_prefilter.request.query import BY_REQUEST
from os_prefilter.request.requirements import ROOT
from os_prefilter.request.spec import Destination, RequestSpec
from os_prefilter.service import Service
from os_prefilter.service.answer import CPU_TRAITS, cpu_fit
from os_prefilter.service.existing_server import (
    ExistingServer,
    may_be_required,
)
from os_prefilter_tools.fleet.demand import (
    AGGREGATE,
    RESOURCE,
    TRAIT,
    Condition,
    Demand,
    demand_of,
)
from os_prefilter_tools.fleet.host_index import HostIndex
from os_prefilter_tools.fleet.matching import hosts_in
from os_prefilter_tools.fleet.model import Fleet
from os_prefilter_tools.fleet.server import ANTI_AFFINITY, Server, ServerGroup
from os_prefilter_tools.operators.audit.image_audit import short_line
from os_prefilter_tools.operators.diagnose.findings import Sources
from os_prefilter_tools.operators.diagnose.shortfall import Shortfalls

_DISABLED = Condition(TRAIT, ROOT, False, (os_traits.COMPUTE_STATUS_DISABLED,))
# Requests of which the providers of hosts must be searched to know why they
# have no host.
_MOST_SEARCHED = 20


class ServerRequirement(NamedTuple):
    """One requirement, and its source."""

    text: str
    """What the host must meet.

    A trait, ``!`` and a forbidden one, a resource class with its amount, or
    the aggregates.
    """
    by: str
    """The filter that requires it, or ``request``."""
    because: str


LostTo = tuple[tuple[ServerRequirement, int], ...]
"""Requirements, and how many lost destinations do not meet each."""


@dataclass(eq=False, slots=True)
class ServerKind:
    """Requests with the same demand on a host."""

    demand: Demand
    hosts: int
    """The set of hosts that meet the demand, each server by itself."""


class JudgedServer(NamedTuple):
    """The demand of one server's request, and its destinations."""

    kind: ServerKind
    others: int
    """All hosts of the fleet except the server's own."""
    capable: int
    """The hosts among them that meet the demand."""
    now: int
    """Those of them that the server's group allows."""
    if_died: int
    sources: Sources
    """Why this request makes the demand.

    An equal demand of another request may have another source.
    """


class NotInFleet(NamedTuple):
    """A server's availability zone or host that the fleet does not have."""

    what: str
    name: str


class Destinations:
    """The hosts of a fleet as destinations of servers.

    :param fleet: read with its inventories
    :param service: the filters; what their rules need to know of a server that
        exists is in the server
    :param before: those of the same hosts before a rehearsed upgrade
    """

    def __init__(
        self,
        fleet: Fleet,
        service: Service,
        before: Destinations | None = None,
    ) -> None:
        self.fleet = fleet
        self.before = before
        self.index = HostIndex(hosts_in(fleet))
        self._service = service
        # A look-up takes a thread for each server.
        if may_be_required(service.options):
            self._service = replace(
                service,
                look_up_server=lambda _context, _spec: ExistingServer(
                    self._kept_machine_type
                ),
            )
        self._kept_machine_type: str | None = None
        """Of the server that is judged."""
        self._demands: dict[tuple[Condition, ...], ServerKind] = {}
        self._conflicts: dict[
            tuple[ServerKind, int], tuple[Condition, ...]
        ] = {}
        self._deprecated: dict[tuple[int, str], bool | None] = {}
        self._with_cpu: dict[frozenset[str], int] = {}
        self._searched = 0
        self._members: dict[ServerGroup, Mapping[int, int]] = {}
        self._zones: dict[str, list[str]] = {}
        for aggregate in fleet.aggregates.values():
            self._zones.setdefault(aggregate.availability_zone, []).append(
                aggregate.uuid
            )

    def hosts_named(self, names: Iterable[str]) -> int:
        """Return the set of the hosts with these names.

        :raises DocumentError: if there is none of a name; the message has a
            close one
        """
        for name in names:
            if name not in self.index.numbers:
                advice = "Name a resource provider of a host."
                for close in get_close_matches(name, self.index.names, n=1):
                    advice = f"Did you mean {quote(close)}?"
                problem = f"the fleet has no host {quote(name)}. {advice}"
                raise DocumentError("--without", problem)
        return set_of(self.index.numbers[name] for name in names)

    def number_of(self, server: Server) -> int | None:
        """Return the number of a server's own host.

        None if it has none, or one that the fleet does not have.
        """
        return self.index.numbers.get(server.host)

    def is_deprecated(self, server: Server) -> bool | None:
        """Return whether libvirt marks the server's machine type on its host.

        None if the type, the host or its marks are not known.
        """
        own, machine_type = self.number_of(server), server.current_machine_type
        if own is None or not machine_type:
            return None
        key = own, machine_type
        if key not in self._deprecated:
            traits = self.index.hosts[own].root.traits
            self._deprecated[key] = is_deprecated(machine_type, traits)
        return self._deprecated[key]

    @cached_property
    def _cpus(self) -> list[frozenset[str]]:
        """The traits of each host that say what its CPU is."""
        return [
            frozenset(
                trait
                for trait in host.root.traits
                if trait.startswith(CPU_TRAITS)
            )
            for host in self.index.hosts
        ]

    def lacks_cpu(self, server: Server, hosts: int) -> bool:
        """Return whether none of these hosts has the CPU of the server's.

        False if there are no hosts, or that CPU is not known.
        """
        own = self.number_of(server)
        if own is None or not hosts:
            return False
        cpu = self._cpus[own]
        if cpu not in self._with_cpu:
            self._with_cpu[cpu] = set_of(
                number
                for number, other in enumerate(self._cpus)
                if cpu_fit(cpu, other) == 1.0
            )
        same = self._with_cpu[cpu]
        # A host whose CPU is not known does not even fit itself.
        return same != 0 and not hosts & same

    def unknown_of(self, server: Server) -> list[NotInFleet]:
        """Return what a server names that the fleet does not have."""
        zone = server.request.availability_zone
        named = (
            ("host", server.host, self.index.numbers),
            ("availability zone", zone, self._zones),
        )
        return [
            NotInFleet(what, short_line(name))
            for what, name, known in named
            if name and name not in known
        ]

    @cached_property
    def _if_empty(self) -> HostIndex:
        classes = self.fleet.resource_classes
        return HostIndex(host.freed(classes) for host in self.index.hosts)

    def judge(self, server: Server) -> JudgedServer:
        """Return the demand of a server after the filters, with its hosts.

        :raises RequestRejected: if the filters reject the request
        """
        spec = self._request_of(server)
        self._kept_machine_type = server.machine_type
        sources = Sources(spec, self._service)
        demand = demand_of(sources.query)
        # Nova never moves a server to a disabled host, whichever filters are
        # enabled here.
        demand = replace(
            demand, root_forbidden=demand.root_forbidden | {*_DISABLED.names}
        )
        key = demand.conditions()
        if key not in self._demands:
            hosts = self.index.find_candidates(key)
            self._demands[key] = ServerKind(demand, hosts)
        kind, own = self._demands[key], self.number_of(server)
        others = self.index.all & ~(0 if own is None else 1 << own)
        capable = kind.hosts & others
        now = if_died = capable & self._allowed_by(server.group)
        if own is not None:
            if_died = self.index.without_shared_of(own, now, kind.demand)
        return JudgedServer(kind, others, capable, now, if_died, sources)

    def _allowed_by(self, group: ServerGroup | None) -> int:
        """Return the hosts that a server group leaves to one more member.

        By Nova's filters for server groups.

        Its own host is among the group's, as in Nova: of an affinity group on
        one host, Nova moves no server.
        """
        if group is None:
            return self.index.all
        if group not in self._members:
            self._members[group] = group.members_on(self.index.numbers)
        members = self._members[group]
        if group.policy == ANTI_AFFINITY:
            return self.index.all & ~group.closed_hosts(members)
        # A member on a host that is not known may be on any.
        if not members or group.count_lost(self.index.numbers):
            return self.index.all
        return set_of(members)

    def find_before(self, server: Server) -> int:
        """Return the destinations before a rehearsed upgrade."""
        if self.before is None:
            return 0
        try:
            return self.before.judge(server).now
        except RequestRejected:
            return 0

    def find_lost_to(self, judged: JudgedServer, lost: int) -> LostTo:
        """Return the requirements that lost destinations do not meet."""
        found: dict[ServerRequirement, int] = {}
        for item in judged.kind.demand.conditions() if lost else ():
            lacking = lost & ~self.index.find_possible(item)
            if lacking:
                requirement = self._describe(item, judged.sources)
                found[requirement] = size_of(lacking)
        return tuple(found.items())

    def count_if_empty(self, judged: JudgedServer) -> int:
        """Return how many other hosts could take a server if empty.

        Its group does not count then.
        """
        hosts = self.find_if_empty(judged.kind.demand)
        return size_of(hosts & judged.others)

    def find_if_empty(self, demand: Demand) -> int:
        """Return the hosts that meet a demand if empty."""
        return self._if_empty.find_candidates(demand.conditions())

    def _request_of(self, server: Server) -> RequestSpec:
        """Return the request of a move as Nova makes it.

        It has the zone's aggregates, and a cell.
        """
        spec = clone_of(server.request)
        destination = spec.requested_destination or Destination()
        zone = spec.availability_zone
        if zone and zone in self._zones:
            of_zone = ",".join(sorted(self._zones[zone]))
            destination = replace(
                destination,
                aggregates=[*(destination.aggregates or ()), of_zone],
            )
        spec.requested_destination = replace(
            destination, cell=destination.cell or "of the server"
        )
        return spec

    def conflict(
        self, judged: JudgedServer, excluded: int = 0
    ) -> tuple[ServerRequirement, ...]:
        """Return a smallest set of requirements that no other host meets.

        Empty if it is not known: if it takes a search on each host, only the
        first of them are searched.
        """
        usable = judged.others & ~excluded
        key = judged.kind, usable
        if key not in self._conflicts:
            found = self._find_conflict(judged.kind.demand, usable)
            self._conflicts[key] = found
        return tuple(
            self._describe(item, judged.sources)
            for item in self._conflicts[key]
        )

    def _find_conflict(
        self, demand: Demand, usable: int
    ) -> tuple[Condition, ...]:
        conditions = demand.conditions()
        if not usable:
            return ()
        # What each request has, a reason should rather not name.
        in_doubt = [_DISABLED]
        in_doubt += [item for item in conditions if item.kind == RESOURCE]
        possible = {
            item: self.index.find_possible(item) & usable
            for item in conditions
        }
        conflict = smallest_disjoint(possible, in_doubt)
        if not conflict and self._searched < _MOST_SEARCHED:
            self._searched += 1
            hosts = (self.index.hosts[each] for each in numbers_in(usable))
            best = min(
                Shortfalls(hosts, demand).conflicts,
                key=lambda each: (
                    len(each),
                    [item in each for item in in_doubt],
                ),
                default=(),
            )
            conflict = tuple(item for item in conditions if item in best)
        return conflict

    def _describe(
        self, item: Condition, sources: Sources
    ) -> ServerRequirement:
        by, because = sources.of(item)
        text = str(item)
        if item == _DISABLED and by == BY_REQUEST:
            because = "no disabled compute service"
        elif item.kind == AGGREGATE:
            known = self.fleet.aggregates
            names = [
                known[uuid].name if uuid in known else uuid
                for uuid in item.names
            ]
            text = f"{'' if item.wanted else '!'}aggregate {'|'.join(names)}"
        if item.suffix:
            text = f"{text} on {item.suffix}"
        return ServerRequirement(escape_line(text), by, because)
