"""Answers that are given again: only to a request that says the same, while the facts are the same."""

import copy
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

import pytest
from nova import objects

from os_prefilter import Flavor, Image, Pipeline, RequestSpec
from os_prefilter.errors import RequestRejected
from os_prefilter.plugins import LoadedFilter
from os_prefilter.remembered import LONGEST, MOST
from os_prefilter.request import Request
from os_prefilter.request_spec import Destination, RequestGroup, RequestLevelParams
from os_prefilter.requirements import NOTHING, Requirements, require
from tests.conftest import pipeline_of, spec_of
from tests.nova_objects import nova_spec

_PROPERTIES = {"hw_vif_model": "e1000e", "trait:HW_CPU_X86_AVX2": "required"}
_EXTRA_SPECS = {"hw:sound_model": "ich9"}


class Counting:
    """A filter that counts how often it runs."""

    def __init__(
        self, answer: Callable[[Request], Requirements] = lambda _request: require("CUSTOM_X", "a test")
    ) -> None:
        self.runs = 0
        self._answer = answer

    def __call__(self, request: Request) -> Requirements:
        self.runs += 1
        return self._answer(request)


def _pipeline(counting: Counting, **more: Any) -> Pipeline:
    return Pipeline([LoadedFilter("counting", counting)], **more)


def _ours() -> RequestSpec:
    return spec_of(_PROPERTIES, dict(_EXTRA_SPECS), disk_format="qcow2")


def _novas() -> Any:
    return nova_spec(_PROPERTIES, _EXTRA_SPECS, is_bfv=False, requested_resources=[])


@pytest.mark.parametrize("made", [_ours, _novas])
def test_filters_run_once_for_a_request_that_comes_again(made: Callable[[], Any]) -> None:
    counting = Counting()
    pipeline = _pipeline(counting)
    first, second = made(), made()
    assert pipeline.apply(first) == pipeline.apply(second)
    assert counting.runs == 1
    assert set(first.root_required) == set(second.root_required) == {"CUSTOM_X"}


def _image(spec: RequestSpec, properties: Mapping[str, object]) -> None:
    spec.image = Image(properties, "qcow2")


def _moved(spec: RequestSpec) -> None:
    _image(spec, _PROPERTIES | _EXTRA_SPECS)
    spec.flavor.extra_specs = {}


_CHANGES: list[tuple[str, Callable[[RequestSpec], None]]] = [
    ("a property", lambda spec: _image(spec, {**_PROPERTIES, "hw_disk_bus": "ide"})),
    ("no property", lambda spec: _image(spec, {})),
    ("another value", lambda spec: _image(spec, {**_PROPERTIES, "hw_vif_model": "virtio"})),
    ("the value of another name", lambda spec: _image(spec, {"hw_vif_model": "required", "trait:X": "e1000e"})),
    ("a value of another type", lambda spec: _image(spec, {**_PROPERTIES, "hw_vif_model": b"e1000e"})),
    ("a disk format", lambda spec: setattr(spec.image, "disk_format", "raw")),
    ("no image", lambda spec: setattr(spec, "image", None)),
    ("an extra spec", lambda spec: setattr(spec.flavor, "extra_specs", {**_EXTRA_SPECS, "hw:cpu_policy": "shared"})),
    ("no extra spec", lambda spec: setattr(spec.flavor, "extra_specs", {})),
    ("a property that is an extra spec", _moved),
    ("CPUs", lambda spec: setattr(spec.flavor, "vcpus", 2)),
    ("CPUs of another type", lambda spec: setattr(spec.flavor, "vcpus", True)),
    ("memory", lambda spec: setattr(spec.flavor, "memory_mb", 1024)),
    ("a disk", lambda spec: setattr(spec.flavor, "root_gb", 7)),
    ("an ephemeral disk", lambda spec: setattr(spec.flavor, "ephemeral_gb", 7)),
    ("swap", lambda spec: setattr(spec.flavor, "swap", 7)),
    ("a volume", lambda spec: setattr(spec, "is_bfv", True)),
    ("a trait of the root", lambda spec: spec.root_required.add("CUSTOM_Y")),
    ("a trait that the root must not have", lambda spec: spec.root_forbidden.add("CUSTOM_Y")),
    ("a group", lambda spec: spec.requested_resources.append(RequestGroup("port", {"VGPU": 1}))),
    ("a PCI request", lambda spec: setattr(spec, "pci_request_ids", frozenset(("id",)))),
]


@pytest.mark.parametrize(("what", "change"), _CHANGES, ids=[what for what, _ in _CHANGES])
def test_whatever_a_filter_can_see_makes_another_request(what: str, change: Callable[[RequestSpec], None]) -> None:
    counting = Counting()
    pipeline = _pipeline(counting)
    pipeline.apply(_ours())
    changed = _ours()
    change(changed)
    pipeline.apply(changed)
    assert counting.runs == 2, what


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("request_level_params", objects.request_spec.RequestLevelParams(root_required={"CUSTOM_Y"})),
        ("requested_resources", [objects.RequestGroup(requester_id="port", resources={"VGPU": 1})]),
        (
            "pci_requests",
            objects.InstancePCIRequests(requests=[objects.InstancePCIRequest(request_id=str(UUID(int=1)), count=1)]),
        ),
        ("is_bfv", True),
    ],
)
def test_so_does_whatever_it_can_see_of_novas(name: str, value: object) -> None:
    counting = Counting()
    pipeline = _pipeline(counting)
    pipeline.apply(_novas())
    changed = _novas()
    setattr(changed, name, value)
    pipeline.apply(changed)
    assert counting.runs == 2


def test_what_no_filter_can_see_makes_none() -> None:
    counting = Counting()
    pipeline = _pipeline(counting)
    pipeline.apply(_ours())
    same = _ours()
    same.image, same.flavor = copy.deepcopy(same.image), copy.deepcopy(same.flavor)
    assert same.image
    same.image.id, same.image.name, same.flavor.name = "an id", "a name", "another"
    same.requested_destination = Destination(aggregates=["one"])
    pipeline.apply(same)
    assert counting.runs == 1


@pytest.mark.parametrize(
    "reads", [lambda request: request.image_attribute("id"), lambda request: request.flavor_attribute("name")]
)
def test_a_filter_that_reads_other_fields_runs_each_time(reads: Callable[[Request], object]) -> None:
    def answer(request: Request) -> Requirements:
        return require(f"CUSTOM_{reads(request)}", "a test")

    pipeline = _pipeline(Counting(answer))
    for name in ("A", "B"):
        spec = RequestSpec(Flavor(1, 1, name=name), Image(id=name))
        pipeline.apply(spec)
        assert spec.root_required == {f"CUSTOM_{name}"}


def test_a_new_value_of_a_fact_is_another_answer() -> None:
    known = {"of_deployment": "A"}
    mine = LoadedFilter(
        "mine", lambda _request, *, of_deployment: require(f"CUSTOM_{of_deployment}", "x"), ("of_deployment",)
    )
    fact = _Now(known)
    facts: Any = {"of_deployment": fact}
    pipeline = Pipeline([mine], facts=facts)
    for value in "ABBA":
        known["of_deployment"] = value
        spec = spec_of()
        pipeline.apply(spec)
        assert spec.root_required == {f"CUSTOM_{value}"}


class _Now:
    """A fact that is never kept."""

    def __init__(self, known: Mapping[str, str]) -> None:
        self._known = known

    def value(self, _context: object) -> str:
        return self._known["of_deployment"]


def test_all_filters_of_a_request_see_the_same_value_of_a_fact() -> None:
    seen: list[object] = []

    class Changing:
        def value(self, _context: object) -> object:
            return object()

    def asks(_request: Request, *, of_deployment: object) -> Requirements:
        seen.append(of_deployment)
        return NOTHING

    facts: Any = {"of_deployment": Changing()}
    pair = [LoadedFilter(name, asks, ("of_deployment",)) for name in ("first", "second")]
    Pipeline(pair, facts=facts).apply(spec_of())
    assert seen[0] is seen[1]


def test_what_is_refused_is_refused_again() -> None:
    pipeline = pipeline_of("image_metadata", unknown_values="reject")
    for _ in range(2):
        spec = spec_of({"hw_vif_model": "nosuch"})
        with pytest.raises(RequestRejected):
            pipeline.apply(spec)
        assert spec.root_required == set()


def test_a_warning_is_logged_each_time(caplog: pytest.LogCaptureFixture) -> None:
    pipeline = pipeline_of("image_metadata")
    for _ in range(2):
        caplog.clear()
        pipeline.apply(spec_of({"hw_vif_model": "nosuch"}))
        assert "unknown value 'nosuch'" in caplog.text


@pytest.mark.parametrize("made", [_ours, _novas])
@pytest.mark.parametrize("scope", ["root", "root_and_unsuffixed"])
def test_no_request_spec_shares_anything_with_another(made: Callable[[], Any], scope: str) -> None:
    pipeline = pipeline_of("image_metadata", "compute_status", trait_scope=scope)
    first, second, third = made(), made(), made()
    pipeline.apply(first)
    pipeline.apply(second)
    expected = set(second.root_required), set(second.root_forbidden), dict(second.flavor.extra_specs)
    first.root_required.add("CUSTOM_ELSEWHERE")
    second.root_forbidden.clear()
    second.flavor.extra_specs["trait:CUSTOM_ELSEWHERE"] = "required"
    pipeline.apply(third)
    assert (set(third.root_required), set(third.root_forbidden), dict(third.flavor.extra_specs)) == expected


def test_a_request_that_is_applied_twice_is_the_same_as_once() -> None:
    pipeline = pipeline_of("image_metadata")
    once, twice = _ours(), _ours()
    pipeline.apply(once)
    pipeline.apply(twice)
    pipeline.apply(twice)
    assert once == twice


def test_values_without_a_hash_are_no_obstacle() -> None:
    counting = Counting()
    pipeline = _pipeline(counting)
    for _ in range(2):
        pipeline.apply(spec_of({"mappings": [{"virtual": "ami"}]}))
    assert counting.runs == 2
    for _ in range(2):
        pipeline.apply(spec_of({"cpus": [1, 2]}))
    assert counting.runs == 3


def test_the_memory_is_bounded() -> None:
    """In number and in length, and the oldest go first."""
    counting = Counting()
    pipeline = _pipeline(counting)
    for number in range(MOST + 1):
        pipeline.apply(spec_of({"build": str(number)}))
    pipeline.apply(spec_of({"build": str(MOST)}))
    assert counting.runs == MOST + 1
    assert len(pipeline._remembered.page({}).answers) == MOST
    pipeline.apply(spec_of({"build": "0"}))
    assert counting.runs == MOST + 2
    for _ in range(2):
        pipeline.apply(spec_of({"build": "x" * LONGEST}))
    assert counting.runs == MOST + 4


def test_a_filter_of_the_nova_way_runs_each_time_and_so_do_all() -> None:
    counting = Counting()
    theirs: Any = lambda _context, _request_spec: True  # noqa: E731
    pipeline = Pipeline([LoadedFilter("counting", counting), LoadedFilter("theirs", theirs, nova_style=True)])
    for _ in range(2):
        pipeline.apply(spec_of())
    assert counting.runs == 2


def test_root_traits_of_novas_may_be_unset() -> None:
    spec = nova_spec(_PROPERTIES, request_level_params=objects.request_spec.RequestLevelParams())
    pipeline_of("image_metadata").apply(spec)
    assert set(spec.root_required) == {"COMPUTE_NET_VIF_MODEL_E1000E"}
    assert RequestLevelParams().root_required == set()
