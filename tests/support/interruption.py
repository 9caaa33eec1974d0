# SPDX-License-Identifier: Apache-2.0

"""SIGTERM ends a run of the tests as Ctrl-C does, in all of its processes; and
no run leaves a process behind.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from typing import NoReturn

import pytest
from stevedore import _cache

from tests.support.leftovers import Run

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class FirstProcess:
    def __init__(self, config: pytest.Config) -> None:
        self._plugins = config.pluginmanager
        self._run = Run()
        # It has chosen the user's folder when it was imported.
        _cache._c = _cache.Cache()
        # SIGINT too: a shell script starts what runs in its background with
        # SIGINT ignored.
        for each in _SIGNALS:
            signal.signal(each, _interrupt)

    def pytest_keyboard_interrupt(self) -> None:
        """Interrupt the workers of pytest-xdist at once: they would notice
        seconds later, and then be killed.
        """
        # Without workers, the children are services, which fixtures end.
        for each in (
            self._run.children() if self._plugins.hasplugin("dsession") else ()
        ):
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGINT)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a run that leaves a process behind, by whose command line the
        test is found.
        """
        if left := self._run.end():
            lines = "\n".join(left)
            sys.stderr.write(
                "\nThe tests left processes behind, which were"
                f" killed:\n{lines}\n"
            )
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def install(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        for each in _SIGNALS:
            signal.signal(each, _interrupt_once)
    else:
        config.pluginmanager.register(FirstProcess(config))


def _interrupt(_number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


def _interrupt_once(number: int, frame: object) -> NoReturn:
    """Be interrupted once: a terminal interrupts the worker and the first
    process, which then interrupts the worker.
    """
    for each in _SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    _interrupt(number, frame)
