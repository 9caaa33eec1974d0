# SPDX-License-Identifier: Apache-2.0

"""What an embedding service knows of the server of a request.

Of one that exists and moves, the machine type that it keeps, with which the
default of its next host does not count, and whether its flavor is new: then
extra specs may be a reason to reject it. Of each, what its user asks for in
addition to image and flavor.

Nova writes the machine type of a server's first start into the server's system
metadata, where the image names none, and never into the request spec. See ADR
0014.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeVar

from os_prefilter.common.logs import get_logger
from os_prefilter.common.quoting import quote
from os_prefilter.request.spec import ServerOptions
from os_prefilter.request.view import UNKNOWN_MACHINE_TYPE, Request
from os_prefilter.service.deployment_facts import ask_in_time
from os_prefilter.vocabulary import BY_NAME, opt_in_traits
from os_prefilter.vocabulary.options import Options

LOG = get_logger(__name__)

_T = TypeVar("_T")

_MACHINE = BY_NAME["machine_type"]
_DEFAULT_MACHINE = BY_NAME["default_machine"]


class ExistingServer(NamedTuple):
    """A server that exists; by default, nothing is known of it."""

    machine_type: str | None = UNKNOWN_MACHINE_TYPE
    """The machine type that it keeps, such as ``pc-q35-9.1``.

    None if it gets the default of its next host; empty if that is not known.
    """
    has_new_flavor: bool = False
    """True for a resize.

    With False, the server is rejected for nothing that it may have had before.
    """


KEEPS_NOTHING = ExistingServer(None)

LookUpServer = Callable[[Any, Any], ExistingServer]
"""``(context, request_spec) -> ExistingServer``.

After an error, nothing is known of the server. Called for requests of existing
servers alone, never for a new server.
"""

LookUpServerOptions = Callable[[Any, Any], ServerOptions]
"""``(context, request_spec) -> ServerOptions``.

After an error, they are not known. Called once for each request, also of a new
server, if an enabled filter reads them.
"""


# A service has one object of options.
@lru_cache(maxsize=16)
def may_be_required(options: Options) -> bool:
    """Return whether filters can require a machine type with these options.

    They can also forbid hosts with some default.
    """
    traits = opt_in_traits((_MACHINE, _DEFAULT_MACHINE))
    return any(map(options.reports, traits))


def find_server(
    look_up: LookUpServer | None,
    request: Request,
    context: Any,
    until: float,
    options: Options,
) -> ExistingServer:
    """Return what a decision depends on of the server of a request.

    :param until: when the request waits no longer, on the clock of
        :func:`time.monotonic`
    """
    machine_counts = request.takes_default_machine_type and may_be_required(
        options
    )
    # Only extra specs can be a reason to reject a resize.
    flavor_counts = request.extra_specs and not request.is_rebuild
    if not (machine_counts or flavor_counts):
        return KEEPS_NOTHING
    found = ExistingServer()
    if look_up:
        asked, problem = ask_in_time(
            partial(_ask, look_up, request, context, ExistingServer),
            "existing server",
            until,
            "look_up_server",
        )
        if problem:
            LOG.warning(
                "Failed to look up the server %s (%s): no host is excluded"
                " because of its default machine type, and nothing in a new"
                " flavor is a reason to reject the request.",
                quote(request.instance_uuid),
                problem,
            )
        else:
            found = asked.result()
    if not machine_counts:
        return found._replace(machine_type=None)
    # One of no known family requires nothing, and is not the host's default
    # either.
    if found.machine_type and not _MACHINE.canonical(found.machine_type):
        return found._replace(machine_type=UNKNOWN_MACHINE_TYPE)
    return found


def find_server_options(
    look_up: LookUpServerOptions, request: Request, context: Any, until: float
) -> ServerOptions:
    """Return what the server of a request asks for.

    In addition to its image and its flavor.

    :param until: as for :func:`find_server`
    """
    asked, problem = ask_in_time(
        partial(_ask, look_up, request, context, ServerOptions),
        "server options",
        until,
        "look_up_server_options",
    )
    if not problem:
        return asked.result()
    LOG.warning(
        "Failed to look up the tags, trusted certificates, volumes and shares"
        " of the server %s (%s): no host is excluded because of them.",
        quote(request.instance_uuid),
        problem,
    )
    return ServerOptions(not_known=True)


def _ask(
    look_up: Callable[[Any, Any], Any],
    request: Request,
    context: Any,
    expected: type[_T],
) -> _T:
    found: object = request.ask(look_up, context)
    # The keys of a mapping, or a longer tuple, would pass for other fields.
    if not isinstance(found, expected):
        what = type(found).__name__
        raise TypeError(f"it returned a {what}, not {expected.__name__}")
    return found
