# SPDX-License-Identifier: Apache-2.0

"""From the answers of a reporter to traits: total, and only what the reporter
owns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from stevedore import named

from os_prefilter.common.errors import UnusableReporter
from os_prefilter.hosts.capabilities import load_reporter, reporter_traits
from os_prefilter.hosts.drivers.fake import REPORTER
from os_prefilter.vocabulary import I686, ROWS


def test_known_traits_are_exactly_the_vocabulary_traits_and_those_for_i686() -> (
    None
):
    required = {
        term.trait
        for row in ROWS
        for term in row.values.values()
        if term.trait
    }
    assert set(reporter_traits()) == required | set(I686.values())


class _Point:
    """An entry point of the name ``mine``."""

    name = "mine"
    group = "os_prefilter.capability_reporters"

    def __init__(self, value: str, load: Callable[[], object]) -> None:
        self.value = value
        self.load = load


def _fail() -> object:
    raise RuntimeError("no such library")


def _owner_of_no_row() -> object:
    return replace(REPORTER, owns=frozenset({"no"}))


_NO_REPORTER = "it is a object, not an os_prefilter.hosts.reporter.Reporter"
_NO_ROW = "it owns no, which is no row of the vocabulary"
_NOT_LOADED = "a:B does not load: RuntimeError: no such library"
_OFFERED_TWICE = "it is offered more than once: a:B, c:D"


@pytest.mark.parametrize(
    ("points", "problem"),
    [
        ([_Point("a:B", object)], _NO_REPORTER),
        ([_Point("a:B", _owner_of_no_row)], _NO_ROW),
        ([_Point("a:B", _fail)], _NOT_LOADED),
        ([_Point("a:B", _fail), _Point("c:D", _fail)], _OFFERED_TWICE),
    ],
    ids=["another type", "unknown row", "does not load", "offered twice"],
)
def test_unusable_reporter_entry_point_is_refused_with_the_reason(
    points: list[_Point], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = named.NamedExtensionManager
    monkeypatch.setattr(manager, "list_entry_points", lambda _self: points)
    message = f"reporter 'mine' cannot be used: {problem}. "
    with pytest.raises(UnusableReporter, match=message):
        load_reporter("mine")
