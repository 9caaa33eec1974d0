# SPDX-License-Identifier: Apache-2.0

"""Programs that tests start and end, and the services that must be there:
RabbitMQ and MariaDB.

In CI they must be there. Elsewhere the tests need OS_PREFILTER_RABBITMQ_URL
(``rabbit://user:password@host:port/``) and OS_PREFILTER_MARIADB_URL
(``mysql+pymysql://user:password@host:port``, of a user who may do everything).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import psutil
import pytest
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from tests.support.leftovers import note_session

T = TypeVar("T")

PATIENCE = 120.0
"""Seconds after which something that should have happened has not. On an idle
machine, each takes a few.
"""

_VARIABLES = ("OS_PREFILTER_RABBITMQ_URL", "OS_PREFILTER_MARIADB_URL")

needs_services = pytest.mark.skipif(
    not all(map(os.environ.get, _VARIABLES)) and not os.environ.get("CI"),
    reason=f"it needs a RabbitMQ and a MariaDB: {' and '.join(_VARIABLES)}",
)


def urls() -> list[str]:
    """Return the URLs of RabbitMQ and MariaDB; in CI, where nothing is
    skipped, a missing one fails.
    """
    found = [os.environ.get(name, "") for name in _VARIABLES]
    assert all(found), (
        f"in CI, {' and '.join(_VARIABLES)} must name the services"
    )
    return found


def until(condition: Callable[[], T], failure: Callable[[], str]) -> T:
    """Wait until ``condition`` returns something true, and return it; else
    fail with the text of ``failure``.
    """
    retrying = Retrying(
        stop=stop_after_delay(PATIENCE),
        wait=wait_fixed(0.05),
        retry=retry_if_result(lambda value: not value),
        retry_error_callback=lambda _state: None,
    )
    value: T | None = retrying(condition)
    if not value:
        pytest.fail(f"after {PATIENCE:.0f} seconds: {failure()}")
    return value


class Program:
    """A running program, with all processes that it starts, in a session of
    its own.

    :param argv: the name of a program of this Python's environment, and its
        arguments
    :param environment: variables beside those of this process
    """

    def __init__(
        self,
        argv: Sequence[str],
        folder: Path,
        log: str,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = argv[0]
        self.log_file = folder / f"{log}.log"
        program = str(Path(sys.executable).with_name(argv[0]))
        # Ends it when this process is killed.
        command = ["setpriv", "--pdeathsig", "TERM", program, *argv[1:]]
        with self.log_file.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.pid = self._process.pid
        self._note = note_session(self.pid)

    @property
    def log(self) -> str:
        """All that it has written so far."""
        return self.log_file.read_text(encoding="utf-8", errors="replace")

    def workers(self) -> set[int]:
        """Return the process ids of its children."""
        return {each.pid for each in self.processes()} - {self.pid}

    def processes(self) -> list[psutil.Process]:
        """Return the program and all processes of its session that run,
        orphans too.
        """
        running = []
        for each in psutil.process_iter():
            try:
                if (
                    os.getsid(each.pid) == self.pid
                    and each.status() != psutil.STATUS_ZOMBIE
                ):
                    running.append(each)
            except (ProcessLookupError, psutil.NoSuchProcess):
                continue
        return running

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the program itself."""
        self._process.send_signal(number)

    def exit_code(self) -> int:
        """Wait until the program ends."""
        try:
            return self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            pytest.fail(f"{self.name} did not end:\n{self._last_lines()}")

    def succeed(self) -> None:
        """Wait until the program has done its work."""
        assert self.exit_code() == 0, self._last_lines()

    def wait_for_log(self, text: str, times: int = 1) -> str:
        """Wait until it has written ``text`` so often; return its log."""

        def written() -> str:
            log = self.log
            if log.count(text) < times and self._process.poll() is not None:
                pytest.fail(f"{self.name} ended:\n{self._last_lines()}")
            return log if log.count(text) >= times else ""

        return until(
            written,
            lambda: (
                f"{self.name} did not write {text!r}:\n{self._last_lines()}"
            ),
        )

    def kill(self) -> None:
        """End all its processes at once."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait(PATIENCE)
        until(
            lambda: not self.processes(),
            lambda: f"{self.name} is still there: {self.processes()}",
        )
        self._note.unlink()

    def _last_lines(self) -> str:
        return "\n".join(self.log.splitlines()[-40:])


@contextmanager
def running(
    argv: Sequence[str],
    folder: Path,
    log: str,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Program]:
    """Run a program; at the end of the context nothing of it is left."""
    program = Program(argv, folder, log, environment)
    try:
        yield program
    finally:
        program.kill()
