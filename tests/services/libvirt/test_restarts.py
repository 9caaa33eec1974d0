# SPDX-License-Identifier: Apache-2.0

"""A libvirtd that is killed, or hangs: the host keeps its traits, one line
says so, and all goes on when it is back.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest

from os_prefilter.adapters.libvirt.host import LibvirtHost
from os_prefilter.adapters.nova_conf import LibvirtSettings
from os_prefilter.adapters.placement.trait_sync import ProviderTraits
from os_prefilter.common.errors import ProbeFailed
from os_prefilter.hosts.desired_traits import Mode, goal_of
from os_prefilter.hosts.marker_traits import REPORTED
from os_prefilter.hosts.reporter import HostFacts
from os_prefilter_agent.agent import LOG, Watch
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from tests.faults.watched import after_round, levels, records_of
from tests.services.own_services import Service, needs, own_libvirtd
from tests.support.placements import HOST, everything, lone_host
from tests.support.programs import until
from tests.support.reporting_fleets import wanted_by

pytestmark = needs("libvirtd")
Own = tuple[Service, str]


@pytest.fixture(scope="module")
def libvirtd() -> Iterator[Own]:
    with own_libvirtd() as own:
        # The first question takes long: libvirt looks at each QEMU.
        LibvirtHost(own[1], LibvirtSettings()).facts()
        yield own


def watched(placement: EmbeddedPlacement, host: LibvirtHost) -> Watch:
    keeper = ProviderTraits(placement.client, HOST)

    def report(facts: HostFacts) -> str:
        keeper.sync(goal_of(facts, wanted_by(), Mode.BESIDE))
        return ""

    return Watch(host, report, 1.0)


def test_host_keeps_its_traits_while_libvirtd_is_down_and_logs_the_outage_once(
    libvirtd: Own, caplog: pytest.LogCaptureFixture
) -> None:
    """While it is down all traits stay, one line says so; another one when it
    is asked again.
    """
    service, uri = libvirtd
    caplog.set_level(logging.INFO, LOG.name)
    with EmbeddedPlacement(lone_host()) as placement:
        watch = watched(placement, LibvirtHost(uri, LibvirtSettings()))
        watch.round()
        before = everything(placement)
        assert REPORTED in str(before["providers"])
        service.kill()
        for _ in range(3):
            watch.round()
        assert everything(placement) == before
        assert levels(caplog) == [logging.WARNING]
        service.start()
        # Its socket is there before all its drivers are.
        until(
            lambda: after_round(watch, lambda: logging.INFO in levels(caplog)),
            lambda: caplog.text,
        )
        assert everything(placement) == before
    assert [record.getMessage() for record in records_of(caplog)][1:] == [
        "Able to probe the host again."
    ]


def test_hanging_libvirtd_fails_the_probe_in_time_and_is_probed_again_later(
    libvirtd: Own, caplog: pytest.LogCaptureFixture
) -> None:
    """However long it hangs, one call waits for it, not one a round."""
    service, uri = libvirtd
    caplog.set_level(logging.INFO, LOG.name)
    with EmbeddedPlacement(lone_host()) as placement:
        watch = watched(
            placement, LibvirtHost(uri, LibvirtSettings(), timeout=2.0)
        )
        until(
            lambda: after_round(
                watch,
                lambda: REPORTED in str(placement.client.traits_in_use()),
            ),
            str,
        )
        before = everything(placement)
        caplog.clear()
        service.stop()
        try:
            for _ in range(2):
                watch.round()
            assert [thread.name for thread in threading.enumerate()].count(
                "libvirt"
            ) == 1
            assert levels(caplog) == [logging.WARNING]
            assert "no response in 2 seconds. libvirt hangs" in caplog.text
            with pytest.raises(
                ProbeFailed, match="no response in 0.5 seconds"
            ):
                LibvirtHost(uri, LibvirtSettings(), timeout=0.5).facts()
        finally:
            service.go_on()
        until(
            lambda: after_round(watch, lambda: logging.INFO in levels(caplog)),
            lambda: caplog.text,
        )
        assert everything(placement) == before
    assert "Able to probe the host again" in caplog.text
