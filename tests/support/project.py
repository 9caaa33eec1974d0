# SPDX-License-Identifier: Apache-2.0

"""pyproject.toml, as data."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint, distribution
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]


def our_entry_points(group: str) -> list[EntryPoint]:
    """Return the entry points of a group that this package has installed."""
    ours = distribution("os-prefilter").entry_points
    return [each for each in ours if each.group == group]


def our_commands() -> dict[str, EntryPoint]:
    """Return the commands of ``os-prefilter`` by what a user types."""
    return {
        point.name.removeprefix("prefilter_").replace("_", " "): point
        for point in our_entry_points("openstack.prefilter.v1")
    }


def project_table() -> dict[str, Any]:
    """Return the table ``[project]``."""
    table: dict[str, Any] = tomllib.loads(
        (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    )["project"]
    return table
