# SPDX-License-Identifier: Apache-2.0

"""Shadow filters in Nova's scheduler: hosts and their order are those of Nova
alone, and the history has what the filters would have changed.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from nova import exception
from nova.scheduler import request_filter
from nova.scheduler import utils as scheduler_utils
from nova.scheduler.client import report

from os_prefilter.common.errors import ConfigurationError
from os_prefilter.nova.activation import STAYS_WITH_NOVA
from os_prefilter.nova.entry import LastFilter, RequestFilters
from os_prefilter.nova.scheduling import PREFERRED_SHARES
from os_prefilter.request.fields import clone_of
from os_prefilter.service.decision_log import LOGGER
from os_prefilter.service.loading import installed_filters
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.fleet.model import Fleet
from tests.against_nova.requests import request_specs
from tests.conftest import times
from tests.support.nova_objects import nova_spec
from tests.support.nova_start import Start, ask, user_context
from tests.support.placements import Observed, provider

_CLASSES = "VCPU MEMORY_MB DISK_GB"
_IGB, _HPET = "COMPUTE_NET_VIF_MODEL_IGB", "CUSTOM_COMPUTE_TIME_HPET"
_DEDICATED = {"hw:cpu_policy": "dedicated"}
_HOSTS = (
    provider("plain", _CLASSES, "COMPUTE_NODE"),
    provider("igb", f"{_CLASSES} PCPU", f"COMPUTE_NODE {_IGB}"),
    provider(
        "gpu",
        _CLASSES,
        f"COMPUTE_NODE OWNER_NOVA HW_CPU_X86_AVX2 {_IGB}",
        (provider("gpu_0", "VGPU", "OWNER_NOVA"),),
    ),
)
_ALL = sorted(installed_filters().keys() - STAYS_WITH_NOVA.keys())
_SHADOW = f"shadow_filters = {','.join(_ALL)}"
_HISTORY = "decision_history = true"


@pytest.fixture
def observed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Observed]:
    # Nova's filter of owners looks up the oldest service there.
    monkeypatch.setattr(
        "nova.context.scatter_gather_all_cells", lambda *_given, **_named: {}
    )
    with EmbeddedPlacement(Fleet(_HOSTS)) as placement:
        placement.client.ensure_traits(
            [_HPET, "CUSTOM_RAID", "CUSTOM_NOT_REPORTED"]
        )
        yield Observed(placement)


def _spec(
    properties: dict[str, Any] | None = None,
    extra_specs: dict[str, str] | None = None,
    **fields: Any,
) -> Any:
    given: dict[str, Any] = {
        "availability_zone": None,
        "instance_group": None,
        "requested_destination": None,
        "requested_resources": [],
        "is_bfv": False,
    }
    spec = nova_spec(properties, extra_specs, **{**given, **fields})
    # The hosts are small.
    spec.flavor.memory_mb = 1
    return spec


def _schedule(scheduler: Any, spec: Any) -> Any:
    """Run Nova's request filters and its queries for candidates.

    :return: what Placement returned last, as Nova goes on with it; or the
        error that its user reads
    """
    context = user_context()
    try:
        request_filter.process_reqspec(context, spec)
        client = report.report_client_singleton()
        found = None
        for pins in (True, False):
            resources = scheduler_utils.resources_from_request_spec(
                context,
                spec,
                scheduler.host_manager,
                enable_pinning_translate=pins,
            )
            query = resources.to_querystring()
            found = client.get_allocation_candidates(context, resources)
            if not resources.cpu_pinning_requested:
                break
    except Exception as error:  # noqa: BLE001 - of odd requests, Nova's own
        return type(error), str(error)
    return query, json.dumps(found)


def _shadow_lines(caplog: pytest.LogCaptureFixture) -> list[Any]:
    lines = [
        json.loads(each.getMessage())
        for each in caplog.records
        if each.name == LOGGER
    ]
    return [each for each in lines if each["result"] == "shadow"]


def _queries(observed: Observed) -> list[str]:
    """Return the queries for candidates since the last call."""
    found = [each for each in observed.sent if "/allocation_cand" in each]
    observed.sent.clear()
    return found


def _plain(value: Any) -> Any:
    """Return a primitive of Nova's with its sets, which are lists, sorted."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return sorted((_plain(each) for each in value), key=str)
    return value


def _without_ours() -> list[Any]:
    return [
        each
        for each in request_filter.ALL_REQUEST_FILTERS
        if not isinstance(each, (RequestFilters, LastFilter))
    ]


@settings(
    deadline=None,
    max_examples=times(100),
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.function_scoped_fixture,
    ],
)
@given(request_specs())
def test_hosts_and_their_order_are_those_of_nova_alone(
    compared: Any, caplog: pytest.LogCaptureFixture, spec: Any
) -> None:
    """With all filters in shadow, for generated requests."""
    scheduler, ours, seen = compared
    alone = clone_of(spec)
    seen.sent.clear()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(request_filter, "ALL_REQUEST_FILTERS", _without_ours())
        expected = _schedule(scheduler, alone)
        queries = _queries(seen)
    request_filter.ALL_REQUEST_FILTERS[:] = [*_without_ours(), ours]
    assert _schedule(scheduler, spec) == expected
    assert _plain(spec.obj_to_primitive()) == _plain(alone.obj_to_primitive())
    assert spec not in PREFERRED_SHARES
    assert _queries(seen) == queries
    assert "Failed to compare" not in caplog.text
    assert "Failed to look at" not in caplog.text
    caplog.clear()


@pytest.fixture
def compared(start: Start, observed: Observed) -> Any:
    """Return the scheduler, our entry, and what Placement is asked."""
    before = list(request_filter.ALL_REQUEST_FILTERS)
    scheduler = start("", _SHADOW, _HISTORY, "reported_traits = *")
    ask(observed)
    assert _without_ours() == before
    logging.getLogger(LOGGER).setLevel(logging.INFO)
    return scheduler, request_filter.ALL_REQUEST_FILTERS[-1], observed


def test_all_are_in_shadow_in_the_comparison(
    compared: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The comparison would be empty if they required nothing."""
    caplog.set_level(logging.INFO, LOGGER)
    scheduler, ours, observed = compared
    assert [each.name for each in ours.service.shadow] == _ALL
    observed.sent.clear()
    _schedule(scheduler, _spec({"hw_vif_model": "igb"}))
    (line,) = _shadow_lines(caplog)
    found = {each["filter"]: each for each in line["shadow"]}
    assert found["image_metadata"]["candidates"] == 3
    assert found["image_metadata"]["lacking"] == 1
    assert found["compute_status"]["lacking"] == 0
    assert len(_queries(observed)) == 1


@pytest.mark.parametrize(
    ("enabled", "candidates"), [("", 3), ("image_metadata", 2)]
)
def test_candidates_are_those_that_the_enabled_filters_left(
    enabled: str,
    candidates: int,
    start: Start,
    observed: Observed,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    scheduler = start(enabled, "shadow_filters = hpet", _HISTORY)
    ask(observed)
    spec = _spec({"hw_vif_model": "igb", "hw_time_hpet": True})
    _schedule(scheduler, spec)
    (line,) = _shadow_lines(caplog)
    (found,) = line["shadow"]
    assert found["filter"] == "hpet"
    assert found["candidates"] == candidates
    assert found["lacking"] == candidates
    assert _HPET not in spec.root_required


def test_candidates_of_both_queries_for_dedicated_cpus_are_compared(
    start: Start, observed: Observed, caplog: pytest.LogCaptureFixture
) -> None:
    """Nova takes hosts with PCPU, and then those with VCPU."""
    caplog.set_level(logging.INFO, LOGGER)
    scheduler = start("", "shadow_filters = image_metadata", _HISTORY)
    ask(observed)
    _schedule(scheduler, _spec({"hw_vif_model": "igb"}, dict(_DEDICATED)))
    (line,) = _shadow_lines(caplog)
    (found,) = line["shadow"]
    assert (found["candidates"], found["lacking"]) == (3, 1)


@pytest.mark.parametrize(
    ("enabled", "says_why"),
    [("", False), ("image_metadata", True)],
    ids=["all in shadow", "another one enabled"],
)
def test_reason_is_nova_s_own_while_all_filters_are_in_shadow(
    enabled: str,
    says_why: bool,
    start: Start,
    observed: Observed,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    scheduler = start(enabled, "shadow_filters = hpet", _HISTORY)
    ask(observed)
    spec = _spec({"hw_time_hpet": True}, {"resources:VCPU": "17"})
    found = _schedule(scheduler, spec)
    assert (found[0] is exception.NoValidHost) == says_why
    (line,) = _shadow_lines(caplog)
    assert line["shadow"][0]["candidates"] == 0


def test_request_of_which_shadow_filters_require_nothing_costs_no_comparison(
    start: Start, observed: Observed, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = start("", "shadow_filters = hpet", _HISTORY)
    ask(observed)
    monkeypatch.setattr("os_prefilter.nova.scheduling._novas_queries", None)
    assert len(_schedule(scheduler, _spec())) == 2


def test_nova_s_filter_of_the_same_purpose_runs_on(
    start: Start, observed: Observed
) -> None:
    """Only an enabled filter takes its place."""
    start("compute_status", "shadow_filters = accelerators,image_type")
    names = [
        getattr(each, "__name__", "")
        for each in request_filter.ALL_REQUEST_FILTERS
    ]
    assert "compute_status_filter" not in names
    assert "accelerators_filter" in names
    assert "require_image_type_support" in names


@pytest.mark.parametrize("name", STAYS_WITH_NOVA)
def test_filter_for_other_schedulers_stops_nova_in_shadow_as_well(
    name: str, start: Start
) -> None:
    with pytest.raises(
        ConfigurationError, match=rf"shadow_filters: '{name}' is for other"
    ):
        start("", f"shadow_filters = {name}")
