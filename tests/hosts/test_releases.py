# SPDX-License-Identifier: Apache-2.0

"""Upgrade and downgrade over one trait of one row: no trait is left behind
that the host has lost, and none that an operator has set is removed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import product

import pytest

from os_prefilter.common.trait_names import Trait
from os_prefilter.hosts.capabilities import capability_traits
from os_prefilter.hosts.desired_traits import Mode, withdrawn
from os_prefilter.hosts.drivers.ironic_facts import BiosSetting, IronicFacts
from os_prefilter.hosts.drivers.vmware import VmwareFacts
from os_prefilter.hosts.marker_traits import ON_PROVIDERS
from os_prefilter.hosts.reporter import HostFacts
from os_prefilter.vocabulary import LACKING, table
from os_prefilter.vocabulary.model import Row
from tests.conftest import one_in
from tests.support.hosts import KVM
from tests.support.releases import Release, release_without

_HOSTS: dict[str, HostFacts] = {
    "libvirt": KVM,
    "VMware": VmwareFacts(),
    "Ironic": IronicFacts(bios={"LogicalProc": BiosSetting()}),
}
_TODAY = Release(table())
_EVERY = sorted({trait for row in table() for trait in row.traits})
_CASES = list(product(_EVERY, _HOSTS))
_BY_HAND = frozenset(("CUSTOM_OF_AN_OPERATOR", "CUSTOM_VM_MODE_BY_HAND"))
_FORBIDDEN = {trait for trait in _EVERY if "_DEFAULT_MACHINE_" in trait}
_FORBIDDEN.update(LACKING.values())


def _renamed(row: Row, trait: str) -> Row:
    values = {}
    for value, term in row.values.items():
        new = term
        if term.trait == trait:
            new = replace(term, trait=Trait(f"{trait}_RENAMED"))
        values[value] = new
    return replace(row, values=values)


@cache
def _others(trait: str) -> tuple[Release, Release]:
    """Return the releases that do not know a trait, and by another name."""
    renamed = Release(tuple(_renamed(row, trait) for row in table()))
    return release_without(trait), renamed


def _pairs(trait: str) -> Iterator[tuple[Release, Release]]:
    for other in _others(trait):
        yield _TODAY, other
        yield other, _TODAY


class _Host:
    """The traits of a host, which two releases report, one after the other."""

    def __init__(
        self, facts: HostFacts, mode: Mode, by_hand: frozenset[str]
    ) -> None:
        self._facts = facts
        self._mode = mode
        self._names = frozenset(capability_traits(facts))
        self.by_hand = by_hand
        self.traits = by_hand
        self.decided = frozenset[str]()
        """The traits of which the last release knows whether the host has them:
        without a row, no host but a bare-metal node has those of templates.
        """

    def report(
        self,
        release: Release,
        wanted: frozenset[str],
        *,
        has_lost: bool = False,
        is_removal: bool = False,
    ) -> frozenset[str]:
        """Report all capabilities or none; return what is left."""
        can = dict.fromkeys(self._names | release.own, not has_lost)
        goal = release.goal_of(self._facts, can, wanted, self._mode)
        if is_removal:
            goal = withdrawn(goal, self._mode)
        self.traits = release.report(self.traits, goal)
        self.decided = frozenset((*goal.traits, *goal.reported_by_nova))
        return frozenset(
            trait
            for trait in self.traits - self.by_hand
            if not trait.startswith(ON_PROVIDERS)
        )


@pytest.mark.parametrize("mode", Mode, ids=lambda mode: mode.value)
@pytest.mark.parametrize(("trait", "driver"), _CASES[:: one_in(37)])
def test_after_another_release_nothing_is_left_that_the_host_has_lost(
    trait: str, driver: str, mode: Mode
) -> None:
    """What a release does not know stays while it is wanted, unless filters
    forbid it: the release before removes it, and so does a removal.
    """
    for one, two in _pairs(trait):
        both = one.keys | two.keys
        host = _Host(_HOSTS[driver], mode, _BY_HAND)
        reported = host.report(one, one.keys)
        still = host.report(two, both)
        assert still >= (reported & host.decided) - _FORBIDDEN
        left = host.report(two, both, has_lost=True)
        assert left <= reported - host.decided - _FORBIDDEN
        not_wanted = host.report(two, two.keys, has_lost=True)
        assert not any(name.startswith("CUSTOM_") for name in not_wanted)
        assert host.by_hand <= host.traits
        seen = host.traits
        assert not host.report(one, both, has_lost=True)
        assert host.by_hand <= host.traits
        host.traits = seen
        host.report(two, both, has_lost=True, is_removal=True)
        assert host.traits == host.by_hand


@pytest.mark.parametrize("mode", Mode, ids=lambda mode: mode.value)
@pytest.mark.parametrize(("trait", "driver"), _CASES[7 :: one_in(37)])
def test_trait_that_an_operator_has_set_stays_through_each_release(
    trait: str, driver: str, mode: Mode
) -> None:
    """Whether or not the host has it, or a release knows it.

    A standard one becomes a part of the report once the host has it.
    """
    is_custom = trait.startswith("CUSTOM_")
    states = (False, True) if is_custom else (True,)
    for one, two in _pairs(trait):
        both = one.keys | two.keys
        host = _Host(_HOSTS[driver], mode, _BY_HAND | {trait})
        for release, has_lost in product((one, two, one), states):
            host.report(release, both, has_lost=has_lost)
            assert host.by_hand <= host.traits
        host.report(two, both, has_lost=True, is_removal=True)
        assert host.traits == host.by_hand
