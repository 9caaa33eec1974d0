# SPDX-License-Identifier: Apache-2.0

"""The laws of capability reporters as ready-made tests.

One for each law and host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import ClassVar
from unittest import mock

import pytest

from os_prefilter.common.errors import ConfigurationError
from os_prefilter.common.quoting import escape_line, join_names
from os_prefilter.hosts import capabilities
from os_prefilter.hosts.capabilities import load_reporter
from os_prefilter.hosts.reporter import HostFacts, Reporter
from os_prefilter.vocabulary import row_named, table
from os_prefilter_tools.testing.checks import (
    Forbidden,
    NotLoaded,
    fail,
    forbid_io,
)
from os_prefilter_tools.testing.law import (
    Case,
    disagreements,
    options_of,
    pair_cases,
    platform_cases,
    single_cases,
)

Record = Callable[[str, object], None]
Question = tuple[str, str, str]
"""Row, value, architecture."""

_ARCHITECTURES = ("", "i686")
# A tenant may write anything after the prefix of a machine type.
_LONGER = tuple(
    f"{prefix}{rest}"
    for prefix in row_named("machine_type").spelling.prefixes
    for rest in ("9.1", "", "\n%s\x00", "x" * 1000)
)


def reporter_conformance(
    plugin: str | Reporter, *, facts: Iterable[HostFacts], one_in: int = 1
) -> type:
    """Return a class of tests, one for each law and host.

    Assign it to a name that begins with ``Test``.

    :param plugin: the name of an entry point, or the reporter itself
    :param facts: of hosts of every kind that the reporter distinguishes
    :param one_in: for a quick run, compare one in this many requests with
        several values, different ones on each host
    """
    hosts = tuple(facts)
    if not hosts:
        raise ValueError(
            "reporter_conformance needs the facts of at least one host."
        )
    try:
        reporter = (
            plugin if isinstance(plugin, Reporter) else load_reporter(plugin)
        )
    except ConfigurationError as error:
        return type("Conformance", (NotLoaded,), {"problem": str(error)})
    laws: type = type(
        "Conformance",
        (_Laws,),
        {
            "reporter": reporter,
            "name": plugin,
            "hosts": hosts,
            "one_in": one_in,
        },
    )
    return pytest.mark.parametrize(
        "facts", hosts, ids=[each.host for each in hosts]
    )(laws)


class _Laws:
    """The laws of reporters."""

    reporter: ClassVar[Reporter]
    name: ClassVar[str | Reporter]
    hosts: ClassVar[tuple[HostFacts, ...]]
    one_in: ClassVar[int]

    @pytest.fixture(autouse=True)
    def _is_installed(self) -> Iterator[None]:
        """Use the reporter for its driver.

        Its package need not be installed.
        """
        found = capabilities._reporter  # noqa: SLF001 - the one place that looks up reporters
        own = self.reporter
        with mock.patch.object(
            capabilities,
            "_reporter",
            lambda name: own if name == own.facts.driver else found(name),
        ):
            yield

    def _questions(self) -> list[Question]:
        found = []
        for row in table():
            if row.name not in self.reporter.owns:
                continue
            values = list(row.values)
            if row.name == "machine_type":
                values += _LONGER
            found += [
                (row.name, value, architecture)
                for value in values
                for architecture in _ARCHITECTURES
            ]
        return found

    def _refusal(self, facts: HostFacts, question: Question) -> str:
        try:
            with forbid_io():
                return self.reporter.refusal(facts, *question)
        except Forbidden as error:
            fail(
                f"{_call(facts, question)} must read its facts alone, but"
                f" {error}."
            )
        except Exception as error:  # noqa: BLE001 - that is the test
            fail(
                f"{_call(facts, question)} raises {type(error).__name__}:"
                f" {error}. It must return a reason, or an empty text."
            )

    def test_its_facts_name_the_driver(self, facts: HostFacts) -> None:
        """The driver leads to the reporter."""
        kind = type(facts)
        if not facts.driver:
            fail(
                f"{kind.__name__} names no driver. Add to the class: driver:"
                ' ClassVar[str] = "the entry point\'s name".'
            )
        if isinstance(self.name, str) and facts.driver != self.name:
            fail(
                f"{kind.__name__} names the driver {facts.driver!r}, the entry"
                f" point is {self.name!r}. Make them equal."
            )
        if not isinstance(facts, self.reporter.facts):
            fail(
                f"The reporter reads {self.reporter.facts.__name__} and was"
                f" given {kind.__name__}."
            )

    def test_it_owns_rows_that_exist(self, facts: HostFacts) -> None:
        """It owns rows of the vocabulary, at least one."""
        known = {row.name for row in table()}
        unknown = self.reporter.owns - known
        if unknown or not self.reporter.owns:
            fail(
                f"The reporter of {facts.driver} owns {join_names(unknown)},"
                f" no row of the vocabulary: {join_names(known)}."
            )

    def test_it_answers_for_every_value(self, facts: HostFacts) -> None:
        """Total: each value of each row that it owns.

        Each architecture, exact machine types. It never raises.

        No files, no network, no processes: the host was probed before.
        """
        for question in self._questions():
            reason = self._refusal(facts, question)
            # A tenant's text may be in it, and is put on one line where it is
            # shown.
            text = (
                reason
                if question[1] in row_named(question[0]).values
                else escape_line(str(reason))
            )
            if not isinstance(reason, str) or (
                text and not (text.strip() and text.isprintable())
            ):
                fail(
                    f"{_call(facts, question)} returns {reason!a}. Expected"
                    " one line, or an empty text."
                )

    def test_the_same_facts_get_the_same_answer(
        self, facts: HostFacts
    ) -> None:
        """Pure: again, in another order and thread, for equal facts.

        The facts stay as they are.
        """
        before, equal, questions = (
            repr(facts),
            replace(facts),
            self._questions(),
        )
        first = [self._refusal(facts, each) for each in questions]
        with ThreadPoolExecutor(1) as thread:
            again = list(
                thread.map(
                    lambda each: self._refusal(equal, each),
                    reversed(questions),
                )
            )[::-1]
        for question, one, other in zip(questions, first, again):
            if one != other:
                fail(
                    f"{_call(facts, question)} first returns {one!a} and then"
                    f" {other!a}. It must keep no state."
                )
        if repr(facts) != before:
            fail(f"The reporter changes the facts: {before} became {facts}.")

    def test_each_request_is_reported_if_and_only_if_the_late_check_accepts_it(
        self, facts: HostFacts, record_property: Record
    ) -> None:
        """The law: each value alone, and with each other value.

        The other values are of other rows; each machine type of guests of i686
        counts.

        Of two values, one is of a row that it owns.
        """
        first = self.hosts.index(facts) % self.one_in
        options = options_of(facts)
        compare(single_cases(options), facts, record_property)
        owned = self.reporter.owns
        pairs = pair_cases(owned, first, self.one_in, options)
        compare(pairs, facts, record_property)
        triples = platform_cases(first, self.one_in, options)
        compare(triples, facts, record_property)


def compare(cases: Sequence[Case], facts: HostFacts, record: Record) -> None:
    """Fail the test if traits and driver-side check of a host disagree.

    :param record: pytest's ``record_property``, which receives the number of
        requests
    """
    found = list(disagreements(cases, facts))
    if found:
        fail(
            f"{len(found)} of {len(cases)} requests break the law: the host"
            " has the traits that filters require if and only if the late"
            f" check accepts the request. The first: {found[0]}."
        )
    record("law_cases", len(cases))


def _call(facts: HostFacts, question: Question) -> str:
    """Return a call as the author writes it.

    Facts have their name alone, as they may be long.
    """
    return (
        f"refusal(<{type(facts).__name__} of {facts.host}>,"
        f" {', '.join(map(ascii, question))})"
    )
