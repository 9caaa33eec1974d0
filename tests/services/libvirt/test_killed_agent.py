# SPDX-License-Identifier: Apache-2.0

"""The agent is killed at random points and started again: a host has its old
traits or its new ones, then the right.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from os_prefilter.hosts.marker_traits import (
    NOT_CONFIGURED,
    REPORTED,
    WANTED,
    keys_in,
    marker_key,
    names_with,
)
from os_prefilter.vocabulary import opt_in_traits
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from tests.conftest import times
from tests.services.libvirt.connection import needs_libvirt, uri
from tests.support.placements import (
    HOST,
    Served,
    lone_host,
    nova_conf,
    put_traits,
    served,
    traits_of,
)
from tests.support.processes import started
from tests.support.programs import until
from tests.support.reporting_fleets import wanted_by

if TYPE_CHECKING:
    from subprocess import Popen

KILLS = times(4)
OPERATORS = "CUSTOM_OF_AN_OPERATOR"
# A trait that this host does not have, reported earlier.
STALE = "CUSTOM_VM_MODE_XEN"
OLD, *_ = names_with(REPORTED, [marker_key((STALE,))])
# The agent's requests for a report that changes something, and the one read of
# the next round.
_REQUESTS = 6


@pytest.fixture
def server() -> Iterator[Served]:
    with (
        EmbeddedPlacement(
            lone_host(f"COMPUTE_NODE {OPERATORS} {STALE} {OLD}")
        ) as placement,
        served(placement) as state,
    ):
        # It would create them one by one.
        wanted = wanted_by()
        placement.know(
            (
                *names_with(WANTED, wanted),
                *names_with(REPORTED, wanted - {NOT_CONFIGURED}),
            )
        )
        placement.know(
            trait
            for trait in opt_in_traits()
            if trait.startswith(("CUSTOM_COMPUTE_", "CUSTOM_HYP", "CUSTOM_VM"))
        )
        yield state


@contextmanager
def agent(server: Served, folder: Path) -> Iterator[Popen[bytes]]:
    conf = folder / "nova.conf"
    conf.write_text(nova_conf(server.url), encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "os_prefilter_tools.cli.main",
        "capabilities",
        "report",
        "--watch",
        "1",
    ]
    command += [
        "--config-file",
        str(conf),
        "--connect",
        uri(),
        "--provider",
        HOST,
    ]
    environment = {**os.environ, "no_proxy": "127.0.0.1"}
    with (
        (folder / "agent.log").open("ab") as log,
        started(command, stdout=log, stderr=log, env=environment) as process,
    ):
        yield process


@needs_libvirt
def test_agent_killed_at_random_leaves_old_or_new_traits_and_then_converges(
    server: Served, tmp_path: Path
) -> None:
    """Between two requests, with one under way, or anywhere: the host has its
    old traits or its new ones.
    """
    choice = random.Random(7)  # noqa: S311 - when it is killed
    placement = server.placement
    old = traits_of(placement)
    seen = {old}
    for number in range(KILLS):
        start = len(server.sent)
        with agent(server, tmp_path) as process:
            at = start + choice.randint(1, _REQUESTS)

            def kill(
                request: int, at: int = at, process: Popen[bytes] = process
            ) -> None:
                if request == at:
                    process.kill()

            server.before = server.after = lambda _number: None
            if number % 3 == 0:
                server.before = kill
            elif number % 3 == 1:
                server.after = kill
            else:
                server.wait_for(start + 1)
                time.sleep(choice.uniform(0, 0.2))
                process.kill()
            assert process.wait(120) == -signal.SIGKILL, (
                tmp_path / "agent.log"
            ).read_text()
        seen.add(traits_of(placement))
        # So that there is something to change again.
        put_traits(placement, lambda traits: traits.add(STALE))
    server.before = server.after = lambda _number: None
    with agent(server, tmp_path):
        until(
            lambda: STALE not in traits_of(placement),
            (tmp_path / "agent.log").read_text,
        )
        new = traits_of(placement)
    assert {OPERATORS, "COMPUTE_NODE", "OWNER_NOVA"} <= new
    assert keys_in(REPORTED, new) == wanted_by() - {NOT_CONFIGURED}
    assert seen <= {old, new, new | {STALE}}
    assert "Traceback" not in (tmp_path / "agent.log").read_text()
