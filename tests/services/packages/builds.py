# SPDX-License-Identifier: Apache-2.0

"""Building the distributions, away from the environment that the tests run
in.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[3]


def clean_run(
    *command: str | Path, cwd: Path, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a command with nothing of this environment, but for how pip is set
    up and ``variables``.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        # pip's cache is the user's, which that of a run of the tests hides.
        if not name.startswith(
            (
                "PYTHON",
                "VIRTUAL_ENV",
                "TOX",
                "COV",
                "SOURCE_DATE_EPOCH",
                "XDG_CACHE_HOME",
            )
        )
    }
    return subprocess.run(
        [str(each) for each in command],
        cwd=cwd,
        env=kept | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )


def build(
    project: Path, folder: Path, *options: str, **variables: str
) -> None:
    """Build the source distribution, and from it the wheel; with
    ``--sdist --wheel`` both from the tree.
    """
    command = (sys.executable, "-m", "build", "--outdir")
    done = clean_run(
        *command, folder, *options, project, cwd=folder, **variables
    )
    assert done.returncode == 0, done.stderr


def empty_environment(folder: Path, python: str = sys.executable) -> Path:
    """Make a virtual environment; return the folder of its commands."""
    command = (python, "-m", "venv", folder)
    done = clean_run(*command, cwd=folder.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "bin"
