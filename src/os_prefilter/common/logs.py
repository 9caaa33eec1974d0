# SPDX-License-Identifier: Apache-2.0

"""Loggers whose lines give the reason of an error once."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from oslo_log import log


class _Logger(log.KeywordArgumentAdapter):
    """A logger that appends no traceback of the error being handled.

    oslo.log appends one to each warning and error; ours give the reason
    themselves.

    A traceback is asked for with ``exception``, and is written as always.
    """

    def warning(self, msg: object, *args: Any, **kwargs: Any) -> None:
        _without_handled_error(super().warning, msg, *args, **kwargs)

    def error(self, msg: object, *args: Any, **kwargs: Any) -> None:
        _without_handled_error(super().error, msg, *args, **kwargs)


def _without_handled_error(
    write: Callable[..., None], *args: Any, **kwargs: Any
) -> None:
    if sys.exc_info()[0] is None or kwargs.get("exc_info"):
        write(*args, **kwargs)
        return
    try:
        # Nothing ends the handling of an error but another one; those of this
        # class oslo.log does not append.
        raise KeyError
    except KeyError:
        write(*args, **kwargs)


def get_logger(name: str) -> log.KeywordArgumentAdapter:
    """Return the logger of a module."""
    adapter = log.getLogger(name)
    return _Logger(adapter.logger, adapter.extra)
