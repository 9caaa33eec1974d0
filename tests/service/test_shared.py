# SPDX-License-Identifier: Apache-2.0

"""Sharing of facts: one reader at a time, and no wrong value."""

import json
import time
import zlib
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from os_prefilter.adapters.shared_cache import SharedCache
from os_prefilter.service.deployment_facts import FailedReading
from os_prefilter.service.shared import InheritedStore, SharedFact
from tests.service.shared_workers import CountingReader, shared_fact, workers


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
    values = [value for value, _, _ in found]
    assert values.count(["read", readers[-1]]) == equal
    longest = 8.0 if fate == "STOP" else 3.0
    assert max(seconds for _, seconds, _ in found) < longest


def _entry(
    value: Any = 7, at: float = 0.0, seconds: Any = 0.1, **others: Any
) -> bytes:
    content = {
        "id": "x",
        "of": ["f", ""],
        "at": time.time() + at,
        "seconds": seconds,
        "value": value,
        **others,
    }
    return zlib.compress(json.dumps(content).encode())


_ENTRIES: dict[str, tuple[Callable[[], bytes | str], bool]] = {
    "a value": (_entry, True),
    "read 30 seconds ago": (lambda: _entry(at=-30), True),
    "a clock 5 minutes ahead": (lambda: _entry(at=300), True),
    "a clock an hour ahead": (lambda: _entry(at=3600), False),
    "read an hour ago": (lambda: _entry(at=-3600), False),
    "half of it": (lambda: _entry()[:20], False),
    "another type": (lambda: _entry("7"), False),
    "no number of seconds": (lambda: _entry(seconds="nan"), False),
    "fewer than none": (lambda: _entry(seconds=-1e9), False),
    "a lie about the seconds": (
        lambda: _entry(at=-1900, seconds=1e300),
        False,
    ),
    "no time": (lambda: _entry(at=float("nan")), False),
    "of another fact": (lambda: _entry(of=["g", ""]), False),
    "of another scope": (lambda: _entry(of=["f", "another"]), False),
    "of no fact": (lambda: _entry(of=None), False),
    "not compressed": (lambda: b'{"value": 7}', False),
    "a list": (lambda: zlib.compress(b"[7]"), False),
    "deep": (lambda: zlib.compress(b"[" * 100_000), False),
    "text": (lambda: "7", False),
    "a bomb": (lambda: zlib.compress(b"7" * 100_000_000), False),
}


@pytest.mark.parametrize("what", _ENTRIES)
def test_wrong_entry_of_a_cache_means_reading_oneself(what: str) -> None:
    make, is_used = _ENTRIES[what]
    region = _Region()
    reader = CountingReader()
    fact = shared_fact(reader, 60, (SharedCache(region).store,))
    fact(None)
    region.values[_key_in(region)] = make()
    value = fact(None).value
    if is_used:
        assert value == 7
        assert reader.read == 1
    else:
        assert value == 2
        assert reader.read == 2


def _key_in(region: _Region) -> str:
    (key,) = (each for each in region.values if not each.endswith(":reader"))
    return key


def test_entry_under_the_key_of_another_fact_is_not_used() -> None:
    """The values of both facts have one type."""
    region = _Region()
    make = SharedCache(region).store
    coverage, nested = (
        SharedFact(name, CountingReader(), 60, [make(name, "")])
        for name in ("coverage", "nested")
    )
    coverage(None)
    entry = region.values[_key_in(region)]
    make("nested", "").put(entry)
    assert nested._levels[-1].latest() is None
    assert coverage._levels[-1].latest() is not None


def test_value_of_a_clock_ahead_is_used_no_longer_than_any_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    region = _Region()
    fact = shared_fact(CountingReader(), 60, (SharedCache(region).store,))
    fact(None)
    region.values[_key_in(region)] = _entry(at=300)
    assert fact(None).value == 7
    now = time.monotonic() + 61
    monkeypatch.setattr(time, "monotonic", lambda: now)
    assert fact(None).value == 2


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
    fact = shared_fact(CountingReader(), 0, (SharedCache(region).store,))
    assert [fact(None).value for _ in range(3)] == [1, 2, 3]
    assert _logged(caplog) == [f"{_FAILS}ConnectionRefusedError"]


def test_cache_that_is_slow_is_left_alone_with_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(f"{_MODULE}._LEFT_ALONE", 0.0)
    monkeypatch.setattr(f"{_MODULE}._SLOW", 0.001)
    region = _Region()
    region.fail = lambda: time.sleep(0.1)
    fact = shared_fact(CountingReader(), 0, (SharedCache(region).store,))
    assert fact(None).value == 1
    assert _logged(caplog) == [f"{_FAILS}it took more than 0.001 seconds"]


def test_cache_that_works_again_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(f"{_MODULE}._LEFT_ALONE", 0.0)
    monkeypatch.setattr(f"{_MODULE}._SLOW", 60)
    region = _Region()
    cache = SharedCache(region)
    region.fail = _refuse
    assert not cache.set("x", b"")
    region.fail = lambda: None
    assert cache.set("x", b"")
    assert _logged(caplog) == [f"{_FAILS}ConnectionRefusedError", _WORKS]


def test_value_that_was_read_meanwhile_is_not_replaced_by_an_older_one() -> (
    None
):
    """As by a reader that was paused while another one took over."""
    region = _Region()
    other = shared_fact(CountingReader(), 60, (SharedCache(region).store,))
    third = shared_fact(CountingReader(), 60, (SharedCache(region).store,))

    def meanwhile() -> None:
        (reader,) = region.values
        region.values[reader] = b""
        other(None)

    reader = CountingReader(take=meanwhile)
    reader.read = 41
    slow = shared_fact(reader, 60, (SharedCache(region).store,))
    assert slow(None).value == 42
    assert third(None).value == 1


def test_time_of_a_failed_reading_leaves_out_the_wait_for_another_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns = iter((False, False, True))
    begun = time.monotonic()
    monkeypatch.setattr(
        InheritedStore, "lease", lambda *_: nullcontext(next(turns))
    )
    reader = CountingReader(take=Mock(side_effect=OSError("no answer")))
    fact = shared_fact(reader, 60, (InheritedStore,))
    with pytest.raises(FailedReading, match="^OSError: no answer$") as failed:
        fact(None)
    # Each wait takes 0.05 seconds or more.
    assert 0 <= failed.value.seconds < time.monotonic() - begun - 0.1


def test_what_a_process_learned_is_shared_and_grows_no_younger() -> None:
    stores = (InheritedStore, SharedCache(_Region()).store)
    ours = shared_fact(CountingReader(), 60, stores)
    theirs = shared_fact(CountingReader(), 60, stores)
    ours(None)
    ours._read_at -= 50
    ours.share(9)
    assert ours.nearest() == 9
    assert theirs.nearest() is None
    measured = theirs(None)
    assert measured.value == 9
    assert 50 <= measured.age < 60
