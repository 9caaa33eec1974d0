# SPDX-License-Identifier: Apache-2.0

"""Reports through a Placement that breaks at random, while others write:
nothing of theirs is lost, ours is whole.

A round is one of the watch's. OS_PREFILTER_EXAMPLES multiplies their number.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from os_prefilter.adapters.placement.client import PlacementClient
from os_prefilter.adapters.placement.trait_sync import ProviderTraits
from os_prefilter.common.errors import PlacementRefused
from os_prefilter.common.threads import start_thread
from os_prefilter.hosts.desired_traits import Goal
from os_prefilter.hosts.marker_traits import names_noting
from os_prefilter.hosts.reporter import HostFacts
from os_prefilter_agent.agent import LOG, Watch
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.fleet.model import Fleet
from tests.conftest import times
from tests.faults.broken_proxy import FAULTS, broken, client_of
from tests.faults.watched import GOALS, MARKER, OURS, WHOLE, Host, records_of
from tests.support.placements import HOST, provider, put_traits, traits_of

ROUNDS = times(10)
SEED = 1
FOREVER = 60.0
"""Seconds after which something hangs: far more than all timeouts of one round
together.
"""

GPU = "gpu"


class Others:
    """An operator and Nova, who write through a Placement that is not broken;
    test_many_reporters.py has reporters.
    """

    def __init__(self, placement: EmbeddedPlacement, seed: int) -> None:
        self.placement = placement
        self.random = random.Random(seed)  # noqa: S311 - a choice of writers
        self.operators: set[str] = {"CUSTOM_OF_AN_OPERATOR"}
        self.of_nova = {"COMPUTE_NODE"}
        self.seen: list[tuple[frozenset[str], set[str]]] = []
        """All traits of the host, and what there should be of these writers.
        """
        self._writing = threading.Lock()

    def write(self) -> None:
        with self._writing:
            self.random.choice((self._operator, self._nova))()
        self.look()

    def look(self) -> None:
        with self._writing:
            self.seen.append((traits_of(self.placement), self.wanted()))

    def wanted(self) -> set[str]:
        return self.operators | self.of_nova

    def _operator(self) -> None:
        trait = f"CUSTOM_OPERATOR_{self.random.randrange(10)}"
        self.placement.know([trait])
        self.operators ^= {trait}
        self._flip(trait)

    def _nova(self) -> None:
        self.of_nova ^= {"HW_CPU_X86_VMX"}
        self._flip("HW_CPU_X86_VMX")

    def _flip(self, trait: str) -> None:
        until_written(
            lambda: put_traits(
                self.placement,
                lambda traits: traits.symmetric_difference_update({trait}),
            )
        )


def until_written(write: Callable[[], None]) -> None:
    for _ in range(100):
        try:
            return write()
        except PlacementRefused as error:
            assert error.status == 409
    pytest.fail("others are faster each time")


class Reporter:
    def __init__(self, client: PlacementClient) -> None:
        self.number = 0
        self.succeeded: list[bool] = []
        self.traits = ProviderTraits(client, HOST, sleep=lambda _seconds: None)
        self.watch = Watch(Host(), self._report, 1.0)

    @property
    def goal(self) -> Goal:
        return GOALS[self.number % len(GOALS)]

    def round(self) -> None:
        self.number += 1
        self.succeeded.append(False)
        start_thread(self.watch.round, "a round").result(FOREVER)

    def _report(self, _facts: HostFacts) -> str:
        self.traits.sync(self.goal)
        self.succeeded[-1] = True
        return ""


def test_reports_through_a_failing_placement_lose_no_traits_and_never_hang(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No trait of others is lost, no set half written, each outage is logged
    once, and the report after it is right.
    """
    caplog.set_level(logging.INFO, LOG.name)
    gpu = provider(GPU, "VGPU", "HW_GPU_API_VULKAN")
    host = provider(
        HOST, traits="COMPUTE_NODE CUSTOM_OF_AN_OPERATOR", children=(gpu,)
    )
    with EmbeddedPlacement(Fleet((host,))) as placement:
        others = Others(placement, SEED)
        with broken(placement, SEED) as (proxy, url):
            proxy.between = others.write
            client = client_of(url, tmp_path)
            reporter = Reporter(client)
            for _ in range(ROUNDS):
                reporter.round()
                others.look()
            check_log(caplog, reporter.succeeded)
            proxy.settle(client)
            # The GPU gets the owner's trait in the second of two rounds that
            # see it.
            reporter.round()
            reporter.round()
            final = traits_of(placement), traits_of(placement, GPU)
        assert len(proxy.broken) >= ROUNDS / 5
        assert ROUNDS < 100 or set(proxy.broken) == set(FAULTS)
    for traits, wanted in others.seen:
        assert (
            traits
            - {*OURS, MARKER, *names_noting(traits & OURS), "OWNER_NOVA"}
            == wanted
        )
        assert traits & OURS in WHOLE
    assert reporter.succeeded[-1]
    ours = {trait for trait, has in reporter.goal.traits.items() if has}
    assert (
        final[0]
        == {*ours, *names_noting(ours), MARKER, "OWNER_NOVA"} | others.wanted()
    )
    assert final[1] == {"HW_GPU_API_VULKAN", "OWNER_NOVA"}


def check_log(caplog: pytest.LogCaptureFixture, succeeded: list[bool]) -> None:
    """One line when failures begin, whatever follows, and one when they
    end.
    """
    before, expected = True, []
    for now in succeeded:
        if now != before:
            expected.append(logging.INFO if now else logging.WARNING)
        before = now
    assert [record.levelno for record in records_of(caplog)] == expected
    assert all(
        "\n" not in record.getMessage() for record in records_of(caplog)
    )
