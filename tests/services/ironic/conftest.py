# SPDX-License-Identifier: Apache-2.0

"""The Ironic, once for all tests of this folder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial

import pytest
from openstack import utils

from tests.services.ironic.ironics import Ironic, ironic_running
from tests.services.recorder import Recorder, recorded
from tests.support.loopback import Call, Reply, serving


class Nova:
    """What Ironic finds at the place of Nova's API; the real one is in
    ``tests/services/nova/test_bare_metal.py``.
    """

    def __init__(self) -> None:
        self.url = ""
        self.status = 200
        self.answer: object = {}
        self.asked: list[str] = []

    def reply(self, call: Call) -> Reply | None:
        """Answer a request; with status 0 the connection is closed."""
        self.asked.append(
            f"{call.path} {call.headers['OpenStack-API-Version']}"
        )
        body = (
            self.answer
            if isinstance(self.answer, bytes)
            else json.dumps(self.answer).encode()
        )
        return (
            Reply(self.status, body, {"Content-Type": "application/json"})
            if self.status
            else None
        )


@pytest.fixture(scope="session")
def nova() -> Iterator[Nova]:
    nova = Nova()
    with serving(nova.reply) as nova.url:
        yield nova


@pytest.fixture(scope="session")
def ironic(
    nova: Nova, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ironic]:
    more = f"[nova]\nauth_type = none\nendpoint_override = {nova.url}\n"
    with ironic_running(tmp_path_factory.mktemp("ironic"), more) as running:
        yield running


@pytest.fixture
def proxy(ironic: Ironic) -> Iterator[Recorder]:
    with recorded(ironic.url, waits=True) as between:
        yield between


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the SDK look more often than each two seconds; the rest of the
    waiting is real.
    """
    monkeypatch.setattr(
        "openstack.utils.iterate_timeout",
        partial(utils.iterate_timeout, wait=0.05),
    )
