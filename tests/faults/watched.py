# SPDX-License-Identifier: Apache-2.0

"""A host, goals and log records for tests of the watch while a service
fails.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from os_prefilter import Options
from os_prefilter.hosts.desired_traits import Goal
from os_prefilter.hosts.marker_traits import REPORTED
from os_prefilter.hosts.reporter import HostFacts
from os_prefilter_agent.agent import LOG, Watch

_STATES = (
    {"CUSTOM_A": True, "CUSTOM_B": True, "CUSTOM_C": False},
    {"CUSTOM_A": False, "CUSTOM_B": True, "CUSTOM_C": True},
    {"CUSTOM_A": False, "CUSTOM_B": False, "CUSTOM_C": False},
)
_KEY = "ABCDE"
OURS = frozenset(_STATES[0])
GOALS = tuple(
    Goal(state, {_KEY: OURS}, frozenset((_KEY,)), Options())
    for state in _STATES
)
MARKER = f"{REPORTED}{_KEY}"
WHOLE = {
    frozenset(trait for trait, has in state.items() if has)
    for state in _STATES
}
"""What a host has of ours once it has reported."""


class Host:
    def identity(self) -> str:
        return "host"

    def facts(self) -> HostFacts:
        return HostFacts()


def after_round(watch: Watch, condition: Callable[[], bool]) -> bool:
    """Let the watch do a round; return whether the condition holds then."""
    watch.round()
    return condition()


def records_of(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == LOG.name]


def levels(caplog: pytest.LogCaptureFixture) -> list[int]:
    return [record.levelno for record in records_of(caplog)]
