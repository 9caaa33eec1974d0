# SPDX-License-Identifier: Apache-2.0

"""Nova's scheduler, started as its service starts it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.nova_start import Start, starting


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts Nova's scheduler."""
    with starting(tmp_path) as start:
        yield start
