# SPDX-License-Identifier: Apache-2.0

"""What the tests of the commands share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.commands import Capture, Cli


@pytest.fixture
def cli(tmp_path: Path, capsys: Capture) -> Cli:
    return Cli(tmp_path, capsys)
