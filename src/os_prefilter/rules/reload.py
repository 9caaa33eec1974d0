# SPDX-License-Identifier: Apache-2.0

"""The rules of a running service.

Read at start, and reloaded when files change or on SIGHUP.

A change is used as a whole or not at all: while files cannot be read, or
Placement cannot create their traits, the previous rules stay in use and one
log line says so.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from os_prefilter.common.errors import DocumentError
from os_prefilter.common.logs import get_logger
from os_prefilter.common.quoting import describe_error
from os_prefilter.common.trait_names import CUSTOM_PREFIX
from os_prefilter.rules.model import RuleSet
from os_prefilter.rules.reader import folder_of, read_rules, rule_files

LOG = get_logger(__name__)

SETTLED = 2.0
"""Seconds for which files must be unchanged before a reload.

An editor may still be writing. SIGHUP reloads at once.
"""

_Stat = tuple[str, int, int, int, int]
"""Path, inode, size, and when content and permissions changed.

The times are in nanoseconds.
"""


class RuleFolders:
    """The rules in some directories, as the fact ``rules``.

    ``Fact("rules", RuleFolders(...), interval)`` reads them.

    :param folders: the directories
    :param ensure_traits: creates the traits that rules name before the rules
        are used, or raises an error; None if that is done elsewhere
    :raises DocumentError: if they cannot be read
    """

    def __init__(
        self,
        folders: Sequence[str],
        ensure_traits: Callable[[Iterable[str]], object] | None = None,
    ) -> None:
        self._folders = tuple(folders)
        self._ensure_traits = ensure_traits
        self._reading = threading.Lock()
        self._problems: dict[str, str] = {}
        self._stats = self._stat_all()
        self.latest = self._read()
        """The rules that were read last, without mistakes."""
        self._in_use: RuleSet | None = None
        self._ensured: frozenset[str] = frozenset()

    def __call__(self, _context: Any = None) -> RuleSet:
        """Return the rules to use, after a check of the files.

        New rules are used once Placement has their traits. The first rules are
        used at once: without them, requests that they apply to could go to any
        host; with them, Placement refuses these requests until it has the
        traits.
        """
        self._reload(forced=False)
        latest = self.latest
        if self._has_traits(latest) or self._in_use is None:
            self._in_use = latest
        return self._in_use

    def read_again(self) -> None:
        """Reload the files now, changed or not.

        Placement is queried at the next use, not here.

        A service may call this in the process that starts its workers, which
        must not inherit connections.
        """
        self._ensured = frozenset()
        self._reload(forced=True)

    def _has_traits(self, rules: RuleSet) -> bool:
        if not self._ensure_traits:
            return True
        missing = rules.traits - self._ensured
        custom = {
            trait for trait in missing if trait.startswith(CUSTOM_PREFIX)
        }
        try:
            # Separately: a standard trait that this Placement is too old for
            # must not keep it from creating the others.
            for traits in filter(None, (custom, missing - custom)):
                self._ensure_traits(sorted(traits))
                self._ensured |= traits
        except Exception as error:  # noqa: BLE001 - of any client; the scheduler goes on without the new rules
            problem = (
                "Placement does not have the traits of the new request rules"
                f" yet. {describe_error(error)}"
            )
            self._log_once("traits", problem)
            return False
        self._log_once("traits", "")
        return True

    def _reload(self, *, forced: bool) -> None:
        with self._reading:
            try:
                stats = self._stat_all()
                # Half a YAML file may be a whole document with fewer rules.
                if not forced and (
                    stats == self._stats or not _are_settled(stats)
                ):
                    return
                latest = self._read()
                if not forced and self._stat_all() != stats:
                    return
            except DocumentError as error:
                # A directory that returns, or a file that can be read again,
                # may look as before; mistakes stay.
                self._stats = stats if error.line else []
                self._log_once(
                    "files",
                    "Failed to reload the request rules; keeping the previous"
                    f" rules. {error}",
                )
                return
            before, self._stats, self.latest = self.latest, stats, latest
            self._log_once("files", "")
            if latest != before:
                LOG.info("Reloaded the request rules: %r.", latest)

    def _stat_all(self) -> list[_Stat]:
        """Return the status of the directories and files.

        :raises DocumentError: if a directory is missing, or cannot be read
        """
        return [
            _stat(path)
            for folder in map(folder_of, self._folders)
            for path in (Path(folder), *rule_files(folder))
        ]

    def _read(self) -> RuleSet:
        # Others run meanwhile: a thread of eventlet's gives way only here.
        read = read_rules(self._folders, lambda *_: time.sleep(0))
        number = len(read.problems)
        advice = (
            f" There are {number} problems in all: 'os-prefilter rules check"
            f" {' '.join(self._folders)}' shows them."
        )
        more = advice if number > 1 else ""
        if read.errors:
            # What cannot be read, before mistakes in what can.
            first = min(read.errors, key=lambda each: bool(each.line))
            raise DocumentError(first.file, first.text + more, first.line)
        for warning in read.warnings[:1]:
            LOG.warning("Request rules: %s%s", warning, more)
        return read.rules

    def _log_once(self, about: str, problem: str) -> None:
        """Log a problem once, and once that it is over."""
        before, self._problems[about] = self._problems.get(about, ""), problem
        if problem and problem != before:
            LOG.error("%s", problem)
        elif before and not problem:
            LOG.info(
                "The problem with the %s of the request rules is over.", about
            )


def _stat(path: Path) -> _Stat:
    try:
        found = path.stat()
    except OSError as error:
        raise DocumentError(
            path, f"its status cannot be read: {error.strerror or error}."
        ) from error
    return (
        str(path),
        found.st_ino,
        found.st_size,
        found.st_mtime_ns,
        found.st_ctime_ns,
    )


def _are_settled(stats: Iterable[_Stat]) -> bool:
    # A time in the future says nothing about when the file was written.
    now = time.time()
    return not any(
        0 <= now - modified / 1e9 < SETTLED for _, _, _, modified, _ in stats
    )
