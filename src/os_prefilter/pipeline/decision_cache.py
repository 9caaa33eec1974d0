"""What was answered to requests before, by their content (ADR 0019)."""

from operator import is_
from typing import Any, NamedTuple

from os_prefilter.pipeline.decision import Decision
from os_prefilter.pipeline.request_content import Content, content_of, is_certain, length_of, without_lists
from os_prefilter.pipeline.request_writer import Additions

MOST = 1000
"""How many outcomes are kept; the oldest go first."""
LONGEST = 10_000
"""How many characters a request may have whose outcome is kept: a tenant does not fill the memory of a scheduler."""

_CHANGED_IN_PLACE = (list, dict, set, bytearray)


class Outcome(NamedTuple):
    """What the filters answered to a request, and what that adds to its request spec."""

    decision: Decision
    additions: Additions
    warning: str
    """For the log, each time; empty if there is nothing to say."""


class Page(NamedTuple):
    """The outcomes while the facts were the same."""

    facts: tuple[Any, ...]
    outcomes: dict[Content, Outcome]


class Remembered:
    """Outcomes by the content of the request. Safe to use from many threads."""

    def __init__(self) -> None:
        self._page = Page((), {})

    def page(self, facts: tuple[Any, ...]) -> Page:
        """Return the outcomes with these values of the facts: an empty page if one is another object than before."""
        page = self._page
        if len(page.facts) != len(facts) or not all(map(is_, page.facts, facts)):
            page = Page(facts, {})
            if not any(isinstance(value, _CHANGED_IN_PLACE) for value in facts):
                # What is being answered with the former values goes to the former page, which nobody turns to again.
                self._page = page
        return page

    @staticmethod
    def find(page: Page, request_spec: Any) -> tuple[Content | None, Outcome | None]:
        """Return the content of a request spec, None if it cannot be compared, and the outcome if there is one."""
        content: Content | None = None
        try:
            content = content_of(request_spec)
            return content, None if content is None else page.outcomes.get(content)
        except (TypeError, AttributeError):
            # A value without a hash, or what is no mapping.
            if content is None:
                return None, None
        content = without_lists(content)
        try:
            return content, page.outcomes.get(content)
        except TypeError:
            return None, None

    @staticmethod
    def keep(page: Page, content: Content, outcome: Outcome) -> None:
        """Keep an outcome, unless the request is too large, or what is equal to it may mean something else."""
        if not is_certain(content) or length_of(content) > LONGEST:
            return
        page.outcomes[content] = outcome
        for oldest in list(page.outcomes)[: max(0, len(page.outcomes) - MOST)]:
            # Another thread may have been quicker.
            page.outcomes.pop(oldest, None)
