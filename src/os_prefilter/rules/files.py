"""The files and directories that hold rules: finding them, reading them all, and checking the rules together."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from os_prefilter.common.quoting import escape_line
from os_prefilter.documents.files import read_bytes
from os_prefilter.errors import DocumentError
from os_prefilter.rules.checks import Problem, check_rules
from os_prefilter.rules.model import NO_RULES, Rule, RuleSet
from os_prefilter.rules.reader import rules_in

MAX_RULES = 10_000
"""The most rules of a deployment."""
SUFFIXES = (".yaml", ".yml")
"""How the names of the files end that are read of a directory."""


class RulesRead(NamedTuple):
    """What is in some files."""

    rules: RuleSet
    """Those that are well-formed."""
    problems: tuple[Problem, ...]
    """In the order of the files and lines; errors, and warnings."""

    @property
    def errors(self) -> list[Problem]:
        """The problems with which the rules must not be used."""
        return [each for each in self.problems if not each.warning]

    @property
    def warnings(self) -> list[Problem]:
        """The problems with which they may be used."""
        return [each for each in self.problems if each.warning]


def rule_files(folder: str | Path) -> list[Path]:
    """Return the files of a directory that hold rules, by name; hidden files and those of other names are none.

    :raises DocumentError: if it is no directory, or cannot be read.
    """
    try:
        paths = sorted(Path(folder).iterdir(), key=lambda path: path.name)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DocumentError(folder, f"the directory of rules cannot be read: {reason}. Check the path.") from error
    return [path for path in paths if path.suffix in SUFFIXES and not path.name.startswith(".")]


def read_rules(paths: Iterable[str | Path]) -> RulesRead:
    """Return the rules of files, and of the files of directories, with all that is wrong with them."""
    rules: list[Rule] = []
    problems: list[Problem] = []
    for path in paths:
        try:
            files = rule_files(path) if _is_folder(path) else [path]
        except DocumentError as error:
            problems.append(Problem(error.path, 0, error.problem))
            continue
        for file in files:
            found, wrong = _read_file(file)
            rules += found
            problems += wrong
    if len(rules) > MAX_RULES:
        over = rules[MAX_RULES]
        problems.append(
            Problem(over.file, over.line, f"there are more than {MAX_RULES} rules, the most that are read.")
        )
        return RulesRead(NO_RULES, tuple(problems))
    problems += check_rules(rules)
    problems.sort(key=lambda each: (each.file, each.line))
    return RulesRead(RuleSet(rules), tuple(problems))


def _read_file(path: str | Path) -> tuple[list[Rule], list[Problem]]:
    file = escape_line(str(path))
    try:
        return rules_in(read_bytes(path), file)
    except DocumentError as error:
        return [], [Problem(file, 0, error.problem)]


def _is_folder(path: str | Path) -> bool:
    try:
        return Path(path).is_dir()
    except OSError:
        # Reading it says what is the matter.
        return False
