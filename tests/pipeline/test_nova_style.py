# SPDX-License-Identifier: Apache-2.0

"""Filters written the Nova way: what they changed is recorded, and undone when
a later filter fails.
"""

import copy
from dataclasses import dataclass
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
    Requirements,
)
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
    assert [
        (item.scope, item.trait, item.required, item.filter)
        for item in decision.requirements
    ] == [
        ("port", "OWNER_CYBORG", True, "busy"),
        ("root", "COMPUTE_STATUS_DISABLED", False, "busy"),
        ("root", "HW_CPU_X86_AVX2", True, "busy"),
    ]
    assert [note.reason for note in decision.notes] == [
        "removed OWNER_NOVA from port",
        "now in one of the aggregates a",
        "now not in the aggregate b",
    ]
    sources = {item.source for item in decision.requirements} | {
        note.source for note in decision.notes
    }
    assert sources == {"set by the filter itself"}
    assert spec.root_required == {"HW_CPU_X86_AVX2"}
    # What a deployment makes of results is not for changes that are made.
    pipeline = Pipeline(
        [as_filter("busy", _busy)],
        adjust=[lambda _each, _result, _request: NOTHING],
    )
    assert pipeline.apply(_spec()).requirements == decision.requirements


def test_nova_style_filter_gets_the_context_and_sees_traits_of_earlier_filters() -> (
    None
):
    seen: list[Any] = []

    def look(context: Any, spec: Any) -> None:
        seen.append(
            (
                context,
                set(spec.root_required),
                spec.requested_destination.aggregates,
            )
        )

    def first(_request: Request) -> Requirements:
        return (
            require("OWNER_NOVA", "x")
            + forbid("OWNER_CYBORG", "x")
            + require_aggregates([_AGGREGATE], "x")
        )

    def last(request: Request) -> Requirements:
        seen.append((request.kept_machine_type, request.implied))
        return NOTHING

    filters = [
        as_filter("first", first),
        as_filter("look", look),
        as_filter("last", last),
    ]
    decision = Pipeline(filters).decide(
        Request(spec_of(), "pc", None, {"hw_a": "b"}), "the context"
    )
    assert seen == [
        ("the context", {"OWNER_NOVA"}, [_AGGREGATE]),
        ("pc", {"hw_a": "b"}),
    ]
    assert (decision.removed_later, decision.preferred_share(bool)) == (
        frozenset(),
        0.0,
    )


@pytest.mark.parametrize(
    "error", [ValueError("half-way"), KeyboardInterrupt()]
)
def test_changes_are_undone_when_the_filter_itself_or_a_later_one_fails(
    error: BaseException,
) -> None:
    def fail(_request: Request) -> Requirements:
        raise error

    def half(context: Any, spec: Any) -> None:
        _busy(context, spec)
        raise error if context == "context" else LookupError

    for filters in (
        [as_filter("busy", _busy), as_filter("bad", fail)],
        [as_filter("bad", half)],
    ):
        spec = _spec()
        with pytest.raises((FilterFailed, KeyboardInterrupt)) as caught:
            Pipeline(filters).apply(spec, "context")
        assert (
            caught.value is error
            or "'bad' failed with ValueError: 'half-way'" in str(caught.value)
        )
        assert spec == _spec()


def test_novas_own_filters_run_through_the_adapter() -> None:
    """Real ones, on a real request spec: decorated functions, and an aggregate
    beside the traits.
    """
    spec = nova_spec(
        {"hw_virtio_packed_ring": "true"}, {"accel:device_profile": "gpu"}
    )
    filters = [
        request_filter.compute_status_filter,
        request_filter.accelerators_filter,
    ]
    filters += [request_filter.packed_virtqueue_filter]
    decision = Pipeline(
        as_filter(each.__name__, each) for each in filters
    ).apply(spec, "context")
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
    with pytest.raises(
        RejectedByFilter, match="'spoil' rejected the request: .*no"
    ):
        Pipeline([as_filter("spoil", spoil)]).apply(spec)
    assert nova_base.obj_to_primitive(spec) == before
    # By the name of its class: another service has its own.
    own = type("RequestFilterFailed", (Exception,), {})

    def reject(_context: Any, _spec: Any) -> None:
        raise own("No hosts for tenant")

    with pytest.raises(RejectedByFilter, match="No hosts for tenant"):
        Pipeline([as_filter("reject", reject)]).apply(spec_of())


def test_reason_of_a_rejection_is_whole_and_without_novas_words_before_it() -> (
    None
):
    """Nova writes "Scheduling failed" before what we raise."""
    reason = (
        "The project may not start GPU servers between 8 and 18 o'clock: ask"
        " the operators of this cloud at 1234"
    )

    def closed(_context: Any, _spec: Any) -> None:
        raise exception.RequestFilterFailed(reason=reason)

    with pytest.raises(RejectedByFilter) as raised:
        Pipeline([as_filter("closed", closed)]).apply(nova_spec())
    assert (
        str(raised.value)
        == f"The request filter 'closed' rejected the request: \"{reason}\""
    )


def test_filter_called_the_nova_way_that_returns_requirements_fails() -> None:
    """``f(request, options)`` looks like the Nova way, and its answer would be
    lost.
    """

    def mine(_request: Any, _options: Any) -> Requirements:
        return require("OWNER_NOVA", "x")

    later = type("Later", (), {"__await__": lambda self: self})
    for function, found in (
        (mine, "Requirements"),
        (lambda _request, _options: later(), "Later"),
    ):
        with pytest.raises(
            FilterFailed, match=f"called the Nova way, but returns a {found}"
        ):
            Pipeline([as_filter("mine", function)]).apply(spec_of())


def test_what_a_nova_style_filter_did_is_done_once_and_no_part_is_replaced_for_it() -> (
    None
):
    seen: list[Any] = []

    def frozen(_context: Any, spec: Any) -> None:
        spec.requested_resources = [
            RequestGroup("g", {"VGPU": 1}, frozenset(("CUSTOM_A",)))
        ]
        spec.image = Image({"trait:CUSTOM_B": "required"})

    def later(
        _request: Request, *, required_before: tuple[object, ...]
    ) -> Requirements:
        seen.append(required_before)
        return require("CUSTOM_C", "x")

    spec = spec_of()
    flavor = dict(spec.flavor.extra_specs)
    decision = Pipeline(
        [
            as_filter("frozen", frozen),
            as_filter("later", later, ["required_before"]),
        ]
    ).apply(spec)
    assert [item.trait for item in decision.requirements] == [
        "CUSTOM_A",
        "CUSTOM_B",
        "CUSTOM_C",
    ]
    assert (seen, spec.root_required, spec.flavor.extra_specs) == (
        [()],
        {"CUSTOM_C"},
        flavor,
    )


def test_request_spec_whose_place_no_copy_can_take_is_refused_before_a_filter_runs() -> (
    None
):
    slots: Any = dataclass(slots=True)(
        type(
            "Slots",
            (),
            {"__annotations__": dict.fromkeys(("flavor", "image"))},
        )
    )
    proxy: Any = type(
        "Proxy", (type(spec_of()),), {"__getattr__": object.__getattribute__}
    )
    for spec in (slots(Flavor(1, 512), None), proxy(Flavor(1, 512))):
        with pytest.raises(
            UnsuitableRequestSpec,
            match="no copy with changes can take its place",
        ):
            Pipeline([as_filter("busy", _busy)]).apply(spec)


def test_filter_is_not_blamed_for_what_the_filters_before_it_required() -> (
    None
):
    before = [as_filter("yes", lambda _request: require("CUSTOM_A", "x"))]
    before.append(as_filter("no", lambda _request: forbid("CUSTOM_A", "x")))
    with pytest.raises(ContradictingRequirements) as caught:
        Pipeline([*before, as_filter("busy", _busy)]).apply(_spec())
    assert (
        caught.value.filter,
        [run.filter for run in caught.value.runs],
    ) == ("", ["yes", "no"])
