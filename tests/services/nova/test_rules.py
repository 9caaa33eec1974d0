"""The operator's rules in a real nova-scheduler: used by all its workers, and read again on SIGHUP."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services.nova.cloud import ACTIVATION, WORKERS, Cloud, hang_up
from tests.support.programs import Program, needs_services
from tests.support.rule_texts import rule, write_rules

pytestmark = needs_services

_WINDOWS = {"os_distro": "windows"}
_RELOADED = "Reloaded the request rules"
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
    hang_up(scheduler, _RELOADED)
    assert _hosts_of_many(cloud) == {("e1000e-host",)}
    _write(folder, "lower")
    problem = f"{folder}/a.yaml:2: the rule licensed: require[0] is 'lower'"
    hang_up(scheduler, problem)
    assert _hosts_of_many(cloud) == {("e1000e-host",)}
    assert problem in scheduler.log
    # One that no host has and Placement does not know yet: it is created, and no host is left.
    _write(folder, "CUSTOM_OF_NO_HOST")
    hang_up(scheduler, _RELOADED)
    answer = cloud.ask(_WINDOWS)
    assert answer.hosts == ()
    assert answer.error.endswith("No host offers os_distro=windows.")
    assert cloud.placement.request("GET", "/traits?name=in:CUSTOM_OF_NO_HOST")["traits"]
    assert len(cloud.ask().hosts) > 1
