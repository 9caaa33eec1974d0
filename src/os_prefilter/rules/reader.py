"""Read rules from YAML files and directories: strictly, and with all mistakes at once, each with its line."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from os_prefilter.common.errors import DocumentError
from os_prefilter.common.quoting import escape_line
from os_prefilter.documents.files import read_bytes
from os_prefilter.documents.schema import LINE, NAME, TRAITS, at_least_one, exactly_one, find_mistakes, mapping
from os_prefilter.documents.strict_yaml import parse_document
from os_prefilter.request.requirements import ROOT, UNSUFFIXED
from os_prefilter.rules.checks import Problem, check_rules
from os_prefilter.rules.conditions import EXTRA_SPEC, IMAGE_PROPERTY, Condition
from os_prefilter.rules.model import NO_RULES, Rule, RuleSet

MAX_RULES = 10_000
"""The most rules of a deployment."""
SUFFIXES = (".yaml", ".yml")
"""The suffixes of the files that are read in a directory."""

_KEYS = {"image_property": IMAGE_PROPERTY, "extra_spec": EXTRA_SPEC}
_TEXT = {**LINE, "maxLength": 255, "expected": "a text of one line, of at most 255 characters"}
_VALUE = {"if": {"type": "boolean"}, "else": {**_TEXT, "expected": "a text, true or false"}}
_CONDITION = mapping(
    {},
    {
        **dict.fromkeys(_KEYS, _TEXT),
        "is": _VALUE,
        "in": {
            "type": "array",
            "minItems": 1,
            "items": _VALUE,
            "uniqueItems": True,
            "expected": "a list of at least one value",
        },
        "present": {"const": True, "expected": "true"},
    },
    exactly_one(*_KEYS),
    exactly_one("is", "in", "present"),
)
_TRAIT_LIST = {**TRAITS, "minItems": 1, "uniqueItems": True, "expected": "a list of at least one trait"}
_RULE = mapping(
    {
        "name": NAME,
        "when": {
            "if": {"type": "array"},
            "then": {
                "minItems": 1,
                "items": _CONDITION,
                "expected": "a condition, or a list of them that must all hold",
            },
            "else": _CONDITION,
        },
    },
    {
        "require": _TRAIT_LIST,
        "forbid": _TRAIT_LIST,
        "prefer": _TRAIT_LIST,
        "scope": {
            "type": "string",
            "pattern": r"^[A-Za-z0-9_-]{1,64}\Z",
            "expected": f"{ROOT}, {UNSUFFIXED}, or the suffix of a request group such as _GPU",
        },
        "because": _TEXT,
    },
    at_least_one("require", "forbid", "prefer"),
)
_DOCUMENT = mapping({"rules": {"type": "array"}}, {})


class RulesRead(NamedTuple):
    """What some files hold."""

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


def rule_files(folder: str | Path) -> list[Path]:
    """Return the files of a directory that hold rules, by name; hidden files and other suffixes are ignored.

    :raises DocumentError: it is not a directory, or cannot be read
    """
    try:
        paths = sorted(Path(folder).iterdir(), key=lambda path: path.name)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DocumentError(folder, f"the directory of rules cannot be read: {reason}. Check the path.") from error
    return [path for path in paths if path.suffix in SUFFIXES and not path.name.startswith(".")]


def read_rules(paths: Iterable[str | Path]) -> RulesRead:
    """Return the rules of files, and of the files of directories, with all their problems."""
    rules: list[Rule] = []
    problems: list[Problem] = []
    for path in paths:
        try:
            files = rule_files(path) if _is_folder(path) else [path]
        except DocumentError as error:
            problems.append(Problem(error.path, 0, error.problem))
            continue
        for file in files:
            name = escape_line(str(file))
            try:
                found, mistakes = rules_in(read_bytes(file), name)
            except DocumentError as error:
                found, mistakes = [], [Problem(name, 0, error.problem)]
            rules += found
            problems += mistakes
    if len(rules) > MAX_RULES:
        over = rules[MAX_RULES]
        text = f"there are more than {MAX_RULES} rules, the most that are read."
        return RulesRead(NO_RULES, (*problems, Problem(over.file, over.line, text)))
    problems += check_rules(rules)
    problems.sort(key=lambda each: (each.file, each.line))
    return RulesRead(RuleSet(rules), tuple(problems))


def rules_in(data: bytes, file: str) -> tuple[list[Rule], list[Problem]]:
    """Return the well-formed rules of a document, and the mistakes in the others.

    :param file: names the document in problems and rules; printable
    """
    try:
        document = parse_document(data, file, as_written=True)
    except DocumentError as error:
        return [], [Problem(file, error.line, error.problem)]
    mistakes = find_mistakes(_DOCUMENT, document.value)
    problems = [Problem(file, document.line(path), text) for path, text in mistakes]
    rules = []
    items = document.value.get("rules") if isinstance(document.value, dict) else None
    for number, item in enumerate(items if isinstance(items, list) else ()):
        place = ("rules", number)
        is_named = isinstance(item, dict) and not find_mistakes(NAME, item.get("name"))
        mistakes = find_mistakes(_RULE, item, "it")
        prefix = f"the rule {item['name']}: " if is_named else "a rule: "
        problems += [Problem(file, document.line((*place, *path)), prefix + text) for path, text in mistakes]
        if not mistakes:
            rules.append(_rule(item, file, document.line(place)))
    return rules, problems


def _rule(item: dict[str, Any], file: str, line: int) -> Rule:
    when = item["when"] if isinstance(item["when"], list) else [item["when"]]
    return Rule(
        item["name"],
        tuple(map(_condition, when)),
        tuple(item.get("require", ())),
        tuple(item.get("forbid", ())),
        item.get("scope", ROOT),
        item.get("because", ""),
        file,
        line,
        tuple(item.get("prefer", ())),
    )


def _condition(item: dict[str, Any]) -> Condition:
    (key,) = item.keys() & _KEYS.keys()
    values = item["in"] if "in" in item else [item["is"]] if "is" in item else ()
    return Condition(_KEYS[key], item[key], frozenset(values))


def _is_folder(path: str | Path) -> bool:
    try:
        return Path(path).is_dir()
    except OSError:
        # Reading it gives the reason.
        return False
