# SPDX-License-Identifier: Apache-2.0

"""The laws of rules that are reloaded, in each order of events, by hypothesis;
a request comes after each of them.

The files are real, the clock and Placement are the machine's. Faults are put
back one by one, and are found.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import partial
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
)
from hypothesis.strategies import sampled_from

from os_prefilter.rules import reload
from os_prefilter.rules.checks import Problem
from os_prefilter.rules.reader import RulesRead, read_rules
from os_prefilter.rules.reload import SETTLED, RuleFolders
from tests.support.rule_texts import rule as rule_text
from tests.support.rule_texts import rules_text
from tests.support.state_machines import Fault, assert_correct, assert_found

Traits = tuple[str, ...]
STANDARD, BROKEN = "HW_CPU_X86_AVX2", ("lower",)
VALID: list[Traits] = [
    ("CUSTOM_1",),
    ("CUSTOM_2", "CUSTOM_3"),
    ("CUSTOM_3", STANDARD),
]
CONTENTS = sampled_from((*VALID, BROKEN, ()))
NAMES, PLACEMENTS = ("a.yaml", "b.yaml"), sampled_from(("new", "old", "down"))


class Rules(RuleBasedStateMachine):
    """The rules of a directory and the traits in Placement, beside what is
    expected of them.
    """

    def __init__(self) -> None:
        super().__init__()
        clock = SimpleNamespace(
            time=lambda: self.now, sleep=lambda _seconds: None
        )
        self.patched = patch.multiple(
            reload, LOG=self, time=clock, read_rules=self.read_rules
        )
        self.patched.start()
        self.root = TemporaryDirectory()
        self.folder = Path(self.root.name, "mounted", "rules")
        self.folder.mkdir(parents=True)
        self.now: float = 1e6
        self.is_away = self.is_asked = False
        self.created, self.logged = set[str](), list[str]()
        self.meanwhile: Any = lambda: None
        self.failures, self.reads = list[Problem](), 0
        # What is expected.
        self.on_disk, self.in_use = dict[str, Traits](), dict[str, Traits]()
        self.modified, self.problems = dict[str, float](), dict[str, object]()
        self.ensured, self.lines = set[str](), list[str]()

    def teardown(self) -> None:
        self.patched.stop()
        self.root.cleanup()

    def read_rules(self, *arguments: Any) -> RulesRead:
        self.reads += 1
        found = read_rules(*arguments)
        self.meanwhile()
        return found._replace(problems=(*found.problems, *self.failures))

    def ensure_traits(self, traits: Iterable[str]) -> None:
        self.is_asked = True
        if self.placement == "down" or (
            self.placement == "old" and STANDARD in traits
        ):
            raise OSError(self.placement)
        self.created.update(traits)

    def error(self, _format: str, text: str) -> None:
        self.logged.append(
            "files" if text.startswith("Failed to reload") else "traits"
        )

    def info(self, text: str, value: object) -> None:
        self.logged.append(
            "reloaded" if text.startswith("Reloaded") else f"{value} again"
        )

    @initialize(placement=PLACEMENTS)
    def start(self, placement: str) -> None:
        self.placement = placement
        self.write(NAMES[0], VALID[0], 60.0)
        self.rule_folders = RuleFolders([str(self.folder)], self.ensure_traits)
        # The first ones are used at once.
        self.latest = self.in_use = dict(self.on_disk)

    @rule(
        name=sampled_from(NAMES),
        traits=CONTENTS,
        age=sampled_from((60.0, 60.0, 0.0, -3600.0)),
    )
    def write(self, name: str, traits: Traits, age: float) -> None:
        """Write a file so many seconds ago, or remove it."""
        path, when = (
            self.folder / name,
            f"{{image_property: os_distro, is: {name}}}",
        )
        path.write_text(
            rules_text(rule_text(name, when, traits)), encoding="utf-8"
        )
        self.on_disk[name] = traits
        if not traits:
            path.unlink()
            del self.on_disk[name]
        # No two times are the same.
        self.now += 0.01
        self.modified |= {
            name: self.now - age if traits else -inf,
            "": self.now - age,
        }
        for each in filter(Path.exists, (path, self.folder)):
            os.utime(each, ns=(0, int((self.now - age) * 1e9)))

    @rule()
    def unmount_for_a_request(self) -> None:
        """Let the directory go, and return exactly as it was."""
        mounted, self.is_away = self.folder.parent, True
        unmounted = mounted.rename(mounted.with_name("unmounted"))
        self.request()
        unmounted.rename(mounted)
        self.is_away = False

    @rule()
    def settle(self) -> None:
        self.now += 2 * SETTLED

    @rule(placement=PLACEMENTS)
    def change_placement(self, placement: str) -> None:
        self.placement = placement

    @rule(traits=CONTENTS)
    def write_and_read_again(self, traits: Traits) -> None:
        """Use on SIGHUP what was written just now."""
        self.write(NAMES[1], traits, 0.0)
        self.rule_folders.read_again()
        self.ensured.clear()
        self.expect_reload(forced=True)

    @rule(traits=sampled_from(VALID), later=sampled_from(VALID))
    def write_while_they_are_read(self, traits: Traits, later: Traits) -> None:
        self.write(NAMES[0], traits, 60.0)
        self.expect_reload(is_changing=True)
        self.meanwhile = partial(self.write, NAMES[1], later, 60.0)
        assert self.rule_folders() is self.used
        self.meanwhile = lambda: None

    @rule(traits=sampled_from(VALID))
    def fail_to_read_once(self, traits: Traits) -> None:
        """Have no file left to open, for a moment."""
        self.write(NAMES[0], traits, 60.0)
        self.expect_reload(failure="a moment")
        self.failures.append(
            Problem(str(self.folder), 0, "the file cannot be read")
        )
        self.rule_folders()
        self.failures.clear()

    def expect_reload(
        self,
        *,
        forced: bool = False,
        is_changing: bool = False,
        failure: str = "",
    ) -> None:
        broken = [name for name in NAMES if self.on_disk.get(name) == BROKEN]
        if self.is_away:
            self.expect_problem("files", "away")
        elif not forced and any(
            0 <= self.now - modified < SETTLED
            for modified in self.modified.values()
        ):
            return
        elif broken or failure:
            self.expect_problem("files", failure or broken)
        elif not is_changing:
            self.expect_problem("files", "")
            self.lines += ["reloaded"] * (self.latest != self.on_disk)
            self.latest = dict(self.on_disk)

    def expect_problem(self, about: str, problem: object) -> None:
        before, self.problems[about] = self.problems.get(about, ""), problem
        if problem != before:
            self.lines.append(about if problem else f"{about} again")

    @invariant()
    def request(self) -> None:
        """Use the latest valid files as a whole once Placement has their
        traits; else what was in use.
        """
        self.created, self.is_asked = set(), False
        self.used = self.rule_folders()
        self.expect_reload()
        wanted = {trait for traits in self.latest.values() for trait in traits}
        missing = wanted - self.ensured
        lacking = {"new": set[str](), "old": {STANDARD}, "down": missing}[
            self.placement
        ]
        assert (self.is_asked, self.created) == (
            bool(missing),
            missing - lacking,
        )
        self.ensured |= self.created
        self.expect_problem(
            "traits", self.placement if missing & lacking else ""
        )
        if wanted <= self.ensured:
            self.in_use = self.latest
        assert {
            Path(each.file).name: each.require for each in self.used.rules
        } == self.in_use
        assert self.logged == self.lines
        # Unchanged files, broken ones as well, are not read again.
        reads = self.reads
        assert self.rule_folders() is self.used
        assert self.reads == reads


def test_rules_in_use_are_as_documented_in_any_order_of_events() -> None:
    assert_correct(Rules, 15)


FAULTS: dict[str, Fault] = {
    "files being written are used": (
        RuleFolders._reload,
        "or not _are_settled(stats)",
        "",
    ),
    "SIGHUP waits for files being written": (
        RuleFolders.read_again,
        "forced=True",
        "forced=False",
    ),
    "SIGHUP does not forget the traits": (
        RuleFolders.read_again,
        "self._ensured = frozenset()",
        "pass",
    ),
    "unchanged files are read": (
        RuleFolders._reload,
        "stats == self._stats or ",
        "",
    ),
    "a file that changes is used": (
        RuleFolders._reload,
        "not forced and self._stat_all() != stats",
        "False",
    ),
    "an unreadable directory is empty": (
        RuleFolders._reload,
        "stats if error.line else []",
        "setattr(self, 'latest', RuleSet())",
    ),
    "a directory that returns is not read": (
        RuleFolders._reload,
        "stats if error.line else []",
        "self._stats",
    ),
    "what could not be read is not read again": (
        RuleFolders._reload,
        "if error.line else []",
        "if 'stats' in locals() else []",
    ),
    "broken files are read at each request": (
        RuleFolders._reload,
        "stats if error.line else []",
        "[]",
    ),
    "rules that are taken back still wait": (
        RuleFolders._has_traits,
        "    custom = {",
        "    if not missing: return True\n    custom = {",
    ),
    "the rules without mistakes are used": (
        RuleFolders._read,
        "if read.errors:",
        "if False:",
    ),
    "rules are used without their traits": (
        RuleFolders.__call__,
        "or self._in_use is None",
        "or True",
    ),
    "the first rules wait": (
        RuleFolders.__call__,
        "or self._in_use is None",
        "or setattr(self, '_in_use', RuleSet())",
    ),
    "traits are created at each request": (
        RuleFolders._has_traits,
        "self._ensured |= traits",
        "pass",
    ),
    "one trait keeps others away": (
        RuleFolders._has_traits,
        "filter(None, (custom, missing - custom))",
        "[missing]",
    ),
    "a problem is logged at each request": (
        RuleFolders._log_once,
        "problem and problem != before",
        "problem",
    ),
    "the end of a problem is not logged": (
        RuleFolders._log_once,
        "elif before and not problem",
        "elif False",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_is_put_back_is_found(fault: str) -> None:
    assert_found(Rules, FAULTS[fault])
