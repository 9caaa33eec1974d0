# SPDX-License-Identifier: Apache-2.0

"""A tree like /proc, with processes of nova-compute."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

ON_HOST = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
IN_CONTAINER = "90 80 0:55 / / rw - overlay overlay rw\n"


def make_proc(proc: Path) -> Path:
    """Make the tree, with this process on the host."""
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "mountinfo").write_text(ON_HOST)
    return proc


def start(
    proc: Path,
    pid: int,
    *words: str,
    parent: int = 1,
    mounts: str = ON_HOST,
    user: int | None = None,
) -> None:
    """Add a process with a command line."""
    folder = proc / str(pid)
    folder.mkdir()
    line = "".join(f"{word}\0" for word in words)
    (folder / "cmdline").write_text(line)
    user = os.getuid() if user is None else user
    (folder / "status").write_text(
        f"Name:\ta: b\nPPid:\t{parent}\nUid:\t{user}\t0\t0\t0\n"
    )
    (folder / "mountinfo").write_text(mounts)


def end(proc: Path, pid: int) -> None:
    """Remove a process."""
    shutil.rmtree(proc / str(pid))
