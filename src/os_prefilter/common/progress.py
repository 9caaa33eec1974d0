# SPDX-License-Identifier: Apache-2.0

"""Progress of a long computation, as a command shows it."""

from collections.abc import Callable

Progress = Callable[[str, int, int | None], object]
"""Gets the current stage, how many are done, and how many there are (None if
that is not known).
"""


def no_progress(_stage: str, _done: int, _of: int | None) -> None:
    """Show nothing."""
