"""Cache of filter decisions, keyed by what the view of a request holds (ADR 0019)."""

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from operator import is_
from typing import Any, NamedTuple

from os_prefilter.pipeline.decision import Decision
from os_prefilter.pipeline.writer import Additions
from os_prefilter.request.view import Request, read_beyond
from os_prefilter.service.deployment_facts import Reading
from os_prefilter.service.no_host import RootDemand

MOST = 1000
"""Maximum number of outcomes; those used least recently are evicted."""
LONGEST = 10_000
"""Maximum number of characters of a request whose outcome is kept: a tenant does not fill the memory of a scheduler."""

_COMPARED = frozenset((str, int, bool, type(None)))
_Key = tuple[Any, ...]


class Outcome(NamedTuple):
    """The result of all filters for a request, and what it adds to the request spec."""

    decision: Decision
    additions: Additions
    root_demand: RootDemand | None
    """What the decision requires of the root of a host; None where the hosts that have it are not looked up."""
    warning: str
    """Logged for each request; empty if there is none."""
    described: str = ""
    """The decision as a part of a line of the history; empty without a history."""


class DecisionCache:
    """Outcomes of equal requests. Safe to use from many threads.

    :param reads: what the filters read beyond what the view holds
    """

    def __init__(self, reads: Collection[str]) -> None:
        self._reads = sorted(reads)
        # Replaced together: what is being decided with earlier readings is not kept for later ones.
        self._kept: tuple[tuple[Reading, ...], dict[_Key, Outcome]] = ((), {})

    def outcome(
        self, request: Request, request_spec: Any, readings: tuple[Reading, ...], decide: Callable[[], Outcome]
    ) -> tuple[Outcome, bool]:
        """Return the outcome of an equal request with the same readings of the facts, else decide; and which it was."""
        kept_readings, outcomes = self._kept
        if len(kept_readings) != len(readings) or not all(map(is_, kept_readings, readings)):
            outcomes = {}
            self._kept = readings, outcomes
        key = self._key_of(request, request_spec)
        # Taken out and put back last, so that the first is the one that was used least recently.
        known = None if key is None else outcomes.pop(key, None)
        outcome = known or decide()
        if key is None or not (known or (_is_certain(key) and _length_of(key) <= LONGEST)):
            return outcome, False
        outcomes[key] = outcome
        if len(outcomes) > MOST:
            # Another thread may be at it as well.
            with suppress(RuntimeError, KeyError):
                del outcomes[next(iter(outcomes))]
        return outcome, known is not None

    def _key_of(self, request: Request, request_spec: Any) -> _Key | None:
        held = request.held()
        if held is None:
            return None
        key = (*held, *(read_beyond(request_spec, name) for name in self._reads))
        try:
            hash(key)
        except TypeError:
            # A list has no hash, and Nova keeps an image's traits in one.
            names, values, *rest = key
            key = (names, tuple(tuple(each) if isinstance(each, list) else each for each in values), *rest)
            with suppress(TypeError):
                hash(key)
                return key
            return None
        return key


def _is_certain(key: _Key) -> bool:
    """Whether equal keys mean the same: names are strings; values are strings, whole numbers, lists of strings."""
    names, values, types, *_ = key
    odd = {*types} - _COMPARED
    return {*map(type, names)} <= {str} and all(
        isinstance(value, tuple) and all(type(each) is str for each in value)
        for kind, value in zip(types, values, strict=True)
        if kind in odd
    )


def _length_of(key: Iterable[Any]) -> int:
    """Return the number of characters in the strings of a key."""
    length = 0
    for part in key:
        if part.__class__ is str:
            length += len(part)
        elif isinstance(part, (str, tuple, frozenset)):
            length += _length_of(part)
    return length
