# SPDX-License-Identifier: Apache-2.0

"""The time that a command may take, and reading that may end early.

What was read before the end can be used.
"""

from __future__ import annotations

import argparse
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from os_prefilter.common.errors import DocumentError, PrefilterError

TIMEOUT = 3600.0
"""Seconds that a command may take that reads a cloud.

Enough to read 10,000 hosts from a slow one.
"""

_MOST_DIGITS = 9
_T = TypeVar("_T")


def seconds(text: str) -> int:
    """Return the value of an option with a time."""
    if not (
        text.isascii()
        and text.isdecimal()
        and len(text) <= _MOST_DIGITS
        and int(text)
    ):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a whole number of seconds of at least 1"
        )
    return int(text)


@contextmanager
def deadline(limit: float) -> Iterator[None]:
    """End the context with an error after some seconds, in any call."""

    def end(_number: int, _frame: object) -> None:
        raise PrefilterError(
            f"the command was ended after {limit:g} seconds: a service of the"
            " cloud responds slowly, or not at all. Try again, or read a"
            " snapshot taken at a better time with --hosts."
        )

    before = signal.signal(signal.SIGALRM, end)
    # Again each second: a client library may take the first error for one of
    # the network, and Python ignores it in a destructor.
    signal.setitimer(signal.ITIMER_REAL, limit, 1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class _Stopped(KeyboardInterrupt):
    """The end of :class:`UntilStopped`.

    No library takes a KeyboardInterrupt for an error of its own.
    """


class UntilStopped:
    """Reads items until an interruption, the end of its time or a failure.

    The items before can be used. A second interruption ends the command.
    """

    def __init__(self) -> None:
        self.reason = ""
        """Why not all were read; empty if they were."""
        self._is_reading = self._is_done = self._is_late = False

    def __enter__(self) -> UntilStopped:
        self._before = {
            number: signal.signal(number, self._stop)
            for number in (signal.SIGINT, signal.SIGALRM)
        }
        return self

    def __exit__(self, *_error: object) -> None:
        if self._is_late:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def items(self, every: Iterable[_T]) -> Iterator[_T]:
        """Yield items; raise the error of a service before the first one."""
        source, is_first = iter(every), True
        while not self.reason:
            try:
                self._is_reading = True
                item = next(source)
                self._is_reading = False
            except StopIteration:
                self._is_done = True
                return
            except _Stopped:
                return
            except PrefilterError as error:
                if is_first or isinstance(error, DocumentError):
                    raise
                self.reason = str(error)
                return
            finally:
                self._is_reading = False
            yield item
            is_first = False

    def _stop(self, number: int, _frame: object) -> None:
        if number == signal.SIGINT and (self.reason or self._is_done):
            raise KeyboardInterrupt
        self._is_late |= number == signal.SIGALRM
        if not self._is_done:
            self.reason = self.reason or (
                "the time is over" if self._is_late else "interrupted"
            )
        if self._is_reading:
            raise _Stopped
