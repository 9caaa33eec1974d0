"""Cache of filter decisions, keyed by what the view of a request holds (ADR 0019)."""

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Any

from os_prefilter.request.view import Request, read_beyond
from os_prefilter.service.observed import Outcome

MOST = 1000
"""Maximum number of outcomes; those used least recently are evicted."""
LONGEST = 10_000
"""Maximum number of characters of a request whose outcome is kept: a tenant does not fill the memory of a scheduler."""

_COMPARED = frozenset((str, int, bool, type(None)))
_Key = tuple[Any, ...]


class DecisionCache:
    """Outcomes of equal requests. Safe to use from many threads.

    :param reads: what the filters read beyond what the view holds
    """

    def __init__(self, reads: Collection[str]) -> None:
        self._reads = sorted(reads)
        self._outcomes: dict[_Key, Outcome] = {}

    def outcome(self, request: Request, request_spec: Any, decide: Callable[[], Outcome]) -> tuple[Outcome, bool]:
        """Return the outcome of an equal request, else decide; and whether it was decided before."""
        outcomes = self._outcomes
        key = self._key_of(request, request_spec)
        # Taken out and put back last, so that the first is the one that was used least recently.
        known = None if key is None else outcomes.pop(key, None)
        outcome = known or decide()
        if key is None or not (known or (_is_certain(key) and _length_of((*key[:2], *key[3:])) <= LONGEST)):
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
    """Return whether equal keys mean the same: names are strings; values strings, whole numbers, lists of strings."""
    names, values, types, *_ = key
    odd = {*types} - _COMPARED
    return {*map(type, names)} <= {str} and (
        not odd
        or all(
            isinstance(value, tuple) and all(type(each) is str for each in value)
            for kind, value in zip(types, values, strict=True)
            if kind in odd
        )
    )


def _length_of(key: Iterable[Any]) -> int:
    """Return the number of characters in the strings of a key."""
    length = 0
    for part in key:
        kind = part.__class__
        if kind is str:
            length += len(part)
        elif kind is tuple or kind is frozenset:
            length += _length_of(part)
    return length
