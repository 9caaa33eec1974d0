# SPDX-License-Identifier: Apache-2.0

"""Requests to Ironic through openstacksdk, and an error for each failure.

The SDK retries a request, with growing pauses, if Ironic returns 409 (the node
is locked) or 503 (no worker is free): ``baremetal_status_code_retries``, by
default 5 times in about 16 seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

from keystoneauth1 import exceptions as auth_exceptions
from openstack import exceptions
from openstack.baremetal.v1.node import Node

from os_prefilter.adapters.ironic.errors import (
    IronicRefused,
    IronicUnavailable,
    NodeNotReady,
    UnknownNode,
)
from os_prefilter.common.errors import IronicError, ProbeFailed
from os_prefilter.common.quoting import quote

# What Ironic shows in place of a field that a user may not see.
_REDACTED = "** "


@contextmanager
def convert_errors(what: str, node: str) -> Iterator[None]:
    """Convert each failure of a request to Ironic into an ``IronicError``.

    :param what: the request, for messages
    """
    try:
        yield
    except IronicError:
        raise
    except exceptions.NotFoundException as error:
        raise UnknownNode(node) from error
    except (exceptions.HttpException, auth_exceptions.HttpError) as error:
        # Of the SDK, or of keystoneauth.
        status = int(
            getattr(error, "status_code", None)
            or getattr(error, "http_status", None)
            or 0
        )
        if status == HTTPStatus.CONFLICT:
            raise NodeNotReady(
                node, _text(error), "Try again when what holds it has ended."
            ) from error
        if HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR:
            raise IronicRefused(what, status, _text(error)) from error
        raise IronicUnavailable(
            what, f"status {status}, {_text(error)}"
        ) from error
    except (
        exceptions.SDKException,
        auth_exceptions.ClientException,
        OSError,
        ValueError,
    ) as error:
        # OSError: the file of the certificate authority cannot be read, for
        # one; ValueError: the response is no JSON.
        raise IronicUnavailable(what, _text(error)) from error


def _text(error: Exception) -> str:
    """Return an error's text: Ironic's own if there is one."""
    return one_short_line(
        getattr(error, "details", None) or str(error) or type(error).__name__
    )


def one_short_line(text: object) -> str:
    """Return a text of Ironic's, quoted, on one line and cut.

    It may contain a tenant's text.
    """
    words = "".join(
        character if character.isprintable() else " "
        for character in str(text)[:2_000]
    )
    return quote(" ".join(words.split()).rstrip("."), 500)


def bios_settings(baremetal: Any, node: Node) -> list[Any]:
    """Return the BIOS settings of a node as Ironic shows them.

    API 1.74 also shows what may be written into each.

    A node whose BIOS Ironic does not manage has none.

    :raises ProbeFailed: the response is not that of an Ironic
    :raises IronicError: Ironic does not respond, or refuses
    """
    if node.bios_interface in (None, "no-bios"):
        return []
    what = "GET /v1/nodes/ID/bios"
    with convert_errors(what, str(node.id)):
        response = baremetal.get(
            f"/nodes/{node.id}/bios?detail=True", microversion="1.74"
        )
        exceptions.raise_from_response(response)
        document = response.json()
    settings = document.get("bios") if isinstance(document, dict) else None
    if not isinstance(settings, list):
        raise ProbeFailed(
            what,
            f"the response has no list bios but {quote(settings)}",
            "Check which service responds as Ironic.",
        )
    return settings


def visible(text: object) -> str | None:
    """Return the text of a field; None if empty, or hidden from the user."""
    return None if not text or str(text).startswith(_REDACTED) else str(text)
