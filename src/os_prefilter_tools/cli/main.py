# SPDX-License-Identifier: Apache-2.0

"""The program ``os-prefilter``: a cliff application."""

from __future__ import annotations

import errno
import inspect
import logging
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from cliff.app import App
from cliff.commandmanager import CommandManager
from stevedore.named import NamedExtensionManager

from os_prefilter.common.errors import PrefilterError
from os_prefilter.common.quoting import escape_line
from os_prefilter_agent.cli.program import (
    ERROR,
    PasswordMaskingFormatter,
    flush,
    prepare_output,
)

COMMANDS = "openstack.prefilter.v1"
"""Group of the commands' entry points; the openstack client reads it."""

_INTERRUPTED = 130
_CANNOT_WRITE = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO))


class Program(App):
    """A cliff application without a shell.

    Exit code 2 means "no host remains" and nothing else.
    """

    # As in the openstack client: 0 is -q, 1 prints warnings and errors of the
    # log, 2 and more (-v) print details.
    DEFAULT_VERBOSE_LEVEL = 1
    unwritten: OSError | None = None
    """The error of the first writing to the standard output that failed."""

    def __init__(self, version: str) -> None:
        commands = CommandManager("")
        # cliff would import each command. A manager of no names loads nothing.
        for point in NamedExtensionManager(COMMANDS, []).list_entry_points():
            commands.commands[
                point.name.removeprefix("prefilter_").replace("_", " ")
            ] = point
        text = (
            "Show what a request requires of hosts and why, and which hosts"
            " remain."
        )
        super().__init__(
            description=text,
            version=version,
            command_manager=commands,
            deferred_help=True,
        )
        self.parser.usage = "%(prog)s [options] COMMAND ..."

    def configure_logging(self) -> None:
        """Set up cliff's log handlers, without passwords.

        Its levels are one lower, and what the commands print is not logged.
        """
        root = logging.getLogger()
        before = len(root.handlers)
        super().configure_logging()
        handlers = root.handlers[before:]
        levels = {0: logging.WARNING, 1: logging.WARNING, 2: logging.INFO}
        handlers[-1].setLevel(
            levels.get(self.options.verbose_level, logging.DEBUG)
        )
        # Lines that nothing prints cost time: stevedore has a thousand of them
        # at each start.
        root.setLevel(min(each.level for each in handlers))
        for handler in handlers:
            handler.addFilter(self._is_news)
            handler.setFormatter(
                PasswordMaskingFormatter(
                    handler.formatter or logging.Formatter()
                )
            )

    def _is_news(self, record: logging.LogRecord) -> bool:
        error: Any = record.msg
        if (
            isinstance(error, OSError)
            and error.errno in _CANNOT_WRITE
            and error.filename is None
        ):
            # cliff logs what a command raises: here no more than "No space
            # left on device".
            self.unwritten = error
            return False
        return (
            record.name != "os_prefilter.service.service"
            or self.options.verbose_level > self.DEFAULT_VERBOSE_LEVEL
        )

    def initialize_app(self, argv: list[str]) -> None:
        """Show the help where there is no command.

        cliff would start a shell, and its help fits no terminal.
        """
        if argv not in ([], ["help"]):
            return
        group = self.parser.add_argument_group("Commands")
        for name, point in sorted(self.command_manager):
            group.add_argument(
                name,
                help=(inspect.getdoc(point.load()) or "")
                .partition("\n")[0]
                .rstrip("."),
            )
        self.parser.print_help(self.stdout)
        raise SystemExit(0)

    def run_subcommand(self, argv: list[str]) -> int:
        """Run a command; return 1 for one that does not exist."""
        if argv[0].startswith("-"):
            option = escape_line(argv[0].partition("=")[0])
            self.stderr.write(
                f"The option {option} belongs after a command, as in"
                f" 'os-prefilter explain {option} ...'; 'os-prefilter --help'"
                " lists the commands.\n"
            )
            return ERROR
        try:
            self.command_manager.find_command(argv)
        except ValueError:
            # cliff prints that, with similar commands.
            super().run_subcommand(argv)
            return ERROR
        return int(super().run_subcommand(argv) or 0)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code.

    0, 1 for an error, 2 if no host remains.
    """
    prepare_output()
    # cliff adds handlers and never removes them, which matters where this is
    # called more than once.
    handlers = list(logging.getLogger().handlers)
    program = Program(version("os-prefilter"))
    try:
        code = program.run(sys.argv[1:] if argv is None else list(argv))
    except SystemExit as end:
        # argparse would exit with 2.
        code = ERROR if end.code else 0
    except (PrefilterError, ImportError) as error:
        print(error, file=sys.stderr)  # noqa: T201
        code = ERROR
    except KeyboardInterrupt:
        return _INTERRUPTED
    finally:
        logging.getLogger().handlers[:] = handlers
    return flush(code, failed=program.unwritten)


if __name__ == "__main__":
    sys.exit(main())
