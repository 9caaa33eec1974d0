"""Facts: asked at most once per interval, kept while they cannot be asked for, said once when they change."""

from collections.abc import Iterator

import pytest

from os_prefilter.facts import Fact


class _Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_asked_once_per_interval() -> None:
    clock, answers = _Clock(), iter(range(100))
    fact = Fact("f", lambda _context: next(answers), 10)
    seen = []
    for clock.now in (0, 1, 9.9, 10, 19, 20):
        seen.append(fact.value(None, clock))
    assert seen == [0, 0, 0, 1, 1, 2]


def test_a_failure_keeps_the_last_value_and_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """Absence of knowledge is not knowledge of absence."""
    caplog.set_level("INFO")

    def answers() -> Iterator[object]:
        yield from (True, OSError("down"), OSError("down"), True, False)

    each = answers()

    def ask(_context: object) -> object:
        answer = next(each)
        if isinstance(answer, Exception):
            raise answer
        return answer

    clock = _Clock()
    fact = Fact("f", ask, 1, unknown=False)
    seen = []
    for clock.now in range(5):
        seen.append(fact.value(None, clock))
    assert seen == [True, True, True, True, False]
    assert [record.getMessage() for record in caplog.records] == [
        "The deployment fact f is now True (was False).",
        "The deployment fact f cannot be asked for (OSError: down); it stays True until that works again.",
        "The deployment fact f can be asked for again.",
        "The deployment fact f is now False (was True).",
    ]


def test_never_answered_is_unknown() -> None:
    def ask(_context: object) -> object:
        raise TimeoutError

    assert Fact("f", ask, 1, unknown=False).value() is False


def test_what_expired_is_asked_for_at_the_next_use() -> None:
    """Also if that happens while it is asked for: the answer on its way may be the old one."""
    answers = iter(range(100))
    fact = Fact("f", lambda _context: next(answers), 10)
    assert [fact.value(), fact.value()] == [0, 0]
    fact.expire()
    assert [fact.value(), fact.value()] == [1, 1]

    def ask(_context: object) -> int:
        number = next(answers)
        if number == 2:
            meanwhile.expire()
        return number

    meanwhile = Fact("g", ask, 10)
    assert [meanwhile.value(), meanwhile.value(), meanwhile.value()] == [2, 3, 3]


def test_the_newest_value_is_used_also_where_it_counts_as_equal(caplog: pytest.LogCaptureFixture) -> None:
    """And no line in the log says that it changed."""
    caplog.set_level("INFO", "os_prefilter.facts")
    values = [1.0, 1]
    fact = Fact("x", lambda _context: values.pop(), 0)
    assert [type(fact.value()) for _ in range(2)] == [int, float]
    assert len(caplog.records) == 1
