"""Start of the commands ``os-prefilter`` and ``os-prefilter-status``.

Importing the commands takes a few tenths of a second, and Ctrl-C during that would print a traceback. So this module
imports them where an interruption is caught.
"""

import os
import signal
import sys
from collections.abc import Callable, Sequence

Program = Callable[[Sequence[str]], int]

_ERROR = 1
_INTERRUPTED = 130
# oslo.upgradecheck's exit code for an error that is not the result of a check.
_UNEXPECTED = 255


def status() -> int:
    """Run ``os-prefilter-status``; return its exit code, that of oslo.upgradecheck, or 130 after Ctrl-C."""
    return _run(_status)


def main() -> int:
    """Run the command; return its exit code, which is 130 after Ctrl-C."""
    return _run(_command)


def _status() -> Program | int:
    try:
        from os_prefilter_tools.cli.status import main as run  # noqa: PLC0415 - its packages may be missing
    except ModuleNotFoundError as error:
        problem = f"os-prefilter-status needs {error.name}, which is not installed"
        print(f"{problem}: pip install '.[agent]' in the repository of os-prefilter", file=sys.stderr)  # noqa: T201
        return _UNEXPECTED
    return run


def _command() -> Program | int:
    try:
        from os_prefilter_tools.cli.main import main as run  # noqa: PLC0415 - see above
    except ModuleNotFoundError:
        problem = "os-prefilter: the command needs more than the library"
        print(f"{problem}: pip install '.[cli]' in the repository of os-prefilter", file=sys.stderr)  # noqa: T201
        return _ERROR
    return run


def _run(load: Callable[[], Program | int]) -> int:
    """Import a program, and run it."""
    # Python's own handler, or none if a script ignores the signal.
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        # The import machinery swallows exceptions at some places.
        signal.signal(signal.SIGINT, lambda _number, _frame: os._exit(_INTERRUPTED))
    try:
        program = load()
        signal.signal(signal.SIGINT, handler)
        return program if isinstance(program, int) else program(sys.argv[1:])
    except KeyboardInterrupt:
        return _INTERRUPTED
