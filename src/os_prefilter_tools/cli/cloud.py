"""The cloud that a command reads: ``--os-cloud``, else ``OS_CLOUD``; in the openstack client, the client's own.

A command that derives from :class:`CloudCommand` gets it by ``connection_of(parsed_args)``, in ``os-prefilter`` and in
``openstack prefilter ...`` alike.
"""

import argparse
import os
import signal
import sys
import threading
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from cliff.command import Command

from os_prefilter.common.errors import ConfigurationError, DocumentError, PrefilterError, install_extra
from os_prefilter.common.quoting import describe_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from os_prefilter.adapters.placement.client import PlacementClient

TIMEOUT = 3600.0
"""Seconds that a command may take that reads a cloud: enough to read 10,000 hosts from a slow one."""

_T = TypeVar("_T")

READ_TIMEOUT = "read_timeout"
"""The parsed argument that replaces :data:`TIMEOUT`."""

_ERROR = 1
_MOST_DIGITS = 9
# Names in parsed arguments. The first: the function that connects by the client's own options; None in os-prefilter.
_CLIENT = "connect_as_client"
_OPENED = "opened_connection"
_NOTES = "notes"


class _NotesFirst:
    """The standard output or error of a command, before whose first text the notes are written.

    :param write_notes: writes the notes that have not been written yet
    """

    def __init__(self, stream: Any, write_notes: "Callable[[], None]") -> None:
        self._stream = stream
        self._write_notes = write_notes

    def write(self, text: str) -> Any:
        self._write_notes()
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def note(arguments: argparse.Namespace, text: str) -> None:
    """Have a command write a line to the standard error before its result; an error has no result, and no notes."""
    getattr(arguments, _NOTES, []).append(text)


class CloudCommand(Command):
    """A command that may read a cloud."""

    auth_required = False
    """For the openstack client: many of our commands need no cloud, and :func:`connection_of` logs in."""
    extras = "cli"
    """The extras of the distribution with the packages that the command imports when it needs them."""
    exit_code = 0
    """The exit code of a command that succeeds; its action may set it."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the command, with its own arguments."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        is_client = hasattr(self.app, "client_manager")
        parser.set_defaults(**{_CLIENT: partial(_client_connection, self) if is_client else None})
        # Exit code 2 means that no host remains, and nothing else.
        parser.error = partial(_exit_with_error, parser)  # type: ignore[assignment]
        self.add_arguments(parser)
        return parser

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""

    @property
    def is_quiet(self) -> bool:
        """Whether to print only the result, warnings and errors (``-q``)."""
        return not self.app.options.verbose_level

    def tell(self, text: str, *, warning: bool = False) -> None:
        """Print a line on the standard error, beside the result; with ``-q`` only a warning."""
        if warning or not self.is_quiet:
            self.app.stderr.write(f"{text}\n")

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Run the command, with its notes before its result."""
        stdout, stderr = self.app.stdout, self.app.stderr
        notes: list[str] = []

        def write_notes() -> None:
            while notes:
                stderr.write(f"{notes.pop(0)}\n")

        setattr(parsed_args, _NOTES, notes)
        self.app.stdout, self.app.stderr = _NotesFirst(stdout, write_notes), _NotesFirst(stderr, write_notes)
        is_remote = has_cloud(parsed_args) or getattr(parsed_args, "nova_conf", None)
        seconds = getattr(parsed_args, READ_TIMEOUT, None)
        try:
            with needs_packages(self.extras), _deadline(seconds or TIMEOUT) if is_remote or seconds else nullcontext():
                code = int(super().run(parsed_args) or 0)
            write_notes()
        finally:
            self.app.stdout, self.app.stderr = stdout, stderr
        return code or self.exit_code

    def get_epilog(self) -> str:
        """Return nothing: cliff would read the metadata of all installed packages to name the command's own."""
        return ""


def option_name(argument: str) -> str:
    """Return the option of a parsed argument, such as ``--os-cloud`` of ``os_cloud``."""
    return f"--{argument.replace('_', '-')}"


def add_cloud_argument(parser: Any, text: str, *, required: bool = False) -> None:
    """Add ``--os-cloud`` to a parser or a group; inside the openstack client it is the client's own option.

    :param text: the help
    """
    if parser.get_default(_CLIENT):
        parser.set_defaults(os_cloud=None)
    else:
        # OS_CLOUD is not its default: a cloud that the command names may contradict its other arguments.
        required = required and not default_cloud()
        parser.add_argument("--os-cloud", metavar="NAME", required=required, help=f"{text}; default: OS_CLOUD")


def default_cloud() -> str | None:
    """Return the cloud that ``OS_CLOUD`` names, as for each client of OpenStack; None if it names none."""
    return os.environ.get("OS_CLOUD") or None


def has_default_cloud(arguments: argparse.Namespace) -> bool:
    """Whether there is a cloud that the command itself does not name: the client's, or ``OS_CLOUD``."""
    return getattr(arguments, _CLIENT, None) is not None or default_cloud() is not None


def has_cloud(arguments: argparse.Namespace) -> bool:
    """Whether there is a cloud; no request is sent to it yet."""
    return getattr(arguments, "os_cloud", None) is not None or has_default_cloud(arguments)


def connection_of(arguments: argparse.Namespace) -> Any:
    """Return an ``openstack.connection.Connection`` to the cloud, opened once; None if there is no cloud.

    :raises ConfigurationError: if the cloud cannot be used
    """
    if not has_cloud(arguments):
        return None
    if not hasattr(arguments, _OPENED):
        connect_as_client: Callable[[], Any] | None = getattr(arguments, _CLIENT, None)
        setattr(arguments, _OPENED, connect_as_client() if connect_as_client else _connect(arguments))
    return getattr(arguments, _OPENED)


def _connect(arguments: argparse.Namespace) -> Any:
    return cloud_adapter().connect(str(default_cloud() if arguments.os_cloud is None else arguments.os_cloud))


def cloud_adapter() -> Any:
    """Return the module :mod:`os_prefilter_tools.adapters.cloud.connection`; the SDK takes a second to import."""
    from os_prefilter_tools.adapters.cloud import connection  # noqa: PLC0415

    return connection


def placement_from(arguments: argparse.Namespace) -> "PlacementClient":
    """Return a client for the Placement of the cloud."""
    placement: PlacementClient = cloud_adapter().placement_of(connection_of(arguments))
    return placement


@contextmanager
def needs_packages(extras: str) -> "Iterator[None]":
    """Name the package that is not installed, where an import in the context fails.

    :param extras: of the distribution, which install it
    :raises ConfigurationError: a package is missing
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"The command needs {error.name}, which is not installed: {install_extra(extras)}."
        ) from error


def _client_connection(command: CloudCommand) -> Any:
    """Return the connection of the openstack client, with the user, the region and all else in its options."""
    from os_prefilter.adapters.placement.client import TIMEOUT  # noqa: PLC0415
    from os_prefilter.adapters.session_limits import limit  # noqa: PLC0415

    client: Any = command.app
    manager = client.client_manager
    set_up = manager.setup_auth

    def set_up_with_limits() -> None:
        set_up()
        # The client waits forever for responses, also for those of the login that comes next.
        manager.session.timeout = manager.session.timeout or TIMEOUT
        limit(manager.session)

    command.auth_required = True
    manager.setup_auth = set_up_with_limits
    try:
        # As the client does before it runs a command that always needs a cloud.
        client.prepare_to_run_command(command)
        connection = manager.sdk_connection
    except Exception as error:
        raise ConfigurationError(
            f"The cloud cannot be used: {describe_error(error)}. Check --os-cloud, or the --os-... options "
            "and OS_... variables."
        ) from error
    return connection


@contextmanager
def _deadline(seconds: float) -> "Iterator[None]":
    """End the context with an error after some seconds, whatever it waits for."""

    def end(_number: int, _frame: object) -> None:
        raise PrefilterError(
            f"the command was ended after {seconds:g} seconds: a service of the cloud answers slowly, or not at all. "
            "Try again, or read a snapshot taken at a better time with --hosts."
        )

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, end)
    # Again each second: a client library may take the first error for one of the network.
    signal.setitimer(signal.ITIMER_REAL, seconds, 1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class _Stopped(KeyboardInterrupt):
    """The end of :class:`UntilStopped`, which no library takes for an error of its own."""


class UntilStopped:
    """Reads items until the command is interrupted, its time is over or a service fails; those before can be used.

    A second interruption ends the command.
    """

    def __init__(self) -> None:
        self.reason = ""
        """Why not all were read; empty if they were."""
        self._is_reading = self._is_done = self._is_late = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "UntilStopped":
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._stop) for number in (signal.SIGINT, signal.SIGALRM)}
        return self

    def __exit__(self, *_error: object) -> None:
        if self._is_late:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def items(self, every: "Iterable[_T]") -> "Iterator[_T]":
        """Yield items; the error of a service before the first one is raised."""
        source, is_first = iter(every), True
        while not self.reason:
            try:
                self._is_reading = True
                item = next(source)
                self._is_reading = False
            except StopIteration:
                self._is_done = True
                return
            except _Stopped:
                return
            except PrefilterError as error:
                if is_first or isinstance(error, DocumentError):
                    raise
                self.reason = str(error)
                return
            finally:
                self._is_reading = False
            yield item
            is_first = False

    def _stop(self, number: int, _frame: object) -> None:
        if number == signal.SIGINT and (self.reason or self._is_done):
            raise KeyboardInterrupt
        self._is_late |= number == signal.SIGALRM
        if not self._is_done:
            self.reason = self.reason or ("the time is over" if self._is_late else "interrupted")
        if self._is_reading:
            raise _Stopped


def seconds(text: str) -> int:
    """Return the value of an option with a time."""
    if not (text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of seconds of at least 1")
    return int(text)


def _exit_with_error(parser: argparse.ArgumentParser, message: str) -> None:
    parser.print_usage(sys.stderr)
    parser.exit(_ERROR, f"{parser.prog}: error: {message}\n")
