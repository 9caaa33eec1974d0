# SPDX-License-Identifier: Apache-2.0

"""Waves: an order in which to upgrade hosts, group by group (ADR 0022).

After each wave, each server that had a destination has one, and the servers of
a wave's hosts find places on the other hosts at the same time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

from os_prefilter.common.host_sets import numbers_in, set_of, size_of
from os_prefilter_tools.fleet.host_index import HostIndex
from os_prefilter_tools.operators.audit.joint_placement import JointPlacement
from os_prefilter_tools.operators.audit.server_audit import Resident
from os_prefilter_tools.operators.diagnose.smallest_sets import smallest_sets

_FEW = 7
"""Hosts of which all orders are tried.

With more left, waves of neighbours in one order of the hosts.
"""
_MOST_PLACED = 20_000
"""Placements of servers after which no other orders are tried.

Three more of each server are allowed.
"""


class Waves(NamedTuple):
    """Waves of hosts, and the servers that they leave out."""

    waves: Sequence[int]
    """The set of hosts of each wave."""
    stranded: Sequence[Resident]
    """Servers without a destination after the last wave, in any order."""
    in_the_way: Sequence[Resident]
    """Other servers without which these waves were found.

    As few as were found.
    """


def find_waves(
    residents: Sequence[Resident],
    before: HostIndex,
    after: HostIndex,
    upgraded: int,
    most: int,
) -> Waves:
    """Return waves of at most ``most`` of the hosts that are upgraded.

    :param after: the same hosts as if all were upgraded
    """
    movable = [each for each in residents if each.before != each.own]
    stranded = [each for each in movable if each.count_missing(upgraded)]
    moving = [each for each in movable if not each.count_missing(upgraded)]
    numbers = range(len(moving))
    most = min(most, size_of(upgraded))
    search = _Search(moving, before, after, upgraded, most)
    path = search.run(numbers, go_back=True)
    if path[-1] != upgraded:
        search.go_on()
        path = search.run(numbers, leave_out=True)
    left_out = set(numbers) - search.kept
    if left_out and not search.is_spent():
        search.go_on()
        found = smallest_sets(
            numbers,
            lambda kept: search.run(kept)[-1] == upgraded,
            together=left_out.__contains__,
            is_spent=search.is_spent,
        )
        if len(found.to_drop[0]) < len(left_out):
            search.go_on()
            kept = set(numbers) - found.to_drop[0]
            path = search.run(kept, leave_out=True)
            left_out = set(numbers) - search.kept
    waves = [later & ~earlier for earlier, later in zip(path, path[1:])]
    return Waves(waves, stranded, [moving[each] for each in sorted(left_out)])


class _Search:
    """Searches for waves, each for some of the servers."""

    def __init__(
        self,
        residents: Sequence[Resident],
        before: HostIndex,
        after: HostIndex,
        upgraded: int,
        most: int,
    ) -> None:
        self._residents = residents
        self._before, self._after = before.hosts, after.hosts
        self._mixed = HostIndex(before.hosts)
        self._hosts = upgraded
        self._most = most
        self._placed = self._limit = 0
        self.go_on()
        self._goes_back = False
        self._seen = set[int]()
        self.kept = set[int]()
        """Servers that the last run did not leave out."""
        losses = Counter[int]()
        for each in residents:
            losses.update(numbers_in(each.before & ~each.after))
            losses.subtract(numbers_in(each.after & ~each.before))
        # Hosts that win destinations of servers before those that lose some.
        self._order = sorted(
            numbers_in(upgraded),
            key=lambda host: (losses[host], before.names[host]),
        )

    def run(
        self,
        servers: Iterable[int],
        *,
        go_back: bool = False,
        leave_out: bool = False,
    ) -> list[int]:
        """Return the upgraded hosts before and after each wave.

        :param go_back: try other waves where the first that can be next lead
            nowhere, also while many hosts are left
        :param leave_out: leave out servers that are in the way; otherwise, the
            last waves may be missing
        """
        self.kept = set(servers)
        self._goes_back = go_back
        self._together = JointPlacement(self._mixed)
        path = [0]
        if leave_out or not self.is_spent():
            path = self._extend(path)
        while leave_out and path[-1] != self._hosts:
            wave = set_of(self._left(path[-1])[: self._most])
            while unplaced := self._find_unplaced(path[-1], wave):
                self.kept -= unplaced
            path = self._extend([*path, path[-1] | wave])
        return path

    def _extend(self, path: list[int]) -> list[int]:
        """Return the longest path that was found, depth first."""
        longest = path
        self._seen = {path[-1]}
        branches = [(path, self._next(path[-1]))]
        while branches and longest[-1] != self._hosts:
            path, waves = branches[-1]
            wave = next(waves, 0)
            if not wave:
                branches.pop()
                continue
            later = path[-1] | wave
            self._seen.add(later)
            path = [*path, later]
            longest = max(longest, path, key=lambda each: size_of(each[-1]))
            branches.append((path, self._next(later)))
        return longest

    def _next(self, upgraded: int) -> Iterator[int]:
        """Yield waves that may come next, the largest first."""
        left = self._left(upgraded)
        for wave in self._waves_of(left):
            if upgraded | wave in self._seen:
                continue
            if not self._find_unplaced(upgraded, wave):
                yield wave
                if len(left) > _FEW and not self._goes_back:
                    return
            if self.is_spent():
                return

    def _waves_of(self, left: list[int]) -> Iterator[int]:
        if len(left) <= _FEW:
            for size in range(self._most, 0, -1):
                for hosts in combinations(left, size):
                    yield set_of(hosts)
            return
        for start in range(len(left)):
            size = self._most
            while size:
                yield set_of(left[start : start + size])
                size //= 2

    def _left(self, upgraded: int) -> list[int]:
        return [host for host in self._order if not upgraded >> host & 1]

    def _find_unplaced(self, upgraded: int, wave: int) -> set[int]:
        """Return the servers for which a wave cannot be next.

        They find no place meanwhile, or have no destination afterwards.
        """
        later = upgraded | wave
        unplaced, moving = set[int](), []
        for number in self.kept:
            each = self._residents[number]
            hosts = each.places(upgraded) & ~wave & ~each.own
            # Those of upgraded hosts that cannot take them back move, too.
            moves = each.own & wave or each.own & upgraded & ~each.after
            if each.count_missing(later) or (moves and not hosts):
                unplaced.add(number)
            if moves:
                leaving = each.moving._replace(hosts=hosts, number=number)
                moving.append(leaving)
        # A look at fifty servers takes as long as placing one.
        self._placed += 1 + len(self.kept) // 50
        if unplaced:
            return unplaced
        # Only traits differ, so the order of hosts by amounts stays.
        self._mixed.hosts[:] = self._before
        for host in numbers_in(upgraded):
            self._mixed.hosts[host] = self._after[host]
        placed = {each.number for each, _ in self._together.place(moving)}
        unplaced = {each.number for each in moving} - placed
        self._placed += len(moving)
        if unplaced:
            # In vain, each was placed in two more orders at least.
            self._placed += 2 * len(moving)
        return unplaced

    def go_on(self) -> None:
        """Allow some more placements."""
        self._limit = self._placed + _MOST_PLACED + 3 * len(self._residents)

    def is_spent(self) -> bool:
        """Return whether no other orders should be tried."""
        return self._placed > self._limit
