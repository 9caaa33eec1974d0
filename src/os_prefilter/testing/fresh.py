"""The answers of a filter, here and in an interpreter of its own, which gets and gives pickles."""

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext, redirect_stdout

from os_prefilter.errors import RequestRejected
from os_prefilter.pipeline.filter_calls import Given, Pending, answer_of, bound
from os_prefilter.request.requirements import Requirements
from os_prefilter.request.view import Request
from os_prefilter.testing.fixtures import loaded
from os_prefilter.testing.subject import Subject

SECONDS = 300


def answer(
    subject: Subject, spec: object, guard: Callable[[], AbstractContextManager[None]] = nullcontext
) -> Requirements | str:
    """Return what a filter answers to a request, or with which message it rejects it; the request may be changed.

    :param guard: what is around the call of the filter
    :raises FilterFailed: if it raises an error of its own, or answers with something else
    """
    each = loaded(subject.plugin, subject.facts)
    given = Given(spec, None, subject.facts, Pending())
    request = Request(spec)
    try:
        call = bound(each, subject.options)
        with guard():
            return answer_of(each.name, call, request, given)
    except RequestRejected as error:
        return f"{type(error).__name__}: {error}"


def answers_elsewhere(subject: Subject, specs: Iterable[object], seed: int) -> list[Requirements | str]:
    """Return the answers of a new interpreter.

    :param seed: of the order of its sets
    :raises pickle.PicklingError, AttributeError, TypeError: if the filter or a fact cannot be taken there
    :raises RuntimeError: with what the interpreter says, if it fails
    """
    # The path first: what comes after it may be found there alone.
    task = pickle.dumps(sys.path) + pickle.dumps((subject, list(specs)))
    done = subprocess.run(  # noqa: S603 - this interpreter, this module
        [sys.executable, "-c", f"from {__name__} import main; main()"],
        input=task,
        capture_output=True,
        check=False,
        timeout=SECONDS,
        env={**os.environ, "PYTHONHASHSEED": str(seed)},
    )
    if done.returncode:
        raise RuntimeError(done.stderr.decode(errors="replace").strip().rpartition("\n")[2])
    answers: list[Requirements | str] = pickle.loads(done.stdout)  # noqa: S301 - of our own child
    return answers


def main() -> None:
    """Answer what a parent asks on the standard input."""
    sys.path[:] = pickle.load(sys.stdin.buffer)  # noqa: S301 - of our own parent
    subject, specs = pickle.load(sys.stdin.buffer)  # noqa: S301
    with redirect_stdout(sys.stderr):
        # A filter may print; that is no part of the answer.
        answers = pickle.dumps([answer(subject, each) for each in specs])
    sys.stdout.buffer.write(answers)
