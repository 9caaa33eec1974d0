# SPDX-License-Identifier: Apache-2.0

"""pyproject.toml, as data."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import metadata
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]


def entry_points(group: str) -> Sequence[EntryPoint]:
    """Return the installed entry points of a group."""
    if sys.version_info >= (3, 10):
        return tuple(metadata.entry_points(group=group))
    else:  # noqa: RET505 - mypy knows this branch for an older Python
        return metadata.entry_points().get(group, ())


def our_commands() -> dict[str, EntryPoint]:
    """Return the commands of ``os-prefilter`` by what a user types."""
    ours = (
        it
        for it in entry_points("openstack.prefilter.v1")
        if it.value.startswith(("os_prefilter_agent.", "os_prefilter_tools."))
    )
    return {
        point.name.removeprefix("prefilter_").replace("_", " "): point
        for point in ours
    }


def project_table() -> dict[str, Any]:
    """Return the table ``[project]``."""
    table: dict[str, Any] = tomllib.loads(
        (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    )["project"]
    return table
