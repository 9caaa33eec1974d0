# SPDX-License-Identifier: Apache-2.0

"""Shadow filters: they change nothing, and what they would have changed is
what Placement offers once they are enabled.
"""

from __future__ import annotations

import copy
import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import prometheus_client
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from os_prefilter import RequestSpec, allocation_candidates_query
from os_prefilter.adapters.placement.client import PlacementClient
from os_prefilter.common.errors import (
    ConfigurationError,
    RejectedByFilter,
    RequestRejected,
)
from os_prefilter.common.trait_names import Trait
from os_prefilter.request.filter_contract import Declaration, LoadedFilter
from os_prefilter.request.requirements import (
    ROOT,
    UNSUFFIXED,
    Note,
    Requirement,
    Requirements,
    forbid,
    require,
    require_aggregates,
)
from os_prefilter.service import Service, decision_log, metrics
from os_prefilter.service.decision_log import LOGGER, MAX_BYTES
from os_prefilter.service.deployment_facts import Fact
from os_prefilter.service.loading import installed_filters, load_filters
from os_prefilter.service.request_events import RequestEvent
from os_prefilter.vocabulary.options import Options
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.testing.generated import any_request
from tests.conftest import conf_with, one_in, spec_of, times
from tests.support import gpu_trees

_A, _B, _C = "CUSTOM_A", "CUSTOM_B", "CUSTOM_C"
_AGGREGATE = "6f1c0c1e-0000-4000-8000-000000000001"
_MICROVERSION = "1.36"
_LIMIT = 1_000_000
"""Of candidates: with fewer, those of some hosts would be missing."""


def _named(name: str, function: Callable[..., Any]) -> LoadedFilter:
    return LoadedFilter(name, function)


def _requiring(trait: str, name: str = "shadow") -> LoadedFilter:
    return _named(name, lambda _request: require(trait, f"a test of {trait}"))


def _raising(error: BaseException) -> LoadedFilter:
    def fail(_request: object) -> Requirements:
        raise error

    return _named("shadow", fail)


def _nova_style(
    change: Callable[[Any], object], name: str = "shadow"
) -> LoadedFilter:
    return LoadedFilter(
        name, lambda _context, spec: change(spec), nova_style=True
    )


def _shadow_of(
    *shadow: LoadedFilter, enabled: Iterable[LoadedFilter] = ()
) -> Service:
    return Service(
        tuple(enabled), observers=(decision_log.record,), shadow=shadow
    )


def _host(uuid: str, *traits: str) -> dict[str, Any]:
    return {
        uuid: {
            "root_provider_uuid": uuid,
            "traits": ["COMPUTE_NODE", *traits],
            "resources": {},
        }
    }


def _candidates(*hosts: Mapping[str, Any]) -> dict[str, Any]:
    """Return a response of Placement with a candidate for each host."""
    summaries: dict[str, Any] = {}
    for host in hosts:
        summaries |= host
    requests = [
        {
            "allocations": {uuid: {"resources": {"VCPU": 1}}},
            "mappings": {"": [uuid]},
        }
        for uuid in summaries
    ]
    return {"allocation_requests": requests, "provider_summaries": summaries}


_THREE = _candidates(_host("1", _A), _host("2", _A, _B), _host("3"))


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[Any]]:
    """Return a function: the lines of the history."""
    caplog.set_level(logging.INFO)
    return lambda: [
        json.loads(each.getMessage())
        for each in caplog.records
        if each.name == LOGGER
    ]


Lines = Callable[[], list[Any]]


def _results(
    service: Service, lines: Lines, candidates: Mapping[str, Any] = _THREE
) -> list[Any]:
    """Return what the history has of the shadow filters for a request."""
    spec = spec_of()
    service.answered(service.apply(spec), candidates, spec)
    found: list[Any] = []
    for line in lines():
        found += line.get("shadow", ())
    return found


# -- what is recorded -------------------------------------------------------
def test_line_has_what_a_shadow_filter_would_have_changed(
    lines: Lines,
) -> None:
    service = _shadow_of(_requiring(_A), enabled=[_requiring(_C, "first")])
    spec = spec_of()
    spec.instance_uuid = "3f0c3d8e-55a1-4c3b-9a41-6d0f5c8e7b11"  # type: ignore[attr-defined]
    context = SimpleNamespace(request_id="req-1")
    service.answered(service.apply(spec, context), _THREE, spec, context)
    decision, shadow = lines()
    assert decision["result"] == "passed"
    assert [each["trait"] for each in decision["requirements"]] == [_C]
    assert "shadow" not in decision
    assert shadow.pop("time") >= decision["time"]
    assert shadow == {
        "worker": decision["worker"],
        "request": "req-1",
        "server": "3f0c3d8e-55a1-4c3b-9a41-6d0f5c8e7b11",
        "result": "shadow",
        "reason": None,
        "hosts": [],
        "requirements": [],
        "preferences": [],
        "aggregates": [],
        "notes": [],
        "left_out": 0,
        "shadow": [
            {
                "filter": "shadow",
                "result": "passed",
                "reason": None,
                "candidates": 3,
                "lacking": 1,
                "requirements": [
                    {
                        "trait": _A,
                        "required": True,
                        "scope": "root",
                        "filter": "shadow",
                        "source": f"a test of {_A}",
                    }
                ],
                "aggregates": [],
            }
        ],
    }


_NO_TRAIT = Requirement(Trait("no trait"), True, ROOT, "x")


def _several(_request: object) -> Requirements:
    return require(_A, "x") + forbid(_B, "x")


def _contradicting(_request: object) -> Requirements:
    return forbid(_C, "a test")


def _of_unknown_group(_request: object) -> Requirements:
    return require(_A, "x", "no_such_group")


def _in_aggregates(_request: object) -> Requirements:
    return require_aggregates([_AGGREGATE], "x")


def _partly_deferred(_request: object) -> Requirements:
    return Requirements(notes=(Note("x", "later", waits=True),)) + require(
        _A, "x"
    )


def _rejecting(_request: object) -> Requirements:
    raise RejectedByFilter("shadow", "no\nhost")


_OUTCOMES: dict[str, tuple[Callable[..., Any], str, str | None, int]] = {
    "required and forbidden": (_several, "passed", None, 2),
    "aggregates, which the response does not have": (
        _in_aggregates,
        "passed",
        None,
        0,
    ),
    "deferred in part": (_partly_deferred, "passed", "x: later", 1),
    "rejected": (_rejecting, "rejected", "no host", 3),
    "contradicts an enabled filter": (_contradicting, "rejected", _C, 3),
    "a group that the request lacks": (
        _of_unknown_group,
        "failed",
        "no group 'no_such_group'",
        0,
    ),
    "returns rubbish": (
        lambda _request: ["CUSTOM_A"],
        "failed",
        "TypeError: it returned a list",
        0,
    ),
    "requires rubbish": (
        lambda _request: Requirements(("CUSTOM_A",)),  # type: ignore[arg-type]
        "failed",
        "TypeError: its Requirements have a part of another type",
        0,
    ),
    "requires what is no trait": (
        lambda _request: Requirements((_NO_TRAIT,)),
        "failed",
        "ValueError: it returned something that is not a trait name",
        0,
    ),
    "divides by zero": (lambda _request: 1 // 0, "failed", "ZeroDivision", 0),
}


@pytest.mark.parametrize(
    ("function", "result", "reason", "lacking"),
    _OUTCOMES.values(),
    ids=_OUTCOMES,
)
def test_result_of_a_shadow_filter(
    function: Callable[..., Any],
    result: str,
    reason: str | None,
    lacking: int,
    lines: Lines,
) -> None:
    service = _shadow_of(
        _named("shadow", function), enabled=[_requiring(_C, "first")]
    )
    (found,) = _results(service, lines)
    assert found["result"] == result
    assert (found["reason"] is None) == (reason is None)
    assert (reason or "") in (found["reason"] or "")
    assert found["candidates"] == 3
    assert found["lacking"] == lacking


@pytest.mark.parametrize(
    "silent",
    [
        lambda _request: Requirements(),
        lambda _request: Requirements(notes=(Note("x", "deferred"),)),
    ],
    ids=["nothing", "a note"],
)
def test_nothing_is_recorded_where_no_shadow_filter_requires_anything(
    silent: Callable[..., Any], lines: Lines
) -> None:
    service = _shadow_of(_named("shadow", silent))
    # Not even the candidates are looked at.
    service.answered(service.apply(spec_of()), {})
    assert [line["result"] for line in lines()] == ["passed"]


def test_each_shadow_filter_is_judged_by_itself(lines: Lines) -> None:
    """As if it alone were enabled: none sees what another one requires."""

    def look(
        _request: object, *, required_before: tuple[Any, ...]
    ) -> Requirements:
        names = sorted(item.trait for item in required_before)
        return require(_B, f"after {names}")

    last = LoadedFilter("last", look, ("required_before",))
    service = _shadow_of(
        _requiring(_A), last, enabled=[_requiring(_C, "first")]
    )
    first, second = _results(service, lines)
    assert (first["filter"], first["lacking"]) == ("shadow", 1)
    assert (second["filter"], second["lacking"]) == ("last", 2)
    assert second["requirements"][0]["source"] == f"after ['{_C}']"


@pytest.mark.parametrize(
    "candidates",
    [
        {},
        {"allocation_requests": [{}], "provider_summaries": {}},
        {"allocation_requests": None, "provider_summaries": None},
        "no JSON",
    ],
    ids=["empty", "no allocations", "null", "text"],
)
def test_response_of_another_form_is_a_warning(
    candidates: Any, lines: Lines, caplog: pytest.LogCaptureFixture
) -> None:
    service = _shadow_of(_requiring(_A))
    service.answered(service.apply(spec_of()), candidates)
    assert [line["result"] for line in lines()] == ["passed"]
    assert "Failed to compare shadow filters" in caplog.text


def test_no_candidate_is_no_host_that_lacks_anything(lines: Lines) -> None:
    (found,) = _results(_shadow_of(_requiring(_A)), lines, _candidates())
    assert (found["candidates"], found["lacking"]) == (0, 0)


def test_provider_that_only_shares_its_disk_is_no_host(lines: Lines) -> None:
    candidates = _candidates(_host("1", _A), _host("disk"))
    candidates["provider_summaries"]["disk"]["traits"] = []
    candidates["allocation_requests"][0]["allocations"] |= {
        "disk": {"resources": {"DISK_GB": 1}}
    }
    del candidates["allocation_requests"][1]
    (found,) = _results(_shadow_of(_requiring(_A)), lines, candidates)
    assert (found["candidates"], found["lacking"]) == (1, 0)


def test_host_of_which_one_candidate_has_all_lacks_nothing(
    lines: Lines,
) -> None:
    """Of two GPUs of a host, one has the trait that a group requires."""
    candidates = _candidates(_host("1"))
    for name, traits in (("gpu-1", []), ("gpu-2", [_A])):
        candidates["provider_summaries"][name] = {
            "root_provider_uuid": "1",
            "traits": traits,
        }
    candidates["allocation_requests"] = [
        {
            "allocations": {
                "1": {"resources": {"VCPU": 1}},
                name: {"resources": {"VGPU": 1}},
            },
            "mappings": {"": ["1"], "_gpu": [name]},
        }
        for name in ("gpu-1", "gpu-2")
    ]
    spec = spec_of(extra_specs={"resources_gpu:VGPU": "1"})

    def of_group(_request: object) -> Requirements:
        return require(_A, "x", "_gpu")

    def of_unsuffixed(_request: object) -> Requirements:
        return require(_A, "x", UNSUFFIXED)

    service = _shadow_of(_named("one", of_group), _named("two", of_unsuffixed))
    service.answered(service.apply(spec), candidates, spec)
    found = lines()[-1]["shadow"]
    assert [each["lacking"] for each in found] == [0, 1]


def test_line_is_bounded_whatever_shadow_filters_require(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    text = '"' * 1000

    def much(_request: object) -> Requirements:
        result = require_aggregates([_AGGREGATE], text) + Requirements()
        for number in range(300):
            result += require(f"CUSTOM_{'X' * 240}_{number}", text)
        return result

    filters = [_named(f"{number}{'n' * 200}", much) for number in range(60)]
    service = _shadow_of(*filters)
    service.answered(service.apply(spec_of()), _THREE)
    line = caplog.records[-1].getMessage()
    assert len(line) <= MAX_BYTES
    found = json.loads(line)
    assert len(found["shadow"]) == 50
    recorded = sum(len(each["requirements"]) for each in found["shadow"])
    assert recorded == 50
    aggregates = sum(len(each["aggregates"]) for each in found["shadow"])
    assert aggregates == 10
    assert found["left_out"] == 50 * 301 - recorded - aggregates


# -- they change nothing ----------------------------------------------------
_MUTATIONS: dict[str, Callable[[Any], object]] = {
    "traits": lambda spec: spec.root_required.add(_A),
    "flavor": lambda spec: spec.flavor.extra_specs.update(x="y"),
    "clears all": lambda spec: spec.__dict__.clear(),
    "raises": lambda spec: spec.no_such_field,
}


@pytest.mark.parametrize("change", _MUTATIONS.values(), ids=_MUTATIONS)
@pytest.mark.parametrize(
    "enabled",
    [
        (),
        (_requiring(_C, "first"),),
        (_nova_style(lambda spec: spec.root_required.add(_B), "first"),),
    ],
    ids=["none", "ours", "nova-style"],
)
def test_nova_style_shadow_filter_changes_a_copy(
    change: Callable[[Any], object], enabled: tuple[LoadedFilter, ...]
) -> None:
    expected, given_spec = (spec_of(extra_specs={"a": "b"}) for _ in "12")
    Service(enabled).apply(expected)
    decision = _shadow_of(_nova_style(change), enabled=enabled).apply(
        given_spec
    )
    assert given_spec == expected
    assert len(decision.shadow) == 1


def test_nova_style_shadow_filter_sees_what_enabled_ones_required(
    lines: Lines,
) -> None:
    def change(spec: Any) -> None:
        assert _C in spec.root_required
        spec.root_required.add(_A)
        spec.root_forbidden.add(_B)

    service = _shadow_of(
        _nova_style(change), enabled=[_requiring(_C, "first")]
    )
    (found,) = _results(service, lines)
    assert (found["result"], found["lacking"]) == ("passed", 2)
    assert [item["trait"] for item in found["requirements"]] == [_A, _B]


class RequestFilterFailed(Exception):
    pass


def test_nova_style_shadow_filter_may_reject(lines: Lines) -> None:
    def reject(_spec: Any) -> None:
        raise RequestFilterFailed("not this one")

    (found,) = _results(_shadow_of(_nova_style(reject)), lines)
    assert (found["result"], found["lacking"]) == ("rejected", 3)
    assert "not this one" in found["reason"]


class _Slots(RequestSpec):
    __slots__ = ("more",)


def test_request_that_cannot_be_copied_is_scheduled() -> None:
    spec = _Slots(spec_of().flavor, spec_of().image)
    service = _shadow_of(
        _nova_style(lambda _spec: None), enabled=[_requiring(_C, "first")]
    )
    (run,) = service.apply(spec).shadow
    assert run.result == "failed"
    assert spec.root_required == {_C}


def test_failure_is_logged_with_the_filter_and_reaches_no_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    service = Service(shadow=(_raising(ValueError("of\nit")),))
    assert service.apply(spec_of()).requirements == ()
    assert caplog.messages == [
        "The shadow filter 'shadow' failed, which changes nothing: ValueError:"
        " of\\nit"
    ]


class TimeoutOfEventlet(BaseException):
    """Ends a request; no Exception, as eventlet.Timeout."""


@pytest.mark.parametrize("nova_style", [False, True])
def test_timeout_of_the_request_is_not_swallowed(nova_style: bool) -> None:
    def fail(*_given: object) -> Requirements:
        raise TimeoutOfEventlet

    shadow = LoadedFilter("shadow", fail, nova_style=nova_style)
    spec = spec_of()
    with pytest.raises(TimeoutOfEventlet):
        _shadow_of(shadow, enabled=[_requiring(_C, "first")]).apply(spec)
    assert spec == spec_of()


def test_rejected_request_runs_no_shadow_filter(lines: Lines) -> None:
    ran: list[object] = []
    shadow = _named("shadow", ran.append)
    enabled = _named("first", _rejecting)
    with pytest.raises(RejectedByFilter):
        _shadow_of(shadow, enabled=[enabled]).apply(spec_of())
    assert not ran
    assert [line["result"] for line in lines()] == ["rejected"]


def test_decision_is_cached_with_its_shadow_filters() -> None:
    runs: list[str] = []

    def count(name: str) -> Callable[[Any], Requirements]:
        def run(_request: object) -> Requirements:
            runs.append(name)
            return require(_A, "x")

        return run

    service = _shadow_of(
        _named("shadow", count("ours")),
        _nova_style(lambda _spec: runs.append("nova-style")),
        enabled=[_named("first", count("enabled"))],
    )
    decisions = [service.apply(spec_of()) for _ in range(3)]
    assert runs == ["enabled", "ours", *["nova-style"] * 3]
    assert [len(each.shadow) for each in decisions] == [2, 2, 2]


def test_what_a_shadow_filter_reads_is_part_of_the_key() -> None:
    shadow = LoadedFilter(
        "shadow",
        lambda request: require(_A, str(request.project_id)),
        declaration=Declaration(reads=("project_id",)),
    )
    service = _shadow_of(shadow)
    sources = []
    for project in ("one", "two", "one"):
        spec = spec_of()
        spec.project_id = project
        (run,) = service.apply(spec).shadow
        sources.append(run.requirements[0].source)
    assert sources == ["one", "two", "one"]


def test_fact_that_hangs_delays_no_request() -> None:
    """If only a shadow filter needs it; the filter waits."""
    began: list[object] = []
    end = False

    def hang(_context: object) -> int:
        began.append(1)
        while not end:
            time.sleep(0.01)
        return 1

    shadow = LoadedFilter(
        "shadow", lambda _request, *, slow: require(_A, str(slow)), ("slow",)
    )
    service = Service(
        facts={"slow": Fact("slow", hang, 60.0)}, shadow=(shadow,)
    )
    try:
        (run,) = service.apply(spec_of()).shadow
        assert run.result == "deferred"
        assert run.requirements == ()
    finally:
        end = True
    deadline = time.monotonic() + 60
    while not run.requirements and time.monotonic() < deadline:
        (run,) = service.apply(spec_of()).shadow
    assert run.requirements[0].source == "1"
    assert len(began) == 1


def test_gate_keeps_a_shadow_filter_as_an_enabled_one(lines: Lines) -> None:
    shadow = LoadedFilter(
        "shadow",
        lambda _request: require(_A, "x"),
        declaration=Declaration(gate="open", closed="closed"),
    )
    is_open = False
    fact = Fact("open", lambda _context: is_open, 0.0)
    service = Service(
        facts={"open": fact},
        observers=(decision_log.record,),
        shadow=(shadow,),
    )
    (found,) = _results(service, lines)
    assert found["result"] == "deferred"
    # Perhaps it is not known yet that the gate is closed.
    assert found["reason"].endswith("yet")
    assert found["requirements"] == []
    assert found["lacking"] == 0
    opened = service.without_waiting()
    deadline = time.monotonic() + 60
    while not opened.apply(spec_of()).shadow[0].requirements:
        assert time.monotonic() < deadline


# -- configuration ----------------------------------------------------------
def test_name_may_be_in_one_list_alone() -> None:
    conf = conf_with(enabled_filters=["hpet"], shadow_filters=["hpet"])
    with pytest.raises(
        ConfigurationError, match=r"shadow_filters: 'hpet' .* enabled_filters"
    ):
        Service.from_conf(conf)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["hpett"], r"\[prefilter\] shadow_filters: .*nearest name is hpet"),
        (["hpet", "hpet"], "shadow_filters: 'hpet' is named twice"),
        ([""], "shadow_filters: a name in it is empty"),
    ],
)
def test_wrong_name_stops_the_service(names: list[str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Service.from_conf(conf_with(shadow_filters=names))


def test_start_is_logged_and_warns_where_nothing_would_be_seen(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    Service.from_conf(conf_with(shadow_filters=["noop", "hpet"]))
    assert (
        "Request filters in shadow, which change nothing: noop, hpet."
        in caplog.messages
    )
    assert "shadow_filters has no effect: set decision_history" in caplog.text
    caplog.clear()
    conf = conf_with(shadow_filters=["noop"], decision_history=True)
    Service.from_conf(conf)
    assert "no effect" not in caplog.text


# -- metrics ----------------------------------------------------------------
def _counts(name: str) -> dict[str, float | None]:
    value = prometheus_client.REGISTRY.get_sample_value
    return {
        metric: value(f"os_prefilter_{metric}_total", {"filter": name})
        for metric in (
            "shadow_requests",
            "shadow_fewer_hosts",
            "shadow_no_host",
            "shadow_failures",
            "filter_runs",
            "filter_failures",
        )
    }


def _measured(name: str, function: Callable[..., Any]) -> Service:
    return Service(
        observers=(metrics.Measuring((), None, [name]).observe,),
        shadow=(_named(name, function),),
    )


_COUNTED: dict[str, tuple[Callable[..., Any], tuple[int, int, int, int]]] = {
    "nothing": (lambda _request: Requirements(), (2, 0, 0, 0)),
    "fewer": (lambda _request: require(_A, "x"), (2, 2, 0, 0)),
    "none": (lambda _request: require(_C, "x"), (2, 2, 2, 0)),
    "rejects": (_rejecting, (2, 2, 2, 0)),
    "fails": (lambda _request: 1 // 0, (2, 0, 0, 2)),
}


@pytest.mark.parametrize("name", _COUNTED)
def test_metrics_of_two_requests(name: str) -> None:
    """None of them is among the metrics of enabled filters."""
    function, expected = _COUNTED[name]
    label = f"counted {name}"
    service = _measured(label, function)
    assert [*_counts(label).values()] == [0, 0, 0, 0, None, None]
    for _ in range(2):
        service.answered(service.apply(spec_of()), _THREE)
    assert [*_counts(label).values()] == [*expected, None, None]


def test_metrics_of_configured_shadow_filters_begin_at_0() -> None:
    """A share is no number while there is no series."""
    for family in vars(metrics._families()).values():
        # Another test of this process may have counted it.
        with suppress(KeyError, ValueError):
            family.remove("accelerators")
    conf = conf_with(shadow_filters=["accelerators"], metrics=True)
    Service.from_conf(conf)
    assert [*_counts("accelerators").values()] == [0, 0, 0, 0, None, None]


def test_no_candidate_would_not_have_been_fewer() -> None:
    service = _measured("no candidate", lambda _request: require(_A, "x"))
    service.answered(service.apply(spec_of()), _candidates())
    assert [*_counts("no candidate").values()][:3] == [1, 0, 0]


# -- against Placement ------------------------------------------------------
class _Results:
    """An observer that keeps what was found."""

    def __init__(self) -> None:
        self.found: list[tuple[str, int, int]] = []

    def __call__(self, event: RequestEvent) -> None:
        for run, candidates, lacking in event.shadow:
            self.found.append((run.result, candidates, lacking))


def _query(client: PlacementClient, query: str) -> dict[str, Any] | None:
    response: Any = client._adapter.get(
        f"/allocation_candidates?{query}",
        microversion=_MICROVERSION,
        raise_exc=False,
    )
    return response.json() if response.status_code == 200 else None


def _hosts_in(answer: Mapping[str, Any]) -> set[str]:
    summaries = answer["provider_summaries"]
    roots = {
        summaries[uuid]["root_provider_uuid"]
        for request in answer["allocation_requests"]
        for uuid in request["allocations"]
    }
    return {
        root for root in roots if "COMPUTE_NODE" in summaries[root]["traits"]
    }


def _assert_shadow_is_right(
    client: PlacementClient,
    spec: RequestSpec,
    enabled: tuple[LoadedFilter, ...],
    judged: LoadedFilter,
    facts: Mapping[str, Fact],
) -> bool:
    """Compare a filter in shadow with the same filter enabled.

    :return: whether it would have changed the candidates
    """
    results = _Results()
    before, after = copy.deepcopy(spec), copy.deepcopy(spec)
    shadow = Service(
        enabled, _OPTIONS, facts, observers=(results,), shadow=(judged,)
    )
    # Facts for shadow filters alone are read in the background.
    for fact in facts.values():
        pending = fact.begin()
        if pending:
            fact.wait(pending)
    try:
        decision = shadow.apply(before)
        query = allocation_candidates_query(before, limit=_LIMIT)
    except RequestRejected:
        return False
    client.ensure_traits(
        {
            item.trait
            for item in decision.requirements + decision.shadow[0].requirements
            if item.trait.startswith("CUSTOM_")
        }
    )
    offered = _query(client, query)
    if offered is None:
        return False
    shadow.answered(decision, offered)
    hosts = _hosts_in(offered)
    try:
        Service((*enabled, judged), _OPTIONS, facts).apply(after)
        answer = _query(
            client, allocation_candidates_query(after, limit=_LIMIT)
        )
        if answer is None:
            return False
        left = _hosts_in(answer)
        result = "passed"
    except RequestRejected:
        left = set()
        result = "rejected"
    assert left <= hosts
    lacking = len(hosts) - len(left)
    if not results.found:
        assert lacking == 0
        return False
    assert results.found == [(result, len(hosts), lacking)]
    return lacking > 0


_OPTIONS = Options(reported_traits=("*",), wait_for_reports=False)
_FACTS = {
    "owner_is_reported": Fact(
        "owner_is_reported", lambda _context: True, 3600.0, unknown=True
    )
}
_NAMES = sorted(
    set(installed_filters())
    - {
        # Of aggregates and networks, which the response does not have.
        "availability_zone",
        "isolated_aggregates",
        "routed_networks",
        "tenant_isolation",
        "rules",
        "noop",
    }
)


@settings(
    deadline=None,
    max_examples=times(50),
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.function_scoped_fixture,
    ],
)
@given(any_request(), st.sampled_from(_NAMES), st.sampled_from(["", *_NAMES]))
def test_hosts_that_lack_it_are_those_that_placement_excludes_once_enabled(
    placement: PlacementClient, spec: RequestSpec, name: str, first: str
) -> None:
    """For generated requests, on the example fleet."""
    judged, *enabled = load_filters(
        [name, first] if first not in {"", name} else [name], None
    )
    placement.request("PUT", "/resource_classes/CUSTOM_IRON")
    _assert_shadow_is_right(placement, spec, tuple(enabled), judged, _FACTS)


@pytest.fixture(scope="module")
def gpus() -> Iterator[PlacementClient]:
    trees = list(gpu_trees.trees())[:: one_in(3)]
    fleet = gpu_trees.fleet_of(trees)
    with EmbeddedPlacement(fleet, most_candidates=_LIMIT) as embedded:
        embedded.know({"OWNER_NOVA", "OWNER_CYBORG"})
        yield embedded.client


@pytest.mark.parametrize(
    "asked", gpu_trees.REQUESTS[1 :: one_in(4)], ids=lambda asked: asked.name
)
def test_owner_of_devices_is_seen_in_the_candidates(
    asked: gpu_trees.Asked, gpus: PlacementClient
) -> None:
    """Also where the filter moves a resource class into a group of its own,
    which the query does not have in shadow.
    """
    (owner,) = load_filters(["owner"], None)
    _assert_shadow_is_right(gpus, asked.spec(), (), owner, _FACTS)
