"""The operator's rules in a real nova-scheduler: used by all its workers, and read again on SIGHUP."""

from collections.abc import Iterator
from pathlib import Path
from signal import SIGHUP

import pytest

from tests.services.nova.cloud import ACTIVATION, LISTENING, WORKERS, Cloud
from tests.support.programs import Program, needs_services, until
from tests.support.rule_texts import rule, write_rules

pytestmark = needs_services

_WINDOWS = {"os_distro": "windows"}
_TIMER, _CARD = "CUSTOM_COMPUTE_TIME_HPET", "COMPUTE_NET_VIF_MODEL_E1000E"


def _write(folder: Path, trait: str) -> None:
    write_rules(folder / "a.yaml", rule("licensed", "{image_property: os_distro, is: windows}", [trait]), age=0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    _write(tmp_path, _TIMER)
    return tmp_path


@pytest.fixture
def scheduler(cloud: Cloud, folder: Path) -> Iterator[Program]:
    options = f"[prefilter]\nenabled_filters = rules\nrules_dirs = {folder}\nfacts_interval = 3600\n"
    with cloud.scheduler(f"{ACTIVATION}{options}") as program:
        yield program


def _hang_up(scheduler: Program, times: int) -> None:
    """Send SIGHUP, and wait until new workers have taken the place of the old ones."""
    old = scheduler.workers()
    scheduler.signal(SIGHUP)
    scheduler.wait_for_log(LISTENING, (times + 1) * WORKERS)
    until(lambda: old.isdisjoint(scheduler.workers()), lambda: "the old workers did not end")


def _hosts_of_many(cloud: Cloud) -> set[tuple[str, ...]]:
    """Ask so often that no worker is left out."""
    return {cloud.ask(_WINDOWS).hosts for _ in range(5 * WORKERS)}


def test_sighup_reloads_rules_and_an_invalid_file_keeps_the_old_ones(
    cloud: Cloud, scheduler: Program, folder: Path
) -> None:
    """The interval is an hour: without the signal nothing would be read."""
    assert len(cloud.ask().hosts) > 1
    assert _hosts_of_many(cloud) == {("timer-host",)}
    _write(folder, _CARD)
    assert _hosts_of_many(cloud) == {("timer-host",)}
    _hang_up(scheduler, 1)
    assert _hosts_of_many(cloud) == {("e1000e-host",)}
    _write(folder, "lower")
    _hang_up(scheduler, 2)
    assert _hosts_of_many(cloud) == {("e1000e-host",)}
    assert f"{folder}/a.yaml:2: the rule licensed: require[0] is 'lower'" in scheduler.log
    # One that no host has and Placement does not know yet: it is created, and no host is left.
    _write(folder, "CUSTOM_OF_NO_HOST")
    _hang_up(scheduler, 3)
    answer = cloud.ask(_WINDOWS)
    assert answer.hosts == ()
    assert cloud.query_of(answer)["root_required"][0].split(",").count("CUSTOM_OF_NO_HOST") == 1
    assert len(cloud.ask().hosts) > 1
