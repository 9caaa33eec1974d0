"""Request filters, loaded from entry points; one that cannot be used stops the service."""

import inspect
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, Final, TypeVar

from os_prefilter.common.entry_points import Errors, installed_entry_points, load_entry_point
from os_prefilter.common.errors import (
    DuplicateFilter,
    FilterLoadError,
    InvalidFilter,
    InvalidOption,
    MissingFact,
    UnknownFilter,
)
from os_prefilter.conf.options import Options

NAMESPACE = "os_prefilter.request_filters"

OPTIONS, REQUIRED_BEFORE = "options", "required_before"
NEEDS = frozenset((OPTIONS, REQUIRED_BEFORE))
"""What every pipeline has for a filter that declares it as a need; any other need is a fact."""

_EXPECTED = "a function (request, *, needs...) -> Requirements, or the Nova way (context, request_spec) -> bool"
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_GENERAL_ADVICE = "Pass it to Pipeline.from_conf(conf, facts={name: callable}), or disable the filter."
_ADVICE = {
    "owner_is_reported": (
        "With [prefilter] owner_gate = compute_version it comes from the fact minimum_compute_version, with "
        "owner_gate = coverage from the fact owner_coverage, one of "
        "os_prefilter.adapters.placement.coverage.placement_facts(conf, client): pass "
        "Pipeline.from_conf(conf, facts={name: callable}). Or set owner_gate = always."
    ),
    "aggregates": (
        "It gives the host aggregates with their metadata: pass "
        "Pipeline.from_conf(conf, facts={'aggregates': callable}), or disable the filter."
    ),
    "networks": (
        "It gives the aggregates of the segments of routed networks: pass "
        "Pipeline.from_conf(conf, facts={'networks': callable}), or disable the filter."
    ),
}

F = TypeVar("F", bound=Callable[..., Any])


class Unknown(Enum):
    """The type of :data:`UNKNOWN`."""

    UNKNOWN = "unknown"

    def __repr__(self) -> str:
        return "<unknown>"

    def __bool__(self) -> bool:
        # Else a filter would take it for a no.
        raise TypeError("a deployment fact that is not known is neither true nor false: compare it with 'is UNKNOWN'")


UNKNOWN: Final = Unknown.UNKNOWN
"""In place of the value of a deployment fact that could not be read yet; a filter gets it if it declares so."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """What is special about a filter, beside the parameters that it needs: a decorator of its function."""

    gate: str = ""
    """The fact that must be true before the filter is run; empty if it is run at once."""
    takes_unknown: bool = False
    """Whether it is run while a fact that it needs is not known, which is :data:`UNKNOWN` then; else it waits."""
    closed: str = ""
    """Why it is not run while that fact is not true; a format of ``options``."""
    traits: Callable[[Options], Iterable[str]] = lambda _options: ()
    """Returns the traits that hosts must report, beside those of the vocabulary that the options let it require."""
    other_traits: Callable[[Options], Iterable[str]] = lambda _options: ()
    """Returns the other traits that it may name, such as those that it forbids: Placement must know them."""

    excludes: str = ""
    """The reason under which ``diagnose`` counts the hosts that it excludes; empty: the kind of each requirement."""
    by_default: bool = True
    """Whether commands enable it where neither a configuration file nor an argument names filters."""
    reads: tuple[str, ...] = ()
    """What it reads of a request beyond image, flavor, groups and traits of the root: ``project_id``,
    ``availability_zone``, ``scheduler_hints``, ``networks``, ``destination``, ``same_subtree``, or another field of
    image or flavor, as ``flavor.name``. A decision is taken again only for requests that are equal in these as well."""
    only_new: bool = False
    """Whether its requirements no longer matter for an instance that is on its host already."""

    def __call__(self, function: F) -> F:
        """Declare this of a filter."""
        function.declaration = self  # type: ignore[attr-defined]
        return function


_NOTHING_SPECIAL = Declaration()


@dataclass(frozen=True, slots=True)
class LoadedFilter:
    """A filter that is ready to be called."""

    name: str
    """The name of its entry point."""
    function: Callable[..., Any]
    needs: tuple[str, ...] = ()
    """The keyword-only parameters that it declares."""
    nova_style: bool = False
    declaration: Declaration = _NOTHING_SPECIAL

    @property
    def facts(self) -> tuple[str, ...]:
        """The names of the facts that it needs, or its gate."""
        gate = (self.declaration.gate,) if self.declaration.gate else ()
        return (*(need for need in self.needs if need not in NEEDS), *gate)

    @property
    def summary(self) -> str:
        """The first line of its docstring."""
        return (inspect.getdoc(self.function) or "").partition("\n")[0]


def installed_filters() -> dict[str, str]:
    """Return the names of all installed filters and where each comes from, without importing any."""
    return installed_entry_points(NAMESPACE)


def load_filters(names: Sequence[str], provided: Collection[str] | None = ()) -> tuple[LoadedFilter, ...]:
    """Import the filters of these names, in this order.

    :param provided: the needs that can be met: ``options`` and the names of facts; None if that does not matter.
    :raises ConfigurationError: if one is missing, offered twice, named twice, does not import, is not a filter, or
        needs a fact that is not provided.
    """
    for name in names:
        if not name:
            raise InvalidOption("enabled_filters", "a name in it is empty. Remove a comma.")
        if names.count(name) > 1:
            raise InvalidOption("enabled_filters", f"{name!r} is named twice. Remove one.")
    return tuple(as_filter(name, _import_filter(name), provided) for name in names)


def _import_filter(name: str) -> object:
    errors = Errors(*(partial(error, name) for error in (UnknownFilter, DuplicateFilter, FilterLoadError)))
    return load_entry_point(NAMESPACE, name, errors)


def as_filter(name: str, function: object, provided: Collection[str] | None = ()) -> LoadedFilter:
    """Return ``function`` as a filter of that name, after a look at its signature.

    :param provided: the needs that can be met; None if that does not matter.

    :raises InvalidFilter: if it cannot be called as a filter.
    :raises MissingFact: if it needs what is not ``provided``.
    """
    if not callable(function) or inspect.isclass(function):
        raise InvalidFilter(name, _EXPECTED, f"a {type(function).__name__}")
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        # Calling one would run nothing of it.
        raise InvalidFilter(name, _EXPECTED, "a coroutine or generator function")
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        raise InvalidFilter(name, _EXPECTED, f"no signature ({error})") from error
    positional = [each for each in parameters if each.kind in _POSITIONAL and each.default is each.empty]
    optional = [each for each in parameters if each.kind in _POSITIONAL and each.default is not each.empty]
    keywords = [each for each in parameters if each.kind is each.KEYWORD_ONLY]
    # One with a default is given what is there, and keeps its default otherwise.
    needs = tuple(each.name for each in keywords if each.default is each.empty or each.name in (provided or ()))
    nova_style = len(positional) == 2 and not needs  # noqa: PLR2004
    unmarked = [each for each in positional[1:] if each.name in {*NEEDS, *(provided or ())}]
    for each in unmarked or (() if nova_style else optional):
        # It would never be given anything.
        raise InvalidFilter(name, f"(request, *, {each.name})", f"no * before it in {inspect.signature(function)}")
    if any(each.kind is each.VAR_KEYWORD for each in parameters) or (len(positional) != 1 and not nova_style):
        raise InvalidFilter(name, _EXPECTED, f"{function!r} with the parameters {inspect.signature(function)}")
    found = LoadedFilter(name, function, needs, nova_style, getattr(function, "declaration", _NOTHING_SPECIAL))
    for fact in (*needs, *found.facts):
        if provided is not None and fact not in provided:
            raise MissingFact(name, fact, _ADVICE.get(fact, _GENERAL_ADVICE))
    return found
