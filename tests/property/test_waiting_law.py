# SPDX-License-Identifier: Apache-2.0

"""The law of waiting: a waiting filter excludes no host that a late check
accepts, whichever hosts have reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import cycle, permutations, product
from random import Random

import pytest
from oslo_config.cfg import ConfigOpts

from os_prefilter import allocation_candidates_query
from os_prefilter.adapters.placement.facts import PlacementFacts
from os_prefilter.common.errors import RequestRejected
from os_prefilter.common.trait_names import Trait
from os_prefilter.hosts import marker_traits
from os_prefilter.hosts.capabilities import capability_traits, reporter_of
from os_prefilter.hosts.desired_traits import (
    Goal,
    Mode,
    withdrawn,
)
from os_prefilter.hosts.driver_check import unsupported
from os_prefilter.hosts.marker_traits import (
    marker_key,
    noted_among,
)
from os_prefilter.hosts.reporter import HostFacts
from os_prefilter.service import Service
from os_prefilter.service.traits_to_report import wanted_groups
from os_prefilter.vocabulary import BY_NAME, table
from os_prefilter.vocabulary.model import Row, Term
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.fleet.model import Fleet
from os_prefilter_tools.operators.readiness import (
    configured_filters,
    reports_of,
    unreported_groups,
)
from os_prefilter_tools.testing.law import (
    Case,
    list_requiring_filters,
    single_cases,
)
from tests.conftest import conf_with, one_in, times
from tests.support.hosts import (
    ARM,
    KVM,
    X86,
    few_libvirt_hosts,
    other_hosts,
)
from tests.support.releases import Release, without_values
from tests.support.reporting_fleets import (
    REPORTS,
    SECTIONS,
    Report,
    by_nova_alone,
    by_the_agent,
    fleet_of,
    wanted_by,
)
from tests.support.zipping import zip_equal

_KINDS: list[HostFacts] = [*few_libvirt_hosts(), *other_hosts()]


def _conf(*, wait: bool = True) -> ConfigOpts:
    return conf_with(
        enabled_filters=list(list_requiring_filters()),
        reported_traits=["*"],
        wait_for_reports=wait,
    )


def _pipeline(fleet: Fleet, *, wait: bool = True) -> Service:
    conf = _conf(wait=wait)
    reports = reports_of(fleet, wanted_groups(*configured_filters(conf)))
    return Service.from_conf(conf, {"reports": lambda _context: reports})


_ARM = replace(KVM, architecture="aarch64", guests={"aarch64": ARM})
_MIXED: tuple[HostFacts, ...] = (
    KVM,
    replace(KVM, emulated=frozenset(("aarch64",))),
    _ARM,
    *other_hosts(),
)


def _excluded(
    hosts: Sequence[HostFacts], fleet: Fleet, pipeline: Service
) -> list[str]:
    found = []
    for case in single_cases():
        try:
            required = pipeline.apply(deepcopy(case.spec)).requirements
        except RequestRejected:
            continue
        for facts, host in zip_equal(hosts, fleet.hosts):
            missing = [
                str(item)
                for item in required
                if (item.trait in host.traits) != item.required
            ]
            if missing and _accepts(case, facts):
                found.append(f"{case} on {facts}: {missing}")
    return found


def _accepts(case: Case, facts: HostFacts) -> bool:
    try:
        return not unsupported(case.spec, facts)
    except RequestRejected:
        return False


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report.__name__)
def test_waiting_excludes_no_capable_host_for_any_single_way_of_reporting(
    report: Report,
) -> None:
    """One host after the other: beside silent ones, a requirement that is
    enforced too early would not show.
    """
    for facts in _KINDS[:: one_in(13)]:
        fleet = fleet_of([report(facts)])
        excluded = _excluded([facts], fleet, _pipeline(fleet))
        assert not excluded, f"{len(excluded)}, the first: {excluded[0]}"


def test_capable_hosts_are_excluded_without_waiting() -> None:
    """So the tests above prove something."""
    fleet = fleet_of([by_nova_alone(each) for each in _KINDS])
    found = _excluded(_KINDS, fleet, _pipeline(fleet, wait=False))
    assert len(found) > 300


def test_of_a_fully_reported_fleet_waiting_drops_only_forbidden_traits_no_host_has() -> (
    None
):
    """What is required is the same; of what is forbidden, only traits that no
    host has are left out.
    """
    hosts = [
        facts for facts in _KINDS if not reporter_of(facts).unknown(facts)
    ]
    fleet = fleet_of([by_the_agent(each) for each in hosts])
    waiting, at_once = (_pipeline(fleet, wait=wait) for wait in (True, False))
    compared = 0
    for case in single_cases():
        if case.required is None:
            continue
        expected = at_once.apply(deepcopy(case.spec)).requirements
        seen = [
            item
            for item in expected
            if item.required or item.trait in fleet.traits
        ]
        assert list(waiting.apply(deepcopy(case.spec)).requirements) == seen
        compared += len(expected)
    assert compared > 100


@pytest.mark.parametrize(
    ("one", "other"), list(product(SECTIONS, SECTIONS))[:: one_in(13)]
)
def test_no_capable_host_is_excluded_while_sections_differ(
    one: str, other: str
) -> None:
    """Hosts reported for the section of before; every second one has; two
    schedulers have one each; or an old agent.
    """
    options = SECTIONS[other]
    old, new = wanted_by(**SECTIONS[one]), wanted_by(**options)
    conf = conf_with(**options)
    groups = wanted_groups(*configured_filters(conf))
    for by_host in (
        [old],
        [old, new],
        [frozenset(), new],
        [old | new],
        [old - frozenset(sorted(new)[::2])],
    ):
        fleet = fleet_of(
            [
                by_the_agent(facts, each)
                for each, facts in zip(cycle(by_host), _MIXED)
            ]
        )
        reports = reports_of(fleet, groups)
        assert not _excluded(
            _MIXED,
            fleet,
            Service.from_conf(conf, {"reports": lambda _context: reports}),  # noqa: B023
        )


@pytest.mark.parametrize("seed", range(times(1)))
def test_placement_offers_every_capable_host_while_filters_wait(
    seed: int,
) -> None:
    """By what it says of reports, and with the query that a scheduler
    sends.
    """
    random = Random(seed)  # noqa: S311
    hosts = random.sample(_KINDS, 6)
    reports: list[Report] = random.choices(
        REPORTS, weights=(6, 3, 2, seed), k=len(hosts)
    )
    fleet = fleet_of(
        [report(facts) for facts, report in zip_equal(hosts, reports)]
    )
    # Requirements of Nova's own never wait.
    asking = [
        case for case in single_cases() if case.required and case.choices
    ]
    cases = random.sample(
        [
            case
            for case in asking
            if "query" not in case.choices[0][0].required_by
        ],
        25,
    )
    with EmbeddedPlacement(fleet) as placement:
        conf = _conf()
        groups = wanted_groups(*configured_filters(conf))
        pipeline = Service.from_conf(
            conf,
            {
                "reports": PlacementFacts(
                    placement.client, groups=groups
                ).reports
            },
        )
        for case in cases:
            spec = deepcopy(case.spec)
            decision = pipeline.apply(spec)
            # As the agent does: the names exist, whether or not a host has
            # them.
            placement.know(item.trait for item in decision.requirements)
            candidates = placement.client.allocation_candidates(
                allocation_candidates_query(spec)
            ).hosts
            able = {
                each.name
                for facts, each in zip_equal(hosts, fleet.hosts)
                if _accepts(case, facts)
            }
            assert able <= set(candidates), case


# Two releases, or two sets of plugins: what one has written, the other one
# reads.


_LESS = replace(
    KVM,
    virt_type="qemu",
    guests={
        "x86_64": replace(
            X86,
            default_machine="q35",
            machines=frozenset(("q35",)),
            uefi=False,
        )
    },
    libvirt_version=(8, 0, 0),
)
"""The same host, which has lost and won: another default machine type, no KVM,
no HPET, no UEFI.
"""
_CAN: dict[bool, dict[str, bool]] = {
    False: capability_traits(KVM),
    True: capability_traits(_LESS),
}
"""By whether the host is the one that has changed."""


@dataclass(frozen=True, eq=False)
class KvmRelease(Release):
    """A release on the host of these tests."""

    novas_own: frozenset[str] = frozenset()
    """Traits that this release knows Nova's driver to report, as others do
    not.
    """
    goals: dict[tuple[bool, frozenset[str], Mode], Goal] = field(
        default_factory=dict
    )

    def reported_by_nova(self, facts: HostFacts) -> frozenset[str]:
        return super().reported_by_nova(facts) - {_UEFI} | self.novas_own

    def goal(
        self, wanted: frozenset[str], mode: Mode, *, changed: bool = False
    ) -> Goal:
        """Return the goal of its agent, before or after the host has
        changed.
        """
        if (changed, wanted, mode) not in self.goals:
            facts = _LESS if changed else KVM
            self.goals[changed, wanted, mode] = self.goal_of(
                facts, _CAN[changed], wanted, mode
            )
        return self.goals[changed, wanted, mode]


def _with_rows(*changed: Row, dropped: Sequence[str] = ()) -> tuple[Row, ...]:
    by_name = {row.name: row for row in changed}
    return tuple(
        by_name.get(row.name, row)
        for row in table()
        if row.name not in dropped
    )


_VM_MODE, _HYPERVISORS, _FIRMWARE = (
    BY_NAME[name] for name in ("vm_mode", "hypervisor_type", "firmware_type")
)
_UEFI = "COMPUTE_FIRMWARE_UEFI"
_MOVED = {"mode-hvm": Term(Trait("CUSTOM_VM_MODE_HVM"))}
RELEASES: dict[str, KvmRelease] = {
    "today": KvmRelease(table()),
    "a default machine type less": KvmRelease(
        _with_rows(without_values(BY_NAME["default_machine"], "q35"))
    ),
    "the other default machine type less": KvmRelease(
        _with_rows(without_values(BY_NAME["default_machine"], "pc"))
    ),
    "a hypervisor type less": KvmRelease(
        _with_rows(without_values(_HYPERVISORS, "kvm"))
    ),
    "a package's row less": KvmRelease(
        _with_rows(dropped=["vm_mode", "time_hpet"])
    ),
    "a trait in another row": KvmRelease(
        _with_rows(
            without_values(_VM_MODE, "hvm"),
            replace(_HYPERVISORS, values={**_HYPERVISORS.values, **_MOVED}),
        )
    ),
    "a network card less": KvmRelease(
        _with_rows(without_values(BY_NAME["vif_model"], "e1000e"))
    ),
    "a trait that Nova reports": KvmRelease(
        _with_rows(
            replace(
                _FIRMWARE,
                values={
                    "bios": _FIRMWARE.values["bios"],
                    "uefi": Term(Trait(_UEFI)),
                },
            )
        ),
        frozenset((_UEFI,)),
    ),
    "all traits of a row less": KvmRelease(
        _with_rows(dropped=["firmware_type", "machine_type"])
    ),
}
BY_HAND = frozenset(
    (
        "CUSTOM_OF_AN_OPERATOR",
        "CUSTOM_VM_MODE_XEN",
        "CUSTOM_COMPUTE_DEFAULT_MACHINE_VIRT",
    )
)
_SAME_ROW = {
    "a default machine type less",
    "the other default machine type less",
}
_PAIRS = [
    pytest.param(RELEASES[one], RELEASES[two], id=f"{one} - {two}")
    for one, two in permutations(RELEASES, 2)
    # Each against the one that knows all, in both directions, and those
    # against each other that differ in one row.
    if "today" in (one, two) or {one, two} == _SAME_ROW
]
_MODES = pytest.mark.parametrize("mode", Mode)


def _of_nova(
    release: KvmRelease, mode: Mode, *, changed: bool = False
) -> frozenset[str]:
    """Return the traits that a nova-compute reports by itself, if there is
    one.
    """
    if mode is Mode.ALONE:
        return frozenset()
    also = {trait for trait in release.novas_own if _CAN[changed][trait]}
    return frozenset(by_nova_alone(_LESS if changed else KVM)) | also


def _is_standard(trait: str) -> bool:
    return not trait.startswith("CUSTOM_")


@_MODES
@pytest.mark.parametrize(("one", "two"), _PAIRS)
class TestTwoReleases:
    """Upgrade, downgrade and removal: a release knows what another one has
    written, and touches nothing else.
    """

    def _reported(
        self, one: KvmRelease, mode: Mode
    ) -> tuple[frozenset[str], frozenset[str]]:
        """Return the traits before any report, and after that of a release."""
        before = _of_nova(one, mode) | BY_HAND
        return before, one.report(before, one.goal(one.keys, mode))

    def test_what_the_host_has_lost_goes(
        self, one: KvmRelease, two: KvmRelease, mode: Mode
    ) -> None:
        """And what a release does not know is no default machine type, which
        excludes hosts.
        """
        _, reported = self._reported(one, mode)
        goal = two.goal(one.keys | two.keys, mode, changed=True)
        found = two.report(reported, goal)
        false = {
            trait
            for trait, has in (
                *goal.traits.items(),
                *goal.reported_by_nova.items(),
            )
            if not has
        }
        written = reported - _of_nova(one, mode)
        assert found & false & written <= BY_HAND
        left = {
            trait
            for trait in found - two.traits - BY_HAND
            if "_DEFAULT_MACHINE_" in trait
        }
        assert not left

    def test_what_an_operator_has_set_stays(
        self, one: KvmRelease, two: KvmRelease, mode: Mode
    ) -> None:
        _, reported = self._reported(one, mode)
        for changed, wanted in product(
            (False, True),
            (one.keys, two.keys, one.keys | two.keys, frozenset[str]()),
        ):
            goal = two.goal(wanted, mode, changed=changed)
            assert two.report(reported, goal) >= BY_HAND
            assert two.report(reported, withdrawn(goal, mode)) >= BY_HAND

    def test_no_wanted_trait_that_the_host_has_goes(
        self, one: KvmRelease, two: KvmRelease, mode: Mode
    ) -> None:
        """Schedulers of either release require it: none excludes the host. A
        default machine type only excludes.
        """
        _, reported = self._reported(one, mode)
        found = two.report(reported, two.goal(one.keys | two.keys, mode))
        gone = {
            trait
            for trait in reported - found
            if not trait.startswith("CUSTOM_PREFILTER_")
        }
        assert not {
            trait for trait in gone if "_DEFAULT_MACHINE_" not in trait
        }
        assert gone.isdisjoint(two.traits)

    def test_what_no_scheduler_wants_goes_after_its_hour(
        self, one: KvmRelease, two: KvmRelease, mode: Mode
    ) -> None:
        """Also where only the other release has known it; standard traits
        stay, as flavors may require them.
        """
        before, reported = self._reported(one, mode)
        goal = two.goal(frozenset(), mode)
        added = reported - before
        kept = {trait for trait in added if _is_standard(trait)}
        note = {
            trait
            for trait in two.report(reported, goal)
            if trait.startswith("CUSTOM_PREFILTER_")
        }
        assert two.report(reported, goal) - note == before | kept

    def test_removal_leaves_nothing_but_standard_traits_beside_nova(
        self, one: KvmRelease, two: KvmRelease, mode: Mode
    ) -> None:
        before, reported = self._reported(one, mode)
        found = two.report(
            reported, withdrawn(two.goal(frozenset(), mode), mode)
        )
        left = found - before
        assert all(_is_standard(trait) for trait in left)
        assert mode is Mode.BESIDE or not left
        assert left <= {trait for trait, has in _CAN[False].items() if has}

    def test_the_release_before_finds_what_it_has_left(
        self, one: KvmRelease, two: KvmRelease, mode: Mode
    ) -> None:
        """After a downgrade, and with the traits that the other release knows
        beside it.
        """
        _, reported = self._reported(one, mode)
        wanted = one.keys | two.keys
        between = two.report(reported, two.goal(wanted, mode))
        again = one.report(between, one.goal(wanted, mode))
        assert again & one.traits == reported & one.traits
        assert noted_among(again) & one.traits == noted_among(reported)

    def test_reports_of_one_release_let_no_scheduler_of_the_other_exclude_a_capable_host(
        self, one: KvmRelease, two: KvmRelease, mode: Mode
    ) -> None:
        """Which requires each trait that all hosts have reported.

        Without a nova-compute, agents of a release that lacks a value of a row
        that Nova reports are upgraded first.
        """
        host_traits = [
            self._reported(one, mode)[1],
            one.report(
                _of_nova(one, mode, changed=True) | BY_HAND,
                one.goal(one.keys, mode, changed=True),
            ),
        ]
        if mode is Mode.ALONE and not one.traits >= two.traits:
            # A trait shows that a driver knows its row, and our agents of an
            # older release do not.
            host_traits = [
                two.report(traits, two.goal(two.keys, mode, changed=changed))
                for traits, changed in zip_equal(host_traits, _CAN)
            ]
        fleet = fleet_of(host_traits)
        with two.installed():
            unreported = unreported_groups(fleet, two.grouping[0])
        for group, names in unreported.items():
            for can, traits in zip_equal(_CAN.values(), host_traits):
                has = {trait for trait, has in can.items() if has}
                assert names or has & group.traits <= traits | two.novas_own


def test_a_trait_is_noted_by_a_digest_of_its_own() -> None:
    """So that no trait of an operator looks like ours: keys of groups have 25
    bits, and these 40.
    """
    every = [
        trait for release in RELEASES.values() for trait in release.traits
    ]
    noted = frozenset(marker_traits.names_noting(every))
    assert noted_among(noted | {*every, "CUSTOM_OF_AN_OPERATOR"}) == frozenset(
        every
    )
    assert all(len(name) <= 255 for name in noted)
    assert (
        noted_among(
            frozenset(
                (
                    "CUSTOM_VM_MODE_XEN",
                    f"{marker_traits.SET}{marker_key(('CUSTOM_VM_MODE_XEN',))}",
                )
            )
        )
        == set()
    )
