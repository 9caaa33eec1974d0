# SPDX-License-Identifier: Apache-2.0

"""Stores in which the processes of schedulers share what they read.

One process reads at a time, as far as the store shows. Whatever the store
lacks, or has wrong, a process reads itself: a store saves requests to
Placement, and decides nothing.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from hashlib import sha256
from math import inf, isfinite
from random import uniform
from typing import Any, NamedTuple
from uuid import uuid4
from weakref import finalize

TAKE_OVER = 60.0
"""Seconds after which another process reads: the first has not finished."""

REPEAT_AFTER = 600.0
"""Seconds after which a reading without an end is repeated."""

CLOCK_SKEW = 600.0
"""Seconds that the clock of another host may be ahead.

An entry from further in the future is not used.
"""

# A reading takes at most a twentieth of the time of the thread that waits for
# it, and of what Placement serves to it.
_PAUSE = 20
_LONGEST_PAUSE = 1800.0
# Of a reading's JSON. With 50,000 hosts it is 600 kB.
_MOST_BYTES = 64_000_000


class Reading(NamedTuple):
    """What this process, or another one, has read."""

    value: Any
    seconds: float
    """How long it took to read."""
    age: float
    """The seconds since the reading of it began."""


def pause_after(seconds: float, interval: float) -> float:
    """Return the seconds from the beginning of a reading to the next one.

    :param seconds: how long the reading took
    """
    return min(max(interval, _PAUSE * seconds), max(interval, _LONGEST_PAUSE))


class Store:
    """One JSON document that processes share. Its methods raise nothing.

    Where it is, a subclass says.

    :param whose: identifies the document; an entry of another one is not used
    """

    def __init__(self, whose: str) -> None:
        self._whose = whose
        # The entry that was seen last: what it is called, when it was first
        # seen, and how old it was then.
        self._seen = ("", 0.0, 0.0)
        # Since when, and when last, this process has waited for another one
        # that reads.
        self._waiting = (0.0, -inf)

    def get(self) -> bytes | None:
        """Return the last entry, or None; it may be damaged or foreign."""
        raise NotImplementedError

    def put(self, entry: bytes) -> None:
        """Replace the entry, if that is possible."""
        raise NotImplementedError

    def lease(self, place: int) -> AbstractContextManager[bool]:
        """Enter as the only reader (True), or not.

        An owner that dies loses the lease.

        :param place: 0; 1 where the reader has no result after
            :data:`TAKE_OVER`, and another one begins; and so on
        """
        raise NotImplementedError

    def read_through(
        self,
        read: Callable[[], Reading],
        check: Callable[[Any], object],
        interval: float,
    ) -> Reading:
        """Return what another process has read within the pause, or read it.

        While another process reads, it is the document before, if there is
        one.

        :param read: reads it, perhaps from another store; what it raises is
            raised
        :param check: raises an error for what is no such document
        :param interval: seconds from one reading to the next, at least
        """
        while True:
            found = self.latest(check)
            if found and _is_younger(found, interval):
                break
            with self.lease(self._place()) as is_reader:
                if is_reader:
                    found = self.latest(check)
                    # Another process may have read it until now.
                    if not (found and _is_younger(found, interval)):
                        found = self._read_for_all(read, check)
                    break
            if found and _is_younger(found, interval, 2):
                return found
            # Another process reads.
            time.sleep(uniform(0.05, 0.2))  # noqa: S311 - no secret
        self._waiting = (0.0, -inf)
        return found

    def _place(self) -> int:
        """Return the index of the lease to try.

        It is one more for each :data:`TAKE_OVER` seconds waited: the process
        with an earlier lease may be stopped.
        """
        now = time.monotonic()
        since, last = self._waiting
        # A process without a request for a while has not waited.
        since = now if now - last > TAKE_OVER / 6 else since
        self._waiting = since, now
        return int((now - since) / TAKE_OVER)

    def _read_for_all(
        self, read: Callable[[], Reading], check: Callable[[Any], object]
    ) -> Reading:
        before = self._seen[0]
        reading = read()
        self.latest(check)
        # Not over what another process has read meanwhile, nor from one that
        # was paused.
        if self._seen[0] == before and reading.age < REPEAT_AFTER:
            entry = {
                "id": uuid4().hex,
                "of": self._whose,
                "at": time.time() - reading.age,
                **reading._asdict(),
            }
            self.put(zlib.compress(json.dumps(entry).encode(), 1))
        return reading

    def latest(self, check: Callable[[Any], object]) -> Reading | None:
        """Return the entry in the store; None without a valid one.

        :param check: as for :meth:`read_through`
        """
        try:
            data = self.get()
            if not data:
                return None
            unpacked = zlib.decompressobj()
            entry = json.loads(unpacked.decompress(data, _MOST_BYTES))
            # Before the end of the data, its checksum is missing.
            if not unpacked.eof or entry["of"] != self._whose:
                return None
            name = str(entry["id"])
            age = time.time() - float(entry["at"])
            seconds = float(entry["seconds"])
            if not (isfinite(age) and age > -CLOCK_SKEW):
                return None
            if not (isfinite(seconds) and seconds >= 0):
                return None
            check(entry["value"])
        except Exception:  # noqa: BLE001 - it comes from elsewhere
            return None
        now = time.monotonic()
        if name != self._seen[0]:
            self._seen = (name, now, max(0.0, age))
        _, since, at_first = self._seen
        # The clock of the host that has read it may be behind or ahead; a
        # machine that sleeps stops one of ours.
        return Reading(
            entry["value"], seconds, max(age, at_first + now - since)
        )


MakeStore = Callable[[str], Store]
"""``(whose) -> store``: what identifies the document is the service's."""


def _is_younger(found: Reading, interval: float, pauses: int = 1) -> bool:
    return found.age < pauses * pause_after(found.seconds, interval)


class InheritedStore(Store):
    """Store for this process and its children: an anonymous file in memory."""

    def __init__(self, whose: str) -> None:
        super().__init__(whose)
        # Without a name, nothing is left of it when the last process ends.
        self._file = -1
        with suppress(OSError):
            self._file = os.memfd_create("os-prefilter")
            finalize(self, os.close, self._file)

    def get(self) -> bytes | None:
        """Return the last entry, or None.

        While another process writes, it is half an entry, which zlib's
        checksum shows.
        """
        return os.pread(self._file, os.fstat(self._file).st_size, 0)

    def put(self, entry: bytes) -> None:
        """Replace the entry, without a lock.

        A process that is stopped here would keep all others waiting.
        """
        with suppress(OSError):
            os.pwrite(self._file, entry, 0)
            os.ftruncate(self._file, len(entry))

    @contextmanager
    def lease(self, place: int) -> Iterator[bool]:
        """Enter as the only reader (True), or not.

        The kernel ends the lock with the process.
        """
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
        except (BlockingIOError, PermissionError):
            yield False
            return
        except (OSError, ValueError):
            # There is no such file.
            yield True
            return
        try:
            yield True
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, place)


def scope_of(*parts: object) -> str:
    """Return a short text that identifies the parts."""
    return sha256(repr(parts).encode()).hexdigest()[:32]
