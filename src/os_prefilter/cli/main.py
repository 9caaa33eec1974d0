"""The program ``os-prefilter``."""

import logging
import sys
from importlib.metadata import version

from os_prefilter.errors import PrefilterError

_NEEDS_EXTRA = "os-prefilter: the command needs more than the library: pip install 'os-prefilter[cli]'"


def main(argv: list[str] | None = None) -> int:
    """Run the command; return its exit code: 0, 1 for an error, 2 if no host remains."""
    try:
        # Imported here, so that a missing extra is a sentence and not a traceback.
        from cliff.app import App  # noqa: PLC0415
        from cliff.commandmanager import CommandManager  # noqa: PLC0415
    except ImportError:
        print(_NEEDS_EXTRA, file=sys.stderr)  # noqa: T201
        return 1

    class Program(App):
        # Warnings and errors; -v shows what happens.
        DEFAULT_VERBOSE_LEVEL = 0

    app = Program(
        description="Ask Placement only for hosts that can: what a request requires, who asked, which hosts remain.",
        version=version("os-prefilter"),
        command_manager=CommandManager("os_prefilter.cli"),
        deferred_help=True,
    )
    arguments = sys.argv[1:] if argv is None else argv
    # cliff adds handlers and never takes them back, which matters where this is called more than once.
    handlers = list(logging.getLogger().handlers)
    try:
        # Without arguments cliff would start an interactive shell.
        return int(app.run(arguments or ["help"]) or 0)
    except PrefilterError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    except BrokenPipeError:
        # "os-prefilter ... | head": whoever reads has seen enough.
        sys.stderr.close()
        return 0
    finally:
        logging.getLogger().handlers[:] = handlers


if __name__ == "__main__":
    sys.exit(main())
