# SPDX-License-Identifier: Apache-2.0

"""What nova-scheduler does with the library activated when it is told to read
its configuration again, or to end.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from signal import SIGTERM

import pytest

from tests.services.nova.cloud import ACTIVATION, WORKERS, Cloud, hang_up
from tests.support.programs import Program, needs_services
from tests.support.rule_texts import rule, write_rules

pytestmark = needs_services

_OPTIONS = (
    "[prefilter]\nenabled_filters = rules{}\nrules_dirs = {}\nfacts_interval ="
    " 1800\n"
)
_WINDOWS = {"os_distro": "windows"}


def _write(folder: Path, **traits: str) -> None:
    """Write rules: of an image with this distribution, this trait is
    required.
    """
    rules = [
        rule(name, f"{{image_property: os_distro, is: {name}}}", [trait])
        for name, trait in traits.items()
    ]
    write_rules(folder / "a.yaml", *rules, age=0)


@pytest.fixture
def scheduler(cloud: Cloud, tmp_path: Path) -> Iterator[Program]:
    _write(tmp_path, windows="CUSTOM_COMPUTE_TIME_HPET")
    with cloud.scheduler(
        ACTIVATION + _OPTIONS.format("", tmp_path)
    ) as program:
        yield program


def _hosts_of_many(cloud: Cloud) -> set[tuple[str, ...]]:
    """Ask so often that no worker is left out."""
    return {cloud.ask(_WINDOWS).hosts for _ in range(5 * WORKERS)}


def test_sighup_reloads_rules_and_sigterm_stops_the_scheduler_and_all_its_workers(
    cloud: Cloud, scheduler: Program, tmp_path: Path
) -> None:
    """The interval is an hour: without the signal nothing would be read.

    Nova 34 replaces its workers then, older ones keep them; which filters are
    enabled changes with a restart only, and an invalid file keeps the old
    rules.
    """
    assert len(cloud.ask().hosts) > 1
    assert _hosts_of_many(cloud) == {("timer-host",)}
    _write(
        tmp_path,
        windows="COMPUTE_NET_VIF_MODEL_E1000E",
        sles="CUSTOM_OF_NO_HOST",
    )
    assert _hosts_of_many(cloud) == {("timer-host",)}
    cloud.conf("scheduler", ACTIVATION, _OPTIONS.format(",hpet", tmp_path))
    hang_up(scheduler, "Reloaded the request rules")
    assert len(scheduler.workers()) == WORKERS
    assert (
        "Ignoring change to immutable option prefilter.enabled_filters"
        in scheduler.log
    )
    assert _hosts_of_many(cloud) == {("e1000e-host",)}
    assert len(cloud.ask({"hw_time_hpet": "true"}).hosts) > 1
    # Placement did not know the trait: it is created.
    answer = cloud.ask({"os_distro": "sles"})
    assert answer.hosts == ()
    assert answer.error.endswith("No host offers os_distro=sles.")
    assert cloud.placement.request("GET", "/traits?name=in:CUSTOM_OF_NO_HOST")[
        "traits"
    ]

    _write(tmp_path, windows="lower")
    problem = f"{tmp_path}/a.yaml:2: the rule windows: require[0] is 'lower'"
    hang_up(scheduler, problem)
    assert problem in scheduler.log
    assert _hosts_of_many(cloud) == {("e1000e-host",)}
    scheduler.signal(SIGTERM)
    assert scheduler.exit_code() == 0
    assert scheduler.processes() == []
