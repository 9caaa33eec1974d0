# SPDX-License-Identifier: Apache-2.0

"""Two writers of one provider, and one that is killed at any point: no write
is lost, and none is half done.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import requests
from keystoneauth1.adapter import Adapter
from nova.context import get_admin_context
from nova.exception import ResourceProviderUpdateConflict
from nova.scheduler.client.report import SchedulerReportClient

from os_prefilter import Options
from os_prefilter.adapters.placement.client import PlacementClient
from os_prefilter.adapters.placement.trait_sync import ProviderTraits
from os_prefilter.common.trait_names import CUSTOM_PREFIX
from os_prefilter.hosts.capabilities import capability_traits
from os_prefilter.hosts.desired_traits import Goal, Mode, TraitChange, goal_of
from os_prefilter.hosts.marker_traits import REPORTED, names_noting, names_with
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.fleet.model import Fleet
from tests.conftest import times
from tests.support.hosts import KVM, X86
from tests.support.placements import (
    HOST,
    UUID,
    Observed,
    lone_host,
    provider,
    traits_of,
)
from tests.support.reporting_fleets import wanted_by

ROUNDS = times(4)
OPERATORS = "CUSTOM_OF_AN_OPERATOR"


class History(Adapter):
    """A way to Placement that notes each write of the provider's traits, in
    the order in which they happened.
    """

    order = threading.Lock()

    def __init__(
        self,
        placement: EmbeddedPlacement,
        writer: str,
        written: list[tuple[str, frozenset[str]]],
        before_write: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(
            placement.client._adapter.session,
            service_type="placement",
            raise_exc=False,
        )
        self.writer = writer
        self.written = written
        self.refused = 0
        self.before_write = before_write

    def request(
        self, url: str, method: str, **options: Any
    ) -> requests.Response:
        if (method, url) != ("PUT", f"/resource_providers/{UUID}/traits"):
            return super().request(url, method, **options)
        self.before_write()
        with self.order:
            response = super().request(url, method, **options)
            if response.status_code == 200:
                self.written.append(
                    (self.writer, frozenset(options["json"]["traits"]))
                )
            self.refused += response.status_code == 409
        return response


class NovaCompute(threading.Thread):
    """Nova's own report client, with its caches, in a service that updates its
    traits all the time.

    As the resource tracker does: read the tree, change the own traits in it by
    name, flush it; again after a conflict.
    """

    def __init__(
        self, adapter: Adapter, states: list[dict[str, bool]]
    ) -> None:
        super().__init__(daemon=True)
        self.client = SchedulerReportClient(adapter)
        self.states = states
        self.writes = 0
        self.wrote = threading.Condition()
        self.done = threading.Event()
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            while not self.done.is_set():
                self.update(self.states[self.writes % 2])
        except Exception as error:  # noqa: BLE001 - the test reads it
            self.error = error

    def update(self, own: dict[str, bool]) -> None:
        context = get_admin_context()
        tree = self.client.get_provider_subtree_and_ensure_root(
            context, UUID, name=HOST
        )
        tree.remove_traits(
            HOST, *(trait for trait, has in own.items() if not has)
        )
        tree.add_traits(HOST, *(trait for trait, has in own.items() if has))
        try:
            self.client.update_from_provider_tree(context, tree)
        except ResourceProviderUpdateConflict:
            return
        with self.wrote:
            self.writes += 1
            self.wrote.notify_all()

    def wait_for_a_write(self) -> None:
        with self.wrote:
            # The next one may have been made already, and not been counted.
            enough = self.writes + 2
            assert self.wrote.wait_for(
                lambda: self.writes >= enough or self.error, timeout=60
            )
        assert self.error is None

    def finish(self) -> None:
        self.done.set()
        self.join(60)
        assert not self.is_alive()
        assert self.error is None


def test_nova_and_the_reporter_writing_at_once_keep_the_traits_of_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both change their own traits all the time; each of our writes is
    overtaken by Nova at least once.
    """
    facts, other = (
        KVM,
        replace(
            KVM, guests={"x86_64": replace(X86, machines=frozenset(("pc",)))}
        ),
    )
    before, after = capability_traits(facts), capability_traits(other)
    wanted = wanted_by()
    goals = [
        goal_of(each, wanted, Mode.BESIDE, Options())
        for each in (facts, other)
    ]
    ours = [goal.traits for goal in goals]
    novas = [
        {trait: has for trait, has in each.items() if trait not in ours[0]}
        for each in (before, after)
    ]
    # So that each write of its changes something.
    novas[0]["COMPUTE_NODE"], novas[1]["COMPUTE_NODE"] = True, False
    assert ours[0] != ours[1]
    written: list[tuple[str, frozenset[str]]] = []
    with EmbeddedPlacement(lone_host(OPERATORS)) as placement:
        placement.know(
            trait
            for trait in {**ours[0], **novas[0]}
            if trait.startswith(CUSTOM_PREFIX)
        )
        nova = NovaCompute(History(placement, "nova", written), novas)
        overtaken = [False]

        def be_overtaken() -> None:
            if not overtaken[0]:
                overtaken[0] = True
                nova.wait_for_a_write()

        ours_to = History(placement, "ours", written, be_overtaken)
        monkeypatch.setattr(
            "os_prefilter.adapters.placement.trait_sync.ATTEMPTS", 1_000
        )
        keeper = ProviderTraits(
            PlacementClient(ours_to), UUID, sleep=lambda _seconds: None
        )
        nova.start()
        try:
            for number in range(ROUNDS):
                overtaken[0] = False
                assert keeper.sync(goals[number % 2])
        finally:
            nova.finish()
        final = traits_of(placement)
    assert ours_to.refused >= ROUNDS
    assert sum(writer == "ours" for writer, _ in written) == ROUNDS
    markers = set(names_with(REPORTED, wanted & goals[0].groups.keys()))
    reported = frozenset().union(
        *(goals[0].groups[key] for key in wanted & goals[0].groups.keys())
    )
    notes = [
        names_noting(trait for trait in reported if each[trait])
        for each in ours
    ]
    mine, state = (
        {*ours[0], "OWNER_NOVA", *markers, *notes[0], *notes[1]},
        frozenset([OPERATORS]),
    )
    for writer, traits in written:
        changed = state ^ traits
        assert changed <= (mine if writer == "ours" else novas[0].keys())
        state = traits
    assert state == final
    last = (ROUNDS - 1) % 2
    expected: dict[str, bool] = dict.fromkeys(
        (*markers, *notes[last], OPERATORS, "OWNER_NOVA"), True
    )
    expected |= novas[(nova.writes - 1) % 2]
    expected |= {
        trait: has for trait, has in ours[last].items() if trait in reported
    }
    assert final == {trait for trait, has in expected.items() if has}


NEW = {
    "CUSTOM_NEW_A": True,
    "CUSTOM_NEW_B": True,
    "CUSTOM_OLD": False,
    "CUSTOM_STAYS": True,
}
PARTS: dict[str, frozenset[str]] = {
    "NEW__": frozenset(("CUSTOM_NEW_A", "CUSTOM_NEW_B")),
    "KEPT_": frozenset(("CUSTOM_OLD", "CUSTOM_STAYS")),
}
MARKER_OLD, MARKER_NEW = f"{REPORTED}KEPT_", f"{REPORTED}KEPT_NEW__"
(NOTE_OLD,), (NOTE_NEW,) = map(
    names_noting,
    (
        ["CUSTOM_OLD", "CUSTOM_STAYS"],
        ["CUSTOM_NEW_A", "CUSTOM_NEW_B", "CUSTOM_STAYS"],
    ),
)
ROOT_OLD = frozenset(
    (
        "COMPUTE_NODE",
        OPERATORS,
        "CUSTOM_OLD",
        "CUSTOM_STAYS",
        MARKER_OLD,
        NOTE_OLD,
    )
)
# The owner's trait comes on the root when the GPU below it has it.
ROOT_UNOWNED = frozenset(
    (
        "COMPUTE_NODE",
        OPERATORS,
        "CUSTOM_NEW_A",
        "CUSTOM_NEW_B",
        "CUSTOM_STAYS",
        MARKER_NEW,
        NOTE_NEW,
    )
)
ROOT_NEW = ROOT_UNOWNED | {"OWNER_NOVA"}
GPU_OLD, GPU_NEW = (
    frozenset(["HW_GPU_API_VULKAN"]),
    frozenset(("HW_GPU_API_VULKAN", "OWNER_NOVA")),
)
# Three reads of the tree, two of the GPU, one of the traits that exist, four
# traits created, the root written.
FIRST_ROUND = 11
# One read of the tree, one of the root, two of the GPU, two providers written.
REQUESTS = FIRST_ROUND + 6


class Killed(BaseException):
    """The end of the process: it sends nothing any more."""


@pytest.mark.parametrize("number", range(1, REQUESTS + 2))
def test_reporter_killed_at_any_request_leaves_the_old_or_the_new_traits(
    number: int,
) -> None:
    """The next report ends what was begun. Real processes are killed in
    ``tests/services/libvirt``.
    """
    goal = Goal(NEW, PARTS, frozenset(PARTS), Options())
    gpu_below = provider("gpu", "VGPU", " ".join(GPU_OLD))
    hosts = (
        provider(HOST, traits=" ".join(ROOT_OLD), children=(gpu_below,)),
        provider("kvm-2", traits="CUSTOM_OLD"),
    )
    with EmbeddedPlacement(Fleet(hosts)) as placement:

        def kill(_method: str, _url: str) -> None:
            if len(observed.sent) == number:
                raise Killed

        observed = Observed(placement, kill)
        keeper = ProviderTraits(observed.client, HOST)
        with pytest.raises(Killed) if number <= REQUESTS else nullcontext():
            keeper.sync(goal)
            keeper.sync(goal)
        assert len(observed.sent) == min(number, REQUESTS)
        root, gpu = traits_of(placement), traits_of(placement, "gpu")
        if number <= FIRST_ROUND:
            assert root == ROOT_OLD
        elif number <= REQUESTS:
            assert root == ROOT_UNOWNED
        else:
            assert root == ROOT_NEW
        assert gpu == (GPU_NEW if number >= REQUESTS else GPU_OLD)
        restarted = ProviderTraits(placement.client, HOST)
        changes = restarted.sync(goal) + restarted.sync(goal)
        assert (traits_of(placement), traits_of(placement, "gpu")) == (
            ROOT_NEW,
            GPU_NEW,
        )
        assert (TraitChange(HOST, "CUSTOM_NEW_A", "add") in changes) == (
            root == ROOT_OLD
        )
        assert traits_of(placement, "kvm-2") == {"CUSTOM_OLD"}
