# SPDX-License-Identifier: Apache-2.0

"""Lines of the log, as oslo.log writes them while an error is being
handled.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from oslo_config import cfg
from oslo_log import log
from oslo_log.formatters import ContextFormatter

import os_prefilter
from os_prefilter.common.logs import get_logger

LOG = get_logger("os_prefilter.test")


@pytest.fixture(autouse=True)
def _as_services_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.register_options(cfg.CONF)
    monkeypatch.setattr(caplog.handler, "formatter", ContextFormatter())


@pytest.mark.parametrize("write", [LOG.warning, LOG.error])
def test_reason_of_an_error_is_in_its_line_once(
    write: object, caplog: pytest.LogCaptureFixture
) -> None:
    assert callable(write)
    try:
        raise OSError("the disk is full")
    except OSError as error:
        write("Failed to write: %s", error)
    write("Failed again")
    first, second = caplog.text.splitlines()
    assert first.endswith("Failed to write: the disk is full")
    assert second.endswith("Failed again")


def test_traceback_is_written_where_it_is_asked_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    try:
        raise OSError("the disk is full")
    except OSError:
        LOG.exception("A filter failed")
    assert "A filter failed: OSError: the disk is full" in caplog.text
    assert "Traceback (most recent call last)" in caplog.text


def test_each_module_has_such_a_logger() -> None:
    """But for the core, which needs no oslo.log: its few lines are about
    requests, not about errors.
    """
    package = Path(os_prefilter.__file__).parent
    users = [
        path
        for path in package.rglob("*.py")
        if "getLogger(__name__)" in path.read_text(encoding="utf-8")
    ]
    assert {str(path.relative_to(package)) for path in users} == {
        "pipeline/writer.py",
        "request/extra_specs.py",
    }
