# SPDX-License-Identifier: Apache-2.0

"""Preferred traits in Nova's scheduler: its own weight handler, host states,
request specs and client of Placement.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nova import objects
from nova.scheduler import request_filter
from nova.scheduler import utils as scheduler_utils
from nova.scheduler.client import report
from nova.scheduler.host_manager import HostState

from os_prefilter.nova import PreferredTraits
from os_prefilter.nova.entry import RequestFilters
from os_prefilter.nova.scheduling import PREFERRED_SHARES
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.fleet.model import Fleet, provider_uuid
from tests.support.nova_objects import nova_spec
from tests.support.nova_start import Start, ask, our_entry, user_context
from tests.support.placements import Observed, provider
from tests.support.rule_texts import rule, write_rules

_AVX, _SGX, _HPET = (
    "HW_CPU_X86_AVX512F",
    "HW_CPU_X86_SGX",
    "CUSTOM_COMPUTE_TIME_HPET",
)
_ROOM = "VCPU MEMORY_MB DISK_GB"
_WEIGHERS = (
    "[filter_scheduler]",
    (
        "weight_classes ="
        " nova.scheduler.weights.all_weighers,os_prefilter.nova.PreferredTraits"
    ),
)
_HOSTS = {"plain": "", "avx": _AVX, "both": f"{_AVX} {_SGX}", "hpet": _HPET}


@pytest.fixture
def observed() -> Iterator[Observed]:
    hosts = tuple(
        provider(name, _ROOM, f"COMPUTE_NODE {traits}")
        for name, traits in _HOSTS.items()
    )
    with EmbeddedPlacement(Fleet(hosts)) as placement:
        yield Observed(placement)


def _host(name: str, **metadata: str) -> Any:
    host = HostState(name, name, "cell")
    host.uuid = provider_uuid(name)
    host.cpu_allocation_ratio = host.ram_allocation_ratio = (
        host.disk_allocation_ratio
    ) = 1.0
    host.aggregates = (
        [objects.Aggregate(metadata=metadata)] if metadata else []
    )
    return host


def _spec(
    properties: dict[str, Any] | None = None,
    extra_specs: dict[str, str] | None = None,
) -> Any:
    fields: dict[str, Any] = {
        "instance_group": None,
        "requested_destination": None,
        "requested_resources": [],
        "is_bfv": False,
    }
    spec = nova_spec(properties, extra_specs, **fields)
    # The hosts are small.
    spec.flavor.memory_mb = 1
    return spec


def _weights(
    scheduler: Any, spec: Any, hosts: list[Any] | None = None
) -> dict[str, float]:
    weighed = scheduler.host_manager.get_weighed_hosts(
        hosts or [_host(name) for name in _HOSTS], spec
    )
    return {each.obj.host: each.weight for each in weighed}


def _filter(scheduler: Any, spec: Any) -> None:
    """Run our request filters, and Nova's query for candidates after them."""
    context = user_context()
    our_entry()(context, spec)
    resources = scheduler_utils.resources_from_request_spec(
        context, spec, scheduler.host_manager
    )
    client = report.report_client_singleton()
    client.get_allocation_candidates(context, resources)


def _schedule(scheduler: Any, *request: dict[str, Any]) -> dict[str, float]:
    spec = _spec(*request)
    _filter(scheduler, spec)
    return _weights(scheduler, spec)


def test_hosts_with_the_preferred_traits_of_a_flavor_come_first_and_others_weigh_the_same(
    start: Start, observed: Observed
) -> None:
    """From the first request on; a host that has one of two traits gets half
    of the weight.
    """
    scheduler = start("preferences", *_WEIGHERS)
    ask(observed)
    assert _schedule(scheduler, {}, {f"trait:{_AVX}": "preferred"}) == {
        "avx": 1,
        "both": 1,
        "plain": 0,
        "hpet": 0,
    }
    both = {
        f"preferred_trait:{_AVX}": "true",
        f"preferred_trait:{_SGX}": "true",
    }
    assert _schedule(scheduler, {}, both) == {
        "both": 1,
        "avx": 0.5,
        "plain": 0,
        "hpet": 0,
    }
    assert list(_schedule(scheduler, {}, both))[:2] == ["both", "avx"]
    # Nothing is preferred, and of what is preferred no host has any.
    for extra_specs in (
        {},
        {f"trait:{_AVX}": "required"},
        {"preferred_trait:CUSTOM_OF_NONE": "true"},
    ):
        assert set(_schedule(scheduler, {}, extra_specs).values()) == {0}
    # Placement did not list the new host.
    spec = _spec({}, {f"trait:{_AVX}": "preferred"})
    _filter(scheduler, spec)
    assert _weights(
        scheduler, spec, [_host("new"), _host("avx"), _host("plain")]
    ) == {"avx": 1, "new": 0, "plain": 0}
    # What was preferred goes with the request.
    assert PREFERRED_SHARES
    del spec
    gc.collect()
    assert len(PREFERRED_SHARES) == 0


def test_rules_and_preferred_properties_weigh_hosts_and_exclude_none(
    start: Start, observed: Observed, tmp_path: Path
) -> None:
    (tmp_path / "rules").mkdir()
    gold = rule(
        "gold",
        "{extra_spec: 'tier:class', is: gold}",
        more=f"prefer: [{_SGX}]",
    )
    write_rules(tmp_path / "rules" / "a.yaml", gold)
    options = (
        f"rules_dirs = {tmp_path / 'rules'}",
        "preferred_properties = hw_time_hpet",
        *_WEIGHERS,
    )
    scheduler = start("rules,hpet", *options)
    ask(observed)
    request = {"hw_time_hpet": "true"}, {"tier:class": "gold"}
    assert _schedule(scheduler, *request) == {
        "hpet": 0.5,
        "both": 0.5,
        "plain": 0,
        "avx": 0,
    }
    spec = _spec(*request)
    our_entry()(user_context(), spec)
    assert (spec.root_required, spec.root_forbidden) == (set(), set())


def test_preferences_cost_no_request_to_placement(
    start: Start, observed: Observed
) -> None:
    scheduler = start("preferences", *_WEIGHERS)
    ask(observed)
    assert _schedule(scheduler, {}, {f"trait:{_AVX}": "preferred"})["avx"]
    observed.sent.clear()
    assert _schedule(scheduler, {}, {f"trait:{_AVX}": "preferred"})["avx"]
    (query,) = observed.sent
    assert "/allocation_candidates?" in query


@pytest.mark.parametrize("multiplier", ["2.5", "0.0", "-1"])
def test_option_multiplies_the_weight_and_an_aggregate_overrides_it(
    multiplier: str, start: Start, observed: Observed
) -> None:
    scheduler = start(
        "preferences",
        f"preferred_weight_multiplier = {multiplier}",
        *_WEIGHERS,
    )
    ask(observed)
    spec = _spec({}, {f"trait:{_AVX}": "preferred"})
    _filter(scheduler, spec)
    hosts = [
        _host("avx"),
        _host("both", preferred_weight_multiplier="10"),
        _host("plain"),
    ]
    assert _weights(scheduler, spec, hosts) == {
        "avx": float(multiplier),
        "both": 10,
        "plain": 0,
    }


def test_weigher_without_activation_or_filters_weighs_nothing(
    start: Start, observed: Observed
) -> None:
    scheduler = start("", *_WEIGHERS)
    ask(observed)
    spec = _spec({}, {f"trait:{_AVX}": "preferred"})
    our_entry()(user_context(), spec)
    assert set(_weights(scheduler, spec).values()) == {0}
    request_filter.ALL_REQUEST_FILTERS[:] = [
        each
        for each in request_filter.ALL_REQUEST_FILTERS
        if not isinstance(each, RequestFilters)
    ]
    assert set(_weights(scheduler, spec).values()) == {0}
    assert [type(each) for each in scheduler.host_manager.weighers].count(
        PreferredTraits
    ) == 1


def test_nova_logs_no_warning_of_the_preference_and_builds_the_same_query(
    start: Start, observed: Observed, caplog: pytest.LogCaptureFixture
) -> None:
    """Without the filter it logs one for each request."""
    scheduler = start("preferences", *_WEIGHERS)
    ask(observed)

    def query(spec: Any) -> str:
        caplog.clear()
        built = scheduler_utils.resources_from_request_spec(
            user_context(), spec, scheduler.host_manager
        )
        return str(built.to_querystring())

    plain, wished = _spec(), _spec({}, {f"trait:{_AVX}": "preferred"})
    expected = query(plain)
    assert query(wished) == expected
    assert (
        "Only (required, forbidden) traits are supported. Received"
        " 'preferred'." in caplog.text
    )
    our_entry()(user_context(), wished)
    assert query(wished) == expected
    assert "preferred" not in caplog.text


@pytest.mark.parametrize(
    ("enabled", "lines", "warns"),
    [
        ("preferences", (), True),
        ("hpet", ("preferred_properties = time_hpet",), True),
        ("preferences", _WEIGHERS, False),
        ("hpet", (), False),
    ],
)
def test_scheduler_warns_at_its_start_of_preferences_without_the_weigher(
    enabled: str,
    lines: tuple[str, ...],
    warns: bool,
    start: Start,
    caplog: pytest.LogCaptureFixture,
) -> None:
    start(enabled, *lines)
    told = (
        "Preferred traits have no effect: add"
        " os_prefilter.nova.PreferredTraits to [filter_scheduler]"
        " weight_classes."
    )
    assert (told in caplog.text) == warns


@pytest.mark.parametrize(
    "enabled", ["image_metadata", "image_metadata,sound_model"]
)
def test_scheduler_warns_at_its_start_of_a_preferred_property_that_nova_itself_requires(
    enabled: str, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    start(
        enabled,
        "preferred_properties = hw_sound_model,hw_vif_model",
        *_WEIGHERS,
    )
    told = (
        "names sound_model, but Nova's own virtio_sound_filter may still"
        " require its trait: add sound_model to"
    )
    spec = _spec({"hw_sound_model": "virtio"})
    for each in request_filter.ALL_REQUEST_FILTERS[:-1]:
        if getattr(each, "__name__", "") == "virtio_sound_filter":
            each(user_context(), spec)
    # Nova has it since 32.
    is_required = enabled == "image_metadata" and hasattr(
        request_filter, "virtio_sound_filter"
    )
    assert (bool(spec.root_required), told in caplog.text) == (
        is_required,
        is_required,
    )
    assert caplog.text.count("preferred_properties names") == is_required
    caplog.clear()
    # Nova does not know this one.
    start("hpet", "preferred_properties = time_hpet", *_WEIGHERS)
    assert "preferred_properties" not in caplog.text
