# SPDX-License-Identifier: Apache-2.0

"""Reconciling the traits of a host on a real Placement: what is written, with
how many requests, and who overtakes.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import product
from random import seed

import pytest

from os_prefilter import Options
from os_prefilter.adapters.placement.trait_sync import (
    ATTEMPTS,
    RECHECK_INTERVAL,
    UNWANTED_AFTER,
    ProviderTraits,
)
from os_prefilter.common import errors
from os_prefilter.hosts.desired_traits import Goal, TraitChange
from os_prefilter.hosts.marker_traits import (
    REPORTED,
    marker_key,
    names_noting,
    names_with,
)
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.fleet.model import Fleet, provider_uuid
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

HPET = "CUSTOM_COMPUTE_TIME_HPET"
XEN = "CUSTOM_VM_MODE_XEN"
_TRAITS = {HPET: True, XEN: False}
_GROUPS = {marker_key((trait,)): frozenset((trait,)) for trait in _TRAITS}
_OWNER = Options(foreign_owner_traits=("OWNER_CYBORG", "CUSTOM_OWNER_SHINY"))
GOAL = Goal(_TRAITS, _GROUPS, frozenset(_GROUPS), _OWNER)
(MARKER,), (OLD,) = (
    names_with(REPORTED, keys) for keys in (_GROUPS, [marker_key((XEN,))])
)
(NOTE,) = names_noting([HPET])
OURS = {HPET, MARKER, NOTE, "OWNER_NOVA"}
ADDED = [TraitChange("kvm-1", trait, "add") for trait in sorted(OURS)]
CHANGES = [
    *ADDED,
    *(TraitChange("kvm-1", trait, "remove") for trait in (OLD, XEN)),
]
BELOW_HOST, GPU = {"parent_provider_uuid": UUID}, {"VGPU": {"total": 4}}
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
    """Return the changes of two rounds: providers below the root get the owner
    trait in the second one.
    """
    return keeper.sync(GOAL) + keeper.sync(GOAL)


def once(
    matches: str, do: Callable[[], object]
) -> Callable[[str, str], Answer | None]:
    """Return a hook that does something before the first request that contains
    ``matches``.
    """
    left = [do]

    def hook(method: str, url: str) -> Answer | None:
        if left and matches in f"{method} {url}":
            left.pop()()
        return None

    return hook


class TestReports:
    """What schedulers want comes and goes, and so does what reports on the
    host.
    """

    def test_unwanted_traits_go_an_hour_later_and_what_an_operator_set_stays(
        self, aware: EmbeddedPlacement
    ) -> None:
        """Also of an agent that starts meanwhile, as it cannot know when an
        earlier one saw them wanted last.
        """
        put_traits(aware, lambda traits: traits.add("COMPUTE_FIRMWARE_UEFI"))
        now, less = [0.0], replace(GOAL, wanted=frozenset())
        keeper = ProviderTraits(
            Observed(aware).client, HOST, clock=lambda: now[0]
        )
        keeper.sync(GOAL)
        reported = traits_of(aware)
        for now[0], again in (
            (UNWANTED_AFTER - 2.0, keeper),
            (UNWANTED_AFTER - 1.0, host(Observed(aware))),
        ):
            assert (again.sync(less), traits_of(aware)) == ([], reported)
        # Wanted again, and no more when Placement answers again: a scheduler
        # may have read it a moment ago.
        keeper.sync(GOAL)
        now[0] += 2 * UNWANTED_AFTER
        assert keeper.sync(less) == []
        # Meanwhile it looks for others' changes once an hour.
        now[0] += RECHECK_INTERVAL
        assert {change.trait for change in keeper.sync(less)} == {
            HPET,
            MARKER,
            NOTE,
        }
        assert traits_of(aware) == {
            "COMPUTE_NODE",
            "CUSTOM_OF_AN_OPERATOR",
            "COMPUTE_FIRMWARE_UEFI",
            "OWNER_NOVA",
        }

    def test_only_a_change_by_another_program_is_warned_of_and_once(
        self, aware: EmbeddedPlacement, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Not its own, also where a write fails, is lost or is overtaken; nor
        what operators and Nova set.
        """
        seen = Observed(aware)
        keeper, changed = (
            host(seen, HOST),
            replace(GOAL, traits={HPET: False, XEN: True}),
        )
        keeper.sync(GOAL, dry_run=True)
        for goal, hook in (
            (
                GOAL,
                once(
                    f"PUT {TRAITS}",
                    lambda: put_traits(
                        aware, lambda traits: traits.add("HW_CPU_X86_AVX")
                    ),
                ),
            ),
            (
                changed,
                lambda method, _url: (
                    (409, {"errors": []}) if method == "PUT" else None
                ),
            ),
            (
                changed,
                lambda method, _url: (500, b"") if method == "PUT" else None,
            ),
            (replace(changed, wanted=None), lambda _method, _url: None),
            (GOAL, lambda _method, _url: None),
            (
                replace(GOAL, groups={}, unsure=_GROUPS),
                lambda _method, _url: None,
            ),
        ):
            seen.hook = hook
            with suppress(errors.PlacementError):
                keeper.sync(goal)
        put_traits(
            aware,
            lambda traits: traits.update(
                {"CUSTOM_OF_AN_OPERATOR", "COMPUTE_FIRMWARE_UEFI"}
            ),
        )
        assert (keeper.sync(GOAL), caplog.text) == ([], "")
        changes: list[set[str]] = [{HPET}, {XEN}, {MARKER, OLD}]
        for number, change in enumerate(changes, 1):
            put_traits(
                aware,
                lambda traits: traits.symmetric_difference_update(change),  # noqa: B023
            )
            for _ in range(2):
                keeper.sync(GOAL)
            assert {HPET, "COMPUTE_FIRMWARE_UEFI"} <= traits_of(aware)
            problem = (
                "Another program has changed the reported traits of the"
                f" resource provider {HOST}"
            )
            assert (
                caplog.messages == [f"{problem}: run one for a host."] * number
            )


_PC, _Q35 = (
    "CUSTOM_COMPUTE_DEFAULT_MACHINE_PC",
    "CUSTOM_COMPUTE_DEFAULT_MACHINE_Q35",
)


class TestOtherRelease:
    """An agent of a release whose group has other traits has reported: its keys
    are unknown, and its note is read.
    """

    def _reported(self, placement: EmbeddedPlacement) -> None:
        unknown = {"OLDER": frozenset((_PC, _Q35, "CUSTOM_GONE"))}
        before = {_PC: True, _Q35: False, "CUSTOM_GONE": True}
        host(Observed(placement)).sync(
            Goal(before, unknown, frozenset(unknown))
        )
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
        goal = Goal(
            {_PC: False, _Q35: True},
            groups,
            frozenset((*groups, marker_key(("CUSTOM_GONE",)))),
        )
        keeper.sync(goal)
        # A scheduler still wants what this release does not know.
        expected = {_Q35, "CUSTOM_GONE", "CUSTOM_OF_AN_OPERATOR", XEN}
        assert {
            trait for trait in traits_of(placement) if "PREFILTER" not in trait
        } == {"COMPUTE_NODE", *expected}
        now[0] += UNWANTED_AFTER
        keeper.sync(replace(goal, wanted=frozenset(groups)))
        now[0] += UNWANTED_AFTER
        keeper.sync(replace(goal, wanted=frozenset(groups)))
        expected -= {"CUSTOM_GONE"}
        assert {
            trait for trait in traits_of(placement) if "PREFILTER" not in trait
        } == {"COMPUTE_NODE", *expected}

    def test_removal_removes_all_of_it(
        self, placement: EmbeddedPlacement
    ) -> None:
        self._reported(placement)
        host(Observed(placement)).sync(Goal({}, {}, None))
        assert traits_of(placement) == {
            "COMPUTE_NODE",
            "CUSTOM_OF_AN_OPERATOR",
            XEN,
        }

    def test_change_of_the_note_by_another_program_is_warned_of(
        self, aware: EmbeddedPlacement, caplog: pytest.LogCaptureFixture
    ) -> None:
        keeper = host(Observed(aware))
        keeper.sync(GOAL)
        put_traits(aware, lambda traits: traits.remove(NOTE))
        keeper.sync(GOAL)
        assert "Another program has changed the reported traits" in caplog.text
        assert NOTE in traits_of(aware)


class TestOwnership:
    def test_owner_trait_is_set_on_every_nova_provider_and_on_no_other(
        self,
    ) -> None:
        """Nova's GPU and SEV providers have it; Cyborg's, Neutron's, unknown
        ones, and all below those do not.

        Nor do PCI devices that nova-compute manages: before version 34 it
        would remove the trait each time.
        """
        nova = (
            provider("pci", "CUSTOM_PCI_8086_1572"),
            provider("gpu", "VGPU"),
            provider("licensed", "VGPU CUSTOM_LICENSE"),
            provider("sev", "MEM_ENCRYPTION_CONTEXT"),
            provider("marked", "FPGA", "OWNER_NOVA"),
        )
        others = (
            provider(
                "cyborg",
                "VGPU",
                "OWNER_CYBORG",
                (provider("cyborg_below", "VGPU"),),
            ),
            provider(
                "both",
                "VGPU",
                "OWNER_CYBORG OWNER_NOVA",
                (provider("both_below", "VGPU"),),
            ),
            provider(
                "agent",
                "",
                "",
                (
                    provider(
                        "br-ex",
                        "NET_BW_EGR_KILOBIT_PER_SEC",
                        "CUSTOM_VNIC_TYPE_NORMAL",
                    ),
                ),
            ),
            provider("packets", "NET_PACKET_RATE_KILOPACKET_PER_SEC"),
            provider("vnic", "VGPU", "CUSTOM_VNIC_TYPE_DIRECT"),
            provider("fpga", "FPGA"),
            provider(
                "managed", "CUSTOM_PCI_10DE_1EB8", "COMPUTE_MANAGED_PCI_DEVICE"
            ),
            provider("managed-too", "PGPU", "COMPUTE_MANAGED_PCI_DEVICE"),
        )
        fleet = Fleet(
            (
                provider(HOST, children=(*others, *nova)),
                provider("kvm-2", "VCPU", "", (provider("x", "VGPU"),)),
            )
        )
        with EmbeddedPlacement(fleet) as placement:
            before = {
                each.name: traits_of(placement, each.name)
                for each in fleet.walk()
            }
            changes = synced_twice(host(Observed(placement)))
            owned = {HOST, "pci", "gpu", "licensed", "sev"}
            changed = {
                (each.provider, each.change)
                for each in changes
                if each.trait == "OWNER_NOVA"
            }
            assert changed == {
                ("both", "remove"),
                *((name, "add") for name in owned),
            }
            for each in fleet.walk():
                expected = before[each.name] | (
                    {"OWNER_NOVA"} if each.name in owned else set()
                )
                if each.name == "both":
                    expected -= {"OWNER_NOVA"}
                assert (
                    traits_of(placement, each.name) - {HPET, MARKER, NOTE}
                    == expected
                )
            assert HPET in traits_of(placement)
            assert not any(
                HPET in traits_of(placement, each.name)
                for each in fleet.walk()
                if each.name != HOST
            )
            assert host(Observed(placement)).sync(GOAL) == []

    def test_owner_trait_is_not_set_on_or_below_a_root_of_another_owner(
        self,
    ) -> None:
        """Its capabilities are reported all the same, as it was named
        explicitly.
        """
        root = provider(
            HOST, traits="OWNER_CYBORG", children=(provider("gpu", "VGPU"),)
        )
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
        body = {
            "name": "gpu",
            "uuid": provider_uuid("gpu"),
            "parent_provider_uuid": UUID,
        }
        placement.client.request("POST", "/resource_providers", body)
        assert keeper.sync(GOAL) == []
        inventory = {
            "resource_provider_generation": 0,
            "inventories": {"VGPU": {"total": 4}},
        }
        placement.client.request(
            "PUT",
            f"/resource_providers/{provider_uuid('gpu')}/inventories",
            inventory,
        )
        assert keeper.sync(GOAL) == []
        assert keeper.sync(GOAL) == [TraitChange("gpu", "OWNER_NOVA", "add")]

    def test_root_gets_the_owner_trait_after_all_that_is_below_it(
        self,
    ) -> None:
        """By the root's, schedulers see that all have it. A dry run shows what
        two rounds would change.
        """
        gpu = provider("gpu", "VGPU")
        with EmbeddedPlacement(
            Fleet((provider(HOST, children=(gpu,)),))
        ) as placement:
            keeper = host(Observed(placement))
            added = [
                TraitChange("gpu", "OWNER_NOVA", "add"),
                TraitChange(HOST, "OWNER_NOVA", "add"),
            ]
            assert set(added) <= set(
                host(Observed(placement)).sync(GOAL, dry_run=True)
            )
            keeper.sync(GOAL)
            assert "OWNER_NOVA" not in traits_of(placement)
            assert HPET in traits_of(placement)
            assert keeper.has_new_providers
            assert keeper.sync(GOAL) == added
            assert not keeper.has_new_providers

    def test_new_provider_below_a_root_with_the_owner_trait_changes_nothing_there(
        self,
    ) -> None:
        root = provider(
            HOST, traits="OWNER_NOVA", children=(provider("gpu", "VGPU"),)
        )
        with EmbeddedPlacement(Fleet((root,))) as placement:
            host(Observed(placement)).sync(GOAL)
            assert "OWNER_NOVA" in traits_of(placement)

    def test_owner_trait_is_taken_back_beside_a_foreign_one_and_below_that_provider(
        self,
    ) -> None:
        below = provider("below", "VGPU", "OWNER_NOVA CUSTOM_X")
        gpu = provider("gpu", "VGPU", "OWNER_NOVA", (below,))
        with EmbeddedPlacement(
            Fleet((provider(HOST, traits="OWNER_NOVA", children=(gpu,)),))
        ) as placement:
            seen = Observed(placement)
            keeper = host(seen)
            keeper.sync(GOAL)
            put_traits(
                placement, lambda traits: traits.add("OWNER_CYBORG"), "gpu"
            )
            taken_back = [
                TraitChange(name, "OWNER_NOVA", "remove")
                for name in ("below", "gpu")
            ]
            assert keeper.sync(GOAL) == taken_back
            seen.sent.clear()
            assert keeper.sync(GOAL) == []
            assert seen.sent == [TREE]
            # Given to Nova.
            put_traits(
                placement, lambda traits: traits.remove("OWNER_CYBORG"), "gpu"
            )
            assert keeper.sync(GOAL) == []
            assert keeper.sync(GOAL) == [
                TraitChange(name, "OWNER_NOVA", "add")
                for name in ("below", "gpu")
            ]

    @pytest.mark.parametrize(
        "gaps",
        list(product(("", "round", "restart, round"), repeat=4)),
        ids=", ".join,
    )
    def test_rounds_between_the_writes_of_another_service_leave_no_trait_behind(
        self, gaps: tuple[str, ...], shared: EmbeddedPlacement
    ) -> None:
        """A service of which nothing is known but its owner trait, which it
        writes last, and keeps what it finds.
        """
        url, request = (
            f"/resource_providers/{provider_uuid('gpu')}",
            shared.client.request,
        )
        writes: list[Callable[[], object]] = [
            lambda: request(
                "POST",
                "/resource_providers",
                {"uuid": provider_uuid("gpu"), "name": "gpu"} | BELOW_HOST,
            ),
            lambda: request(
                "PUT",
                f"{url}/inventories",
                {"resource_provider_generation": 0, "inventories": GPU},
            ),
            lambda: put_traits(
                shared, lambda traits: traits.add("HW_GPU_API_VULKAN"), "gpu"
            ),
            lambda: put_traits(
                shared, lambda traits: traits.add("CUSTOM_OWNER_SHINY"), "gpu"
            ),
        ]
        keeper, rounds_with_inventory = host(Observed(shared)), 0
        for number, (write, gap) in enumerate(zip(writes, gaps, strict=True)):
            write()
            if "restart" in gap:
                keeper, rounds_with_inventory = host(Observed(shared)), 0
            if "round" not in gap:
                continue
            keeper.sync(GOAL)
            rounds_with_inventory += number >= 1
            has_it = "OWNER_NOVA" in traits_of(shared, "gpu")
            if number == 3 or rounds_with_inventory < 2:
                assert not has_it or (number < 3 and "restart" in gap)
            else:
                assert has_it
        keeper.sync(GOAL)
        assert traits_of(shared, "gpu") == {
            "HW_GPU_API_VULKAN",
            "CUSTOM_OWNER_SHINY",
        }
        request("DELETE", url)


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
        assert seen.sent == [
            *lookup,
            TREE,
            f"GET {TRAITS}",
            CUSTOM,
            f"PUT {TRAITS}",
        ]
        seen.sent.clear()
        for _ in range(3):
            assert keeper.sync(replace(GOAL, owner=replace(_OWNER))) == []
        assert seen.sent == [TREE] * 3
        seen.sent.clear()
        assert (host(seen).sync(GOAL), seen.sent) == (
            [],
            [TREE, f"GET {TRAITS}"],
        )

    def test_only_a_provider_that_changed_is_read_again(self) -> None:
        """A new guest raises the generation of what it takes from."""
        children = tuple(
            provider(f"gpu-{number}", "VGPU") for number in range(3)
        )
        others = tuple(
            provider(f"fpga-{number}", "FPGA", "OWNER_CYBORG")
            for number in range(2)
        )
        with EmbeddedPlacement(
            Fleet((provider(HOST, children=(*children, *others)),))
        ) as placement:
            seen = Observed(placement)
            keeper = host(seen)
            synced_twice(keeper)
            gpu = provider_uuid("gpu-1")
            consumer = {
                "project_id": "p",
                "user_id": "u",
                "consumer_generation": None,
                "consumer_type": "INSTANCE",
            }
            body = {
                "allocations": {gpu: {"resources": {"VGPU": 1}}},
                **consumer,
            }
            placement.client.request(
                "PUT", f"/allocations/{provider_uuid('guest')}", body
            )
            seen.sent.clear()
            assert (keeper.sync(GOAL), seen.sent) == (
                [],
                [TREE, f"GET /resource_providers/{gpu}/traits"],
            )
            seen.sent.clear()
            assert (keeper.sync(GOAL), seen.sent) == ([], [TREE])


class TestConcurrentWriters:
    def test_generation_conflict_is_retried_from_a_fresh_read(
        self, placement: EmbeddedPlacement
    ) -> None:
        """What the other writer wrote survives, and is not written from an old
        read. A dry run tells the same.
        """
        hook = once(
            f"PUT {TRAITS}",
            lambda: put_traits(
                placement, lambda traits: traits.add("HW_CPU_X86_AVX2")
            ),
        )
        seen = Observed(placement, hook)
        created = [
            TraitChange("", trait, "create") for trait in (HPET, MARKER, NOTE)
        ]
        assert (
            host(seen).sync(GOAL, dry_run=True)
            == host(seen).sync(GOAL)
            == [*created, *CHANGES]
        )
        assert traits_of(placement) == {
            "COMPUTE_NODE",
            "CUSTOM_OF_AN_OPERATOR",
            *OURS,
            "HW_CPU_X86_AVX2",
        }
        read, write = [TREE, f"GET {TRAITS}"], f"PUT {TRAITS}"
        creations = [f"PUT /traits/{each.trait}" for each in created]
        assert seen.sent == [
            *read,
            CUSTOM,
            *read,
            CUSTOM,
            *creations,
            write,
            *read,
            write,
        ]

    def test_change_before_the_traits_are_read_causes_no_generation_conflict(
        self, aware: EmbeddedPlacement
    ) -> None:
        """The write has the generation of the traits, not that of the listing
        before; so does what is remembered.
        """
        hook = once(
            f"GET {TRAITS}",
            lambda: put_traits(
                aware, lambda traits: traits.add("HW_CPU_X86_AVX2")
            ),
        )
        seen = Observed(aware, hook)
        keeper = host(seen)
        keeper.sync(GOAL)
        assert seen.sent == [TREE, f"GET {TRAITS}", CUSTOM, f"PUT {TRAITS}"]
        seen.hook = once(
            f"GET {TRAITS}",
            lambda: put_traits(
                aware, lambda traits: traits.add("HW_CPU_X86_AVX")
            ),
        )
        put_traits(aware, lambda traits: traits.remove("HW_CPU_X86_AVX2"))
        assert keeper.sync(GOAL) == []
        seen.sent.clear()
        assert (keeper.sync(GOAL), seen.sent) == ([], [TREE])

    def test_permanent_generation_conflict_fails_after_bounded_retries_with_advice(
        self, aware: EmbeddedPlacement
    ) -> None:
        before = everything(aware)
        waits: list[float] = []
        seen = Observed(
            aware,
            lambda method, url: (
                (409, {"errors": []})
                if (method, url) == ("PUT", TRAITS)
                else None
            ),
        )
        seed(
            916
        )  # Random waits that are all in the upper half of what they may be.
        with pytest.raises(
            errors.GenerationConflict,
            match=(
                rf"'{HOST}'.*another writer changed it in each of 10 .*Try"
                r" again"
            ),
        ):
            ProviderTraits(seen.client, HOST, sleep=waits.append).sync(GOAL)
        assert seen.methods.count("PUT") == ATTEMPTS == len(waits) + 1
        shares = [
            wait / bound
            for wait, bound in zip(
                waits, (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2, 2, 2), strict=True
            )
        ]
        assert 0.5 < min(shares) < max(shares) < 1
        assert everything(aware) == before

    def test_provider_deleted_before_the_write_raises_unknown_provider(
        self, aware: EmbeddedPlacement
    ) -> None:
        delete = once(
            f"PUT {TRAITS}",
            lambda: aware.client.request(
                "DELETE", f"/resource_providers/{UUID}"
            ),
        )
        with pytest.raises(
            errors.UnknownProvider,
            match=(
                f"has no resource provider '{UUID}'. nova-compute creates it"
            ),
        ):
            host(Observed(aware, delete)).sync(GOAL)

    @pytest.mark.parametrize("at", ["traits", "inventories"])
    def test_nested_provider_deleted_during_sync_does_not_affect_the_others(
        self, at: str
    ) -> None:
        gone = f"/resource_providers/{provider_uuid('gpu-1')}"
        children = (provider("gpu-1", "VGPU"), provider("gpu-2", "VGPU"))
        with EmbeddedPlacement(
            Fleet((provider(HOST, children=children),))
        ) as placement:
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
        url = f"/resource_providers/{provider_uuid('gpu')}"
        with EmbeddedPlacement(
            Fleet((provider(HOST, children=(provider("gpu", "VGPU"),)),))
        ) as placement:

            def turn() -> None:
                if change == "traits":
                    put_traits(
                        placement,
                        lambda traits: traits.add("OWNER_CYBORG"),
                        "gpu",
                    )
                else:
                    body = {
                        "resource_provider_generation": 0,
                        "inventories": {"FPGA": {"total": 1}},
                    }
                    placement.client.request("PUT", f"{url}/inventories", body)

            matches = (
                f"GET {url}/inventories"
                if at == "GET"
                else f"PUT {url}/traits"
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
        assert TraitChange("", HPET, "create") in host(
            Observed(aware, once(f"PUT {TRAITS}", delete))
        ).sync(GOAL)
        assert HPET in traits_of(aware)

    def test_standard_trait_that_placement_lacks_is_named_without_a_retry(
        self, aware: EmbeddedPlacement
    ) -> None:
        before = traits_of(aware)
        seen, unknown = Observed(aware), "COMPUTE_OF_TOMORROW"
        with pytest.raises(
            errors.UnknownTraits,
            match=(
                "COMPUTE_OF_TOMORROW. A standard trait needs a newer os-traits"
            ),
        ):
            host(seen).sync(
                Goal(
                    {unknown: True},
                    {"NEWER": frozenset((unknown,))},
                    frozenset(("NEWER",)),
                )
            )
        assert (seen.sent.count(f"PUT {TRAITS}"), traits_of(aware)) == (
            1,
            before,
        )

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
            aware.client.request(
                "POST",
                "/resource_providers",
                {"name": HOST, "uuid": provider_uuid("again")},
            )
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
        """Generations count from 0 again, and may come to the one that is
        remembered.
        """
        now = [0.0]
        keeper = ProviderTraits(
            Observed(aware).client, HOST, clock=lambda: now[0]
        )
        keeper.sync(GOAL)
        request, url = aware.client.request, f"/resource_providers/{UUID}"
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
    def test_unknown_provider_name_raises_unknown_provider_and_writes_nothing(
        self, aware: EmbeddedPlacement
    ) -> None:
        # Its name is not a UUID by which it is found.
        aware.client.request(
            "POST",
            "/resource_providers",
            {"name": provider_uuid("no"), "uuid": provider_uuid("x")},
        )
        before = everything(aware)
        for name in (
            "kvm-1&name=kvm-1",
            "kvm 1?#/%",
            provider_uuid("no"),
            "a\nb\x1b[",
        ):
            with pytest.raises(
                errors.UnknownProvider,
                match="nova-compute creates it when it starts",
            ) as raised:
                host(Observed(aware), name).sync(GOAL)
            assert str(raised.value).isprintable()
        assert everything(aware) == before

    def test_a_name_with_any_character_is_found(self) -> None:
        name = "kvm-1&name=x #/%ü"
        with EmbeddedPlacement(
            Fleet((provider(name), provider("kvm-1")))
        ) as placement:
            assert TraitChange(name, HPET, "add") in host(
                Observed(placement), name
            ).sync(GOAL)

    def test_nested_provider_is_refused_as_the_host(self) -> None:
        with EmbeddedPlacement(
            Fleet((provider(HOST, children=(provider("gpu", "VGPU"),)),))
        ) as placement:
            with pytest.raises(
                errors.ConfigurationError,
                match="Name the root provider of the host",
            ):
                host(Observed(placement), "gpu").sync(GOAL)
            assert traits_of(placement, "gpu") == set()

    def test_invalid_trait_name_is_refused_before_any_request(
        self, placement: EmbeddedPlacement
    ) -> None:
        seen = Observed(placement)
        for name in (
            "custom_x",
            "CUSTOM_A/../../x?y",
            "CUSTOM_" + "X" * 300,
            "",
        ):
            for has in (True, False):
                with pytest.raises(
                    errors.ConfigurationError,
                    match="is not the name of a trait",
                ):
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


def test_malformed_or_error_response_raises_and_nothing_is_written(
    placement: EmbeddedPlacement,
) -> None:
    """Above all, traits that were not read must not be taken for traits that
    are not there.
    """
    before = everything(placement)
    for at, answer in WRONG:
        seen = Observed(placement, answering(answer, at))
        with pytest.raises(
            (errors.PlacementUnavailable, errors.PlacementRefused)
        ) as raised:
            host(seen).sync(GOAL)
        assert str(raised.value).isprintable()
        assert "PUT" not in seen.methods
    assert everything(placement) == before


@pytest.mark.parametrize(
    "answer",
    [(500, b""), (200, b"garbage"), (403, {"errors": [{"detail": "no"}]})],
)
def test_unconfirmed_write_is_made_again_on_the_next_sync(
    aware: EmbeddedPlacement, answer: Answer
) -> None:
    """It may have been done or not: nothing is remembered of it."""
    seen = Observed(
        aware, lambda method, _url: answer if method == "PUT" else None
    )
    keeper = host(seen)
    with pytest.raises(errors.PlacementError):
        keeper.sync(GOAL)
    seen.hook = lambda _method, _url: None
    assert {change.trait for change in keeper.sync(GOAL)} == {*OURS, XEN, OLD}


def test_providers_of_other_hosts_in_a_response_are_not_changed() -> None:
    """A Placement, or a proxy, that ignores the query does not get the wrong
    host written.
    """
    with EmbeddedPlacement(
        Fleet((provider("aaa"), provider(HOST), provider("zzz")))
    ) as placement:
        every = placement.client.request("GET", "/resource_providers")
        seen = Observed(
            placement,
            lambda _method, url: (
                (200, every) if "/resource_providers?" in url else None
            ),
        )
        host(seen, HOST).sync(GOAL)
        assert HPET in traits_of(placement)
        assert (
            traits_of(placement, "aaa") == traits_of(placement, "zzz") == set()
        )
