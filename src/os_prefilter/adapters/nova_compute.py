# SPDX-License-Identifier: Apache-2.0

"""The configuration arguments of the nova-compute that runs on this host."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from os_prefilter.common.quoting import escape_line

_OPTIONS = ("--config-file", "--config-dir")
_PROGRAM = "nova-compute"


@dataclass(frozen=True)
class RunningCompute:
    """A process of nova-compute, and what it was started with."""

    pid: int
    arguments: tuple[str, ...]
    """--config-file and --config-dir with their paths, in order.

    Empty: it reads oslo.config's default files.
    """
    unknown: str = ""
    """Why its configuration cannot be read from here; empty: it can be."""


def running_computes(proc: str | Path = "/proc") -> list[RunningCompute]:
    """Return the processes of nova-compute, without their children.

    A process that ends meanwhile, or is hidden, is left out.
    """
    found: dict[int, RunningCompute] = {}
    parents: dict[int, int] = {}
    for folder in Path(proc).glob("[0-9]*"):
        try:
            words = _words(folder)
            arguments = _after_program(words)
            if arguments is None:
                continue
            pid = int(folder.name)
            parents[pid] = _parent(folder)
            found[pid] = _running(folder, pid, arguments)
        except (OSError, ValueError):
            continue
    # A helper that it has forked has its command line until it executes
    # another program.
    return [found[pid] for pid in sorted(found) if parents[pid] not in found]


def configuration_arguments(words: Sequence[str]) -> tuple[str, ...]:
    """Return --config-file and --config-dir of a command line, in order."""
    found: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "--":
            break
        option, equals, path = word.partition("=")
        if option in _OPTIONS:
            found += [option, path if equals else next(rest, "")]
    return tuple(found)


def _words(folder: Path) -> list[str]:
    line = os.fsdecode((folder / "cmdline").read_bytes())
    return line.rstrip("\0").split("\0")


def _after_program(words: Sequence[str]) -> Sequence[str] | None:
    """Return what follows nova-compute; None if this is another program.

    A script's interpreter and its options precede it.
    """
    for index, word in enumerate(words):
        if os.path.basename(word) == _PROGRAM:  # noqa: PTH119 - a bare word
            return words[index + 1 :]
        is_interpreter = index == 0 and "python" in word
        if not is_interpreter and not word.startswith("-"):
            return None
    return None


def _parent(folder: Path) -> int:
    for line in (folder / "status").read_text("utf-8", "replace").splitlines():
        if line.startswith("PPid:"):
            return int(line.split()[1])
    return 0


def _running(folder: Path, pid: int, words: Sequence[str]) -> RunningCompute:
    arguments = configuration_arguments(words)
    ours = _root_mount(folder.parent / "self")
    if _root_mount(folder) != ours:
        reason = "it runs in a container, whose files are not visible here"
        return RunningCompute(pid, arguments, reason)
    absolute = list(arguments)
    for index in range(1, len(arguments), 2):
        if os.path.isabs(arguments[index]):  # noqa: PTH117 - text of another
            continue
        try:
            # Needs the rights of its user.
            cwd = os.readlink(folder / "cwd")  # noqa: PTH115
        except OSError:
            reason = (
                f"{arguments[index - 1]} has a relative path, and its working"
                " directory cannot be read"
            )
            return RunningCompute(pid, arguments, reason)
        absolute[index] = os.path.join(cwd, arguments[index])  # noqa: PTH118
    return RunningCompute(pid, tuple(absolute))


def _root_mount(folder: Path) -> tuple[str, str]:
    """Return the device and the root of what is mounted at ``/``.

    Any user may read it, as opposed to ``root`` and ``ns/mnt``. A service
    with a mount namespace of its own has the same one as its host.
    """
    found = ("", "")
    for line in _mounts(folder):
        _, _, device, root, point, *_ = line
        if point == "/":
            found = device, root
    return found


def _mounts(folder: Path) -> Iterator[list[str]]:
    text = (folder / "mountinfo").read_text("utf-8", "surrogateescape")
    for line in text.splitlines():
        yield line.split()


def arguments_to_read(
    given: Sequence[str], running: Sequence[RunningCompute]
) -> tuple[tuple[str, ...], list[str]]:
    """Return the configuration arguments to read, and warnings.

    Arguments that are given win. Without them it is what the running
    nova-compute was started with, if its files can be read from here.

    :param given: ``--config-file`` and ``--config-dir`` of our command line
    """
    warnings = [
        f"nova-compute (process {each.pid}): {each.unknown}. What it reads is"
        " not known, and was not compared."
        for each in running
        if each.unknown
    ]
    readable = [each for each in running if not each.unknown]
    if not given and len({each.arguments for each in readable}) == 1:
        return readable[0].arguments, warnings
    ours = _describe(given)
    differing = [each for each in readable if each.arguments != tuple(given)]
    warnings += [
        f"nova-compute (process {each.pid}) was started with"
        f" {_describe(each.arguments)}, and this command reads {ours}: the"
        " report may differ from what guests get. Give the same options."
        for each in differing
    ]
    return tuple(given), warnings


def _describe(arguments: Sequence[str]) -> str:
    if not arguments:
        return "its default files"
    return escape_line(" ".join(arguments))
