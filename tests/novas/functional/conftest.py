# SPDX-License-Identifier: Apache-2.0

"""Native threads, not eventlet: Nova decides that for the whole process when
its functional tests are imported.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

os.environ["OS_NOVA_DISABLE_EVENTLET_PATCHING"] = "true"
# Before anything else of Nova, which would import eventlet.
import_module("nova.tests.functional")


@pytest.fixture(scope="session")
def cloud() -> Iterator[Any]:
    from tests.novas.functional import (  # noqa: PLC0415 - after the import above
        cloud as clouds,
    )

    # Nova logs at this level whatever its configuration says; the tests do not
    # read it.
    logging.disable(logging.DEBUG)
    with clouds.cloud() as running:
        yield running
    logging.disable(logging.NOTSET)
