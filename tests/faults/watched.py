"""A host, goals and log records for tests of the watch while a service fails."""

import logging
from collections.abc import Callable

import pytest

from os_prefilter.hosts.reporter import HostFacts
from os_prefilter.service.agent import LOG, Watch

GOALS = (
    {"CUSTOM_A": True, "CUSTOM_B": True, "CUSTOM_C": False},
    {"CUSTOM_A": False, "CUSTOM_B": True, "CUSTOM_C": True},
    {"CUSTOM_A": False, "CUSTOM_B": False, "CUSTOM_C": False},
)
WHOLE = {frozenset(trait for trait, has in goal.items() if has) for goal in GOALS}


class Host:
    """A host that is always the same."""

    def identity(self) -> str:
        return "host"

    def facts(self) -> HostFacts:
        return HostFacts()


def after_round(watch: Watch, condition: Callable[[], bool]) -> bool:
    """Let the watch do a round; return whether the condition holds then."""
    watch.round()
    return condition()


def records_of(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Return the log records of the watch alone."""
    return [record for record in caplog.records if record.name == LOG.name]


def levels(caplog: pytest.LogCaptureFixture) -> list[int]:
    return [record.levelno for record in records_of(caplog)]
