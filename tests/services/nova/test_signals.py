"""What nova-scheduler does with the library activated when it is told to read its configuration again, or to end."""

from collections.abc import Iterator
from signal import SIGTERM

import pytest

from tests.services.nova.cloud import ACTIVATION, WORKERS, Cloud, hang_up
from tests.support.programs import Program, needs_services

pytestmark = needs_services

_HPET = f"{ACTIVATION}[prefilter]\nenabled_filters = hpet\n"
_NONE = f"{ACTIVATION}[prefilter]\nenabled_filters =\n"


@pytest.fixture
def scheduler(cloud: Cloud) -> Iterator[Program]:
    with cloud.scheduler(_HPET) as program:
        yield program


def test_sighup_keeps_the_filters_enabled_at_start_in_all_workers(cloud: Cloud, scheduler: Program) -> None:
    """Nova 34 replaces its workers then, older ones keep them; what is enabled changes with a restart only."""
    cloud.conf("scheduler", _NONE)
    ignored = "Ignoring change to immutable option prefilter.enabled_filters"
    hang_up(scheduler, ignored)
    assert len(scheduler.workers()) == WORKERS
    assert ignored in scheduler.log
    for _ in range(5 * WORKERS):
        assert cloud.ask({"hw_time_hpet": "true"}).hosts == ("timer-host",)


def test_sigterm_stops_the_scheduler_and_all_its_workers(cloud: Cloud, scheduler: Program) -> None:
    assert cloud.ask({"hw_time_hpet": "true"}).hosts == ("timer-host",)
    scheduler.signal(SIGTERM)
    assert scheduler.exit_code() == 0
    assert scheduler.processes() == []
