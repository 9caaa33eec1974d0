# SPDX-License-Identifier: Apache-2.0

"""The base of all commands, and the context in which one runs.

The context has the cloud, the notes and the progress. ``--os-cloud``, else
``OS_CLOUD``, names the cloud; in the openstack client it is the client's own.
"""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from cliff.command import Command

from os_prefilter.common.errors import ConfigurationError, install_extra
from os_prefilter.common.quoting import describe_error, quote
from os_prefilter_agent.cli.deadline import TIMEOUT, deadline
from os_prefilter_agent.cli.output import progress_on
from os_prefilter_agent.cli.program import ERROR

if TYPE_CHECKING:
    from os_prefilter.adapters.placement.client import PlacementClient
    from os_prefilter.common.progress import Progress

_T = TypeVar("_T")


def values_of(kind: type[_T], parsed_args: argparse.Namespace) -> _T:
    """Return a dataclass with the parsed arguments of its fields' names.

    A field without an argument of the command keeps its default.
    """
    given = vars(parsed_args)
    names = [each.name for each in fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: given[name] for name in names if name in given})


def _given(text: str) -> str:
    """Return the value of an argument.

    :raises ArgumentTypeError: it is empty, as a shell leaves it where a
        variable has no value
    """
    if not text:
        raise argparse.ArgumentTypeError(
            "the value is empty. Give one, or leave the option out"
        )
    return text


def option_name(argument: str) -> str:
    """Return the option of a parsed argument: ``--os-cloud`` of os_cloud."""
    return f"--{argument.replace('_', '-')}"


def add_repeatable(parser: Any, name: str, metavar: str, text: str) -> None:
    """Add an option that may be given several times to a parser or a group.

    :param text: the help
    """
    parser.add_argument(
        name, metavar=metavar, action="append", default=[], help=text
    )


class Context:
    """The cloud of a command, connected to once, and its standard error.

    :param named: the cloud that the command line names; None if it names none
    :param connect_as_client: connects as the openstack client does, by its own
        options; None in ``os-prefilter``
    :param is_quiet: print only warnings next to the result (``-q``)
    """

    def __init__(
        self,
        stderr: TextIO,
        named: str | None,
        connect_as_client: Callable[[], Any] | None,
        *,
        is_quiet: bool,
    ) -> None:
        self._stderr = stderr
        self._connect_as_client = connect_as_client
        self._name = named if named is not None else default_cloud()
        self._is_quiet = is_quiet
        self.notes: list[tuple[str, bool]] = []
        """Lines to print before the result; True marks a warning."""
        self.names_cloud = named is not None
        """True if the command line itself names the cloud."""
        self.has_cloud = (
            self._name is not None or connect_as_client is not None
        )
        """True if there is a cloud; no request is sent to it yet."""

    @property
    def cloud(self) -> str:
        """The cloud, in words."""
        return (
            f"the cloud {quote(self._name)}"
            if self._name
            else "the cloud of the client"
        )

    @cached_property
    def connection(self) -> Any:
        """An ``openstack.connection.Connection`` to the cloud.

        :raises ConfigurationError: if the cloud cannot be used
        """
        if self._connect_as_client:
            return self._connect_as_client()
        # Late, as each import of the SDK: it takes a second, and many commands
        # need no cloud.
        from os_prefilter_agent.adapters.connection import (  # noqa: PLC0415
            connect,
        )

        return connect(str(self._name))

    @cached_property
    def placement(self) -> PlacementClient:
        """A client of the cloud's Placement."""
        from os_prefilter_agent.adapters.connection import (  # noqa: PLC0415
            placement_of,
        )

        return placement_of(self.connection)

    def note(self, text: str, *, warning: bool = False) -> None:
        """Print a line before the result; an error has none, and no notes."""
        self.notes.append((text, warning))

    def write_notes(self) -> None:
        """Print the notes that have not been printed yet."""
        notes, self.notes = self.notes, []
        for text, warning in notes:
            self.print_line(text, warning=warning)

    def print_line(self, text: str, *, warning: bool = False) -> None:
        """Print a line on the standard error; with ``-q`` only a warning."""
        self.write_notes()
        if warning or not self._is_quiet:
            self._stderr.write(f"{text}\n")

    def progress(self) -> AbstractContextManager[Progress]:
        """Return a context that shows progress, if there is a terminal."""
        return progress_on(self._stderr, is_wanted=not self._is_quiet)


class _StoreOnce(argparse.Action):
    """Store the value of an option that may be given once.

    argparse would let the last of several replace the others without a word.
    """

    _namespace: argparse.Namespace | None = None

    def __call__(
        self,
        _parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        if option_string and self._namespace is namespace:
            advice = "Give it once"
            if self.dest == "config_file":
                # oslo.config adds up sections that stand twice in a file.
                advice += (
                    "; of several files make one: cat nova.conf"
                    " nova-scheduler.conf > FILE"
                )
            raise argparse.ArgumentError(
                self,
                "it is given twice, and the first would not be read."
                f" {advice}",
            )
        self._namespace = namespace
        setattr(namespace, self.dest, values)


class CloudCommand(Command):
    """A command that may read a cloud."""

    auth_required = False
    """False: the openstack client does not log in before each command.

    Many of ours need no cloud; :attr:`Context.connection` logs in.
    """
    extras = "cli"
    """Extras of the distribution that the command's late imports need."""
    arguments = ""
    """The arguments that must be given, for the usage."""
    is_remote = False
    """True: the command asks services also without a cloud."""
    exit_code = 0
    """The exit code of a command that succeeds; its action may set it."""
    context: Context

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the command, with its own arguments."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        # Exit code 2 means that no host remains, and nothing else.
        parser.error = lambda message: parser.exit(  # type: ignore[method-assign]
            ERROR, f"{parser.prog}: {message}; --help shows the options.\n"
        )
        # Of each argument without a type of its own, those of groups too.
        parser.register("type", None, _given)
        # cliff's options alone are eight lines.
        parser.usage = f"%(prog)s [options]{self.arguments}"
        # For the options that are added from here on; cliff's own stay as they
        # are.
        for name in (None, "store"):
            parser.register("action", name, _StoreOnce)
        self.add_arguments(parser)
        return parser

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""

    def add_cloud_argument(
        self, parser: Any, text: str, *, required: bool = False
    ) -> None:
        """Add ``--os-cloud`` to a parser or a group.

        Inside the openstack client it is the client's own option.

        :param text: the help
        """
        if self._is_client:
            parser.set_defaults(os_cloud=None)
        else:
            # OS_CLOUD is not its default: a cloud that the command names may
            # contradict its other arguments.
            required = required and not default_cloud()
            parser.add_argument(
                "--os-cloud",
                metavar="NAME",
                required=required,
                help=f"{text}; default: OS_CLOUD",
            )

    def print_line(self, text: str, *, warning: bool = False) -> None:
        """Print a line on the standard error; with ``-q`` only a warning."""
        self.context.print_line(text, warning=warning)

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Run the command in a new context, within its time."""
        named = getattr(parsed_args, "os_cloud", None)
        connect = self._connect_as_client if self._is_client else None
        self.context = Context(
            self.app.stderr,
            named,
            connect,
            is_quiet=not self.app.options.verbose_level,
        )
        seconds = getattr(parsed_args, "read_timeout", None)
        with (
            needs_packages(self.extras),
            _without_repeated_warnings(),
            (
                deadline(seconds or TIMEOUT)
                if self.is_remote or self.context.has_cloud or seconds
                else nullcontext()
            ),
        ):
            code = int(super().run(parsed_args) or 0)
        self.context.write_notes()
        return code or self.exit_code

    def get_epilog(self) -> str:
        """Return nothing.

        cliff would read the metadata of all installed packages to name the
        command's own.
        """
        return ""

    @property
    def _is_client(self) -> bool:
        return hasattr(self.app, "client_manager")

    def _connect_as_client(self) -> Any:
        """Return the connection of the openstack client, by its options."""
        from os_prefilter.adapters.placement.client import (  # noqa: PLC0415
            TIMEOUT,
        )
        from os_prefilter.adapters.session_limits import limit  # noqa: PLC0415

        client: Any = self.app
        manager = client.client_manager
        set_up = manager.setup_auth

        def set_up_with_limits() -> None:
            set_up()
            # The client waits forever for responses, also for those of the
            # login that comes next.
            manager.session.timeout = manager.session.timeout or TIMEOUT
            limit(manager.session)

        self.auth_required = True
        manager.setup_auth = set_up_with_limits
        try:
            # As the client does before it runs a command that always needs a
            # cloud.
            client.prepare_to_run_command(self)
            connection = manager.sdk_connection
        except Exception as error:
            raise ConfigurationError(
                f"The cloud cannot be used: {describe_error(error)}. Check"
                " --os-cloud, or the --os-... options and OS_... variables."
                " Without a cloud, run 'os-prefilter' instead of 'openstack"
                " prefilter'."
            ) from error
        return connection


@contextmanager
def _without_repeated_warnings() -> Iterator[None]:
    """Log each warning of the library once.

    A command reads its request several times: for the filters, for the query.
    """
    handlers = list(logging.getLogger().handlers)
    filters = [_RepeatFilter() for _ in handlers]
    for handler, new in zip(handlers, filters):
        handler.addFilter(new)
    try:
        yield
    finally:
        for handler, new in zip(handlers, filters):
            handler.removeFilter(new)


class _RepeatFilter(logging.Filter):
    """Drop a warning of the library that the handler has had before."""

    def __init__(self) -> None:
        super().__init__("os_prefilter")
        self._logged: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno != logging.WARNING or not super().filter(record):
            return True
        text = record.getMessage()
        is_new = text not in self._logged
        self._logged.add(text)
        return is_new


def default_cloud() -> str | None:
    """Return the cloud that ``OS_CLOUD`` names; None if it names none.

    Each client of OpenStack reads this variable.
    """
    return os.environ.get("OS_CLOUD") or None


@contextmanager
def needs_packages(extras: str) -> Iterator[None]:
    """Name the package that is missing where an import in the context fails.

    :param extras: of the distribution, which install it
    :raises ConfigurationError: a package is missing
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"The command needs {error.name}, which is not installed:"
            f" {install_extra(extras)}."
        ) from error
