"""Failures with a reason and without a traceback, and a guard against input and output, for the conformance tests."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, ClassVar, NoReturn

import pytest

_INPUT_OUTPUT = ("open", "socket.", "subprocess.", "os.", "shutil.", "sqlite3.", "urllib.", "tempfile.", "glob.")
_guarded_thread = threading.local()


def fail(reason: str) -> NoReturn:
    """Fail the test without a traceback, which would show this kit and not the plugin."""
    pytest.fail(reason, pytrace=False)


class NotLoaded:
    """The tests of a plugin that does not load."""

    problem: ClassVar[str]

    def test_it_loads(self) -> None:
        """A service that enables it starts."""
        fail(f"{self.problem} After a change of entry points the package must be installed again (pip install -e .).")


class Forbidden(BaseException):
    """What a plugin must not do, and did. Not an ``Exception``, so that the plugin does not catch it."""


@contextmanager
def forbid_io() -> Iterator[None]:
    """Raise :class:`Forbidden` at the first input or output in the block, which Python's audit events report."""
    _add_audit_hook()
    _guarded_thread.on = True
    try:
        yield
    finally:
        _guarded_thread.on = False


@cache
def _add_audit_hook() -> None:
    """Add the one hook; Python cannot remove it."""
    sys.addaudithook(_audit)


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if getattr(_guarded_thread, "on", False) and event.startswith(_INPUT_OUTPUT) and not _is_import():
        _guarded_thread.on = False
        raise Forbidden(f"it does input or output: {event}({', '.join(map(repr, arguments[:2]))})"[:300])


def _is_import() -> bool:
    """Return whether the current call is part of an import, which reads files once."""
    frame = sys._getframe()  # noqa: SLF001 - it has no other name
    while frame := frame.f_back:  # type: ignore[assignment]
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
    return False
