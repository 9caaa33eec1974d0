# SPDX-License-Identifier: Apache-2.0

"""Tables of cases as text: one case a line, its cells separated by ``|``."""

import pytest
from _pytest.mark.structures import ParameterSet


def cases(table: str) -> list[ParameterSet]:
    """Return the cases of a table; a line that begins with # is a comment."""
    found = []
    for line in table.strip().splitlines():
        text = line.strip()
        if text and not text.startswith("#"):
            cells = [cell.strip() for cell in text.split("|")]
            name = " ".join(filter(None, cells))
            found.append(pytest.param(*cells, id=name))
    return found
