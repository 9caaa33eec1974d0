# SPDX-License-Identifier: Apache-2.0

"""A filter is enabled and disabled in the section of nova-scheduler alone:
agents on the hosts do the rest.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from os_prefilter.hosts.marker_traits import REPORTED, WANTED
from os_prefilter_tools.cli.main import main
from tests.services.nova.cloud import ACTIVATION, HOSTS, LISTENING, Cloud
from tests.support.programs import (
    PATIENCE,
    Program,
    needs_services,
    running,
    until,
)
from tests.support.reporting_fleets import wanted_by

pytestmark = needs_services

INTERVAL = 3
"""Seconds between two reports of an agent."""
_ALL, _HALTED = set(HOSTS), "plain-host"
_CARD, _TIMER = {"hw_vif_model": "e1000e"}, {"hw_time_hpet": "true"}
_SECTION = "[prefilter]\nenabled_filters = {}\nfacts_interval = 0\n"


@pytest.fixture
def agents(cloud: Cloud) -> Iterator[Mapping[str, Program]]:
    """Have an agent on each host, by the nova.conf of its nova-compute, where
    nothing is wanted or reported yet.
    """
    script = str(Path(__file__).with_name("agent.py"))
    confs = {host: str(cloud.folder / host / "nova.conf") for host in HOSTS}
    assert not any(
        "[prefilter]" in Path(conf).read_text() for conf in confs.values()
    )
    for host, conf in confs.items():
        facts = ["--driver", "fake", "--provider", host]
        assert (
            main(
                [
                    "capabilities",
                    "report",
                    *facts,
                    "--config-file",
                    conf,
                    "--remove",
                ]
            )
            == 0
        )
    for name in cloud.placement.custom_traits():
        if name.startswith(WANTED):
            cloud.placement.delete_trait(name)
    assert not any(
        name.startswith(REPORTED) for name in cloud.placement.traits_in_use()
    )
    with ExitStack() as ending:
        # What the other tests expect.
        for host, can in HOSTS.items():
            ending.callback(cloud.report, host, can)
        watch = [
            "capabilities",
            "report",
            "--watch",
            str(INTERVAL),
            "--config-file",
        ]
        yield {
            host: ending.enter_context(
                running(
                    [
                        "python",
                        script,
                        host,
                        json.dumps(can),
                        *watch,
                        confs[host],
                    ],
                    cloud.folder,
                    f"agent-of-{host}",
                )
            )
            for host, can in HOSTS.items()
        }


@pytest.fixture
def readiness(
    cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Any:
    """Return what asks ``os-prefilter readiness`` about a section: its rows by
    their names, and its notes.

    In a process of its own: in this one, which older Novas patch for eventlet,
    requests of the command's threads timed out.
    """
    program = str(Path(sys.executable).with_name("os-prefilter"))
    url = cloud.placement_url
    # openstacksdk 4.4 does not find the token in auth.
    ours = {
        "auth_type": "admin_token",
        "auth": {"endpoint": url},
        "token": "admin",
        "placement_endpoint_override": url,
    }
    (tmp_path / "clouds.yaml").write_text(
        yaml.safe_dump({"clouds": {"ours": ours}})
    )
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(tmp_path / "clouds.yaml"))

    def ask(filters: str, *argv: str) -> tuple[dict[str, Any], str]:
        conf = tmp_path / "scheduler.conf"
        conf.write_text(_SECTION.format(filters))
        options = ["--os-cloud", "ours", "--config-file", str(conf)]
        done = subprocess.run(
            [program, "readiness", *options, "-f", "json", *argv],
            check=False,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, done.stderr
        rows = json.loads(done.stdout)
        return {row["Row"]: row for row in rows}, done.stderr

    return ask


@contextmanager
def _scheduler(cloud: Cloud, filters: str) -> Iterator[None]:
    more = f"{ACTIVATION}{_SECTION.format(filters)}[scheduler]\nworkers = 1\n"
    with cloud.starting_scheduler(more) as program:
        program.wait_for_log(LISTENING)
        yield


def test_filter_is_enabled_and_disabled_by_the_section_of_the_scheduler_alone(
    cloud: Cloud, agents: Mapping[str, Program], readiness: Any
) -> None:
    """While an agent is halted, the filter is deferred; what was enforced
    before stays so, at any time.
    """

    def hosts_of(properties: Mapping[str, str]) -> set[str]:
        return set(cloud.ask(properties).hosts)

    def not_reported() -> list[str]:
        names: list[str] = readiness("image_metadata,hpet")[0]["time_hpet"][
            "Compute nodes"
        ]
        return names

    with _scheduler(cloud, "image_metadata"):
        until(
            lambda: hosts_of(_CARD) == {"e1000e-host"},
            lambda: "image_metadata is not enforced",
        )
        assert hosts_of(_TIMER) == hosts_of({}) == _ALL
    agents[_HALTED].signal(signal.SIGSTOP)
    with _scheduler(cloud, "image_metadata,hpet"):
        assert (hosts_of(_TIMER), hosts_of(_CARD)) == (_ALL, {"e1000e-host"})
        until(
            lambda: not_reported() == [_HALTED],
            lambda: f"not reported by {not_reported()}",
        )
        assert (hosts_of(_TIMER), hosts_of(_CARD)) == (_ALL, {"e1000e-host"})
        agents[_HALTED].signal(signal.SIGCONT)
        until(
            lambda: hosts_of(_TIMER) == {"timer-host"},
            lambda: "hpet is not enforced",
        )
        assert hosts_of(_CARD) == {"e1000e-host"}
    with _scheduler(cloud, "image_metadata"):
        assert (hosts_of(_TIMER), hosts_of(_CARD)) == (_ALL, {"e1000e-host"})
        # The scheduler creates its own markers in the background; before, none
        # of the others can go.
        until(
            lambda: (
                f"In Placement, and not wanted by this section: {WANTED}"
                in readiness("image_metadata")[1]
            ),
            lambda: readiness("image_metadata")[1],
        )
        _, told = readiness("image_metadata", "--forget-unwanted")
        assert f"Removed from Placement: {WANTED}" in told
        assert cloud.placement.wanted() == wanted_by(
            enabled_filters=["image_metadata"], reported_traits=[]
        )
        assert (hosts_of(_TIMER), hosts_of(_CARD)) == (_ALL, {"e1000e-host"})
    assert all(agent.processes() for agent in agents.values())
