# SPDX-License-Identifier: Apache-2.0

"""Start of the commands ``os-prefilter`` and ``os-prefilter-status``.

Importing the commands takes a few tenths of a second, and Ctrl-C during that
would print a traceback. So this module imports them where an interruption is
caught.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from importlib import import_module

_ERROR = 1
_INTERRUPTED = 130
# oslo.upgradecheck's exit code for an error that is not the result of a check.
_UNEXPECTED = 255


def status() -> int:
    """Run ``os-prefilter-status`` and return its exit code.

    It is that of oslo.upgradecheck, or 130 after Ctrl-C.
    """
    return _run(
        "status",
        "os-prefilter-status needs {}, which is not installed: pip install"
        " '.[agent]'",
        _UNEXPECTED,
    )


def main() -> int:
    """Run the command; return its exit code, which is 130 after Ctrl-C."""
    return _run(
        "main",
        "os-prefilter: the command needs more than the library: pip install"
        " '.[cli]'",
        _ERROR,
    )


def _run(program: str, missing: str, code: int) -> int:
    """Import a program of the folder cli, and run it.

    :param missing: the message if a package is not installed, whose name
        stands for ``{}``
    :param code: the exit code then
    """
    # Python's own handler, or none if a script ignores the signal.
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        # The import machinery swallows exceptions at some places.
        signal.signal(
            signal.SIGINT, lambda _number, _frame: os._exit(_INTERRUPTED)
        )
    try:
        try:
            module = import_module(f"os_prefilter_tools.cli.{program}")
        except ModuleNotFoundError as error:
            advice = "in the repository of os-prefilter"
            print(f"{missing.format(error.name)} {advice}", file=sys.stderr)  # noqa: T201
            return code
        finally:
            signal.signal(signal.SIGINT, handler)
        return int(module.main(sys.argv[1:]))
    except KeyboardInterrupt:
        return _INTERRUPTED
    finally:
        # At its end the interpreter would look through all that was imported,
        # an eighth of the time of a short command.
        gc.freeze()
