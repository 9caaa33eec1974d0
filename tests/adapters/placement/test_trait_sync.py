# SPDX-License-Identifier: Apache-2.0

"""Reconciling the traits of a host on a real Placement."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from random import seed

import os_traits
import pytest

from os_prefilter import Options
from os_prefilter.adapters.placement.trait_sync import (
    ATTEMPTS,
    RECHECK_INTERVAL,
    UNWANTED_AFTER,
    ProviderTraits,
)
from os_prefilter.common import errors
from os_prefilter.hosts.capabilities import capability_traits
from os_prefilter.hosts.desired_traits import Goal, Mode, TraitChange
from os_prefilter.hosts.marker_traits import (
    REPORTED,
    marker_key,
    names_noting,
    names_with,
)
from os_prefilter.vocabulary import table
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.fleet.model import Fleet, provider_uuid
from tests.conftest import one_in
from tests.support.hosts import KVM
from tests.support.placements import (
    HOST,
    UUID,
    Answer,
    Observed,
    answering,
    everything,
    lone_host,
    provider,
    put_traits,
    traits_of,
)
from tests.support.releases import Release, release_without
from tests.support.zipping import zip_equal

HPET = "CUSTOM_COMPUTE_TIME_HPET"
XEN = "CUSTOM_VM_MODE_XEN"
_TRAITS = {HPET: True, XEN: False}
_GROUPS = {marker_key((trait,)): frozenset((trait,)) for trait in _TRAITS}
_OWNER = Options(foreign_owner_traits=("OWNER_CYBORG", "CUSTOM_OWNER_SHINY"))
GOAL = Goal(_TRAITS, _GROUPS, frozenset(_GROUPS), _OWNER)
(MARKER,) = names_with(REPORTED, _GROUPS)
(OLD,) = names_with(REPORTED, [marker_key((XEN,))])
(NOTE,) = names_noting([HPET])
OURS = {HPET, MARKER, NOTE, "OWNER_NOVA"}
ADDED = [TraitChange("kvm-1", trait, "add") for trait in sorted(OURS)]
CHANGES = [
    *ADDED,
    *(TraitChange("kvm-1", trait, "remove") for trait in (OLD, XEN)),
]
TREE = f"GET /resource_providers?in_tree={UUID}"
TRAITS = f"/resource_providers/{UUID}/traits"
CUSTOM = "GET /traits?name=startswith:CUSTOM_"


@pytest.fixture
def placement() -> Iterator[EmbeddedPlacement]:
    with EmbeddedPlacement(
        lone_host(f"COMPUTE_NODE CUSTOM_OF_AN_OPERATOR {XEN} {OLD}")
    ) as embedded:
        yield embedded


@pytest.fixture(scope="module")
def shared() -> Iterator[EmbeddedPlacement]:
    """Return a Placement with traits for owners of which nothing is known."""
    with EmbeddedPlacement(
        lone_host(f"COMPUTE_NODE OWNER_NOVA {HPET} {MARKER}")
    ) as embedded:
        embedded.know(["CUSTOM_OWNER_SHINY"])
        yield embedded


@pytest.fixture
def aware(placement: EmbeddedPlacement) -> EmbeddedPlacement:
    """Return the Placement with every trait that a report creates."""
    placement.know((HPET, MARKER, NOTE))
    return placement


def host(seen: Observed, name: str = UUID) -> ProviderTraits:
    return ProviderTraits(seen.client, name, sleep=lambda _seconds: None)


def synced_twice(keeper: ProviderTraits) -> list[TraitChange]:
    """Return the changes of two rounds.

    Providers below the root get the owner trait in the second one.
    """
    return keeper.sync(GOAL) + keeper.sync(GOAL)


def once(
    matches: str, do: Callable[[], object]
) -> Callable[[str, str], Answer | None]:
    """Return a hook for the first request that contains ``matches``."""
    left = [do]

    def hook(method: str, url: str) -> Answer | None:
        if left and matches in f"{method} {url}":
            left.pop()()
        return None

    return hook


class TestReports:
    """What schedulers want comes and goes, and so do reports."""

    def test_unwanted_traits_go_an_hour_later_and_what_an_operator_set_stays(
        self, aware: EmbeddedPlacement
    ) -> None:
        """Also of an agent that starts meanwhile.

        It cannot know when an earlier one saw them wanted last.
        """
        put_traits(aware, lambda traits: traits.add("COMPUTE_FIRMWARE_UEFI"))
        now = [0.0]
        less = replace(GOAL, wanted=frozenset())
        keeper = ProviderTraits(
            Observed(aware).client, HOST, clock=lambda: now[0]
        )
        keeper.sync(GOAL)
        reported = traits_of(aware)
        now[0] = UNWANTED_AFTER - 2.0
        assert keeper.sync(less) == []
        assert traits_of(aware) == reported
        now[0] = UNWANTED_AFTER - 1.0
        assert host(Observed(aware)).sync(less) == []
        assert traits_of(aware) == reported
        # Wanted again, and no more when Placement answers again: a scheduler
        # may have read it a moment ago.
        keeper.sync(GOAL)
        now[0] += 2 * UNWANTED_AFTER
        assert keeper.sync(less) == []
        # Meanwhile it looks for others' changes once an hour.
        now[0] += RECHECK_INTERVAL
        changed = {change.trait for change in keeper.sync(less)}
        assert changed == {HPET, MARKER, NOTE}
        assert traits_of(aware) == {
            "COMPUTE_NODE",
            "CUSTOM_OF_AN_OPERATOR",
            "COMPUTE_FIRMWARE_UEFI",
            "OWNER_NOVA",
        }

    def test_its_own_changes_are_not_warned_of(
        self, aware: EmbeddedPlacement, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Also where a write fails, is lost or is overtaken."""
        seen = Observed(aware)
        keeper = host(seen, HOST)
        changed = replace(GOAL, traits={HPET: False, XEN: True})

        def write() -> None:
            put_traits(aware, lambda traits: traits.add("HW_CPU_X86_AVX"))

        keeper.sync(GOAL, dry_run=True)
        seen.hook = once(f"PUT {TRAITS}", write)
        keeper.sync(GOAL)
        responses: list[Answer] = [(409, {"errors": []}), (500, b"")]
        for response in responses:
            seen.hook = _answering_writes(response)
            with pytest.raises(errors.PlacementError):
                keeper.sync(changed)
        seen.hook = lambda _method, _url: None
        keeper.sync(replace(changed, wanted=None))
        keeper.sync(GOAL)
        keeper.sync(replace(GOAL, groups={}, unsure=_GROUPS))
        assert caplog.text == ""

    def test_changes_by_operators_and_nova_are_not_warned_of(
        self, aware: EmbeddedPlacement, caplog: pytest.LogCaptureFixture
    ) -> None:
        keeper = host(Observed(aware), HOST)
        keeper.sync(GOAL)
        theirs = {"CUSTOM_OF_AN_OPERATOR", "COMPUTE_FIRMWARE_UEFI"}
        put_traits(aware, lambda traits: traits.update(theirs))
        assert keeper.sync(GOAL) == []
        assert caplog.text == ""
        assert theirs <= traits_of(aware)

    def test_change_by_another_program_is_warned_of_once(
        self, aware: EmbeddedPlacement, caplog: pytest.LogCaptureFixture
    ) -> None:
        keeper = host(Observed(aware), HOST)
        keeper.sync(GOAL)
        message = (
            "Another program has changed the reported traits of the resource"
            f" provider {HOST}: run one for a host."
        )
        changes: list[set[str]] = [{HPET}, {XEN}, {MARKER, OLD}]
        for number, change in enumerate(changes, 1):
            put_traits(
                aware,
                lambda traits: traits.symmetric_difference_update(change),  # noqa: B023
            )
            keeper.sync(GOAL)
            keeper.sync(GOAL)
            assert HPET in traits_of(aware)
            assert caplog.messages == [message] * number


def _answering_writes(response: Answer) -> Callable[[str, str], Answer | None]:
    return lambda method, _url: response if method == "PUT" else None


_PC = "CUSTOM_COMPUTE_DEFAULT_MACHINE_PC"
_Q35 = "CUSTOM_COMPUTE_DEFAULT_MACHINE_Q35"


class TestOtherRelease:
    """An agent of a release whose group has other traits has reported.

    Its keys are unknown, and its note is read.
    """

    def _reported(self, placement: EmbeddedPlacement) -> None:
        unknown = {"OLDER": frozenset((_PC, _Q35, "CUSTOM_GONE"))}
        before = {_PC: True, _Q35: False, "CUSTOM_GONE": True}
        goal = Goal(before, unknown, frozenset(unknown))
        host(Observed(placement)).sync(goal)
        assert {_PC, "CUSTOM_GONE"} <= traits_of(placement)

    def test_what_the_host_has_lost_goes_and_what_an_operator_set_stays(
        self, placement: EmbeddedPlacement
    ) -> None:
        self._reported(placement)
        groups = {
            marker_key((_PC,)): frozenset((_PC,)),
            marker_key((_Q35,)): frozenset((_Q35,)),
        }
        now = [0.0]
        keeper = ProviderTraits(
            Observed(placement).client, HOST, clock=lambda: now[0]
        )
        wanted = frozenset((*groups, marker_key(("CUSTOM_GONE",))))
        goal = Goal({_PC: False, _Q35: True}, groups, wanted)
        kept = {"COMPUTE_NODE", "CUSTOM_OF_AN_OPERATOR", XEN, _Q35}
        keeper.sync(goal)
        # A scheduler still wants what this release does not know.
        assert self._without_markers(placement) == {*kept, "CUSTOM_GONE"}
        less = replace(goal, wanted=frozenset(groups))
        now[0] += UNWANTED_AFTER
        keeper.sync(less)
        now[0] += UNWANTED_AFTER
        keeper.sync(less)
        assert self._without_markers(placement) == kept

    def _without_markers(self, placement: EmbeddedPlacement) -> set[str]:
        traits = traits_of(placement)
        return {trait for trait in traits if "PREFILTER" not in trait}

    @pytest.mark.parametrize(
        ("trait", "mode"),
        [
            (_PC, Mode.BESIDE),
            ("COMPUTE_FIRMWARE_UEFI", Mode.BESIDE),
            ("COMPUTE_NET_VIF_MODEL_E1000E", Mode.ALONE),
        ],
    )
    @pytest.mark.parametrize("is_upgrade", [True, False])
    def test_release_with_one_trait_more_or_less_leaves_nothing_behind(
        self,
        trait: str,
        mode: Mode,
        *,
        is_upgrade: bool,
        placement: EmbeddedPlacement,
    ) -> None:
        """The host loses all while the second release runs; after a downgrade
        the trait goes at the next upgrade.
        """
        by_hand = {"COMPUTE_NODE", "CUSTOM_HYPERVISOR_TYPE_XEN"}
        placement.know(by_hand)
        put_traits(placement, lambda traits: traits.clear())
        put_traits(placement, lambda traits: traits.update(by_hand))
        one, two = release_without(trait), Release(table())
        if not is_upgrade:
            one, two = two, one
        # An older Placement refuses a standard trait of a newer os-traits.
        known = {
            each
            for each in capability_traits(KVM)
            if each.startswith("CUSTOM_") or each in os_traits.get_traits()
        }
        has = dict.fromkeys(known, True)
        lost = dict.fromkeys(has, False)
        wanted = one.keys | two.keys
        for release, can in ((one, has), (two, has), (two, lost)):
            goal = release.goal_of(KVM, can, wanted, mode)
            with release.installed():
                host(Observed(placement)).sync(goal)
        if not is_upgrade:
            assert self._without_markers(placement) <= (
                by_hand | (one.traits - two.traits)
            )
            goal = one.goal_of(KVM, lost, wanted, mode)
            with one.installed():
                host(Observed(placement)).sync(goal)
        assert self._without_markers(placement) == by_hand

    def test_removal_removes_all_of_it(
        self, placement: EmbeddedPlacement
    ) -> None:
        self._reported(placement)
        host(Observed(placement)).sync(Goal({}, {}, None))
        kept = {"COMPUTE_NODE", "CUSTOM_OF_AN_OPERATOR", XEN}
        assert traits_of(placement) == kept

    def test_change_of_the_note_by_another_program_is_warned_of(
        self, aware: EmbeddedPlacement, caplog: pytest.LogCaptureFixture
    ) -> None:
        keeper = host(Observed(aware))
        keeper.sync(GOAL)
        put_traits(aware, lambda traits: traits.remove(NOTE))
        keeper.sync(GOAL)
        assert "Another program has changed the reported traits" in caplog.text
        assert NOTE in traits_of(aware)


class TestOneReport:
    """A report that no later round follows."""

    @pytest.fixture
    def gpu(self) -> Iterator[EmbeddedPlacement]:
        root = provider(HOST, children=(provider("gpu", "VGPU"),))
        with EmbeddedPlacement(Fleet((root,))) as embedded:
            yield embedded

    def test_new_provider_gets_the_owner_in_a_second_round(
        self, gpu: EmbeddedPlacement
    ) -> None:
        changes = host(Observed(gpu), HOST).sync_once(GOAL)
        assert TraitChange("gpu", "OWNER_NOVA", "add") in changes
        assert set(ADDED) <= set(changes)
        assert "OWNER_NOVA" in traits_of(gpu, "gpu")

    def test_dry_run_changes_nothing(self, gpu: EmbeddedPlacement) -> None:
        before = traits_of(gpu), traits_of(gpu, "gpu")
        seen = Observed(gpu)
        changes = host(seen, HOST).sync_once(GOAL, dry_run=True)
        assert TraitChange("kvm-1", HPET, "add") in changes
        assert set(seen.methods) == {"GET"}
        assert (traits_of(gpu), traits_of(gpu, "gpu")) == before


_GPU = f"/resource_providers/{provider_uuid('gpu')}"


def _create_gpu(placement: EmbeddedPlacement) -> None:
    body = {
        "name": "gpu",
        "uuid": provider_uuid("gpu"),
        "parent_provider_uuid": UUID,
    }
    placement.client.request("POST", "/resource_providers", body)


def _set_inventory(placement: EmbeddedPlacement, name: str) -> None:
    body = {
        "resource_provider_generation": 0,
        "inventories": {name: {"total": 4}},
    }
    placement.client.request("PUT", f"{_GPU}/inventories", body)


class TestOwnership:
    def test_owner_trait_is_set_on_every_nova_provider_and_on_no_other(
        self,
    ) -> None:
        """Nova's GPU and SEV providers have it.

        Cyborg's, Neutron's, unknown ones, and all below those do not. Nor do
        PCI devices that nova-compute manages: before version 34 it
        would remove the trait each time.
        """
        nova = (
            provider("pci", "CUSTOM_PCI_8086_1572"),
            provider("gpu", "VGPU"),
            provider("licensed", "VGPU CUSTOM_LICENSE"),
            provider("sev", "MEM_ENCRYPTION_CONTEXT"),
            provider("marked", "FPGA", "OWNER_NOVA"),
        )
        bridge = provider(
            "br-ex", "NET_BW_EGR_KILOBIT_PER_SEC", "CUSTOM_VNIC_TYPE_NORMAL"
        )
        below = provider("cyborg_below", "VGPU")
        below_both = provider("both_below", "VGPU")
        others = (
            provider("cyborg", "VGPU", "OWNER_CYBORG", (below,)),
            provider("both", "VGPU", "OWNER_CYBORG OWNER_NOVA", (below_both,)),
            provider("agent", "", "", (bridge,)),
            provider("packets", "NET_PACKET_RATE_KILOPACKET_PER_SEC"),
            provider("vnic", "VGPU", "CUSTOM_VNIC_TYPE_DIRECT"),
            provider("fpga", "FPGA"),
            provider(
                "managed", "CUSTOM_PCI_10DE_1EB8", "COMPUTE_MANAGED_PCI_DEVICE"
            ),
            provider("managed-too", "PGPU", "COMPUTE_MANAGED_PCI_DEVICE"),
        )
        other_host = provider("kvm-2", "VCPU", "", (provider("x", "VGPU"),))
        fleet = Fleet((provider(HOST, children=(*others, *nova)), other_host))
        names = [each.name for each in fleet.walk()]
        owned = {HOST, "pci", "gpu", "licensed", "sev"}
        with EmbeddedPlacement(fleet) as placement:
            expected = {name: traits_of(placement, name) for name in names}
            changes = synced_twice(host(Observed(placement)))
            added, removed = (
                {
                    each.provider
                    for each in changes
                    if each.trait == "OWNER_NOVA" and each.change == change
                }
                for change in ("add", "remove")
            )
            assert added == owned
            assert removed == {"both"}
            for name in owned:
                expected[name] |= {"OWNER_NOVA"}
            expected["both"] -= {"OWNER_NOVA"}
            expected[HOST] |= {HPET, MARKER, NOTE}
            found = {name: traits_of(placement, name) for name in names}
            assert found == expected
            assert host(Observed(placement)).sync(GOAL) == []

    def test_owner_trait_is_not_set_on_or_below_a_root_of_another_owner(
        self,
    ) -> None:
        """Its capabilities are reported, as it was named explicitly."""
        gpu = provider("gpu", "VGPU")
        root = provider(HOST, traits="OWNER_CYBORG", children=(gpu,))
        with EmbeddedPlacement(Fleet((root,))) as placement:
            host(Observed(placement)).sync(GOAL)
            assert traits_of(placement) == {"OWNER_CYBORG", HPET, MARKER, NOTE}
            assert traits_of(placement, "gpu") == set()

    def test_new_nested_provider_gets_the_owner_trait_in_the_second_round(
        self, placement: EmbeddedPlacement
    ) -> None:
        """Of those that see its inventory."""
        keeper = host(Observed(placement))
        keeper.sync(GOAL)
        _create_gpu(placement)
        assert keeper.sync(GOAL) == []
        _set_inventory(placement, "VGPU")
        assert keeper.sync(GOAL) == []
        assert keeper.sync(GOAL) == [TraitChange("gpu", "OWNER_NOVA", "add")]

    def test_root_gets_the_owner_trait_after_all_that_is_below_it(
        self,
    ) -> None:
        """By the root's, schedulers see that all have it.

        A dry run shows what two rounds would change.
        """
        root = provider(HOST, children=(provider("gpu", "VGPU"),))
        added = [
            TraitChange("gpu", "OWNER_NOVA", "add"),
            TraitChange(HOST, "OWNER_NOVA", "add"),
        ]
        with EmbeddedPlacement(Fleet((root,))) as placement:
            keeper = host(Observed(placement))
            shown = host(Observed(placement)).sync(GOAL, dry_run=True)
            assert set(added) <= set(shown)
            keeper.sync(GOAL)
            assert "OWNER_NOVA" not in traits_of(placement)
            assert HPET in traits_of(placement)
            assert keeper.has_new_providers
            assert keeper.sync(GOAL) == added
            assert not keeper.has_new_providers

    def test_new_provider_below_a_root_with_the_owner_trait_changes_nothing_there(
        self,
    ) -> None:
        gpu = provider("gpu", "VGPU")
        root = provider(HOST, traits="OWNER_NOVA", children=(gpu,))
        with EmbeddedPlacement(Fleet((root,))) as placement:
            host(Observed(placement)).sync(GOAL)
            assert "OWNER_NOVA" in traits_of(placement)

    def test_owner_trait_is_removed_from_a_foreign_provider_and_all_below_it(
        self,
    ) -> None:
        below = provider("below", "VGPU", "OWNER_NOVA CUSTOM_X")
        gpu = provider("gpu", "VGPU", "OWNER_NOVA", (below,))
        root = provider(HOST, traits="OWNER_NOVA", children=(gpu,))
        with EmbeddedPlacement(Fleet((root,))) as placement:
            seen = Observed(placement)
            keeper = host(seen)
            keeper.sync(GOAL)
            put_traits(
                placement, lambda traits: traits.add("OWNER_CYBORG"), "gpu"
            )
            assert keeper.sync(GOAL) == [
                TraitChange("below", "OWNER_NOVA", "remove"),
                TraitChange("gpu", "OWNER_NOVA", "remove"),
            ]
            seen.sent.clear()
            assert keeper.sync(GOAL) == []
            assert seen.sent == [TREE]
            # Given to Nova.
            put_traits(
                placement, lambda traits: traits.remove("OWNER_CYBORG"), "gpu"
            )
            assert keeper.sync(GOAL) == []
            assert keeper.sync(GOAL) == [
                TraitChange("below", "OWNER_NOVA", "add"),
                TraitChange("gpu", "OWNER_NOVA", "add"),
            ]

    @pytest.mark.parametrize(
        "gaps",
        list(product(("", "round", "restart, round"), repeat=4))[:: one_in(4)],
        ids=", ".join,
    )
    def test_rounds_between_the_writes_of_another_service_leave_no_trait_behind(
        self, gaps: tuple[str, ...], shared: EmbeddedPlacement
    ) -> None:
        """Of that service only the owner trait is known.

        It writes that trait last, and keeps what it finds.
        """

        def add(trait: str) -> None:
            put_traits(shared, lambda traits: traits.add(trait), "gpu")

        writes: list[Callable[[], object]] = [
            lambda: _create_gpu(shared),
            lambda: _set_inventory(shared, "VGPU"),
            lambda: add("HW_GPU_API_VULKAN"),
            lambda: add("CUSTOM_OWNER_SHINY"),
        ]
        keeper = host(Observed(shared))
        rounds_with_inventory = 0
        for number, (write, gap) in enumerate(zip_equal(writes, gaps)):
            write()
            if "restart" in gap:
                keeper = host(Observed(shared))
                rounds_with_inventory = 0
            if "round" not in gap:
                continue
            keeper.sync(GOAL)
            if number >= 1:
                rounds_with_inventory += 1
            has_it = "OWNER_NOVA" in traits_of(shared, "gpu")
            if number == 3:
                assert not has_it
            elif rounds_with_inventory >= 2:
                assert has_it
            elif "restart" not in gap:
                assert not has_it
        keeper.sync(GOAL)
        expected = {"HW_GPU_API_VULKAN", "CUSTOM_OWNER_SHINY"}
        assert traits_of(shared, "gpu") == expected
        shared.client.request("DELETE", _GPU)


class TestRequestCount:
    """The cost of a report; most are of an unchanged host."""

    @pytest.mark.parametrize(
        ("name", "lookup"),
        [(UUID, []), (HOST, [f"GET /resource_providers?name={HOST}"])],
    )
    def test_first_sync_takes_four_requests_and_a_name_one_more_and_a_later_one_takes_one(
        self, aware: EmbeddedPlacement, name: str, lookup: list[str]
    ) -> None:
        seen = Observed(aware)
        keeper = host(seen, name)
        keeper.sync(GOAL)
        requests = [TREE, f"GET {TRAITS}", CUSTOM, f"PUT {TRAITS}"]
        assert seen.sent == [*lookup, *requests]
        seen.sent.clear()
        for _ in range(3):
            assert keeper.sync(replace(GOAL, owner=replace(_OWNER))) == []
        assert seen.sent == [TREE] * 3
        seen.sent.clear()
        assert host(seen).sync(GOAL) == []
        assert seen.sent == [TREE, f"GET {TRAITS}"]

    def test_only_a_provider_that_changed_is_read_again(self) -> None:
        """A new guest raises the generation of what it takes from."""
        children = (
            provider("gpu-0", "VGPU"),
            provider("gpu-1", "VGPU"),
            provider("gpu-2", "VGPU"),
            provider("fpga-0", "FPGA", "OWNER_CYBORG"),
            provider("fpga-1", "FPGA", "OWNER_CYBORG"),
        )
        gpu = provider_uuid("gpu-1")
        candidate = {"allocations": {gpu: {"resources": {"VGPU": 1}}}}
        root = provider(HOST, children=children)
        with EmbeddedPlacement(Fleet((root,))) as placement:
            seen = Observed(placement)
            keeper = host(seen)
            synced_twice(keeper)
            assert placement.client.claim(
                provider_uuid("guest"), candidate, project_id="p", user_id="u"
            )
            seen.sent.clear()
            assert keeper.sync(GOAL) == []
            assert seen.sent == [TREE, f"GET /resource_providers/{gpu}/traits"]
            seen.sent.clear()
            assert keeper.sync(GOAL) == []
            assert seen.sent == [TREE]


class TestConcurrentWriters:
    def test_generation_conflict_is_retried_from_a_fresh_read(
        self, placement: EmbeddedPlacement
    ) -> None:
        """What the other writer wrote survives.

        It is not written from an old read. A dry run shows the same.
        """

        def write_avx2() -> None:
            put_traits(placement, lambda traits: traits.add("HW_CPU_X86_AVX2"))

        write = f"PUT {TRAITS}"
        seen = Observed(placement, once(write, write_avx2))
        created = [
            TraitChange("", trait, "create") for trait in (HPET, MARKER, NOTE)
        ]
        assert host(seen).sync(GOAL, dry_run=True) == [*created, *CHANGES]
        read = [TREE, f"GET {TRAITS}"]
        assert seen.sent == [*read, CUSTOM]
        seen.sent.clear()
        assert host(seen).sync(GOAL) == [*created, *CHANGES]
        creations = [f"PUT /traits/{each.trait}" for each in created]
        assert seen.sent == [*read, CUSTOM, *creations, write, *read, write]
        theirs = {"COMPUTE_NODE", "CUSTOM_OF_AN_OPERATOR", "HW_CPU_X86_AVX2"}
        assert traits_of(placement) == {*theirs, *OURS}

    def test_change_before_the_traits_are_read_causes_no_generation_conflict(
        self, aware: EmbeddedPlacement
    ) -> None:
        """The write has the generation of the traits, as the cache has.

        That of the listing before is older.
        """

        def add(trait: str) -> None:
            put_traits(aware, lambda traits: traits.add(trait))

        read = f"GET {TRAITS}"
        seen = Observed(aware, once(read, lambda: add("HW_CPU_X86_AVX2")))
        keeper = host(seen)
        keeper.sync(GOAL)
        assert seen.sent == [TREE, read, CUSTOM, f"PUT {TRAITS}"]
        seen.hook = once(read, lambda: add("HW_CPU_X86_AVX"))
        put_traits(aware, lambda traits: traits.remove("HW_CPU_X86_AVX2"))
        assert keeper.sync(GOAL) == []
        seen.sent.clear()
        assert keeper.sync(GOAL) == []
        assert seen.sent == [TREE]

    def test_permanent_generation_conflict_fails_after_bounded_retries_with_advice(
        self, aware: EmbeddedPlacement
    ) -> None:
        before = everything(aware)
        waits: list[float] = []
        seen = Observed(aware, _answering_writes((409, {"errors": []})))
        keeper = ProviderTraits(seen.client, HOST, sleep=waits.append)
        message = (
            rf"'{HOST}'.*another writer changed it in each of 10 .*Try again"
        )
        # Random waits that are all in the upper half of what they may be.
        seed(916)
        with pytest.raises(errors.GenerationConflict, match=message):
            keeper.sync(GOAL)
        assert seen.methods.count("PUT") == ATTEMPTS
        bounds = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0)
        assert len(waits) == ATTEMPTS - 1
        shares = [wait / bound for wait, bound in zip_equal(waits, bounds)]
        assert min(shares) > 0.5
        assert max(shares) < 1
        # Else two writers wait equally long, and collide again.
        assert min(shares) < max(shares)
        assert everything(aware) == before

    def test_provider_deleted_before_the_write_raises_unknown_provider(
        self, aware: EmbeddedPlacement
    ) -> None:
        def delete() -> None:
            aware.client.request("DELETE", f"/resource_providers/{UUID}")

        keeper = host(Observed(aware, once(f"PUT {TRAITS}", delete)))
        message = f"has no resource provider '{UUID}'. nova-compute creates it"
        with pytest.raises(errors.UnknownProvider, match=message):
            keeper.sync(GOAL)

    @pytest.mark.parametrize("at", ["traits", "inventories"])
    def test_nested_provider_deleted_during_sync_does_not_affect_the_others(
        self, at: str
    ) -> None:
        gone = f"/resource_providers/{provider_uuid('gpu-1')}"
        children = (provider("gpu-1", "VGPU"), provider("gpu-2", "VGPU"))
        root = provider(HOST, children=children)
        with EmbeddedPlacement(Fleet((root,))) as placement:
            hook = once(
                f"GET {gone}/{at}",
                lambda: placement.client.request("DELETE", gone),
            )
            synced_twice(host(Observed(placement, hook)))
            assert {HPET, "OWNER_NOVA"} <= traits_of(placement)
            assert traits_of(placement, "gpu-2") == {"OWNER_NOVA"}

    @pytest.mark.parametrize("at", ["GET", "PUT"])
    @pytest.mark.parametrize("change", ["traits", "inventory"])
    def test_provider_that_changes_owner_during_sync_gets_no_owner_trait(
        self, change: str, at: str
    ) -> None:
        """Between the first and the second look at it, or before the write."""
        requests = {
            "GET": f"GET {_GPU}/inventories",
            "PUT": f"PUT {_GPU}/traits",
        }
        matches = requests[at]
        root = provider(HOST, children=(provider("gpu", "VGPU"),))
        with EmbeddedPlacement(Fleet((root,))) as placement:

            def turn() -> None:
                if change == "inventory":
                    _set_inventory(placement, "FPGA")
                    return
                put_traits(
                    placement, lambda traits: traits.add("OWNER_CYBORG"), "gpu"
                )

            seen = Observed(placement)
            keeper = host(seen)
            keeper.sync(GOAL)
            seen.hook = once(matches, turn)
            keeper.sync(GOAL)
            assert "OWNER_NOVA" not in traits_of(placement, "gpu")

    def test_trait_deleted_before_the_write_is_created_again_unless_it_is_deleted_each_time(
        self, aware: EmbeddedPlacement
    ) -> None:
        def delete(method: str = "PUT", url: str = TRAITS) -> None:
            if (method, url) == ("PUT", TRAITS):
                aware.client.request("DELETE", f"/traits/{HPET}")

        with pytest.raises(errors.UnknownTraits, match=HPET):
            host(Observed(aware, delete)).sync(GOAL)
        aware.know([HPET])
        keeper = host(Observed(aware, once(f"PUT {TRAITS}", delete)))
        assert TraitChange("", HPET, "create") in keeper.sync(GOAL)
        assert HPET in traits_of(aware)

    def test_standard_trait_that_placement_lacks_is_named_without_a_retry(
        self, aware: EmbeddedPlacement
    ) -> None:
        before = traits_of(aware)
        seen = Observed(aware)
        unknown = "COMPUTE_OF_TOMORROW"
        groups = {"NEWER": frozenset((unknown,))}
        goal = Goal({unknown: True}, groups, frozenset(groups))
        message = f"{unknown}. A standard trait needs a newer os-traits"
        with pytest.raises(errors.UnknownTraits, match=message):
            host(seen).sync(goal)
        assert seen.sent.count(f"PUT {TRAITS}") == 1
        assert traits_of(aware) == before

    @pytest.mark.parametrize(
        "successor", [True, False], ids=["with a new one", "alone"]
    )
    def test_renamed_provider_is_left_alone_and_the_new_one_of_the_name_is_reported(
        self, aware: EmbeddedPlacement, successor: bool
    ) -> None:
        seen = Observed(aware)
        keeper = host(seen, HOST)
        keeper.sync(GOAL)
        aware.client.request(
            "PUT", f"/resource_providers/{UUID}", {"name": "kvm-1-replaced"}
        )
        put_traits(aware, lambda traits: traits.discard(HPET))
        seen.sent.clear()
        if successor:
            body = {"name": HOST, "uuid": provider_uuid("again")}
            aware.client.request("POST", "/resource_providers", body)
            assert keeper.sync(GOAL) == ADDED
            assert traits_of(aware, "again") >= OURS
        else:
            with pytest.raises(errors.UnknownProvider, match=HOST):
                keeper.sync(GOAL)
        assert HPET not in traits_of(aware)
        assert f"PUT {TRAITS}" not in seen.sent

    @pytest.mark.parametrize(
        "seen_gone", [True, False], ids=["seen gone", "an hour later"]
    )
    def test_recreated_provider_with_the_old_uuid_and_generation_is_reported(
        self, aware: EmbeddedPlacement, seen_gone: bool
    ) -> None:
        """Generations count from 0 again, and may come to the cached one."""
        now = [0.0]
        keeper = ProviderTraits(
            Observed(aware).client, HOST, clock=lambda: now[0]
        )
        keeper.sync(GOAL)
        request = aware.client.request
        url = f"/resource_providers/{UUID}"
        remembered = request("GET", url)["generation"]
        request("DELETE", url)
        if seen_gone:
            with pytest.raises(errors.UnknownProvider):
                keeper.sync(GOAL)
        request("POST", "/resource_providers", {"name": HOST, "uuid": UUID})
        while request("GET", url)["generation"] < remembered:
            put_traits(aware, lambda traits: traits.add("COMPUTE_NODE"))
        now[0] = 0.0 if seen_gone else RECHECK_INTERVAL
        assert TraitChange(HOST, HPET, "add") in keeper.sync(GOAL)


class TestProviderAndTraitNames:
    @pytest.mark.parametrize(
        "name",
        ["kvm-1&name=kvm-1", "kvm 1?#/%", provider_uuid("no"), "a\nb\x1b["],
        ids=["query", "URL", "UUID", "unprintable"],
    )
    def test_unknown_provider_name_raises_unknown_provider_and_writes_nothing(
        self, aware: EmbeddedPlacement, name: str
    ) -> None:
        # Its name is not a UUID by which it is found.
        body = {"name": provider_uuid("no"), "uuid": provider_uuid("x")}
        aware.client.request("POST", "/resource_providers", body)
        before = everything(aware)
        message = "nova-compute creates it when it starts"
        with pytest.raises(errors.UnknownProvider, match=message) as raised:
            host(Observed(aware), name).sync(GOAL)
        assert str(raised.value).isprintable()
        assert everything(aware) == before

    def test_a_name_with_any_character_is_found(self) -> None:
        name = "kvm-1&name=x #/%ü"
        fleet = Fleet((provider(name), provider("kvm-1")))
        with EmbeddedPlacement(fleet) as placement:
            changes = host(Observed(placement), name).sync(GOAL)
            assert TraitChange(name, HPET, "add") in changes

    def test_nested_provider_is_refused_as_the_host(self) -> None:
        root = provider(HOST, children=(provider("gpu", "VGPU"),))
        message = "Name the root provider of the host"
        with EmbeddedPlacement(Fleet((root,))) as placement:
            keeper = host(Observed(placement), "gpu")
            with pytest.raises(errors.ConfigurationError, match=message):
                keeper.sync(GOAL)
            assert traits_of(placement, "gpu") == set()

    @pytest.mark.parametrize("has", [True, False], ids=["has", "lacks"])
    @pytest.mark.parametrize(
        "name",
        ["custom_x", "CUSTOM_A/../../x?y", "CUSTOM_" + "X" * 300, ""],
        ids=["small letters", "URL", "long", "empty"],
    )
    def test_invalid_trait_name_is_refused_before_any_request(
        self, placement: EmbeddedPlacement, name: str, has: bool
    ) -> None:
        seen = Observed(placement)
        message = "is not the name of a trait"
        with pytest.raises(errors.ConfigurationError, match=message):
            host(seen).sync(replace(GOAL, traits={name: has}))
        assert seen.sent == []


ROW = {
    "uuid": UUID,
    "name": HOST,
    "generation": 0,
    "parent_provider_uuid": None,
}
WRONG: list[tuple[str, Answer]] = [
    ("in_tree", (200, {})),
    ("in_tree", (200, {"resource_providers": [{**ROW, "uuid": "../traits"}]})),
    ("in_tree", (200, {"resource_providers": [{**ROW, "generation": "x"}]})),
    ("in_tree", (200, b"<html>Welcome</html>")),
    ("in_tree", (404, b"<html>no Placement here</html>")),
    (TRAITS, (200, {})),
    (TRAITS, (200, {"traits": [], "resource_provider_generation": None})),
    (
        TRAITS,
        (200, {"traits": "COMPUTE_NODE", "resource_provider_generation": 0}),
    ),
    (TRAITS, (200, {"traits": ["a b"], "resource_provider_generation": 0})),
    (TRAITS, (503, b"")),
    ("startswith", (200, {"traits": 7})),
]


@pytest.mark.parametrize(("at", "response"), WRONG, ids=range(len(WRONG)))
def test_malformed_or_error_response_raises_and_nothing_is_written(
    at: str, response: Answer, placement: EmbeddedPlacement
) -> None:
    """Traits that were not read are not traits that a host lacks."""
    before = everything(placement)
    seen = Observed(placement, answering(response, at))
    with pytest.raises(
        (errors.PlacementUnavailable, errors.PlacementRefused)
    ) as raised:
        host(seen).sync(GOAL)
    assert str(raised.value).isprintable()
    assert "PUT" not in seen.methods
    assert everything(placement) == before


@pytest.mark.parametrize(
    "response",
    [(500, b""), (200, b"garbage"), (403, {"errors": [{"detail": "no"}]})],
    ids=["failed", "garbage", "refused"],
)
def test_unconfirmed_write_is_made_again_on_the_next_sync(
    aware: EmbeddedPlacement, response: Answer
) -> None:
    """It may have been done or not: nothing of it is cached."""
    seen = Observed(aware, _answering_writes(response))
    keeper = host(seen)
    with pytest.raises(errors.PlacementError):
        keeper.sync(GOAL)
    seen.hook = lambda _method, _url: None
    assert {change.trait for change in keeper.sync(GOAL)} == {*OURS, XEN, OLD}


def test_providers_of_other_hosts_in_a_response_are_not_changed() -> None:
    """As of a Placement, or a proxy, that ignores the query."""
    fleet = Fleet((provider("aaa"), provider(HOST), provider("zzz")))
    with EmbeddedPlacement(fleet) as placement:
        every = placement.client.request("GET", "/resource_providers")
        hook = answering((200, every), "/resource_providers?")
        host(Observed(placement, hook), HOST).sync(GOAL)
        assert HPET in traits_of(placement)
        assert traits_of(placement, "aaa") == set()
        assert traits_of(placement, "zzz") == set()
