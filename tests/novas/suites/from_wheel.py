# SPDX-License-Identifier: Apache-2.0

"""A pytest plugin that lets Nova's own tests run out of its wheel, in the mode
in which nova-scheduler runs.

Nova runs them with stestr in a checkout. What differs here:

* ``etc/nova/api-paste.ini`` is where pip puts a wheel's data files, and a
  configuration option says so.
* Without eventlet: nova-scheduler uses native threads unless told otherwise
  (``nova/cmd/scheduler.py``), and a patched process cannot talk to
  pytest-xdist. Nova's own job for it is
  ``nova-tox-functional-py313-threading``.
"""

from __future__ import annotations

import os
import sysconfig
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

_ENVIRONMENT = {
    "OS_NOVA_DISABLE_EVENTLET_PATCHING": "True",
    # oslo.config reads this one: [wsgi] api_paste_config.
    "OS_WSGI__API_PASTE_CONFIG": str(
        Path(sysconfig.get_path("data"), "etc", "nova", "api-paste.ini")
    ),
    # Seconds for one test, as in Nova's tox.ini: one that hangs fails.
    "OS_TEST_TIMEOUT": "160",
}


def runs_tests(config: pytest.Config) -> bool:
    """Return whether this process runs tests itself: not where it only hands
    them out to pytest-xdist's workers.
    """
    return hasattr(config, "workerinput") or not config.getoption(
        "numprocesses", default=None
    )


def pytest_configure(config: pytest.Config) -> None:
    """Prepare the process before anything of Nova is imported in it."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if runs_tests(config):
        _keep_test_method()


def _keep_test_method() -> None:
    """Let pytest find its own attribute again: when a test ends, Nova deletes
    what it finds on the test case.
    """
    # Imported first of all of Nova: it decides between eventlet and threads
    # for the process.
    import nova.tests.unit  # noqa: F401, PLC0415
    from nova import test  # noqa: PLC0415

    clear = test.TestCase._clear_attrs

    @wraps(clear)
    def clear_but_method(case: Any) -> None:
        method = getattr(case, case._testMethodName)
        clear(case)
        setattr(case, case._testMethodName, method)

    test.TestCase._clear_attrs = clear_but_method
