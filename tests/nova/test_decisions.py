# SPDX-License-Identifier: Apache-2.0

"""The history of decisions in Nova's scheduler: by its own context and request
spec.
"""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from nova import exception

from os_prefilter.service.decision_log import LOGGER
from tests.support.nova_objects import nova_spec
from tests.support.nova_start import Start, our_entry, user_context

_SERVER = "0c0a4b6e-6c3b-4d2a-9d0f-0a3f4a1f2b77"
_ON = "decision_history = true"


def _recorded(caplog: pytest.LogCaptureFixture) -> list[Any]:
    return [
        json.loads(each.getMessage())
        for each in caplog.records
        if each.name == LOGGER
    ]


def test_request_of_a_user_is_recorded_with_its_request_id_and_the_server(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    start("image_metadata", _ON)
    context = user_context()
    our_entry()(
        context, nova_spec({"hw_vif_model": "igb"}, instance_uuid=_SERVER)
    )
    our_entry()(None, nova_spec({"hw_vif_model": "igb"}))
    found, without = _recorded(caplog)
    assert [item["trait"] for item in found["requirements"]] == [
        "COMPUTE_NET_VIF_MODEL_IGB"
    ]
    assert (found["request"], found["server"]) == (context.request_id, _SERVER)
    assert context.user_id not in str(found)
    assert (without["request"], without["server"], without["result"]) == (
        None,
        None,
        "passed",
    )


def test_rejection_that_the_user_sees_has_the_recorded_reason(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    start("sound_model", _ON)
    spec = nova_spec(
        {"hw_sound_model": "ac97"},
        {"hw:sound_model": "ich6"},
        instance_uuid=_SERVER,
    )
    with pytest.raises(exception.RequestFilterFailed) as raised:
        our_entry()(user_context(), spec)
    (found,) = _recorded(caplog)
    assert (found["result"], bool(found["reason"])) == ("rejected", True)
    assert found["reason"] in str(raised.value)
