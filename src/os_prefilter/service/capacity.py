# SPDX-License-Identifier: Apache-2.0

"""Why no host is left for a request whose traits hosts have: resources.

The words for a server's owner name no host, no project and no server; they
have numbers only if the operator wants that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from types import MappingProxyType
from typing import Any, Protocol
from urllib.parse import parse_qsl, urlencode

import os_traits

from os_prefilter.common.errors import HostsAt, NoHostLeft

CAPACITY, TRAITS = "room", "traits"

# Each host once, for numbers.
_MOST_HOSTS = 1_000
_WORDS = MappingProxyType(
    {
        "MEMORY_MB": "memory",
        "VCPU": "CPUs",
        "PCPU": "dedicated CPUs",
        "DISK_GB": "disk",
    }
)
_ENABLED = f"!{os_traits.COMPUTE_STATUS_DISABLED}"
_MOST_CLASSES = 6
# Of the unsuffixed group: each takes a request; the others are left out.
_MOST_TRAITS = 10
_MOST_REMEMBERED = 1_000
# A worker asks Placement at most a twentieth of its time.
_PAUSE = 20


def not_known(reason: str, hosts: Sequence[HostsAt] = ()) -> NoHostLeft:
    """Return that it is not certain why Placement has no candidate.

    That is recorded, and no user reads it.
    """
    return NoHostLeft(reason, CAPACITY, (), hosts, is_public=False)


class PlacementReader(Protocol):
    """Reads from Placement why it has no candidate.

    Its methods may raise any error; then the reason is not known.
    """

    def some_hosts(self, context: Any) -> Iterable[str]:
        """Return the UUIDs of the root providers of any few hosts, or none."""

    def traits(self, host: str) -> frozenset[str] | None:
        """Return the traits of a host; None if it is gone."""

    def hosts(self, traits: Iterable[str], /) -> Sequence[str] | None:
        """Return the root providers with these traits.

        :param traits: with ``!`` before one that they must not have
        :return: None if Placement does not know one of the traits
        """

    def traits_in_use(self) -> frozenset[str]:
        """Return the traits that any provider has."""

    def count_providers(self, query: str) -> int:
        """Return how many providers ``GET /resource_providers`` finds."""

    def count_candidate_hosts(self, query: str) -> int:
        """Return how many hosts are among the allocation candidates."""


class CapacityCheck:
    """Finds why Placement has no candidate, where its responses are certain.

    Each resource class of the request is asked for alone, and then all
    together: Placement knows ``max_unit``, shared storage and reserved
    amounts, which no summary of providers shows. Of the rest of the query,
    only what the host itself must meet is kept. A trait of the unsuffixed
    group may be one of a device or a storage. Where resources are shared, a
    host in the zone may get them from a provider that is not.

    :param records: whether numbers of hosts are recorded
    :param counts: whether the reason has numbers (``no_host_reason = counts``)
    """

    def __init__(
        self, placement: PlacementReader, *, records: bool, counts: bool
    ) -> None:
        self._placement = placement
        self._numbered = records or counts
        self._counts = counts
        self._known: dict[tuple[object, object], tuple[Any, float]] = {}

    def find_short_resource(self, query: str) -> NoHostLeft:
        """Return why a query had no candidate, or that this is not known.

        :param query: as it was sent to Placement, urlencoded
        :raises os_prefilter.common.errors.PlacementError: if Placement fails
            or does not respond
        """
        parts = parse_qsl(query)
        wanted = _values_by_name(parts)
        in_use = self.ask(self._placement.traits_in_use)
        for name, values in wanted.items():
            if not name.startswith(("required", "root_required")):
                continue
            for trait in values:
                if not trait.startswith("!") and trait not in in_use:
                    reason = f"No host has the trait {trait}"
                    return NoHostLeft(reason, TRAITS, ())
        shares = os_traits.MISC_SHARES_VIA_AGGREGATE in in_use
        on_root = wanted.get("root_required", [])
        named = [
            trait
            for trait in wanted.get("required", ())
            if not trait.startswith("!") and trait not in on_root
        ]
        # No provider has it but the root providers of hosts.
        host_traits = [
            each
            for each in named[:_MOST_TRAITS]
            if not self._number([each, f"!{os_traits.COMPUTE_NODE}"])
        ]
        is_whole = named == host_traits
        traits = [os_traits.COMPUTE_NODE, *on_root, *host_traits]
        places = [
            part for part in parts if part[0] in ("member_of", "in_tree")
        ]
        # A provider that shares may be elsewhere.
        kept_places = [] if shares else places
        kept = [("root_required", ",".join(traits)), *kept_places]
        # What a host shares is no host's number.
        numbered = self._numbered and not shares and is_whole
        amounts = sorted(wanted.get("resources", ()), key=_place_of)
        capable = self._capable_hosts(amounts[:_MOST_CLASSES], kept)
        short = [name for name, number in capable.items() if not number]
        hosts = 0
        if numbered or len(short) == len(capable):
            hosts = self._number(traits, places)
            if not hosts:
                return self._no_host(traits, places, is_whole=is_whole)
        if not capable:
            return not_known(
                "No host has what the request asks for beside the resources of"
                " its flavor"
            )
        steps = [
            HostsAt(name, hosts, number)
            for name, number in capable.items()
            # Placement returns no more candidates.
            if numbered and number < _MOST_HOSTS
        ]
        together = [("resources", ",".join(amounts)), *kept, ("limit", "1")]
        if not short and self._count_candidate_hosts(together):
            reason = (
                "Hosts have room for the resources of the flavor; the rest of"
                " the request is met by none of them"
            )
            return not_known(reason, steps)
        names = short or [each.partition(":")[0] for each in amounts]
        *words, last = [_WORDS.get(name, name) for name in names]
        text = f"{', '.join(words)} and {last}" if words else last
        if words and not short:
            text += " together"
        numbers = (
            f"{_WORDS.get(each.by, each.by)}: {each.after} of {each.before}"
            " hosts"
            for each in steps
        )
        reason = f"No available host has room for this flavor's {text}"
        return NoHostLeft(
            reason,
            CAPACITY,
            short or capable,
            steps,
            numbers if self._counts else (),
        )

    def _capable_hosts(
        self, amounts: Iterable[str], kept: Sequence[tuple[str, str]]
    ) -> dict[str, int]:
        """Return resource class -> hosts that have the amount, if alone."""
        limit = ("limit", str(_MOST_HOSTS if self._numbered else 1))
        capable = {}
        for amount in amounts:
            name, _, _ = amount.partition(":")
            query = [("resources", amount), *kept, limit]
            capable[name] = self._count_candidate_hosts(query)
        return capable

    def _number(
        self, traits: Iterable[str], places: Iterable[tuple[str, str]] = ()
    ) -> int:
        """Return how many providers have these traits in these places."""
        query = [*places, ("required", ",".join(traits))]
        number: int = self.ask(
            self._placement.count_providers, urlencode(query)
        )
        return number

    def _count_candidate_hosts(self, query: Sequence[tuple[str, str]]) -> int:
        number: int = self.ask(
            self._placement.count_candidate_hosts, urlencode(query)
        )
        return number

    def _no_host(
        self,
        traits: Sequence[str],
        places: Sequence[tuple[str, str]],
        *,
        is_whole: bool,
    ) -> NoHostLeft:
        """Return why no host has these traits in these places.

        :param is_whole: whether these are all traits that are required
        """
        anyway = [trait for trait in traits if trait != _ENABLED]
        if is_whole and _ENABLED in traits and self._number(anyway, places):
            reason = (
                "The compute service of each host that this request allows is"
                " disabled"
            )
            return NoHostLeft(reason, TRAITS, (_ENABLED[1:],))
        return not_known("No host has the traits where the request wants it")

    def ask(self, question: Callable[..., Any], *arguments: object) -> Any:
        """Return Placement's response, also if it is known from before.

        It is remembered for as long as the process then asks Placement a
        twentieth of its time.
        """
        key = (question, arguments)
        found, due = self._known.get(key, (None, 0.0))
        begun = time.monotonic()
        if begun >= due:
            found = question(*arguments)
            if len(self._known) >= _MOST_REMEMBERED:
                self._known = {}
            now = time.monotonic()
            self._known[key] = found, now + _PAUSE * (now - begun)
        return found


def _values_by_name(parts: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the values of each parameter of a query.

    Of ``in:A,B`` it is none, as one of them is enough.
    """
    found: dict[str, list[str]] = {}
    for name, value in parts:
        if not value.startswith("in:"):
            found.setdefault(name, []).extend(value.split(","))
    return found


def _place_of(amount: str) -> int:
    """Return where users read an amount, such as ``VCPU:2``."""
    name, _, _ = amount.partition(":")
    # Those without a word stay in their order, behind.
    return [*_WORDS, name].index(name)
