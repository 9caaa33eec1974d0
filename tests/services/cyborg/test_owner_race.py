# SPDX-License-Identifier: Apache-2.0

"""Agents of ours beside a real Cyborg, in a process of its own: its options
are not those that Nova registers.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.processes import ran


def test_laws_of_ownership_hold_beside_a_cyborg_that_reports() -> None:
    laws = Path(__file__).with_name("owner_race.py")
    done = ran(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            str(laws),
        ]
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
