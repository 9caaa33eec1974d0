# SPDX-License-Identifier: Apache-2.0

"""Runs of hypothesis's state machines, on the code as it is, and with faults
put back into it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from textwrap import dedent
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    run_state_machine_as_test,
)

from tests.conftest import times

Fault = tuple[Callable[..., Any], str, str]
"""A function, a text that occurs once in its source, and the one to run with
instead.
"""

_CORRECT = settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
FAULTY = settings(
    _CORRECT,
    max_examples=3000,
    derandomize=True,
    phases=[Phase.generate],
    report_multiple_bugs=False,
)


def assert_correct(
    machine: type[RuleBasedStateMachine], examples: int
) -> None:
    run_state_machine_as_test(
        machine, settings=settings(_CORRECT, max_examples=times(examples))
    )


def assert_found(machine: type[RuleBasedStateMachine], fault: Fault) -> None:
    function, old, new = fault
    source = dedent(inspect.getsource(function))
    assert source.count(old) == 1, (
        f"{function.__qualname__} no longer has exactly one {old!r}: rewrite"
        " this fault"
    )
    namespace: dict[str, Any] = {}
    exec(source.replace(old, new), function.__globals__, namespace)  # noqa: S102 - our own source
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            function, "__code__", namespace[function.__name__].__code__
        )
        with pytest.raises(AssertionError):
            run_state_machine_as_test(machine, settings=FAULTY)
