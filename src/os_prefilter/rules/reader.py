# SPDX-License-Identifier: Apache-2.0

"""Read rules from YAML files and directories.

Strictly, and with all mistakes at once, each with its line.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import chain, product
from pathlib import Path
from typing import Any, NamedTuple

from os_prefilter.common.errors import DocumentError
from os_prefilter.common.progress import Progress, no_progress
from os_prefilter.common.quoting import escape_line
from os_prefilter.documents.files import read_bytes
from os_prefilter.documents.schema import NAME, find_mistakes
from os_prefilter.documents.strict_yaml import parse_document
from os_prefilter.request.requirements import ROOT
from os_prefilter.rules.checks import Problem, check_rules
from os_prefilter.rules.conditions import Clause, RuleCondition
from os_prefilter.rules.model import ALWAYS, Rule, RuleSet, rules_of_hint
from os_prefilter.rules.schema import (
    DOCUMENT,
    NAMED_KEYS,
    OTHER_KEYS,
    RULE,
    TRAIT_LIST,
)

SUFFIXES = (".yaml", ".yml")
"""The suffixes of the files that are read in a directory."""

_BUILT_IN = "builtin:"
_GUEST_SYSTEMS = f"{_BUILT_IN}guest-systems"

# Alternatives are written out, so that each can be indexed and compared: two
# each in seven conditions are 128.
_MOST_CLAUSES = 64


class RulesRead(NamedTuple):
    """Rules of some files, with their problems."""

    rules: RuleSet
    """The well-formed rules."""
    problems: tuple[Problem, ...]
    """Errors and warnings, in the order of the files and lines."""

    @property
    def errors(self) -> list[Problem]:
        """The problems with which the rules must not be used."""
        return [each for each in self.problems if not each.warning]

    @property
    def warnings(self) -> list[Problem]:
        """The problems with which the rules may be used."""
        return [each for each in self.problems if each.warning]


def folder_of(name: str | Path) -> str | Path:
    """Return the directory of built-in rules; any other path as it is.

    :raises DocumentError: if no rules of that name come with the package
    """
    if name == _GUEST_SYSTEMS:
        return Path(__file__).with_name("guest-systems")
    if str(name).startswith(_BUILT_IN):
        raise DocumentError(
            name,
            "no rules of this name come with the package. Write"
            f" {_GUEST_SYSTEMS}, or the path of a directory.",
        )
    return name


def guest_systems() -> RuleSet:
    """Return the rules about what guests' systems need of a host's CPU."""
    return read_rules([_GUEST_SYSTEMS]).rules


def rule_files(folder: str | Path) -> list[Path]:
    """Return the files of a directory that hold rules, sorted by name.

    Hidden files and other suffixes are ignored.

    :raises DocumentError: it is not a directory, or cannot be read
    """
    try:
        paths = sorted(Path(folder).iterdir(), key=lambda path: path.name)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DocumentError(
            folder,
            f"the directory of rules cannot be read: {reason}. Check the"
            " path.",
        ) from error
    return [
        path
        for path in paths
        if path.suffix in SUFFIXES and not path.name.startswith(".")
    ]


def read_rules(
    paths: Iterable[str | Path], progress: Progress = no_progress
) -> RulesRead:
    """Return the rules of files and directories, with all their problems.

    :param progress: called for each rule that is read, with its number and
        that of all in its file, then for each that is checked
    """
    rules: list[Rule] = []
    problems: list[Problem] = []
    # A directory that is named twice has its rules once.
    for named in dict.fromkeys(paths):
        try:
            path = folder_of(named)
            files = rule_files(path) if os.path.isdir(path) else [path]  # noqa: PTH112 - Path's may raise an error
        except DocumentError as error:
            problems.append(Problem(error.path, 0, error.problem))
            continue
        for file in files:
            name = escape_line(str(file))
            try:
                found, mistakes = rules_in(read_bytes(file), name, progress)
            except DocumentError as error:
                found, mistakes = (
                    [],
                    [Problem(name, error.line, error.problem)],
                )
            rules += found
            problems += mistakes
    problems += check_rules(rules, progress)
    problems.sort(key=lambda each: (each.file, each.line))
    return RulesRead(RuleSet(rules), tuple(problems))


def rules_in(
    data: bytes, file: str, progress: Progress = no_progress
) -> tuple[list[Rule], list[Problem]]:
    """Return the well-formed rules of a document, and its mistakes.

    The rules for its ``hint_traits`` are among them.

    :param file: names the document in problems and rules; printable
    :raises DocumentError: if it is not YAML
    """
    document = parse_document(data, file, as_written=True)
    content = document.value if isinstance(document.value, dict) else {}
    problems = [
        Problem(file, document.line(path), text)
        for path, text in find_mistakes(DOCUMENT, document.value)
    ]
    rules: list[Rule] = []
    traits = content.get("hint_traits")
    if isinstance(traits, list) and not find_mistakes(TRAIT_LIST, traits):
        for number, trait in enumerate(traits):
            rules += rules_of_hint(
                trait, file, document.line(("hint_traits", number))
            )
    items = content.get("rules")
    items = items if isinstance(items, list) else []
    for number, item in enumerate(items):
        progress(f"rules of {file}", number + 1, len(items))
        place = ("rules", number)
        is_named = isinstance(item, dict) and not find_mistakes(
            NAME, item.get("name")
        )
        prefix = f"the rule {item['name']}: " if is_named else "a rule: "
        mistakes = find_mistakes(RULE, item, "it")
        problems += [
            Problem(file, document.line((*place, *path)), prefix + text)
            for path, text in mistakes
        ]
        if not mistakes:
            try:
                rules.append(_rule(item, file, document.line(place)))
            except OverflowError as error:
                problems.append(
                    Problem(file, document.line(place), f"{prefix}{error}")
                )
    return rules, problems


def _rule(item: dict[str, Any], file: str, line: int) -> Rule:
    when = _clauses(item["when"]) if "when" in item else ALWAYS
    unless = _clauses(item["unless"]) if "unless" in item else ()
    return Rule(
        item["name"],
        when,
        require=tuple(item.get("require", ())),
        forbid=tuple(item.get("forbid", ())),
        scope=item.get("scope", ROOT),
        because=item.get("because", ""),
        file=file,
        line=line,
        prefer=tuple(item.get("prefer", ())),
        unless=unless,
        needs=item.get("needs", ""),
    )


def _clauses(item: Any) -> tuple[Clause, ...]:
    """Return a condition as alternatives of conditions that must all hold.

    :raises OverflowError: if these are too many
    """
    items = item["all"] if isinstance(item, dict) and "all" in item else item
    if isinstance(item, dict) and "any" in item:
        clauses = dict.fromkeys(
            clause for each in item["any"] for clause in _clauses(each)
        )
    elif not isinstance(items, list):
        return ((_condition(items),),)
    else:
        clauses = {(): None}
        for each in map(_clauses, items):
            # One condition that is written twice counts once.
            clauses = dict.fromkeys(
                tuple(dict.fromkeys(chain(*pair)))
                for pair in product(clauses, each)
            )
            if len(clauses) > _MOST_CLAUSES:
                break
    if len(clauses) > _MOST_CLAUSES:
        raise OverflowError(
            f"it has more than {_MOST_CLAUSES} alternatives. Divide it into"
            " several rules."
        )
    return tuple(clauses)


def _condition(item: dict[str, Any]) -> RuleCondition:
    for key in item.keys() & OTHER_KEYS.keys():
        values = item[key] if isinstance(item[key], list) else [item[key]]
        return RuleCondition(OTHER_KEYS[key], "", frozenset(values))
    (key,) = item.keys() & NAMED_KEYS.keys()
    values = (
        item["in"]
        if "in" in item
        else [item[each] for each in ("is", "contains") if each in item]
    )
    return RuleCondition(
        NAMED_KEYS[key], item[key], frozenset(values), "contains" in item
    )
