"""Cache of filter decisions, keyed by the content of the request (ADR 0019)."""

from collections.abc import Iterable
from operator import is_
from typing import Any, NamedTuple

from os_prefilter.pipeline.decision import Decision
from os_prefilter.pipeline.no_host import RootDemand
from os_prefilter.pipeline.request_writer import Additions
from os_prefilter.request.view import Content, Request

MOST = 1000
"""Maximum number of outcomes; the oldest are evicted first."""
LONGEST = 10_000
"""Maximum number of characters of a request whose outcome is kept: a tenant does not fill the memory of a scheduler."""

_CHANGED_IN_PLACE = (list, dict, set, bytearray)
_TEXTS = (str, tuple, frozenset)
_COMPARED = frozenset((str, int, bool, type(None)))


class Outcome(NamedTuple):
    """The result of all filters for a request, and what it adds to the request spec."""

    decision: Decision
    additions: Additions
    root_demand: RootDemand
    """What the decision requires of the root of a host."""
    warning: str
    """Logged for each request; empty if there is none."""
    described: str = ""
    """The decision as a part of a line of the history; empty without a history."""


class Page(NamedTuple):
    """The outcomes for one set of values of the facts."""

    facts: tuple[Any, ...]
    outcomes: dict[Content, Outcome]
    varies_by: tuple[str, ...] = ()
    """The fields of a request, beside its content, that some outcome depends on: their values end each key."""


class DecisionCache:
    """Outcomes by the content of the request. Safe to use from many threads."""

    def __init__(self) -> None:
        self._page = Page((), {})

    def page(self, facts: tuple[Any, ...]) -> Page:
        """Return the outcomes for these values of the facts: an empty page if one is another object than before."""
        page = self._page
        if len(page.facts) != len(facts) or not all(map(is_, page.facts, facts)):
            page = Page(facts, {})
            if not any(isinstance(value, _CHANGED_IN_PLACE) for value in facts):
                # What is being decided with the former values goes to the former page, which is not used again.
                self._page = page
        return page

    @staticmethod
    def find(page: Page, request: Request) -> tuple[Content | None, Outcome | None]:
        """Return the key of a request, None if it cannot be compared, and its outcome if there is one."""
        content = request.content
        if content is None:
            return None, None
        if page.varies_by:
            content = (*content, *request.values_of(page.varies_by))
        try:
            return content, page.outcomes.get(content)
        except TypeError:
            # A list has no hash, and Nova keeps an image's traits in one.
            names, values, *rest = content
            key = (names, tuple(tuple(each) if isinstance(each, list) else each for each in values), *rest)
        try:
            return key, page.outcomes.get(key)
        except TypeError:
            return None, None

    def keep(self, page: Page, key: Content, request: Request, outcome: Outcome) -> None:
        """Keep an outcome, unless the request is too large, or one that is equal to it may mean something else."""
        if request.read_beyond_content:
            return
        if new := request.varies_by.difference(page.varies_by):
            # Other outcomes of this page may depend on it as well, for other values: all are decided again.
            wider = Page(page.facts, {}, (*page.varies_by, *sorted(new)))
            if self._page is page:
                self._page = wider
            page, key = wider, (*key, *request.values_of(sorted(new)))
        if not _is_certain(key) or _length_of(key) > LONGEST:
            return
        page.outcomes[key] = outcome
        for oldest in list(page.outcomes)[: max(0, len(page.outcomes) - MOST)]:
            # Another thread may have been quicker.
            page.outcomes.pop(oldest, None)


def _is_certain(key: Content) -> bool:
    """Whether equal keys mean the same: names are strings; values are strings, whole numbers, lists of strings."""
    names, values, types, *_ = key
    return all(type(name) is str for name in names) and all(
        kind in _COMPARED or (isinstance(value, tuple) and all(type(each) is str for each in value))
        for kind, value in zip(types, values, strict=True)
    )


def _length_of(key: Iterable[Any]) -> int:
    """Return the number of characters in the strings of a key."""
    return sum(len(part) if isinstance(part, str) else _length_of(part) for part in key if isinstance(part, _TEXTS))
