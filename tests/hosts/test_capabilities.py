# SPDX-License-Identifier: Apache-2.0

"""From the answers of a reporter to traits: total, and only what the reporter
owns.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest
from stevedore import named

from os_prefilter.common.errors import UnusableReporter
from os_prefilter.hosts.capabilities import load_reporter, reporter_traits
from os_prefilter.hosts.drivers.fake import REPORTER
from os_prefilter.vocabulary import QUALIFIED, ROWS


def test_known_traits_are_exactly_the_vocabulary_traits_and_the_qualified_traits() -> (
    None
):
    required = {
        term.trait
        for row in ROWS
        for term in row.values.values()
        if term.trait
    }
    assert set(reporter_traits()) == required | set(QUALIFIED.values())


class _Point:
    def __init__(
        self, name: str, value: str, load: Callable[[], object]
    ) -> None:
        self.name, self.value, self.load, self.group = (
            name,
            value,
            load,
            "os_prefilter.capability_reporters",
        )


def _fail() -> object:
    raise RuntimeError("no such library")


@pytest.mark.parametrize(
    ("points", "problem"),
    [
        (
            [_Point("mine", "a:B", object)],
            "it is a object, not an os_prefilter.hosts.reporter.Reporter",
        ),
        (
            [
                _Point(
                    "mine",
                    "a:B",
                    lambda: replace(REPORTER, owns=frozenset(("no",))),
                )
            ],
            "it owns no, which is no row of the vocabulary",
        ),
        (
            [_Point("mine", "a:B", _fail)],
            "a:B does not load: RuntimeError: no such library",
        ),
        (
            [_Point("mine", "a:B", _fail), _Point("mine", "c:D", _fail)],
            "it is offered more than once: a:B, c:D",
        ),
    ],
)
def test_unusable_reporter_entry_point_is_refused_with_the_reason(
    points: list[_Point], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        named.NamedExtensionManager, "list_entry_points", lambda _self: points
    )
    with pytest.raises(
        UnusableReporter, match=f"reporter 'mine' cannot be used: {problem}. "
    ):
        load_reporter("mine")
