# SPDX-License-Identifier: Apache-2.0

"""Upgrades of fleets host by host, and the rules of waves as a program.

``docs/adr/0022-waves-of-upgrades.rst`` has the rules.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from random import Random

from os_prefilter import Flavor, Image, RequestSpec
from os_prefilter.common.host_sets import numbers_in, set_of
from os_prefilter.service import Service
from os_prefilter_tools.fleet.model import (
    Fleet,
    Inventory,
    Provider,
    provider_uuid,
)
from os_prefilter_tools.fleet.server import Server
from os_prefilter_tools.operators.audit.destinations import Destinations
from os_prefilter_tools.operators.audit.server_audit import (
    Resident,
    audit_servers,
)
from os_prefilter_tools.operators.audit.waves import Waves, find_waves
from tests.support.answer_sets import fact, has_answer, least_cost

_RULES = """
version(old; new).
lacks(G, H, V) :- needs(G, X), host(H), version(V), not has(H, X, V).
full(G, H) :- size(G, S), free(H, F), S > F.
destination(G, H, V) :-
    guest(G), host(H), version(V),
    not lacks(G, H, V), not full(G, H), not home(G, H).

% Servers without a destination now do not count.
counts(G) :- destination(G, H, old), not left_out(G).

% Each upgraded host is in one wave. No wave is empty but the last ones.
step(1..steps).
{ wave(H, T) : upgraded(H) } most :- step(T).
:- upgraded(H), not 1 { wave(H, T) : step(T) } 1.
is_wave(T) :- wave(H, T).
:- is_wave(T), T > 1, not is_wave(T - 1).
done(H, T) :- wave(H, T).
done(H, T + 1) :- done(H, T), step(T + 1).

% After each wave, each server has a destination; one that its own host cannot
% take back is elsewhere, and needs one more.
may_be_on(G, H, T) :- destination(G, H, old), T = 0..steps, not done(H, T).
may_be_on(G, H, T) :- destination(G, H, new), done(H, T).
homeless(G, T) :- home(G, H), lacks(G, H, new), done(H, T).
:- counts(G), step(T), not 1 { may_be_on(G, H, T) : host(H) }.
:- counts(G), homeless(G, T), not 2 { may_be_on(G, H, T) : host(H) }.

% The servers of a wave, and those that could not come back, find places on the
% other hosts at the same time, as these are before the wave.
moves(G, T) :- counts(G), home(G, H), wave(H, T).
moves(G, T) :- counts(G), homeless(G, T - 1), is_wave(T).
1 { to(G, H, T) : may_be_on(G, H, T - 1) } 1 :- moves(G, T).
:- to(G, H, T), wave(H, T).
:- step(T), free(H, F), #sum { S, G : to(G, H, T), size(G, S) } > F.
"""
_LEAVE_OUT = """
{ left_out(G) : guest(G), not stranded(G) }.
:~ left_out(G), not stranded(G). [1, G]
"""


@dataclass(frozen=True)
class Guest:
    """A server: the number of its host, its VCPUs, and traits it requires."""

    home: int
    size: int
    needs: frozenset[str] = frozenset()


@dataclass
class Upgrade:
    """A fleet and its servers, each host with two sets of traits."""

    free: Sequence[int]
    """The VCPUs that are free on each host."""
    old: Sequence[frozenset[str]]
    new: Sequence[frozenset[str]]
    guests: Sequence[Guest]
    hosts: frozenset[int]
    """The hosts that are upgraded."""
    most: int

    def find(self) -> Waves:
        """Return the waves that the audit finds."""
        before = self._destinations(self.old)
        after = self._destinations(self.new, before)
        servers = [
            self._server(number, each)
            for number, each in enumerate(self.guests)
        ]
        audited = audit_servers(servers, after)
        return find_waves(
            audited.residents,
            before.index,
            after.index,
            set_of(self.hosts),
            self.most,
        )

    def _destinations(
        self,
        traits: Sequence[frozenset[str]],
        before: Destinations | None = None,
    ) -> Destinations:
        hosts = tuple(
            Provider(
                f"host-{number}",
                provider_uuid(f"host-{number}"),
                {
                    "VCPU": Inventory(
                        self._used(number) + free, used=self._used(number)
                    )
                },
                frozenset(f"CUSTOM_{each}" for each in traits[number]),
            )
            for number, free in enumerate(self.free)
        )
        return Destinations(Fleet(hosts), Service(), before)

    def _used(self, number: int) -> int:
        return sum(each.size for each in self.guests if each.home == number)

    def _server(self, number: int, guest: Guest) -> Server:
        needs = {f"trait:CUSTOM_{each}": "required" for each in guest.needs}
        request = RequestSpec(
            Flavor(guest.size, 0, extra_specs=needs), Image({})
        )
        return Server(request, host=f"host-{guest.home}", uuid=str(number))

    # -- the solver

    def has_waves(
        self,
        left_out: Sequence[Resident] = (),
        most_conflicts: int = 0,
    ) -> bool | None:
        """Return whether there are waves for the other servers.

        None if the search ends early.
        """
        program = self._program(len(self.hosts), left_out)
        return has_answer(program, most_conflicts)

    def allows(
        self, waves: Sequence[int], left_out: Sequence[Resident]
    ) -> bool | None:
        """Return whether these waves are waves for the other servers."""
        facts = [
            fact("wave", host, step)
            for step, wave in enumerate(waves, 1)
            for host in numbers_in(wave)
        ]
        return has_answer(self._program(len(waves), left_out) + "".join(facts))

    def count_in_the_way(self, stranded: Sequence[Resident]) -> int:
        """Return how many servers, at least, are to be left out.

        Beside those that are stranded.
        """
        facts = [fact("stranded", int(each.name.id)) for each in stranded]
        program = self._program(len(self.hosts), stranded)
        return least_cost(program + _LEAVE_OUT + "".join(facts))

    def _program(self, steps: int, left_out: Collection[Resident]) -> str:
        constants = f"#const steps = {steps}. #const most = {self.most}.\n"
        facts = [fact("left_out", int(each.name.id)) for each in left_out]
        return constants + _RULES + "".join((*self._facts(), *facts))

    def _facts(self) -> Iterator[str]:
        for host, free in enumerate(self.free):
            yield fact("host", host)
            yield fact("free", host, free)
            for trait in self.old[host]:
                yield f'has({host}, "{trait}", old).'
            for trait in self.new[host]:
                yield f'has({host}, "{trait}", new).'
        for host in self.hosts:
            yield fact("upgraded", host)
        for number, guest in enumerate(self.guests):
            yield fact("guest", number)
            yield fact("home", number, guest.home)
            yield fact("size", number, guest.size)
            for trait in guest.needs:
                yield fact("needs", number, trait)


def random_upgrade(random: Random) -> Upgrade:
    """Return an upgrade of at most six hosts with at most eight servers."""
    count = random.randint(2, 6)
    traits = "AB"[: random.randint(1, 2)]
    old = [_some(random, traits, 0.7) for _ in range(count)]
    new = [_some(random, traits, 0.6) for _ in range(count)]
    hosts = frozenset(n for n in range(count) if random.random() < 0.85)
    guests = []
    for _ in range(random.randint(1, 8)):
        home = random.randrange(count)
        needs = _some(random, sorted(old[home]), 0.6)
        guests.append(Guest(home, random.choice((1, 1, 2, 3)), needs))
    return Upgrade(
        [random.randint(0, 5) for _ in range(count)],
        old,
        [new[n] if n in hosts else old[n] for n in range(count)],
        guests,
        hosts,
        random.randint(1, 3),
    )


def full_fleet(random: Random) -> Upgrade:
    """Return 8 to 16 hosts of 16 VCPUs, half full to full.

    Most traits stay, as where a release removes little.
    """
    count, traits = random.randint(8, 16), "ABC"
    old = [_some(random, traits, 0.7) for _ in range(count)]
    new = [
        frozenset(
            each
            for each in traits
            if random.random() < (0.85 if each in old[number] else 0.3)
        )
        for number in range(count)
    ]
    hosts = frozenset(n for n in range(count) if random.random() < 0.9)
    guests, free = [], []
    for home in range(count):
        left = 16
        wanted = random.randint(0, 8)
        while left > wanted:
            size = min(left, random.choice((1, 2, 2, 4, 4, 8)))
            left -= size
            needs = _some(random, sorted(old[home]), 0.35)
            guests.append(Guest(home, size, needs))
        free.append(left)
    return Upgrade(
        free,
        old,
        [new[n] if n in hosts else old[n] for n in range(count)],
        guests,
        hosts,
        random.randint(1, 4),
    )


def rare_traits(random: Random) -> Upgrade:
    """Return 8 to 12 hosts, of which two to four have each trait.

    The upgrade brings it to others, so the order of hosts matters.
    """
    count = random.randint(8, 12)
    traits = "ABCDEFGH"[: random.randint(3, 8)]
    share = random.uniform(1.5, 4) / count
    old = [_some(random, traits, share) for _ in range(count)]
    new = [_some(random, traits, 1.2 * share) for _ in range(count)]
    hosts = frozenset(n for n in range(count) if random.random() < 0.95)
    guests = []
    for _ in range(random.randint(3, 14)):
        home = random.randrange(count)
        needs = frozenset(sorted(old[home])[:1])
        guests.append(Guest(home, random.choice((1, 1, 2)), needs))
    most_free = random.randint(1, 4)
    return Upgrade(
        [random.randint(0, most_free) for _ in range(count)],
        old,
        [new[n] if n in hosts else old[n] for n in range(count)],
        guests,
        hosts,
        random.randint(1, 3),
    )


def _some(
    random: Random, traits: Sequence[str], likely: float
) -> frozenset[str]:
    return frozenset(each for each in traits if random.random() < likely)
