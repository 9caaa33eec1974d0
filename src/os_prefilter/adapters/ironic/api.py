"""Requests to Ironic through openstacksdk, and the error for each kind of failure.

The SDK retries a request, with growing pauses, if Ironic answers 409 (the node is locked) or 503 (no worker is free):
``baremetal_status_code_retries``, by default 5 times in about 16 seconds.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

from keystoneauth1 import exceptions as auth_exceptions
from openstack import exceptions, utils
from openstack.baremetal.v1.node import Node

from os_prefilter.adapters.ironic.errors import (
    IronicRefused,
    IronicTooOld,
    IronicUnavailable,
    NodeNotReady,
    UnknownNode,
)
from os_prefilter.common.errors import IronicError, ProbeFailed
from os_prefilter.common.quoting import quote

# What a node may be called, so that a name never becomes another part of the URL: RFC 3986, unreserved.
_NAME = re.compile(r"[A-Za-z0-9._~-]{1,255}", re.ASCII)
_BIOS = "1.40"
_BIOS_REGISTRY = "1.74"
# What Ironic shows in place of a field that a user may not see.
_REDACTED = "** "


@contextmanager
def convert_errors(what: str, node: str) -> Iterator[None]:
    """Ask Ironic something; each failure becomes an :class:`os_prefilter.common.errors.IronicError`.

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
        status = int(getattr(error, "status_code", None) or getattr(error, "http_status", None) or 0)
        if status == HTTPStatus.CONFLICT:
            raise NodeNotReady(node, _text(error), "Try again when what holds it has ended.") from error
        if HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR:
            raise IronicRefused(what, status, _text(error)) from error
        raise IronicUnavailable(what, f"status {status}, {_text(error)}") from error
    except (exceptions.SDKException, auth_exceptions.ClientException, OSError, ValueError) as error:
        # OSError: the file of the certificate authority cannot be read, for one; ValueError: the answer is no JSON.
        raise IronicUnavailable(what, _text(error)) from error


def _text(error: Exception) -> str:
    """Return an error's text: Ironic's own if there is one."""
    return one_short_line(getattr(error, "details", None) or str(error) or type(error).__name__)


def one_short_line(text: object) -> str:
    """Return text from Ironic, which may contain a tenant's, quoted, on one line and cut."""
    words = "".join(character if character.isprintable() else " " for character in str(text)[:2_000])
    return quote(" ".join(words.split()).rstrip("."), 500)


def read(baremetal: Any, name: str) -> Node:
    """Return a node.

    :param name: its name or UUID
    :raises UnknownNode: there is none
    :raises IronicError: Ironic does not answer, or refuses
    """
    if not _NAME.fullmatch(name) or set(name) == {"."}:
        raise UnknownNode(name)
    with convert_errors("GET /v1/nodes/ID", name):
        node: Node = baremetal.get_node(name)
    return node


def need(baremetal: Any, microversion: str, what: str) -> None:
    """Check that Ironic's API, and what the client was told to use of it, has ``microversion``.

    :raises IronicTooOld: it has not
    """
    with convert_errors("GET /v1", what):
        supported = utils.supports_microversion(baremetal, microversion)
    if not supported:
        raise IronicTooOld(what, microversion)


def bios_settings(baremetal: Any, node: Node) -> list[Any]:
    """Return the BIOS settings of a node as Ironic shows them, since API 1.74 with what may be written into each.

    A node whose BIOS Ironic does not manage has none.

    :raises ProbeFailed: the answer is not that of an Ironic
    :raises IronicError: Ironic does not answer, or refuses
    """
    if node.bios_interface in (None, "no-bios"):
        return []
    what = "GET /v1/nodes/ID/bios"
    with convert_errors(what, str(node.id)):
        detailed = utils.supports_microversion(baremetal, _BIOS_REGISTRY)
        response = baremetal.get(
            f"/nodes/{node.id}/bios" + ("?detail=True" if detailed else ""),
            microversion=_BIOS_REGISTRY if detailed else _BIOS,
        )
        exceptions.raise_from_response(response)
        answer = response.json()
    settings = answer.get("bios") if isinstance(answer, dict) else None
    if not isinstance(settings, list):
        raise ProbeFailed(what, f"the answer has no list bios but {quote(settings)}", "Check what answers as Ironic.")
    return settings


def is_locked(node: Node) -> bool:
    """Return whether a conductor holds the lock of a node, as far as the user may see that."""
    return bool(visible(node.reservation))


def visible(text: object) -> str | None:
    """Return the text of a field; None where the user may not see it, or it is empty."""
    return None if not text or str(text).startswith(_REDACTED) else str(text)
