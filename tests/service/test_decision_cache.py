# SPDX-License-Identifier: Apache-2.0

"""Cached decisions: only for equal requests, while the facts stay equal."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

import pytest
from nova import objects

from os_prefilter import Flavor, Image, RequestSpec
from os_prefilter.common.errors import (
    FilterFailed,
    RequestRejected,
    UnsuitableRequestSpec,
)
from os_prefilter.request.filter_contract import Declaration, LoadedFilter
from os_prefilter.request.requirements import (
    UNSUFFIXED,
    Requirements,
    forbid,
    require,
)
from os_prefilter.request.spec import (
    Destination,
    RequestGroup,
    RequestLevelParams,
)
from os_prefilter.request.view import Request
from os_prefilter.service import Service
from os_prefilter.service.decision_cache import LONGEST, MOST
from os_prefilter.service.deployment_facts import Fact
from tests.conftest import pipeline_of, spec_of
from tests.support.nova_objects import nova_spec

_PROPERTIES = {"hw_vif_model": "e1000e", "trait:HW_CPU_X86_AVX2": "required"}
_EXTRA_SPECS = {"hw:sound_model": "ich9"}


def _require_x(_request: Request) -> Requirements:
    return require("CUSTOM_X", "a test")


class Counting:
    def __init__(
        self, decide: Callable[[Request], Requirements] = _require_x
    ) -> None:
        self.runs = 0
        self._decide = decide

    def __call__(self, request: Request) -> Requirements:
        self.runs += 1
        return self._decide(request)


def _pipeline(counting: Counting, reads: tuple[str, ...] = ()) -> Service:
    declaration = Declaration(reads=reads)
    counted = LoadedFilter("counting", counting, declaration=declaration)
    return Service((counted,))


def _ours(**more: Any) -> RequestSpec:
    return spec_of(
        _PROPERTIES, dict(_EXTRA_SPECS), disk_format="qcow2", **more
    )


def _novas() -> Any:
    return nova_spec(
        _PROPERTIES, _EXTRA_SPECS, is_bfv=False, requested_resources=[]
    )


def _image(spec: RequestSpec, properties: Mapping[str, object]) -> None:
    spec.image = Image(properties, "qcow2")


def _moved(spec: RequestSpec) -> None:
    _image(spec, _PROPERTIES | _EXTRA_SPECS)
    spec.flavor.extra_specs = {}


_CHANGES: dict[str, Callable[[RequestSpec], None]] = {
    "a property": lambda spec: _image(
        spec, {**_PROPERTIES, "hw_disk_bus": "ide"}
    ),
    "another value": lambda spec: _image(
        spec, {**_PROPERTIES, "hw_vif_model": "virtio"}
    ),
    "the value of another name": lambda spec: _image(
        spec, {"hw_vif_model": "required", "trait:X": "e1000e"}
    ),
    "a value of another type": lambda spec: _image(
        spec, {**_PROPERTIES, "hw_vif_model": b"e1000e"}
    ),
    "a disk format": lambda spec: setattr(spec.image, "disk_format", "raw"),
    "no image": lambda spec: setattr(spec, "image", None),
    "an extra spec": lambda spec: setattr(
        spec.flavor, "extra_specs", {**_EXTRA_SPECS, "hw:cpu_policy": "shared"}
    ),
    "a property that is an extra spec": _moved,
    "CPUs": lambda spec: setattr(spec.flavor, "vcpus", 2),
    "CPUs of another type": lambda spec: setattr(spec.flavor, "vcpus", True),
    "memory": lambda spec: setattr(spec.flavor, "memory_mb", 1024),
    "a disk": lambda spec: setattr(spec.flavor, "root_gb", 7),
    "an ephemeral disk": lambda spec: setattr(spec.flavor, "ephemeral_gb", 7),
    "swap": lambda spec: setattr(spec.flavor, "swap", 7),
    "a volume": lambda spec: setattr(spec, "is_bfv", True),
    "a trait of the root": lambda spec: spec.root_required.add("CUSTOM_Y"),
    "a trait that the root must not have": lambda spec: (
        spec.root_forbidden.add("CUSTOM_Y")
    ),
    "a group": lambda spec: spec.requested_resources.append(
        RequestGroup("port", {"VGPU": 1})
    ),
    "a PCI request": lambda spec: setattr(
        spec, "pci_request_ids", frozenset(("id",))
    ),
}
_NOVAS_CHANGES: dict[str, object] = {
    "request_level_params": objects.request_spec.RequestLevelParams(
        root_required={"CUSTOM_Y"}
    ),
    "requested_resources": [
        objects.RequestGroup(requester_id="port", resources={"VGPU": 1})
    ],
    "pci_requests": objects.InstancePCIRequests(
        requests=[
            objects.InstancePCIRequest(
                request_id=str(UUID(int=1)), count=1, alias_name="gpu"
            )
        ]
    ),
    "is_bfv": True,
}


def _runs(first: Any, second: Any) -> int:
    """Return how often a filter runs for two requests."""
    counting = Counting()
    pipeline = _pipeline(counting)
    decisions = pipeline.apply(second), pipeline.apply(first)
    assert (decisions[0] is decisions[1]) == (counting.runs == 1)
    assert "CUSTOM_X" in first.root_required
    assert "CUSTOM_X" in second.root_required
    return counting.runs


@pytest.mark.parametrize("what", _CHANGES)
def test_request_with_another_value_is_decided(what: str) -> None:
    """Any difference counts that a filter can read."""
    changed = _ours()
    _CHANGES[what](changed)
    assert _runs(_ours(), changed) == 2


@pytest.mark.parametrize("name", _NOVAS_CHANGES)
def test_request_of_nova_with_another_value_is_decided(name: str) -> None:
    changed = _novas()
    setattr(changed, name, _NOVAS_CHANGES[name])
    assert _runs(_novas(), changed) == 2


def test_repeated_request_gets_the_cached_decision() -> None:
    assert _runs(_novas(), _novas()) == 1


def test_ids_names_and_destinations_are_no_difference() -> None:
    same = _ours(requested_destination=Destination(aggregates=["one"]))
    same.image = Image(_PROPERTIES, "qcow2", "an id", "a name")
    same.flavor = copy.deepcopy(same.flavor)
    same.flavor.name = "another"
    assert _runs(_ours(), same) == 1


def test_empty_pci_requests_are_no_difference() -> None:
    """Nova's conductor sets them in each request; ports have groups."""

    def made() -> Any:
        requests = objects.InstancePCIRequests(requests=[])
        return _with(_novas, "pci_requests", requests)

    assert _runs(made(), made()) == 1


_VARYING: list[
    tuple[Callable[[Request], object], str, Callable[[str], Any]]
] = [
    (lambda request: request.project_id, "project_id", str),
    (lambda request: request.availability_zone, "availability_zone", str),
    (lambda request: request.flavor_attribute("name"), "flavor.name", str),
    (lambda request: request.image_attribute("id"), "image.id", str),
    (
        lambda request: request.scheduler_hints.get("group", ("",))[0],
        "scheduler_hints",
        lambda text: {"group": [text]},
    ),
]


def _with(made: Callable[[], Any], name: str, value: Any) -> Any:
    spec = made()
    part, _, field = name.rpartition(".")
    owner = spec
    if part:
        owner = copy.deepcopy(getattr(spec, part))
        setattr(spec, part, owner)
    setattr(owner, field, value)
    return spec


@pytest.mark.parametrize(
    ("reads", "name", "as_field"),
    _VARYING,
    ids=[name for _, name, _ in _VARYING],
)
def test_field_beyond_image_and_flavor_counts_where_a_filter_declares_it(
    reads: Callable[[Request], object],
    name: str,
    as_field: Callable[[str], Any],
) -> None:
    """Requests with the same value share a decision; others do not."""

    def name_value(request: Request) -> Requirements:
        return require(f"CUSTOM_{reads(request)}", "a test")

    # Nova takes nothing but UUIDs as IDs.
    makers = [_ours] if name == "image.id" else [_ours, _novas]
    for made in makers:
        counting = Counting(name_value)
        pipeline = _pipeline(counting, (name,))
        for text in "ABAB":
            spec = _with(made, name, as_field(text))
            pipeline.apply(spec)
            assert set(spec.root_required) == {f"CUSTOM_{text}"}, made
        assert counting.runs == 2, made


def test_field_beyond_image_and_flavor_that_a_filter_does_not_declare_is_refused() -> (
    None
):
    """Else a request with another value would get the cached decision."""
    counting = Counting(
        lambda request: require(f"CUSTOM_{request.project_id}", "a test")
    )
    pipeline = _pipeline(counting, ("scheduler_hints",))
    message = "it reads project_id of a request without @Declaration"
    with pytest.raises(FilterFailed, match=message):
        pipeline.apply(spec_of())


@pytest.mark.parametrize(
    ("hints", "seen"),
    [
        ({"group": "a"}, {"group": ("a",)}),
        ({"group": ["a", 1, None]}, {"group": ("a", "1", "None")}),
        ({"group": None, 2: "b"}, {"group": (), "2": ("b",)}),
        (None, {}),
    ],
    ids=["text", "list", "None in it", "None"],
)
def test_scheduler_hints_are_lists_of_texts_whatever_the_service_gives(
    hints: Any, seen: dict[str, tuple[str, ...]]
) -> None:
    assert Request(spec_of(scheduler_hints=hints)).scheduler_hints == seen


@pytest.mark.parametrize("in_place", [False, True])
def test_fact_that_changed_when_read_again_invalidates_the_cache_and_all_filters_see_the_same(
    *, in_place: bool
) -> None:
    seen: list[list[str]] = []

    def needing(_request: Request, *, fact: list[str]) -> Requirements:
        seen.append(fact)
        return require(f"CUSTOM_{fact[0]}", "a test")

    known = ["A"]

    def read(_context: object) -> list[str]:
        return known if in_place else known[:]

    filters = (
        LoadedFilter("one", needing, ("fact",)),
        LoadedFilter("other", needing, ("fact",)),
    )
    pipeline = Service(filters, facts={"fact": Fact("fact", read, 0)})
    for value in "ABBA":
        known[0] = value
        spec = spec_of()
        pipeline.apply(spec)
        assert spec.root_required == {f"CUSTOM_{value}"}
        assert seen[-1] is seen[-2]


@pytest.mark.parametrize("made", [_ours, _novas])
@pytest.mark.parametrize("scope", ["root", "root_and_unsuffixed"])
def test_mutating_one_request_spec_does_not_affect_cached_results(
    made: Callable[[], Any], scope: str
) -> None:
    pipeline = pipeline_of(
        "image_metadata", "compute_status", trait_scope=scope
    )
    first, second, third = made(), made(), made()
    pipeline.apply(first)
    pipeline.apply(second)
    required = set(second.root_required)
    forbidden = set(second.root_forbidden)
    extra_specs = dict(second.flavor.extra_specs)
    first.root_required.add("CUSTOM_ELSEWHERE")
    second.root_forbidden.clear()
    second.flavor.extra_specs["trait:CUSTOM_ELSEWHERE"] = "required"
    pipeline.apply(third)
    assert set(third.root_required) == required
    assert set(third.root_forbidden) == forbidden
    assert dict(third.flavor.extra_specs) == extra_specs


def test_cache_evicts_the_request_that_was_used_least_recently() -> None:
    counting = Counting()
    pipeline = _pipeline(counting)
    for number in (*range(MOST), 0, MOST, 0, MOST):
        pipeline.apply(spec_of({"build": str(number)}))
    assert counting.runs == MOST + 1
    pipeline.apply(spec_of({"build": "1"}))
    assert counting.runs == MOST + 2


def test_nova_style_filter_disables_the_cache_for_the_whole_pipeline() -> None:
    counting = Counting()
    theirs = LoadedFilter(
        "theirs", lambda _context, _request_spec: True, nova_style=True
    )
    pipeline = Service((LoadedFilter("counting", counting), theirs))
    for _ in range(2):
        pipeline.apply(spec_of())
    assert counting.runs == 2


@pytest.mark.parametrize("nothing", [[], "", 0], ids=["list", "text", "0"])
@pytest.mark.parametrize("part", ["image", "flavor"])
def test_malformed_properties_or_extra_specs_are_refused_despite_a_cached_request(
    part: str, nothing: Any
) -> None:
    pipeline = pipeline_of("noop")
    pipeline.apply(spec_of())
    spec = spec_of()
    if part == "image":
        spec.image = Image(nothing)
    else:
        spec.flavor = Flavor(1, 512, 1, extra_specs=nothing)
    with pytest.raises((UnsuitableRequestSpec, TypeError)):
        pipeline.apply(spec)


@pytest.mark.parametrize("broken", ["root_required", "root_forbidden"])
@pytest.mark.parametrize("value", [frozenset(), None])
def test_nothing_is_written_if_the_root_traits_cannot_be_written(
    broken: str, value: Any
) -> None:
    required = require("CUSTOM_A", "x") + require("CUSTOM_C", "x", UNSUFFIXED)
    result = required + forbid("CUSTOM_B", "x")
    spec = spec_of()
    setattr(spec.request_level_params, broken, value)
    before = copy.deepcopy(spec)
    with pytest.raises(UnsuitableRequestSpec):
        _pipeline(Counting(lambda _request: result)).apply(spec)
    assert spec == before


def test_repeated_request_gets_its_warning_or_its_rejection_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    warning = pipeline_of("image_metadata")
    rejecting = pipeline_of("image_metadata", unknown_values="reject")
    for number in (1, 2):
        warning.apply(spec_of({"hw_vif_model": "nosuch"}))
        assert caplog.text.count("unknown value 'nosuch'") == number
        with pytest.raises(RequestRejected):
            rejecting.apply(spec_of({"hw_vif_model": "nosuch"}))


class _Odd:
    """Something like a request spec that has ``fields`` of another kind."""

    fields: Mapping[str, object] = {}

    def __init__(self) -> None:
        self.flavor = Flavor(1, 1)
        self.image = None
        self.request_level_params = RequestLevelParams()
        self.root_required = self.request_level_params.root_required
        self.root_forbidden = self.request_level_params.root_forbidden


def _property(value: Any) -> RequestSpec:
    return spec_of({"x": value})


def _named(name: Any) -> RequestSpec:
    return spec_of({name: "x"})


def _hints(value: Any) -> RequestSpec:
    return _ours(scheduler_hints=value)


_OBJECT = object()
_LONG = "x" * LONGEST
_LONG_ITEMS = {
    f"trait:CUSTOM_{'X' * 240}_{each}": "required" for each in range(50)
}
_DIFFERENT: dict[str, tuple[Any, Any]] = {
    "lists of mappings": (_property([{1: "ami"}]), _property([{"1": "ami"}])),
    "objects": (_property(_OBJECT), _property(_OBJECT)),
    "a number and a boolean": (_property([1]), _property([True])),
    "an integer and a float": (_property((1,)), _property((1.0,))),
    "zeros": (_property(0.0), _property(-0.0)),
    "in a mapping": (_property({"a": 1}), _property({"a": True})),
    "in a set": (_property(frozenset((1,))), _property(frozenset((True,)))),
    "names that are no texts": (_named(1), _named(True)),
    "a very long value": (_property(_LONG), _property(_LONG)),
    "very long hints": (_hints({"x": _LONG}), _hints({"x": _LONG})),
    "long items of lists": (nova_spec(_LONG_ITEMS), nova_spec(_LONG_ITEMS)),
}


def _runs_with_hints(*specs: Any) -> int:
    """Return how often a filter runs that reads the scheduler's hints."""

    def count_hints(request: Request) -> Requirements:
        return require("CUSTOM_X", f"{len(request.scheduler_hints)} hints")

    counting = Counting(count_hints)
    pipeline = _pipeline(counting, ("scheduler_hints",))
    for spec in specs:
        pipeline.apply(spec)
        assert "CUSTOM_X" in spec.root_required
    return counting.runs


def test_requests_that_are_surely_equal_share_a_decision() -> None:
    value = ["1", {"2": 3}]
    assert _runs_with_hints(_property(value), _property(value)) == 1
    assert _runs_with_hints(_Odd(), _Odd()) == 1


@pytest.mark.parametrize("what", _DIFFERENT)
def test_requests_that_may_differ_or_are_too_long_share_no_decision(
    what: str,
) -> None:
    first, second = _DIFFERENT[what]
    assert _runs_with_hints(first, second) == 2
