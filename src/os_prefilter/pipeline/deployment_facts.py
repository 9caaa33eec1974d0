"""Facts about the deployment that a filter may declare as a need, each asked at most once per interval.

Asking can mean a query to every cell's database, so it never happens per request; a filter sees the value only.
"""

import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from oslo_log import log as logging

from os_prefilter.common.quoting import describe_error
from os_prefilter.common.threads import start_thread

LOG = logging.getLogger(__name__)

PATIENCE = 5.0
"""Seconds that a request waits for answers, at most; the questions go on without it."""

GIVEN_UP = 600.0
"""Seconds after which a question that has no answer is asked again, beside the one that hangs."""

Ask = Callable[[Any], Any]
"""``(context) -> value``; the context is the one that the request came with, None if there was none.

A new value is a new object: pipelines keep what their filters answered for as long as they are given the same one.
"""


class Fact:
    """A value that is asked for again after ``interval`` seconds.

    While asking fails, the last known value stays (``unknown`` before the first answer): absence of knowledge is not
    knowledge of absence. So it does while an answer takes longer than requests wait. One log line says when a value
    changes, when asking begins to fail, and when it works again; while a question hangs, one each interval says for how
    long.

    :param patience: seconds that a request waits for an answer, at most
    """

    def __init__(
        self, name: str, ask: Ask, interval: float, unknown: Any = None, *, patience: float = PATIENCE
    ) -> None:
        self.name = name
        self._ask = ask
        self._interval = interval
        self.latest = unknown
        """The value as it was known last, however old."""
        self._patience = patience
        self._next = float("-inf")
        # When the question was begun that `latest` answers.
        self._answered = float("-inf")
        self._asked_once = False
        self._expired = False
        self._failing = False
        self._starting = threading.Lock()
        self._question: Question | None = None

    def value(self, context: Any = None, now: Callable[[], float] = time.monotonic) -> Any:
        """Return the value; it is at most ``interval`` seconds old if whoever is asked answers in time.

        The request that finds it older has it asked for, in a thread of its own, and waits for the answer as long as
        requests wait. The others go on with the old value meanwhile, or wait as long if there never was one.
        """
        question = self.begin(context, now)
        if question:
            self.wait(question)
        return self.latest

    def begin(self, context: Any = None, now: Callable[[], float] = time.monotonic) -> "Question | None":
        """Have it asked for if it is due; return the question if this request is to wait for its answer."""
        # As _is_due; each request comes here.
        if not self._expired and now() < self._next:
            return None
        question, is_mine = self._begin(context, now)
        return question if is_mine or not self._asked_once else None

    def wait(self, question: "Question") -> None:
        """Wait for the answer as long as requests wait."""
        if question.wait():
            return
        with self._starting:
            # Who comes now does not wait as long again.
            self._asked_once = True
            if self._question is question:
                self._fails(f"no answer in {self._patience:g} seconds")

    def expire(self) -> None:
        """Let it be asked for again at the next use."""
        self._expired = True

    def _is_due(self, now: Callable[[], float]) -> bool:
        return self._expired or now() >= self._next

    def _begin(self, context: Any, now: Callable[[], float]) -> "tuple[Question | None, bool]":
        """Return the question under way, if any, and whether this request has begun it."""
        with self._starting:
            # Of a process that was forked, the parent's question is answered to the parent alone.
            if self._question and self._question.process == os.getpid():
                self._remind(self._question, now())
                if now() - self._question.begun < max(GIVEN_UP, self._interval):
                    return self._question, False
            # Another request may have got the answer since it was looked at.
            if not self._is_due(now):
                return None, False
            # Before it is asked: who lets it expire meanwhile means another answer.
            self._expired = False
            self._question = question = Question(self._patience, now())
            try:
                start_thread(partial(self._answer, question, context, now), f"fact {self.name}")
            except RuntimeError as error:
                # No thread can be had.
                self._ended(now)
                self._fails(str(error))
                return None, False
            return question, True

    def _answer(self, question: "Question", context: Any, now: Callable[[], float]) -> None:
        problem = "the question was broken off"
        try:
            value = self._ask(context)
            with self._starting:
                # One that was asked again may have its answer after the later one.
                if question.begun >= self._answered:
                    self._answered = question.begun
                    self._becomes(value)
            problem = ""
        except Exception as error:  # noqa: BLE001 - a provider of somebody else's; the scheduler goes on without it
            problem = describe_error(error)
        finally:
            with self._starting:
                if self._question is question:
                    self._ended(now)
                    if problem:
                        self._fails(problem)
            question.answered.set()

    def _ended(self, now: Callable[[], float]) -> None:
        self._next = now() + self._interval
        self._asked_once = True
        self._question = None

    def _fails(self, problem: str) -> None:
        if not self._failing:
            LOG.warning(
                "The deployment fact %s cannot be asked for (%s); it stays %r until that works again.",
                self.name,
                problem,
                self.latest,
            )
        self._failing = True

    def _remind(self, question: "Question", now: float) -> None:
        """Say again that a question hangs, once in an interval."""
        if self._failing and now - question.said >= max(self._interval, self._patience):
            question.said = now
            LOG.warning(
                "The deployment fact %s was asked for %.0f seconds ago, with no answer; it stays %r until one comes.",
                self.name,
                now - question.begun,
                self.latest,
            )

    def _becomes(self, value: Any) -> None:
        if self._failing:
            LOG.info("The deployment fact %s can be asked for again.", self.name)
            self._failing = False
        if value != self.latest:
            LOG.info("The deployment fact %s is now %r (was %r).", self.name, value, self.latest)
        # Equal values may still differ in what is not worth a line.
        self.latest = value


def values_of(facts: Sequence[Fact], context: Any = None) -> tuple[Any, ...]:
    """Return the values of facts; those that are due are asked for at the same time."""
    for fact, question in [(fact, question) for fact in facts if (question := fact.begin(context))]:
        fact.wait(question)
    return tuple([fact.latest for fact in facts])


class Question:
    """One that is under way, and until when requests wait for its answer."""

    def __init__(self, patience: float, now: float) -> None:
        self.answered = threading.Event()
        self.begun = now
        """When it was begun."""
        self.said = now
        """When the log last said that it has no answer, or when it was begun."""
        self.process = os.getpid()
        self._until = time.monotonic() + patience

    @property
    def seconds_left(self) -> float:
        """How long requests still wait."""
        return max(0.0, self._until - time.monotonic())

    def wait(self) -> bool:
        """Wait; return whether it was answered."""
        return self.answered.wait(self.seconds_left)
