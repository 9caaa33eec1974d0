# SPDX-License-Identifier: Apache-2.0

"""Traits of a few hosts, and the hosts with a preferred trait.

A host is the root provider of a compute node. No fleet is read as a whole:
most requests can be served by one of a few hosts, and of the others Placement
is asked.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple, Protocol
from zlib import crc32

import os_traits

from os_prefilter.common.host_sets import set_of
from os_prefilter.common.placement_values import is_hyphenated_uuid
from os_prefilter.common.trait_names import is_trait_name
from os_prefilter.service.deployment_facts import Fact
from os_prefilter.service.shared import MakeStore, SharedFact, Store

MOST_HOSTS = 256
"""Maximum number of hosts in a sample.

It needs one for each set of traits that requests ask for.
"""

# The traits that requests prefer are the operator's, and few; two in one store
# are read anew by turns.
_SLOTS = 16


@dataclass(frozen=True, slots=True)
class Traits:
    """Required and forbidden traits of the root provider."""

    required: frozenset[str] = frozenset()
    forbidden: frozenset[str] = frozenset()

    def __or__(self, other: "Traits") -> "Traits":
        return Traits(
            self.required | other.required, self.forbidden | other.forbidden
        )

    def met_by(self, traits: frozenset[str]) -> bool:
        """Return whether a host with these traits meets the demand."""
        return self.required <= traits and self.forbidden.isdisjoint(traits)


@dataclass(frozen=True, eq=False)
class HostSample:
    """Traits of a few hosts, as they were read. Never changed."""

    traits: Mapping[str, frozenset[str]]
    """UUID of the root provider of a host -> its traits."""

    def serves(self, demand: Traits) -> bool:
        """Return whether any of the hosts meets a demand."""
        return any(demand.met_by(traits) for traits in self.traits.values())

    def hosts(self, demand: Traits) -> int:
        """Return the places in the sample of the hosts that meet it."""
        return set_of(
            place
            for place, traits in enumerate(self.traits.values())
            if demand.met_by(traits)
        )

    def with_hosts(self, found: Mapping[str, frozenset[str]]) -> "HostSample":
        """Return the sample with these hosts; the oldest ones go."""
        others = (item for item in self.traits.items() if item[0] not in found)
        return HostSample(dict([*others, *found.items()][-MOST_HOSTS:]))

    def __repr__(self) -> str:
        return f"<traits of {len(self.traits)} hosts>"

    def __eq__(self, other: object) -> bool:
        """Return whether both have hosts, or neither has.

        The log has a line when that changes, not for each host.
        """
        return isinstance(other, HostSample) and bool(self.traits) == bool(
            other.traits
        )

    __hash__ = None  # type: ignore[assignment]


class HostsOfTrait(NamedTuple):
    """The hosts that have a trait."""

    listed: frozenset[str]
    """UUIDs of the root providers of the hosts that have it, or lack it."""
    lacking: bool

    def has(self, host: str) -> bool:
        """Return whether a host has the trait.

        :param host: the UUID of its root provider, which is that of the
            compute node
        """
        return (host in self.listed) is not self.lacking

    def __repr__(self) -> str:
        return (
            f"<{'all hosts but' if self.lacking else 'hosts:'}"
            f" {len(self.listed)}>"
        )


class PlacementReader(Protocol):
    """Reads from Placement."""

    def some_hosts(self, context: Any) -> Iterable[str]:
        """Return the UUIDs of the root providers of any few hosts, or none."""

    def traits(self, host: str) -> frozenset[str] | None:
        """Return the traits of a host; None if it is gone."""

    def hosts(
        self, required: Iterable[str], forbidden: Iterable[str]
    ) -> Iterable[str] | None:
        """Return the root providers with all required and no forbidden trait.

        :return: None if Placement does not know one of the traits
        """


def _read_traits(
    reader: PlacementReader, hosts: Iterable[str]
) -> dict[str, frozenset[str]]:
    """Return host -> traits, without hosts that are gone."""
    found = {}
    for host in hosts:
        traits = reader.traits(host)
        if traits is not None:
            found[host] = traits
    return found


class _SampleReader:
    """Reads the traits of the hosts of a sample again."""

    scope = ""

    def __init__(
        self, reader: PlacementReader, latest: Callable[[], HostSample]
    ) -> None:
        self._reader = reader
        self._latest = latest

    def __call__(self, context: Any) -> HostSample:
        hosts: Iterable[str] = self._latest().traits
        if not hosts:
            hosts = dict.fromkeys(self._reader.some_hosts(context))
        return HostSample(_read_traits(self._reader, hosts))

    @staticmethod
    def to_json(value: HostSample) -> Any:
        return {host: sorted(traits) for host, traits in value.traits.items()}

    @staticmethod
    def from_json(document: Any) -> HostSample:
        if not all(
            is_hyphenated_uuid(host) and all(map(is_trait_name, traits))
            for host, traits in document.items()
        ):
            raise TypeError("it is no sample of hosts")
        return HostSample(
            {host: frozenset(traits) for host, traits in document.items()}
        )


class _TraitReader:
    """Reads which hosts have a trait.

    It queries those that have it or those that lack it, whichever are fewer.
    """

    scope = ""

    def __init__(
        self,
        reader: PlacementReader,
        trait: str,
        latest: Callable[[], HostSample],
    ) -> None:
        self._reader = reader
        self._trait = trait
        self._latest = latest

    def __call__(self, _context: Any) -> HostsOfTrait:
        sample = self._latest().traits.values()
        having = sum(self._trait in traits for traits in sample)
        lacking = 2 * having > len(sample)
        required = [os_traits.COMPUTE_NODE]
        forbidden: list[str] = []
        (forbidden if lacking else required).append(self._trait)
        hosts = self._reader.hosts(required, forbidden)
        if hosts is None:
            # A trait that Placement does not know is on no host.
            return HostsOfTrait(frozenset(), lacking=False)
        return HostsOfTrait(frozenset(hosts), lacking)

    def to_json(self, value: HostsOfTrait) -> Any:
        return [self._trait, value.lacking, sorted(value.listed)]

    def from_json(self, document: Any) -> HostsOfTrait:
        trait, lacking, listed = document
        if (
            trait != self._trait
            or type(lacking) is not bool
            or not all(map(is_hyphenated_uuid, listed))
        ):
            raise TypeError("it is no list of hosts")
        return HostsOfTrait(frozenset(listed), lacking)


class HostTraits:
    """Traits of a few hosts, and hosts with preferred traits.

    Each is a fact that processes share.

    :param interval: seconds between two readings, at least
    :param stores: where its processes share what they read, the nearest first
    """

    def __init__(
        self,
        reader: PlacementReader,
        interval: float,
        stores: tuple[MakeStore, ...] = (),
    ) -> None:
        self.reader = reader
        self._interval = interval
        sample = _SampleReader(reader, self.as_others_know_it)
        self._shared = SharedFact(
            "host_sample",
            sample,
            interval,
            [make("host_sample", "") for make in stores],
        )
        self._fact = Fact(
            "host_sample", self._shared, interval, unknown=HostSample({})
        )
        # Made now, so that the workers that are forked later inherit them.
        self._slots: list[list[Store]] = []
        for slot in range(_SLOTS):
            name = f"preferred_{slot}"
            self._slots.append([make(name, "") for make in stores])
        self._preferred: dict[str, Fact] = {}

    @property
    def sample(self) -> HostSample:
        """The sample of the last reading."""
        sample: HostSample = self._fact.latest
        return sample

    def refresh(self, context: Any = None, until: float = inf) -> HostSample:
        """Return the sample, after a new reading if one is due.

        A request waits only for the first reading.

        :param until: when the request waits no longer, on the clock of
            :func:`time.monotonic`
        """
        query = self._fact.begin(context)
        if query and not self.sample.traits:
            self._fact.wait(query, until)
        return self.sample

    def as_others_know_it(self) -> HostSample:
        """Return the sample, with hosts that other processes have added."""
        known: HostSample | None = self._shared.nearest()
        if known and not known.traits.keys() <= self.sample.traits.keys():
            self._fact.amend(self.sample.with_hosts(known.traits))
        return self.sample

    def add(self, hosts: Iterable[str]) -> bool:
        """Read hosts into the sample, and share it.

        :return: whether any of the hosts exists
        """
        found = _read_traits(self.reader, hosts)
        if found:
            self._fact.amend(self.sample.with_hosts(found))
            self._shared.share(self.sample)
        return bool(found)

    def preferred(
        self, traits: Iterable[str], context: Any, until: float
    ) -> dict[str, HostsOfTrait]:
        """Return trait -> hosts that have it, as far as it is known.

        A request waits only for the first reading.
        """
        self.refresh(context, until)
        facts = {
            trait: self._preferred.get(trait) or self._hosts_with(trait)
            for trait in traits
        }
        pending = [(fact, fact.begin(context)) for fact in facts.values()]
        for fact, query in pending:
            if query and fact.latest is None:
                fact.wait(query, until)
        return {
            trait: fact.latest
            for trait, fact in facts.items()
            if fact.latest is not None
        }

    def _hosts_with(self, trait: str) -> Fact:
        """Return the fact: the hosts that have a trait."""
        reader = _TraitReader(self.reader, trait, lambda: self.sample)
        name = f"hosts with {trait}"
        shared = SharedFact(
            name,
            reader,
            self._interval,
            self._slots[crc32(trait.encode()) % _SLOTS],
        )
        return self._preferred.setdefault(
            trait, Fact(name, shared, self._interval, unknown=None)
        )
