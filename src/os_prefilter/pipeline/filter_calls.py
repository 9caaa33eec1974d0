# SPDX-License-Identifier: Apache-2.0

"""Calls of filters, with what each needs; errors name the filter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from os_prefilter.common import errors
from os_prefilter.pipeline import nova_style
from os_prefilter.pipeline.decision import DecisionBuilder
from os_prefilter.request.filter_contract import (
    NEEDS,
    OPTIONS,
    REQUIRED_BEFORE,
    UNKNOWN,
    LoadedFilter,
)
from os_prefilter.request.requirements import (
    NOTHING,
    AggregateRequirement,
    Note,
    Preference,
    Requirement,
    Requirements,
)
from os_prefilter.request.view import Request
from os_prefilter.vocabulary.options import Options

Call = Callable[[DecisionBuilder], object]
"""A filter with its needs bound: no request pays for finding them."""
Adjust = Callable[[LoadedFilter, Requirements, Request], Requirements]
"""``(filter, result, request) -> result``: a deployment's adjustment."""


def bind(
    each: LoadedFilter, options: Options, facts: Mapping[str, Any]
) -> Call:
    """Return a filter as the pipeline calls it.

    :param facts: the values of the deployment facts
    :raises MissingFact: if it needs one that is not among them
    """
    for fact in each.facts:
        if fact not in facts:
            raise errors.MissingFact(
                each.name, fact, "Pass its value among the facts, or UNKNOWN."
            )
    declared = each.declaration
    if declared.gate and facts[declared.gate] is not True:
        # True opens, False closes, anything else is not known: almost any
        # object is true.
        closed = Note(
            declared.closed.format(options=options),
            "not required yet",
            waits=True,
        )
        waits = (
            Requirements(notes=(closed,))
            if facts[declared.gate] is False
            else _waiting_for(declared.gate)
        )
        return lambda _builder: waits
    if each.nova_style:
        return partial(nova_style.run, each.name, each.function)
    values = {need: facts[need] for need in each.needs if need not in NEEDS}
    # By identity: a value may compare itself in a way of its own.
    unknown = [need for need, value in values.items() if value is UNKNOWN]
    if unknown and not declared.takes_unknown:
        waits = _waiting_for(unknown[0])
        return lambda _builder: waits
    if OPTIONS in each.needs:
        values[OPTIONS] = options
    function = partial(each.function, **values)
    if REQUIRED_BEFORE in each.needs:
        return lambda builder: function(
            builder.request, required_before=tuple(builder.pending)
        )
    return lambda builder: function(builder.request)


def _waiting_for(fact: str) -> Requirements:
    """Return the result of a filter that waits for an unknown fact."""
    reason = "not known yet, so that the filter requires nothing yet"
    return Requirements(
        notes=(Note(f"deployment fact {fact}", reason, waits=True),)
    )


# What the filters before it required contradicts itself, or cannot be written
# for it to look at.
_NOT_ITS_OWN = (
    errors.ContradictingRequirements,
    errors.ContradictingAggregates,
    errors.UnsuitableRequestSpec,
)


def call_filter(
    each: LoadedFilter,
    call: Call,
    builder: DecisionBuilder,
    adjust: Iterable[Adjust] = (),
) -> Requirements:
    """Return the result of a filter, adjusted.

    Not one that is written the Nova way: it has changed the draft itself.

    :raises RequestRejected: if it rejects the request.
    :raises FilterFailed: if it raises an error of its own, or returns
        something other than Requirements.
    """
    try:
        result = call(builder)
        if not isinstance(result, Requirements):
            raise TypeError(
                f"it returned a {type(result).__name__}, not Requirements"
            )
        if result is not NOTHING and not _is_well_formed(result):
            raise TypeError(
                "its Requirements have a part of another type: give"
                " Requirement, Preference and the like"
            )
        if result is not NOTHING and not each.nova_style:
            for one in adjust:
                result = one(each, result, builder.request)
    except _NOT_ITS_OWN:
        raise
    except errors.PrefilterError as error:
        error.filter = error.filter or each.name
        raise
    except Exception as error:
        raise errors.FilterFailed(each.name, error) from error
    return result


def _is_well_formed(result: Requirements) -> bool:
    # In one pass: an iterator that a filter returns by mistake has no second.
    are_requirements = all(
        isinstance(each, Requirement) and isinstance(each.required, bool)
        for each in result.requirements
    )
    return (
        are_requirements
        and _are(Preference, result.preferences)
        and _are(AggregateRequirement, result.aggregates)
    )


def _are(kind: type, items: Iterable[object]) -> bool:
    return all(isinstance(each, kind) for each in items)
