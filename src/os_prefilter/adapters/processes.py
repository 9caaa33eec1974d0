"""Processes of this host, read from ``/proc`` (proc(5))."""

import os
import time
from pathlib import Path

PROC = Path("/proc")


def start_times(program: str) -> dict[int, float]:
    """Return the process ID and the start time, in seconds since the epoch, of each process that runs a program.

    :param program: the name of its file, also of a script that Python runs
    """
    booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    found = {}
    for folder in PROC.glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            # The name in parentheses may have spaces.
            ticks = int((folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[19])
        except (OSError, IndexError, ValueError):
            # It has ended meanwhile.
            continue
        if Path(words[0]).name.startswith("python"):
            words = [word for word in words[1:] if not word.startswith("-")]
        if words and Path(words[0]).name == program:
            found[int(folder.name)] = booted + ticks / os.sysconf("SC_CLK_TCK")
    return found
