# SPDX-License-Identifier: Apache-2.0

"""Tables of cases as text: their cells are separated by ``|``."""

from __future__ import annotations

import pytest
from _pytest.mark.structures import ParameterSet


def cases(table: str) -> list[ParameterSet]:
    """Return the cases of a table, one for each line.

    A line that begins with a space has more cells of the case before it. An
    empty line is no case; nor is a comment, which begins with # and a space.

    :raises ValueError: a line begins with # and no space: it may be a case
    """
    rows: list[list[str]] = []
    for line in table.splitlines():
        if not line or line.startswith("# "):
            continue
        if line.startswith("#"):
            raise ValueError(f"neither a comment nor a case: {line}")
        cells = [cell.strip() for cell in line.split("|")]
        if line.startswith(" "):
            rows[-1] += cells
        else:
            rows.append(cells)
    return [
        pytest.param(*cells, id=" ".join(filter(None, cells)))
        for cells in rows
    ]


def pairs(text: str) -> dict[str, str]:
    """Return the names with their values of ``name=value name=value``."""
    found: dict[str, str] = {}
    for item in text.split():
        name, _, value = item.partition("=")
        found[name] = value
    return found
