# SPDX-License-Identifier: Apache-2.0

"""Read from Placement why it has no candidate for a request."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import urlencode

from os_prefilter.adapters.placement.client import PlacementClient
from os_prefilter.common.errors import UnknownProvider, UnknownTraits

# In one query. Placement joins a table for each required trait: MariaDB joins
# 61, SQLite 64.
_MOST_TRAITS = 50
# Bytes of them: some front ends take no URL of more than 4,096.
_LONGEST_QUERY = 3_000


class ReasonReader:
    """Reads for ``Service.reason``.

    Placement sends some 800 bytes for each provider, so the queries are for
    the smaller set of hosts.

    :param client: with the microversion of the scheduler's own queries for
        candidates
    :param compute_nodes: ``(context) -> UUIDs`` of a few compute nodes of any
        sort. Without it, the first request without a candidate may cost a list
        of most hosts.
    """

    def __init__(
        self,
        client: PlacementClient,
        compute_nodes: Callable[[Any], Iterable[str]] = lambda _context: (),
    ) -> None:
        self._client = client
        self.some_hosts = compute_nodes
        self.traits_in_use = client.traits_in_use

    def count_providers(self, query: str) -> int:
        """Return how many providers ``GET /resource_providers`` finds."""
        return sum(1 for _ in self._client.each_provider(query))

    def count_candidate_hosts(self, query: str) -> int:
        """Return how many hosts are among the allocation candidates."""
        return len(self._client.candidates(query).by_host)

    def traits(self, host: str) -> frozenset[str] | None:
        """Return the traits of a host; None if it is gone.

        :raises os_prefilter.common.errors.PlacementError: if Placement fails
            or does not respond
        """
        try:
            return self._client.provider_traits(host)[1]
        except UnknownProvider:
            return None

    def hosts(self, traits: Iterable[str]) -> list[str] | None:
        """Return the root providers with these traits.

        :param traits: with ``!`` before one that they must not have
        :return: None if Placement does not know one of the traits: it refuses
            the query for candidates as well, and says which
        :raises os_prefilter.common.errors.PlacementError: if Placement fails
            or does not respond
        """
        # What few hosts have is among the required ones: those first.
        left = sorted(traits, key=lambda name: (name.startswith("!"), name))
        found: set[str] | None = None
        while left and found != set():
            number = min(_MOST_TRAITS, len(left))
            while number > 1 and len(",".join(left[:number])) > _LONGEST_QUERY:
                number -= 1
            query = urlencode({"required": ",".join(left[:number])})
            del left[:number]
            try:
                roots = {
                    each.uuid
                    for each in self._client.each_provider(query)
                    if not each.parent
                }
            except UnknownTraits:
                return None
            found = roots if found is None else found & roots
        return sorted(found or ())
