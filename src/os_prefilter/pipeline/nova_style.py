# SPDX-License-Identifier: Apache-2.0

"""Filters written the Nova way: ``f(context, request_spec) -> bool``.

They change the request spec themselves.

They run on a copy of the request spec, which takes its place when all filters
have passed, because what else they change (aggregates, destinations) must
reach the scheduler too. What they did to traits and aggregates is found by
comparing before and after. Whether they return True or False says nothing: in
Nova, False means disabled, not required, or failed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from os_prefilter.common.errors import RejectedByFilter
from os_prefilter.common.trait_names import trait_named
from os_prefilter.pipeline.decision import DecisionBuilder
from os_prefilter.request.named_traits import written_requirements
from os_prefilter.request.requirements import (
    ROOT,
    Note,
    Requirement,
    Requirements,
)
from os_prefilter.request.view import Request

NovaStyleFilter = Callable[[Any, Any], object]

_SOURCE = "set by the filter itself"
# By name: this library does not import Nova, and another scheduler has classes
# of its own.
_REJECTIONS = frozenset({"NoValidHost", "RequestFilterFailed"})


def run(
    name: str, function: NovaStyleFilter, builder: DecisionBuilder
) -> Requirements:
    """Call the filter and return what it changed.

    :raises RejectedByFilter: if it raised Nova's RequestFilterFailed or
        NoValidHost, or a subclass
    """
    # It may look at what the filters before it required.
    draft = builder.flush_to_draft()
    before = Request(draft)
    traits = _traits(before)
    aggregates = _aggregates(before)
    try:
        result = function(builder.context, draft)
    except Exception as error:
        names = {each.__name__ for each in type(error).__mro__}
        if names & _REJECTIONS:
            raise RejectedByFilter(name, str(error)) from error
        raise
    if isinstance(result, Requirements) or inspect.isawaitable(result):
        raise TypeError(
            "it takes two positional parameters, so it is called the Nova"
            f" way, but returns a {type(result).__name__}; options and facts"
            " are keyword-only parameters"
        )
    builder.reload_request()
    traits_now = _traits(builder.request)
    aggregates_now = _aggregates(builder.request)
    requirements = [
        Requirement(trait_named(trait), required, scope, _SOURCE)
        for scope, trait, required in sorted(traits_now - traits)
    ]
    notes = [
        Note(_SOURCE, f"removed {trait} from {scope}")
        for scope, trait, _ in sorted(traits - traits_now)
    ]
    notes += [
        Note(_SOURCE, f"now {each}")
        for each in sorted(aggregates_now - aggregates)
    ]
    return Requirements(tuple(requirements), tuple(notes))


def _traits(request: Request) -> set[tuple[str, str, bool]]:
    found = {(ROOT, trait, True) for trait in request.root_required}
    found |= {(ROOT, trait, False) for trait in request.root_forbidden}
    for item in written_requirements(request):
        found.add((item.scope, str(item.trait), item.required))
    return found


def _aggregates(request: Request) -> set[str]:
    destination = request.destination
    return {
        f"in one of the aggregates {each}"
        for each in destination.aggregates or ()
    } | {
        f"not in the aggregate {each}"
        for each in destination.forbidden_aggregates or ()
    }
