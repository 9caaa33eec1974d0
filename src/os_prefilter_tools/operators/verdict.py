# SPDX-License-Identifier: Apache-2.0

"""The verdict on shadow filters, from what became of servers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from os_prefilter.common.quoting import join_first_names
from os_prefilter.hosts.marker_traits import (
    REPORTED,
    groups_by_trait,
    keys_in,
)
from os_prefilter.request.requirements import ROOT, Requirement
from os_prefilter.vocabulary.options import Options
from os_prefilter_tools.fleet.matching import traits_of
from os_prefilter_tools.fleet.model import Fleet, Provider
from os_prefilter_tools.operators.boots import (
    DEFERRED,
    FAILED,
    REJECTED,
    BootKey,
    History,
    Outcome,
    Part,
)

NO: Final = "do not"
REPORT: Final = "report first"
UNKNOWN: Final = "no verdict"
ENABLE: Final = "enable it"

_MOST_NAMES = 3


class Place(NamedTuple):
    """A host, and one requirement that it does not meet."""

    host: str
    """Empty for an enabled filter."""
    trait: str
    """``!TRAIT`` for a forbidden one; or ``rejected``."""
    source: str
    """The part of the request that it comes from."""
    is_reported: bool = True
    """False if the host has not reported whether it has the trait."""


Build = tuple[bool, str, str]
"""Whether a server failed at a place, its fault and its UUID."""


NUMBERS: Final = (
    "Boots",
    "Failed",
    "Changed",
    "Avoided",
    "Not needed",
    "No host",
    "Not known",
)
"""What is counted for each filter; docs/monitor.rst describes them."""


@dataclass
class FilterResult:
    """What a shadow filter would have changed, or an enabled one left."""

    filter: str
    is_shadow: bool
    numbers: Counter[str] = field(default_factory=Counter)
    """How many boots there are of each of :data:`NUMBERS`."""
    error: str = ""
    """The first error of the filter."""
    waits: str = ""
    """What it waits for, where it was deferred."""
    places: dict[Place, list[Build]] = field(default_factory=dict)

    def judge(self) -> tuple[str, str]:
        """Return the verdict on a shadow filter, and the reason."""
        if self.error:
            return NO, f"it failed: {self.error}"
        used = [
            place
            for place, builds in self.places.items()
            if not all(has_failed for has_failed, *_ in builds)
        ]
        wrong = [place for place in used if place.is_reported]
        numbers = self.numbers
        share = f"{numbers['Not needed']} of {numbers['Boots']} servers run"
        if any(place.trait == REJECTED for place in wrong):
            return NO, f"{share} although it would have rejected them"
        if wrong:
            reason = (
                f"{share} on hosts that report otherwise ({_hosts_of(wrong)}):"
                " a wrong report or rule, or guests without what they require"
            )
            return NO, reason
        to_report = ""
        if used:
            hosts = _hosts_of(used)
            to_report = f"{share} on hosts without a report ({hosts})"
        elif self.waits and not numbers["Changed"]:
            to_report = f"it is deferred: {self.waits}"
        if to_report:
            return REPORT, to_report
        if 2 * numbers["Not known"] > numbers["Changed"]:
            reason = (
                f"not known of {numbers['Not known']} of {numbers['Changed']}"
                " boots that it would have changed"
            )
            return UNKNOWN, reason
        reason = (
            f"it would have avoided {numbers['Avoided']} of"
            f" {numbers['Failed']} failures, and excluded no host that a"
            " server runs on"
        )
        return ENABLE, reason

    def add(
        self,
        key: BootKey,
        part: Part,
        outcome: Outcome | None,
        hosts: HostTraits,
    ) -> None:
        """Add what the filter required for a boot."""
        found = {"Boots"}
        if part.result == DEFERRED:
            self.waits = part.reason
        if outcome and outcome.has_failed:
            found.add("Failed")
        if part.changes:
            found.add("Changed")
        # Where it changes nothing, each candidate had what it requires then.
        if part.changes or not part.is_shadow:
            found |= self._compare(key, part, outcome, hosts)
        self.numbers.update(found)

    def _compare(
        self,
        key: BootKey,
        part: Part,
        outcome: Outcome | None,
        hosts: HostTraits,
    ) -> set[str]:
        if outcome is None:
            return {"Not known"}
        found = set()
        for host, has_failed in outcome.attempts:
            places = hosts.find_unmet(host, part)
            if places is None:
                found.add("Not known")
                continue
            for place in places:
                build = has_failed, outcome.fault, key[0]
                self.places.setdefault(place, []).append(build)
            if places and has_failed:
                found.add("Avoided")
            elif places:
                found.add("Not needed")
                if part.result == REJECTED or part.lacking >= part.candidates:
                    found.add("No host")
        return found


def _hosts_of(places: Iterable[Place]) -> str:
    names = dict.fromkeys(place.host for place in places)
    return join_first_names(list(names), _MOST_NAMES)


def _meets(host: Provider, item: Requirement) -> bool:
    having = host.traits
    # Any provider of a host may have what a request group requires. What it
    # forbids excludes one provider, of which the root gives the server its
    # memory.
    if item.required and item.scope != ROOT:
        having = traits_of(host.walk())
    return (item.trait in having) == item.required


class HostTraits:
    """The requirements that hosts of a fleet do not meet, by their traits."""

    def __init__(self, fleet: Fleet) -> None:
        self._hosts = {host.name: host for host in fleet.instance_hosts}
        self._groups = groups_by_trait(Options().templates)

    def find_unmet(self, name: str, part: Part) -> set[Place] | None:
        """Return what a host does not meet; None if that is not known.

        All requirements of an enabled filter, whatever the host.
        """
        if part.result == REJECTED:
            return {Place(name, REJECTED, part.reason)}
        host = self._hosts.get(name)
        found = set()
        # A trait may be required in two scopes.
        for item in part.requirements:
            trait = item.trait if item.required else f"!{item.trait}"
            if not part.is_shadow:
                found.add(Place("", trait, item.source))
            elif host is None:
                return None
            elif not _meets(host, item):
                is_reported = self._has_reported(item.trait, host.traits)
                found.add(Place(name, trait, item.source, is_reported))
        return found

    def _has_reported(self, trait: str, traits: frozenset[str]) -> bool:
        group = self._groups.get(trait)
        # Operators themselves set a trait of no group.
        return (
            group is None
            or not group.implied_by.isdisjoint(traits)
            or not group.keys.isdisjoint(keys_in(REPORTED, traits))
        )


def judge_filters(
    history: History,
    outcomes: Mapping[BootKey, Outcome | None],
    hosts: HostTraits,
) -> list[FilterResult]:
    """Return the result of each filter, shadow filters first.

    Of other boots than those with an outcome, only errors count.
    """
    found: dict[tuple[bool, str], FilterResult] = {}
    for key, parts in history.boots.items():
        for name, part in parts.items():
            result = found.setdefault(
                name, FilterResult(part.filter, part.is_shadow)
            )
            if part.result == FAILED:
                result.error = result.error or part.reason
            elif key in outcomes:
                result.add(key, part, outcomes[key], hosts)
    return [found[name] for name in sorted(found)]
