# SPDX-License-Identifier: Apache-2.0

"""Drained hosts of fleets with 60 to 300 servers, judged by a solver.

``docs/audit.rst`` says what an audit says of the servers of drained hosts.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

import pytest

from os_prefilter import Flavor, RequestSpec
from os_prefilter.service import Service
from os_prefilter_tools.fleet.model import (
    Fleet,
    Inventory,
    Provider,
    provider_uuid,
)
from os_prefilter_tools.fleet.server import ANTI_AFFINITY, Server, ServerGroup
from os_prefilter_tools.operators.audit.destinations import Destinations
from os_prefilter_tools.operators.audit.server_audit import (
    HostSum,
    audit_servers,
)
from tests.conftest import times
from tests.support.answer_sets import fact, has_answer

_RULES = """
% A server of a drained host may go to each other host that has its traits, and
% no other member of its group.
moves(S) :- on(S, H), drained(H).
lacks(S, H) :- moves(S), needs(S, T), host(H), not has(H, T).
closed(S, H) :- member(S, G), member(O, G), on(O, H).
may_go(S, H) :-
    moves(S), host(H), not drained(H), not lacks(S, H), not closed(S, H).

% Each goes to one host at most, and all of them fit at the same time.
{ to(S, H) : may_go(S, H) } 1 :- moves(S).
:- free(H, R, F), #sum { A, S : to(S, H), size(S, R, A) } > F.
:- host(H), member(_, G), 2 { to(S, H) : member(S, G) }.

:- #count { S : to(S, H) } < placed.
"""
_CAPACITY = {"VCPU": 64, "MEMORY_MB": 256 * 1024}
_MOST_CONFLICTS = 20_000


class Guest(NamedTuple):
    """A server."""

    host: int
    sizes: dict[str, int]
    needs: list[str]
    group: int
    """Its anti-affinity group; 0 if it has none."""


class Drain:
    """A fleet of which some hosts are drained.

    Hosts are of three generations, each with a trait more than the one before,
    and some have a license.
    """

    def __init__(self, random: Random) -> None:
        count = random.randint(15, 40)
        self._generations = [random.randrange(3) for _ in range(count)]
        self._licensed = [random.random() < 0.4 for _ in range(count)]
        self._drained = range(random.randint(1, 6))
        self._guests: list[Guest] = []
        self._free: list[dict[str, int]] = []
        usual = random.uniform(0.7, 1.0)
        groups = random.randint(0, 5)
        for host in range(count):
            share = min(1.0, random.uniform(usual - 0.2, usual + 0.2))
            self._free.append(self._fill(random, host, share, groups))

    def _fill(
        self, random: Random, host: int, share: float, groups: int
    ) -> dict[str, int]:
        """Put servers on a host; return what is left."""
        left = dict(_CAPACITY)
        least = (1 - share) * left["VCPU"]
        while True:
            vcpus = random.choice((2, 4, 8, 8, 16))
            memory_mb = vcpus * random.choice((2, 4, 4, 6)) * 1024
            if left["VCPU"] - vcpus < least or left["MEMORY_MB"] < memory_mb:
                return left
            left["VCPU"] -= vcpus
            left["MEMORY_MB"] -= memory_mb
            generation = random.randint(0, self._generations[host])
            needs = _traits_of(generation)
            if self._licensed[host] and random.random() < 0.4:
                needs.append("CUSTOM_LICENSED")
            group = 0
            if random.random() < 0.2:
                group = random.randint(0, groups)
            if (host, group) in {
                (each.host, each.group) for each in self._guests
            }:
                group = 0
            sizes = {"VCPU": vcpus, "MEMORY_MB": memory_mb}
            self._guests.append(Guest(host, sizes, needs, group))

    def audit(self) -> HostSum | None:
        """Return what the audit says of the servers of the drained hosts."""
        groups: dict[int, ServerGroup] = {}
        servers = []
        for number, guest in enumerate(self._guests):
            group = None
            if guest.group:
                uuid = f"group-{guest.group}"
                group = groups.setdefault(
                    guest.group, ServerGroup(uuid, ANTI_AFFINITY)
                )
            flavor = Flavor(
                guest.sizes["VCPU"],
                guest.sizes["MEMORY_MB"],
                extra_specs={
                    f"trait:{each}": "required" for each in guest.needs
                },
            )
            servers.append(
                Server(
                    RequestSpec(flavor),
                    host=f"host-{guest.host}",
                    uuid=f"server-{number}",
                    group=group,
                )
            )
        drained = [f"host-{number}" for number in self._drained]
        fleet = Fleet(tuple(self._hosts()))
        destinations = Destinations(fleet, Service())
        return audit_servers(servers, destinations, drained).if_drained

    def _hosts(self) -> Iterator[Provider]:
        for number, free in enumerate(self._free):
            yield Provider(
                f"host-{number}",
                provider_uuid(f"host-{number}"),
                {
                    name: Inventory(total, used=total - free[name])
                    for name, total in _CAPACITY.items()
                },
                frozenset(self._traits_on(number)),
            )

    def _traits_on(self, host: int) -> list[str]:
        traits = _traits_of(self._generations[host])
        if self._licensed[host]:
            traits.append("CUSTOM_LICENSED")
        return traits

    def can_move(self, servers: int) -> bool | None:
        """Return whether so many servers can move at the same time.

        None if the search ends early.
        """
        program = f"#const placed = {servers}.\n{_RULES}"
        return has_answer(program + "".join(self._facts()), _MOST_CONFLICTS)

    def _facts(self) -> Iterator[str]:
        for host, free in enumerate(self._free):
            yield fact("host", host)
            for name, amount in free.items():
                yield fact("free", host, name, amount)
            for trait in self._traits_on(host):
                yield fact("has", host, trait)
        for host in self._drained:
            yield fact("drained", host)
        for number, guest in enumerate(self._guests):
            yield fact("on", number, guest.host)
            for name, amount in guest.sizes.items():
                yield fact("size", number, name, amount)
            for trait in guest.needs:
                yield fact("needs", number, trait)
            if guest.group:
                yield fact("member", number, guest.group)


def _traits_of(generation: int) -> list[str]:
    return [f"CUSTOM_GENERATION_{each}" for each in range(1, generation + 1)]


@pytest.mark.parametrize("seed", range(times(10)))
def test_servers_of_drained_hosts_can_move_if_the_audit_says_so(
    seed: int,
) -> None:
    """At least so many: one more can at most, where the audit says not all."""
    drain = Drain(Random(seed))  # noqa: S311
    found = drain.audit()
    assert found
    assert found.servers >= found.placed
    assert drain.can_move(found.placed) is not False
    if drain.can_move(found.servers):
        assert found.placed >= found.servers - 1
