"""Which hosts may take a server that runs: now, if its host died, and if other hosts were drained (ADR 0016).

A destination is a host that Placement would return for the server's request with the filters applied, beside its own
host and disabled ones. The server's own allocation stays where it is, as it does while Nova moves a server.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from typing import NamedTuple

import os_traits

from os_prefilter.common.errors import DocumentError, RequestRejected
from os_prefilter.common.host_sets import numbers_in, set_of, smallest_disjoint
from os_prefilter.common.quoting import escape_line, quote
from os_prefilter.request.query import BY_REQUEST
from os_prefilter.request.requirements import ROOT
from os_prefilter.request.spec import Destination, Image, RequestSpec
from os_prefilter.request.view import clone_of
from os_prefilter.service import Service
from os_prefilter.vocabulary import BY_NAME
from os_prefilter_tools.fleet.demand import AGGREGATE, POLICY, RESOURCE, TRAIT, Condition, Demand, demand_of
from os_prefilter_tools.fleet.host_index import HostIndex, with_plenty
from os_prefilter_tools.fleet.matching import Host, hosts_in
from os_prefilter_tools.fleet.model import Fleet
from os_prefilter_tools.fleet.server import Server
from os_prefilter_tools.operators.diagnose.findings import Sources
from os_prefilter_tools.operators.diagnose.shortfall import Shortfalls

_MACHINE = BY_NAME["machine_type"]
_MACHINE_TYPE = "hw_machine_type"
_DISABLED = Condition(TRAIT, ROOT, False, (os_traits.COMPUTE_STATUS_DISABLED,))
# Requests of which the providers of hosts must be searched to know why they have no host.
_MOST_SEARCHED = 20


class Requirement(NamedTuple):
    """One requirement, and its source."""

    text: str
    """A trait, ``!`` and a forbidden one, a resource class with its amount, or the aggregates."""
    by: str
    """The filter that requires it, or ``request``."""
    because: str


class Found(NamedTuple):
    """The hosts that may take a server."""

    now: frozenset[str]
    if_host_died: frozenset[str]
    """As :attr:`now`, without what its host shares with others."""
    without: frozenset[str]
    """As :attr:`now`, without the hosts that are drained."""
    conflict: tuple[Requirement, ...] = ()
    """If there is none now: a smallest set of requirements that no other host meets together, as far as it is known."""
    if_empty: int = 0
    """If there is none now: how many other hosts would be one if all were empty."""
    rejected: str = ""
    """Why the filters reject the request; empty if they do not."""


@dataclass(eq=False, slots=True)
class Kind:
    """Requests with the same demand on a host."""

    demand: Demand
    hosts: int
    """The set of the hosts that meet the demand, where each server counts for itself."""


class Judged(NamedTuple):
    """What is known of one server's request."""

    kind: Kind
    sources: Sources
    """Of this request: another one may demand the same because of something else."""
    notes: frozenset[str]
    """Unknown values, and requirements that are deferred."""


class Unknown(NamedTuple):
    """A server's availability zone or host that the fleet does not have."""

    what: str
    name: str


class Destinations:
    """The hosts of a fleet as destinations of servers.

    :param service: the filters; what their rules need to know of a server that exists is in the server
    """

    def __init__(self, fleet: Fleet, service: Service) -> None:
        self.fleet = fleet
        self._service = service
        self._assumed: frozenset[str] = frozenset()
        self._demands: dict[tuple[Condition, ...], Kind] = {}
        self._conflicts: dict[tuple[Kind, int], tuple[Condition, ...]] = {}
        self._searched = 0
        zones: dict[str, list[str]] = {}
        for aggregate in fleet.aggregates.values():
            zones.setdefault(aggregate.availability_zone, []).append(aggregate.uuid)
        self._zones = zones

    # -- names ---------------------------------------------------------------------------------------------------------

    def of(self, server: Server, without: Iterable[str] = ()) -> Found:
        """Return the hosts that may take a server.

        :param without: names of hosts that are drained
        :raises DocumentError: if the fleet has no host of one of these names
        :raises PrefilterError: if a filter fails; a request that it rejects has no host
        """
        drained = self.hosts_named(without)
        try:
            judged = self.judge(server)
        except RequestRejected as error:
            return Found(frozenset(), frozenset(), frozenset(), rejected=str(error))
        kind, own = judged.kind, self.number_of(server)
        now = kind.hosts & ~_bit(own)

        def names(hosts: int) -> frozenset[str]:
            return frozenset(self.index.names_of(hosts))

        conflict = () if now else self.conflict(judged, own)
        if_empty = 0 if now else self.count_if_empty(kind, own)
        return Found(names(now), names(self.if_died(kind, own)), names(now & ~drained), conflict, if_empty)

    def hosts_named(self, names: Iterable[str]) -> int:
        """Return the set of the hosts with these names.

        :raises DocumentError: if there is none of a name; the message has a close one
        """
        for name in names:
            if name not in self.index.numbers:
                close = get_close_matches(name, self.index.names, n=1)
                advice = f"Did you mean {quote(close[0])}?" if close else "Name a resource provider of a host."
                raise DocumentError("--without", f"the fleet has no host {quote(name)}. {advice}")
        return set_of(self.index.numbers[name] for name in names)

    def number_of(self, server: Server) -> int | None:
        """Return the number of a server's own host; None if it has none, or one that the fleet does not have."""
        return self.index.numbers.get(server.host)

    def unknown_of(self, server: Server) -> list[Unknown]:
        """Return what a server names that the fleet does not have."""
        found = []
        if server.host and self.number_of(server) is None:
            found.append(Unknown("host", server.host))
        zone = server.request.availability_zone
        if zone and zone not in self._zones:
            found.append(Unknown("availability zone", zone))
        return found

    # -- sets of hosts -------------------------------------------------------------------------------------------------

    @cached_property
    def index(self) -> HostIndex:
        """The index of the hosts."""
        return HostIndex(self._hosts)

    @cached_property
    def _if_empty(self) -> HostIndex:
        return HostIndex(self._hosts, ignore_usage=True)

    @property
    def _hosts(self) -> Iterable[Host]:
        return hosts_in(self.fleet) if self.fleet.has_inventories else with_plenty(self.fleet, self._assumed)

    def judge(self, server: Server) -> Judged:
        """Return the demand of a server's request after the filters, with the hosts that meet it.

        :raises RequestRejected: if the filters reject the request
        """
        spec = self._request_of(server)
        sources = Sources(spec, self._service)
        demand = demand_of(spec)
        # Nova never moves a server to a disabled host, whichever filters are enabled here.
        demand = replace(demand, root_forbidden=demand.root_forbidden | {*_DISABLED.names})
        key = demand.conditions()
        if key not in self._demands:
            self._assume({name for group in demand.groups.values() for name in group.resources})
            self._demands[key] = Kind(demand, self.index.find_candidates(key))
        notes = frozenset(str(note) for note in sources.decision.notes if note.warn or note.waits)
        return Judged(self._demands[key], sources, notes)

    def if_died(self, kind: Kind, own: int | None) -> int:
        """Return the hosts that may take a server if its host is gone, with all that the host shares."""
        hosts = kind.hosts & ~_bit(own)
        return hosts if own is None else self.index.without_shared_of(own, hosts, kind.demand)

    def count_if_empty(self, kind: Kind, own: int | None) -> int:
        """Return how many other hosts could take a server if all were empty."""
        return (self._if_empty.find_candidates(kind.demand.conditions()) & ~_bit(own)).bit_count()

    def _assume(self, classes: Collection[str]) -> None:
        if self.fleet.has_inventories or self._assumed.issuperset(classes):
            return
        self._assumed |= frozenset(classes)
        for name in ("index", "_if_empty"):
            self.__dict__.pop(name, None)

    def _request_of(self, server: Server) -> RequestSpec:
        """Return the request of a move: with the zone's aggregates, and the machine type that the server keeps."""
        spec = clone_of(server.request)
        destination = spec.requested_destination or Destination()
        aggregates = self._zones.get(spec.availability_zone) if spec.availability_zone else None
        if aggregates:
            of_zone = ",".join(sorted(aggregates))
            destination = replace(destination, aggregates=[*(destination.aggregates or ()), of_zone])
        if server.machine_type is None:
            spec.requested_destination = destination
            return spec
        properties = dict(spec.image.properties) if spec.image else {}
        if _MACHINE.canonical(server.machine_type):
            properties.setdefault(_MACHINE_TYPE, server.machine_type)
            spec.image = replace(spec.image or Image(), properties=properties)
        else:
            # As of any server that exists: the machine type that it keeps is not known.
            destination = replace(destination, cell=destination.cell or "of the server")
        spec.requested_destination = destination
        return spec

    # -- reasons -------------------------------------------------------------------------------------------------------

    def conflict(self, judged: Judged, own: int | None, excluded: int = 0) -> tuple[Requirement, ...]:
        """Return a smallest set of requirements that no host meets together, apart from some.

        Empty if it is not known: if it takes a search on each host, only the first of them are searched.
        """
        usable = self.index.all & ~_bit(own) & ~excluded
        key = judged.kind, usable
        if key not in self._conflicts:
            self._conflicts[key] = self._find_conflict(judged.kind.demand, usable)
        return tuple(self._describe(item, judged.sources) for item in self._conflicts[key])

    def describe_alone(self, own: int | None, excluded: int = 0) -> str:
        """Return why there is no other host at all, whatever a server requires; empty if there is one."""
        if self.index.all & ~_bit(own) & ~excluded:
            return ""
        return "every other host is drained" if self.index.all & ~_bit(own) else "the fleet has no other host"

    def _find_conflict(self, demand: Demand, usable: int) -> tuple[Condition, ...]:
        if not usable:
            return ()
        in_doubt = _in_doubt(demand.conditions())
        possible = {item: self.index.find_possible(item) & usable for item in demand.conditions()}
        conflict = smallest_disjoint(possible, in_doubt)
        if not conflict and self._searched < _MOST_SEARCHED:
            self._searched += 1
            found = Shortfalls((self.index.hosts[number] for number in numbers_in(usable)), demand).conflicts
            best = min(found, key=lambda each: (len(each), [item in each for item in in_doubt]), default=())
            conflict = tuple(item for item in possible if item in best)
        return conflict

    def _describe(self, item: Condition, sources: Sources) -> Requirement:
        if item == _DISABLED:
            by, because = sources.of(item)
            is_ours = by != BY_REQUEST
            return Requirement(f"!{item.names[0]}", by, because if is_ours else "no disabled compute service")
        by, because = sources.of(item)
        text = str(item)
        if item.kind == AGGREGATE:
            names = (self.fleet.aggregates[uuid].name if uuid in self.fleet.aggregates else uuid for uuid in item.names)
            text = f"{'' if item.wanted else '!'}aggregate {'|'.join(names)}"
        elif item.kind == POLICY:
            text = f"group_policy={text}"
        return Requirement(escape_line(f"{text} on {item.suffix}" if item.suffix else text), by, because)


def _bit(number: int | None) -> int:
    return 0 if number is None else 1 << number


def _in_doubt(conditions: Iterable[Condition]) -> list[Condition]:
    """Return the conditions that a reason should rather not name, most of all the first: what each request has."""
    unwanted = (item for item in conditions if item == _DISABLED or item.kind == RESOURCE)
    return sorted(unwanted, key=lambda item: item != _DISABLED)
