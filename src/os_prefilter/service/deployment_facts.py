# SPDX-License-Identifier: Apache-2.0

"""Facts about the deployment, each read at most once per interval.

A filter declares the facts that it needs.

A query may go to the database of every cell, so no request waits for one of
its own; a filter sees the value only.
"""

from __future__ import annotations

import inspect
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotDoneError
from dataclasses import field
from functools import partial
from math import inf
from operator import attrgetter
from random import uniform
from typing import Any, TypeVar

from os_prefilter.common.dataclasses import dataclass
from os_prefilter.common.errors import UnusableArgument
from os_prefilter.common.logs import get_logger
from os_prefilter.common.quoting import describe_error
from os_prefilter.common.threads import start_thread
from os_prefilter.request.filter_contract import UNKNOWN
from os_prefilter.service.shared import (
    REPEAT_AFTER,
    Reading,
    Store,
    pause_after,
)

LOG = get_logger(__name__)

PATIENCE = 5.0
"""Seconds that a request waits for all queries together, at most.

The queries go on without it.
"""

# After a query that failed: Placement may be there again.
_LONGEST_PAUSE_OF_FAILED = 300.0
_SOON = 1.0

ReadFact = Callable[[Any], Any]
"""``(context) -> value``; the context of the request, or None."""

T = TypeVar("T")


# What a call of these returns is true, whatever they would compute.
_ODD_FUNCTIONS = (
    inspect.iscoroutinefunction,
    inspect.isgeneratorfunction,
    inspect.isasyncgenfunction,
)
_CHANGED_IN_PLACE = (list, dict, set, bytearray)


def seconds_to(until: float) -> float:
    """Return the seconds to a time of :func:`time.monotonic`, or 0.0."""
    return max(0.0, until - time.monotonic())


def latest_end() -> float:
    """Return when a request that begins now stops waiting.

    It is a time of :func:`time.monotonic`.
    """
    return time.monotonic() + PATIENCE


def ask_in_time(
    call: Callable[[], T], name: str, until: float, who: str = "Placement"
) -> tuple[Future[T], str]:
    """Call what may block, for one request, which waits at most so long.

    :return: the future, and why it has no result: empty if it has one

    :param name: of the thread; the embedding service's client may wait longer
        than the request
    :param who: responds
    """
    try:
        asked = start_thread(call, name)
    except RuntimeError as no_thread:
        asked = Future()
        asked.set_exception(no_thread)
    try:
        # Not the result: eventlet's Timeout, which Nova's client may raise, is
        # no Exception.
        error = asked.exception(min(PATIENCE, seconds_to(until)))
    except NotDoneError:
        return asked, f"{who} did not respond in {PATIENCE:g} seconds"
    return asked, describe_error(error) if error else ""


def check_callable(what: str, given: object, *arguments: str) -> None:
    """Check that an argument can be called with these arguments.

    :raises UnusableArgument: also for a class, which would make an object of
        the request's context, and for a coroutine function: either result
        would be true, whatever the deployment is
    """
    call = inspect.getattr_static(type(given), "__call__")
    found = ""
    if inspect.isclass(given):
        found = f"the class {given.__name__}"
    elif not callable(given):
        found = f"a {type(given).__name__}"
    elif any(is_odd(given) or is_odd(call) for is_odd in _ODD_FUNCTIONS):
        found = "a coroutine or generator function"
    else:
        try:
            inspect.signature(given).bind(*arguments)
        except TypeError:
            found = (
                f"a function with the parameters {inspect.signature(given)}"
            )
        except ValueError:
            # Some functions of C have no signature.
            return
    if found:
        raise UnusableArgument(
            what, f"a function ({', '.join(arguments)})", found
        )


@dataclass(slots=True, eq=False)
class PendingQuery:
    """A query under way."""

    begun: float
    """When it was started."""
    deadline: float
    """Until when requests wait, on the clock of :func:`time.monotonic`."""
    may_take_long: bool = False
    """Whether a query may go on after its deadline without a warning."""
    process: int = field(default_factory=os.getpid)
    done: threading.Event = field(default_factory=threading.Event)
    read_since: float = inf
    """When this process began to read; before, it waits for another one."""


class Fact:
    """A value, its age, and when it is read again.

    It is read again after ``interval`` seconds; after a slow reading, the
    pause is twenty times as long as the reading took.

    While readings fail, or take longer than requests wait, the last known
    value stays (``unknown`` before the first one): absence of knowledge is not
    knowledge of absence. One log line says when a value changes, when readings
    begin to fail, and when they work again.

    :param read: returns what ``make`` takes, as JSON if there are stores
    :param make: returns the value of what was read; after an error, it could
        not be read
    :param stores: where processes share what they read, the nearest first
    :param names: of the facts in the value, where it has several by name
    :param later_patience: the seconds that requests wait at most for readings
        after the first one, which may then take longer without a warning; None
        for :data:`PATIENCE`
    """

    def __init__(  # noqa: PLR0913 - all but three have defaults
        self,
        name: str,
        read: ReadFact,
        interval: float,
        unknown: Any = UNKNOWN,
        *,
        make: Callable[[Any], Any] = lambda value: value,
        stores: Iterable[Store] = (),
        names: Iterable[str] = (),
        later_patience: float | None = None,
    ) -> None:
        self.name = name
        self.latest = unknown
        """The last known value, however old."""
        self.version = 0
        """Another number after each reading that may have another value."""
        self._read = read
        self._interval = interval
        self._make = make
        self._stores = tuple(stores)
        self._names = tuple(names)
        self._later_patience = later_patience
        self._lock = threading.Lock()
        self._query: PendingQuery | None = None
        self.due = -inf
        """When it is read again, on the clock of :func:`time.monotonic`."""
        # Until when requests need not wait for the next query.
        self._usable_until = inf
        # When the query was started that `latest` is the result of.
        self._result_of = -inf
        self.is_expired = False
        self._tried = False
        self._failing = False

    def begin(self, context: Any = None) -> PendingQuery | None:
        """Start a query if one is due.

        :return: the query that this request must wait for, if any

        The request that finds the value older than ``interval`` starts a query
        in a thread, and waits for it. Other requests use the old value
        meanwhile, or wait as well if there never was one, or if it is twice as
        old: the process may have been paused.
        """
        # Without the lock: most requests find that it is not due.
        if not self.is_due(time.monotonic()):
            return None
        with self._lock:
            now = time.monotonic()
            query = self._query
            # After a fork, the query of the parent ends in the parent only.
            if (
                query
                and query.process == os.getpid()
                and now - query.begun < max(REPEAT_AFTER, self._interval)
            ):
                if self._tried and now < self._usable_until:
                    return None
                return query
            # Another request may have got the result meanwhile.
            if not self.is_due(now):
                return None
            # Before the query: if the value expires meanwhile, the result on
            # its way may be the old one.
            self.is_expired = False
            later = self._later_patience if self._tried else None
            self._query = query = PendingQuery(
                now,
                now + (PATIENCE if later is None else later),
                may_take_long=later is not None,
            )
            try:
                start_thread(
                    partial(self._run, query, context), f"fact {self.name}"
                )
            except RuntimeError as error:
                # The process cannot have another thread.
                self._end(query, now + self._interval, str(error))
                return None
            return query

    def wait(self, query: PendingQuery, until: float = inf) -> None:
        """Wait for a query, at most until its deadline or ``until``."""
        if query.done.wait(seconds_to(min(query.deadline, until))):
            return
        with self._lock:
            # Later requests do not wait as long again.
            self._tried = True
            if self._query is query and not query.may_take_long:
                self._log_failure(f"no response in {PATIENCE:g} seconds")

    def expire(self) -> None:
        """Make the next request read the value again."""
        self.is_expired = True

    def is_due(self, now: float) -> bool:
        """Return whether the value is to be read again."""
        return now >= self.due or self.is_expired

    def values(self) -> Mapping[str, Any]:
        """Return the last known value by name, or those of several facts."""
        return self._by_name(self.latest)

    def _by_name(self, value: Any) -> Mapping[str, Any]:
        if not self._names:
            return {self.name: value}
        if value is UNKNOWN:
            return dict.fromkeys(self._names, UNKNOWN)
        by_name: Mapping[str, Any] = value
        return by_name

    def _run(self, query: PendingQuery, context: Any) -> None:
        problem = "the query was broken off"
        read = partial(self._read_here, query, context)
        for store in reversed(self._stores):
            read = partial(
                store.read_through, read, self._make, self._interval
            )
        try:
            reading = read()
            value = self._make(reading.value)
            with self._lock:
                self._use(query, reading._replace(value=value))
        except Exception as error:  # noqa: BLE001 - of the embedding service; the scheduler goes on without it
            problem = describe_error(error)
        finally:
            with self._lock:
                now = time.monotonic()
                # Without the wait for another process.
                taken = now - min(query.read_since, now)
                pause = pause_after(taken, self._interval)
                again = min(
                    pause, max(self._interval, _LONGEST_PAUSE_OF_FAILED)
                )
                # A query with a result has ended above.
                self._end(query, now + again, problem)
            query.done.set()

    def _read_here(self, query: PendingQuery, context: Any) -> Reading:
        query.read_since = begun = time.monotonic()
        begun_at = time.time()
        value = self._read(context)
        taken = time.monotonic() - begun
        # While a machine sleeps, only one of the clocks goes on.
        return Reading(value, taken, max(taken, time.time() - begun_at))

    def _use(self, query: PendingQuery, reading: Reading) -> None:
        interval = self._interval
        if self._result_of == -inf:
            # Processes that start together must not query together forever.
            interval = uniform(0, interval)  # noqa: S311
        now = time.monotonic()
        read_at = now - reading.age
        pause = pause_after(reading.seconds, interval)
        # A query that was repeated may end after the later one.
        if query.begun >= self._result_of:
            self._result_of = query.begun
            self._usable_until = read_at + 2 * max(pause, self._interval)
            self._set(reading.value)
        # Of a value that another process is reading again, no request needs
        # the newest.
        self._end(query, max(read_at + pause, now + min(interval, _SOON)))

    def _set(self, value: Any) -> None:
        if self._failing:
            LOG.info("The deployment fact %s can be read again.", self.name)
            self._failing = False
        before = self.values()
        for name, new in self._by_name(value).items():
            if new != before[name]:
                LOG.info(
                    "The deployment fact %s is now %r (was %r).",
                    name,
                    new,
                    before[name],
                )
        # Equal values may still differ in what is not worth a line, and the
        # same object in what is in it.
        if value is not self.latest or isinstance(value, _CHANGED_IN_PLACE):
            self.latest = value
            # Last: who sees the version sees this value, or a later one.
            self.version += 1

    def _end(self, query: PendingQuery, due: float, problem: str = "") -> None:
        if self._query is not query:
            return
        self._query = None
        self.due = due
        self._tried = True
        if problem:
            self._log_failure(problem)

    def _log_failure(self, problem: str) -> None:
        if not self._failing:
            kept = dict(self.values()) if self._names else self.latest
            LOG.warning(
                "Failed to read the deployment fact %s (%s); keeping %r until"
                " it can be read.",
                self.name,
                problem,
                kept,
            )
        self._failing = True


_version_of = attrgetter("version")


def versions_of(
    facts: Sequence[Fact], context: Any = None, until: float = inf
) -> tuple[int, ...]:
    """Return the versions of facts, after a reading of the due ones.

    All that are due are queried at the same time.

    :param until: when the request waits no longer, on the clock of
        :func:`time.monotonic`
    """
    now = time.monotonic()
    for fact in facts:
        # Each request comes here: nothing is called for a fact that is not
        # due.
        if now >= fact.due or fact.is_expired:
            pending = [(each, each.begin(context)) for each in facts]
            for each, query in pending:
                if query:
                    each.wait(query, until)
            break
    return tuple(map(_version_of, facts))
