# SPDX-License-Identifier: Apache-2.0

"""The alert rules and the dashboard of the documentation, by Prometheus itself
and by the names of our metrics.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from os_prefilter.service.metrics import _families
from tests.support.pages import DOCS, files_of
from tests.support.programs import needs_services

pytestmark = needs_services

_RULES = DOCS / "examples" / "nova" / "alerts.yaml"
_DASHBOARD = DOCS / "examples" / "nova" / "dashboard.json"
_OF_AUDITS = files_of(DOCS / "monitor.rst")["machine_types.py"]
"""The program that turns an audit of servers into metrics."""


def _promtool(*arguments: str) -> None:
    done = subprocess.run(
        ["promtool", *arguments],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_rules_are_valid() -> None:
    _promtool("check", "rules", str(_RULES))


def test_dashboard_is_json() -> None:
    json.loads(_DASHBOARD.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "path", [_RULES, _DASHBOARD], ids=["rules", "dashboard"]
)
def test_metrics_that_are_named_exist(path: Path) -> None:
    ours = {each._name for each in vars(_families()).values()}
    ours |= {f"{name}_total" for name in ours}
    ours |= set(re.findall(r"os_prefilter_\w+", _OF_AUDITS))
    text = path.read_text(encoding="utf-8")
    assert set(re.findall(r"os_prefilter_\w+", text)) <= ours


_STARTS_WITH = {
    'os_prefilter_no_host_total{stage="traits", by=""}': "0x1440",
    'os_prefilter_filter_rejections_total{filter="hpet"}': "0x1440",
    'os_prefilter_filter_failures_total{filter="hpet"}': "0x1440",
}
"""What a scheduler exposes from its start, with a sample a minute, for a day.
"""
_RUNS = 'os_prefilter_filter_runs_total{filter="hpet"}'
_ROOM = 'os_prefilter_no_host_total{stage="room", by="DISK_GB"}'
_AFFINITY = (
    'os_prefilter_no_host_total{stage="host filters",'
    ' by="ServerGroupAffinityFilter"}'
)
_HOSTS = (
    'os_prefilter_hosts_{}_total{{host_filter="ServerGroupAffinityFilter"}}'
)
_MARKED = (
    'os_prefilter_servers_on_deprecated_machine_type{{machine_type="{}",'
    ' host="{}", exporter="{}"}}'
)
# One each three minutes.
_TWENTY_AN_HOUR = " ".join(f"{number}x2" for number in range(481))
_TRIED = 'os_prefilter_shadow_requests_total{filter="owner"}'
_NONE_LEFT = 'os_prefilter_shadow_no_host_total{filter="owner"}'
_FEWER = 'os_prefilter_shadow_fewer_hosts_total{filter="owner"}'
_SHADOW_FAILS = 'os_prefilter_shadow_failures_total{filter="owner"}'
# A value, its growth a minute and for how many minutes; an underscore is a
# minute without a sample.
_CASES: dict[str, tuple[dict[str, str], set[str]]] = {
    "a small cloud, four requests a day, none of which finds a host": (
        # Each for another reason, so that each series begins at 1.
        {
            _RUNS: "0x359 1x359 2x359 3x359 4x360",
            _ROOM: "_x359 1x1080",
            'os_prefilter_no_host_total{stage="room", by="VCPU"}': (
                "_x719 1x720"
            ),
            'os_prefilter_no_host_total{stage="traits", by=""}': (
                "0x1079 1x360"
            ),
            _AFFINITY: "_x1435 1x5",
        },
        {"HardlyAnyServerHasAHost"},
    ),
    "a small cloud that rejects all": (
        {
            _RUNS: "0x359 1x359 2x359 3x720",
            'os_prefilter_filter_rejections_total{filter="hpet"}': (
                "0x359 1x359 2x359 3x720"
            ),
        },
        {"HardlyAnyServerHasAHost"},
    ),
    "one request a day, without a host": (
        {_RUNS: "0x1400 1x40", _ROOM: "_x1400 1x40"},
        set(),
    ),
    "a large cloud, of whose 300 requests a minute 5 find no host": (
        {_RUNS: "0+300x1440", _ROOM: "0+5x1440"},
        set(),
    ),
    "a large cloud without disk for an hour": (
        {_RUNS: "0+300x1440", _ROOM: "0+1x1380 1380+200x60 13380+1x5"},
        {"ServersWithoutHost"},
    ),
    "affinity groups, which leave one host of a thousand": (
        {
            _RUNS: "0+3x1440",
            _HOSTS.format("before"): "0+3000x1440",
            _HOSTS.format("after"): "0+3x1440",
        },
        set(),
    ),
    "a host filter that leaves no host for every third request": (
        {_RUNS: "0+3x1440", _AFFINITY: "0+1x1440"},
        {"ServersWithoutHost", "HostFilterLeavesNoHost"},
    ),
    "a scheduler that is restarted": (
        {_RUNS: "0+3x1420 0+3x20", _ROOM: "1000x1420 _x3 1x17"},
        set(),
    ),
    "servers on deprecated machine types, by an audit on two machines": (
        {
            _MARKED.format("pc", "a", "1"): "0x1440",
            _MARKED.format("pc", "b", "1"): "2x1440",
            _MARKED.format("pc", "b", "2"): "2x1440",
        },
        {"ServersOnDeprecatedMachineType"},
    ),
    "no server on a deprecated machine type any more": (
        {_MARKED.format("pc", "b", "1"): "2x1400 _x40"},
        set(),
    ),
    "a small cloud, 20 requests an hour, none of which finds a host": (
        {_RUNS: _TWENTY_AN_HOUR, _ROOM: _TWENTY_AN_HOUR},
        {"ServersWithoutHost", "HardlyAnyServerHasAHost"},
    ),
    "a filter in shadow that would leave fewer hosts to all": (
        {
            _TRIED: "0+3x1440",
            _FEWER: "0+3x1440",
            _NONE_LEFT: "0x1440",
            _SHADOW_FAILS: "0x1440",
        },
        set(),
    ),
    "a small cloud, and a filter in shadow that would leave no host": (
        {
            _TRIED: "0x359 1x359 2x359 3x359 4x360",
            _NONE_LEFT: "0x359 1x359 2x359 3x359 4x360",
            _SHADOW_FAILS: "0x1440",
        },
        {"ShadowFilterWouldLeaveNoHost"},
    ),
    "a filter in shadow that would leave no host once": (
        {_TRIED: "0x1400 1x40", _NONE_LEFT: "0x1400 1x40"},
        set(),
    ),
    "a large cloud, and a filter in shadow that is wrong at times": (
        {_TRIED: "0+300x1440", _NONE_LEFT: "0+5x1440"},
        set(),
    ),
    "a filter in shadow that fails": (
        {
            _TRIED: "0+3x1440",
            _NONE_LEFT: "0x1440",
            _SHADOW_FAILS: "0x1000 1x440",
        },
        {"ShadowFilterFails"},
    ),
    "affinity groups while a filter is in shadow": (
        {
            _RUNS: "0+3x1440",
            _HOSTS.format("before"): "0+3000x1440",
            _HOSTS.format("after"): "0+3x1440",
            _TRIED: "0+3x1440",
            _FEWER: "0x1440",
            _NONE_LEFT: "0x1440",
        },
        set(),
    ),
    "a filter that fails": (
        {
            _RUNS: "0+3x1440",
            'os_prefilter_filter_failures_total{filter="hpet"}': "0x1435 1x5",
        },
        {"RequestFilterFails"},
    ),
}


@pytest.mark.parametrize(("samples", "expected"), _CASES.values(), ids=_CASES)
def test_alerts_after_a_day(
    samples: dict[str, str], expected: set[str], tmp_path: Path
) -> None:
    series = [
        {
            "series": name.replace("{", '{instance="scheduler-1", ', 1),
            "values": values,
        }
        for name, values in {**_STARTS_WITH, **samples}.items()
    ]
    alerts = [
        {"labels": f'{{alertname="{name}"}}', "value": 1}
        for name in sorted(expected)
    ]
    firing = {
        "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
        "eval_time": "1d",
        "exp_samples": alerts,
    }
    test = {
        "interval": "1m",
        "input_series": series,
        "promql_expr_test": [firing],
    }
    document = {
        "rule_files": [str(_RULES)],
        "evaluation_interval": "5m",
        "tests": [test],
    }
    path = tmp_path / "test.yaml"
    path.write_text(json.dumps(document))
    _promtool("test", "rules", str(path))
