"""Commands of ours, run in the process of the test."""

import json
from typing import Any

import pytest

from os_prefilter_tools.cli.main import main


def json_of(capsys: pytest.CaptureFixture[str], *argv: str, code: int = 0) -> Any:
    """Run a command, and return what it prints with ``-f json``."""
    assert main([*argv, "-f", "json"]) == code
    return json.loads(capsys.readouterr().out)
