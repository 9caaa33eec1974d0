"""What a plugin must not do while it runs: input and output, reading the clock, throwing dice.

The interpreter tells of files, sockets and processes by itself (its audit events); of the clock and of random numbers a
profile function sees the calls. Both cost nothing once the block has ended.
"""

import gc
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, datetime
from typing import Any


class Forbidden(BaseException):
    """What the plugin did. Not an ``Exception``, so that a plugin does not catch it."""


_INPUT_OUTPUT = ("open", "socket.", "subprocess.", "os.", "shutil.", "sqlite3.", "urllib.", "tempfile.", "glob.")
_CLOCK = frozenset(
    (
        time.time,
        time.time_ns,
        time.monotonic,
        time.monotonic_ns,
        time.perf_counter,
        time.perf_counter_ns,
        time.localtime,
        time.gmtime,
        time.strftime,
        time.sleep,
    )
)
_NOW = frozenset(("now", "utcnow", "today"))
# Audit hooks stay for the life of the process: one, which looks at who is watched.
_watched = threading.local()
_hooked: list[bool] = []


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if getattr(_watched, "on", False) and event.startswith(_INPUT_OUTPUT) and not _is_import():
        _watched.on = False
        raise Forbidden(f"it does input or output: {event}({', '.join(map(repr, arguments[:2]))})"[:300])


def _is_import() -> bool:
    """Whether somebody imports a module, which reads files; that is done once."""
    frame = sys._getframe()  # noqa: SLF001 - it has no other name
    while frame := frame.f_back:  # type: ignore[assignment]
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
    return False


def _profile(_frame: object, event: str, called: Any) -> None:
    if event == "c_call" and (what := _clock_or_dice(called)):
        sys.setprofile(None)
        raise Forbidden(what)


def _clock_or_dice(called: Any) -> str:
    owner = getattr(called, "__self__", None)
    name = getattr(called, "__qualname__", repr(called))
    if called == os.urandom or isinstance(owner, random.Random):
        return f"it throws dice: {name}()"
    is_now = isinstance(owner, type) and issubclass(owner, (date, datetime)) and called.__name__ in _NOW
    return f"it reads the clock: {name}()" if is_now or called in _CLOCK else ""


@contextmanager
def guarded() -> Iterator[None]:
    """Raise :class:`Forbidden` in the block at the first thing that a plugin must not do."""
    if not _hooked:
        _hooked.append(True)
        sys.addaudithook(_audit)
    before: Callable[..., Any] | None = sys.getprofile()
    # Else what others do when objects are collected (hypothesis measures it) would count.
    collects = gc.isenabled()
    gc.disable()
    _watched.on = True
    sys.setprofile(_profile)
    try:
        yield
    finally:
        sys.setprofile(before)
        _watched.on = False
        if collects:
            gc.enable()
