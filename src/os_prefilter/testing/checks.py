"""What the conformance tests share: failing with a reason, and running a plugin guarded or in another process."""

import gc
import os
import pickle
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from datetime import date, datetime
from functools import cache
from typing import Any, ClassVar, NamedTuple, NoReturn

import pytest

from os_prefilter.common.errors import RequestRejected
from os_prefilter.conf.options import Options
from os_prefilter.filters.loading import LoadedFilter
from os_prefilter.pipeline.filter_calls import Inputs, bind, call_filter
from os_prefilter.pipeline.pipeline import Pipeline
from os_prefilter.request.requirements import Requirements
from os_prefilter.request.view import Request
from os_prefilter.testing.builders import load_filter, pipeline_of

_SECONDS = 300
_INPUT_OUTPUT = ("open", "socket.", "subprocess.", "os.", "shutil.", "sqlite3.", "urllib.", "tempfile.", "glob.")
_NOW = frozenset(("now", "utcnow", "today"))
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


class Subject(NamedTuple):
    """A filter under test, with the options and the deployment facts that it gets."""

    plugin: str | Callable[..., Any]
    options: Options
    facts: Mapping[str, object]

    @property
    def filter(self) -> LoadedFilter:
        """The filter as a service loads it."""
        return load_filter(self.plugin, self.facts)

    @property
    def pipeline(self) -> Pipeline:
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
        inputs = Inputs(spec, None, self.facts)
        request = Request(spec)
        try:
            call = bind(each, self.options)
            with guard():
                return call_filter(each.name, call, request, inputs)
        except RequestRejected as error:
            return f"{type(error).__name__}: {error}"

    def answers_of_new_process(self, specs: Iterable[object], seed: int) -> list[Requirements | str]:
        """Return the answers of a new interpreter, to which the filter and the requests go as pickles.

        :param seed: of the hashes of strings, and so of the order of sets
        :raises pickle.PicklingError, AttributeError, TypeError: if the filter or a fact cannot be pickled
        :raises RuntimeError: with the last line of its standard error, if the interpreter fails
        """
        # The path comes first: what follows may only be importable with it.
        task = pickle.dumps(sys.path) + pickle.dumps((self, list(specs)))
        done = subprocess.run(  # noqa: S603 - this interpreter, this module
            [sys.executable, "-c", f"from {__name__} import serve_answers; serve_answers()"],
            input=task,
            capture_output=True,
            check=False,
            timeout=_SECONDS,
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
        )
        if done.returncode:
            raise RuntimeError(done.stderr.decode(errors="replace").strip().rpartition("\n")[2])
        answers: list[Requirements | str] = pickle.loads(done.stdout)  # noqa: S301 - of our own child
        return answers


def serve_answers() -> None:
    """Read a subject and requests from the standard input, and write the answers to the standard output."""
    sys.path[:] = pickle.load(sys.stdin.buffer)  # noqa: S301 - of our own parent
    subject, specs = pickle.load(sys.stdin.buffer)  # noqa: S301
    with redirect_stdout(sys.stderr):
        # A filter may print; that is no part of the answer.
        answers = pickle.dumps([subject.answer(each) for each in specs])
    sys.stdout.buffer.write(answers)


class Forbidden(BaseException):
    """What a plugin must not do, and did. Not an ``Exception``, so that the plugin does not catch it."""


@contextmanager
def forbid_io() -> Iterator[None]:
    """Raise :class:`Forbidden` at the first input or output, look at the clock, or random number in the block.

    Python's audit events report files, sockets and processes; a profile function sees calls of the others.
    """
    _add_audit_hook()
    profile = sys.getprofile()
    # Else callbacks of others when objects are collected would count (hypothesis measures it).
    collects = gc.isenabled()
    gc.disable()
    _guarded_thread.on = True
    sys.setprofile(_profile)
    try:
        yield
    finally:
        sys.setprofile(profile)
        _guarded_thread.on = False
        if collects:
            gc.enable()


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


def _profile(_frame: object, event: str, called: Any) -> None:
    if event != "c_call":
        return
    owner, name = getattr(called, "__self__", None), getattr(called, "__qualname__", repr(called))
    if called == os.urandom or isinstance(owner, random.Random):
        reason = f"it throws dice: {name}()"
    elif owner is time or (isinstance(owner, type) and issubclass(owner, (date, datetime)) and called.__name__ in _NOW):
        reason = f"it reads the clock: {name}()"
    else:
        return
    sys.setprofile(None)
    raise Forbidden(reason)
