# SPDX-License-Identifier: Apache-2.0

"""Releases of this library with other rows than this one: what one of them has
written, the others read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from unittest.mock import patch

from os_prefilter.hosts import desired_traits, marker_traits
from os_prefilter.hosts.capabilities import reporter_of
from os_prefilter.hosts.desired_traits import Goal, Mode, goal_of, with_traits
from os_prefilter.hosts.marker_traits import TraitGroup
from os_prefilter.hosts.reporter import HostFacts
from os_prefilter.vocabulary import I686, table
from os_prefilter.vocabulary.model import Row
from tests.support.hosts import KVM


def _traits_of(rows: Iterable[Row]) -> set[str]:
    """Return the traits of rows, with those for guests of i686."""
    traits = {trait for row in rows for trait in row.traits}
    return {*traits, *(I686[trait] for trait in I686.keys() & traits)}


_CHANGING = _traits_of(table())


@dataclass(frozen=True, eq=False)
class Release:
    """A release of this library, and the packages that are installed beside
    it.
    """

    rows: tuple[Row, ...]

    @cached_property
    def grouping(
        self,
    ) -> tuple[tuple[TraitGroup, ...], dict[str, frozenset[str]]]:
        """How it groups traits: the groups, and the keys that stand for several
        others.
        """
        made_anew = [
            vars(function)["__wrapped__"]
            for function in (
                marker_traits.trait_groups,
                vars(marker_traits)["_keys_of_rows"],
            )
        ]
        with patch.object(marker_traits, "table", lambda: self.rows):
            return made_anew[0](KVM.templates), made_anew[1]()

    @cached_property
    def traits(self) -> frozenset[str]:
        return frozenset(
            trait for group in self.grouping[0] for trait in group.traits
        )

    @cached_property
    def own(self) -> frozenset[str]:
        """The traits of its rows, which its reporters answer for."""
        return frozenset(_traits_of(self.rows))

    @cached_property
    def keys(self) -> frozenset[str]:
        return frozenset(
            key for group in self.grouping[0] for key in group.keys
        )

    def reported_by_nova(self, facts: HostFacts) -> frozenset[str]:
        """Return the traits that it knows Nova's driver to report."""
        return reporter_of(facts).reported_by_nova(facts)

    def goal_of(
        self,
        facts: HostFacts,
        can: Mapping[str, bool],
        wanted: Iterable[str],
        mode: Mode,
    ) -> Goal:
        """Return the goal of its agent for a host with these capabilities."""
        with self.installed(can):
            return goal_of(facts, wanted, mode)

    def report(self, present: frozenset[str], goal: Goal) -> frozenset[str]:
        with self.installed():
            return with_traits(present, goal)

    @contextmanager
    def installed(
        self, can: Mapping[str, bool] | None = None
    ) -> Iterator[None]:
        """Let the code that groups and reports traits be that of this
        release.
        """
        groups, keys_of_rows = self.grouping

        def capabilities(facts: HostFacts) -> dict[str, bool]:
            configured = reporter_of(facts).configured
            kept = self.own
            if configured:
                # Traits of templates need no row.
                kept |= configured(facts).keys()
            return {
                trait: has
                for trait, has in (can or {}).items()
                if trait in kept or trait not in _CHANGING
            }

        def reporter(facts: HostFacts) -> object:
            novas_own = self.reported_by_nova(facts)
            return replace(
                reporter_of(facts), reported_by_nova=lambda _facts: novas_own
            )

        with (
            patch.object(marker_traits, "_keys_of_rows", lambda: keys_of_rows),
            patch.multiple(
                desired_traits,
                trait_groups=lambda *_: groups,
                capability_traits=capabilities,
                reporter_of=reporter,
            ),
        ):
            yield


def release_without(trait: str) -> Release:
    """Return this release without a trait: each value of it is not known."""
    rows = []
    for row in table():
        values = [
            value for value, term in row.values.items() if trait in term.traits
        ]
        rows.append(without_values(row, *values))
    return Release(tuple(rows))


def without_values(row: Row, *values: str) -> Row:
    return replace(
        row,
        values={
            value: term
            for value, term in row.values.items()
            if value not in values
        },
    )
