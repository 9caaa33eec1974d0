"""What was answered to requests before, by their content (ADR 0019)."""

import threading
from collections.abc import Mapping
from itertools import islice
from operator import is_
from typing import Any, NamedTuple

from os_prefilter.application import Additions
from os_prefilter.content import Content, content_of, without_lists
from os_prefilter.decision import Decision

MOST = 1000
"""How many answers are kept; the oldest go first."""
LONGEST = 10_000
"""How many characters a request may have whose answer is kept: a tenant does not fill the memory of a scheduler."""


class Answer(NamedTuple):
    """What the filters answered to a request, and what that adds to its request spec."""

    decision: Decision
    additions: Additions
    warning: str
    """For the log, each time; empty if there is nothing to say."""


class Page(NamedTuple):
    """The answers that were given while the facts were the same."""

    facts: tuple[Any, ...]
    answers: dict[Content, Answer]


class Remembered:
    """Answers by the content of the request. Safe to use from many threads."""

    def __init__(self) -> None:
        self._page = Page((), {})
        self._keeping = threading.Lock()

    def page(self, facts: Mapping[str, Any]) -> Page:
        """Return the answers that were given with these values of the facts: an empty page if one has changed."""
        page = self._page
        if len(page.facts) != len(facts) or not all(map(is_, page.facts, facts.values())):
            # What is being answered with the former values goes to the former page, which nobody turns to again.
            self._page = page = Page(tuple(facts.values()), {})
        return page

    @staticmethod
    def find(page: Page, request_spec: Any) -> tuple[Content | None, Answer | None]:
        """Return the content of a request spec, None if it cannot be compared, and the answer if there is one."""
        content: Content | None = None
        try:
            content = content_of(request_spec)
            return content, None if content is None else page.answers.get(content)
        except (TypeError, AttributeError):
            # A value without a hash, or what is no mapping.
            if content is None:
                return None, None
        content = without_lists(content)
        try:
            return content, page.answers.get(content)
        except TypeError:
            return None, None

    def keep(self, page: Page, content: Content, answer: Answer) -> None:
        """Keep an answer, unless the request is too large."""
        if sum([len(value) for value in content if value.__class__ is str]) > LONGEST:
            return
        with self._keeping:
            page.answers[content] = answer
            for oldest in [*islice(page.answers, max(0, len(page.answers) - MOST))]:
                del page.answers[oldest]
