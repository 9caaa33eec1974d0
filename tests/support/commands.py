# SPDX-License-Identifier: Apache-2.0

"""Commands of ours, run in the process of the test, and the files that they
read.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from os_prefilter_tools.cli.main import main

Capture = pytest.CaptureFixture[str]


def placed(path: Path, content: object) -> str:
    """Write a file: text as it is, anything else as JSON; return its path."""
    path.write_text(
        content if isinstance(content, str) else json.dumps(content),
        encoding="utf-8",
    )
    return str(path)


def json_of(capsys: Capture, *argv: str, code: int = 0) -> Any:
    """Run a command, and return what it prints with ``-f json``."""
    assert main([*argv, "-f", "json"]) == code
    return json.loads(capsys.readouterr().out)


class Cli:
    """Run commands, and write the files that they read into one folder."""

    def __init__(self, folder: Path, capsys: Capture) -> None:
        self.folder = folder
        self.capsys = capsys

    def place(self, name: str, content: object) -> str:
        return placed(self.folder / name, content)

    def run(self, *argv: str, code: int = 0) -> tuple[str, str]:
        """Return what a command prints on stdout and stderr."""
        assert main([*argv]) == code
        return self.capsys.readouterr()

    def json(self, *argv: str, code: int = 0) -> Any:
        return json_of(self.capsys, *argv, code=code)

    def error(self, *argv: str) -> str:
        """Return what a command that fails prints on stderr."""
        _, err = self.run(*argv, code=1)
        return err
