"""Facts about the deployment that a filter may declare as a need, each asked at most once per interval.

Asking can mean a query to every cell's database, so it never happens per request; a filter sees the value only.
"""

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from os_prefilter.background import started
from os_prefilter.texts import one_line

LOG = logging.getLogger(__name__)

PATIENCE = 5.0
"""Seconds that a request waits for an answer, at most; the question goes on without it."""

Ask = Callable[[Any], Any]
"""``(context) -> value``; the context is the one that the request came with, None if there was none."""


class Fact:
    """A value that is asked for again after ``interval`` seconds.

    While asking fails, the last known value stays (``unknown`` before the first answer): absence of knowledge is not
    knowledge of absence. So it does while an answer takes longer than requests wait. One log line says when a value
    changes, when asking begins to fail, and when it works again.

    :param patience: seconds that a request waits for an answer, at most
    """

    def __init__(
        self, name: str, ask: Ask, interval: float, unknown: Any = None, *, patience: float = PATIENCE
    ) -> None:
        self.name = name
        self._ask = ask
        self._interval = interval
        self._value = unknown
        self._patience = patience
        self._next = float("-inf")
        self._asked_once = False
        self._expired = False
        self._failing = False
        self._starting = threading.Lock()
        self._question: _Question | None = None

    def value(self, context: Any = None, now: Callable[[], float] = time.monotonic) -> Any:
        """Return the value; it is at most ``interval`` seconds old if whoever is asked answers in time.

        The request that finds it older has it asked for, in a thread of its own, and waits for the answer as long as
        requests wait. The others go on with the old value meanwhile, or wait as long if there never was one.
        """
        if self._is_due(now):
            question, is_mine = self._begin(context, now)
            if question and (is_mine or not self._asked_once):
                self._wait(question)
        return self._value

    def expire(self) -> None:
        """Let it be asked for again at the next use."""
        self._expired = True

    def _is_due(self, now: Callable[[], float]) -> bool:
        return self._expired or now() >= self._next

    def _begin(self, context: Any, now: Callable[[], float]) -> "tuple[_Question | None, bool]":
        """Return the question under way, if any, and whether this request has begun it."""
        with self._starting:
            if self._question:
                return self._question, False
            # Another request may have got the answer since it was looked at.
            if not self._is_due(now):
                return None, False
            question = _Question(self._patience)
            # Before it is asked: who lets it expire meanwhile means another answer.
            self._expired = False
            self._question = question
            started(partial(self._answer, question, context, now), f"fact {self.name}")
            return question, True

    def _wait(self, question: "_Question") -> None:
        if question.wait():
            return
        with self._starting:
            # Who comes now does not wait as long again.
            self._asked_once = True
            if self._question is question:
                self._fails(f"no answer in {self._patience:g} seconds")

    def _answer(self, question: "_Question", context: Any, now: Callable[[], float]) -> None:
        value, problem = None, "the question was broken off"
        try:
            value, problem = self._ask(context), ""
        except Exception as error:  # noqa: BLE001 - a provider of somebody else's; the scheduler goes on without it
            problem = f"{type(error).__name__}: {one_line(str(error))}"
        finally:
            with self._starting:
                self._next = now() + self._interval
                self._asked_once = True
                self._question = None
                if problem:
                    self._fails(problem)
                else:
                    self._becomes(value)
            question.answered.set()

    def _fails(self, problem: str) -> None:
        if not self._failing:
            LOG.warning(
                "The deployment fact %s cannot be asked for (%s); it stays %r until that works again.",
                self.name,
                problem,
                self._value,
            )
        self._failing = True

    def _becomes(self, value: Any) -> None:
        if self._failing:
            LOG.info("The deployment fact %s can be asked for again.", self.name)
            self._failing = False
        if value != self._value:
            LOG.info("The deployment fact %s is now %r (was %r).", self.name, value, self._value)
        # Equal values may still differ in what is not worth a line.
        self._value = value


class _Question:
    """One that is under way, and until when requests wait for its answer."""

    def __init__(self, patience: float) -> None:
        self.answered = threading.Event()
        self._until = time.monotonic() + patience

    def wait(self) -> bool:
        """Wait; return whether it was answered."""
        return self.answered.wait(max(0.0, self._until - time.monotonic()))
