# SPDX-License-Identifier: Apache-2.0

"""Facts: asked at most once per interval, kept while they cannot be asked for,
said once when they change.
"""

import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from math import inf
from typing import Any
from unittest.mock import Mock

import pytest

from os_prefilter import (
    NOTHING,
    Decision,
    Request,
    Requirements,
    forbid,
    require,
)
from os_prefilter.common.errors import FilterFailed, UnusableArgument
from os_prefilter.request.filter_contract import UNKNOWN, Declaration
from os_prefilter.service import Service
from os_prefilter.service.deployment_facts import (
    Fact,
    PendingQuery,
    ask_in_time,
    readings_of,
    seconds_to,
)
from os_prefilter.service.loading import as_filter
from os_prefilter_tools.testing import request_of
from tests.conftest import conf_with, spec_of


def value_of(fact: Fact, now: Callable[[], float] = time.monotonic) -> Any:
    if query := fact.begin(None, now):
        fact.wait(query)
    return fact.latest


def until_known(fact: Fact, value: object) -> None:
    for _ in range(6000):
        if value_of(fact, lambda: 0.0) == value:
            return
        threading.Event().wait(0.01)
    pytest.fail(f"it is still {value_of(fact)!r}")


def test_no_request_waits_longer_than_patience_and_a_late_answer_is_used(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is asked once, however long that takes; one line says that it does
    not answer, one that it did.
    """
    caplog.set_level("INFO", "os_prefilter.service.deployment_facts")
    answer, asked = threading.Event(), []

    def ask(_context: object) -> str:
        asked.append(1)
        assert answer.wait(60)
        return "known"

    fact = Fact("f", ask, 10, unknown="unknown", patience=0.05)
    with ThreadPoolExecutor(8) as threads:
        assert set(
            threads.map(lambda _: value_of(fact, lambda: 0.0), range(50))
        ) == {"unknown"}
    answer.set()
    until_known(fact, "known")
    assert asked == [1]
    assert [record.getMessage() for record in caplog.records] == [
        (
            "Failed to read the deployment fact f (no answer in 0.05 seconds);"
            " keeping 'unknown' until it can be read."
        ),
        "The deployment fact f can be read again.",
        "The deployment fact f is now 'known' (was 'unknown').",
    ]


def test_all_due_facts_are_queried_before_the_request_waits_for_any() -> None:
    """The wait counts from the question on: three facts that hang delay a
    request as long as one.
    """
    steps: list[str] = []

    class Noted(Fact):
        def begin(self, *arguments: Any) -> PendingQuery | None:
            steps.append("begin")
            return super().begin(*arguments)

        def wait(self, query: PendingQuery, until: float = inf) -> None:
            steps.append("wait")
            super().wait(query, until)

    assert (
        readings_of(
            [Noted(name, lambda _context: "known", 60) for name in "abc"]
        )
        == (("known",),) * 3
    )
    assert steps == ["begin"] * 3 + ["wait"] * 3


def test_question_has_no_answer_where_no_thread_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, problem = ask_in_time(
        lambda: threading.current_thread().name, "no host", inf
    )
    assert (asked.result(), problem, seconds_to(0.0)) == ("no host", "", 0.0)
    monkeypatch.setattr(
        threading.Thread,
        "start",
        Mock(side_effect=RuntimeError("can't start new thread")),
    )
    asked, problem = ask_in_time(str, "no host", inf)
    assert (asked.done(), problem) == (
        True,
        "RuntimeError: can't start new thread",
    )


async def _coroutine(_context: object) -> bool:
    return False


async def _generates(_context: object) -> AsyncIterator[bool]:
    yield False


class _Asynchronous:
    async def __call__(self, _context: object) -> bool:
        return False


def test_service_with_a_fact_that_cannot_be_read_does_not_start() -> None:
    """Each request would take what is not known for an answer, or an object
    that is always true.
    """
    unreadable: list[tuple[Any, str]] = [
        (True, "found a bool"),
        (None, "found a NoneType"),
        (lambda: True, r"a function with the parameters \(\)"),
        (
            lambda _context, _other: True,
            r"a function with the parameters \(_context, _other\)",
        ),
        (_coroutine, "found a coroutine or generator function"),
        (_Asynchronous, "found the class _Asynchronous"),
        (_Asynchronous(), "found a coroutine or generator function"),
        (_generates, "found a coroutine or generator function"),
    ]
    for given, found in unreadable:
        message = (
            "passes the deployment fact 'down' in a form .*: expected a"
            f" function \\(context\\), .*{found}"
        )
        with pytest.raises(UnusableArgument, match=message):
            Service.from_conf(conf_with(), {"down": given})
        with pytest.raises(UnusableArgument, match=message):
            Service.from_names(facts={"down": given})
    names = ("ensure_traits", "kept_machine_type", "has_new_flavor")
    arguments: Any = [{name: lambda: None} for name in names]
    for argument in arguments:
        with pytest.raises(
            UnusableArgument,
            match=f"passes {min(argument)} in a form that cannot be used",
        ):
            Service.from_conf(conf_with(), **argument)


def _if_down(_request: Request, *, down: bool) -> Requirements:
    """Take everything but True for a no, as authors do."""
    return (
        forbid("CUSTOM_X", "down") if down else require("CUSTOM_X", "not down")
    )


def _fails(_context: object) -> bool:
    raise OSError("the database is down")


def _decide(function: Any, read: Any) -> Decision:
    return Service(
        (as_filter("f", function, {"down"}),),
        facts={"down": Fact("down", read, 60)},
    ).apply(request_of())


_NOT_KNOWN = (
    "deployment fact down: not known yet, so that the filter requires"
    " nothing yet"
)


def test_filter_is_not_run_while_a_fact_that_it_needs_is_not_known() -> None:
    """No capable host is excluded, no request refused, and what is not known
    is not taken for a no.
    """
    decision = _decide(_if_down, _fails)
    assert not decision.requirements
    assert [(str(note), note.waits) for note in decision.notes] == [
        (_NOT_KNOWN, True)
    ]
    # None is a value that a fact may have.
    assert [
        item.required
        for item in _decide(_if_down, lambda _context: None).requirements
    ] == [True]


def test_filter_that_takes_what_is_not_known_cannot_take_it_for_a_no() -> None:
    takes = Declaration(takes_unknown=True)
    careful = takes(
        lambda _request, *, down: (
            NOTHING if down is UNKNOWN else require("CUSTOM_X", "known")
        )
    )
    careless = takes(lambda request, *, down: _if_down(request, down=down))
    assert not _decide(careful, _fails).requirements
    assert _decide(careful, lambda _context: False).requirements
    with pytest.raises(FilterFailed, match="compare it with 'is UNKNOWN'"):
        _decide(careless, _fails)


class _NoAnswer:
    """What can neither be compared, nor asked for its truth, nor printed."""

    def _fail(self, *_arguments: object) -> Any:
        raise ValueError

    __eq__ = __bool__ = __repr__ = _fail
    __hash__ = None  # type: ignore[assignment]


_NO_ANSWERS: list[tuple[Any, str]] = [
    ("no", "'no', not of the type bool"),
    (1, "1, not of the type bool"),
    (_NoAnswer(), "a _NoAnswer, not of the type bool"),
]
_NO_LISTS: list[Any] = [[], "x", True, {"COMPUTE_NODE": 1}]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("fact", "value", "found"),
    [
        *[
            (fact, *each)
            for fact in ("owner_coverage", "nested_providers")
            for each in _NO_ANSWERS
        ],
        *[
            ("known_traits", value, "without COMPUTE_NODE")
            for value in _NO_LISTS
        ],
        ("reports", None, "not of the type Reports"),
        ("reports", {}, "not of the type Reports"),
    ],
    ids=range(12),
)
def test_fact_of_the_wrong_type_counts_as_not_known(
    fact: str, value: Any, found: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Almost any object is true: capable hosts would be excluded. An empty
    list of traits would drop requirements.
    """
    conf = conf_with(
        enabled_filters=["owner", "image_metadata"], trait_scope="auto"
    )
    facts = {
        "owner_coverage": lambda _context: fact != "nested_providers",
        fact: lambda _context: value,
    }
    decision = Service.from_conf(conf, facts).apply(
        spec_of({"hw_vif_model": "igb"})
    )
    named = {str(item.trait) for item in decision.requirements}
    assert ("COMPUTE_NET_VIF_MODEL_IGB" in named) is (fact != "reports")
    assert ("OWNER_NOVA" in named) is (fact in ("known_traits", "reports"))
    assert found in caplog.text
    assert (
        "not every compute node has OWNER_NOVA" in str(decision.notes)
    ) is (fact == "nested_providers")


def test_gate_of_another_author_is_exactly_true_or_false() -> None:
    """Also where the pipeline is given facts that were not checked when they
    were read.
    """
    gated = Declaration(gate="down", closed="not yet")(
        lambda _request: require("CUSTOM_X", "x")
    )
    reads: list[Any] = [
        _fails,
        lambda _context: "no",
        lambda _context: 1,
        lambda _context: None,
    ]
    for read in reads:
        decision = _decide(gated, read)
        assert (
            [str(note) for note in decision.notes],
            decision.requirements,
        ) == ([_NOT_KNOWN], ())
    notes = _decide(gated, lambda _context: False).notes
    assert [(str(note), note.waits) for note in notes] == [
        ("not yet: not required yet", True)
    ]
