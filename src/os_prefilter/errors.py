"""Every error that this library raises on purpose.

::

    PrefilterError
    |-- ConfigurationError              the service must not start
    |   |-- UnknownFilter               enabled, but no installed package offers it
    |   |-- DuplicateFilter             two packages offer the same name
    |   |-- FilterLoadError             offered, but it does not import
    |   |-- InvalidFilter               imported, but not callable as a filter
    |   |-- MissingFact                 a filter needs a deployment fact nobody provides
    |   |-- InvalidOption               an option's value makes no sense
    |   |-- UnusableReporter            no capability reporter for a virt driver
    |   `-- UnusableRow                 a package offers a row that the vocabulary cannot take
    |-- RequestRejected                 this request cannot be scheduled as it was asked
    |   |-- UnknownValue                a property's value is not in the vocabulary
    |   |-- FlavorImageConflict         flavor and image ask for different things
    |   |-- ImpossibleCombination       two values that no host has together
    |   |-- UnsupportedByHost           this one host cannot do what it asks for
    |   |-- ContradictingRequirements   one trait both required and forbidden
    |   |-- RejectedByFilter            a Nova-style filter said no
    |   `-- MalformedRequest            a trait name, amount or suffix that Placement cannot take
    |-- FilterFailed                    a filter raised something of its own
    |-- UnsuitableRequestSpec           the object is not RequestSpec-like
    |-- DocumentError                   a file cannot be read or does not say what it should
    |-- ProbeFailed                     a host did not say what it can do; what is known of it stays
    |-- PlacementError
    |   |-- PlacementUnavailable        no answer, or a server error
    |   |-- PlacementRefused            it answered with a client error
    |   |-- UnknownTraits               a query names traits that Placement does not have
    |   |-- UnknownProvider             there is no resource provider of that name or UUID
    |   `-- GenerationConflict          another writer changed the provider each time
    `-- IronicError                     its kinds: os_prefilter.adapters.ironic.errors

Each message says what happened, to what, and what to do next. A password in a URL is not shown. A tenant's text goes
through :func:`os_prefilter.common.quoting.quote`: it can break neither a log line nor a terminal.
"""

from collections.abc import Iterable, Sequence

from os_prefilter.common.quoting import describe_error, escape_line, join_names, mask_passwords, quote

_DETAIL_LENGTH = 500


class PrefilterError(Exception):
    """Base of all errors of this library; a URL in the message is without its password."""

    def __init__(self, *parts: object) -> None:
        super().__init__(*(mask_passwords(part) if isinstance(part, str) else part for part in parts))


class ConfigurationError(PrefilterError):
    """The configuration cannot be served; the service must not start."""


class UnknownFilter(ConfigurationError):
    """A name in ``[prefilter] enabled_filters`` that no installed package offers."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        self.name = name
        self.known = sorted(known)
        super().__init__(
            f"[prefilter] enabled_filters names {quote(name)}, which no installed package offers under the entry point "
            f"group os_prefilter.request_filters. Known filters: {join_names(self.known)}. Correct the name, or "
            "install the package that offers it."
        )


class DuplicateFilter(ConfigurationError):
    """Two entry points share the name of an enabled filter."""

    def __init__(self, name: str, targets: Sequence[str]) -> None:
        self.name = name
        self.targets = list(targets)
        offered = ", ".join(self.targets)
        super().__init__(f"The request filter {name!r} is offered more than once: {offered}. Uninstall all but one.")


class FilterLoadError(ConfigurationError):
    """An enabled filter cannot be imported."""

    def __init__(self, name: str, target: str, cause: BaseException) -> None:
        self.name = name
        self.target = target
        super().__init__(
            f"The request filter {name!r} ({target}) does not load: {describe_error(cause)}. Repair or reinstall its "
            "package, or remove the name from [prefilter] enabled_filters."
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
        super().__init__(f"The request filter {name!r} needs the fact {fact!r}, which nobody provides. {advice}")


class InvalidOption(ConfigurationError):
    """The value of an option makes no sense."""

    def __init__(self, option: str, problem: str) -> None:
        self.option = option
        super().__init__(f"[prefilter] {option}: {problem}")


class UnusableReporter(ConfigurationError):
    """The capability reporter of a virt driver is missing, does not load, or is not one."""

    def __init__(self, driver: str, problem: str) -> None:
        self.driver = driver
        super().__init__(
            f"The capability reporter {quote(driver)} cannot be used: {escape_line(problem)}. Correct the name, or "
            "repair the package that offers it under the entry point group os_prefilter.capability_reporters."
        )


class UnusableRow(ConfigurationError):
    """A row that an installed package offers does not load, or does not fit into the vocabulary."""

    def __init__(self, name: str, problem: str) -> None:
        self.name = name
        super().__init__(
            f"The vocabulary cannot take the row {quote(name)}: {escape_line(problem)}. Repair its package."
        )


class RequestRejected(PrefilterError):
    """The request cannot be scheduled as it was asked; the request spec is unchanged."""

    filter = ""
    """The request filter that rejected it; empty if the request itself cannot be put into a query."""


class UnknownValue(RequestRejected):
    """A property or extra spec has a value that is not in the vocabulary (``unknown_values = reject``)."""

    def __init__(self, source: str, value: object, known: Iterable[str]) -> None:
        self.source = source
        self.value = value
        self.known = list(filter(None, known))
        super().__init__(f"{source} has the unknown value {quote(value)}. Values that exist: {', '.join(self.known)}.")


class FlavorImageConflict(RequestRejected):
    """Flavor and image both say something about one thing, and disagree."""

    def __init__(self, first: str, second: str) -> None:
        self.sources = (first, second)
        super().__init__(f"{first} and {second} contradict each other. Remove one of the two, or make them equal.")


class ImpossibleCombination(RequestRejected):
    """Two values that make no sense together: a device on a machine type that never has it, a TPM 1.2 with CRB."""

    def __init__(self, device: str, platform: str) -> None:
        self.sources = (device, platform)
        super().__init__(f"{device} is impossible with {platform}: no host can do both. Change one of the two.")


class UnsupportedByHost(RequestRejected):
    """The host cannot switch on what the request asks for; the driver must fail the spawn."""

    def __init__(self, host: str, refusals: Iterable[object]) -> None:
        self.refusals = list(refusals)
        super().__init__(
            f"The host {quote(host)} cannot do what the request asks for: {'; '.join(map(str, self.refusals))}. "
            "Enable the request filters, so that such requests go to hosts that can, or change the request."
        )


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
        super().__init__(f"The request filter {name!r} rejected the request: {quote(reason)}")


class MalformedRequest(RequestRejected):
    """Part of the request cannot be put into a Placement query."""

    def __init__(self, source: str, value: object, expected: str) -> None:
        self.source = source
        self.value = value
        super().__init__(f"{source}: {quote(value)} is not {expected}.")


class FilterFailed(PrefilterError):
    """A filter raised an error of its own; the request spec is unchanged. The cause is chained."""

    def __init__(self, name: str, cause: BaseException) -> None:
        self.name = name
        super().__init__(
            f"The request filter {name!r} failed with {type(cause).__name__}: {quote(str(cause), 300)}. The request "
            "was not changed. Report it to the filter's author, or remove it from [prefilter] enabled_filters."
        )


class UnsuitableRequestSpec(PrefilterError):
    """An object is not RequestSpec-like: it cannot be read, or has no place for what filters require."""

    def __init__(self, request_spec: object, problem: str) -> None:
        super().__init__(
            f"A {type(request_spec).__name__} is no RequestSpec that filters can work on: {problem}. It needs a "
            "flavor that can be copied and replaced, an image or None, the sets root_required and root_forbidden, and "
            "sets of traits in its requested_resources, as os_prefilter.RequestSpec and Nova's have them."
        )


class DocumentError(PrefilterError):
    """A file cannot be read, or does not say what it should."""

    def __init__(self, path: object, problem: str, line: int = 0) -> None:
        # It may contain what breaks a line, too.
        self.path = str(path) if str(path).isprintable() else ascii(str(path))
        self.problem = problem
        self.line = line
        """The line in the file; 0 for the file as a whole."""
        super().__init__(f"{self.path}:{line}: {problem}" if line else f"{self.path}: {problem}")


class ProbeFailed(PrefilterError):
    """A host did not say what it can do. Nothing new is known of it: what it reported before stays."""

    def __init__(self, what: str, reason: str, advice: str) -> None:
        self.what = escape_line(what)
        self.reason = escape_line(" ".join(reason.split()).rstrip(".")) or "no explanation"
        super().__init__(f"The probe failed at {self.what}: {self.reason}. {advice}")


class PlacementError(PrefilterError):
    """Placement did not do what was asked."""


class PlacementUnavailable(PlacementError):
    """Placement did not answer, or answered with a server error."""

    def __init__(self, what: str, reason: object) -> None:
        super().__init__(f"Placement did not answer {what}: {reason}. Check that the service runs, then try again.")


class PlacementRefused(PlacementError):
    """Placement answered with a client error."""

    def __init__(self, what: str, status: int, detail: str) -> None:
        self.status = status
        self.detail = detail
        words = escape_line(detail[:_DETAIL_LENGTH]) + "..." * (len(detail) > _DETAIL_LENGTH)
        super().__init__(f"Placement refused {what} with status {status}: {words}")


class UnknownTraits(PlacementError):
    """A query or a write names traits that this Placement does not have."""

    def __init__(self, traits: Iterable[str]) -> None:
        self.traits = sorted(traits)
        super().__init__(
            f"Placement does not know: {', '.join(self.traits)}. A standard trait needs a newer os-traits "
            "beside Placement (then restart it); a CUSTOM_ trait is created with 'openstack trait create NAME'."
        )


class UnknownProvider(PlacementError):
    """Placement has no resource provider of that name or UUID."""

    def __init__(self, provider: str) -> None:
        self.provider = provider
        super().__init__(
            f"Placement has no resource provider {quote(provider, 200)}. nova-compute creates it when it starts: see "
            "that it runs and uses this Placement, or name the host's provider ('openstack resource provider list')."
        )


class GenerationConflict(PlacementError):
    """The traits of a resource provider were not written: somebody else changed the provider in the meantime."""

    def __init__(self, provider: str, attempts: int = 1) -> None:
        self.provider = provider
        self.attempts = attempts
        super().__init__(
            f"The traits of the resource provider {quote(provider, 200)} were not written: another writer changed it "
            f"in each of {attempts} attempts. Try again; if that does not help, find out what else writes to it."
        )


class IronicError(PrefilterError):
    """Ironic did not do what was asked."""
