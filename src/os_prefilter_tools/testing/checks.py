# SPDX-License-Identifier: Apache-2.0

"""Failures without a traceback, and a guard against I/O.

Both are for the conformance tests.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from traceback import walk_stack
from typing import Any, ClassVar, NoReturn

import pytest

_INPUT_OUTPUT = (
    "open",
    "socket.",
    "subprocess.",
    "os.",
    "shutil.",
    "sqlite3.",
    "urllib.",
    "tempfile.",
    "glob.",
)
_guarded_thread = threading.local()


def fail(reason: str) -> NoReturn:
    """Fail the test without a traceback.

    A traceback would show this kit and not the plugin.
    """
    pytest.fail(reason, pytrace=False)


class NotLoaded:
    """The tests of a plugin that does not load."""

    problem: ClassVar[str]

    def test_it_loads(self) -> None:
        """A service that enables it starts."""
        fail(
            f"{self.problem} After a change of entry points the package must"
            " be installed again (pip install -e .)."
        )


class Forbidden(BaseException):
    """Input or output of a plugin.

    It is no ``Exception``, so that the plugin does not catch it.
    """


@contextmanager
def forbid_io() -> Iterator[None]:
    """Raise :class:`Forbidden` at the first input or output in the block.

    Python's audit events report them.
    """
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
    if not getattr(_guarded_thread, "on", False) or not event.startswith(
        _INPUT_OUTPUT
    ):
        return
    # An import reads files once.
    if any(
        frame.f_code.co_filename.startswith("<frozen importlib")
        for frame, _ in walk_stack(None)
    ):
        return
    _guarded_thread.on = False
    shown = ", ".join(map(repr, arguments[:2]))
    raise Forbidden(f"it does input or output: {event}({shown})"[:300])
