# SPDX-License-Identifier: Apache-2.0

"""One build, and one environment, for all tests of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.services.packages.builds import PROJECT, build


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the source distribution, and the wheel that was
    built from it as a packager does.
    """
    folder = tmp_path_factory.mktemp("dist")
    build(PROJECT, folder)
    return folder


@pytest.fixture(scope="session")
def wheel(built: Path) -> Path:
    (found,) = built.glob("*.whl")
    return found
