# SPDX-License-Identifier: Apache-2.0

"""Limits for a keystoneauth session.

How much it reads, how long a response takes, where secrets go, and its lock.

keystoneauth reads a response without end, sends the token, or the password of
a login, along wherever a redirect leads, and waits for its own lock where
Keystone does not show its versions (ADR 0010). Its timeout ends what is
silent. What trickles in too slowly to fill a piece ends with the command, or
with the round of the agent.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urljoin

import requests
from keystoneauth1 import exceptions
from keystoneauth1.identity.base import BaseIdentityPlugin
from urllib3.util import parse_url

from os_prefilter.common.quoting import quote

WHOLE = 2.0
"""How many times the timeout the body of a response may take."""

MOST_BYTES = 512 * 1024 * 1024
"""The longest response that is read.

The longest of a Placement with 100,000 hosts is below a fifth of it.
"""

_PIECE = 4096
# The ones that keystoneauth follows.
_REDIRECTS = frozenset((301, 302, 303, 305, 307, 308))
_PORTS = {"http": 80, "https": 443}


def limit(session: Any) -> None:
    """Limit a ``keystoneauth1.session.Session``; call it before the login.

    Each request is limited by its own timeout.
    """
    hooks = session.session.hooks["response"]
    if _check_response in hooks:
        # The openstack client runs several commands with one session.
        return
    # requests calls it before it reads the body; keystoneauth follows
    # redirects after it.
    hooks.append(_check_response)
    # Other plugins, such as a fixed token, do not log in.
    if isinstance(session.auth, BaseIdentityPlugin):
        setattr(  # noqa: B010 - to mypy a method
            session.auth, "get_access", _not_nested(session.auth.get_access)
        )


def _not_nested(get_access: Callable[..., Any]) -> Callable[..., Any]:
    """Return a plugin's ``get_access``, refused while it runs in this thread.

    keystoneauth holds a lock while it logs in. Where Keystone returns 401 to
    the request for its versions, keystoneauth repeats that with a token, and
    waits for its own lock forever (ADR 0010). After an error, keystoneauth
    goes on with the version in the URL.
    """
    here = threading.local()

    def get_access_once(*args: Any, **options: Any) -> Any:
        if getattr(here, "is_running", False):
            raise exceptions.Unauthorized(
                "Keystone requires a token for its list of versions, to get a"
                " token"
            )
        here.is_running = True
        try:
            return get_access(*args, **options)
        finally:
            here.is_running = False

    return get_access_once


def _check_response(response: requests.Response, **options: Any) -> None:
    """Refuse a redirect to another origin, and read the body within limits.

    The caller may read the body itself.

    :raises requests.RequestException: the headers and the body of the request,
        with secrets, would go elsewhere
    :raises requests.ReadTimeout: the response does not end in time
    :raises requests.ConnectionError: the response is too long
    """
    try:
        _check_redirect(response)
        timeout = options.get("timeout")
        # A transport of another library may have no body to read.
        if timeout and not options.get("stream") and response.raw is not None:
            if isinstance(timeout, tuple):
                timeout = max(timeout)
            # As response.content does; it has no other name.
            response._content = _body(response, WHOLE * timeout)  # noqa: SLF001
    except BaseException:
        response.close()
        raise


def _check_redirect(response: requests.Response) -> None:
    location = response.headers.get("Location")
    if response.status_code not in _REDIRECTS or location is None:
        return
    try:
        is_same = _origin_of(response.url) == _origin_of(
            urljoin(response.url, location)
        )
    except ValueError:
        # Also LocationParseError: one cannot be read.
        is_same = False
    if not is_same:
        raise requests.RequestException(
            f"the response is a redirect to {quote(location)}: to another"
            " scheme, host or port. It is not followed, as the token or the"
            " password would go there. If that is the right URL,"
            " configure it",
            request=response.request,
        )


def _body(response: requests.Response, seconds: float) -> bytes:
    until = time.monotonic() + seconds
    pieces: list[bytes] = []
    length = 0
    for piece in response.iter_content(_PIECE):
        pieces.append(piece)
        length += len(piece)
        if length > MOST_BYTES:
            raise requests.ConnectionError(
                f"the response is longer than {MOST_BYTES} bytes"
            )
        if time.monotonic() > until:
            raise requests.ReadTimeout(
                f"the response has not ended in {seconds:g} seconds"
            )
    return b"".join(pieces)


def _origin_of(url: str) -> tuple[str | None, str | None, int | None]:
    """Return the scheme, the host and the port of a URL.

    Another port is another service, perhaps another user's.
    """
    # By the parser of the library that connects: others see another host where
    # there is a backslash.
    parts = parse_url(url)
    return (
        parts.scheme,
        parts.host,
        parts.port or _PORTS.get(parts.scheme or ""),
    )
