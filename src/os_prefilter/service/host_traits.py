"""Sets of hosts by trait: a scheduler's knowledge of the fleet, for the traits that its requests require.

A host is the root provider of a compute node. A set of hosts is an ``int`` in which host n is bit n: 50,000 hosts take
6 KiB for each trait, and to intersect two sets takes about a microsecond.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from types import MappingProxyType
from typing import Any, Protocol

from os_prefilter.service.deployment_facts import Fact

FACT = "host_traits"
"""The name of the fact in the log."""

# Reading is to take at most a twentieth of the time of the thread that reads, and of what Placement serves to it.
_PAUSE = 20


@dataclass(frozen=True, eq=False)
class HostTraits:
    """The hosts that have each trait, as they were read. Never changed."""

    numbers: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """UUID of a root provider -> number of the host."""
    compute_nodes: int = 0
    """The set of all hosts."""
    sets: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Trait -> the set of the hosts that have it; without the traits that were not read."""

    def has(self, host: str, trait: str) -> bool | None:
        """Return whether a host has a trait; None if that is not known.

        :param host: the UUID of its root provider, which is that of the compute node
        """
        number, hosts = self.numbers.get(host), self.sets.get(trait)
        return None if number is None or hosts is None else bool(hosts >> number & 1)

    def __repr__(self) -> str:
        return f"<traits of {self.compute_nodes.bit_count()} hosts>"

    def __eq__(self, other: object) -> bool:
        """Return whether both know hosts, or neither: the log has a line when that changes, not for each host."""
        return isinstance(other, HostTraits) and bool(self.compute_nodes) == bool(other.compute_nodes)

    __hash__ = None  # type: ignore[assignment]


class Reader(Protocol):
    """Reads from Placement."""

    def read(self, traits: Iterable[str], known: HostTraits, *, refresh: bool) -> HostTraits:
        """Return what is known, with the hosts that have ``traits`` now.

        :param refresh: whether to read anew which hosts there are
        """

    def any_host(self, required: Iterable[str], forbidden: Iterable[str]) -> bool:
        """Return whether any host has all required traits and no forbidden one, now."""


class HostTraitsFact:
    """The deployment fact ``host_traits``: read for the traits that requests required since it was read last.

    A request never waits for a refresh. Only the first one that requires a trait waits, for 5 seconds at most.

    :param interval: seconds between two readings, at least; the pause is also 20 times as long as the reading took
    """

    def __init__(self, reader: Reader, interval: float, now: Callable[[], float] = time.monotonic) -> None:
        self._reader = reader
        self._now = now
        self._wanted: set[str] = set()
        self._refresh_at = float("-inf")
        self._fact = Fact(FACT, self._read, interval, unknown=HostTraits())

    @property
    def latest(self) -> HostTraits:
        """The sets as they were read last, however old."""
        known: HostTraits = self._fact.latest
        return known

    def current(self, traits: frozenset[str], context: Any = None, until: float = inf) -> HostTraits:
        """Return what is known, after a first reading of traits that were never read.

        :param until: when the request waits no longer, on the clock of :func:`time.monotonic`
        """
        # Most requests want what an earlier one wanted.
        is_new = not traits <= self._wanted and not traits <= self._wanted | self.latest.sets.keys()
        self._wanted.update(traits)
        if is_new:
            self._fact.expire()
        query = self._fact.begin(context, self._now)
        if query and is_new:
            self._fact.wait(query, until)
        return self.latest

    def any_host(self, required: Iterable[str], forbidden: Iterable[str]) -> bool:
        """Return whether any host has all required traits and no forbidden one; Placement is asked each time."""
        return self._reader.any_host(required, forbidden)

    def _read(self, _context: Any) -> HostTraits:
        known, wanted, begun = self.latest, frozenset(self._wanted), self._now()
        refresh = begun >= self._refresh_at
        traits = wanted if refresh else wanted - known.sets.keys()
        if not traits:
            return known
        found = self._reader.read(traits, known, refresh=refresh)
        if not isinstance(found, HostTraits):
            raise TypeError(f"its reader returned a {type(found).__name__}, not a HostTraits")
        # Only now: what could not be read stays wanted.
        self._wanted -= traits
        if refresh:
            self._refresh_at = self._now() + _PAUSE * (self._now() - begun)
        return found
