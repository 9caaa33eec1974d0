"""Read from Placement which hosts have which traits."""

from collections.abc import Iterable
from types import MappingProxyType
from urllib.parse import urlencode

import os_traits

from os_prefilter.adapters.placement.client import PlacementClient
from os_prefilter.common.errors import UnknownTraits
from os_prefilter.common.host_sets import set_of
from os_prefilter.service.host_traits import HostTraits


class HostTraitsReader:
    """For ``Service.from_conf(conf, host_traits=HostTraitsReader(client))``.

    Placement sends some 800 bytes for each provider, so of a trait that most hosts have, it is asked which compute
    nodes lack it. A reading takes one request for each trait that any provider has, one for the list of those, and to
    refresh, one for all compute nodes.

    :param client: of a Placement with microversion 1.22
    :param asking: the client for the question before a rejection, which a request waits for; by default the same
    """

    def __init__(self, client: PlacementClient, asking: PlacementClient | None = None) -> None:
        self._client = client
        self._asking = asking or client

    def read(self, traits: Iterable[str], known: HostTraits, *, refresh: bool) -> HostTraits:
        """Return what is known, with the hosts that have ``traits`` now.

        :param refresh: whether to read anew which hosts there are
        :raises os_prefilter.common.errors.PlacementError: if Placement fails or does not answer
        """
        numbers = dict(known.numbers)
        sets = dict(known.sets)
        compute_nodes = known.compute_nodes
        if refresh:
            nodes = _roots(self._client, os_traits.COMPUTE_NODE)
            if len(numbers) > 2 * len(nodes):
                # The numbers of hosts that are gone would never end.
                numbers, sets = {}, {}
            compute_nodes = _set_of(nodes, numbers)
        in_use = self._client.traits_in_use()
        for trait in sorted(traits):
            if trait not in in_use:
                sets[trait] = 0
            elif trait in sets and 2 * sets[trait].bit_count() < compute_nodes.bit_count():
                sets[trait] = _set_of(_roots(self._client, os_traits.COMPUTE_NODE, trait), numbers) & compute_nodes
            else:
                lacking = _set_of(_roots(self._client, os_traits.COMPUTE_NODE, f"!{trait}"), numbers)
                sets[trait] = compute_nodes & ~lacking
        return HostTraits(MappingProxyType(numbers), compute_nodes, MappingProxyType(sets))

    def any_host(self, required: Iterable[str], forbidden: Iterable[str]) -> bool:
        """Return whether any root provider has all required traits and no forbidden one, in one request.

        True if Placement lacks one of the traits: it then refuses the query for candidates, and says which.

        :raises os_prefilter.common.errors.PlacementError: if Placement fails or does not answer
        """
        try:
            traits = (*sorted(required), *(f"!{trait}" for trait in sorted(forbidden)))
            return bool(_roots(self._asking, *traits))
        except UnknownTraits:
            return True


def _roots(client: PlacementClient, *traits: str) -> list[str]:
    """Return the UUIDs of the root providers that have these traits, and lack those with an exclamation mark."""
    return [each.uuid for each in client.providers(urlencode({"required": ",".join(traits)})) if not each.parent]


def _set_of(hosts: Iterable[str], numbers: dict[str, int]) -> int:
    """Return a set of hosts; a host without a number gets the next one."""
    return set_of(numbers.setdefault(host, len(numbers)) for host in hosts)
