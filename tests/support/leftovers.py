# SPDX-License-Identifier: Apache-2.0

"""What a run of the tests leaves behind, however it ends: nothing.

The first process of the run starts this module as a program, and holds the
other end of its standard input. Whatever ends that process, SIGKILL too,
closes the pipe: the program then kills each process that carries the mark of
the run in its environment, as all descendants do, and removes the run's
folder. It needs Linux (``/proc``) and imports nothing of the project.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import suppress
from pathlib import Path

MARK = "OS_PREFILTER_TEST_RUN"
"""The variable that all processes of a run have."""
FOLDER = "OS_PREFILTER_TEST_FOLDER"
"""The variable that names the folder of a run: open to services that run as
another user, unlike those of pytest.
"""
_END = b"end"
_SESSIONS = "sessions"
_GRACE = {True: 2.0, False: 12.0}
"""Seconds that processes get to end by themselves: after an orderly end, and
where workers have to notice it first.
"""


class Run:
    def __init__(self) -> None:
        mark, folder = (
            uuid.uuid4().hex,
            tempfile.mkdtemp(prefix="os-prefilter-"),
        )
        Path(folder).chmod(0o711)
        Path(folder, _SESSIONS).mkdir()
        # Of a run within a run, the one must not end what cleans up after the
        # other.
        self._process = subprocess.Popen(
            [sys.executable, "-I", __file__, mark, folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={
                name: value
                for name, value in os.environ.items()
                if name not in (MARK, FOLDER)
            },
            start_new_session=True,
        )
        os.environ[MARK], os.environ[FOLDER] = mark, folder
        # stevedore writes what it finds into the user's cache.
        os.environ["XDG_CACHE_HOME"] = str(Path(folder, "cache"))

    def children(self) -> list[int]:
        """Return the other processes that the main thread of this one has
        started.
        """
        path = Path(f"/proc/self/task/{os.getpid()}/children")
        return [
            int(each)
            for each in path.read_text(encoding="ascii").split()
            if int(each) != self._process.pid
        ]

    def end(self) -> list[str]:
        """End the run; return the command lines of the processes that had to
        be killed.
        """
        out, _ = self._process.communicate(_END)
        return out.decode(errors="replace").splitlines()


def note_session(number: int) -> Path:
    """Note a process that leads a session; return the file to remove once it
    has ended.

    Services that give themselves a title (setproctitle) overwrite their
    environment, and with it the mark.
    """
    path = Path(os.environ[FOLDER], _SESSIONS, str(number))
    path.touch()
    return path


def _left(mark: str, folder: str) -> dict[int, str]:
    """Return the processes with the mark of a run, or of a session that was
    noted: process id -> command line.
    """
    noted = {int(path.name) for path in Path(folder, _SESSIONS).glob("*")}
    needle = f"{MARK}={mark}".encode()
    found: dict[int, str] = {}
    for path in Path("/proc").glob("[0-9]*"):
        number = int(path.name)
        # It may end meanwhile, or belong to another user.
        with suppress(OSError):
            if os.getsid(number) in noted or needle in (
                path / "environ"
            ).read_bytes().split(b"\0"):
                # That of a zombie is empty.
                line = (
                    (path / "cmdline")
                    .read_bytes()
                    .replace(b"\0", b" ")
                    .decode(errors="replace")
                    .strip()
                )
                found |= {number: line} if line else {}
    return found


def main() -> None:
    mark, folder = sys.argv[1:]
    # Not to the end of the pipe: a process that was forked and goes on may
    # hold its other end.
    is_orderly = sys.stdin.buffer.read(len(_END)) == _END
    deadline = time.monotonic() + _GRACE[is_orderly]
    while (left := _left(mark, folder)) and time.monotonic() < deadline:
        time.sleep(0.1)
    lines = "".join(f"{each}\n" for each in left.values())
    while left:
        for number in left:
            with suppress(OSError):
                os.kill(number, signal.SIGKILL)
        time.sleep(0.1)
        left = _left(mark, folder)
    shutil.rmtree(folder, ignore_errors=True)
    # Where the run was killed, nothing reads it.
    with suppress(OSError):
        os.write(1, lines.encode(errors="replace"))


if __name__ == "__main__":
    main()
