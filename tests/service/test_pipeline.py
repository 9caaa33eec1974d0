# SPDX-License-Identifier: Apache-2.0

"""The pipeline: in order, with provenance, all or nothing."""

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


def _filter(name: str, answer: object) -> LoadedFilter:
    def function(_request: Request) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    return as_filter(name, function)


def _pipeline(**answers: object) -> Service:
    return Service(
        tuple(_filter(name, answer) for name, answer in answers.items())
    )


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
    assert [
        (item.trait, item.required, item.scope, item.filter, item.source)
        for item in decision.requirements
    ] == [
        (
            "CUSTOM_COMPUTE_TIME_HPET",
            True,
            "root",
            "hpet",
            "image property hw_time_hpet=true",
        ),
        (
            "COMPUTE_NET_VIF_MODEL_E1000E",
            True,
            "root",
            "image_metadata",
            "image property hw_vif_model=e1000e",
        ),
    ]
    assert list(decision.seconds) == ["hpet", "image_metadata", "noop"]
    assert all(0 <= seconds < 10 for seconds in decision.seconds.values())
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


def test_contradicting_requirements_are_refused_and_the_spec_is_unchanged() -> (
    None
):
    trait, in_flavor = (
        "OWNER_NOVA",
        r"flavor extra spec trait:OWNER_NOVA=forbidden.*on unsuffixed",
    )
    both = r"OWNER_NOVA is both required \(.: x\) and forbidden \(.: y\)"
    refused: list[tuple[list[Requirements], dict[str, str], set[str], str]] = [
        ([require(trait, "x"), forbid(trait, "y")], {}, set(), both),
        ([forbid(trait, "y"), require(trait, "x")], {}, set(), both),
        (
            [require(trait, "x", UNSUFFIXED), forbid(trait, "y", UNSUFFIXED)],
            {},
            set(),
            both,
        ),
        (
            [forbid(trait, "y")],
            {},
            {trait},
            "the request spec's root_required",
        ),
        (
            [forbid(trait, "y"), require("CUSTOM_X", "x", UNSUFFIXED)],
            {},
            {trait},
            "the request spec's root_required",
        ),
        (
            [require(trait, "x", UNSUFFIXED)],
            {f"trait:{trait}": "forbidden"},
            set(),
            in_flavor,
        ),
    ]
    for answers, extra_specs, root_required, message in refused:
        spec = spec_of(extra_specs=extra_specs)
        spec.root_required.update(root_required)
        before = copy.deepcopy(spec)
        with pytest.raises(
            errors.ContradictingRequirements, match=message
        ) as caught:
            _pipeline(**dict(zip("ab", answers, strict=False))).apply(spec)
        assert len(caught.value.requirements) == len(answers)
        assert spec == before


def test_required_on_the_root_and_forbidden_elsewhere_is_no_contradiction() -> (
    None
):
    spec, forbidden = (
        spec_of(),
        forbid("OWNER_NOVA", "y", UNSUFFIXED, ["hw_x=y"]),
    )
    decision = _pipeline(a=require("OWNER_NOVA", "x"), b=forbidden).apply(spec)
    assert [each.properties for each in decision.requirements] == [
        (),
        ("hw_x=y",),
    ]
    assert (spec.root_required, spec.flavor.extra_specs) == (
        {"OWNER_NOVA"},
        {"trait:OWNER_NOVA": "forbidden"},
    )


def test_a_filter_that_fails_is_named_and_nothing_is_changed() -> None:
    wrong: Any = "x", Requirement(Trait("OWNER_NOVA"), "no", "root", "x")  # type: ignore[arg-type]
    for answer, message in (
        (ValueError("line 1\nline 2"), r"ValueError: 'line 1\\nline 2'"),
        (None, "returned a NoneType"),
        (True, "returned a bool"),
        (
            Requirements(wrong[:1]),
            "its Requirements have a part of another type",
        ),
        (
            Requirements(wrong[1:]),
            "its Requirements have a part of another type",
        ),
        (
            Requirements(
                (Requirement(Trait("virtio,!X"), True, "root", "x"),)
            ),
            "not a trait name",
        ),
        (
            require("OWNER_NOVA", "x", "no_such_group"),
            "no group 'no_such_group'",
        ),
        (
            Requirements(
                aggregates=(AggregateRequirement(("x",), True, "x"),)
            ),
            "'it returned .* not the UUID of an aggre",
        ),
    ):
        spec = spec_of({"hw_time_hpet": "true"})
        with pytest.raises(
            errors.FilterFailed, match=f"(?s)'bad' failed with .*{message}"
        ) as caught:
            _pipeline(good=require("OWNER_NOVA", "x"), bad=answer).apply(spec)
        assert spec == spec_of({"hw_time_hpet": "true"})
        assert "\n" not in str(caught.value)
        assert caught.value.__cause__ is answer or not isinstance(
            answer, Exception
        )


def test_a_filter_that_rejects_is_named_with_its_time() -> None:
    with pytest.raises(errors.NoAggregate) as caught:
        _pipeline(
            a=require("OWNER_NOVA", "x"),
            bad=errors.NoAggregate("No rack", "Add one."),
        ).apply(spec_of())
    assert caught.value.filter == "bad"
    run = caught.value.runs[-1]
    assert run[:3] == ("bad", (), ())
    assert 0 <= run.seconds < 10


def test_a_filter_gets_the_facts_it_needs_and_nothing_that_it_does_not_declare() -> (
    None
):
    with pytest.raises(
        errors.MissingFact,
        match=(
            "filter 'f' needs the fact 'down', .* Pass its value among the"
            " facts, or UNK"
        ),
    ):
        Pipeline([as_filter("f", lambda _request, *, down: down, {"down"})])
    pipeline = Pipeline(
        [
            as_filter(
                "f", lambda request: require("CUSTOM_X", request.project_id)
            )
        ]
    )
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


def test_nothing_is_written_if_one_part_cannot_be_written() -> None:
    """Root, then a group whose traits are frozen, or no flavor: the root stays
    as it was.
    """
    groups = [RequestGroup("port", {"VGPU": 1}, _Frozen())]
    for spec, scope in (
        (spec_of(requested_resources=groups), "port"),
        (objects.RequestSpec(image=None), UNSUFFIXED),
    ):
        with pytest.raises(
            errors.UnsuitableRequestSpec, match="A RequestSpec is no"
        ):
            _pipeline(
                a=require("OWNER_NOVA", "x"),
                b=require("OWNER_NOVA", "x", scope),
            ).apply(spec)
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
    answers = {
        "a": require("OWNER_NOVA", "x"),
        "b": require("OWNER_NOVA", "x", UNSUFFIXED),
    }
    with pytest.raises(
        errors.UnsuitableRequestSpec,
        match=f"{problem}.*It needs a flavor that can be copied and replaced",
    ):
        _pipeline(**answers).apply(spec)
    assert not spec.root_required
    assert spec.flavor is chosen
    assert not spec.flavor.extra_specs


def test_warning_about_many_unknown_extra_specs_is_truncated(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pipeline_of("deploy_config").apply(
        spec_of({}, {f"deploy-config:{number}": "x" for number in range(500)})
    )
    (warning,) = [
        record.message
        for record in caplog.records
        if record.levelname == "WARNING"
    ]
    assert warning.endswith("and 490 more")
    assert len(warning) < 2000
