"""Watching schedulers under load: that none stands still, that memory does not grow, and that no error gets lost."""

import faulthandler
import gc
import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import psutil

PATIENCE = 60.0
"""Seconds without progress after which a scheduler is stuck."""

_MEBIBYTE = 2**20


class Stuck(Exception):
    """A scheduler made no progress; the message has the stacks of all threads."""


class Watchdog:
    """Raises :class:`Stuck` when one of several numbers has not grown for too long.

    :param stacks: returns the stacks of all threads that are watched
    """

    def __init__(self, numbers: Sequence[int], stacks: Callable[[], str], patience: float = PATIENCE) -> None:
        self._numbers = numbers
        self._stacks = stacks
        self._patience = patience
        self._last = [(number, time.monotonic()) for number in numbers]

    def look(self) -> None:
        """Compare with the last look."""
        now = time.monotonic()
        for index, number in enumerate(self._numbers):
            before, since = self._last[index]
            if number != before:
                self._last[index] = number, now
            elif now - since > self._patience:
                raise Stuck(f"Scheduler {index} has stood still at {number} for {now - since:.0f} s.\n{self._stacks()}")


def stacks_here() -> str:
    """Return the stacks of all threads of this process."""
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        return file.read()


def memory(*processes: int) -> float:
    """Return the resident memory of processes in MiB, of this one if none is named."""
    gc.collect()
    return sum(psutil.Process(each).memory_info().rss for each in processes or (os.getpid(),)) / _MEBIBYTE


@contextmanager
def logging_counted() -> Iterator[list[str]]:
    """Keep what the library logs out of the test's own records, which would grow; yield what is said of errors.

    Broken rules are errors that are expected.
    """
    log = logging.getLogger("os_prefilter")
    errors: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.levelno >= logging.ERROR and "Failed to reload the request rules" not in record.getMessage():
                errors.append(record.getMessage())

    handler = Handler()
    propagate, log.propagate = log.propagate, False
    log.addHandler(handler)
    try:
        yield errors
    finally:
        log.removeHandler(handler)
        log.propagate = propagate


@contextmanager
def switching_often() -> Iterator[None]:
    """Let threads take turns ten times as often as usual: more that can happen in between, and no long waits."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(before / 10)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
