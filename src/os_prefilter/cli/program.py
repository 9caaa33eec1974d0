"""The cliff application behind ``os-prefilter``."""

import logging

from cliff.app import App
from cliff.commandmanager import CommandManager
from stevedore.named import NamedExtensionManager

from os_prefilter.common.quoting import escape_line, mask_passwords

_ERROR = 1


class _Commands(CommandManager):
    """The commands, each imported when it runs: cliff's own manager imports all of them first."""

    def load_commands(self, namespace: str) -> None:
        """Find the commands of a namespace of entry points."""
        self.group_list.append(namespace)
        # A manager of no names loads nothing.
        for point in NamedExtensionManager(namespace, []).list_entry_points():
            self.commands[point.name.replace("_", " ")] = point


class PasswordMaskingFormatter(logging.Formatter):
    """Format as another formatter does, and mask the passwords in URLs, which client libraries and tracebacks have."""

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self._formatter = formatter

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a record."""
        return mask_passwords(self._formatter.format(record))


class Program(App):
    """An application that shows its help instead of a shell, and keeps exit code 2 for "no host remains"."""

    # As in the openstack client: 0 is -q, 1 prints warnings and errors of the log, 2 and more (-v) show what happens.
    DEFAULT_VERBOSE_LEVEL = 1

    def __init__(self, version: str) -> None:
        super().__init__(
            description="Ask Placement only for hosts that can: what a request requires, why, and which remain.",
            version=version,
            command_manager=_Commands("os_prefilter.cli"),
            deferred_help=True,
        )

    def configure_logging(self) -> None:
        """Set up cliff's handlers, less what the commands print themselves: what was not asked for."""
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
        """Show the help and end: cliff would start a shell here."""
        raise SystemExit(self.run_subcommand(["help"]))

    def run_subcommand(self, argv: list[str]) -> int:
        """Run a command; return 1 for one that does not exist."""
        try:
            self.command_manager.find_command(argv)
        except ValueError:
            # It says so, and which commands are close.
            super().run_subcommand(argv)
            return _ERROR
        except ImportError as error:
            self.stderr.write(f"The command needs what is not installed: {escape_line(str(error))}.\n")
            return _ERROR
        return int(super().run_subcommand(argv) or 0)
