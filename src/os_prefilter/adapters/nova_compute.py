# SPDX-License-Identifier: Apache-2.0

"""The configuration arguments of the nova-compute that runs on this host."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from pwd import getpwnam

from oslo_config import cfg

from os_prefilter.adapters.nova_conf import (
    COMPUTE,
    ConfigurationDenied,
    paths_of,
    read_conf,
)
from os_prefilter.common.quoting import escape_line, join_names

PROC = Path("/proc")
_OPTIONS = ("--config-file", "--config-dir")
# An agent asks for the release so.
_ENDS_AT_ONCE = {"--version", "--help", "-h"}


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

    @property
    def name(self) -> str:
        """The process, for messages."""
        return f"nova-compute (process {self.pid})"


@dataclass(frozen=True)
class _Found:
    """The configuration arguments to read."""

    arguments: tuple[str, ...]
    processes: tuple[int, ...]
    unknown: str = ""
    warnings: Sequence[str] = ()


class NovaConfiguration:
    """Nova's configuration on a host, as its nova-compute reads it.

    :param given: ``--config-file`` and ``--config-dir`` with their paths;
        without them it is what the running nova-compute was started with, and
        without one oslo.config's default files
    :param only_given: read no others, those of this machine
    :raises DocumentError, ConfigurationError: as :meth:`read`
    """

    def __init__(
        self, given: Sequence[str] = (), *, only_given: bool = False
    ) -> None:
        self._given = tuple(given)
        self._only_given = only_given
        self._found: _Found | None = None
        self._was_read = False
        self.conf = cfg.ConfigOpts()
        """What was read; empty without files."""
        self.conf([], default_config_files=[], default_config_dirs=[])
        self.unknown = ""
        """Why it is not known what nova-compute reads; empty: it is known."""
        self.warnings: Sequence[str] = ()
        """Where the given arguments differ from those of nova-compute."""
        self.read()

    def has_changed(self) -> bool:
        """Return whether nova-compute was started since its files were read.

        One that has ended, as in a restart, changes nothing yet.
        """
        return self._look() != self._found

    def read(self) -> None:
        """Look for nova-compute again, and read its files.

        An error leaves what was read before.

        :raises DocumentError, ConfigurationError: if a file cannot be read
        """
        found = self._look()
        unknown = found.unknown
        is_wanted = self._given or not self._only_given
        if is_wanted and not (unknown and self._was_read):
            try:
                self.conf = read_conf(found.arguments)
                self._was_read = True
            except ConfigurationDenied as error:
                if self._given:
                    raise
                unknown = str(error).rstrip(".")
        # After an error it stays, so that they are read in the next round.
        self._found = found
        self.unknown = unknown
        self.warnings = found.warnings

    def _look(self) -> _Found:
        running = [] if self._only_given else running_computes()
        if running or self._found is None:
            return _find(self._given, running)
        return self._found


def running_computes() -> list[RunningCompute]:
    """Return the processes of nova-compute, without their children.

    A process that ends meanwhile, or is hidden, is left out; so is one of
    another user, who could have any file read.
    """
    found: dict[int, RunningCompute] = {}
    parents: dict[int, int] = {}
    for folder in PROC.glob("[0-9]*"):
        try:
            line = os.fsdecode((folder / "cmdline").read_bytes())
            arguments = _after_program(line.rstrip("\0").split("\0"))
            if arguments is None or not _ENDS_AT_ONCE.isdisjoint(arguments):
                continue
            status = dict(
                line.split(":", 1)
                for line in (folder / "status")
                .read_text("utf-8", "replace")
                .splitlines()
            )
            # The real one: that of a program with the set-user-ID bit is the
            # user who started it.
            user = int(status["Uid"].split()[0])
            running = _running(folder, user, arguments)
            if running is not None:
                found[running.pid] = running
                parents[running.pid] = int(status["PPid"])
        except (KeyError, OSError, ValueError):
            continue
    # A helper that it has forked has its command line until it executes
    # another program.
    return [found[pid] for pid in sorted(found) if parents[pid] not in found]


def _trusted_users() -> set[int]:
    found = {0, os.getuid()}
    with suppress(KeyError):
        found.add(getpwnam("nova").pw_uid)
    return found


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


def _after_program(words: Sequence[str]) -> Sequence[str] | None:
    """Return what follows nova-compute; None if this is another program.

    A script's interpreter and its options precede it.
    """
    for index, word in enumerate(words):
        if os.path.basename(word) == COMPUTE:  # noqa: PTH119 - a bare word
            return words[index + 1 :]
        is_interpreter = index == 0 and "python" in word
        if not is_interpreter and not word.startswith("-"):
            return None
    return None


def _running(
    folder: Path, user: int, words: Sequence[str]
) -> RunningCompute | None:
    arguments = configuration_arguments(words)
    unknown = ""
    if _root_mount(folder) != _root_mount(PROC / "self"):
        unknown = "it runs in a container, whose files are not visible here"
    elif user not in _trusted_users():
        return None
    elif not all(map(os.path.isabs, arguments[1::2])):
        # Its working directory is open to its own user alone.
        unknown = "its files have relative paths"
    return RunningCompute(int(folder.name), arguments, unknown)


def _root_mount(folder: Path) -> tuple[str, str]:
    """Return the device and the root of what is mounted at ``/``.

    Any user may read it, as opposed to ``root`` and ``ns/mnt``. A service
    with a mount namespace of its own has the same one as its host.
    """
    found = ("", "")
    text = (folder / "mountinfo").read_text("utf-8", "surrogateescape")
    for line in text.splitlines():
        _, _, device, root, point, *_ = line.split()
        if point == "/":
            found = device, root
    return found


def _find(given: Sequence[str], running: Sequence[RunningCompute]) -> _Found:
    """Return the given arguments, else those of the running nova-compute."""
    processes = tuple(each.pid for each in running)
    hidden = [each for each in running if each.unknown]
    # Other arguments may lead to the same files.
    reads = {
        each.name: _paths(each.arguments)
        for each in running
        if not each.unknown
    }
    if given:
        ours = _paths(given)
        warnings = [
            f"{each.name}: {each.unknown}. What it reads is not known, and was"
            " not compared with the given options."
            for each in hidden
        ]
        warnings += [
            f"{name} was started to read {paths}, and the given options name"
            f" {ours}: the report may differ from what guests get. Leave them"
            " out, or give those of nova-compute."
            for name, paths in reads.items()
            if paths != ours
        ]
        return _Found(tuple(given), processes, warnings=warnings)
    if hidden:
        unknown = f"{hidden[0].name}: {hidden[0].unknown}"
        return _Found((), processes, unknown)
    if len(set(reads.values())) > 1:
        unknown = f"{join_names(reads)} read different files"
        return _Found((), processes, unknown)
    return _Found(running[0].arguments if running else (), processes)


def _paths(arguments: Sequence[str]) -> str:
    absolute = map(os.path.abspath, paths_of(arguments))
    return escape_line(", ".join(absolute)) or "no file"
