"""The program ``os-prefilter``."""

import io
import logging
import sys
from importlib.metadata import version

from os_prefilter.errors import PrefilterError

_NEEDS_EXTRA = "os-prefilter: the command needs more than the library: pip install 'os-prefilter[cli]'"
_ERROR = 1
_INTERRUPTED = 130


def main(argv: list[str] | None = None) -> int:
    """Run the command; return its exit code: 0, 1 for an error, 2 if no host remains."""
    try:
        # Imported here, so that a missing extra is a sentence and not a traceback.
        from os_prefilter.cli.program import Program  # noqa: PLC0415
    except ModuleNotFoundError:
        print(_NEEDS_EXTRA, file=sys.stderr)  # noqa: T201
        return _ERROR
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A host's name may have letters that the terminal does not.
        sys.stdout.reconfigure(errors="backslashreplace")
    # cliff adds handlers and never takes them back, which matters where this is called more than once.
    handlers = list(logging.getLogger().handlers)
    try:
        arguments = sys.argv[1:] if argv is None else argv
        return int(Program(version("os-prefilter")).run(arguments) or 0)
    except PrefilterError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return _ERROR
    except KeyboardInterrupt:
        return _INTERRUPTED
    finally:
        logging.getLogger().handlers[:] = handlers


if __name__ == "__main__":
    sys.exit(main())
