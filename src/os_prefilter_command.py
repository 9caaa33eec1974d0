"""Start of the command ``os-prefilter``.

Importing the package takes a few tenths of a second, and Ctrl-C in them would print a traceback. So this module stands
outside the package, and imports it where an interruption is caught.
"""

import sys

_INTERRUPTED = 130


def main() -> int:
    """Run the command; return its exit code, which is 130 after Ctrl-C."""
    try:
        from os_prefilter.cli.main import main as run  # noqa: PLC0415 - see above

        return run(sys.argv[1:])
    except KeyboardInterrupt:
        return _INTERRUPTED
