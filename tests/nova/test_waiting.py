# SPDX-License-Identifier: Apache-2.0

"""Filters that wait in Nova's scheduler: by its own client of Placement, with
its own objects, without a restart.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from os_prefilter import allocation_candidates_query
from os_prefilter.vocabulary import HPET
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.cli.main import main
from tests.support.every_trait import marker_of
from tests.support.nova_objects import nova_spec
from tests.support.nova_start import Start, ask, our_entry, user_context
from tests.support.placements import (
    Observed,
    nova_conf,
    put_traits,
    served,
    traits_of,
)
from tests.support.reporting_fleets import fleet_of

_MARKER = marker_of(HPET)
_HOSTS = ("host-0", "host-1", "host-2")


@pytest.fixture
def observed() -> Iterator[Observed]:
    """Return a Placement of hosts that have not reported anything."""
    with EmbeddedPlacement(fleet_of([set() for _ in _HOSTS])) as placement:
        placement.know([_MARKER, HPET])
        yield Observed(placement)


def test_filters_wait_for_the_last_host_and_no_step_of_the_way_back_of_the_agent_excludes_a_host(
    start: Start,
    observed: Observed,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The filter owner waits for its own trait.

    Back: the scheduler first, as it waits by default; then ``--remove`` on one
    host after the other.
    """
    monkeypatch.setenv("no_proxy", "127.0.0.1")

    def scheduled() -> tuple[set[str], set[str]]:
        spec = nova_spec({"hw_time_hpet": True})
        our_entry()(user_context(), spec)
        found = observed.client.allocation_candidates(
            allocation_candidates_query(spec)
        )
        return set(spec.root_required), set(found.hosts)

    start(
        "hpet,owner",
        "wait_for_reports = true",
        "reported_traits = *",
        "facts_interval = 0",
    )
    ask(observed)
    for host in _HOSTS:
        assert scheduled() == (set(), set(_HOSTS))
        put_traits(
            observed.placement,
            lambda traits: traits.update((_MARKER, "OWNER_NOVA")),
            host,
        )
    for host in ("host-0", "host-2"):
        put_traits(observed.placement, lambda traits: traits.add(HPET), host)
    assert scheduled() == ({"OWNER_NOVA", HPET}, {"host-0", "host-2"})
    start("", "reported_traits =")
    assert scheduled() == (set(), set(_HOSTS))
    conf = tmp_path / "agent.conf"
    with served(observed.placement) as server:
        conf.write_text(nova_conf(server.url))
        for host in _HOSTS:
            report = [
                "capabilities",
                "report",
                "--driver",
                "fake",
                "--config-file",
                str(conf),
                "--provider",
                host,
            ]
            assert main([*report, "--remove"]) == 0
            assert not traits_of(observed.placement, host) & {HPET, _MARKER}
            assert scheduled() == (set(), set(_HOSTS))
