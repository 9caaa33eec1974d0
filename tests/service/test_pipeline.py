# SPDX-License-Identifier: Apache-2.0

"""The pipeline: in order, with provenance, all or nothing."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import pytest
from nova import objects

from os_prefilter import (
    Flavor,
    Pipeline,
    Request,
    RequestGroup,
    RequestSpec,
    Requirement,
    Requirements,
)
from os_prefilter.common import errors
from os_prefilter.common.trait_names import Trait
from os_prefilter.pipeline.writer import _assign
from os_prefilter.request.filter_contract import LoadedFilter
from os_prefilter.request.requirements import (
    UNSUFFIXED,
    AggregateRequirement,
    forbid,
    require,
)
from os_prefilter.service import Service
from os_prefilter.service.loading import as_filter
from tests.conftest import pipeline_of, spec_of

objects.register_all()


def _filter(name: str, result: object) -> LoadedFilter:
    def function(_request: Request) -> Any:
        if isinstance(result, Exception):
            raise result
        return result

    return as_filter(name, function)


def _pipeline(**results: object) -> Service:
    filters = [_filter(name, result) for name, result in results.items()]
    return Service(tuple(filters))


def test_fields_that_were_assigned_are_as_before_if_another_cannot_be() -> (
    None
):
    class Spec:
        image = "before"
        flavor = property()

    spec = Spec()
    with pytest.raises(AttributeError):
        _assign(spec, {"image": "after", "flavor": "after"})
    assert spec.image == "before"


def test_decision_records_traits_filters_sources_and_durations() -> None:
    spec = spec_of({"hw_vif_model": "e1000e", "hw_time_hpet": "true"})
    decision = pipeline_of(
        "hpet", "image_metadata", "noop", reported_traits=[]
    ).apply(spec)
    assert [str(item) for item in decision.requirements] == [
        (
            "CUSTOM_COMPUTE_TIME_HPET on root by hpet (image property"
            " hw_time_hpet=true)"
        ),
        (
            "COMPUTE_NET_VIF_MODEL_E1000E on root by image_metadata (image"
            " property hw_vif_model=e1000e)"
        ),
    ]
    assert all(item.required is True for item in decision.requirements)
    names = [run.filter for run in decision.runs]
    assert names == ["hpet", "image_metadata", "noop"]
    assert all(0 <= run.seconds < 10 for run in decision.runs)
    assert spec.root_required == {
        "CUSTOM_COMPUTE_TIME_HPET",
        "COMPUTE_NET_VIF_MODEL_E1000E",
    }


def test_request_logs_one_printable_debug_line_with_all_requirements(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG", "os_prefilter")
    pipeline = pipeline_of("compute_status", "hpet", reported_traits=[])
    caplog.clear()
    pipeline.apply(spec_of({"hw_time_hpet": "true"}))
    assert [record.getMessage() for record in caplog.records] == [
        "Request filters decided: !COMPUTE_STATUS_DISABLED on root by"
        " compute_status (every request: no disabled compute service);"
        " CUSTOM_COMPUTE_TIME_HPET on root by hpet (image property"
        " hw_time_hpet=true)"
    ]
    _pipeline(a=require("OWNER_NOVA", "a\nERROR \x1b[31m")).apply(spec_of())
    assert caplog.records[-1].getMessage().isprintable()


_REQUIRED = require("OWNER_NOVA", "x")
_FORBIDDEN = forbid("OWNER_NOVA", "y")
_REQUIRED_IN_GROUP = require("OWNER_NOVA", "x", UNSUFFIXED)
_FORBIDDEN_IN_GROUP = forbid("OWNER_NOVA", "y", UNSUFFIXED)
_OTHER_IN_GROUP = require("CUSTOM_X", "x", UNSUFFIXED)
_BOTH = r"OWNER_NOVA is both required \(.: x\) and forbidden \(.: y\)"


def _assert_contradiction(
    spec: RequestSpec, message: str, *results: Requirements
) -> None:
    before = copy.deepcopy(spec)
    pipeline = _pipeline(**dict(zip("ab", results)))
    with pytest.raises(
        errors.ContradictingRequirements, match=message
    ) as caught:
        pipeline.apply(spec)
    assert len(caught.value.requirements) == len(results)
    assert spec == before


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (_REQUIRED, _FORBIDDEN),
        (_FORBIDDEN, _REQUIRED),
        (_REQUIRED_IN_GROUP, _FORBIDDEN_IN_GROUP),
    ],
    ids=["root", "forbidden first", "unsuffixed"],
)
def test_contradicting_requirements_are_refused_and_the_spec_is_unchanged(
    first: Requirements, second: Requirements
) -> None:
    _assert_contradiction(spec_of(), _BOTH, first, second)


@pytest.mark.parametrize(
    "results",
    [(_FORBIDDEN,), (_FORBIDDEN, _OTHER_IN_GROUP)],
    ids=["alone", "with another"],
)
def test_contradiction_to_root_required_of_the_spec_is_refused(
    results: tuple[Requirements, ...],
) -> None:
    spec = spec_of()
    spec.root_required.add("OWNER_NOVA")
    message = "the request spec's root_required"
    _assert_contradiction(spec, message, *results)


def test_contradiction_to_the_flavor_is_refused() -> None:
    spec = spec_of(extra_specs={"trait:OWNER_NOVA": "forbidden"})
    message = r"flavor extra spec trait:OWNER_NOVA=forbidden.*on unsuffixed"
    _assert_contradiction(spec, message, _REQUIRED_IN_GROUP)


def test_required_on_the_root_and_forbidden_elsewhere_is_no_contradiction() -> (
    None
):
    spec = spec_of()
    forbidden = forbid("OWNER_NOVA", "y", UNSUFFIXED, ["hw_x=y"])
    decision = _pipeline(a=_REQUIRED, b=forbidden).apply(spec)
    properties = [each.properties for each in decision.requirements]
    assert properties == [(), ("hw_x=y",)]
    assert spec.root_required == {"OWNER_NOVA"}
    assert spec.flavor.extra_specs == {"trait:OWNER_NOVA": "forbidden"}


def _requirement(trait: str, required: Any) -> Requirements:
    return Requirements((Requirement(Trait(trait), required, "root", "x"),))


_TEXT: Any = ("x",)
_OTHER_TYPE = "its Requirements have a part of another type"
_FAILURES: dict[str, tuple[object, str]] = {
    "two lines": (
        ValueError("line 1\nline 2"),
        r"ValueError: 'line 1\\nline 2'",
    ),
    "None": (None, "returned a NoneType"),
    "boolean": (True, "returned a bool"),
    "text in it": (Requirements(_TEXT), _OTHER_TYPE),
    "text for a boolean": (_requirement("OWNER_NOVA", "no"), _OTHER_TYPE),
    "no trait": (_requirement("virtio,!X", True), "not a trait name"),
    "no group": (
        require("OWNER_NOVA", "x", "no_such_group"),
        "no group 'no_such_group'",
    ),
    "no aggregate": (
        Requirements(aggregates=(AggregateRequirement(("x",), True, "x"),)),
        "'it returned .* not the UUID of an aggre",
    ),
}


@pytest.mark.parametrize("what", _FAILURES)
def test_a_filter_that_fails_is_named_and_nothing_is_changed(
    what: str,
) -> None:
    result, message = _FAILURES[what]
    spec = spec_of({"hw_time_hpet": "true"})
    with pytest.raises(
        errors.FilterFailed, match=f"(?s)'bad' failed with .*{message}"
    ) as caught:
        _pipeline(good=_REQUIRED, bad=result).apply(spec)
    assert spec == spec_of({"hw_time_hpet": "true"})
    assert "\n" not in str(caught.value)
    if isinstance(result, Exception):
        assert caught.value.__cause__ is result


def test_a_filter_that_rejects_is_named_with_its_time() -> None:
    with pytest.raises(errors.NoAggregate) as caught:
        rejection = errors.NoAggregate("No rack", "Add one.")
        _pipeline(a=_REQUIRED, bad=rejection).apply(spec_of())
    assert caught.value.filter == "bad"
    run = caught.value.runs[-1]
    assert run[:3] == ("bad", (), ())
    assert 0 <= run.seconds < 10


def test_a_filter_gets_the_facts_it_needs() -> None:
    needing = as_filter("f", lambda _request, *, down: down, {"down"})
    message = (
        "filter 'f' needs the fact 'down', .* Pass its value among the facts,"
        " or UNK"
    )
    with pytest.raises(errors.MissingFact, match=message):
        Pipeline([needing])


def test_a_filter_gets_no_field_that_it_does_not_declare() -> None:
    def reads(request: Request) -> Requirements:
        return require("CUSTOM_X", str(request.project_id))

    pipeline = Pipeline([as_filter("f", reads)])
    with pytest.raises(errors.FilterFailed, match="without @Declaration"):
        pipeline.apply(spec_of())


def test_groups_of_a_filter_are_written_whatever_the_next_one_requires() -> (
    None
):
    """Also into a flavor without extra specs."""
    spec = RequestSpec(Flavor(1, 512, extra_specs=None))  # type: ignore[arg-type]
    group = Requirements(
        own_groups=(RequestGroup("g", {}, forbidden_traits={"CUSTOM_X"}),)
    )
    _pipeline(a=group, b=require("CUSTOM_Y", "x", "g")).apply(spec)
    assert spec.flavor.extra_specs == {
        "traitg:CUSTOM_X": "forbidden",
        "traitg:CUSTOM_Y": "required",
    }


def test_requirements_are_written_to_root_unsuffixed_flavor_and_port_groups() -> (
    None
):
    spec = spec_of(
        extra_specs={"resources_f:VGPU": "1"},
        requested_resources=[RequestGroup("port", {"VGPU": 1})],
    )
    chosen = spec.flavor
    _pipeline(
        root=require("OWNER_NOVA", "x"),
        unsuffixed=forbid("OWNER_CYBORG", "x", UNSUFFIXED),
        flavor=require("OWNER_NOVA", "x", "_f"),
        port=require("OWNER_CYBORG", "x", "port"),
    ).apply(spec)
    assert spec.root_required == {"OWNER_NOVA"}
    assert spec.flavor.extra_specs == {
        "resources_f:VGPU": "1",
        "trait:OWNER_CYBORG": "forbidden",
        "trait_f:OWNER_NOVA": "required",
    }
    assert chosen.extra_specs == {"resources_f:VGPU": "1"}
    assert spec.requested_resources[0].required_traits == {"OWNER_CYBORG"}


class _Frozen(frozenset[str]):
    """A set that cannot be written to."""


_PORT = RequestGroup("port", {"VGPU": 1}, _Frozen())


@pytest.mark.parametrize(
    ("spec", "scope"),
    [
        (spec_of(requested_resources=[_PORT]), "port"),
        (objects.RequestSpec(image=None), UNSUFFIXED),
    ],
    ids=["frozen traits", "no flavor"],
)
def test_nothing_is_written_if_one_part_cannot_be_written(
    spec: Any, scope: str
) -> None:
    """The root comes first, and stays as it was."""
    pipeline = _pipeline(a=_REQUIRED, b=require("OWNER_NOVA", "x", scope))
    with pytest.raises(
        errors.UnsuitableRequestSpec, match="A RequestSpec is no"
    ):
        pipeline.apply(spec)
    assert not spec.root_required


class _ReadOnly(RequestSpec):
    def __setattr__(self, name: str, value: object) -> None:
        if name == "flavor" and hasattr(self, name):
            raise AttributeError("property 'flavor' has no setter")
        super().__setattr__(name, value)


@dataclass(frozen=True)
class _FrozenFlavor:
    extra_specs: dict[str, str] = field(default_factory=dict)
    vcpus: int = 1


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (
            _ReadOnly(Flavor(1, 512)),
            "AttributeError: \"property 'flavor' has no setter\"",
        ),
        (
            RequestSpec(_FrozenFlavor()),  # type: ignore[arg-type]
            "FrozenInstanceError: \"cannot assign to field 'extra_specs'\"",
        ),
        (RequestSpec(Flavor(name=Lock())), "TypeError: .*pickle"),  # type: ignore[arg-type]
    ],
    ids=["spec", "flavor", "uncopyable"],
)
def test_flavor_that_cannot_be_replaced_is_refused_and_nothing_is_written(
    spec: RequestSpec, problem: str
) -> None:
    chosen = spec.flavor
    message = f"{problem}.*It needs a flavor that can be copied and replaced"
    with pytest.raises(errors.UnsuitableRequestSpec, match=message):
        _pipeline(a=_REQUIRED, b=_REQUIRED_IN_GROUP).apply(spec)
    assert not spec.root_required
    assert spec.flavor is chosen
    assert not spec.flavor.extra_specs


def test_warning_about_many_unknown_extra_specs_is_truncated(
    caplog: pytest.LogCaptureFixture,
) -> None:
    unknown = {f"deploy-config:{number}": "x" for number in range(500)}
    pipeline_of("deploy_config").apply(spec_of({}, unknown))
    (warning,) = [
        record.message
        for record in caplog.records
        if record.levelname == "WARNING"
    ]
    assert warning.endswith("and 490 more")
    assert len(warning) < 2000
