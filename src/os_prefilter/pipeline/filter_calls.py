"""Filters as the pipeline calls them: with what they declare as needs, and every error with the name of the filter."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from os_prefilter.conf.options import Options
from os_prefilter.errors import FilterFailed, PrefilterError, RequestRejected
from os_prefilter.filters.loading import ASKED_BEFORE, NEEDS, OPTIONS, LoadedFilter
from os_prefilter.pipeline import nova_style
from os_prefilter.request.requirements import OwnGroup, Requirement, Requirements
from os_prefilter.request.view import Request


@dataclass(slots=True)
class Pending:
    """What is to be written into a request spec."""

    requirements: list[Requirement] = field(default_factory=list)
    own_groups: list[OwnGroup] = field(default_factory=list)


class Given(NamedTuple):
    """What there is beside the request, of which each filter gets what it declares."""

    request_spec: Any
    context: Any
    facts: Mapping[str, Any]
    """Values of this moment, the same for all filters of one request."""
    pending: Pending


Call = Callable[[Request, Given], object]
"""A filter with its needs bound, so that no request pays for finding out what they are."""


def bound(each: LoadedFilter, options: Options) -> Call:
    """Return a filter as something to call with the request and what there is beside it."""
    if each.nova_style:
        return lambda _request, given: nova_style.run(each.name, each.function, given.context, given.request_spec)
    function = partial(each.function, options=options) if OPTIONS in each.needs else each.function
    facts = [need for need in each.needs if need not in NEEDS]
    if ASKED_BEFORE in each.needs:
        return lambda request, given: function(
            request,
            asked_before=tuple(given.pending.requirements),
            **{need: given.facts[need] for need in facts},
        )
    if not facts:
        return lambda request, _given: function(request)
    return lambda request, given: function(request, **{need: given.facts[need] for need in facts})


def answer_of(name: str, call: Call, request: Request, given: Given) -> Requirements:
    """Return what a filter answers.

    :raises RequestRejected: if it rejects the request.
    :raises FilterFailed: if it raises an error of its own, or answers with something else.
    """
    try:
        answer = call(request, given)
    except RequestRejected as error:
        error.filter = name
        raise
    except PrefilterError:
        raise
    except Exception as error:
        raise FilterFailed(name, error) from error
    if not isinstance(answer, Requirements) or not all(map(_is_requirement, answer.asked)):
        raise FilterFailed(name, TypeError(f"it answered with a {type(answer).__name__}, not Requirements"))
    return answer


def _is_requirement(item: object) -> bool:
    return isinstance(item, Requirement) and isinstance(item.required, bool)
