"""Schedulers whose rules are replaced all the while, and the operator who does so."""

import itertools
import os
import tempfile
import threading
from collections.abc import Callable, MutableSequence
from pathlib import Path
from typing import Any

from tests.faults.load_mix import Answers, answer_of, pipeline_on, version_text
from tests.support.rule_texts import settle

_BROKEN = (b"rules:\n- {name: a\n", b"rules: [{name: a, when: {}, require: [x]}]\n", b"\xff\xfe", b"", b"rules: 7\n")

# So many digits has the number of a request.
_MOST_NUMBERS = 10_000_000


class Operator:
    """Replaces a file of rules again and again, and now and then by one that is broken.

    Files are replaced atomically. Every second one looks old, so that a scheduler finds it by itself; of the others it
    must be told, as of a broken one.
    """

    def __init__(self, folder: Path, tell: Callable[[], None]) -> None:
        self.folder = folder
        self.tell = tell
        self.newest = 0
        self.broken = 0

    def publish(self, newest: Callable[[int], None] = lambda _version: None) -> int:
        """Replace the rules by the next version; return its number. ``newest`` gets it first."""
        self.newest += 1
        newest(self.newest)
        self._replace(version_text(self.newest).encode(), old=self.newest % 2 == 0)
        if self.newest % 2:
            self.tell()
        return self.newest

    def spoil(self) -> None:
        """Replace the rules by what is none."""
        self._replace(_BROKEN[self.broken % len(_BROKEN)], old=False)
        self.broken += 1
        self.tell()

    def _replace(self, content: bytes, *, old: bool) -> None:
        descriptor, name = tempfile.mkstemp(dir=self.folder)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        if old:
            settle(Path(name))
        Path(name).replace(self.folder / "rules.yaml")
        if old:
            settle(self.folder / "rules.yaml")


class Scheduler:
    """What the threads of one process share: a pipeline, and what is known of the versions of the rules.

    :param newest: the version that is about to be written: no decision can be of a later one
    :param note: gets the version that is in use when it changes
    """

    def __init__(
        self,
        answers: Answers,
        folder: Path,
        newest: Callable[[], int],
        note: Callable[[int], None] = lambda _seen: None,
    ) -> None:
        asked = itertools.count()

        def compute_version(_context: Any) -> int:
            # Now and then it cannot be asked for: the last known value stays.
            if next(asked) % 7 == 3:
                raise ConnectionError("a database is restarted")
            return 1000

        self.conf, self.pipeline = pipeline_on(folder, minimum_compute_version=compute_version)
        self.answers = answers
        self.newest = newest
        self.note = note
        self.seen = 0
        """The latest version that a decision was of."""
        self.problems: list[str] = []
        self.stopping = threading.Event()

    def reload(self) -> None:
        """Read the configuration again, as a service does on SIGHUP."""
        self.conf.mutate_config_files()

    def work(self, done: MutableSequence[int], index: int) -> None:
        """Answer one request after the other until told to stop; count them in ``done[index]``.

        Each answer must be one that the rules of a single version give, no older than what was seen before the request
        and no newer than what was written at its end.
        """
        for number in itertools.count(index * 7):
            if self.stopping.is_set() or self.problems:
                return
            try:
                self.answer(number % _MOST_NUMBERS)
            except BaseException as error:  # noqa: BLE001 - it is told where the run ends
                self.problems.append(f"{type(error).__name__}: {error}")
                return
            done[index] += 1

    def answer(self, number: int) -> None:
        """Answer one request, and check the answer."""
        kinds = self.answers.kinds
        lowest = self.seen
        answer = answer_of(self.pipeline, kinds[number % len(kinds)].request(number))
        version = self.answers.version_of(number, answer)
        if version is None:
            return
        assert lowest <= version <= self.newest(), f"version {version} after {lowest}, when {self.newest()} is written"
        if version > self.seen:
            self.seen = version
            self.note(version)
