# SPDX-License-Identifier: Apache-2.0

"""The laws of a fact in each order of events, by hypothesis: requests,
answers, failures, forks, queries that hang.

No thread runs: the machine keeps each query that the fact starts, and ends it
when it likes, or never. Faults are put back one by one, and are found.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from math import inf
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from hypothesis.strategies import sampled_from

from os_prefilter.service import deployment_facts, shared
from os_prefilter.service.deployment_facts import (
    Fact,
    PendingQuery,
)
from os_prefilter.service.shared import REPEAT_AFTER, Reading, pause_after
from tests.conftest import times
from tests.support.state_machines import Fault, assert_correct, assert_found

# Two are equal.
UNKNOWN, VALUES = 0, (1, 2, True)
BY_ANOTHER = Reading(2, 10.0, 20.0)
AFTER_WAIT = OSError("db://me:hunter2@h")
"""Raised by a reading that began at most 10 seconds ago: before, the process
has waited for another one.
"""
FAILURES: dict[Any, str] = dict.fromkeys(
    (OSError("db://me:hunter2@h"), AFTER_WAIT), "OSError: db://***@h"
)
FAILURES[SystemExit] = "the query was broken off"
SECONDS = sampled_from((0.0, 0.5, 10.0, 20.0, 100.0, 600.0, 1000.0, 4000.0))
OLDEST_OR_NEWEST = sampled_from((0, -1))


class Facts(RuleBasedStateMachine):
    """A fact in a process whose clock, threads, store and log are the
    machine's, beside what is expected of it.
    """

    def __init__(self) -> None:
        super().__init__()
        ours: dict[str, Any] = {
            "LOG": self,
            "start_thread": self.start_thread,
            "seconds_to": lambda _until: 0.0,
            "time": self,
        }
        self.patched = ExitStack()
        self.patched.enter_context(
            patch.multiple(
                deployment_facts,
                PATIENCE=inf,
                uniform=lambda low, high: (low + high) / 2,
                **ours,
            )
        )
        self.patched.enter_context(patch.object(shared, "_PAUSE", 20))
        self.now, self.has_threads, self.logged = 0.0, True, list[str]()
        self.response: Any = None
        self.not_ended: dict[PendingQuery, Any] = {}
        self.awaited: list[PendingQuery] = []
        # What is expected.
        self.value, self.due, self.answered, self.stale, self.lines = (
            UNKNOWN,
            -inf,
            -inf,
            inf,
            list[str](),
        )
        self.under_way: PendingQuery | None = None
        self.is_expired = self.was_tried = self.is_failing = False

    def teardown(self) -> None:
        self.patched.close()

    def monotonic(self) -> float:
        return self.now

    time = monotonic

    def start_thread(self, run: Any, _name: str) -> None:
        if not self.has_threads:
            raise RuntimeError("can't start new thread")
        self.not_ended[run.args[0]] = run

    def read_through(self, read: Any, make: Any, interval: float) -> Any:
        assert make(7) == 7
        assert interval == self.interval
        if self.response is BY_ANOTHER:
            return BY_ANOTHER
        end = self.now
        (query, *_) = read.args
        taken = end - query.begun
        if self.response is AFTER_WAIT:
            taken = min(taken, 10.0)
        self.now = end - taken
        self.read_until = end
        return read()

    def read(self, context: object) -> Any:
        assert context == "context"
        self.now = self.read_until
        if self.response in FAILURES:
            raise self.response
        return self.response

    def info(self, text: str, *values: object) -> None:
        self.logged.append(text % values)

    warning = info

    @initialize(
        interval=sampled_from((0.0, 10.0, 1000.0, 4000.0)),
        later_patience=sampled_from((None, 1.0)),
    )
    def create(self, interval: float, later_patience: float | None) -> None:
        self.interval, self.later_patience = interval, later_patience
        store: Any = self
        self.fact = Fact(
            "f",
            self.read,
            interval,
            UNKNOWN,
            stores=[store],
            later_patience=later_patience,
        )

    # Before the first request, the other rules would waste examples.
    @precondition(lambda self: self.value)
    @rule()
    def expire(self) -> None:
        self.fact.expire()
        self.is_expired = True

    @precondition(lambda self: self.not_ended)
    @rule()
    def fork(self) -> None:
        """Go on in a child, where no query of the parent ends."""
        for query in self.not_ended:
            query.process = -1
        self.not_ended, self.awaited, self.under_way = {}, [], None

    @rule(after=SECONDS, has_threads=sampled_from((True, True, True, False)))
    def request(self, after: float, *, has_threads: bool) -> None:
        """Start a query if one is due and none under way; wait for it, or for
        another where the value is too old.
        """
        self.now += after
        self.has_threads, before, expected = (
            has_threads,
            set(self.not_ended),
            None,
        )
        query = self.fact.begin("context")
        started = self.not_ended.keys() - before
        if self.is_expired or self.now >= self.due:
            if self.under_way and self.now - self.under_way.begun < max(
                REPEAT_AFTER, self.interval
            ):
                expected = (
                    self.under_way
                    if self.now >= self.stale or not self.was_tried
                    else None
                )
            else:
                assert len(started) == has_threads
                self.may_take_long = (
                    self.later_patience is not None and self.was_tried
                )
                self.is_expired, self.under_way = (
                    False,
                    started.pop() if started else None,
                )
                expected = self.under_way
                if not has_threads:
                    self.expect_failure("can't start new thread")
                    self.due, self.was_tried = self.now + self.interval, True
        assert (query, started) == (expected, set())
        assert not query or (query.deadline == inf) is not query.may_take_long
        self.awaited += [query] if query else []

    @precondition(lambda self: self.under_way and self.now < self.stale < inf)
    @rule()
    def request_when_the_value_is_just_too_old(self) -> None:
        self.request(after=self.stale - self.now, has_threads=True)

    @precondition(lambda self: self.awaited)
    @rule(which=OLDEST_OR_NEWEST)
    def lose_patience(self, which: int) -> None:
        query = self.awaited.pop(which)
        self.fact.wait(query)
        self.was_tried |= query in self.not_ended
        if query is self.under_way and not self.may_take_long:
            self.expect_failure("no response in inf seconds")

    @precondition(lambda self: self.not_ended)
    @rule(
        after=SECONDS,
        which=OLDEST_OR_NEWEST,
        response=sampled_from((*VALUES, BY_ANOTHER, *FAILURES)),
    )
    def end_query(self, after: float, which: int, response: Any) -> None:
        """Use each answer unless a later query was answered first; the last
        value stays after a failure.
        """
        self.now += after
        query, version, latest, self.response = (
            list(self.not_ended)[which],
            self.fact.version,
            self.fact.latest,
            response,
        )
        with suppress(SystemExit):
            self.not_ended.pop(query)()
        taken = self.now - query.begun
        value, seconds, age = (
            response if response is BY_ANOTHER else (response, taken, taken)
        )
        seconds = min(taken, 10.0) if response is AFTER_WAIT else seconds
        read_at, is_answer = self.now - age, response not in FAILURES
        # A first value is queried again at a random moment of the interval.
        interval = (
            self.interval / 2
            if is_answer and self.answered == -inf
            else self.interval
        )
        pause = min(max(interval, 20 * seconds), max(interval, 1800.0))
        if query is self.under_way:
            self.under_way, self.was_tried = None, True
            self.due = max(read_at + pause, self.now + min(interval, 1.0))
            if not is_answer:
                self.expect_failure(FAILURES[response])
                self.due = self.now + min(pause, max(interval, 300.0))
        if is_answer and query.begun >= self.answered:
            self.lines += [
                "The deployment fact f can be read again."
            ] * self.is_failing
            self.lines += [
                f"The deployment fact f is now {value} (was {self.value})."
            ] * (value != self.value)
            self.stale = read_at + 2 * max(pause, self.interval)
            self.value, self.answered, self.is_failing = (
                value,
                query.begun,
                False,
            )
        assert (self.fact.version == version) == (self.value is latest)

    def expect_failure(self, problem: str) -> None:
        line = (
            f"Failed to read the deployment fact f ({problem}); keeping"
            f" {self.value} until it can be read."
        )
        self.lines += [line] * (not self.is_failing)
        self.is_failing = True

    @precondition(lambda self: self.not_ended)
    @rule(value=sampled_from(VALUES))
    def settle(self, value: int) -> None:
        """Whatever has happened: later, one answer is enough, and no older one
        replaces it.
        """
        self.request(
            after=2 * max(REPEAT_AFTER, 1800.0, self.interval),
            has_threads=True,
        )
        self.end_query(after=0.0, which=-1, response=value)
        while self.not_ended:
            self.end_query(after=0.0, which=0, response=VALUES[0])
        assert self.fact.latest is value

    @invariant()
    def check(self) -> None:
        assert self.fact.latest is self.value
        assert self.fact.values() == {"f": self.value}
        assert self.logged == self.lines


def test_a_fact_is_as_documented_in_any_order_of_events() -> None:
    assert_correct(Facts, 150)


FAULTS: dict[str, Fault] = {
    "an old answer replaces a newer one": (
        Fact._use,
        "if query.begun >= self._result_of:",
        "if True:",
    ),
    "a slow answer is lost": (
        Fact._use,
        "if query.begun >= self._result_of:",
        "if query is self._query:",
    ),
    "to expire during a query is lost": (
        Fact._end,
        "self._query = None",
        "self._query, self.is_expired = None, False",
    ),
    "an equal value is not used": (
        Fact._set,
        "value is not self.latest or",
        "value != self.latest or",
    ),
    "a failure forgets the value": (
        Fact._log_failure,
        "= True",
        "= self.latest = 0",
    ),
    "a child waits for its parent's query": (
        Fact.begin,
        "query.process == os.getpid()",
        "True",
    ),
    "no query is given up": (
        Fact.begin,
        "now - query.begun < max(REPEAT_AFTER, self._interval)",
        "True",
    ),
    "no pause after a slow query": (pause_after, "_PAUSE * seconds", "0"),
    "each value counts as new": (Fact._use, "now - reading.age", "now"),
    "another value has the same version": (
        Fact._set,
        "self.version += 1",
        "pass",
    ),
    "a pause without end": (
        pause_after,
        "max(interval, _LONGEST_PAUSE)",
        "inf",
    ),
    "a failed query is repeated at once": (
        Fact._run,
        "now + again",
        "now",
    ),
    "a wait for another process counts": (
        Fact._run,
        "min(query.read_since, now)",
        "query.begun",
    ),
    "a query that is broken off stays": (Fact._run, "finally:", "else:"),
    "each failure is logged": (
        Fact._log_failure,
        "if not self._failing:",
        "if True:",
    ),
    "each answer is logged": (Fact._set, "self._failing = False", "pass"),
    "each request waits for the first query": (
        Fact.wait,
        "self._tried = True",
        "pass",
    ),
    "a slow later query warns": (Fact.wait, "and not query.may_take_long", ""),
    "no request waits for a fresh value": (
        Fact._use,
        "read_at + 2 * max",
        "inf + max",
    ),
    "without a thread, a query stays": (
        Fact.begin,
        "self._end(query, now + self._interval, str(error))",
        "pass",
    ),
}


# Thousands of examples do not show it, in 19 s: the exhaustive layer's.
_RARE = "a wait for another process counts"


@pytest.mark.parametrize(
    "fault", [each for each in FAULTS if each != _RARE or times(1) > 1]
)
def test_a_fault_that_is_put_back_is_found(fault: str) -> None:
    assert_found(Facts, FAULTS[fault])
