# SPDX-License-Identifier: Apache-2.0

"""Reject requests for traits that no host has, with the reason.

It does so before Placement is queried.

Nova says "No valid host was found." and nothing else when Placement has no
candidates. Here the author of the image reads the smallest set of properties
that no host serves together. Never a false rejection: a sample of hosts
suggests what is impossible, Placement confirms it for this request, and
whatever is not known rejects nothing.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from math import inf
from random import choice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import os_traits

from os_prefilter.common.errors import NoHostServes
from os_prefilter.common.host_sets import smallest_disjoint
from os_prefilter.common.logs import get_logger
from os_prefilter.request.requirements import ROOT, Requirement
from os_prefilter.service import deployment_facts
from os_prefilter.service.deployment_facts import (
    REPEAT_AFTER,
    ask_in_time,
    pause_after,
)
from os_prefilter.service.host_traits import HostSample, HostTraits, Traits

if TYPE_CHECKING:
    from concurrent.futures import Future

LOG = get_logger(__name__)

# Requests to Placement for one rejection, at most; each shows that hosts serve
# what the sample's did not.
_MOST_ASKED = 40
# Demands that the sample serves, until it is another one.
_MOST_SERVED = 1_000


@dataclass(frozen=True, slots=True)
class RootDemand:
    """Demand of a request on the root provider of a host, by property."""

    total: Traits
    every_request: Traits
    """Demand from no property, such as an enabled compute service."""
    by_properties: Mapping[tuple[str, ...], Traits]


def root_demand(requirements: Iterable[Requirement]) -> RootDemand:
    """Return the demand of requirements on the root provider."""
    parts: dict[tuple[str, ...], Traits] = {}
    for item in requirements:
        if item.scope == ROOT:
            trait = frozenset((str(item.trait),))
            new = Traits(trait) if item.required else Traits(forbidden=trait)
            parts[item.properties] = parts.get(item.properties, Traits()) | new
    total = Traits()
    for part in parts.values():
        total |= part
    every_request = parts.pop((), Traits())
    return RootDemand(total, every_request, MappingProxyType(parts))


_NODES = Traits(frozenset((os_traits.COMPUTE_NODE,)))


class _Blame(NamedTuple):
    """The properties that no host serves together."""

    properties: tuple[tuple[str, ...], ...]
    which: str
    """"available" if hosts serve them that are excluded anyway, else empty."""
    hosts: int | None = None
    """Number of hosts; None if numbers are not shown."""
    alone: tuple[int, ...] = ()
    """Number of hosts that serve each of the properties."""


class NoHostCheck:
    """Rejects requests that no host can serve.

    :param interval: the seconds for which numbers of hosts are used before
        they are read again
    :param counts: whether the rejection says how many hosts there are
        (``no_host_reason = counts``)
    """

    def __init__(
        self,
        host_traits: HostTraits,
        interval: float = 60.0,
        *,
        counts: bool = False,
    ) -> None:
        self._host_traits = host_traits
        self._interval = interval
        self._counts = counts
        # For one sample: what its hosts serve.
        self._served: tuple[HostSample, set[Traits]] = (HostSample({}), set())
        # How many hosts meet a demand, and when that is counted again.
        self._numbers: dict[Traits, tuple[int, float]] = {}
        # A query that Placement did not answer in time, and when another one
        # may be sent.
        self._late: tuple[Future[_Blame | None], float] | None = None
        self._failing = False

    def check(
        self, demand: RootDemand, context: Any, until: float = inf
    ) -> None:
        """Let the request pass if any host may serve it.

        :param until: when the request waits no longer, on the clock of
            :func:`time.monotonic`
        :raises NoHostServes: if none does, and Placement confirms it
        """
        if not demand.by_properties:
            return
        known = self._host_traits.refresh(context, until)
        if self._is_served(demand.total, known) or self._is_served(
            demand.total, self._host_traits.as_others_know_it()
        ):
            return
        if (
            self._late
            and not self._late[0].done()
            and time.monotonic() < self._late[1]
        ):
            # Or each request would leave a thread behind.
            return
        asked, problem = ask_in_time(
            partial(
                self._blame,
                demand,
                min(until, time.monotonic() + deployment_facts.PATIENCE / 2),
            ),
            "no host",
            until,
        )
        if not asked.done():
            self._late = asked, time.monotonic() + REPEAT_AFTER
        if problem and not self._failing:
            LOG.warning(
                "Whether any host serves a request is not known, so such"
                " requests are scheduled: %s",
                problem,
            )
        elif self._failing and not problem:
            LOG.info(
                "Placement confirms again whether any host serves a request."
            )
        self._failing = bool(problem)
        blame = None if problem else asked.result()
        if blame:
            raise NoHostServes(
                map(" and ".join, blame.properties),
                blame.hosts,
                blame.alone,
                blame.which,
            )

    def _is_served(self, demand: Traits, known: HostSample) -> bool:
        if self._served[0] is not known:
            self._served = (known, set())
        served = self._served[1]
        if demand in served:
            return True
        is_served = known.serves(demand)
        if is_served and len(served) < _MOST_SERVED:
            served.add(demand)
        return is_served

    def _blame(self, demand: RootDemand, until: float) -> _Blame | None:
        """Return the properties that no host serves together.

        None if hosts serve them, or if that is not known. Placement decides:
        the sample only suggests which properties to query. If hosts serve
        them, one of the hosts joins the sample.

        :param until: when only the necessary queries are made

        Whatever the sample's hosts do not serve together, Placement is asked
        for. If hosts do, one joins the sample.

        :param until: when only what must be asked is asked
        """
        every, parts = demand.every_request, demand.by_properties
        for _ in range(_MOST_ASKED):
            known = self._host_traits.sample
            usable = known.hosts(_NODES | every)
            blamed = smallest_disjoint(
                {
                    names: known.hosts(part) & usable
                    for names, part in parts.items()
                }
            )
            if not blamed:
                return None
            alone = Traits()
            for properties in blamed:
                alone |= parts[properties]
            found = self._hosts(alone | every)
            if found is None:
                return None
            if not found:
                # Where no host is available at all, no property is to blame.
                if not usable and not self._join(self._hosts(_NODES | every)):
                    return None
                # A host that is disabled, for instance. Without the time to
                # ask, it is true that none is available.
                excluded = every != Traits() and (
                    time.monotonic() > until or self._hosts(alone)
                )
                return self._counted(
                    _Blame(blamed, "available" if excluded else ""), demand
                )
            if not self._join(found):
                return None
        return None

    def _join(self, found: list[str] | None) -> bool:
        """Add one of the hosts to the sample; return whether there was any."""
        # At random: the first ones would often be those that were installed
        # together.
        return bool(found) and self._host_traits.add([choice(found or ())])  # noqa: S311 - no secret

    def _hosts(self, traits: Traits) -> list[str] | None:
        found = self._host_traits.reader.hosts(
            traits.required, traits.forbidden
        )
        return None if found is None else list(found)

    def _counted(self, blame: _Blame, demand: RootDemand) -> _Blame:
        if not self._counts:
            return blame
        every = _NODES | demand.every_request
        hosts = self._number(every if blame.which else _NODES)
        alone = []
        if len(blame.properties) > 1:
            for properties in blame.properties:
                part = demand.by_properties[properties]
                alone.append(self._number(every | part))
        return blame._replace(hosts=hosts, alone=tuple(alone))

    def _number(self, traits: Traits) -> int:
        number, due = self._numbers.get(traits, (0, -inf))
        begun = time.monotonic()
        if begun >= due:
            number = len(self._hosts(traits) or ())
            taken = time.monotonic() - begun
            if len(self._numbers) >= _MOST_SERVED:
                self._numbers = {}
            self._numbers[traits] = (
                number,
                time.monotonic() + pause_after(taken, self._interval),
            )
        return number
