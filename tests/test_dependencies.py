# SPDX-License-Identifier: Apache-2.0

"""The lower bounds of the dependencies: each is stated, and is what
``tox -e lowest`` installs.
"""

from __future__ import annotations

import re

from packaging.version import Version

from tests.support.project import ROOT, project_table

RELEASES = ROOT / "tests" / "constraints"
CONSTRAINTS = ROOT / "tests" / "lowest" / "constraints.txt"

_BOUND = re.compile(r"([A-Za-z0-9._-]+)>=([0-9.]+)$")
_FOR_CONTRIBUTORS = ("docs", "novas", "services", "test")


def _needed() -> list[str]:
    """Return what the core and the extras of users need, without each
    other.
    """
    project = project_table()
    extras = project["optional-dependencies"]
    others = [
        each
        for name, needs in extras.items()
        if name not in _FOR_CONTRIBUTORS
        for each in needs
    ]
    return [
        each
        for each in (*project["dependencies"], *others)
        if not each.startswith("os-prefilter[")
    ]


def test_each_dependency_has_only_a_lower_bound_which_the_lowest_constraints_equal() -> (
    None
):
    """An upper one would keep an operator from the versions of their OpenStack
    release.
    """
    assert [each for each in _needed() if not _BOUND.fullmatch(each)] == []
    bounds = {
        f"{match[1]}=={match[2]}"
        for each in _needed()
        if (match := _BOUND.fullmatch(each))
    }
    written = [
        line
        for line in CONSTRAINTS.read_text(encoding="utf-8").splitlines()
        if line and line[0] not in "#-"
    ]
    assert written == sorted(bounds, key=str.lower)


def test_upper_constraints_of_each_supported_release_are_at_or_above_the_lower_bounds() -> (
    None
):
    """``tests/services/packages`` has pip resolve the extras with the
    oldest.
    """
    bounds = {
        match[1].lower().replace("_", "-"): match[2]
        for each in _needed()
        if (match := _BOUND.fullmatch(each))
    }
    compared, below = set(), []
    for path in RELEASES.glob("*.txt"):
        for name, pin in re.findall(
            r"^([\w.-]+)===([^;\s]+)",
            path.read_text(encoding="utf-8"),
            re.MULTILINE,
        ):
            bound = bounds.get(name.lower().replace("_", "-"))
            if bound:
                compared.add(path.stem)
                below += (
                    [(path.stem, name, pin)]
                    if Version(pin) < Version(bound)
                    else []
                )
    assert (len(compared), below) == (6, [])
