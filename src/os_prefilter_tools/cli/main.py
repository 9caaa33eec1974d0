"""The program ``os-prefilter``: a cliff application, its exit codes, and how it ends when its output is closed."""

import inspect
import logging
import shutil
import sys
import textwrap
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from cliff.app import App
from cliff.commandmanager import CommandManager
from stevedore.named import NamedExtensionManager

from os_prefilter.common.errors import PrefilterError
from os_prefilter.common.quoting import escape_line
from os_prefilter_tools.cli.program import ERROR, PasswordMaskingFormatter, flush, is_of_writing, prepare_output

COMMANDS = "openstack.prefilter.v1"
"""Group of the entry points of the commands, which the openstack client reads as well."""

_INTERRUPTED = 130


class _Commands(CommandManager):
    """The commands, each imported when it runs; cliff's own manager imports all of them first."""

    def load_commands(self, namespace: str) -> None:
        """Find the commands of a namespace of entry points."""
        self.group_list.append(namespace)
        # A manager of no names loads nothing.
        for point in NamedExtensionManager(namespace, []).list_entry_points():
            self.commands[point.name.removeprefix("prefilter_").replace("_", " ")] = point


class Program(App):
    """An application that shows its help instead of a shell, and keeps exit code 2 for "no host remains"."""

    # As in the openstack client: 0 is -q, 1 prints warnings and errors of the log, 2 and more (-v) print details.
    DEFAULT_VERBOSE_LEVEL = 1
    unwritten: OSError | None = None
    """The error of the first writing to the standard output that failed."""

    def __init__(self, version: str) -> None:
        super().__init__(
            description="Show what a request requires of hosts and why, and which hosts remain.",
            version=version,
            command_manager=_Commands(COMMANDS),
            deferred_help=True,
        )

    def configure_logging(self) -> None:
        """Set up cliff's handlers, without the service's lines, which the commands print themselves."""
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
        error: Any = record.msg
        if is_of_writing(error):
            # cliff logs what a command raises: here no more than "No space left on device".
            self.unwritten = error
            return False
        return record.name != "os_prefilter.service.service" or self.options.verbose_level > self.DEFAULT_VERBOSE_LEVEL

    def run(self, argv: list[str]) -> int:
        """Run the command in ``argv``; return 1 where argparse would exit with 2."""
        try:
            return int(super().run(argv) or 0)
        except SystemExit as end:
            return ERROR if end.code else 0

    def interact(self) -> None:
        """Show the help and end; cliff would start a shell."""
        self._print_help()
        raise SystemExit(0)

    def print_help_if_requested(self) -> None:
        """Show the help and end, if it is asked for."""
        if self.options.deferred_help:
            self.interact()

    def _print_help(self) -> None:
        """Print the options and the commands, no wider than the terminal, as cliff's own help does not."""
        self.stdout.write(f"{self.parser.format_help()}\nCommands:\n")
        points = sorted(self.command_manager)
        indent = 4 + max(len(name) for name, _ in points)
        width = max(shutil.get_terminal_size().columns, 2 * indent)
        for name, point in points:
            try:
                text = (inspect.getdoc(point.load()) or "").partition("\n")[0].rstrip(".")
            except ImportError as error:
                text = f"needs a package that is not installed: {escape_line(str(error))}"
            start = f"  {name}".ljust(indent)
            lines = textwrap.wrap(text, width, initial_indent=start, subsequent_indent=" " * indent)
            self.stdout.write("".join(f"{line}\n" for line in lines))

    def run_subcommand(self, argv: list[str]) -> int:
        """Run a command; return 1 for one that does not exist."""
        argv = _cloud_last(argv)
        if argv == ["help"]:
            self.interact()
        if argv[0].startswith("-"):
            option = escape_line(argv[0].partition("=")[0])
            self.stderr.write(
                f"The option {option} belongs after a command, as in 'os-prefilter explain {option} ...'; "
                "'os-prefilter --help' lists the commands.\n"
            )
            return ERROR
        try:
            self.command_manager.find_command(argv)
        except ValueError:
            # cliff prints that, with similar commands.
            super().run_subcommand(argv)
            return ERROR
        except ImportError as error:
            self.stderr.write(f"The command needs a package that is not installed: {escape_line(str(error))}.\n")
            return ERROR
        return int(super().run_subcommand(argv) or 0)


def _cloud_last(argv: list[str]) -> list[str]:
    """Return a command line with ``--os-cloud NAME``, which the openstack client takes before a command, after it."""
    name, sign, _ = argv[0].partition("=")
    count = 1 if sign else 2
    if name != "--os-cloud" or len(argv) <= count:
        return argv
    rest = argv[count:]
    end = rest.index("--") if "--" in rest else len(rest)
    return [*rest[:end], *argv[:count], *rest[end:]]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code: 0, 1 for an error, 2 if no host remains."""
    if sys.stdout is None:
        print("The standard output is closed. Redirect it to /dev/null to run without it.", file=sys.stderr)  # noqa: T201
        return ERROR
    prepare_output()
    # cliff adds handlers and never removes them, which matters where this is called more than once.
    handlers = list(logging.getLogger().handlers)
    try:
        program = Program(version("os-prefilter"))
        code = int(program.run(sys.argv[1:] if argv is None else list(argv)) or 0)
        return flush(code, failed=program.unwritten)
    except PrefilterError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return flush(ERROR)
    except KeyboardInterrupt:
        return _INTERRUPTED
    finally:
        logging.getLogger().handlers[:] = handlers


if __name__ == "__main__":
    sys.exit(main())
