"""Processes of this host, read from ``/proc`` (proc(5))."""

import os
import time
from itertools import dropwhile
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")


class Process(NamedTuple):
    """A process that runs a program."""

    started: float
    """In seconds since the epoch."""
    arguments: tuple[str, ...]
    folder: Path
    """The working directory, of which its arguments may be relative."""


def processes_of(program: str) -> dict[int, Process]:
    """Return each process that runs a program, by its ID.

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
        words = [word for word in words if word]
        if words and Path(words[0]).name.startswith("python"):
            words = list(dropwhile(lambda word: word.startswith("-"), words[1:]))
        if words and Path(words[0]).name == program:
            started = booted + ticks / os.sysconf("SC_CLK_TCK")
            found[int(folder.name)] = Process(started, tuple(words[1:]), Path(os.path.realpath(folder / "cwd")))
    return found
