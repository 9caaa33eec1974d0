# SPDX-License-Identifier: Apache-2.0

"""Rules for tests, in short."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

from os_prefilter.rules.model import RuleSet
from os_prefilter.rules.reader import rules_in


def rules_text(*rules: str) -> str:
    """Return a document of these rules, each in YAML's flow style without its
    braces.
    """
    return "rules:\n" + "".join(f"- {{{each}}}\n" for each in rules)


def rules_of(*rules: str) -> RuleSet:
    found, problems = rules_in(rules_text(*rules).encode(), "test")
    assert not problems
    return RuleSet(found)


def rule(
    name: str,
    when: str,
    require: Iterable[str] = (),
    forbid: Iterable[str] = (),
    more: str = "",
) -> str:
    asked = [
        f"{key}: [{', '.join(traits)}]"
        for key, traits in (("require", require), ("forbid", forbid))
        if traits
    ]
    return ", ".join(
        filter(None, (f"name: {name}", f"when: {when}", *asked, more))
    )


def write_rules(path: Path, *rules: str, age: float = 60.0) -> Path:
    """Write a file of rules that was not touched for so many seconds, nor was
    its directory.
    """
    path.write_text(rules_text(*rules), encoding="utf-8")
    return settle(path, age)


def settle(path: Path, age: float = 60.0) -> Path:
    """Let a file and its directory look untouched for so many seconds."""
    for each in (path, path.parent):
        if each.exists():
            os.utime(each, (time.time() - age,) * 2)
    return path
