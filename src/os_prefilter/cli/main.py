"""The program ``os-prefilter``: a cliff application, its exit codes, and how it ends when its output is closed."""

import io
import logging
import os
import sys
from importlib.metadata import version
from pathlib import Path

from cliff.app import App
from cliff.commandmanager import CommandManager
from stevedore.named import NamedExtensionManager

from os_prefilter.common.errors import PrefilterError
from os_prefilter.common.quoting import escape_line, mask_passwords

_ERROR = 1
_INTERRUPTED = 130
_BROKEN_PIPE = 141


class _Commands(CommandManager):
    """The commands, each imported when it runs; cliff's own manager imports all of them first."""

    def load_commands(self, namespace: str) -> None:
        """Find the commands of a namespace of entry points."""
        self.group_list.append(namespace)
        # A manager of no names loads nothing.
        for point in NamedExtensionManager(namespace, []).list_entry_points():
            self.commands[point.name.replace("_", " ")] = point


class PasswordMaskingFormatter(logging.Formatter):
    """Another formatter's lines, without the passwords in URLs of client libraries and tracebacks."""

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self._formatter = formatter

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a record."""
        return mask_passwords(self._formatter.format(record))


class Program(App):
    """An application that shows its help instead of a shell, and keeps exit code 2 for "no host remains"."""

    # As in the openstack client: 0 is -q, 1 prints warnings and errors of the log, 2 and more (-v) print details.
    DEFAULT_VERBOSE_LEVEL = 1

    def __init__(self, version: str) -> None:
        super().__init__(
            description="Show what a request requires of hosts and why, and which hosts remain.",
            version=version,
            command_manager=_Commands("os_prefilter.cli"),
            deferred_help=True,
        )

    def configure_logging(self) -> None:
        """Set up cliff's handlers, without the pipeline's lines, which the commands print themselves."""
        root = logging.getLogger()
        others = list(root.handlers)
        level = self.options.verbose_level
        # cliff counts from 0.
        self.options.verbose_level = max(level - 1, 0)
        super().configure_logging()
        self.options.verbose_level = level
        for handler in root.handlers:
            if handler not in others:
                handler.addFilter(self._is_news)
                handler.setFormatter(PasswordMaskingFormatter(handler.formatter or logging.Formatter()))

    def _is_news(self, record: logging.LogRecord) -> bool:
        return (
            record.name != "os_prefilter.pipeline.pipeline" or self.options.verbose_level > self.DEFAULT_VERBOSE_LEVEL
        )

    def run(self, argv: list[str]) -> int:
        """Run the command in ``argv``; return 1 where argparse would exit with 2."""
        try:
            return int(super().run(argv) or 0)
        except SystemExit as end:
            return _ERROR if end.code else 0

    def interact(self) -> None:
        """Show the help and end; cliff would start a shell."""
        raise SystemExit(self.run_subcommand(["help"]))

    def run_subcommand(self, argv: list[str]) -> int:
        """Run a command; return 1 for one that does not exist."""
        try:
            self.command_manager.find_command(argv)
        except ValueError:
            # cliff prints that, with similar commands.
            super().run_subcommand(argv)
            return _ERROR
        except ImportError as error:
            self.stderr.write(f"The command needs a package that is not installed: {escape_line(str(error))}.\n")
            return _ERROR
        return int(super().run_subcommand(argv) or 0)


def main(argv: list[str] | None = None) -> int:
    """Run the command; return its exit code: 0, 1 for an error, 2 if no host remains."""
    if sys.stdout is None:
        print("The standard output is closed. Redirect it to /dev/null to run without it.", file=sys.stderr)  # noqa: T201
        return _ERROR
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Names may have letters that the terminal does not have. Errors of writing show in _flush alone: argparse
        # ignores them, and where Python does not buffer (PYTHONUNBUFFERED) there would be no second one.
        sys.stdout.reconfigure(errors="backslashreplace", write_through=False)
    # cliff adds handlers and never removes them, which matters where this is called more than once.
    handlers = list(logging.getLogger().handlers)
    try:
        code = int(Program(version("os-prefilter")).run(sys.argv[1:] if argv is None else argv) or 0)
        return _flush(code)
    except PrefilterError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return _flush(_ERROR)
    except KeyboardInterrupt:
        return _INTERRUPTED
    finally:
        logging.getLogger().handlers[:] = handlers


def _flush(code: int) -> int:
    """Write out what was printed; return the exit code, or that of an error if it cannot be written."""
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
