# SPDX-License-Identifier: Apache-2.0

"""Facts: queried once per interval, kept without a response, logged once."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from math import inf
from typing import Any
from unittest.mock import Mock

import pytest

from os_prefilter import (
    NOTHING,
    Decision,
    Destination,
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
    seconds_to,
    versions_of,
)
from os_prefilter.service.loading import as_filter
from os_prefilter.service.shared import Reading, Store
from os_prefilter_tools.testing import request_of
from tests.conftest import conf_with, spec_of


def value_of(fact: Fact) -> Any:
    versions_of([fact])
    return fact.latest


def until_known(fact: Fact, value: object) -> None:
    for _ in range(6000):
        if value_of(fact) == value:
            return
        threading.Event().wait(0.01)
    pytest.fail(f"it is still {value_of(fact)!r}")


def test_no_request_waits_longer_than_patience_and_a_late_result_is_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is queried once, however long that takes.

    One line says that there is no result, one that there is.
    """
    caplog.set_level("INFO", "os_prefilter.service.deployment_facts")
    monkeypatch.setattr("os_prefilter.service.deployment_facts.PATIENCE", 0.05)
    may_end = threading.Event()
    queries = []

    def query(_context: object) -> str:
        queries.append(1)
        assert may_end.wait(60)
        return "known"

    fact = Fact("f", query, 3600, unknown="unknown")
    with ThreadPoolExecutor(8) as threads:
        values = threads.map(lambda _: value_of(fact), range(50))
        assert set(values) == {"unknown"}
    may_end.set()
    until_known(fact, "known")
    assert queries == [1]
    assert [record.getMessage() for record in caplog.records] == [
        (
            "Failed to read the deployment fact f (no response in 0.05 seconds);"
            " keeping 'unknown' until it can be read."
        ),
        "The deployment fact f can be read again.",
        "The deployment fact f is now 'known' (was 'unknown').",
    ]


def test_all_due_facts_are_queried_before_the_request_waits_for_any() -> None:
    """Three facts that hang delay a request as long as one."""
    steps: list[str] = []

    class Noted(Fact):
        def begin(self, *arguments: Any) -> PendingQuery | None:
            steps.append("begin")
            return super().begin(*arguments)

        def wait(self, query: PendingQuery, until: float = inf) -> None:
            steps.append("wait")
            super().wait(query, until)

    facts = [Noted(name, lambda _context: "known", 60) for name in "abc"]
    assert versions_of(facts) == (1, 1, 1)
    assert [each.latest for each in facts] == ["known"] * 3
    assert steps == ["begin"] * 3 + ["wait"] * 3


def test_request_waits_once_for_all_that_hangs(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    ends: set[float],
) -> None:
    """A fact, what is known of a server that moves, and what it asks for; here
    a fifth of a second in place of 5.
    """
    monkeypatch.setattr("os_prefilter.service.deployment_facts.PATIENCE", 0.2)
    may_end = threading.Event()

    def hang(*_arguments: object) -> Any:
        assert may_end.wait(60)

    service = Service.from_conf(
        conf_with(
            enabled_filters=["image_metadata", "server_options"],
            reported_traits=["*"],
        ),
        {"reports": hang},
        look_up_server=hang,
        look_up_server_options=hang,
    )
    spec = spec_of({"hw_disk_bus": "ide"}, {"hw:cpu_policy": "shared"})
    spec.requested_destination = Destination(cell="a cell")
    service.apply(spec)
    assert len(ends) == 1
    may_end.set()
    assert "(no response in 0.2 seconds)" in caplog.text
    for name in ("look_up_server", "look_up_server_options"):
        assert f"({name} did not respond in 0.2 seconds)" in caplog.text


def test_query_in_time_has_a_result_of_a_thread_of_that_name() -> None:
    future, problem = ask_in_time(
        lambda: threading.current_thread().name, "no host", inf
    )
    assert future.result() == "no host"
    assert problem == ""


def test_no_seconds_are_left_to_a_time_that_is_over() -> None:
    assert seconds_to(0.0) == 0.0


def test_query_has_no_result_where_no_thread_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        threading.Thread,
        "start",
        Mock(side_effect=RuntimeError("can't start new thread")),
    )
    future, problem = ask_in_time(str, "no host", inf)
    assert future.done()
    assert problem == "RuntimeError: can't start new thread"


async def _coroutine(_context: object) -> bool:
    return False


async def _generates(_context: object) -> AsyncIterator[bool]:
    yield False


class _Asynchronous:
    async def __call__(self, _context: object) -> bool:
        return False


_ODD = "found a coroutine or generator function"
_UNREADABLE: dict[str, tuple[Any, str]] = {
    "boolean": (True, "found a bool"),
    "None": (None, "found a NoneType"),
    "no parameter": (lambda: True, r"a function with the parameters \(\)"),
    "two parameters": (
        lambda _context, _other: True,
        r"a function with the parameters \(_context, _other\)",
    ),
    "coroutine": (_coroutine, _ODD),
    "class": (_Asynchronous, "found the class _Asynchronous"),
    "asynchronous object": (_Asynchronous(), _ODD),
    "generator": (_generates, _ODD),
}


@pytest.mark.parametrize("what", _UNREADABLE)
def test_service_with_a_fact_that_cannot_be_read_does_not_start(
    what: str,
) -> None:
    """Each request would get an object that is always true as its value."""
    given, found = _UNREADABLE[what]
    message = (
        "passes the deployment fact 'down' in a form .*: expected a function"
        f" \\(context\\), .*{found}"
    )
    with pytest.raises(UnusableArgument, match=message):
        Service.from_conf(conf_with(), {"down": given})
    with pytest.raises(UnusableArgument, match=message):
        Service.from_names(facts={"down": given})


@pytest.mark.parametrize("name", ["look_up_server", "look_up_server_options"])
def test_service_with_a_look_up_that_cannot_be_called_does_not_start(
    name: str,
) -> None:
    look_ups: dict[str, Any] = {name: lambda: None}
    message = f"passes {name} in a form that cannot be used"
    with pytest.raises(UnusableArgument, match=message):
        Service.from_conf(conf_with(), **look_ups)


def _if_down(_request: Request, *, down: bool) -> Requirements:
    """Take everything but True for False, as authors do."""
    if down:
        return forbid("CUSTOM_X", "down")
    return require("CUSTOM_X", "not down")


def _fails(_context: object) -> bool:
    raise OSError("the database is down")


def _decide(function: Any, read: Any) -> Decision:
    filters = (as_filter("f", function, {"down"}),)
    facts = {"down": Fact("down", read, 60)}
    return Service(filters, facts=facts).apply(request_of())


_NOT_KNOWN = (
    "deployment fact down: not known yet, so that the filter requires"
    " nothing yet"
)


def test_filter_is_not_run_while_a_fact_that_it_needs_is_not_known() -> None:
    """No capable host is excluded, and no request refused."""
    decision = _decide(_if_down, _fails)
    assert not decision.requirements
    (note,) = decision.notes
    assert str(note) == _NOT_KNOWN
    assert note.waits


def test_none_is_a_value_that_a_fact_may_have() -> None:
    (item,) = _decide(_if_down, lambda _context: None).requirements
    assert item.required


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


class _Unusable:
    """What can neither be compared, nor be true or false, nor be printed."""

    def _fail(self, *_arguments: object) -> Any:
        raise ValueError

    __eq__ = __bool__ = __repr__ = _fail
    __hash__ = None  # type: ignore[assignment]


_NO_BOOLEAN = "not of the type bool"
_NO_TRAITS = "without COMPUTE_NODE"
_WRONG_TYPES: list[tuple[str, Any, str]] = [
    ("owner_coverage", "no", f"'no', {_NO_BOOLEAN}"),
    ("owner_coverage", 1, f"1, {_NO_BOOLEAN}"),
    ("owner_coverage", _Unusable(), f"a _Unusable, {_NO_BOOLEAN}"),
    ("nested_providers", "no", f"'no', {_NO_BOOLEAN}"),
    ("nested_providers", 1, f"1, {_NO_BOOLEAN}"),
    ("nested_providers", _Unusable(), f"a _Unusable, {_NO_BOOLEAN}"),
    ("known_traits", [], _NO_TRAITS),
    ("known_traits", "x", _NO_TRAITS),
    ("known_traits", True, _NO_TRAITS),
    ("known_traits", {"COMPUTE_NODE": 1}, _NO_TRAITS),
    ("reports", None, "not of the type Reports"),
    ("reports", {}, "not of the type Reports"),
]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("fact", "value", "found"), _WRONG_TYPES, ids=range(12)
)
def test_fact_of_the_wrong_type_counts_as_not_known(
    fact: str, value: Any, found: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Almost any object is true: capable hosts would be excluded.

    An empty list of traits would drop requirements.
    """
    conf = conf_with(
        enabled_filters=["owner", "image_metadata"], trait_scope="auto"
    )
    facts = {
        "owner_coverage": lambda _context: fact != "nested_providers",
        fact: lambda _context: value,
    }
    service = Service.from_conf(conf, facts)
    decision = service.apply(spec_of({"hw_vif_model": "igb"}))
    assert found in caplog.text
    named = {str(item.trait) for item in decision.requirements}
    requires_model = fact != "reports"
    assert ("COMPUTE_NET_VIF_MODEL_IGB" in named) is requires_model
    requires_owner = fact in ("known_traits", "reports")
    assert ("OWNER_NOVA" in named) is requires_owner
    lacks_owner = "not every compute node has OWNER_NOVA" in str(
        decision.notes
    )
    assert lacks_owner is (fact == "nested_providers")


@Declaration(gate="down", closed="not yet")
def _gated(_request: Request) -> Requirements:
    return require("CUSTOM_X", "x")


@pytest.mark.parametrize(
    "read",
    [
        _fails,
        lambda _context: "no",
        lambda _context: 1,
        lambda _context: None,
    ],
    ids=["failed", "text", "number", "None"],
)
def test_gate_that_is_neither_true_nor_false_is_not_known(read: Any) -> None:
    """Also where the values of facts were not checked when they were read."""
    decision = _decide(_gated, read)
    assert [str(note) for note in decision.notes] == [_NOT_KNOWN]
    assert not decision.requirements


def test_closed_gate_is_named_in_the_note() -> None:
    (note,) = _decide(_gated, lambda _context: False).notes
    assert str(note) == "not yet: not required yet"
    assert note.waits


class _Old(Store):
    """A store with a value that another process is reading again."""

    def read_through(self, *_arguments: Any) -> Reading:
        return Reading("old", 0.0, 7200.0)


def test_value_that_another_process_reads_again_is_due_within_a_second() -> (
    None
):
    """Not at once, as each request would start a query meanwhile."""
    begun = time.monotonic()
    fact = Fact("f", lambda _context: "new", 3600, stores=[_Old("")])
    assert value_of(fact) == "old"
    assert begun < fact.due
    assert fact.due <= time.monotonic() + 1
