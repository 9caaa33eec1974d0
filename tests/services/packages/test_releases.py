# SPDX-License-Identifier: Apache-2.0

"""What the upper constraints of the oldest supported release pin suffices for
this package.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.services.packages.builds import (
    PROJECT,
    clean_run,
    empty_environment,
)

# A set that resolves resolves without some of its members, too; the newer
# releases: tests/test_dependencies.py.
_EXTRAS = "agent,cli,embedded,libvirt,openstackclient"


@pytest.mark.parametrize(
    "python",
    [sys.executable, os.environ.get("OS_PREFILTER_PYTHON39", "")],
    ids=["this Python", "Python 3.9"],
)
def test_every_extra_resolves_with_the_constraints_of_the_release(
    python: str, wheel: Path, tmp_path: Path
) -> None:
    if not python:
        pytest.skip("OS_PREFILTER_PYTHON39 names no interpreter")
    pip = empty_environment(tmp_path / "environment", python) / "pip"
    constraints = min((PROJECT / "tests" / "constraints").glob("*.txt"))
    requirement = f"os-prefilter[{_EXTRAS}] @ {wheel.as_uri()}"
    done = clean_run(
        pip,
        "install",
        "--dry-run",
        "-c",
        constraints,
        requirement,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
