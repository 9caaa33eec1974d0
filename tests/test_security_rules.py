"""The security rules of ruff: the documentation has each exception that the code makes, and no other."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path(__file__).parent.parent
_RULE = re.compile(r"S\d{3}")

Exceptions = set[tuple[str, str]]
"""(file or folder, rule)"""


def _in_code() -> Iterator[tuple[str, str]]:
    for folder in ("src", "tests", "docs"):
        for path in (_ROOT / folder).rglob("*.py"):
            for codes in re.findall(r"# noqa: ([A-Z0-9, ]+)", path.read_text(encoding="utf-8")):
                for rule in _RULE.findall(codes):
                    yield path.relative_to(_ROOT).as_posix(), rule


def _in_configuration() -> Iterator[tuple[str, str]]:
    lint = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["ruff"]["lint"]
    assert not [rule for rule in lint["ignore"] if _RULE.fullmatch(rule) or rule == "S"]
    for pattern, rules in lint["per-file-ignores"].items():
        for rule in filter(_RULE.fullmatch, rules):
            yield pattern.removesuffix("/**"), rule


def _documented() -> Exceptions:
    text = (_ROOT / "docs" / "faults.rst").read_text(encoding="utf-8").partition("The security rules of ruff")[2]
    rows = re.findall(r"^``(\S+)`` +(S\d{3}(?:, S\d{3})*) ", text, re.MULTILINE)
    return {(place, rule) for place, rules in rows for rule in _RULE.findall(rules)}


def _covers(place: str, path: str) -> bool:
    return path == place or path.startswith(f"{place}/")


def test_the_documentation_has_each_exception_and_no_other() -> None:
    """Whoever excepts something says why where the others are; what is no exception any more goes from there."""
    made, documented = {*_in_code(), *_in_configuration()}, _documented()
    assert made
    for path, rule in made:
        assert any(_covers(place, path) for place, each in documented if each == rule), f"{rule} in {path}"
    for place, rule in documented:
        assert any(_covers(place, path) for path, each in made if each == rule), (
            f"{rule} in {place}, of docs/faults.rst"
        )
