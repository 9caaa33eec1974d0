"""Laws of the filters, by hypothesis: for any request, not for examples."""

import copy
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from os_prefilter import Flavor, Image, RequestSpec, allocation_candidates_query
from os_prefilter.common.errors import RequestRejected
from os_prefilter.common.trait_names import is_trait_name
from os_prefilter.filters.loading import installed_filters
from os_prefilter.filters.report_scope import traits_named_by
from os_prefilter.testing.generated import any_request, known_traits
from os_prefilter.vocabulary import ROWS
from tests.conftest import pipeline_of, times

_NAMES = [name for name in installed_filters() if name != "noop"]
_PIPELINES = {name: pipeline_of(name) for name in _NAMES}
_ALL = pipeline_of(*_NAMES)
_REVERSED = pipeline_of(*reversed(_NAMES))
_KNOWN_TRAITS = known_traits()
_ANY = any_request()
# Slow machines: neither is about what is proved.
_generated = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def _apply(pipeline: Any, spec: RequestSpec) -> Any:
    """Return the decision, or None if the request was rejected; then it must be as it was."""
    before = copy.deepcopy(spec)
    try:
        return pipeline.apply(spec)
    except RequestRejected as error:
        assert spec == before
        assert str(error).isprintable()
        return None


@_generated
@given(_ANY, st.sampled_from(_NAMES))
def test_a_filter_is_idempotent(spec: RequestSpec, name: str) -> None:
    first = _apply(_PIPELINES[name], spec)
    once = copy.deepcopy(spec)
    if first is not None:
        assert _apply(_PIPELINES[name], spec).requirements == first.requirements
        assert spec == once


@_generated
@given(_ANY)
def test_the_order_of_the_filters_does_not_matter(spec: RequestSpec) -> None:
    other = copy.deepcopy(spec)
    first, second = _apply(_ALL, spec), _apply(_REVERSED, other)
    assert (first is None) == (second is None)
    if first is not None:
        assert sorted(first.requirements) == sorted(second.requirements)
        assert spec == other


@_generated
@given(_ANY, st.sampled_from(_NAMES))
def test_a_filter_names_no_other_trait_than_those_that_placement_must_know(spec: RequestSpec, name: str) -> None:
    pipeline = _PIPELINES[name]
    decision = _apply(pipeline, spec)
    if decision is not None:
        known = traits_named_by(pipeline.filters[0], pipeline.options)
        assert {item.trait for item in decision.requirements} <= known


def _resources(spec: RequestSpec) -> list[tuple[str, str, str]]:
    """Return the resources that the flavor asks for: (suffix, class, amount)."""
    keys = [key for key in spec.flavor.extra_specs if key.startswith("resources")]
    parts = [(*key.removeprefix("resources").split(":", 1), str(spec.flavor.extra_specs[key])) for key in keys]
    return [(suffix, name, amount) for suffix, name, amount in parts]


@_generated
@given(_ANY)
def test_no_requirement_is_ever_removed(spec: RequestSpec) -> None:
    before = copy.deepcopy(spec)
    if _apply(_ALL, spec) is not None:
        assert before.root_required <= spec.root_required
        assert before.root_forbidden <= spec.root_forbidden
        # A resource may move to another group of the flavor, no more: its whole extra spec with the suffix that it got.
        old_resources, new_resources = _resources(before), _resources(spec)
        assert sorted(name for _, *name in old_resources) == sorted(name for _, *name in new_resources)
        moved = dict.fromkeys(each for each in old_resources if each not in new_resources)
        assert all(suffix == "" for suffix, _, _ in moved)
        kept = {key: value for key, value in before.flavor.extra_specs.items() if not key.startswith("resources")}
        assert kept.items() <= spec.flavor.extra_specs.items()
        for old, new in zip(before.requested_resources, spec.requested_resources, strict=True):
            assert old.required_traits <= new.required_traits


@_generated
@given(_ANY)
def test_every_requirement_is_well_formed_and_has_a_source(spec: RequestSpec) -> None:
    decision = _apply(_ALL, spec)
    if decision is not None:
        for item in decision.requirements:
            assert item.trait in _KNOWN_TRAITS or item.trait.startswith("COMPUTE_")
            assert is_trait_name(item.trait)
            assert item.filter in _NAMES
            assert item.source.isprintable()
            assert item.source


@_generated
@given(_ANY)
def test_the_query_is_deterministic_and_holds_every_root_requirement(spec: RequestSpec) -> None:
    if _apply(_ALL, spec) is None:
        return
    try:
        query = allocation_candidates_query(spec)
    except RequestRejected:
        return
    assert query == allocation_candidates_query(copy.deepcopy(spec))
    assert all(trait in query for trait in spec.root_required | spec.root_forbidden)


@settings(max_examples=times(100))
@given(
    st.sampled_from([row for row in ROWS if row.image_property]), st.text() | st.binary() | st.integers() | st.floats()
)
def test_what_a_tenant_writes_never_becomes_a_trait(row: Any, value: Any) -> None:
    spec = RequestSpec(Flavor(1, 512), Image({row.image_property: value}))
    if _apply(_ALL, spec) is not None:
        assert spec.root_required <= row.traits | {"OWNER_NOVA", "COMPUTE_SECURITY_TPM_SECRET_SECURITY_USER"}
