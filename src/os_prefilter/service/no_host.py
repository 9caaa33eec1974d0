"""Reject a request before Placement is asked, if no host has the traits that it requires, and say why.

Nova says "No valid host was found." and nothing else when Placement has no candidates. Here the author of the image is
told the smallest set of properties that no host serves together. Never a false rejection: what is known of the fleet
only suggests one, Placement confirms it for this request, and whatever is not known rejects nothing.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from os_prefilter.common.errors import NoHostServes
from os_prefilter.common.host_sets import intersection, smallest_disjoint
from os_prefilter.common.logs import get_logger
from os_prefilter.request.requirements import ROOT, Requirement
from os_prefilter.service.deployment_facts import GIVEN_UP, ask_in_time
from os_prefilter.service.host_traits import HostTraits, HostTraitsFact

if TYPE_CHECKING:
    from concurrent.futures import Future

LOG = get_logger(__name__)

# Refuted rejections until the fact is read again.
_MOST_REFUTED = 1_000


@dataclass(frozen=True, slots=True)
class Traits:
    """Required and forbidden traits of the root, of some requirements together."""

    required: frozenset[str] = frozenset()
    forbidden: frozenset[str] = frozenset()

    def __or__(self, other: "Traits") -> "Traits":
        return Traits(self.required | other.required, self.forbidden | other.forbidden)

    def hosts(self, known: HostTraits) -> int:
        """Return the set of the hosts that meet it.

        :raises KeyError: if the hosts that have one of the traits are not known
        """
        found = known.compute_nodes
        for trait in self.required:
            found &= known.sets[trait]
        for trait in self.forbidden:
            found &= ~known.sets[trait]
        return found


@dataclass(frozen=True, slots=True)
class RootDemand:
    """Demand of a request on the root provider of a host, by the properties that it comes from."""

    all: frozenset[str]
    """Each trait of it, required or forbidden."""
    total: Traits
    every_request: Traits
    """Demand that comes from no property: an enabled compute service, for instance."""
    by_properties: Mapping[tuple[str, ...], Traits]


def root_demand(requirements: Iterable[Requirement]) -> RootDemand:
    """Return what requirements say of the root."""
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
    return RootDemand(total.required | total.forbidden, total, every_request, MappingProxyType(parts))


class NoHostCheck:
    """Rejects requests that no host can serve.

    :param counts: whether the rejection tells how many hosts there are (``no_host_reason = counts``)
    """

    def __init__(self, fact: HostTraitsFact, *, counts: bool = False) -> None:
        self._fact = fact
        self._counts = counts
        # For one object of the fact: what Placement refuted.
        self._refuted: tuple[HostTraits, set[Traits]] = (HostTraits(), set())
        # A question that Placement did not answer in time, and when it is given up.
        self._late: tuple[Future[bool], float] | None = None
        self._failing = False

    def check(self, demand: RootDemand, context: Any, until: float = inf) -> int | None:
        """Let the request pass if any host may serve it; return how many have the traits, or None if that is not known.

        :param until: when the request waits no longer, on the clock of :func:`time.monotonic`
        :raises NoHostServes: if none does, and Placement confirms it
        """
        if not demand.by_properties:
            return None
        known = self._fact.current(demand.all, context, until)
        try:
            if serving := demand.total.hosts(known):
                return serving.bit_count()
            # None has what each request requires: no property is to blame.
            usable = demand.every_request.hosts(known)
            if not usable:
                return None
            parts = demand.by_properties.items()
            blamed = smallest_disjoint({properties: part.hosts(known) & usable for properties, part in parts})
        except KeyError:
            return None
        traits = demand.every_request
        for properties in blamed:
            traits |= demand.by_properties[properties]
        if not self._is_refuted(traits, known, until):
            raise self._rejection(blamed, demand, usable, known)
        return None

    def _is_refuted(self, traits: Traits, known: HostTraits, until: float) -> bool:
        """Ask Placement whether any host has the traits by now; True also if it does not answer in time."""
        if self._refuted[0] is not known:
            self._refuted = (known, set())
        refuted = self._refuted[1]
        if traits in refuted:
            return True
        if self._late and not self._late[0].done() and time.monotonic() < self._late[1]:
            # Or each request would leave a thread behind.
            return True
        asked, problem = ask_in_time(partial(self._fact.any_host, traits.required, traits.forbidden), "any host", until)
        found = None if problem else asked.result()
        if not asked.done():
            self._late = asked, time.monotonic() + GIVEN_UP
        if problem and not self._failing:
            LOG.warning("Whether any host serves a request is not known, so such requests are scheduled: %s", problem)
        elif self._failing and not problem:
            LOG.info("Placement confirms again whether any host serves a request.")
        self._failing = bool(problem)
        if found and len(refuted) < _MOST_REFUTED:
            refuted.add(traits)
        # Exactly False: whatever else a reader returns is no answer.
        return found is not False

    def _rejection(
        self, blamed: tuple[tuple[str, ...], ...], demand: RootDemand, usable: int, known: HostTraits
    ) -> NoHostServes:
        names = map(" and ".join, blamed)
        serving = [demand.by_properties[properties].hosts(known) for properties in blamed]
        # A host that is disabled, for instance.
        which = "available" if intersection(serving) else ""
        if not self._counts:
            return NoHostServes(names, which=which)
        hosts = usable if which else known.compute_nodes
        alone = [(each & usable).bit_count() for each in serving] if len(blamed) > 1 else ()
        return NoHostServes(names, hosts.bit_count(), alone, which)
