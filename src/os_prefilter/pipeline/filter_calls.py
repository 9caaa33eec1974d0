"""Call filters: each with what it declares as needs, and every error with the name of the filter."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from os_prefilter.common.errors import FilterFailed, PrefilterError, RequestRejected
from os_prefilter.pipeline import nova_style
from os_prefilter.request.filter_contract import OPTIONS, REQUIRED_BEFORE, UNKNOWN, LoadedFilter
from os_prefilter.request.requirements import AggregateRequirement, Note, Preference, Requirement, Requirements
from os_prefilter.request.view import Request
from os_prefilter.vocabulary.options import Options


class Inputs(NamedTuple):
    """Inputs of one call other than the request; each filter receives those that it declares."""

    request_spec: Any
    """For filters written the Nova way."""
    context: Any
    facts: Mapping[str, Any]
    """Values of this moment, the same for all filters of one request."""
    earlier: Sequence[Requirement] = ()
    """Requirements of the filters before this one."""

    def value_of(self, need: str) -> object:
        """Return the value of a keyword-only parameter of a filter."""
        return tuple(self.earlier) if need == REQUIRED_BEFORE else self.facts[need]


Call = Callable[[Request, Inputs], object]
"""A filter with its needs bound, so that no request pays for finding out what they are."""


def bind(each: LoadedFilter, options: Options) -> Call:
    """Return a filter that takes the request and the inputs."""
    if each.nova_style:
        return lambda _request, inputs: nova_style.run(each.name, each.function, inputs.context, inputs.request_spec)
    function = partial(each.function, options=options) if OPTIONS in each.needs else each.function
    needs = [need for need in each.needs if need != OPTIONS]
    if not needs:
        return lambda request, _inputs: function(request)

    def run(request: Request, inputs: Inputs) -> object:
        values = {need: inputs.value_of(need) for need in needs}
        # By identity: a value may compare itself in a way of its own.
        unknown = [need for need, value in values.items() if value is UNKNOWN]
        if unknown and not each.declaration.takes_unknown:
            return waiting_for(unknown[0])
        return function(request, **values)

    return run


def waiting_for(fact: str) -> Requirements:
    """Return the result of a filter that is not run, as a fact is not known."""
    reason = "not known yet, so that the filter requires nothing yet"
    return Requirements(notes=(Note(f"deployment fact {fact}", reason, waits=True),))


def call_filter(name: str, call: Call, request: Request, inputs: Inputs) -> Requirements:
    """Return the result of a filter.

    :raises RequestRejected: if it rejects the request.
    :raises FilterFailed: if it raises an error of its own, or returns something other than Requirements.
    """
    try:
        result = call(request, inputs)
    except RequestRejected as error:
        error.filter = name
        raise
    except PrefilterError:
        raise
    except Exception as error:
        raise FilterFailed(name, error) from error
    if not (
        isinstance(result, Requirements)
        and all(map(_is_requirement, result.requirements))
        and all(isinstance(item, Preference) for item in result.preferences)
        and all(isinstance(item, AggregateRequirement) for item in result.aggregates)
    ):
        raise FilterFailed(name, TypeError(f"it returned a {type(result).__name__}, not Requirements"))
    return result


def _is_requirement(item: object) -> bool:
    return isinstance(item, Requirement) and isinstance(item.required, bool)
