"""The program ``os-prefilter``."""

import io
import logging
import os
import sys
from importlib.metadata import version
from pathlib import Path

from os_prefilter.errors import PrefilterError

_NEEDS_EXTRA = "os-prefilter: the command needs more than the library: pip install 'os-prefilter[cli]'"
_ERROR = 1
_INTERRUPTED = 130
_BROKEN_PIPE = 141


def main(argv: list[str] | None = None) -> int:
    """Run the command; return its exit code: 0, 1 for an error, 2 if no host remains."""
    if sys.stdout is None:
        print("The standard output is closed. Redirect it to /dev/null to run without it.", file=sys.stderr)  # noqa: T201
        return _ERROR
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A host's name may have letters that the terminal does not. And argparse ignores an output that cannot be
        # written, as it can only be where Python does not buffer it (PYTHONUNBUFFERED): it is written in _flushed.
        sys.stdout.reconfigure(errors="backslashreplace", write_through=False)
    try:
        return _flushed(_run(sys.argv[1:] if argv is None else argv))
    except KeyboardInterrupt:
        return _INTERRUPTED


def _run(argv: list[str]) -> int:
    try:
        # Imported here, so that a missing extra is a sentence and not a traceback.
        from os_prefilter.cli.program import Program  # noqa: PLC0415
    except ModuleNotFoundError:
        print(_NEEDS_EXTRA, file=sys.stderr)  # noqa: T201
        return _ERROR
    # cliff adds handlers and never takes them back, which matters where this is called more than once.
    handlers = list(logging.getLogger().handlers)
    try:
        return int(Program(version("os-prefilter")).run(argv) or 0)
    except PrefilterError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return _ERROR
    finally:
        logging.getLogger().handlers[:] = handlers


def _flushed(code: int) -> int:
    """Write out what was printed; return the exit code, which is that of an error if it cannot be written."""
    try:
        # autopage closes it where the reader of a help has gone.
        if sys.stdout is not None and not sys.stdout.closed:
            sys.stdout.flush()
    except OSError as error:
        # The interpreter would try again when it ends, and print a traceback.
        with Path(os.devnull).open("w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return _BROKEN_PIPE
        advice = "Check where it is redirected to, and how much space there is."
        print(f"The standard output cannot be written: {error.strerror}. {advice}", file=sys.stderr)  # noqa: T201
        return _ERROR
    return code


if __name__ == "__main__":
    sys.exit(main())
