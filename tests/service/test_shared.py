# SPDX-License-Identifier: Apache-2.0

"""What one process reads, others use: no wrong value, one reader at a time,
and another one where it dies or stops.
"""

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
from os_prefilter.service.host_traits import HostTraits
from os_prefilter.service.shared import InheritedStore, SharedFact
from tests.service.shared_workers import CountingReader, shared_fact, workers
from tests.support.placements import HostsInProcess


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
    ("fate", "readings"), [("none", 1), ("KILL", 2), ("STOP", 2)]
)
def test_one_of_the_forked_workers_reads_and_another_one_where_it_dies_or_stops(
    fate: str, readings: int, tmp_path: Path
) -> None:
    log = tmp_path / "readings"
    found = workers(6, fate, log)
    readers = log.read_text(encoding="utf-8").splitlines()
    assert (len(readers), len(found)) == (readings, 6 - (fate == "KILL"))
    # All have the value of the last reader, but one that was stopped, which
    # has its own.
    assert sum(value == ["read", readers[-1]] for value, _, _ in found) == (
        6 if fate == "none" else 5
    )
    assert max(seconds for _, seconds, _ in found) < (
        3 if fate != "STOP" else 8
    )


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
    region, read = _Region(), CountingReader()
    fact = shared_fact(read, 60, (SharedCache(region).store,))
    fact(None)
    (key,) = (each for each in region.values if not each.endswith(":reader"))
    region.values[key] = make()
    assert (fact(None).value, read.read) == ((7, 1) if is_used else (2, 2))


def test_entry_under_the_key_of_another_fact_is_not_used() -> None:
    """Two facts with values of one type: what one says must not become the
    other.
    """
    region = _Region()
    make = SharedCache(region).store
    facts = {
        name: SharedFact(name, CountingReader(), 60, [make(name, "")])
        for name in ("coverage", "nested")
    }
    facts["coverage"](None)
    (entry,) = (
        each
        for key, each in region.values.items()
        if not key.endswith(":reader")
    )
    make("nested", "").put(entry)
    assert facts["nested"]._levels[-1].latest() is None
    assert facts["coverage"]._levels[-1].latest() is not None


def test_value_of_a_clock_ahead_is_used_no_longer_than_any_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    region, read = _Region(), CountingReader()
    fact = shared_fact(read, 60, (SharedCache(region).store,))
    fact(None)
    (key,) = (each for each in region.values if not each.endswith(":reader"))
    region.values[key] = _entry(at=300)
    assert fact(None).value == 7
    now = time.monotonic() + 61
    monkeypatch.setattr(time, "monotonic", lambda: now)
    assert fact(None).value == 2


def test_cache_that_fails_or_is_slow_is_left_alone_and_told_of_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise ConnectionRefusedError("memcached is down")

    caplog.set_level("INFO")
    region, read = _Region(), CountingReader()
    region.fail = fail
    fact = shared_fact(read, 0, (SharedCache(region).store,))
    assert [fact(None).value for _ in range(3)] == [1, 2, 3]
    monkeypatch.setattr("os_prefilter.adapters.shared_cache._LEFT_ALONE", 0.0)
    region.fail = lambda: time.sleep(0.1)
    monkeypatch.setattr("os_prefilter.adapters.shared_cache._SLOW", 0.001)
    slow = shared_fact(read, 0, (SharedCache(region).store,))
    assert slow(None).value == 4
    region.fail = lambda: None
    monkeypatch.setattr("os_prefilter.adapters.shared_cache._SLOW", 60)
    cached = SharedCache(region)
    for region.fail, is_set in ((fail, False), (lambda: None, True)):
        assert cached.set("x", b"") is is_set
    told = [
        each.getMessage()
        for each in caplog.records
        if each.name == "os_prefilter.adapters.shared_cache"
    ]
    fails = (
        "The cache in which schedulers share what they read fails, so each"
        " reads itself: "
    )
    assert [each.removeprefix(fails) for each in told] == [
        "ConnectionRefusedError",
        "it took more than 0.001 seconds",
        "ConnectionRefusedError",
        "The cache in which schedulers share what they read works again.",
    ]


def test_value_that_was_read_meanwhile_is_not_replaced_by_an_older_one() -> (
    None
):
    """As by a reader that was paused for a minute, while another one took
    over.
    """
    region = _Region()
    other = shared_fact(CountingReader(), 60, (SharedCache(region).store,))

    def meanwhile() -> None:
        (reader,) = region.values
        region.values[reader] = b""
        other(None)

    slow = CountingReader(take=meanwhile)
    slow.read = 41
    assert (
        shared_fact(slow, 60, (SharedCache(region).store,))(None).value == 42
    )
    assert (
        shared_fact(CountingReader(), 60, (SharedCache(region).store,))(
            None
        ).value
        == 1
    )


def test_time_of_a_failed_reading_leaves_out_the_wait_for_another_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns, begun = iter((False, False, True)), time.monotonic()
    monkeypatch.setattr(
        InheritedStore, "lease", lambda *_: nullcontext(next(turns))
    )
    with pytest.raises(FailedReading, match="^OSError: no answer$") as failed:
        shared_fact(
            CountingReader(take=Mock(side_effect=OSError("no answer"))),
            60,
            (InheritedStore,),
        )(None)
    # Each wait takes 0.05 seconds or more.
    assert 0 <= failed.value.seconds < time.monotonic() - begun - 0.1


def test_what_a_process_learned_is_shared_and_grows_no_younger() -> None:
    region = _Region()
    facts = [
        shared_fact(
            CountingReader(), 60, (InheritedStore, SharedCache(region).store)
        )
        for _ in range(2)
    ]
    facts[0](None)
    facts[0]._read_at -= 50
    facts[0].share(9)
    assert facts[0].nearest() == 9
    assert facts[1].nearest() is None
    measured = facts[1](None)
    assert measured.value == 9
    assert 50 <= measured.age < 60


def test_hosts_that_another_process_learned_join_the_sample() -> None:
    host, contexts = "0c0a4b6e-6c3b-4d2a-9d0f-0a3f4a1f2b77", list[object]()

    class Reader(HostsInProcess):
        def some_hosts(self, context: object) -> tuple[str, ...]:
            contexts.append(context)
            return ()

    reader, store = (
        Reader({host: frozenset(("COMPUTE_NODE",))}),
        InheritedStore("host_sample", ""),
    )
    ours, theirs = (
        HostTraits(reader, 60, (lambda *_: store,)) for _ in range(2)
    )
    for each in (theirs, ours):
        each.preferred((), "context", time.monotonic() + 60)
    assert theirs.add([host])
    assert (list(ours.as_others_know_it().traits), contexts) == (
        [host],
        ["context"],
    )
