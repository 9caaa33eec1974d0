"""What a cloud can do, for its customers: which values of which image property or extra spec some host serves.

Each value is put into a smallest request, the pipeline says what that asks of a host, and the hosts of the fleet are
looked at. So the answer is that of the scheduler with the same filters, but for one thing: that a host may be full.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from typing import NamedTuple

import os_traits

from os_prefilter.fleet.model import Fleet, Provider
from os_prefilter.operators.offer.smallest_request import Asked, SmallestRequests
from os_prefilter.pipeline.pipeline import Pipeline
from os_prefilter.vocabulary.model import Row

DEFAULT_ZONE = "nova"
"""The zone of hosts that are in no other: the default of Nova's option ``default_availability_zone``."""


class Status(StrEnum):
    """What is known of a value."""

    OFFERED = "offered"
    """At least one enabled host serves it."""
    NOT_OFFERED = "not offered"
    """No enabled host does: a request for it ends without a host."""
    ASKS_NOTHING = "asks nothing"
    """It asks nothing of a host that traits or resources could say."""
    NOT_CHECKED = "not checked"
    """No enabled filter looks at it, or no host reports it, or inventories are not known: it may work or not."""


class Value(NamedTuple):
    """One value of a property."""

    value: str
    status: Status
    reason: str = ""
    """Why it asks nothing."""
    hosts: int = 0
    """How many enabled hosts serve it."""
    by_place: tuple[int, ...] = ()
    """The same for each of :attr:`Offer.places`."""


class Property(NamedTuple):
    """One thing that can be asked for; a name is empty where it cannot be asked for by that."""

    image_property: str
    image_field: str
    extra_spec: str
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Offer:
    """What a cloud can do."""

    properties: tuple[Property, ...]
    hosts: int
    """How many enabled hosts there are."""
    by: str = ""
    """``zone``, ``aggregate``, or empty for the cloud as a whole."""
    places: tuple[str, ...] = ()
    """The names of the zones or aggregates."""
    taken_at: str = ""
    """When the fleet was read, as in :attr:`os_prefilter.fleet.model.Fleet.taken_at`."""
    waiting: tuple[str, ...] = ()
    """The filters that wait for compute nodes to report; the values that they would ask for are not checked."""


def offer(fleet: Fleet, pipeline: Pipeline, by: str = "", default_zone: str = DEFAULT_ZONE) -> Offer:
    """Return what the enabled compute nodes of a fleet can do, behind the filters of a pipeline.

    :param by: ``zone`` or ``aggregate``, to say it of each of these as well
    :param default_zone: the zone of hosts that are in no aggregate with a zone
    :raises FilterFailed: a filter raises an error of its own
    :raises RequestRejected: a filter rejects even a request for nothing in particular
    """
    hosts = _Hosts(fleet)
    places = hosts.by_place(fleet, by, default_zone) if by else {}
    requests = SmallestRequests(pipeline)
    properties = []
    for row in requests.rows:
        names = (row.image_property or "", row.image_attribute or "", row.extra_spec or "")
        values = tuple(_value(row, each, requests, hosts, places) for each in row.values if each)
        properties.append(Property(*names, values))
    return Offer(tuple(properties), len(hosts.enabled), by, tuple(places), fleet.taken_at, requests.waiting)


def _value(
    row: Row, value: str, requests: SmallestRequests, hosts: "_Hosts", places: Mapping[str, frozenset[int]]
) -> Value:
    own = requests.traits(row, value)
    ways = requests.asking_for(row, value)
    if not own and ways and all(way == requests.always for way in ways):
        return Value(value, Status.ASKS_NOTHING, row.values[value].reason)
    known = [way for way in ways if own <= way.traits and (hosts.have_inventories or not way.resources)]
    if ways and not known:
        return Value(value, Status.NOT_CHECKED)
    serving: frozenset[int] = frozenset().union(*map(hosts.serving, known))
    by_place = tuple(len(serving & members) for members in places.values())
    return Value(value, Status.OFFERED if serving else Status.NOT_OFFERED, "", len(serving), by_place)


class _Hosts:
    """The enabled compute nodes of a fleet, by number, and what each can do."""

    def __init__(self, fleet: Fleet) -> None:
        self.have_inventories = fleet.has_inventories
        self.enabled = [
            host
            for host in fleet.instance_hosts
            if os_traits.COMPUTE_NODE in host.traits and os_traits.COMPUTE_STATUS_DISABLED not in host.traits
        ]
        having: dict[str, set[int]] = {}
        for number, host in enumerate(self.enabled):
            for trait in host.traits:
                having.setdefault(trait, set()).add(number)
        self._having = having
        self._known: dict[Asked, frozenset[int]] = {}

    def serving(self, asked: Asked) -> frozenset[int]:
        """Return the hosts that can do what is asked for."""
        if asked not in self._known:
            self._known[asked] = self._serving(asked)
        return self._known[asked]

    def _serving(self, asked: Asked) -> frozenset[int]:
        on_root = asked.root if asked.resources else asked.root | asked.unsuffixed
        found = set(range(len(self.enabled)))
        for trait, required in on_root:
            having = self._having.get(trait, set())
            found = found & having if required else found - having
        if asked.resources:
            found = {number for number in found if _gives(self.enabled[number], asked)}
        return frozenset(found)

    def by_place(self, fleet: Fleet, by: str, default_zone: str) -> dict[str, frozenset[int]]:
        """Return the hosts of each zone or aggregate, by its name."""
        members: dict[str, set[int]] = {}
        for each in fleet.aggregates.values():
            name = each.availability_zone if by == "zone" else each.name
            if name:
                members.setdefault(name, set())
        for number, host in enumerate(self.enabled):
            for name in _places_of(host, fleet, by) or ((default_zone,) if by == "zone" else ()):
                members.setdefault(name, set()).add(number)
        return {name: frozenset(members[name]) for name in sorted(members)}


def _places_of(host: Provider, fleet: Fleet, by: str) -> list[str]:
    known = (fleet.aggregates[uuid] for uuid in host.aggregates if uuid in fleet.aggregates)
    return [name for each in known if (name := each.availability_zone if by == "zone" else each.name)]


def _gives(host: Provider, asked: Asked) -> bool:
    """Whether some choice of providers in a tree, one for each resource class, has what is asked for beside the root.

    The root always gives something: memory.
    """
    givers = [[each for each in host.walk() if _has(each, name)] for name in sorted(asked.resources)]
    return any(_are(asked, (host, *chosen)) for chosen in product(*givers))


def _has(provider: Provider, resource_class: str) -> bool:
    """Whether a provider could give one of a resource class if nobody had any of it."""
    amounts = provider.resources.get(resource_class)
    if amounts is None or not amounts.min_unit <= 1 <= amounts.max_unit or amounts.step_size != 1:
        return False
    return (amounts.total - amounts.reserved) * amounts.allocation_ratio >= 1


def _are(asked: Asked, providers: Iterable[Provider]) -> bool:
    together = frozenset().union(*(provider.traits for provider in providers))
    return all((trait in together) is required for trait, required in asked.unsuffixed)
