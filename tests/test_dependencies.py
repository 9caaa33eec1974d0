"""The lower bounds of the dependencies: each is stated, and is what ``tox -e lowest`` installs."""

import re

from tests.support.project import ROOT, project_table

CONSTRAINTS = ROOT / "tests" / "lowest" / "constraints.txt"

_BOUND = re.compile(r"([A-Za-z0-9._-]+)>=([0-9.]+)$")
_FOR_CONTRIBUTORS = ("docs", "novas", "services", "test")


def _needed() -> list[str]:
    """Return what the core and the extras of users need, without each other."""
    project = project_table()
    extras = project["optional-dependencies"]
    others = [each for name, needs in extras.items() if name not in _FOR_CONTRIBUTORS for each in needs]
    return [each for each in (*project["dependencies"], *others) if not each.startswith("os-prefilter[")]


def test_every_dependency_has_a_lower_bound_and_no_upper_bound() -> None:
    """An upper one would keep an operator from the versions of their OpenStack release."""
    assert [each for each in _needed() if not _BOUND.fullmatch(each)] == []


def test_lowest_constraints_equal_the_declared_lower_bounds() -> None:
    bounds = {f"{match[1]}=={match[2]}" for each in _needed() if (match := _BOUND.fullmatch(each))}
    lines = CONSTRAINTS.read_text(encoding="utf-8").splitlines()
    written = [line for line in lines if line and line[0] not in "#-"]
    assert written == sorted(bounds, key=str.lower)
