# SPDX-License-Identifier: Apache-2.0

"""The values of properties and extra specs that a cloud offers.

Each value is put into a smallest request, the service turns it into a query,
and the index of the fleet gives the hosts that could serve it. So the result
is that of the scheduler with the same filters, except that a host may be full.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from itertools import chain
from typing import NamedTuple

import os_traits

from os_prefilter.common.errors import RequestRejected
from os_prefilter.common.host_sets import numbers_in, size_of, union
from os_prefilter.request.query import query_of
from os_prefilter.request.requirements import ROOT
from os_prefilter.request.spec import Flavor, Image, RequestSpec
from os_prefilter.service import Service
from os_prefilter.vocabulary import enabling_values
from os_prefilter.vocabulary.model import Row
from os_prefilter_tools.fleet.demand import (
    RESOURCE,
    TRAIT,
    Condition,
    demand_of,
)
from os_prefilter_tools.fleet.host_index import HostIndex
from os_prefilter_tools.fleet.model import Fleet

DEFAULT_ZONE = "nova"
"""The zone of hosts that are in no other.

The default of Nova's option ``default_availability_zone``.
"""

_ENABLED = (
    Condition(TRAIT, ROOT, True, (os_traits.COMPUTE_NODE,)),
    Condition(TRAIT, ROOT, False, (os_traits.COMPUTE_STATUS_DISABLED,)),
)
_Conditions = frozenset[Condition]

# What Nova's API needs with a value; without it, it refuses the value, or
# the value means nothing.
_PINNED = {"hw:cpu_policy": "dedicated"}
_BESIDE: Mapping[tuple[str, str], Mapping[str, str]] = {
    ("cpu_policy", "mixed"): {"hw:cpu_dedicated_mask": "0"},
    ("cpu_thread_policy", "isolate"): _PINNED,
    ("cpu_thread_policy", "require"): _PINNED,
    ("emulator_threads_policy", "isolate"): _PINNED,
    # Alone it starts with libvirt 9.2 and newer only.
    ("maxphysaddr_mode", "emulate"): {"hw:maxphysaddr_bits": "42"},
}


class Status(str, Enum):
    """Status of a value."""

    # As in enum.StrEnum, which Python 3.10 does not have.
    __str__ = str.__str__

    OFFERED = "offered"
    """At least one enabled host serves it."""
    NOT_OFFERED = "not offered"
    """No enabled host does: a request for it ends without a host."""
    REQUIRES_NOTHING = "requires nothing"
    """It requires nothing of a host that traits or resources could express."""
    NOT_CHECKED = "not checked"
    """No enabled filter reads it, or no host reports it: it may work or not.
    """


class Value(NamedTuple):
    """One value of a property."""

    value: str
    status: Status
    reason: str = ""
    """Why it requires nothing."""
    hosts: int = 0
    """How many enabled hosts serve it."""
    by_place: tuple[int, ...] = ()
    """The same for each of :attr:`Offer.places`."""


class Property(NamedTuple):
    """One property; a name is empty where it cannot be requested by that."""

    image_property: str
    image_field: str
    extra_spec: str
    values: tuple[Value, ...]
    any_text: bool = False
    """True if the value is free text, such as a device profile's name.

    The one value then stands for all.
    """


@dataclass(frozen=True)
class Offer:
    """The values that a cloud offers."""

    properties: tuple[Property, ...]
    hosts: int
    """How many enabled hosts there are."""
    by: str = ""
    """``zone``, ``aggregate``, or empty for the cloud as a whole."""
    places: tuple[str, ...] = ()
    """The names of the zones or aggregates."""
    taken_at: str = ""
    """When the fleet was read.

    As in :attr:`os_prefilter_tools.fleet.model.Fleet.taken_at`.
    """
    waiting: tuple[str, ...] = ()
    """The filters that wait for compute nodes to report.

    The values that they would check are not checked.
    """


def find_offer(
    fleet: Fleet,
    service: Service,
    by: str = "",
    default_zone: str = DEFAULT_ZONE,
) -> Offer:
    """Return the offer of a fleet's enabled compute nodes and a service.

    :param by: ``zone`` or ``aggregate``, to count the hosts of each of these
        as well
    :param default_zone: the zone of hosts that are in no aggregate with a zone
    :raises FilterFailed: a filter raises an error of its own
    :raises RequestRejected: a filter rejects even a request without any
        property
    """
    requests = _SmallestRequests(service)
    requested = {}
    named = set(_ENABLED)
    for row in requests.rows.values():
        for value in filter(None, row.values):
            demands = requests.conditions_for(row, value)
            requested[row.name, value] = demands
            named.update(*demands)
    index = HostIndex.by_capability(fleet, named, any_size=True)
    enabled = index.find_candidates(_ENABLED)
    places = _hosts_by_place(fleet, enabled, by, default_zone) if by else {}

    def judge(row: Row, value: str) -> Value:
        demands = requested[row.name, value]
        own = frozenset(row.values[value].traits)
        if demands and not own and set(demands) == {requests.always}:
            return Value(
                value, Status.REQUIRES_NOTHING, row.values[value].reason
            )
        known = [each for each in demands if own <= _names_in(each)]
        if demands and not known:
            return Value(value, Status.NOT_CHECKED)
        serving = union(map(index.find_candidates, known)) & enabled
        by_place = tuple(
            size_of(serving & members) for members in places.values()
        )
        status = Status.OFFERED if serving else Status.NOT_OFFERED
        return Value(value, status, "", size_of(serving), by_place)

    properties = []
    for row in requests.rows.values():
        values = [judge(row, value) for value in row.values if value]
        found = Property(
            row.image_property or "",
            row.image_attribute or "",
            row.extra_spec or "",
            tuple(values),
            "" in row.spelling.prefixes,
        )
        properties.append(found)
    return Offer(
        tuple(properties),
        size_of(enabled),
        by,
        tuple(places),
        fleet.taken_at,
        requests.waiting,
    )


def _names_in(conditions: _Conditions) -> set[str]:
    return set(chain.from_iterable(item.names for item in conditions))


def _hosts_by_place(
    fleet: Fleet, enabled: int, by: str, default_zone: str
) -> Mapping[str, int]:
    """Return the set of enabled hosts of each zone or aggregate."""
    names = {
        each.uuid: each.availability_zone if by == "zone" else each.name
        for each in fleet.aggregates.values()
    }
    members = dict.fromkeys(filter(None, names.values()), 0)
    elsewhere = [default_zone] if by == "zone" else []
    hosts = fleet.instance_hosts
    for number in numbers_in(enabled):
        places = {
            names[uuid] for uuid in hosts[number].aggregates if names.get(uuid)
        }
        for name in places or elsewhere:
            members[name] = members.get(name, 0) | 1 << number
    return dict(sorted(members.items()))


def spec_with(
    some: Iterable[tuple[Row, str]], extra_specs: Mapping[str, str]
) -> RequestSpec:
    """Return a request for values of rows, and with these extra specs."""
    properties: dict[str, object] = {}
    specs = dict(extra_specs)
    disk_format = None
    for row, value in some:
        if row.image_property:
            properties[row.image_property] = value
        elif row.extra_spec:
            specs[row.extra_spec] = value
        else:
            disk_format = value
    flavor = Flavor(vcpus=1, memory_mb=512, extra_specs=specs)
    return RequestSpec(flavor, Image(properties, disk_format))


class _SmallestRequests:
    """The smallest requests for one value, behind the filters of a service."""

    def __init__(self, service: Service) -> None:
        # No user made these requests: a value without effect needs no note.
        self._service = replace(service, remark=None)
        self.rows = {
            row.name: row for row in service.options.rows if row.required_by
        }
        """All rows that can be requested, by name."""
        self._deferred: set[tuple[str, str]] = set()
        self.always = self._conditions_of({})
        """The conditions of a request without any property."""
        self._always_deferred = frozenset(self._deferred)

    @property
    def waiting(self) -> tuple[str, ...]:
        """The filters that deferred a requirement while they wait.

        A filter that defers for every request, as ``owner`` does, says nothing
        about a value.
        """
        of_values = self._deferred - self._always_deferred
        return tuple(sorted({name for name, _ in of_values}))

    def conditions_for(self, row: Row, value: str) -> list[_Conditions]:
        """Return the conditions of each smallest request for a value.

        Without requests that are rejected.

        There are several where a value needs another one: a TPM model is
        requested with each TPM version.
        """
        found = []
        for wanted in self._complete({row.name: value}):
            with suppress(RequestRejected):
                found.append(self._conditions_of(wanted))
        return found

    def _complete(
        self, wanted: Mapping[str, str]
    ) -> Iterator[Mapping[str, str]]:
        """Yield requests for values, each with the values it depends on.

        Without those it means nothing, or is refused.
        """
        for name, value in wanted.items():
            row = self.rows[name]
            needed: dict[str, Iterable[str]] = {}
            if value in row.constraints:
                needed.update(row.constraints[value].needs)
            if row.depends_on and row.values[value].traits:
                needed.setdefault(
                    row.depends_on.row, sorted(enabling_values(row.depends_on))
                )
            for other, values in needed.items():
                if other not in wanted:
                    for each in values:
                        yield from self._complete({**wanted, other: each})
                    return
        yield wanted

    def _conditions_of(self, wanted: Mapping[str, str]) -> _Conditions:
        extra_specs: dict[str, str] = {}
        for each in wanted.items():
            extra_specs |= _BESIDE.get(each, {})
        values = ((self.rows[name], value) for name, value in wanted.items())
        spec = spec_with(values, extra_specs)
        # One shared and one dedicated for the mixed policy.
        spec.flavor.vcpus = 2
        decision = self._service.apply(spec)
        for run in decision.runs:
            waiting = [str(note) for note in run.notes if note.waits]
            self._deferred.update((run.filter, note) for note in waiting)
        conditions = demand_of(query_of(spec)).conditions()
        return frozenset(
            item._replace(amount=1) if item.kind == RESOURCE else item
            for item in conditions
            if item.kind in (RESOURCE, TRAIT)
        )
