# SPDX-License-Identifier: Apache-2.0

"""The pytest plugin of os-prefilter: fixtures for plugin authors.

pytest imports this module wherever os-prefilter is installed, also in the test
runs of others. So it imports nothing of this project until a fixture is used,
has no hooks, and all its names begin with ``prefilter_`` (ADR 0002).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest


@pytest.fixture
def prefilter_request() -> Callable[..., Any]:
    """Return a function that builds a request.

    :func:`os_prefilter_tools.testing.request_of`
    """
    from os_prefilter_tools.testing import (  # noqa: PLC0415 - only where it is used
        request_of,
    )

    return request_of


@pytest.fixture
def prefilter_pipeline() -> Callable[..., Any]:
    """Return a function that builds a pipeline.

    :func:`os_prefilter_tools.testing.pipeline_of`
    """
    from os_prefilter_tools.testing import pipeline_of  # noqa: PLC0415

    return pipeline_of


@pytest.fixture
def prefilter_facts() -> Callable[..., Any]:
    """Return a function that builds the facts of a host.

    By default ``kind=FakeFacts``.
    """
    from os_prefilter_tools.testing import facts_of  # noqa: PLC0415

    return facts_of


@pytest.fixture
def prefilter_placement() -> Iterator[Callable[..., Any]]:
    """Return a function that starts an embedded Placement with a fleet.

    It returns a client.
    """
    from os_prefilter_tools.testing import placement_with  # noqa: PLC0415

    with ExitStack() as until_the_end:
        yield lambda fleet=None: until_the_end.enter_context(
            placement_with(fleet)
        )
