"""What tests start is ended: a program and all that it has started, whether the test passes or fails."""

import os
import subprocess
import sys

import psutil
import pytest

from tests.support.processes import ran, started

_PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
print(child.pid, flush=True)
time.sleep(3600)
"""


def test_started_program_and_its_children_are_killed_when_the_test_fails() -> None:
    with (
        pytest.raises(RuntimeError, match="the test fails"),
        started([sys.executable, "-c", _PARENT], stdout=subprocess.PIPE, text=True) as process,
    ):
        assert process.stdout
        child = psutil.Process(int(process.stdout.readline()))
        raise RuntimeError("the test fails")
    assert process.returncode
    # Whoever adopts it may not look after it at once: then it is a zombie.
    psutil.wait_procs([child], timeout=60)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_finished_program_returns_its_exit_code_stdout_and_stderr() -> None:
    script = "import os, sys; print(os.environ['A']); print('x', file=sys.stderr); sys.exit(3)"
    done = ran([sys.executable, "-c", script], {**os.environ, "A": "b"})
    assert (done.returncode, done.stdout, done.stderr) == (3, "b\n", "x\n")
