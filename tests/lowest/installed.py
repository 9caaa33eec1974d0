# SPDX-License-Identifier: Apache-2.0

"""Check that each dependency is here at its lower bound:
``python -m tests.lowest.installed``.
"""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from packaging.version import Version

CONSTRAINTS = Path(__file__).parent / "constraints.txt"
# It compiles against the header files of a libvirt that is not newer: the
# extra libvirt is left out.
_OPTIONAL = {"libvirt-python"}


def wrong(constraints: str) -> list[str]:
    """Return a line for each package of ``NAME==VERSION`` lines that is not
    there in that version.
    """
    pairs = [
        line.split("==")
        for line in constraints.splitlines()
        if line and line[0] not in "#-"
    ]
    return [
        f"{name}: {found or 'nothing'} is installed, the lower bound is"
        f" {bound}"
        for name, bound in pairs
        for found in [_installed(name)]
        if (found or name not in _OPTIONAL)
        and (not found or Version(found) != Version(bound))
    ]


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


if __name__ == "__main__":
    sys.exit("\n".join(wrong(CONSTRAINTS.read_text(encoding="utf-8"))) or None)
