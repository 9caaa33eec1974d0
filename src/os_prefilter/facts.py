"""Facts about the deployment that a filter may declare as a need, each asked at most once per interval.

Asking can mean a query to every cell's database, so it never happens per request; a filter sees the value only.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from os_prefilter.texts import one_line

LOG = logging.getLogger(__name__)

Ask = Callable[[Any], Any]
"""``(context) -> value``; the context is the one that the request came with, None if there was none."""


class Fact:
    """A value that is asked for again after ``interval`` seconds.

    While asking fails, the last known value stays (``unknown`` before the first answer): absence of knowledge is not
    knowledge of absence. One log line says when a value changes, when asking begins to fail, and when it works again.
    """

    def __init__(self, name: str, ask: Ask, interval: float, unknown: Any = None) -> None:
        self.name = name
        self._ask = ask
        self._interval = interval
        self._value = unknown
        self._next = float("-inf")
        self._asked_once = False
        self._expired = False
        self._failing = False
        self._asking = threading.Lock()

    def value(self, context: Any = None, now: Callable[[], float] = time.monotonic) -> Any:
        """Return the value, at most ``interval`` seconds old.

        One thread asks; the others go on with the old value meanwhile, or wait if there never was one.
        """
        if self._is_due(now) and self._asking.acquire(blocking=not self._asked_once):
            try:
                # Another thread may have asked while this one waited.
                if self._is_due(now):
                    # Before it is asked: who lets it expire meanwhile means another answer.
                    self._expired = False
                    self._refresh(context)
                    self._next = now() + self._interval
                    self._asked_once = True
            finally:
                self._asking.release()
        return self._value

    def expire(self) -> None:
        """Let it be asked for again at the next use."""
        self._expired = True

    def _is_due(self, now: Callable[[], float]) -> bool:
        return self._expired or now() >= self._next

    def _refresh(self, context: Any) -> None:
        try:
            value = self._ask(context)
        except Exception as error:  # noqa: BLE001 - a provider of somebody else's; the scheduler goes on without it
            if not self._failing:
                LOG.warning(
                    "The deployment fact %s cannot be asked for (%s: %s); it stays %r until that works again.",
                    self.name,
                    type(error).__name__,
                    one_line(str(error)),
                    self._value,
                )
            self._failing = True
            return
        if self._failing:
            LOG.info("The deployment fact %s can be asked for again.", self.name)
            self._failing = False
        if value != self._value:
            LOG.info("The deployment fact %s is now %r (was %r).", self.name, value, self._value)
        # Equal values may still differ in what is not worth a line.
        self._value = value
