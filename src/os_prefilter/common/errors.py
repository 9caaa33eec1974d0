# SPDX-License-Identifier: Apache-2.0

"""Every error that this library raises on purpose (docs/errors.rst).

Each message says what happened, to what, and what to do next. Passwords in
URLs are hidden. Text of tenants goes through
:func:`os_prefilter.common.quoting.quote`, so that it can break neither a log
line nor a terminal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from os_prefilter.common.quoting import escape_line, mask_passwords, quote

_DETAIL_LENGTH = 500
_REJECTION_LENGTH = 2_000
# Bytes. Of a fault's 255, Nova 27 to 34 take 44 for "No valid host was found.
# Scheduling failed: ", and 73 for that in Japanese, its longest translation
# (nova/exception.py and nova/locale).
_REASON_LENGTH = 180
_PROPERTY_LENGTH = 80


def install_extra(name: str) -> str:
    """Return how to install what an extra needs.

    The package itself is on no package index.
    """
    return f"pip install '.[{name}]' in the repository of os-prefilter"


class PrefilterError(Exception):
    """Base of all errors of this library."""

    filter = ""
    """The request filter that raised it; empty if no filter did."""
    runs: Sequence[Any] = ()
    """Runs of the filters up to that one:

    :class:`os_prefilter.pipeline.decision.Run`.
    """

    def __init__(self, *parts: object) -> None:
        super().__init__(
            *(
                mask_passwords(part) if isinstance(part, str) else part
                for part in parts
            )
        )


class ConfigurationError(PrefilterError):
    """The configuration cannot be served; the service must not start."""


class UnusablePlugin(ConfigurationError):
    """Base of the errors about an entry point.

    It is missing, does not load, or is not what it should be.
    """

    text = "{}: {}"

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(self.text.format(quote(name), escape_line(problem)))


class FilterLoadError(UnusablePlugin):
    """An enabled filter cannot be loaded.

    It is not installed, is offered by several packages, or cannot be imported.
    """

    text = (
        "the request filter {} cannot be used: {}. Correct the name, or repair"
        " the package that offers it under the entry point group"
        " os_prefilter.request_filters."
    )

    def __init__(
        self, name: str, problem: str, option: str = "enabled_filters"
    ) -> None:
        self.text = f"[prefilter] {option}: {self.text}"
        super().__init__(name, problem)


class UnusableReporter(UnusablePlugin):
    """A capability reporter is missing, does not load, or is invalid."""

    text = (
        "The capability reporter {} cannot be used: {}. Correct the name, or"
        " repair the package that offers it under the entry point group"
        " os_prefilter.capability_reporters."
    )


class UnusableRow(UnusablePlugin):
    """A row of an installed package does not load or fit."""

    text = "The vocabulary cannot take the row {}: {}. Repair its package."


class InvalidFilter(ConfigurationError):
    """An enabled filter cannot be called as a filter."""

    def __init__(self, name: str, expected: str, found: str) -> None:
        super().__init__(
            f"The request filter {name!r} is not a filter: expected"
            f" {expected}, found {found}."
        )


class MissingFact(ConfigurationError):
    """An enabled filter needs a fact that the service does not provide."""

    def __init__(self, name: str, fact: str, advice: str) -> None:
        super().__init__(
            f"The request filter {name!r} needs the fact {fact!r}, which the"
            f" embedding service does not provide. {advice}"
        )


class UnusableArgument(ConfigurationError):
    """The embedding service passes what cannot be called as needed.

    A fact, for instance.
    """

    def __init__(self, what: str, expected: str, found: str) -> None:
        super().__init__(
            f"The embedding service passes {what} in a form that cannot be"
            f" used: expected {expected}, found {found}."
        )


class InvalidOption(ConfigurationError):
    """An option has an invalid value."""

    def __init__(self, option: str, problem: str) -> None:
        super().__init__(f"[prefilter] {option}: {problem}")


class RequestRejected(PrefilterError):
    """The request cannot be scheduled as it is; the request spec is unchanged.

    The message is one line, cut after 2,000 characters: it goes into the fault
    of a server, into logs and over the message bus.
    """

    def __init__(self, text: str) -> None:
        super().__init__(_join_lines(text))


def _join_lines(text: str) -> str:
    # Masked first: a cut password has no @.
    lines = mask_passwords(text)[:_REJECTION_LENGTH].splitlines()
    return escape_line(" ".join(lines))[:_REJECTION_LENGTH]


class UnknownValue(RequestRejected):
    """A property or extra spec has a value that is not in the vocabulary.

    Raised with ``unknown_values = reject``.

    :param known: the values that its author may read; none where they name
        what belongs to others
    """

    def __init__(
        self, source: str, value: object, known: Iterable[str]
    ) -> None:
        values = ", ".join(filter(None, known))
        advice = f"Values that exist: {values}." if values else "Correct it."
        super().__init__(
            f"{source} has the unknown value {quote(value)}. {advice}"
        )


class ContradictingSources(RequestRejected):
    """Base of the errors about two sources that exclude each other.

    They are parts of a request, or requirements of its filters.
    """

    text = "{}, {}"

    def __init__(self, first: str, second: str, *more: str) -> None:
        self.sources = (first, second)
        super().__init__(self.text.format(first, second, *more))


class FlavorImageConflict(ContradictingSources):
    """Flavor and image contradict each other."""

    text = (
        "{} and {} contradict each other. Remove one of the two, or make them"
        " equal."
    )


class ImpossibleCombination(ContradictingSources):
    """Two values exclude each other.

    Such as a TPM 1.2 with CRB, or a device and a machine type without it.
    """

    text = (
        "{} is impossible with {}: no host can do both. Change one of the two."
    )


class NeverStarts(ContradictingSources):
    """Two values that no guest has together, as Nova builds it."""

    text = (
        "No guest of Nova has {} with {}. Set {} as well, or change one of the"
        " two."
    )


class NeverStartsWith(RequestRejected):
    """One value that no guest has, as Nova builds it."""

    def __init__(self, source: str, reason: str) -> None:
        super().__init__(f"No guest of Nova has {source}: {reason}.")


class NamedDevice(RequestRejected):
    """A trait names a device that Nova gives to a guest by property alone."""

    def __init__(self, source: str, instead: str) -> None:
        super().__init__(
            f"{source} only chooses a host, and gives no guest of Nova the"
            f" device. Set {instead}."
        )


class ContradictingAggregates(ContradictingSources):
    """Each aggregate that would do is forbidden as well."""

    text = (
        "All required aggregates ({}) are also forbidden ({}): no host can"
        " satisfy that. Change one of the two."
    )


class HostsAt(NamedTuple):
    """Numbers of hosts before and after one step of the search for a host."""

    by: str
    """The host filter, or the resource class that is short."""
    before: int
    after: int


class NoHostLeft(RequestRejected):
    """No host was left for a request that passed all request filters.

    :param numbers: added to the reason, as many of the last ones as fit: a
        number is never cut
    :param stage: where: ``host filters``; where Placement had no candidate,
        ``traits`` or ``room``
    :param by: the host filter that left none, or the resource classes that are
        short
    :param hosts: the numbers of hosts, as far as they are known
    :param is_public: False if the reason is for the operator alone: it is not
        certain, or ``no_host_reason`` is off
    """

    def __init__(  # noqa: PLR0913 - all but three have defaults
        self,
        reason: str,
        stage: str,
        by: Iterable[str],
        hosts: Iterable[HostsAt] = (),
        numbers: Iterable[str] = (),
        *,
        is_public: bool = True,
    ) -> None:
        self.stage = stage
        self.is_public = is_public
        self.by = tuple(by)
        self.hosts = tuple(hosts)
        shown = list(numbers)
        while (
            shown
            and len(f"{reason} ({', '.join(shown)}).".encode())
            > _REASON_LENGTH
        ):
            del shown[0]
        text = f"{reason} ({', '.join(shown)})." if shown else f"{reason}."
        encoded = text.encode()
        if len(encoded) > _REASON_LENGTH:
            # Cut visibly: the start of a name may be another name.
            cut = encoded[: _REASON_LENGTH - len("...")]
            text = f"{cut.decode(errors='ignore')}..."
        super().__init__(text)


class NoHostServes(NoHostLeft):
    """No host has the traits that the request requires.

    Placement has confirmed it for this request.

    The message fits into the fault of a server, of which Nova keeps 255 bytes
    with its own words before it.

    :param properties: the smallest set that no host serves together: each
        ``name=value``, or several with "and"
    :param hosts: how many hosts there are; None to say nothing about the
        fleet
    :param alone: how many hosts serve each of the properties by itself
    :param which: "available" if other hosts serve the properties, but not what
        every request requires
    """

    def __init__(
        self,
        properties: Iterable[str],
        hosts: int | None = None,
        alone: Iterable[int] = (),
        which: str = "",
    ) -> None:
        self.properties = tuple(properties)
        kind = f"{which} " if which else ""
        names = [_shorten_property(name) for name in self.properties]
        counts = [] if hosts is None else [f"0 of {hosts} {kind}hosts"]
        counts += [
            f"{name} alone: {number}" for name, number in zip(names, alone)
        ]
        # Numbers go first, then names.
        sizes = [(len(names), number) for number in range(len(counts), 0, -1)]
        least = min(1, len(counts))
        sizes += [(shown, least) for shown in range(len(names), 0, -1)]
        for shown, number in sizes:
            more = len(names) - shown
            first, *others = [
                *names[:shown],
                *([f"{more} more"] if more else []),
            ]
            together = (
                f" together with {' and '.join(others)}" if others else ""
            )
            numbers = f" ({'; '.join(counts[:number])})" if number else ""
            text = f"No {kind}host offers {first}{together}{numbers}"
            if len(text.encode()) < _REASON_LENGTH:
                break
        super().__init__(text, "traits", ())


def _shorten_property(name: str) -> str:
    """Return an untrusted property as one line, cut at its end if long.

    Cut there, so that no other words are.
    """
    line = escape_line(name[: _PROPERTY_LENGTH + 1]).encode()
    cut = line[:_PROPERTY_LENGTH].decode(errors="ignore")
    return cut if len(line) <= _PROPERTY_LENGTH else f"{cut}..."


class UnsupportedByHost(RequestRejected):
    """The host cannot serve the request; the driver must fail the spawn."""

    def __init__(self, host: str, refusals: Iterable[object]) -> None:
        self.refusals = list(refusals)
        super().__init__(
            f"The host {quote(host)} cannot serve the request:"
            f" {'; '.join(map(str, self.refusals))}. Enable the request"
            " filters, so that such requests go to hosts that can, or change"
            " the request."
        )


class ContradictingRequirements(RequestRejected):
    """One trait is both required and forbidden in the same scope.

    :param requirements: all that the filters require, as ``Requirement``
    """

    def __init__(
        self,
        trait: str,
        scope: str,
        required_by: str,
        forbidden_by: str,
        requirements: Iterable[Any] = (),
    ) -> None:
        self.trait = trait
        self.requirements = tuple(requirements)
        super().__init__(
            f"The trait {trait} is both required ({required_by}) and forbidden"
            f" ({forbidden_by}) on {scope}: no host can satisfy that. Change"
            " one of the two."
        )


class NoAggregate(RequestRejected):
    """No host aggregate is for what a request needs one for: its tenant."""

    def __init__(self, what: str, advice: str) -> None:
        super().__init__(f"{what}. {advice}")


class RejectedByFilter(RequestRejected):
    """A Nova-style filter rejected the request; the cause is chained."""

    def __init__(self, name: str, reason: str) -> None:
        self.reason = _join_lines(reason)
        """The message of the filter's exception, for the user."""
        super().__init__(
            f"The request filter {name!r} rejected the request: {self.reason}"
        )


class MalformedRequest(RequestRejected):
    """Part of the request cannot be part of a Placement query."""

    def __init__(self, source: str, value: object, expected: str) -> None:
        super().__init__(f"{source}: {quote(value)} is not {expected}.")


class FilterFailed(PrefilterError):
    """A filter raised an error of its own, which is the cause.

    The request spec is unchanged.
    """

    def __init__(self, name: str, cause: BaseException) -> None:
        self.filter = name
        self.__cause__ = cause
        super().__init__(
            f"The request filter {name!r} failed with {type(cause).__name__}:"
            f" {quote(str(cause), 300)}. The request was not changed. Report"
            " it to the filter's author, or remove it from [prefilter]"
            " enabled_filters."
        )


class UnusableFact(PrefilterError):
    """A fact that a filter cannot do without is not known, or malformed."""

    def __init__(self, fact: str, problem: str, advice: str) -> None:
        super().__init__(f"The deployment fact {fact!r} {problem}. {advice}")


class UnsuitableRequestSpec(PrefilterError):
    """An object cannot be read as a RequestSpec, or cannot be written to."""

    def __init__(self, request_spec: object, problem: str) -> None:
        super().__init__(
            f"A {type(request_spec).__name__} is no RequestSpec that filters"
            f" can work on: {problem}. It needs a flavor that can be copied"
            " and replaced, an image or None, the sets root_required and"
            " root_forbidden, and sets of traits in its requested_resources,"
            " as os_prefilter.RequestSpec and Nova's have them."
        )


class DocumentError(PrefilterError):
    """A file, or an argument, cannot be read or is invalid."""

    def __init__(self, path: object, problem: str, line: int = 0) -> None:
        # A path may have line breaks.
        self.path = str(path) if str(path).isprintable() else ascii(str(path))
        self.problem = problem
        self.line = line
        """The line in the file; 0 for the file as a whole."""
        super().__init__(
            f"{self.path}:{line}: {problem}"
            if line
            else f"{self.path}: {problem}"
        )


class ProbeFailed(PrefilterError):
    """A host did not report its capabilities; its previous report stays."""

    def __init__(self, what: str, reason: str, advice: str) -> None:
        shown = (
            escape_line(" ".join(reason.split()).rstrip("."))
            or "no explanation"
        )
        super().__init__(
            f"The probe failed at {escape_line(what)}: {shown}. {advice}"
        )


class PlacementError(PrefilterError):
    """Placement failed to serve a request."""


class PlacementUnavailable(PlacementError):
    """Placement did not respond, or with a server error."""

    def __init__(self, what: str, reason: object) -> None:
        super().__init__(
            f"Placement did not respond to {what}: {reason}. Check that the"
            " service runs, then try again."
        )


class PlacementRefused(PlacementError):
    """Placement responded with a client error."""

    def __init__(
        self, what: str, status: int, detail: str, advice: str = ""
    ) -> None:
        self.status = status
        self.detail = detail
        words = escape_line(detail[:_DETAIL_LENGTH])
        if len(detail) > _DETAIL_LENGTH:
            words += "..."
        end = (
            f"{'' if words.endswith('.') else '.'} {advice}" if advice else ""
        )
        super().__init__(
            f"Placement refused {what} with status {status}: {words}{end}"
        )


class UnknownTraits(PlacementError):
    """A query or a write names traits that this Placement does not have."""

    def __init__(self, traits: Iterable[str]) -> None:
        self.traits = sorted(traits)
        super().__init__(
            f"Placement does not know: {', '.join(self.traits)}. A standard"
            " trait needs a newer os-traits in Placement's environment (then"
            " restart it); a CUSTOM_ trait is created with 'openstack trait"
            " create NAME'."
        )


class UnknownProvider(PlacementError):
    """Placement has no resource provider of that name or UUID."""

    def __init__(self, provider: str) -> None:
        super().__init__(
            f"Placement has no resource provider {quote(provider, 200)}."
            " nova-compute creates it when it starts: see that it runs and"
            " uses this Placement, or name the host's provider ('openstack"
            " resource provider list')."
        )


class GenerationConflict(PlacementError):
    """Traits were not written: another writer changed the provider."""

    def __init__(self, provider: str, attempts: int = 1) -> None:
        super().__init__(
            f"The traits of the resource provider {quote(provider, 200)} were"
            f" not written: another writer changed it in each of {attempts}"
            " attempts. Try again; if that does not help, find out what else"
            " writes to it."
        )


class IronicError(PrefilterError):
    """Ironic failed to serve a request.

    Its subclasses are in :mod:`os_prefilter.adapters.ironic.errors`.
    """
