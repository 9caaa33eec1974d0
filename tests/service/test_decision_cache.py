# SPDX-License-Identifier: Apache-2.0

"""Answers that are given again: only to a request that says the same, while
the facts are the same.
"""

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


class Counting:
    def __init__(
        self,
        answer: Callable[[Request], Requirements] = lambda _: require(
            "CUSTOM_X", "a test"
        ),
    ) -> None:
        self.runs = 0
        self._answer = answer

    def __call__(self, request: Request) -> Requirements:
        self.runs += 1
        return self._answer(request)


def _pipeline(counting: Counting, reads: tuple[str, ...] = ()) -> Service:
    return Service(
        (
            LoadedFilter(
                "counting", counting, declaration=Declaration(reads=reads)
            ),
        )
    )


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


def test_repeated_request_is_answered_from_the_cache_and_each_other_one_is_decided() -> (
    None
):
    """With any difference in what a filter can read; IDs, the flavor's name
    and the destination are none.
    """

    def runs(first: Any, second: Any) -> int:
        counting = Counting()
        pipeline = _pipeline(counting)
        assert (pipeline.apply(second) is pipeline.apply(first)) == (
            counting.runs == 1
        )
        assert (
            set(first.root_required)
            >= {"CUSTOM_X"}
            <= set(second.root_required)
        )
        return counting.runs

    for what, change in _CHANGES.items():
        changed = _ours()
        change(changed)
        assert runs(_ours(), changed) == 2, what
    for name, value in _NOVAS_CHANGES.items():
        novas = _novas()
        setattr(novas, name, value)
        assert runs(_novas(), novas) == 2, name
    same = _ours(requested_destination=Destination(aggregates=["one"]))
    same.image, same.flavor = (
        Image(_PROPERTIES, "qcow2", "an id", "a name"),
        copy.deepcopy(same.flavor),
    )
    same.flavor.name = "another"
    assert runs(_ours(), same) == runs(_novas(), _novas()) == 1
    # Nova's conductor sets them in each request; those of ports are groups.
    assert (
        runs(
            *(
                _with(
                    _novas,
                    "pci_requests",
                    objects.InstancePCIRequests(requests=[]),
                )
                for _ in range(2)
            )
        )
        == 1
    )


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
    if part:
        setattr(spec, part, copy.deepcopy(getattr(spec, part)))
    setattr(getattr(spec, part) if part else spec, field, value)
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
    """Requests with the same value share a decision, and others get their
    own.
    """
    # Nova takes nothing but UUIDs as IDs.
    for made in (_ours, _novas)[: 1 if name == "image.id" else 2]:
        counting = Counting(
            lambda request: require(f"CUSTOM_{reads(request)}", "a test")
        )
        pipeline = _pipeline(counting, (name,))
        for text in "ABAB":
            spec = _with(made, name, as_field(text))
            pipeline.apply(spec)
            assert set(spec.root_required) == {f"CUSTOM_{text}"}, made
        assert counting.runs == 2


def test_field_beyond_image_and_flavor_that_a_filter_does_not_declare_is_refused() -> (
    None
):
    """Else a decision would be taken again for a request with another
    value.
    """
    counting = Counting(
        lambda request: require(f"CUSTOM_{request.project_id}", "a test")
    )
    with pytest.raises(
        FilterFailed,
        match=r"it reads project_id of a request without @Declaration",
    ):
        _pipeline(counting, ("scheduler_hints",)).apply(spec_of())


def test_scheduler_hints_are_lists_of_texts_whatever_the_service_gives() -> (
    None
):
    for hints, seen in (
        ({"group": "a"}, {"group": ("a",)}),
        ({"group": ["a", 1, None]}, {"group": ("a", "1", "None")}),
        ({"group": None, 2: "b"}, {"group": (), "2": ("b",)}),
        (None, {}),
    ):
        assert Request(spec_of(scheduler_hints=hints)).scheduler_hints == seen


@pytest.mark.parametrize("in_place", [False, True])
def test_fact_that_changed_when_read_again_invalidates_the_cache_and_all_filters_see_the_same(
    *, in_place: bool
) -> None:
    seen: list[list[str]] = []

    def asks(_request: Request, *, of_deployment: list[str]) -> Requirements:
        seen.append(of_deployment)
        return require(f"CUSTOM_{of_deployment[0]}", "a test")

    known = ["A"]
    read = (
        (lambda _context: known) if in_place else (lambda _context: known[:])
    )
    facts = {"of_deployment": Fact("of_deployment", read, 0)}
    pipeline = Service(
        tuple(
            LoadedFilter(each, asks, ("of_deployment",))
            for each in ("one", "other")
        ),
        facts=facts,
    )
    for known[0] in "ABBA":
        spec = spec_of()
        pipeline.apply(spec)
        assert spec.root_required == {f"CUSTOM_{known[0]}"}
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
    expected = (
        set(second.root_required),
        set(second.root_forbidden),
        dict(second.flavor.extra_specs),
    )
    first.root_required.add("CUSTOM_ELSEWHERE")
    second.root_forbidden.clear()
    second.flavor.extra_specs["trait:CUSTOM_ELSEWHERE"] = "required"
    pipeline.apply(third)
    assert (
        set(third.root_required),
        set(third.root_forbidden),
        dict(third.flavor.extra_specs),
    ) == expected


def test_cache_evicts_the_request_that_was_used_least_recently() -> None:
    counting = Counting()
    pipeline = _pipeline(counting)
    for number in (*range(MOST), 0, MOST, 0, MOST):
        pipeline.apply(spec_of({"build": str(number)}))
    assert counting.runs == MOST + 1
    pipeline.apply(spec_of({"build": "1"}))
    assert counting.runs == MOST + 2


def test_nova_style_filter_disables_the_cache_for_the_whole_pipeline() -> None:
    counting, theirs = (
        Counting(),
        LoadedFilter(
            "theirs", lambda _context, _request_spec: True, nova_style=True
        ),
    )
    pipeline = Service((LoadedFilter("counting", counting), theirs))
    for _ in range(2):
        pipeline.apply(spec_of())
    assert counting.runs == 2


def test_malformed_properties_or_extra_specs_are_refused_despite_a_cached_request() -> (
    None
):
    nothings: list[Any] = [[], "", 0]
    pipeline = pipeline_of("noop")
    pipeline.apply(spec_of())
    for nothing in nothings:
        for malformed in (
            {"image": Image(nothing)},
            {"flavor": Flavor(1, 512, 1, extra_specs=nothing)},
        ):
            spec = spec_of()
            vars(spec).update(malformed)
            with pytest.raises((UnsuitableRequestSpec, TypeError)):
                pipeline.apply(spec)


@pytest.mark.parametrize("broken", ["root_required", "root_forbidden"])
@pytest.mark.parametrize("value", [frozenset(), None])
def test_nothing_is_written_if_the_root_traits_cannot_be_written(
    broken: str, value: Any
) -> None:
    answer = (
        require("CUSTOM_A", "x")
        + forbid("CUSTOM_B", "x")
        + require("CUSTOM_C", "x", UNSUFFIXED)
    )
    spec = spec_of()
    setattr(spec.request_level_params, broken, value)
    before = copy.deepcopy(spec)
    with pytest.raises(UnsuitableRequestSpec):
        _pipeline(Counting(lambda _request: answer)).apply(spec)
    assert spec == before


def test_repeated_request_gets_its_warning_or_its_rejection_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    warning, rejecting = (
        pipeline_of("image_metadata"),
        pipeline_of("image_metadata", unknown_values="reject"),
    )
    for number in (1, 2):
        warning.apply(spec_of({"hw_vif_model": "nosuch"}))
        assert caplog.text.count("unknown value 'nosuch'") == number
        with pytest.raises(RequestRejected):
            rejecting.apply(spec_of({"hw_vif_model": "nosuch"}))


class _Odd:
    """Something like a request spec that has ``fields`` of another kind."""

    fields: Mapping[str, object] = {}

    def __init__(self) -> None:
        self.flavor, self.image, self.request_level_params = (
            Flavor(1, 1),
            None,
            RequestLevelParams(),
        )
        self.root_required = self.request_level_params.root_required
        self.root_forbidden = self.request_level_params.root_forbidden


def _pair(
    make: Callable[[Any], Any], one: object, other: object = None
) -> tuple[Any, Any]:
    return make(one), make(one if other is None else other)


def _property(value: Any) -> RequestSpec:
    return spec_of({"x": value})


_LONG = "x" * LONGEST
_DIFFERENT: dict[str, tuple[Any, Any]] = {
    "lists of mappings": _pair(_property, [{1: "ami"}], [{"1": "ami"}]),
    "objects": _pair(_property, object()),
    "a number and a boolean": _pair(_property, [1], [True]),
    "an integer and a float": _pair(_property, (1,), (1.0,)),
    "zeros": _pair(_property, 0.0, -0.0),
    "in a mapping": _pair(_property, {"a": 1}, {"a": True}),
    "in a set": _pair(_property, frozenset((1,)), frozenset((True,))),
    "names that are no texts": _pair(
        lambda name: spec_of({name: "x"}), 1, True
    ),
    "a very long value": _pair(_property, _LONG),
    "very long hints": _pair(
        lambda hints: _ours(scheduler_hints=hints), {"x": _LONG}
    ),
    "long items of lists": _pair(
        nova_spec,
        {f"trait:CUSTOM_{'X' * 240}_{each}": "required" for each in range(50)},
    ),
}


def test_only_requests_that_are_surely_the_same_and_not_too_long_share_a_decision() -> (
    None
):
    def runs(*specs: Any) -> int:
        counting = Counting(
            lambda request: require(
                "CUSTOM_X", f"{len(request.scheduler_hints)} hints"
            )
        )
        pipeline = _pipeline(counting, ("scheduler_hints",))
        for spec in specs:
            pipeline.apply(spec)
            assert "CUSTOM_X" in spec.root_required
        return counting.runs

    assert (
        runs(*_pair(_property, ["1", {"2": 3}])) == runs(_Odd(), _Odd()) == 1
    )
    for what, pair in _DIFFERENT.items():
        assert runs(*pair) == 2, what
