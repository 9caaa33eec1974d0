# SPDX-License-Identifier: Apache-2.0

"""An Ironic that stalls: one error in time, and what was begun is ended by the
next report.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from os_prefilter.adapters.ironic.errors import IronicUnavailable
from os_prefilter.adapters.ironic.node import IronicNode
from os_prefilter.adapters.ironic.traits import EXTRA
from os_prefilter.adapters.session_limits import limit
from os_prefilter.common.threads import start_thread
from tests.services.ironic.ironics import Ironic, connect
from tests.services.recorder import Answer, Recorder

HYPERTHREADING = "HW_CPU_HYPERTHREADING"
GOLD = "CUSTOM_GOLD"
FOREVER = 60.0
"""Seconds: far more than the timeout of each request."""


@pytest.fixture
def over() -> Iterator[threading.Event]:
    """Return what ends all stalls."""
    event = threading.Event()
    yield event
    event.set()


@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("method", ["GET", "PATCH"])
def test_stalled_ironic_raises_in_time_and_the_next_report_finishes_the_work(
    ironic: Ironic,
    proxy: Recorder,
    over: threading.Event,
    method: str,
    done: bool,
) -> None:
    """Whether it does what was asked, or not; an operator's trait stays, and
    the next report ends what was begun.
    """
    node = ironic.node("manageable")
    ironic.add_traits(node, GOLD)
    stalls = [True]

    def stall(asked: str, path: str) -> Answer | None:
        if stalls[0] and asked == method and (node in path or method == "GET"):
            over.wait(FOREVER)
            return (503, {})
        return None

    setattr(proxy, "after" if done else "before", stall)
    connection = connect(proxy.url, timeout=0.6)
    limit(connection.session)
    with pytest.raises(
        IronicUnavailable, match="Ironic did not respond"
    ) as error:
        start_thread(
            lambda: IronicNode.of(connection, node).report(
                {HYPERTHREADING: True}
            ),
            "a report",
        ).result(FOREVER)
    assert "\n" not in str(error.value)
    assert ironic.traits(node) in ({GOLD}, {GOLD, HYPERTHREADING})
    stalls[0] = False
    over.set()
    IronicNode(connect(proxy.url).baremetal, node).report(
        {HYPERTHREADING: True}
    )
    assert ironic.traits(node) == {GOLD, HYPERTHREADING}
    assert ironic.show(node)["extra"][EXTRA] == [HYPERTHREADING]
