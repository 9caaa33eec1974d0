# SPDX-License-Identifier: Apache-2.0

"""Share facts between hosts in the cloud's cache, of oslo.cache or dogpile."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import TimeoutError as NotDoneError
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from typing import Any
from uuid import uuid4

from os_prefilter.common.logs import get_logger
from os_prefilter.common.threads import start_thread
from os_prefilter.service import shared
from os_prefilter.service.shared import Store, scope_of

LOG = get_logger(__name__)

# memcached takes no more by default.
_MOST_BYTES = 1_000_000
# Seconds. A cache that takes longer for one value, or fails, is left alone for
# a while.
_SLOW = 0.5
_LEFT_ALONE = 60.0
# Two processes that want to read at the same time have both written their
# names after that, and see which one stays.
_SETTLED = 0.2


class CacheStore(Store):
    """Store in a cache, with the process that reads.

    :param region: what has ``get(key)`` and ``set(key, value)``: a region of
        oslo.cache
    :param cloud: what identifies this cloud among others that use the same
        cache: addresses, names of regions
    :param whose: as for :class:`os_prefilter.service.shared.Store`
    """

    def __init__(self, region: Any, cloud: object, whose: str) -> None:
        key = scope_of(version("os-prefilter"), cloud, whose)
        super().__init__(key)
        self._region = region
        self._key = f"os_prefilter:{key}"
        self._reader_key = f"{self._key}:reader"
        # The reader that was seen, and since when.
        self._reader: tuple[bytes | None, float] = (None, 0.0)
        self._left_alone_until = float("-inf")
        self._has_failed = False

    def get(self) -> bytes | None:
        """Return the last entry, or None."""
        return self._get(self._key)

    def put(self, entry: bytes) -> None:
        """Replace the entry, if the cache takes it."""
        if len(entry) < _MOST_BYTES:
            self._set(self._key, entry)

    @contextmanager
    def lease(self, _place: int) -> Iterator[bool]:
        """Enter as the only reader, or not.

        The name of a reader that stays longer than any reading is that of a
        process that died.

        Any cache can do that: it takes no lock, and a reading too many does no
        harm.
        """
        reader = self._get(self._reader_key)
        if reader != self._reader[0]:
            self._reader = reader, time.monotonic()
        if reader and time.monotonic() - self._reader[1] < shared.TAKE_OVER:
            yield False
            return
        own = uuid4().bytes
        if self._set(self._reader_key, own):
            time.sleep(_SETTLED)
            if self._get(self._reader_key) not in (own, None):
                yield False
                return
        try:
            yield True
        finally:
            if self._get(self._reader_key) == own:
                self._set(self._reader_key, b"")

    def _get(self, key: str) -> bytes | None:
        """Return the bytes of a key; None without a response as well."""
        value = self._call(self._region.get, key, writes=False)
        return value if isinstance(value, bytes) else None

    def _set(self, key: str, value: bytes) -> bool:
        """Set the value of a key; return whether the cache has responded."""
        self._call(self._region.set, key, value, writes=True)
        return not self._has_failed

    def _call(self, method: Any, *arguments: object, writes: bool) -> Any:
        if time.monotonic() < self._left_alone_until:
            return None
        try:
            # Not every backend gives up a cache that hangs.
            call = start_thread(partial(method, *arguments), "cache")
            error = call.exception(_SLOW)
            # What cannot be read may be replaced: only a value that cannot be
            # set shows that the cache fails.
            problem = type(error).__name__ if error and writes else ""
        except (NotDoneError, RuntimeError) as slow:
            error = slow
            problem = f"it took more than {_SLOW:g} seconds"
        if problem:
            self._left_alone_until = time.monotonic() + _LEFT_ALONE
            if not self._has_failed:
                LOG.warning(
                    "The cache in which schedulers share what they read fails,"
                    " so each reads itself: %s",
                    problem,
                )
            self._has_failed = True
        elif self._has_failed and writes:
            LOG.info(
                "The cache in which schedulers share what they read works"
                " again."
            )
            self._has_failed = False
        return None if error else call.result()
