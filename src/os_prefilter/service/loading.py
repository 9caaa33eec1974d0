# SPDX-License-Identifier: Apache-2.0

"""Load request filters from entry points.

A filter that cannot be used stops the service.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Sequence
from functools import partial

from os_prefilter.common.entry_points import (
    installed_entry_points,
    load_entry_point,
)
from os_prefilter.common.errors import (
    FilterLoadError,
    InvalidFilter,
    InvalidOption,
    MissingFact,
)
from os_prefilter.request.filter_contract import (
    NEEDS,
    NOTHING_SPECIAL,
    LoadedFilter,
)

NAMESPACE = "os_prefilter.request_filters"

_EXPECTED = (
    "a function (request, *, needs...) -> Requirements, or the Nova way"
    " (context, request_spec) -> bool"
)
_POSITIONAL = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)
_GENERAL_ADVICE = (
    "Pass it to Service.from_conf(conf, facts={name: callable}), or disable"
    " the filter."
)


def installed_filters() -> dict[str, str]:
    """Return the names of all installed filters, and the source of each.

    None is imported.
    """
    return installed_entry_points(NAMESPACE)


def load_filters(
    names: Sequence[str],
    provided: Collection[str] | None = (),
    option: str = "enabled_filters",
    enabled: Collection[str] = (),
) -> tuple[LoadedFilter, ...]:
    """Import the filters of these names, in this order.

    :param provided: the needs that can be met: ``options`` and the names of
        facts; None if that does not matter.
    :param option: has the names, for errors
    :param enabled: the names of another option, which may not be here as well
    :raises ConfigurationError: if one is missing, offered twice, named twice,
        does not import, is not a filter, or needs a fact that is not provided.
    """
    for name in names:
        if not name:
            raise InvalidOption(
                option, "a name in it is empty. Remove a comma."
            )
        if names.count(name) > 1:
            raise InvalidOption(
                option, f"{name!r} is named twice. Remove one."
            )
        if name in enabled:
            raise InvalidOption(
                option,
                f"{name!r} is in enabled_filters too. Remove one of them.",
            )
    functions = {
        name: load_entry_point(
            NAMESPACE, name, partial(FilterLoadError, name, option=option)
        )
        for name in names
    }
    return tuple(
        as_filter(name, function, provided)
        for name, function in functions.items()
    )


def as_filter(
    name: str, function: object, provided: Collection[str] | None = ()
) -> LoadedFilter:
    """Return ``function`` as a filter of that name, if its signature fits.

    :param provided: the needs that can be met; None if that does not matter.

    :raises InvalidFilter: if it cannot be called as a filter.
    :raises MissingFact: if it needs what is not ``provided``.
    """
    if not callable(function) or inspect.isclass(function):
        raise InvalidFilter(name, _EXPECTED, f"a {type(function).__name__}")
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(
        function
    ):
        # Calling one would run nothing of it.
        raise InvalidFilter(
            name, _EXPECTED, "a coroutine or generator function"
        )
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        raise InvalidFilter(
            name, _EXPECTED, f"no signature ({error})"
        ) from error
    by_place = [each for each in parameters if each.kind in _POSITIONAL]
    positional = [each for each in by_place if each.default is each.empty]
    optional = [each for each in by_place if each.default is not each.empty]
    keywords = [each for each in parameters if each.kind is each.KEYWORD_ONLY]
    # One with a default is given what is there, and keeps its default
    # otherwise.
    needs = tuple(
        each.name
        for each in keywords
        if each.default is each.empty or each.name in (provided or ())
    )
    nova_style = len(positional) == 2 and not needs  # noqa: PLR2004
    needed_names = {*NEEDS, *(provided or ())}
    # Those would never get a value.
    unmarked = [each for each in positional[1:] if each.name in needed_names]
    if not nova_style:
        unmarked += optional
    if unmarked:
        raise InvalidFilter(
            name,
            f"(request, *, {unmarked[0].name})",
            f"no * before it in {inspect.signature(function)}",
        )
    if any(each.kind is each.VAR_KEYWORD for each in parameters) or (
        len(positional) != 1 and not nova_style
    ):
        raise InvalidFilter(
            name,
            _EXPECTED,
            f"{function!r} with the parameters {inspect.signature(function)}",
        )
    found = LoadedFilter(
        name,
        function,
        needs,
        nova_style,
        getattr(function, "declaration", NOTHING_SPECIAL),
    )
    for fact in (*needs, *found.facts):
        if provided is not None and fact not in provided:
            raise MissingFact(name, fact, _GENERAL_ADVICE)
    return found
