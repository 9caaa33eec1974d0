# SPDX-License-Identifier: Apache-2.0

"""Sharing of facts: one reader at a time, and no wrong value."""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from os_prefilter.adapters.shared_cache import CacheStore
from os_prefilter.service.deployment_facts import Fact
from os_prefilter.service.shared import InheritedStore, MakeStore
from tests.service.shared_workers import (
    CountingReader,
    shared_fact,
    value_of,
    workers,
)


class _Region:
    """A cache in this process, which may fail."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.fail: Callable[[], None] = lambda: None

    def get(self, key: str) -> Any:
        self.fail()
        return self.values.get(key)

    def set(self, key: str, value: Any) -> None:
        self.fail()
        self.values[key] = value


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os_prefilter.adapters.shared_cache._SETTLED", 0.0)


@pytest.mark.parametrize(
    ("fate", "readings", "alive", "equal"),
    [
        ("none", 1, 6, 6),
        ("KILL", 2, 5, 5),
        # The process that was stopped has the value that it has read.
        ("STOP", 2, 6, 5),
    ],
    ids=["none", "KILL", "STOP"],
)
def test_one_of_the_forked_workers_reads_and_another_one_where_it_dies_or_stops(
    fate: str, readings: int, alive: int, equal: int, tmp_path: Path
) -> None:
    log = tmp_path / "readings"
    found = workers(6, fate, log)
    readers = log.read_text(encoding="utf-8").splitlines()
    assert len(readers) == readings
    assert len(found) == alive
    values = [value for value, _ in found]
    assert values.count(["read", readers[-1]]) == equal
    longest = 8.0 if fate == "STOP" else 3.0
    assert max(seconds for _, seconds in found) < longest


def _entry(
    value: Any = 7, at: float = 0.0, seconds: Any = 0.1, **others: Any
) -> Callable[[str], bytes]:
    """Return a function: what identifies the document -> an entry."""

    def make(whose: str) -> bytes:
        content = {
            "id": "x",
            "of": whose,
            "at": time.time() + at,
            "seconds": seconds,
            "value": value,
            **others,
        }
        return zlib.compress(json.dumps(content).encode())

    return make


def _store_in(region: _Region) -> MakeStore:
    return partial(CacheStore, region, "cloud")


_ENTRIES: dict[str, tuple[Callable[[str], bytes | str], bool]] = {
    "a value": (_entry(), True),
    "read 30 seconds ago": (_entry(at=-30), True),
    "a clock 5 minutes ahead": (_entry(at=300), True),
    "a clock an hour ahead": (_entry(at=3600), False),
    "read an hour ago": (_entry(at=-3600), False),
    "half of it": (lambda whose: _entry()(whose)[:20], False),
    "another type": (_entry("7"), False),
    "no number of seconds": (_entry(seconds="nan"), False),
    "fewer than none": (_entry(seconds=-1e9), False),
    "a lie about the seconds": (_entry(at=-1900, seconds=1e300), False),
    "no time": (_entry(at=float("nan")), False),
    "of another document": (_entry(of="g"), False),
    "of none": (_entry(of=None), False),
    "not compressed": (lambda _whose: b'{"value": 7}', False),
    "a list": (lambda _whose: zlib.compress(b"[7]"), False),
    "deep": (lambda _whose: zlib.compress(b"[" * 100_000), False),
    "text": (lambda _whose: "7", False),
    "a bomb": (lambda _whose: zlib.compress(b"7" * 100_000_000), False),
}


@pytest.mark.parametrize("what", _ENTRIES)
def test_wrong_entry_of_a_cache_means_reading_oneself(what: str) -> None:
    make, is_used = _ENTRIES[what]
    region = _Region()
    reader = CountingReader()
    fact = shared_fact(reader, 60, (_store_in(region),))
    value_of(fact)
    key = _key_in(region)
    region.values[key] = make(key.removeprefix("os_prefilter:"))
    value = value_of(fact)
    if is_used:
        assert value == 7
        assert reader.read == 1
    else:
        assert value == 2
        assert reader.read == 2


def _key_in(region: _Region) -> str:
    (key,) = (each for each in region.values if not each.endswith(":reader"))
    return key


@pytest.mark.parametrize(
    ("cloud", "whose"),
    [("cloud", "g"), ("another cloud", "f")],
    ids=["another document", "another cloud"],
)
def test_entry_under_the_key_of_another_one_is_not_used(
    cloud: str, whose: str
) -> None:
    """The values of both have one type."""
    region = _Region()
    ours = CacheStore(region, "cloud", "f")
    theirs = CacheStore(region, cloud, whose)
    value_of(Fact("f", CountingReader(), 60, stores=[ours]))
    theirs.put(region.values[_key_in(region)])
    assert ours.latest(int) is not None
    assert theirs.get() == ours.get()
    assert theirs.latest(int) is None


def test_value_of_a_clock_ahead_is_used_no_longer_than_any_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    region = _Region()
    fact = shared_fact(CountingReader(), 60, (_store_in(region),))
    value_of(fact)
    key = _key_in(region)
    entry = _entry(at=300)
    region.values[key] = entry(key.removeprefix("os_prefilter:"))
    assert value_of(fact) == 7
    now = time.monotonic() + 61
    monkeypatch.setattr(time, "monotonic", lambda: now)
    assert value_of(fact) == 2


_MODULE = "os_prefilter.adapters.shared_cache"
_FAILS = (
    "The cache in which schedulers share what they read fails, so each reads"
    " itself: "
)
_WORKS = "The cache in which schedulers share what they read works again."


def _refuse() -> None:
    raise ConnectionRefusedError("memcached is down")


def _logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        each.getMessage() for each in caplog.records if each.name == _MODULE
    ]


def test_cache_that_fails_is_left_alone_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    region = _Region()
    region.fail = _refuse
    fact = shared_fact(CountingReader(), 0, (_store_in(region),))
    assert [value_of(fact) for _ in range(3)] == [1, 2, 3]
    assert _logged(caplog) == [f"{_FAILS}ConnectionRefusedError"]


def test_cache_that_is_slow_is_left_alone_with_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(f"{_MODULE}._LEFT_ALONE", 0.0)
    monkeypatch.setattr(f"{_MODULE}._SLOW", 0.001)
    region = _Region()
    region.fail = lambda: time.sleep(0.1)
    fact = shared_fact(CountingReader(), 0, (_store_in(region),))
    assert value_of(fact) == 1
    assert _logged(caplog) == [f"{_FAILS}it took more than 0.001 seconds"]


def test_cache_that_works_again_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(f"{_MODULE}._LEFT_ALONE", 0.0)
    monkeypatch.setattr(f"{_MODULE}._SLOW", 60)
    region = _Region()
    store = CacheStore(region, "cloud", "f")
    region.fail = _refuse
    store.put(b"entry")
    region.fail = lambda: None
    store.put(b"entry")
    assert store.get() == b"entry"
    assert _logged(caplog) == [f"{_FAILS}ConnectionRefusedError", _WORKS]


def test_value_that_was_read_meanwhile_is_not_replaced_by_an_older_one() -> (
    None
):
    """As by a reader that was paused while another one took over."""
    region = _Region()
    other = shared_fact(CountingReader(), 60, (_store_in(region),))
    third = shared_fact(CountingReader(), 60, (_store_in(region),))

    def meanwhile() -> None:
        (reader,) = region.values
        region.values[reader] = b""
        value_of(other)

    reader = CountingReader(take=meanwhile)
    reader.read = 41
    slow = shared_fact(reader, 60, (_store_in(region),))
    assert value_of(slow) == 42
    assert value_of(third) == 1


def test_pause_after_a_failed_reading_leaves_out_the_wait_for_another_process(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("os_prefilter.service.shared._PAUSE", 1000)
    turns = iter((False, False, True))
    monkeypatch.setattr(
        InheritedStore, "lease", lambda *_: nullcontext(next(turns))
    )
    reader = CountingReader(take=Mock(side_effect=OSError("no answer")))
    fact = shared_fact(reader, 0, (InheritedStore,))
    begun = time.monotonic()
    value_of(fact)
    # Each wait takes 0.05 seconds or more.
    assert time.monotonic() - begun >= 0.1
    assert fact.due - begun < 50
    assert "(OSError: no answer)" in caplog.text


def test_value_of_another_host_grows_no_younger_in_the_nearest_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    region = _Region()
    value_of(shared_fact(CountingReader(), 60, (_store_in(region),)))
    later = time.monotonic() + 50
    at = time.time() + 50
    monkeypatch.setattr(time, "monotonic", lambda: later)
    monkeypatch.setattr(time, "time", lambda: at)
    store = InheritedStore("f")
    stores = [store, CacheStore(region, "cloud", "f")]
    assert value_of(Fact("f", CountingReader(), 60, stores=stores)) == 1
    found = store.latest(int)
    assert found
    assert 50 <= found.age < 60
