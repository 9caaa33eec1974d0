# SPDX-License-Identifier: Apache-2.0

"""The result of a filter: requirements, preferences and notes.

Each with its source.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple
from uuid import UUID

from os_prefilter.common.dataclasses import dataclass
from os_prefilter.common.placement_values import is_uuid
from os_prefilter.common.quoting import escape_line, quote
from os_prefilter.common.trait_names import Trait, trait_named
from os_prefilter.request.spec import RequestGroup

ROOT: Final = "root"
"""Scope: the root provider of a tree, the compute node.

``root_required``, Placement 1.35.
"""

UNSUFFIXED: Final = "unsuffixed"
"""Scope: the request group without a suffix.

Each provider that contributes a resource to it counts.
"""


class Source(NamedTuple):
    """The part of a request that a requirement comes from.

    ``image property hw_vif_model=e1000e``.
    """

    place: str
    """Where it is set: ``image property hw_vif_model``.

    Or ``flavor extra spec trait:HW_CPU_X86_AVX``, ``request group port_1``.
    """
    value: str = ""
    """Empty for a place that has no single value, such as a request group."""
    default: str = ""
    """The property and the default that it implies: ``tpm_model tpm-crb``."""
    others: tuple[Source, ...] = ()
    """Other parts of the request that say the same."""
    name: str = ""
    """The property or extra spec as its author wrote it.

    ``hw_vif_model``; empty for what has no name and value.
    """

    @property
    def properties(self) -> tuple[str, ...]:
        """What its author wrote: ``hw_vif_model=e1000e``.

        With that of ``others``.
        """
        own = (f"{self.name}={self.value}",) if self.name else ()
        return own + tuple(
            each for other in self.others for each in other.properties
        )

    # Requests of a cloud ask for few different things.
    @lru_cache(maxsize=1024)  # noqa: B019 - a source is a few texts, which equal ones share
    def requirement(
        self,
        trait: Trait,
        required: bool,  # noqa: FBT001
        scope: str,
    ) -> Requirement:
        """Return a requirement that comes from here."""
        return Requirement(
            trait, required, scope, str(self), properties=self.properties
        )

    def __str__(self) -> str:
        text = f"{self.place}={self.value}" if self.value else self.place
        if self.others:
            text = " and ".join((text, *map(str, self.others)))
        return (
            f"{text} with the default {self.default}" if self.default else text
        )


class Requirement(NamedTuple):
    """One trait that a host must have, or must not have, and why."""

    trait: Trait
    required: bool
    """True: required. False: forbidden."""
    scope: str
    """:data:`ROOT`, :data:`UNSUFFIXED`, or the suffix of a request group."""
    source: str
    """The part of the request that it comes from.

    ``image property hw_vif_model=e1000e``.
    """
    filter: str = ""
    """The configured name of the filter.

    ``request`` for a trait that flavor, image or groups require themselves.
    """
    properties: tuple[str, ...] = ()
    """The image properties and extra specs that it comes from.

    ``hw_vif_model=e1000e``; none if each request has it.
    """
    public: str = ""
    """The source as a user may read it; empty if that is :attr:`source`.

    The user whose request is rejected.
    """

    def __str__(self) -> str:
        sign = "" if self.required else "!"
        return escape_line(
            f"{sign}{self.trait} on {self.scope} by {self.filter}"
            f" ({self.source})"
        )


class AggregateRequirement(NamedTuple):
    """Aggregates that a host must be in one of, or in none, and why.

    ``member_of`` of the unsuffixed group.
    """

    aggregates: tuple[str, ...]
    """UUIDs, sorted, each once."""
    required: bool
    """True: the host is in one of them. False: in none."""
    source: str
    """Its reason: ``availability zone 'north'``.

    The author of a rejected request reads it.
    """
    filter: str = ""
    """The configured name of the filter."""
    names: str = ""
    """Text for the operator alone: ``aggregates rack-1, rack-2``.

    The names of the aggregates above all.
    """
    scope: str = UNSUFFIXED
    """Always the unsuffixed group: Nova writes it there as well."""

    @property
    def member_of(self) -> str:
        """The parameter of the query: ``in:UUID,UUID`` or ``!in:UUID``."""
        return f"{'' if self.required else '!'}in:{','.join(self.aggregates)}"

    @property
    def because(self) -> str:
        """The source, with what the operator alone reads."""
        return f"{self.source}: {self.names}" if self.names else self.source

    def __str__(self) -> str:
        return escape_line(
            f"member_of={self.member_of} by {self.filter} ({self.because})"
        )


class Preference(NamedTuple):
    """One trait that hosts preferably have.

    Hosts without it remain candidates and are weighed lower.

    It is about the root provider of a host, and is never part of a query.
    """

    trait: Trait
    source: str
    """The part of the request, or the rule, that it comes from."""
    filter: str = ""
    """The configured name of the filter."""

    def __str__(self) -> str:
        return escape_line(
            f"{self.trait} preferred by {self.filter} ({self.source})"
        )


class Note(NamedTuple):
    """A part of the request that did not become a requirement, and why."""

    source: str
    reason: str
    warn: bool = False
    """True if the operator should see it in the log: an unknown value."""
    waits: bool = False
    """True if it will be required once every compute node has reported."""

    def __str__(self) -> str:
        return escape_line(f"{self.source}: {self.reason}")


@dataclass(frozen=True, slots=True)
class Requirements:
    """The result of one filter for one request."""

    requirements: tuple[Requirement, ...] = ()
    notes: tuple[Note, ...] = ()
    own_groups: tuple[RequestGroup, ...] = ()
    """New groups for resource classes of the unsuffixed group.

    The flavor and the request must not have their suffixes yet; the
    requirements may name them as scopes.
    """
    preferences: tuple[Preference, ...] = ()
    aggregates: tuple[AggregateRequirement, ...] = ()

    def __add__(self, other: Requirements) -> Requirements:
        return Requirements(
            self.requirements + other.requirements,
            self.notes + other.notes,
            self.own_groups + other.own_groups,
            self.preferences + other.preferences,
            self.aggregates + other.aggregates,
        )


NOTHING: Final = Requirements()
"""No requirement."""


def require(
    trait: str, source: str, scope: str = ROOT, properties: Iterable[str] = ()
) -> Requirements:
    """Return a requirement for a trait.

    :param properties: the image properties and extra specs that it comes from,
        ``hw_vif_model=e1000e``: if no host has the trait, the author of the
        request reads them
    :raises ValueError: if it is not the name of a trait.
    """
    return Requirements(
        (
            Requirement(
                trait_named(trait),
                True,
                scope,
                source,
                properties=tuple(properties),
            ),
        )
    )


def forbid(
    trait: str, source: str, scope: str = ROOT, properties: Iterable[str] = ()
) -> Requirements:
    """Return a requirement that forbids a trait.

    :param properties: as for :func:`require`
    :raises ValueError: if it is not the name of a trait.
    """
    return Requirements(
        (
            Requirement(
                trait_named(trait),
                False,
                scope,
                source,
                properties=tuple(properties),
            ),
        )
    )


def require_aggregates(
    aggregates: Iterable[str], source: str, names: str = ""
) -> Requirements:
    """Require that a host is in one of the aggregates.

    Each such requirement must be met.

    :param aggregates: UUIDs, in any spelling
    :param names: of the aggregates, for the operator
    :raises ValueError: if there is none, or one is not a UUID.
    """
    return Requirements(
        aggregates=(
            AggregateRequirement(
                _uuids(aggregates), True, source, names=names
            ),
        )
    )


def forbid_aggregates(
    aggregates: Iterable[str], source: str, names: str = ""
) -> Requirements:
    """Return the requirement that a host is in none of the aggregates.

    :param aggregates: UUIDs, in any spelling
    :param names: of the aggregates, for the operator
    :raises ValueError: if there is none, or one is not a UUID.
    """
    return Requirements(
        aggregates=(
            AggregateRequirement(
                _uuids(aggregates), False, source, names=names
            ),
        )
    )


def _uuids(aggregates: Iterable[str]) -> tuple[str, ...]:
    found = set(aggregates)
    if not found or not all(map(is_uuid, found)):
        raise ValueError(
            "these are not UUIDs of aggregates:"
            f" {quote(sorted(map(str, found)))}"
        )
    # Placement takes other spellings, too, and compares them literally: one in
    # capitals would forbid nothing.
    return tuple(sorted({str(UUID(each)) for each in found}))


def prefer(trait: str, source: str) -> Requirements:
    """Return a preference for hosts that have a trait; it excludes no host.

    :raises ValueError: if it is not the name of a trait.
    """
    return Requirements(preferences=(Preference(trait_named(trait), source),))
