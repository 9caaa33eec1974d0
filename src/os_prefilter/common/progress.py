# SPDX-License-Identifier: Apache-2.0

"""Progress of a long computation, as a command shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Optional

Progress = Callable[[str, int, Optional[int]], object]
"""Gets the stage, how many are done, and of how many (None if unknown)."""


def no_progress(_stage: str, _done: int, _of: int | None) -> None:
    """Show nothing."""
