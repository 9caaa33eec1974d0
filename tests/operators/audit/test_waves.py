# SPDX-License-Identifier: Apache-2.0

"""Waves of an upgrade, against a search of all orders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, combinations
from random import Random

import pytest

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
from os_prefilter_tools.operators.audit.waves import (
    Waves,
    find_waves,
)
from tests.conftest import times

Hosts = frozenset[int]
NO_HOST: Hosts = frozenset()
NO_TRAIT: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Guest:
    home: int
    size: int
    needs: frozenset[str] = frozenset()


@dataclass
class Upgrade:
    """A small fleet, its servers, and the rules of waves once more."""

    free: Sequence[int]
    old: Sequence[frozenset[str]]
    new: Sequence[frozenset[str]]
    guests: Sequence[Guest]
    hosts: Hosts
    most: int

    def find(self) -> Waves:
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

    # -- the rules

    def suits(self, guest: Guest, host: int, done: Hosts) -> bool:
        traits = self.new if host in done else self.old
        return guest.needs <= traits[host]

    def destinations(self, guest: Guest, done: Hosts) -> list[int]:
        return [
            host
            for host, free in enumerate(self.free)
            if host != guest.home
            and free >= guest.size
            and self.suits(guest, host, done)
        ]

    def is_home_lost(self, guest: Guest, done: Hosts) -> bool:
        return guest.home in done and not self.suits(guest, guest.home, done)

    def is_safe(self, guest: Guest, done: Hosts) -> bool:
        least = 2 if self.is_home_lost(guest, done) else 1
        return len(self.destinations(guest, done)) >= least

    @cached_property
    def movable(self) -> list[int]:
        return [
            number
            for number, each in enumerate(self.guests)
            if self.destinations(each, NO_HOST)
        ]

    def fits(self, wave: Hosts, done: Hosts, guests: Sequence[int]) -> bool:
        moving = [
            self.guests[number]
            for number in guests
            if self.guests[number].home in wave
            or self.is_home_lost(self.guests[number], done)
        ]
        return self._pack(moving, list(self.free), wave, done)

    def _pack(
        self,
        moving: Sequence[Guest],
        free: list[int],
        wave: Hosts,
        done: Hosts,
    ) -> bool:
        if not moving:
            return True
        first, *others = moving
        for host in self.destinations(first, done):
            if host in wave or free[host] < first.size:
                continue
            left = list(free)
            left[host] -= first.size
            if self._pack(others, left, wave, done):
                return True
        return False

    def allows(self, wave: Hosts, done: Hosts, guests: Sequence[int]) -> bool:
        later = done | wave
        return all(
            self.is_safe(self.guests[number], later) for number in guests
        ) and self.fits(wave, done, guests)

    def has_waves(self, guests: Sequence[int]) -> bool:
        """Return whether there are waves, by trying all of them."""
        reached, waiting = {NO_HOST}, [NO_HOST]
        while waiting:
            done = waiting.pop()
            for size in range(1, self.most + 1):
                for some in combinations(sorted(self.hosts - done), size):
                    later = done | set(some)
                    if later not in reached and self.allows(
                        frozenset(some), done, guests
                    ):
                        reached.add(later)
                        waiting.append(later)
        return self.hosts in reached


def random_upgrade(random: Random) -> Upgrade:
    count = random.randint(2, 6)
    traits = "AB"[: random.randint(1, 2)]

    def some(share: float) -> frozenset[str]:
        return frozenset(each for each in traits if random.random() < share)

    old = [some(0.7) for _ in range(count)]
    new = [some(0.6) for _ in range(count)]
    hosts = frozenset(n for n in range(count) if random.random() < 0.85)
    guests = []
    for _ in range(random.randint(1, 8)):
        home = random.randrange(count)
        needs = frozenset(
            each for each in sorted(old[home]) if random.random() < 0.6
        )
        guests.append(Guest(home, random.choice((1, 1, 2, 3)), needs))
    return Upgrade(
        [random.randint(0, 5) for _ in range(count)],
        old,
        [new[n] if n in hosts else old[n] for n in range(count)],
        guests,
        hosts,
        random.randint(1, 3),
    )


def kept_by(upgrade: Upgrade, *left_out: Sequence[Resident]) -> list[int]:
    """Return the servers with a destination that waves do not leave out."""
    names = {each.name.id for some in left_out for each in some}
    return [each for each in upgrade.movable if str(each) not in names]


@pytest.mark.parametrize("seed", range(times(100)))
def test_waves_are_found_where_there_are_some(seed: int) -> None:
    upgrade = random_upgrade(Random(seed))  # noqa: S311
    found = upgrade.find()
    is_found = not (found.stranded or found.in_the_way)
    assert is_found == upgrade.has_waves(upgrade.movable)


@pytest.mark.parametrize("seed", range(500, 500 + times(40)))
def test_waves_keep_all_servers_movable_but_those_left_out(seed: int) -> None:
    upgrade = random_upgrade(Random(seed))  # noqa: S311
    found = upgrade.find()
    kept = kept_by(upgrade, found.stranded, found.in_the_way)
    done = NO_HOST
    for wave in found.waves:
        hosts = frozenset(numbers_in(wave))
        assert len(hosts) <= upgrade.most
        assert upgrade.allows(hosts, done, kept)
        done |= hosts
    assert done == upgrade.hosts


@pytest.mark.parametrize("seed", range(600, 600 + times(40)))
def test_as_few_servers_as_possible_are_left_out(seed: int) -> None:
    upgrade = random_upgrade(Random(seed))  # noqa: S311
    found = upgrade.find()
    kept = kept_by(upgrade, found.stranded)
    fewer = range(len(found.in_the_way))
    for out in chain.from_iterable(combinations(kept, n) for n in fewer):
        assert not upgrade.has_waves(
            [each for each in kept if each not in out]
        )


@pytest.mark.parametrize("seed", range(700, 700 + times(40)))
def test_stranded_servers_would_have_a_destination_with_the_hosts_kept(
    seed: int,
) -> None:
    upgrade = random_upgrade(Random(seed))  # noqa: S311
    for each in upgrade.find().stranded:
        guest = upgrade.guests[int(each.name.id)]
        missing = each.count_missing(set_of(upgrade.hosts))
        as_is = numbers_in(each.before & ~each.after & set_of(upgrade.hosts))
        for some in combinations(as_is, missing):
            assert upgrade.is_safe(guest, upgrade.hosts - set(some))


OLD, NEW = frozenset("A"), NO_TRAIT


def test_hosts_that_win_a_trait_are_upgraded_before_those_that_lose_it() -> (
    None
):
    wins = [NO_TRAIT] * 20 + [OLD] * 20
    loses = wins[::-1]
    upgrade = Upgrade(
        [1] * 40, wins, loses, [Guest(39, 1, OLD)], frozenset(range(40)), 20
    )
    found = upgrade.find()
    assert found.waves == [(1 << 20) - 1, (1 << 40) - (1 << 20)]


def test_a_large_fleet_without_capacity_leaves_servers_out() -> None:
    count = 30
    upgrade = Upgrade(
        [0] * (count - 1) + [1],
        [OLD] * count,
        [OLD] * count,
        [Guest(number, 1) for number in range(count) for _ in "12"],
        frozenset(range(count)),
        5,
    )
    found = upgrade.find()
    kept = kept_by(upgrade, found.in_the_way)
    done = NO_HOST
    for wave in found.waves:
        hosts = frozenset(numbers_in(wave))
        assert upgrade.allows(hosts, done, kept)
        done |= hosts
    assert done == upgrade.hosts


def test_more_hosts_at_a_time_than_there_are_make_one_wave() -> None:
    upgrade = Upgrade(
        [1, 1], [OLD] * 2, [OLD] * 2, [], frozenset((0, 1)), 10**9
    )
    assert upgrade.find().waves == [3]
