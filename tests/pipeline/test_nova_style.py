"""Filters written the Nova way: what they changed is recorded, and undone when a later filter fails."""

import copy
from typing import Any

import pytest
from nova import exception, objects
from nova.objects import base as nova_base
from nova.scheduler import request_filter

from os_prefilter import Destination, Pipeline, Request, RequestGroup, Requirements
from os_prefilter.common.errors import FilterFailed, RejectedByFilter
from os_prefilter.request.requirements import require
from os_prefilter.service.loading import as_filter
from tests.conftest import spec_of
from tests.support.nova_objects import nova_spec


def _busy(_context: Any, spec: Any) -> bool:
    spec.root_required.add("HW_CPU_X86_AVX2")
    spec.root_forbidden.add("COMPUTE_STATUS_DISABLED")
    spec.requested_destination = Destination(aggregates=["a"], forbidden_aggregates={"b"})
    spec.requested_resources[0].required_traits.add("OWNER_CYBORG")
    spec.requested_resources[0].forbidden_traits.discard("OWNER_NOVA")
    return False


def _spec() -> Any:
    return spec_of(requested_resources=[RequestGroup("port", {"VGPU": 1}, forbidden_traits={"OWNER_NOVA"})])


def test_changes_of_a_nova_style_filter_are_recorded_even_if_it_returns_false() -> None:
    spec = _spec()
    decision = Pipeline([as_filter("busy", _busy)]).apply(spec)
    assert [(item.scope, item.trait, item.required, item.filter) for item in decision.requirements] == [
        ("port", "OWNER_CYBORG", True, "busy"),
        ("root", "COMPUTE_STATUS_DISABLED", False, "busy"),
        ("root", "HW_CPU_X86_AVX2", True, "busy"),
    ]
    assert [note.reason for note in decision.notes] == [
        "removed OWNER_NOVA from port",
        "now in one of the aggregates a",
        "now not in the aggregate b",
    ]
    assert spec.root_required == {"HW_CPU_X86_AVX2"}


def test_nova_style_filter_gets_the_context_and_sees_traits_of_earlier_filters() -> None:
    seen: list[Any] = []

    def look(context: Any, spec: Any) -> None:
        seen.append((context, set(spec.root_required)))

    def first(_request: Request) -> Requirements:
        return require("OWNER_NOVA", "x")

    Pipeline([as_filter("first", first), as_filter("look", look)]).apply(spec_of(), "the context")
    assert seen == [("the context", {"OWNER_NOVA"})]


@pytest.mark.parametrize("error", [ValueError("half-way"), KeyboardInterrupt()])
def test_changes_are_undone_when_the_filter_itself_or_a_later_one_fails(error: BaseException) -> None:
    def fail(_request: Request) -> Requirements:
        raise error

    def half(context: Any, spec: Any) -> None:
        _busy(context, spec)
        raise error

    for filters in ([as_filter("busy", _busy), as_filter("bad", fail)], [as_filter("bad", half)]):
        spec = _spec()
        with pytest.raises((FilterFailed, KeyboardInterrupt)) as caught:
            Pipeline(filters).apply(spec)
        assert caught.value is error or "'bad' failed with ValueError: 'half-way'" in str(caught.value)
        assert spec == _spec()


def test_novas_own_filters_run_through_the_adapter() -> None:
    """Real ones, on a real request spec: decorated functions, and an aggregate beside the traits."""
    spec = nova_spec({"hw_virtio_packed_ring": "true"}, {"accel:device_profile": "gpu"})
    filters = [request_filter.compute_status_filter, request_filter.accelerators_filter]
    filters += [request_filter.packed_virtqueue_filter]
    decision = Pipeline(as_filter(each.__name__, each) for each in filters).apply(spec, "context")
    assert [(item.filter, item.trait) for item in decision.requirements] == [
        ("compute_status_filter", "COMPUTE_STATUS_DISABLED"),
        ("accelerators_filter", "COMPUTE_ACCELERATORS"),
        ("packed_virtqueue_filter", "COMPUTE_NET_VIRTIO_PACKED"),
    ]
    assert spec.root_required == {"COMPUTE_ACCELERATORS", "COMPUTE_NET_VIRTIO_PACKED"}


def test_nova_request_spec_is_restored_after_a_rejection() -> None:
    def spoil(_context: Any, spec: Any) -> None:
        request_filter.compute_status_filter(None, spec)
        spec.flavor.extra_specs["trait:OWNER_NOVA"] = "required"
        spec.requested_destination = objects.Destination(aggregates=["a"])
        raise exception.RequestFilterFailed(reason="no")

    spec = nova_spec({"hw_vif_model": "e1000e"}, {"resources:VGPU": "1"})
    before = copy.deepcopy(nova_base.obj_to_primitive(spec))
    with pytest.raises(RejectedByFilter, match="'spoil' rejected the request: .*no"):
        Pipeline([as_filter("spoil", spoil)]).apply(spec)
    assert nova_base.obj_to_primitive(spec) == before
    # By the name of its class: another service has its own.
    own = type("RequestFilterFailed", (Exception,), {})

    def reject(_context: Any, _spec: Any) -> None:
        raise own("No hosts for tenant")

    with pytest.raises(RejectedByFilter, match="No hosts for tenant"):
        Pipeline([as_filter("reject", reject)]).apply(spec_of())


def test_filter_called_the_nova_way_that_returns_requirements_fails() -> None:
    """``f(request, options)`` looks like the Nova way, and its answer would be lost."""

    def mine(_request: Any, _options: Any) -> Requirements:
        return require("OWNER_NOVA", "x")

    with pytest.raises(FilterFailed, match="called the Nova way"):
        Pipeline([as_filter("mine", mine)]).apply(spec_of())
