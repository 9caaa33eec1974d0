# SPDX-License-Identifier: Apache-2.0

"""A run of the tests that is interrupted leaves nothing behind: no process, no
folder.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.processes import ran, started
from tests.support.programs import until

ROOT = Path(__file__).parents[2]

_INTERRUPTED = """
import os, subprocess, sys, time
from pathlib import Path
import pytest

@pytest.fixture
def service():
    # A session of its own, which no signal to a group of processes reaches, and deaf to what ends it in good order.
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(3600)"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True)
    process.stdout.readline()
    Path("folder").write_text(os.environ["OS_PREFILTER_TEST_FOLDER"])
    Path("service").write_text(str(process.pid))
    yield
    Path("finalized").touch()
    STOP

def test_waits(service):
    WAIT
"""


def _run_of(
    folder: Path,
    *options: str,
    stop: str = "process.kill()",
    wait: str = "time.sleep(3600)",
) -> list[str]:
    """Write a test that starts a service into a folder, with the conftest of
    ours; return the command that runs it.
    """
    (folder / "tests").symlink_to(ROOT / "tests")
    (folder / "conftest.py").write_text(
        "from tests.support import interruption\npytest_configure ="
        " interruption.install\n"
    )
    (folder / "test_it.py").write_text(
        _INTERRUPTED.replace("STOP", stop).replace("WAIT", wait)
    )
    return [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-q",
        *options,
        "test_it.py",
    ]


def _has_ended(process: int) -> bool:
    return (
        not psutil.pid_exists(process)
        or psutil.Process(process).status() == psutil.STATUS_ZOMBIE
    )


_ALONE, _WITH_A_WORKER = (), ("-n", "1")


@pytest.mark.parametrize(
    ("options", "number"),
    [
        (_ALONE, signal.SIGINT),
        (_ALONE, signal.SIGKILL),
        (_WITH_A_WORKER, signal.SIGTERM),
        (_WITH_A_WORKER, signal.SIGKILL),
    ],
)
def test_an_interrupted_run_leaves_no_process_and_no_folder(
    options: tuple[str, ...], number: signal.Signals, tmp_path: Path
) -> None:
    """By a signal to the first process alone. SIGKILL leaves it no time for
    fixtures, and all ends the same.
    """
    with started(
        _run_of(tmp_path, *options), cwd=tmp_path, stdout=subprocess.DEVNULL
    ) as run:
        until((tmp_path / "service").exists, lambda: "the test does not begin")
        service = int((tmp_path / "service").read_text())
        run.send_signal(number)
        run.wait(60)
        until(lambda: _has_ended(service), lambda: "the service goes on")
    assert (tmp_path / "finalized").exists() or number is signal.SIGKILL
    folder = Path((tmp_path / "folder").read_text())
    until(
        lambda: not folder.exists(),
        lambda: "the folder of the run is still there",
    )


def test_a_run_that_leaves_a_process_behind_fails_and_names_it(
    tmp_path: Path,
) -> None:
    done = ran(_run_of(tmp_path, stop="pass", wait="pass"), folder=tmp_path)
    assert done.returncode == 1
    assert "1 passed" in done.stdout
    assert "The tests left processes behind, which were killed:" in done.stderr
    assert "signal.SIG_IGN" in done.stderr
    assert _has_ended(int((tmp_path / "service").read_text()))
