# SPDX-License-Identifier: Apache-2.0

"""Metrics, with the real prometheus_client: what is counted, in one process
and in two, and that nothing is without.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import prometheus_client
import pytest
from prometheus_client import multiprocess
from prometheus_client.parser import text_string_to_metric_families

from os_prefilter.common.errors import (
    ConfigurationError,
    FilterFailed,
    RequestRejected,
)
from os_prefilter.request.filter_contract import LoadedFilter
from os_prefilter.request.requirements import Requirements
from os_prefilter.service import Service, metrics
from os_prefilter.service.metrics import Measuring
from os_prefilter.service.traits_to_report import wanted_groups
from os_prefilter_tools.operators.readiness import (
    configured_filters,
    reports_of,
)
from tests.conftest import conf_with, spec_of
from tests.support.every_trait import marker_of
from tests.support.reporting_fleets import fleet_of

_PREFIX = "os_prefilter_"
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def _read(text: str) -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith(_PREFIX)
        and not sample.name.endswith("_created")
    }


def _exposed() -> Samples:
    return _read(prometheus_client.generate_latest().decode())


@pytest.fixture
def counted() -> Callable[[str, str], float]:
    """Return a function: by how much a metric of a filter has grown since the
    test began.
    """
    before = _exposed()

    def grown(metric: str, name: str) -> float:
        key = (f"{_PREFIX}filter_{metric}", (("filter", name),))
        return _exposed()[key] - before.get(key, 0.0)

    return grown


_KINDS = (
    "runs_total",
    "rejections_total",
    "failures_total",
    "requirements_total",
    "deferred_total",
    "seconds_count",
)
_REQUESTS: list[tuple[str, dict[str, Any], tuple[int, ...]]] = [
    ("hpet", {"hw_time_hpet": "yes"}, (1, 0, 0, 1, 0, 1)),
    ("noop", {"hw_time_hpet": "yes"}, (1, 0, 0, 0, 0, 1)),
    (
        "image_metadata",
        {"hw_vif_model": "e1000", "hw_video_model": "vga"},
        (1, 0, 0, 2, 0, 1),
    ),
    ("image_metadata", {"hw_vif_model": "nosuch"}, (1, 1, 0, 0, 0, 1)),
]


@pytest.mark.parametrize(("name", "properties", "expected"), _REQUESTS)
def test_runs_rejections_and_requirements_are_counted_per_filter(
    name: str,
    properties: dict[str, Any],
    expected: tuple[int, ...],
    counted: Callable[[str, str], float],
) -> None:
    pipeline = Service.from_conf(
        conf_with(
            enabled_filters=[name], metrics=True, unknown_values="reject"
        )
    )
    try:
        pipeline.apply(spec_of(properties))
    except RequestRejected:
        assert expected[1]
    assert tuple(counted(kind, name) for kind in _KINDS) == expected
    assert 0 < counted("seconds_sum", name) < 60


def test_requests_without_a_host_are_counted_from_0() -> None:
    """A share of them is no number while there is no series."""
    Service.from_conf(conf_with(enabled_filters=["hpet"], metrics=True))
    assert f"{_PREFIX}no_host_total" in {name for name, _ in _exposed()}


def test_filter_that_fails_or_is_written_for_nova_is_counted(
    counted: Callable[[str, str], float],
) -> None:
    def broken(_request: Any) -> Requirements:
        raise ValueError("broken")

    silent = LoadedFilter("silent", lambda _request: None)
    for each, error in (
        (LoadedFilter("broken", broken), "ValueError"),
        (silent, "TypeError: 'it returned a None"),
    ):
        with pytest.raises(
            FilterFailed, match=f"'{each.name}' failed with {error}"
        ):
            Service(
                (each,), observers=(Measuring([each.name]).observe,)
            ).apply(spec_of())
    assert tuple(counted(kind, "broken") for kind in _KINDS) == (
        1,
        0,
        1,
        0,
        0,
        1,
    )

    def theirs(_context: Any, request_spec: Any) -> None:
        request_spec.root_required.add("HW_CPU_X86_AVX2")

    # A service that is activated again does not fail on metrics that exist.
    each = LoadedFilter("theirs", theirs, nova_style=True)
    Service((each,), observers=(Measuring([each.name]).observe,)).apply(
        spec_of()
    )
    assert (
        counted("runs_total", "theirs"),
        counted("requirements_total", "theirs"),
    ) == (1, 1)


def test_deferred_requirements_and_compute_nodes_without_a_report_are_exported(
    counted: Callable[[str, str], float],
) -> None:
    """The gauge follows the fact; it has a line for each row."""
    marker = marker_of("CUSTOM_COMPUTE_TIME_HPET")
    nodes: list[set[str]] = []
    conf = conf_with(enabled_filters=["hpet"], metrics=True, facts_interval=0)
    groups = wanted_groups(*configured_filters(conf))
    pipeline = Service.from_conf(
        conf, {"reports": lambda _context: reports_of(fleet_of(nodes), groups)}
    )
    for state, unreported, required in (
        ([{marker}, set(), set()], 2, 0),
        ([{marker}], 0, 1),
    ):
        nodes[:] = state
        pipeline.apply(spec_of({"hw_time_hpet": "yes"}))
        assert (
            counted("requirements_total", "hpet"),
            counted("deferred_total", "hpet"),
        ) == (required, 1)
        assert (
            _exposed()[
                f"{_PREFIX}compute_nodes_not_reported", (("row", "time_hpet"),)
            ]
            == unreported
        )


def test_disabled_metrics_count_nothing() -> None:
    pipeline, before = (
        Service.from_conf(conf_with(enabled_filters=["noop"])),
        _exposed(),
    )
    pipeline.apply(spec_of())
    assert _exposed() == before


def test_missing_prometheus_client_stops_the_service_only_if_metrics_are_enabled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # What is registered once in a process is not there yet.
    monkeypatch.setattr(metrics, "_families", metrics._families.__wrapped__)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(ConfigurationError) as raised:
        Service.from_conf(conf_with(enabled_filters=["hpet"], metrics=True))
    assert (
        repr(Service.from_conf(conf_with(enabled_filters=["hpet"])))
        == "<Service: hpet>"
    )
    assert (
        str(raised.value)
        == "[prefilter] metrics needs prometheus_client, which is not"
        " installed: pip install '.[metrics]' in the repository of"
        " os-prefilter, or set metrics = false."
    )


_WORKER = """
import sys
from dataclasses import replace
from os_prefilter import Flavor, Image, RequestSpec
from os_prefilter.service import Service
from os_prefilter.service.metrics import Measuring
pipeline = replace(Service.from_names("hpet"), observers=(Measuring(["hpet"]).observe,))
for _ in range(int(sys.argv[1])):
    pipeline.apply(RequestSpec(Flavor(vcpus=1, memory_mb=512), Image({"hw_time_hpet": "yes"})))
print("done", flush=True)
sys.stdin.readline()
"""


def test_metrics_of_several_worker_processes_are_summed(
    tmp_path: Path,
) -> None:
    env, pipe = (
        {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)},
        subprocess.PIPE,
    )
    command = [sys.executable, "-c", _WORKER]
    workers = [
        subprocess.Popen(
            [*command, number], stdin=pipe, stdout=pipe, text=True, env=env
        )
        for number in "34"
    ]
    try:
        for worker in workers:
            assert worker.stdout
            assert worker.stdout.readline() == "done\n"
        registry = prometheus_client.CollectorRegistry()
        collector: Any = multiprocess.MultiProcessCollector
        collector(registry, str(tmp_path))
        found = _read(prometheus_client.generate_latest(registry).decode())
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()
    label = (("filter", "hpet"),)
    for metric in ("runs_total", "requirements_total"):
        assert found[f"{_PREFIX}filter_{metric}", label] == 7
    # Each has run it once, and remembered the answer.
    assert found[f"{_PREFIX}filter_seconds_count", label] == 2
    assert found[f"{_PREFIX}filter_rejections_total", label] == 0
