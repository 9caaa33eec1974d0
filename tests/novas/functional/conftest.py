#    Licensed under the Apache License, Version 2.0 (the "License"); you may
#    not use this file except in compliance with the License. You may obtain
#    a copy of the License at
#
#         http://www.apache.org/licenses/LICENSE-2.0
#
#    Unless required by applicable law or agreed to in writing, software
#    distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
#    WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
#    License for the specific language governing permissions and limitations
#    under the License.

"""Native threads, not eventlet: Nova decides that for the whole process when its functional tests are imported."""

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
    from tests.novas.functional import cloud as clouds  # noqa: PLC0415 - after the import above

    # Nova logs at this level whatever its configuration says; the tests do not read it.
    logging.disable(logging.DEBUG)
    with clouds.cloud() as running:
        yield running
    logging.disable(logging.NOTSET)
