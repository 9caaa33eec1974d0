"""The program ``os-prefilter``: a cliff application, its exit codes, and how it ends when its output is closed."""

import logging
import sys
from collections.abc import Sequence
from importlib.metadata import version

from cliff.app import App
from cliff.commandmanager import CommandManager
from stevedore.named import NamedExtensionManager

from os_prefilter.cli.program import ERROR, PasswordMaskingFormatter, flush, prepare_output
from os_prefilter.common.errors import PrefilterError
from os_prefilter.common.quoting import escape_line

_INTERRUPTED = 130


class _Commands(CommandManager):
    """The commands, each imported when it runs; cliff's own manager imports all of them first."""

    def load_commands(self, namespace: str) -> None:
        """Find the commands of a namespace of entry points."""
        self.group_list.append(namespace)
        # A manager of no names loads nothing.
        for point in NamedExtensionManager(namespace, []).list_entry_points():
            self.commands[point.name.replace("_", " ")] = point


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
            return ERROR if end.code else 0

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
            return ERROR
        except ImportError as error:
            self.stderr.write(f"The command needs a package that is not installed: {escape_line(str(error))}.\n")
            return ERROR
        return int(super().run_subcommand(argv) or 0)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code: 0, 1 for an error, 2 if no host remains."""
    if sys.stdout is None:
        print("The standard output is closed. Redirect it to /dev/null to run without it.", file=sys.stderr)  # noqa: T201
        return ERROR
    prepare_output()
    # cliff adds handlers and never removes them, which matters where this is called more than once.
    handlers = list(logging.getLogger().handlers)
    try:
        code = int(Program(version("os-prefilter")).run(sys.argv[1:] if argv is None else list(argv)) or 0)
        return flush(code)
    except PrefilterError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return flush(ERROR)
    except KeyboardInterrupt:
        return _INTERRUPTED
    finally:
        logging.getLogger().handlers[:] = handlers


if __name__ == "__main__":
    sys.exit(main())
