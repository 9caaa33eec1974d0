# SPDX-License-Identifier: Apache-2.0

"""Share facts between the workers of a scheduler, and between hosts.

One process reads at a time, as far as the store shows. Whatever the store
lacks, or has wrong, a process reads itself: a store saves requests to
Placement, and decides nothing.
"""

import fcntl
import json
import os
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from hashlib import sha256
from math import isfinite
from random import uniform
from typing import Any, Protocol, runtime_checkable
from uuid import uuid4
from weakref import finalize

from os_prefilter.service.deployment_facts import (
    REPEAT_AFTER,
    FailedReading,
    Measured,
    pause_after,
)

TAKE_OVER = 60.0
"""Seconds after which another process reads: the first has not finished."""

CLOCK_SKEW = 600.0
"""Seconds that the clock of another host may be ahead.

An entry from further in the future is not used.
"""

# Of a reading's JSON. With 50,000 hosts it is 600 kB.
_MOST_BYTES = 64_000_000


@runtime_checkable
class SharedRead(Protocol):
    """Reads a fact that processes may share: its value as JSON, and back."""

    scope: str
    """What the value depends on; only readers with the same scope share it."""

    def __call__(self, context: Any, /) -> Any:
        """Return the value as it is now."""

    def to_json(self, value: Any) -> Any:
        """Return a value as JSON has it."""

    def from_json(self, document: Any) -> Any:
        """Return the value.

        :raises Exception: any, if it is no such value
        """


class Store(Protocol):
    """Holds one fact for several processes. Its methods raise nothing."""

    def get(self) -> bytes | None:
        """Return the last entry, or None; it may be damaged or foreign."""

    def put(self, entry: bytes) -> None:
        """Replace the entry, if that is possible."""

    def lease(self, place: int) -> AbstractContextManager[bool]:
        """Enter as the only reader (True), or not.

        An owner that dies loses the lease.

        :param place: 0; 1 where the reader has no result after
            :data:`TAKE_OVER`, and another one begins; and so on
        """


MakeStore = Callable[[str, str], Store]
"""``(name of the fact, scope of its reader) -> store``."""


class InheritedStore:
    """Store for this process and its children: an anonymous file in memory."""

    def __init__(self, *_what: str) -> None:
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


class SharedReading:
    """Reads a fact, or takes what another process has read within the pause.

    :param of: names the fact and the scope of its reader; an entry of another
        one is not used
    :param read: reads it, perhaps from another store
    :param check: raises an error for what is no value of the fact
    :param interval: seconds from one reading to the next, at least
    """

    def __init__(
        self,
        of: tuple[str, str],
        store: Store,
        read: Callable[[Any], Measured],
        check: Callable[[Any], object],
        interval: float,
    ) -> None:
        self._of = list(of)
        self._store = store
        self._read = read
        self._check = check
        self._interval = interval
        # The entry that was seen last: what it is called, when it was first
        # seen, and how old it was then.
        self._seen = ("", 0.0, 0.0)
        # Since when, and when last, this process has waited for another one
        # that reads.
        self._waiting = (0.0, float("-inf"))

    def __call__(self, context: Any) -> Measured:
        """Return the value as JSON.

        While another process reads, it is the value before, if there is one.
        """
        while True:
            found = self.latest()
            if found and self._is_younger(found, 1):
                break
            with self._store.lease(self._place()) as is_reader:
                if is_reader:
                    found = self.latest()
                    # Another process may have read it until now.
                    if not (found and self._is_younger(found, 1)):
                        found = self._read_for_all(context)
                    break
            if found and self._is_younger(found, 2):
                return found
            # Another process reads.
            time.sleep(uniform(0.05, 0.2))  # noqa: S311 - no secret
        self._waiting = (0.0, float("-inf"))
        return found

    def _is_younger(self, found: Measured, pauses: int) -> bool:
        return found.age < pauses * pause_after(found.seconds, self._interval)

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

    def share(self, measured: Measured) -> None:
        """Share a value that this process has read."""
        entry = {
            "id": uuid4().hex,
            "of": self._of,
            "at": time.time() - measured.age,
            **measured._asdict(),
        }
        self._store.put(zlib.compress(json.dumps(entry).encode(), 1))

    def _read_for_all(self, context: Any) -> Measured:
        self.latest()
        before = self._seen[0]
        measured = self._read(context)
        self.latest()
        # Not over what another process has read meanwhile, nor from one that
        # was paused.
        if self._seen[0] == before and measured.age < REPEAT_AFTER:
            self.share(measured)
        return measured

    def latest(self) -> Measured | None:
        """Return the entry in the store; None without a valid one."""
        try:
            data = self._store.get()
            if not data:
                return None
            unpacked = zlib.decompressobj()
            entry = json.loads(unpacked.decompress(data, _MOST_BYTES))
            # Before the end of the data, its checksum is missing.
            if not unpacked.eof or entry["of"] != self._of:
                return None
            name = str(entry["id"])
            age = time.time() - float(entry["at"])
            seconds = float(entry["seconds"])
            if not (isfinite(age) and age > -CLOCK_SKEW):
                return None
            if not (isfinite(seconds) and seconds >= 0):
                return None
            self._check(entry["value"])
        except Exception:  # noqa: BLE001 - it comes from elsewhere
            return None
        now = time.monotonic()
        if name != self._seen[0]:
            self._seen = (name, now, max(0.0, age))
        _, since, at_first = self._seen
        # The clock of the host that has read it may be behind or ahead; a
        # machine that sleeps stops one of ours.
        return Measured(
            entry["value"], seconds, max(age, at_first + now - since)
        )


class SharedFact:
    """Reads a fact through stores, the nearest first.

    :param name: of the fact
    :param interval: seconds from one reading to the next, at least
    """

    def __init__(
        self,
        name: str,
        read: SharedRead,
        interval: float,
        stores: Sequence[Store],
    ) -> None:
        self._reader = read
        self._levels: list[SharedReading] = []
        nearest: Callable[[Any], Measured] = self._read
        for store in reversed(stores):
            nearest = SharedReading(
                (name, read.scope), store, nearest, read.from_json, interval
            )
            self._levels.append(nearest)
        self._nearest = nearest
        # As JSON, and as it is: what was read again is the same object.
        self._latest: tuple[Any, Any] = (None, None)
        # How long the last reading took, and when it began.
        self._seconds = 0.0
        self._read_at = float("-inf")

    def __call__(self, context: Any = None) -> Measured:
        """Return the value and its age."""
        measured = self._nearest(context)
        self._seconds = measured.seconds
        self._read_at = time.monotonic() - measured.age
        document, value = self._latest
        if value is None or measured.value != document:
            value = self._reader.from_json(measured.value)
            self._latest = measured.value, value
        return measured._replace(value=value)

    def nearest(self) -> Any:
        """Return the value in the nearest store, however old, or None."""
        measured = self._levels[-1].latest() if self._levels else None
        return measured and self._reader.from_json(measured.value)

    def share(self, value: Any) -> None:
        """Share a value that this process has changed since the last reading.

        It keeps the age of that reading.
        """
        age = time.monotonic() - self._read_at
        if not isfinite(age):
            # Nothing was read yet.
            return
        document = self._reader.to_json(value)
        for level in self._levels:
            level.share(Measured(document, self._seconds, age))

    def _read(self, context: Any) -> Measured:
        begun = time.monotonic()
        begun_at = time.time()
        try:
            document = self._reader.to_json(self._reader(context))
        except Exception as error:
            raise FailedReading(error, time.monotonic() - begun) from error
        taken = time.monotonic() - begun
        # While a machine sleeps, only one of the clocks goes on.
        return Measured(document, taken, max(taken, time.time() - begun_at))


def scope_of(*parts: object) -> str:
    """Return a short text that identifies the parts."""
    return sha256(repr(parts).encode()).hexdigest()[:32]
