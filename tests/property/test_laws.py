# SPDX-License-Identifier: Apache-2.0

"""Laws of the filters, by hypothesis: for any request, not for examples."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from os_prefilter import RequestSpec
from os_prefilter.common.errors import RequestRejected
from os_prefilter.service.loading import installed_filters
from os_prefilter.service.traits_to_report import traits_named_by
from os_prefilter_tools.testing.generated import any_request
from tests.conftest import pipeline_of
from tests.support.zipping import zip_equal

_NAMES = [name for name in installed_filters() if name != "noop"]
_PIPELINES = {name: pipeline_of(name) for name in _NAMES}
_ALL = pipeline_of(*_NAMES)
_REVERSED = pipeline_of(*reversed(_NAMES))
_ANY = any_request()
# Slow machines: neither is about what is proved.
_generated = settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def _apply(pipeline: Any, spec: RequestSpec) -> Any:
    """Return the decision, or None if the request was rejected; then it must
    be as it was.
    """
    before = copy.deepcopy(spec)
    try:
        return pipeline.apply(spec)
    except RequestRejected as error:
        assert spec == before
        assert str(error).isprintable()
        return None


@_generated
@given(_ANY, st.sampled_from(_NAMES))
def test_a_filter_names_only_traits_that_placement_must_know(
    spec: RequestSpec, name: str
) -> None:
    """Each requirement says where it comes from. tests/testing has the laws of
    one filter alone: it is idempotent.
    """
    pipeline = _PIPELINES[name]
    first = _apply(pipeline, spec)
    if first is None:
        return
    known = traits_named_by(pipeline.filters[0], pipeline.options)
    for item in first.requirements:
        assert item.trait in known
        assert item.filter == name
        assert item.source
        assert item.source.isprintable()


@_generated
@given(_ANY)
def test_the_order_of_the_filters_does_not_matter(spec: RequestSpec) -> None:
    other = copy.deepcopy(spec)
    first, second = _apply(_ALL, spec), _apply(_REVERSED, other)
    assert (first is None) == (second is None)
    if first is not None:
        assert (sorted(first.requirements), spec) == (
            sorted(second.requirements),
            other,
        )


@_generated
@given(_ANY)
def test_no_requirement_is_ever_removed(spec: RequestSpec) -> None:
    """``test_query_law.py`` has the resources, which may move to another
    group.
    """
    before = copy.deepcopy(spec)
    if _apply(_ALL, spec) is not None:
        assert before.root_required <= spec.root_required
        assert before.root_forbidden <= spec.root_forbidden
        kept = {
            key: value
            for key, value in before.flavor.extra_specs.items()
            if not key.startswith("resources")
        }
        assert kept.items() <= spec.flavor.extra_specs.items()
        for old, new in zip_equal(
            before.requested_resources, spec.requested_resources
        ):
            assert old.required_traits <= new.required_traits
