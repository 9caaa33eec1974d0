# SPDX-License-Identifier: Apache-2.0

"""The history of decisions: what a line has, that no text of a request changes
its form, and that it fails nothing.
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from os_prefilter import Flavor, Image, RequestSpec
from os_prefilter.common.errors import FilterFailed, RequestRejected
from os_prefilter.common.trait_names import trait_named
from os_prefilter.request.filter_contract import LoadedFilter
from os_prefilter.request.requirements import (
    Note,
    Preference,
    Requirements,
    require,
)
from os_prefilter.service import Service, decision_log
from os_prefilter.service.decision_log import LOGGER, MAX_BYTES
from os_prefilter.service.existing_server import ExistingServer
from os_prefilter.service.request_events import RequestEvent
from tests.conftest import pipeline_of, spec_of

_SERVER = "0c0a4b6e-6c3b-4d2a-9d0f-0a3f4a1f2b77"
_REQUEST = "req-1b0d6a72-9f0e-4f5e-8a53-3d0f2f0f9f10"
_CONTEXT = SimpleNamespace(
    request_id=_REQUEST, user_name="alice", user_id="4711"
)

Log = pytest.LogCaptureFixture


class _ServerSpec(RequestSpec):
    """A request with the server's UUID, as Nova's has it."""

    instance_uuid = _SERVER


def _spec(**properties: str) -> RequestSpec:
    return _ServerSpec(Flavor(vcpus=1, memory_mb=512), Image(properties))


def _pipeline(**options: Any) -> Service:
    return pipeline_of(
        "image_metadata",
        **{"decision_history": True, "reported_traits": [], **options},
    )


def _with_history(pipeline: Service) -> Service:
    return replace(pipeline, observers=(decision_log.record,))


def _texts(caplog: Log) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.name == LOGGER
    ]


@pytest.fixture
def history(caplog: Log) -> Log:
    """Return the log with the lines of the history, as a service at level INFO
    has it.
    """
    caplog.set_level(logging.INFO)
    return caplog


def test_line_has_requirements_sources_and_identifiers_and_no_name_of_a_user(
    history: Log,
) -> None:
    _pipeline().apply(
        _spec(hw_vif_model="e1000e", os_admin_user="alice"), _CONTEXT
    )
    (line,) = map(json.loads, _texts(history))
    assert line.pop("time").endswith("Z")
    assert line == {
        "worker": os.getpid(),
        "request": _REQUEST,
        "server": _SERVER,
        "result": "passed",
        "reason": None,
        "hosts": [],
        "requirements": [
            {
                "trait": "COMPUTE_NET_VIF_MODEL_E1000E",
                "required": True,
                "scope": "root",
                "filter": "image_metadata",
                "source": "image property hw_vif_model=e1000e",
            }
        ],
        "preferences": [],
        "aggregates": [],
        "notes": [],
        "left_out": 0,
    }


def test_cached_decision_is_recorded_with_the_identifiers_of_its_own_request(
    history: Log,
) -> None:
    pipeline = _pipeline()
    with mock.patch.object(
        decision_log, "describe", side_effect=decision_log.describe
    ) as describe:
        for number in range(3):
            pipeline.apply(
                spec_of({"hw_vif_model": "igb"}),
                SimpleNamespace(request_id=f"req-{number}"),
            )
    assert describe.call_count == 1
    lines = list(map(json.loads, _texts(history)))
    assert [line["request"] for line in lines] == ["req-0", "req-1", "req-2"]
    assert [line["requirements"][0]["trait"] for line in lines] == [
        "COMPUTE_NET_VIF_MODEL_IGB"
    ] * 3


@pytest.mark.parametrize(
    "error", [None, ValueError("broken"), KeyboardInterrupt()]
)
def test_rejected_or_failed_request_is_recorded_with_the_error_still_raised(
    error: BaseException | None, history: Log
) -> None:
    def broken(_request: object) -> Requirements:
        raise error or AssertionError

    rejecting = _pipeline(unknown_values="reject")
    pipeline = (
        _with_history(Service((LoadedFilter("broken", broken),)))
        if error
        else rejecting
    )
    with pytest.raises(
        (RequestRejected, FilterFailed, KeyboardInterrupt)
    ) as raised:
        pipeline.apply(_spec(hw_vif_model="a\nb"), _CONTEXT)
    (line,) = map(json.loads, _texts(history))
    assert (line["requirements"], line["server"], line["result"]) == (
        [],
        _SERVER,
        "failed" if error else "rejected",
    )
    assert line["reason"] == str(raised.value) or isinstance(
        error, KeyboardInterrupt
    )


def test_without_the_option_and_for_questions_nothing_is_recorded(
    history: Log,
) -> None:
    _pipeline(decision_history=False).apply(
        _spec(hw_vif_model="igb"), _CONTEXT
    )
    _pipeline().decide(_spec(hw_vif_model="igb"))
    assert not _texts(history)


def test_variant_of_a_service_keeps_history_metrics_and_the_machine_type(
    history: Log,
) -> None:
    service = replace(
        _pipeline(),
        look_up_server=lambda _context, _spec: ExistingServer("q35"),
        reasons=None,
    )
    for each in (service.without_waiting(), service.without_nova_style()):
        each.apply(_spec(hw_vif_model="igb"), _CONTEXT)
        assert (each.observers, each.look_up_server) == (
            service.observers,
            service.look_up_server,
        )
    assert len(_texts(history)) == 2


def test_request_whose_identifiers_cannot_be_read_passes_with_a_warning(
    history: Log,
) -> None:
    class Broken:
        @property
        def request_id(self) -> str:
            raise RuntimeError("detached")

    assert _pipeline().apply(_spec(hw_vif_model="igb"), Broken()).requirements
    assert not _texts(history)
    assert (
        "Failed to observe a request: RuntimeError: detached" in history.text
    )


def test_line_is_bounded_and_printable_whatever_a_filter_returns(
    history: Log,
) -> None:
    text = '\x1b[31m\n\u2028é"\\' * 2_000

    def large(_request: object) -> Requirements:
        wish = Preference(trait_named(f"CUSTOM_{'B' * 240}"), text)
        found = Requirements(
            notes=(Note(text, text, warn=True),) * 110,
            preferences=(wish,) * 120,
        )
        for number in range(300):
            found += require(f"CUSTOM_{'A' * 240}_{number}", text)
        return found

    _with_history(Service((LoadedFilter("large", large),))).apply(_spec())
    decision_log.record(
        RequestEvent(
            SimpleNamespace(instance_uuid=text),
            SimpleNamespace(request_id=text),
            None,
            False,
            ValueError(text),
        )
    )
    first, second = _texts(history)
    assert max(len(first), len(second)) < MAX_BYTES
    assert (first + second).isprintable()
    assert first.isascii()
    assert (
        json.loads(first)["left_out"],
        len(json.loads(first)["requirements"]),
    ) == (200 + 100 + 110, 100)


def test_no_password_of_an_error_is_recorded(history: Log) -> None:
    url = "http://admin:secret@host/"
    decision_log.record(
        RequestEvent(
            _spec(),
            None,
            None,
            False,
            ValueError(f"{url} and " + f"{url} " * 300),
        )
    )
    (line,) = map(json.loads, _texts(history))
    assert line["request"] is None
    assert "secret" not in history.text


def test_aggregates_of_a_decision_are_recorded(history: Log) -> None:
    uuid = "33333333-3333-4333-8333-333333333333"
    rows = [
        {
            "uuid": uuid,
            "name": "rack-1",
            "metadata": {"availability_zone": "north"},
        }
    ]
    pipeline = Service.from_names(
        "availability_zone", facts={"aggregates": lambda _context: rows}
    )
    _with_history(pipeline).apply(
        _ServerSpec(Flavor(vcpus=1, memory_mb=512), availability_zone="north")
    )
    (found,) = json.loads(_texts(history)[0])["aggregates"]
    assert (found["aggregates"], found["required"], found["filter"]) == (
        [uuid],
        True,
        "availability_zone",
    )
    assert found["source"] == "availability zone 'north': aggregate rack-1"
