# SPDX-License-Identifier: Apache-2.0

"""What an embedding service knows of a server that exists and moves.

With the machine type that it keeps, the default of its next host does not
count. With a new flavor, extra specs may be a reason to reject it.

Nova writes the machine type of a server's first start into the server's system
metadata, where the image names none, and never into the request spec. See ADR
0027.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from os_prefilter.common.logs import get_logger
from os_prefilter.common.quoting import quote
from os_prefilter.request.view import UNKNOWN_MACHINE_TYPE, Request
from os_prefilter.service.deployment_facts import ask_in_time
from os_prefilter.vocabulary import BY_NAME, opt_in_traits
from os_prefilter.vocabulary.options import Options

LOG = get_logger(__name__)

MachineTypeOf = Callable[[Any, Any], str | None]
"""``(context, request_spec) -> machine type``, such as ``pc-q35-9.1``.

It is the one that an existing server keeps; None where the server gets the
default of its next host. Empty, or an error, means that it is not known.
Called for moves alone, never for a new server.
"""

HasNewFlavor = Callable[[Any, Any], bool]
"""``(context, request_spec) -> whether a server is resized``."""

_MACHINE = BY_NAME["machine_type"]
_DEFAULT_MACHINE = BY_NAME["default_machine"]


def may_be_required(options: Options) -> bool:
    """Return whether filters can require a machine type with these options.

    They can also forbid hosts with some default.
    """
    traits = opt_in_traits((_MACHINE, _DEFAULT_MACHINE))
    return any(map(options.reports, traits))


def kept_machine_type(
    look_up: MachineTypeOf | None,
    request: Request,
    context: Any,
    until: float,
) -> str | None:
    """Return the machine type that the server of a request keeps.

    :param until: when the request waits no longer, on the clock of
        :func:`time.monotonic`
    :return: ``UNKNOWN_MACHINE_TYPE`` if it is not known
    """
    if look_up is None:
        return UNKNOWN_MACHINE_TYPE
    asked, problem = ask_in_time(
        partial(request.ask, look_up, context),
        "machine type",
        until,
        "kept_machine_type",
    )
    if problem:
        LOG.warning(
            "The machine type of the server %s is not known (%s): no host is"
            " excluded because of its default.",
            quote(request.instance_uuid),
            problem,
        )
        return UNKNOWN_MACHINE_TYPE
    machine_type = asked.result()
    if machine_type is None:
        return None
    # One of no known family requires nothing, and is not the host's default
    # either.
    return (
        machine_type
        if _MACHINE.canonical(machine_type)
        else UNKNOWN_MACHINE_TYPE
    )


def is_resized(
    look_up: HasNewFlavor | None,
    request: Request,
    context: Any,
    until: float,
) -> bool:
    """Return whether a server gets another flavor; False if it is not known.

    :param until: as for :func:`kept_machine_type`
    """
    # Only extra specs can be a reason to reject a resize.
    if (
        not look_up
        or not request.server_exists
        or request.is_rebuild
        or not request.extra_specs
    ):
        return False
    asked, problem = ask_in_time(
        partial(request.ask, look_up, context),
        "is resized",
        until,
        "has_new_flavor",
    )
    if problem:
        LOG.warning(
            "Failed to find out whether a server is resized: %s", problem
        )
        return False
    return asked.result()
