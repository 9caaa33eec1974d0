"""The rules of a running service: read at its start, and again when files change or its configuration is read again.

What is new is used as a whole or not at all. Rules that cannot be read, and traits that Placement does not get, leave
the rules of before in use; one log line says so.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from oslo_log import log as logging

from os_prefilter.common.quoting import describe_error, join_names
from os_prefilter.errors import DocumentError
from os_prefilter.rules.model import RuleSet
from os_prefilter.rules.reader import RulesRead, read_rules, rule_files
from os_prefilter.vocabulary.model import CUSTOM_PREFIX

LOG = logging.getLogger(__name__)

EnsureTraits = Callable[[Iterable[str]], object]
"""Creates those of the traits that Placement does not have; raises an error if it cannot have them all."""

SETTLED = 2.0
"""Seconds for which files must be left alone before they are read without being told to: somebody may be writing."""

_MOST_WARNINGS = 10
_MOST_NAMES = 10


class _Seen(NamedTuple):
    """How a directory or a file looked."""

    path: str
    inode: int
    size: int
    modified: int
    changed: int
    """Of permissions as well."""


class RuleFolders:
    """The rules in some directories, as the fact ``rules``: for ``Fact("rules", RuleFolders(...), interval)``.

    :param folders: the directories
    :param ensure_traits: sees to it that Placement has the traits that rules name, before they are used; None where
        somebody else does
    :raises DocumentError: if they cannot be read
    """

    def __init__(self, folders: Sequence[str], ensure_traits: EnsureTraits | None = None) -> None:
        self._folders = tuple(folders)
        self._ensure_traits = ensure_traits
        self._reading = threading.Lock()
        self._told: dict[str, str] = {}
        self._state = self._look()
        self._latest = self._read()
        self._failed: tuple[_Seen, ...] | None = None
        self._in_use: RuleSet | None = None
        self._ensured: frozenset[str] = frozenset()

    @property
    def latest(self) -> RuleSet:
        """The rules that were read last, without mistakes."""
        return self._latest

    def __call__(self, _context: Any = None) -> RuleSet:
        """Return the rules to use, after a look at the files.

        New ones are used once Placement has their traits. At the start there are none of before, so that they are used
        in any case: Placement refuses the requests that they apply to until it has the traits, and no others.
        """
        self._look_again(told_to=False)
        latest = self._latest
        if self._has_traits(latest) or self._in_use is None:
            self._in_use = latest
        return self._in_use

    def read_again(self) -> None:
        """Read the files now, whether they look changed or not. Placement is asked at the next use, not here.

        A service may call this in the process that starts its workers, which must not inherit connections.
        """
        self._ensured = frozenset()
        self._look_again(told_to=True)

    def _has_traits(self, rules: RuleSet) -> bool:
        missing = rules.traits - self._ensured
        if not missing or not self._ensure_traits:
            return True
        custom = {trait for trait in missing if trait.startswith(CUSTOM_PREFIX)}
        try:
            # Apart: a standard trait that this Placement is too old for is no reason not to create the others.
            for traits in filter(None, (custom, missing - custom)):
                self._ensure_traits(sorted(traits))
                self._ensured |= traits
        except Exception as error:  # noqa: BLE001 - of somebody else's client; the scheduler goes on without it
            self._tell(
                "traits", f"Placement does not have the traits of new request rules yet. {describe_error(error)}"
            )
            return False
        self._tell("traits", "")
        return True

    def _look_again(self, *, told_to: bool) -> None:
        state: tuple[_Seen, ...] | None = None
        with self._reading:
            try:
                state = self._look()
                unchanged = state in (self._state, self._failed) or not _are_settled(state)
                if unchanged and not told_to:
                    return
                latest = self._read()
                if self._look() != state and not told_to:
                    # Somebody is writing: next time.
                    return
            except DocumentError as error:
                # A directory that comes back may look as before, so it is read then; files that stay broken are not.
                self._state, self._failed = (), state
                self._tell("files", f"The request rules were not read again, and those of before stay in use. {error}")
                return
            before, self._state, self._latest = self._latest, state, latest
            self._failed = None
            self._tell("files", "")
            if latest != before:
                LOG.info("Request rules were read again: %s.", _changes(before, latest))

    def _look(self) -> tuple[_Seen, ...]:
        """Return how the directories and files look.

        :raises DocumentError: if a directory is not there, or cannot be read
        """
        paths = [path for folder in self._folders for path in (Path(folder), *rule_files(folder))]
        return tuple(map(_seen, paths))

    def _read(self) -> RuleSet:
        read = read_rules(self._folders)
        if read.errors:
            raise self._mistakes(read)
        for warning in read.warnings[:_MOST_WARNINGS]:
            LOG.warning("Request rules: %s", warning)
        if read.warnings[_MOST_WARNINGS:]:
            LOG.warning("Request rules: %d warnings more. %s", len(read.warnings) - _MOST_WARNINGS, self._advice)
        return read.rules

    def _mistakes(self, read: RulesRead) -> DocumentError:
        first, *others = read.errors
        place = f"{first.file}:{first.line}" if first.line else first.file
        more = f" There are {len(others)} mistakes more. {self._advice}" if others else ""
        return DocumentError(place, first.text + more)

    @property
    def _advice(self) -> str:
        return f"'os-prefilter rules check {' '.join(self._folders)}' shows all."

    def _tell(self, about: str, text: str) -> None:
        """Log a problem once, and once that it is over."""
        before, self._told[about] = self._told.get(about, ""), text
        if text and text != before:
            LOG.error("%s", text)
        elif before and not text:
            LOG.info("The %s of the request rules are as they should be again.", about)


def _changes(before: RuleSet, after: RuleSet) -> str:
    old, new = ({rule.name: rule for rule in rules.rules} for rules in (before, after))
    changed = [name for name in new.keys() & old.keys() if new[name] != old[name]]
    return (
        f"{len(new)} in all; new: {_some(new.keys() - old.keys())}; changed: {_some(changed)}; "
        f"gone: {_some(old.keys() - new.keys())}"
    )


def _some(names: Collection[str]) -> str:
    more = len(names) - _MOST_NAMES
    return join_names(sorted(names)[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _seen(path: Path) -> _Seen:
    try:
        found = path.stat()
    except OSError as error:
        raise DocumentError(path, f"it cannot be looked at: {error.strerror or error}.") from error
    return _Seen(str(path), found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _are_settled(state: Iterable[_Seen]) -> bool:
    # A time to come is no time at which somebody wrote.
    now = time.time()
    return not any(0 <= now - each.modified / 1e9 < SETTLED for each in state)
