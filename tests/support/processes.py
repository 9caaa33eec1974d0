# SPDX-License-Identifier: Apache-2.0

"""Programs that a test starts: each ends with it, and all that it has started,
also where the test fails.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

LONGEST = 600.0
"""Seconds that a program may take on a machine that does other things."""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


@contextmanager
def started(
    command: Sequence[str], **options: Any
) -> Iterator[subprocess.Popen[Any]]:
    """Start a program as the leader of a group of processes, and kill the
    group in the end.
    """
    with subprocess.Popen(
        command, start_new_session=True, **options
    ) as process:
        try:
            yield process
        finally:
            # Those that it has started may outlive it.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def ran(
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    *,
    seconds: float = LONGEST,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, and return what it says.

    :raises subprocess.TimeoutExpired: if it has not ended after so many
        seconds
    """
    pipes: dict[str, Any] = {
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "text": True,
    }
    with started(command, env=environment, cwd=folder, **pipes) as process:
        out, err = process.communicate(timeout=seconds)
    return subprocess.CompletedProcess(
        list(command), process.returncode, out, err
    )


def assert_unittests_pass(module: str, said: str) -> None:
    """Run a module of Nova's kind of tests in a process of its own.

    :param said: how many it runs, as unittest says it
    """
    done = ran([sys.executable, "-W", "ignore", "-m", "unittest", module])
    assert done.returncode == 0, done.stderr
    assert said in done.stderr
