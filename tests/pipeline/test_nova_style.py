# SPDX-License-Identifier: Apache-2.0

"""Filters written the Nova way: what they changed is recorded, and undone when
a later filter fails.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from nova import exception, objects
from nova.objects import base as nova_base
from nova.scheduler import request_filter

from os_prefilter import (
    Destination,
    Flavor,
    Image,
    Pipeline,
    Request,
    RequestGroup,
    RequestSpec,
    Requirements,
)
from os_prefilter.common.dataclasses import dataclass
from os_prefilter.common.errors import (
    ContradictingRequirements,
    FilterFailed,
    RejectedByFilter,
    UnsuitableRequestSpec,
)
from os_prefilter.request.requirements import (
    NOTHING,
    forbid,
    require,
    require_aggregates,
)
from os_prefilter.service.loading import as_filter
from tests.conftest import spec_of
from tests.support.nova_objects import nova_spec

_AGGREGATE = "7d2590ae-fb85-4080-9306-058b4c915e3f"


def _busy(_context: Any, spec: Any) -> bool:
    spec.root_required.add("HW_CPU_X86_AVX2")
    spec.root_forbidden.add("COMPUTE_STATUS_DISABLED")
    spec.requested_destination = Destination(
        aggregates=["a"], forbidden_aggregates={"b"}
    )
    spec.requested_resources[0].required_traits.add("OWNER_CYBORG")
    spec.requested_resources[0].forbidden_traits.discard("OWNER_NOVA")
    return False


def _spec() -> Any:
    return spec_of(
        requested_resources=[
            RequestGroup("port", {"VGPU": 1}, forbidden_traits={"OWNER_NOVA"})
        ]
    )


def test_changes_of_a_nova_style_filter_are_recorded_even_if_it_returns_false() -> (
    None
):
    spec = _spec()
    decision = Pipeline([as_filter("busy", _busy)]).apply(spec)
    source = "set by the filter itself"
    assert [
        (item.scope, item.trait, item.required, item.filter, item.source)
        for item in decision.requirements
    ] == [
        ("port", "OWNER_CYBORG", True, "busy", source),
        ("root", "COMPUTE_STATUS_DISABLED", False, "busy", source),
        ("root", "HW_CPU_X86_AVX2", True, "busy", source),
    ]
    assert spec.root_required == {"HW_CPU_X86_AVX2"}


def test_changes_that_are_no_requirement_are_noted() -> None:
    decision = Pipeline([as_filter("busy", _busy)]).apply(_spec())
    assert [note.reason for note in decision.notes] == [
        "removed OWNER_NOVA from port",
        "now in one of the aggregates a",
        "now not in the aggregate b",
    ]
    sources = {note.source for note in decision.notes}
    assert sources == {"set by the filter itself"}


def test_changes_that_a_filter_has_made_are_not_adjusted() -> None:
    filters = [as_filter("busy", _busy)]
    adjusted = Pipeline(
        filters, adjust=[lambda _each, _result, _request: NOTHING]
    )
    requirements = adjusted.apply(_spec()).requirements
    assert requirements == Pipeline(filters).apply(_spec()).requirements


def test_nova_style_filter_gets_the_context_and_sees_what_earlier_filters_require() -> (
    None
):
    def first(_request: Request) -> Requirements:
        traits = require("OWNER_NOVA", "x") + forbid("OWNER_CYBORG", "x")
        return traits + require_aggregates([_AGGREGATE], "x")

    seen: list[object] = []

    def look(context: Any, spec: Any) -> None:
        seen.append(context)
        seen.append(set(spec.root_required))
        seen.append(spec.requested_destination.aggregates)

    filters = [as_filter("first", first), as_filter("look", look)]
    decision = Pipeline(filters).decide(Request(spec_of()), "the context")
    assert seen == ["the context", {"OWNER_NOVA"}, [_AGGREGATE]]
    assert decision.removed_later == frozenset()
    assert decision.preferred_share([]) == 0.0


def test_filter_after_a_nova_style_one_gets_the_servers_own_facts() -> None:
    seen: list[Request] = []

    def last(request: Request) -> Requirements:
        seen.append(request)
        return NOTHING

    filters = [
        as_filter("nova style", lambda _context, _spec: None),
        as_filter("last", last),
    ]
    request = Request(spec_of(), "pc", None, {"hw_a": "b"})
    Pipeline(filters).decide(request)
    (again,) = seen
    assert again.kept_machine_type == "pc"
    assert again.implied == {"hw_a": "b"}


_FAILURE = "'bad' failed with ValueError: 'half-way'"
_ERRORS = pytest.mark.parametrize(
    ("error", "raised", "message"),
    [
        (ValueError("half-way"), FilterFailed, _FAILURE),
        (KeyboardInterrupt("now"), KeyboardInterrupt, "now"),
    ],
    ids=["error", "interruption"],
)


@_ERRORS
def test_changes_are_undone_when_a_later_filter_fails(
    error: BaseException, raised: type[BaseException], message: str
) -> None:
    def fail(_request: Request) -> Requirements:
        raise error

    spec = _spec()
    filters = [as_filter("busy", _busy), as_filter("bad", fail)]
    with pytest.raises(raised, match=message):
        Pipeline(filters).apply(spec)
    assert spec == _spec()


@_ERRORS
def test_changes_are_undone_when_the_filter_itself_fails(
    error: BaseException, raised: type[BaseException], message: str
) -> None:
    def half(context: Any, spec: Any) -> None:
        _busy(context, spec)
        assert context == "context"
        raise error

    spec = _spec()
    with pytest.raises(raised, match=message):
        Pipeline([as_filter("bad", half)]).apply(spec, "context")
    assert spec == _spec()


def test_novas_own_filters_run_through_the_adapter() -> None:
    """Real ones, on a real request spec."""
    spec = nova_spec(
        {"hw_virtio_packed_ring": "true"}, {"accel:device_profile": "gpu"}
    )
    filters = [
        request_filter.compute_status_filter,
        request_filter.accelerators_filter,
        request_filter.packed_virtqueue_filter,
    ]
    pipeline = Pipeline(as_filter(each.__name__, each) for each in filters)
    decision = pipeline.apply(spec, "context")
    assert [(item.filter, item.trait) for item in decision.requirements] == [
        ("compute_status_filter", "COMPUTE_STATUS_DISABLED"),
        ("accelerators_filter", "COMPUTE_ACCELERATORS"),
        ("packed_virtqueue_filter", "COMPUTE_NET_VIRTIO_PACKED"),
    ]
    assert spec.root_required == {
        "COMPUTE_ACCELERATORS",
        "COMPUTE_NET_VIRTIO_PACKED",
    }


def test_nova_request_spec_is_restored_after_a_rejection() -> None:
    def spoil(_context: Any, spec: Any) -> None:
        request_filter.compute_status_filter(None, spec)
        spec.flavor.extra_specs["trait:OWNER_NOVA"] = "required"
        spec.requested_destination = objects.Destination(aggregates=["a"])
        raise exception.RequestFilterFailed(reason="no")

    spec = nova_spec({"hw_vif_model": "e1000e"}, {"resources:VGPU": "1"})
    before = copy.deepcopy(nova_base.obj_to_primitive(spec))
    problem = "'spoil' rejected the request: .*no"
    with pytest.raises(RejectedByFilter, match=problem):
        Pipeline([as_filter("spoil", spoil)]).apply(spec)
    assert nova_base.obj_to_primitive(spec) == before


def test_rejection_is_known_by_the_name_of_its_class() -> None:
    """A scheduler other than Nova has a class of its own."""

    class RequestFilterFailed(Exception):
        pass

    def reject(_context: Any, _spec: Any) -> None:
        raise RequestFilterFailed("No hosts for tenant")

    with pytest.raises(RejectedByFilter, match="No hosts for tenant"):
        Pipeline([as_filter("reject", reject)]).apply(spec_of())


def test_reason_of_a_rejection_is_the_message_of_its_exception_whole() -> None:
    """With Nova's words before it, which our entry in Nova's list does not
    write again.
    """
    reason = (
        "The project may not start GPU servers between 8 and 18 o'clock: ask"
        " the operators of this cloud at 1234"
    )

    def closed(_context: Any, _spec: Any) -> None:
        raise exception.RequestFilterFailed(reason=reason)

    with pytest.raises(RejectedByFilter) as raised:
        Pipeline([as_filter("closed", closed)]).apply(nova_spec())
    assert raised.value.reason == f"Scheduling failed: {reason}"
    assert str(raised.value) == (
        "The request filter 'closed' rejected the request: Scheduling failed:"
        f" {reason}"
    )


class _Later:
    """What a coroutine function returns."""

    def __await__(self) -> Iterator[None]:
        yield


@pytest.mark.parametrize(
    "result", [require("OWNER_NOVA", "x"), _Later()], ids=["now", "later"]
)
def test_filter_called_the_nova_way_that_returns_requirements_fails(
    result: object,
) -> None:
    """``f(request, options)`` looks like the Nova way, and its requirements
    would be lost.
    """

    def mine(_request: Any, _options: Any) -> Any:
        return result

    kind = type(result).__name__
    problem = f"called the Nova way, but returns a {kind}"
    with pytest.raises(FilterFailed, match=problem):
        Pipeline([as_filter("mine", mine)]).apply(spec_of())


def test_traits_that_a_nova_style_filter_has_written_are_required_once() -> (
    None
):
    seen: list[object] = []

    def first(_context: Any, spec: Any) -> None:
        spec.requested_resources = [
            RequestGroup("g", {"VGPU": 1}, frozenset(("CUSTOM_A",)))
        ]
        spec.image = Image({"trait:CUSTOM_B": "required"})

    def later(
        _request: Request, *, required_before: tuple[object, ...]
    ) -> Requirements:
        seen.extend(required_before)
        return require("CUSTOM_C", "x")

    spec = spec_of()
    extra_specs = dict(spec.flavor.extra_specs)
    filters = [
        as_filter("first", first),
        as_filter("later", later, ["required_before"]),
    ]
    requirements = Pipeline(filters).apply(spec).requirements
    traits = [item.trait for item in requirements]
    assert traits == ["CUSTOM_A", "CUSTOM_B", "CUSTOM_C"]
    assert seen == []
    assert spec.root_required == {"CUSTOM_C"}
    assert spec.flavor.extra_specs == extra_specs


@dataclass(slots=True)
class _Slots:
    flavor: Flavor
    image: Image | None


class _Proxy(RequestSpec):
    __getattr__ = object.__getattribute__


@pytest.mark.parametrize("kind", [_Slots, _Proxy])
def test_request_spec_whose_place_no_copy_can_take_is_refused_before_a_filter_runs(
    kind: type[Any],
) -> None:
    problem = "no copy with changes can take its place"
    with pytest.raises(UnsuitableRequestSpec, match=problem):
        Pipeline([as_filter("busy", _busy)]).apply(kind(Flavor(1, 512), None))


def test_filter_is_not_blamed_for_what_the_filters_before_it_required() -> (
    None
):
    filters = [
        as_filter("yes", lambda _request: require("CUSTOM_A", "x")),
        as_filter("no", lambda _request: forbid("CUSTOM_A", "x")),
        as_filter("busy", _busy),
    ]
    with pytest.raises(ContradictingRequirements) as caught:
        Pipeline(filters).apply(_spec())
    assert caught.value.filter == ""
    assert [run.filter for run in caught.value.runs] == ["yes", "no"]
