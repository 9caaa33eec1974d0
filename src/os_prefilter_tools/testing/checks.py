"""What the conformance tests share: failing with a reason, and running a plugin guarded."""

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any, ClassVar, NamedTuple, NoReturn

import pytest

from os_prefilter.common.errors import RequestRejected
from os_prefilter.pipeline.decision import Progress
from os_prefilter.pipeline.filter_calls import bind, call_filter
from os_prefilter.request.filter_contract import LoadedFilter
from os_prefilter.request.requirements import Requirements
from os_prefilter.request.view import Request
from os_prefilter.service import Service
from os_prefilter.vocabulary.options import Options
from os_prefilter_tools.testing.builders import load_filter, pipeline_of

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


class FilterUnderTest(NamedTuple):
    """A filter under test, with the options and the deployment facts that it gets."""

    plugin: str | Callable[..., Any]
    options: Options
    facts: Mapping[str, object]

    @property
    def filter(self) -> LoadedFilter:
        """The filter as a service loads it."""
        return load_filter(self.plugin, self.facts)

    @property
    def pipeline(self) -> Service:
        """A new pipeline of this one filter."""
        return pipeline_of(self.plugin, options=self.options, facts=self.facts)

    def answer(
        self, spec: object, guard: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> Requirements | str:
        """Return the filter's result for a request, or the message of its rejection; the request may be changed.

        :param guard: the context in which the filter is called
        :raises FilterFailed: if it raises an error of its own, or returns something else
        """
        each = self.filter
        progress = Progress(Request(spec))
        try:
            call = bind(each, self.options, self.facts)
            with guard():
                return call_filter(each, call, progress)
        except RequestRejected as error:
            return f"{type(error).__name__}: {error}"


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
    """Whether the current call is part of an import, which reads files once."""
    frame = sys._getframe()  # noqa: SLF001 - it has no other name
    while frame := frame.f_back:  # type: ignore[assignment]
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
    return False
