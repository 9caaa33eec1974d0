# SPDX-License-Identifier: Apache-2.0

"""The verdict on shadow filters of a real control plane.

Hosts lack what filters require, and one of them fails to build each server
once: the numbers are those of the plan.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.services.nova.api import Api
from tests.services.nova.cloud import ACTIVATION, LISTENING, Cloud
from tests.support.programs import PATIENCE, Program, needs_services
from tests.support.rule_texts import rule, write_rules

pytestmark = needs_services

_BROKEN, _PLAIN = "broken-host", "plain-host"
_TIMER, _CARD = "timer-host", "e1000e-host"
_RULE, _STYLE = "CUSTOM_PLAN_RULE", "CUSTOM_PLAN_STYLE"
_FILTERS = {
    "hpet": ({"hw_time_hpet": "true"}, _TIMER),
    "image_metadata": ({"hw_vif_model": "e1000e"}, _CARD),
    "rules": ({"os_distro": "sles"}, _TIMER),
    "nova_style": ({"os_distro": "fedora"}, _TIMER),
}
"""Shadow filter -> an image of which it requires something, and the only host
that has it.
"""
_EACH = {"capable": 2, "rescheduled": 1, "failed": 1, "excluded": 1}
"""How many servers of each kind there are for each filter.

Built by the host that has what the filter requires; by that host, after one
that lacks it has failed; by no host, after that one has failed; by a host that
lacks it and runs the server.
"""
# A nova-compute whose builds fail is disabled, and weighed last, by default.
_FAILS = """
[DEFAULT]
compute_driver = fake.FakeRescheduleDriver
[compute]
consecutive_build_service_disable_threshold = 0
"""
_OPTIONS = """
build_failure_weight_multiplier = 0
weight_classes = nova.scheduler.weights.all_weighers,os_prefilter.nova.PreferredTraits
[prefilter]
decision_history = true
enabled_filters = preferences
facts_interval = 0
preferred_weight_multiplier = 1000
rules_dirs = {rules}
shadow_filters = {shadow}
[scheduler]
workers = 1
"""
_STYLED = f"""
def require(_context, request_spec):
    if request_spec.image.properties.get("os_distro") != "fedora":
        return False
    request_spec.root_required.add("{_STYLE}")
    return True
"""


@pytest.fixture(scope="module")
def _hosts(cloud: Cloud, api: Api) -> Iterator[None]:
    """Have a host that fails, and traits that name hosts and pairs of them."""
    with cloud.host(_BROKEN, {}, _FAILS):
        for host in (_TIMER, _CARD):
            _add_traits(cloud, host, [_only(host), _pair(host)])
            _add_traits(cloud, _BROKEN, [_pair(host)])
        _add_traits(cloud, _TIMER, [_RULE, _STYLE])
        _add_traits(cloud, _BROKEN, [_only(_BROKEN)])
        _add_traits(cloud, _PLAIN, [_only(_PLAIN)])
        yield
        api.delete_servers()
        for host in (_TIMER, _CARD, _PLAIN):
            _change_traits(cloud, host, _without_plan)
    api.delete_host(_BROKEN)


@pytest.fixture(scope="module")
def scheduler(
    cloud: Cloud, _hosts: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Program]:
    folder = tmp_path_factory.mktemp("filters")
    metadata = folder / "styled-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: styled\nVersion: 1.0\n"
    )
    (metadata / "entry_points.txt").write_text(
        "[os_prefilter.request_filters]\nnova_style = styled:require\n"
    )
    (folder / "styled.py").write_text(_STYLED)
    rules = folder / "rules"
    rules.mkdir()
    write_rules(
        rules / "rules.yaml",
        rule("sles", "{image_property: os_distro, is: sles}", [_RULE]),
    )
    options = _OPTIONS.format(rules=rules, shadow=",".join(_FILTERS))
    with cloud.starting_scheduler(
        ACTIVATION + options, {"PYTHONPATH": str(folder)}
    ) as program:
        program.wait_for_log(LISTENING)
        yield program


def _only(host: str) -> str:
    return f"CUSTOM_PLAN_{host.replace('-', '_').upper()}"


def _pair(host: str) -> str:
    return f"{_only(host)}_OR_BROKEN"


def _without_plan(traits: Iterable[str]) -> list[str]:
    return [each for each in traits if not each.startswith("CUSTOM_PLAN_")]


def _add_traits(cloud: Cloud, host: str, traits: list[str]) -> None:
    cloud.placement.ensure_traits(traits)
    _change_traits(cloud, host, lambda found: sorted({*found, *traits}))


def _change_traits(cloud: Cloud, host: str, change: Any) -> None:
    placement = cloud.placement
    (provider,) = placement.request("GET", f"/resource_providers?name={host}")[
        "resource_providers"
    ]
    url = f"/resource_providers/{provider['uuid']}/traits"
    found = placement.request("GET", url)
    found["traits"] = change(found["traits"])
    placement.request("PUT", url, found)


def _boot_as_planned(api: Api) -> None:
    for properties, capable in _FILTERS.values():
        required = {
            "capable": {f"trait:{_only(capable)}": "required"},
            "rescheduled": {
                f"trait:{_pair(capable)}": "required",
                f"preferred_trait:{_only(_BROKEN)}": "true",
            },
            "failed": {f"trait:{_only(_BROKEN)}": "required"},
            "excluded": {f"trait:{_only(_PLAIN)}": "required"},
        }
        ends_on = {
            "capable": capable,
            "rescheduled": capable,
            "failed": None,
            "excluded": _PLAIN,
        }
        for kind, number in _EACH.items():
            flavor = api.flavor(extra_specs=required[kind])
            for _ in range(number):
                server = api.server(properties, flavor)
                assert server.host == ends_on[kind], (kind, server)


@pytest.fixture
def verdict(api: Api, cloud: Cloud, tmp_path: Path) -> Any:
    """Return what runs the command as an administrator of the cloud.

    In a process of its own: older Novas patch this one for eventlet.
    """
    ours = {
        "auth_type": "admin_token",
        "auth": {"endpoint": cloud.placement_url},
        "token": "admin",
        "placement_endpoint_override": cloud.placement_url,
        "compute_endpoint_override": api.url,
    }
    clouds = tmp_path / "clouds.yaml"
    clouds.write_text(yaml.safe_dump({"clouds": {"ours": ours}}))

    def ask(log: str) -> tuple[int, Mapping[str, Any], str]:
        path = tmp_path / "scheduler.log"
        path.write_text(log, encoding="utf-8")
        program = str(Path(sys.executable).with_name("os-prefilter"))
        done = subprocess.run(
            [
                program,
                "verdict",
                str(path),
                "--os-cloud",
                "ours",
                "-f",
                "json",
            ],
            check=False,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            cwd=tmp_path,
        )
        assert done.stdout, done.stderr
        rows = {row["Filter"]: row for row in json.loads(done.stdout)}
        return done.returncode, rows, done.stderr

    return ask


def test_numbers_of_the_verdict_are_those_of_the_plan(
    api: Api, scheduler: Program, verdict: Any
) -> None:
    """Also after the servers were deleted."""
    _boot_as_planned(api)
    first = verdict(scheduler.log)
    api.delete_servers()
    failed = _EACH["rescheduled"] + _EACH["failed"]
    excluded = _EACH["excluded"]
    expected = {
        "Boots": sum(_EACH.values()),
        "Failed": failed,
        "Changed": failed + excluded,
        "Avoided": failed,
        "Not needed": excluded,
        "No host": excluded,
        "Not known": 0,
        "Verdict": "do not",
    }
    for code, rows, err in (first, verdict(scheduler.log)):
        assert code == 2
        assert "Not known" not in err
        assert rows.keys() == _FILTERS.keys()
        for row in rows.values():
            assert {name: row[name] for name in expected} == expected
            hosts = {each["host"] for each in row["Details"]}
            assert hosts == {_BROKEN, _PLAIN}
