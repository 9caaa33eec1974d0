"""Every error that this library raises on purpose.

::

    PrefilterError
    |-- ConfigurationError              the service must not start
    |   |-- UnknownFilter               enabled, but no installed package offers it
    |   |-- DuplicateFilter             two packages offer the same name
    |   |-- FilterLoadError             offered, but it does not import
    |   |-- InvalidFilter               imported, but not callable as a filter
    |   |-- MissingFact                 a filter needs a deployment fact nobody provides
    |   `-- InvalidOption               an option's value makes no sense
    |-- RequestRejected                 this request cannot be scheduled as it was asked
    |   |-- UnknownValue                a property's value is not in the vocabulary
    |   |-- FlavorImageConflict         flavor and image ask for different things
    |   |-- ContradictingRequirements   one trait both required and forbidden
    |   |-- RejectedByFilter            a Nova-style filter said no
    |   `-- MalformedRequest            a trait name, amount or suffix that Placement cannot take
    |-- FilterFailed                    a filter raised something of its own
    |-- UnsuitableRequestSpec           the object is not RequestSpec-like
    |-- DocumentError                   a file cannot be read or does not say what it should
    `-- PlacementError
        |-- PlacementUnavailable        no answer, or a server error
        |-- PlacementRefused            it answered with a client error
        `-- UnknownTraits               a query names traits that Placement does not have

Each message says what happened, to what, and what to do next. Text that came from a tenant is shown through
:func:`shown`, so that it can break neither a log line nor a terminal.
"""

from collections.abc import Iterable, Sequence

_SHOWN_LENGTH = 80


def shown(value: object, length: int = _SHOWN_LENGTH) -> str:
    """Return a value for a message: quoted, on one line, ASCII only, cut after ``length`` characters."""
    if isinstance(value, str):
        # Cut first: the value may be megabytes long.
        text = ascii(value[: length + 1])
    elif isinstance(value, (bool, int, float, type(None))):
        text = ascii(value) if not isinstance(value, int) or value.bit_length() < 256 else "a huge number"  # noqa: PLR2004
    else:
        text = f"a {type(value).__name__}"
    return text if len(text) <= length else text[:length] + "..."


def one_line(text: str) -> str:
    """Return text of somebody else's as one printable line: as it is, or escaped where that is not one."""
    return text if text.isprintable() else ascii(text)[1:-1]


def listed(names: Iterable[str]) -> str:
    """Return names for a message: sorted, comma-separated, or "none"."""
    return ", ".join(sorted(names)) or "none"


class PrefilterError(Exception):
    """Base of all errors of this library."""


class ConfigurationError(PrefilterError):
    """The configuration cannot be served; the service must not start."""


class UnknownFilter(ConfigurationError):
    """A name in ``[prefilter] enabled_filters`` that no installed package offers."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        self.name = name
        self.known = sorted(known)
        super().__init__(
            f"[prefilter] enabled_filters names {shown(name)}, which no installed package offers under the entry point "
            f"group os_prefilter.request_filters. Known filters: {listed(self.known)}. Correct the name, or install "
            "the package that offers it."
        )


class DuplicateFilter(ConfigurationError):
    """Two entry points share the name of an enabled filter."""

    def __init__(self, name: str, targets: Sequence[str]) -> None:
        self.name = name
        self.targets = list(targets)
        super().__init__(
            f"The request filter {name!r} is offered more than once: {', '.join(self.targets)}. Uninstall all but one, "
            "or have it renamed."
        )


class FilterLoadError(ConfigurationError):
    """An enabled filter cannot be imported."""

    def __init__(self, name: str, target: str, cause: BaseException) -> None:
        self.name = name
        self.target = target
        super().__init__(
            f"The request filter {name!r} ({target}) does not load: {type(cause).__name__}: {cause}. Repair or "
            "reinstall its package, or remove the name from [prefilter] enabled_filters."
        )


class InvalidFilter(ConfigurationError):
    """An enabled filter is not something that can be called as one."""

    def __init__(self, name: str, expected: str, found: str) -> None:
        self.name = name
        super().__init__(f"The request filter {name!r} is not a filter: expected {expected}, found {found}.")


class MissingFact(ConfigurationError):
    """An enabled filter needs a fact about the deployment that the embedding service does not provide."""

    def __init__(self, name: str, fact: str, advice: str) -> None:
        self.name = name
        self.fact = fact
        super().__init__(
            f"The request filter {name!r} needs the deployment fact {fact!r}, which nobody provides. {advice}"
        )


class InvalidOption(ConfigurationError):
    """The value of an option makes no sense."""

    def __init__(self, option: str, problem: str) -> None:
        self.option = option
        super().__init__(f"[prefilter] {option}: {problem}")


class RequestRejected(PrefilterError):
    """The request cannot be scheduled as it was asked; the request spec is unchanged."""


class UnknownValue(RequestRejected):
    """A property or extra spec has a value that is not in the vocabulary (``unknown_values = reject``)."""

    def __init__(self, source: str, value: object, known: Iterable[str]) -> None:
        self.source = source
        self.value = value
        self.known = list(known)
        super().__init__(f"{source} has the unknown value {shown(value)}. Values that exist: {', '.join(self.known)}.")


class FlavorImageConflict(RequestRejected):
    """Flavor and image both say something about one thing, and disagree."""

    def __init__(self, first: str, second: str) -> None:
        self.sources = (first, second)
        super().__init__(f"{first} and {second} contradict each other. Remove one of the two, or make them equal.")


class ContradictingRequirements(RequestRejected):
    """One trait is required and forbidden on the same part of the request."""

    def __init__(self, trait: str, scope: str, required_by: str, forbidden_by: str) -> None:
        self.trait = trait
        self.scope = scope
        super().__init__(
            f"The trait {trait} is both required ({required_by}) and forbidden ({forbidden_by}) on {scope}: no "
            "host can satisfy that. Change one of the two."
        )


class RejectedByFilter(RequestRejected):
    """A filter written the Nova way rejected the request; the cause is chained."""

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        super().__init__(f"The request filter {name!r} rejected the request: {shown(reason)}")


class MalformedRequest(RequestRejected):
    """Part of the request cannot be put into a Placement query."""

    def __init__(self, source: str, value: object, expected: str) -> None:
        self.source = source
        self.value = value
        super().__init__(f"{source}: {shown(value)} is not {expected}.")


class FilterFailed(PrefilterError):
    """A filter raised an error of its own; the request spec is unchanged. The cause is chained."""

    def __init__(self, name: str, cause: BaseException) -> None:
        self.name = name
        super().__init__(
            f"The request filter {name!r} failed with {type(cause).__name__}: {shown(str(cause), 300)}. The request "
            "was not changed. Report it to the filter's author, or remove it from [prefilter] enabled_filters."
        )


class UnsuitableRequestSpec(PrefilterError):
    """An object is not RequestSpec-like: it cannot be read, or has no place for what filters require."""

    def __init__(self, request_spec: object, problem: str) -> None:
        super().__init__(
            f"A {type(request_spec).__name__} is no RequestSpec that filters can work on: {problem}. It needs a "
            "flavor, an image or None, the sets root_required and root_forbidden, and sets of traits in its "
            "requested_resources, as os_prefilter.RequestSpec and Nova's have them."
        )


class DocumentError(PrefilterError):
    """A file cannot be read, or does not say what it should."""

    def __init__(self, path: object, problem: str) -> None:
        # A path may contain what breaks a line or a terminal, too.
        self.path = str(path) if str(path).isprintable() else ascii(str(path))
        self.problem = problem
        super().__init__(f"{self.path}: {problem}")


class PlacementError(PrefilterError):
    """Placement did not do what was asked."""


class PlacementUnavailable(PlacementError):
    """Placement did not answer, or answered with a server error."""

    def __init__(self, what: str, reason: object) -> None:
        super().__init__(
            f"Placement did not answer {what}: {reason}. Check that the service runs and is reachable, then try again."
        )


class PlacementRefused(PlacementError):
    """Placement answered with a client error."""

    def __init__(self, what: str, status: int, detail: str) -> None:
        self.status = status
        self.detail = detail
        super().__init__(f"Placement refused {what} with status {status}: {detail}")


class UnknownTraits(PlacementError):
    """A query or a write names traits that this Placement does not have."""

    def __init__(self, traits: Iterable[str]) -> None:
        self.traits = sorted(traits)
        super().__init__(
            f"Placement does not know: {', '.join(self.traits)}. A standard trait needs a newer os-traits "
            "beside Placement (then restart it); a CUSTOM_ trait is created with 'openstack trait create NAME'."
        )
