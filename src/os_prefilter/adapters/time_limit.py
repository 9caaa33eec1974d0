"""Limits for a keystoneauth session: how long it waits, how much it reads, and to which origin it sends secrets.

The timeout of ``requests`` is one for the connection, and then for each piece of data: a response that trickles in
never ends, and an endless one fills the memory. keystoneauth waits for its own lock where Keystone does not show its
versions (ADR 0015), and sends the token, or the password of a login, along wherever a redirect leads.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import TimeoutError as NotDoneError
from contextlib import suppress
from typing import Any
from urllib.parse import urljoin

import requests
from keystoneauth1 import exceptions
from keystoneauth1.identity.base import BaseIdentityPlugin
from requests.adapters import BaseAdapter
from urllib3.util import parse_url

from os_prefilter.common.quoting import quote
from os_prefilter.common.threads import start_thread

WHOLE = 2.0
"""How many times the timeout the whole response may take: one to begin, one to arrive."""

MOST_BYTES = 512 * 1024 * 1024
"""The longest response: the longest of a Placement with 100,000 hosts is below a fifth of it."""

_PIECE = 64 * 1024
# Those that keystoneauth follows.
_REDIRECTS = frozenset((301, 302, 303, 305, 307, 308))
_PORTS = {"http": 80, "https": 443}


def limit(session: Any) -> None:
    """Limit a ``keystoneauth1.session.Session`` by the timeout of each of its requests; call it before the login."""
    for scheme in ("http://", "https://"):
        transport = session.session.get_adapter(scheme)
        if not isinstance(transport, WholeAnswers):
            session.mount(scheme, WholeAnswers(transport))
    auth = session.auth
    # Other plugins, such as a fixed token, do not log in.
    if isinstance(auth, BaseIdentityPlugin) and not hasattr(auth.get_access, "is_limited"):
        setattr(auth, "get_access", _not_nested(auth.get_access))  # noqa: B010 - to mypy a method is no attribute


def _not_nested(get_access: Callable[..., Any]) -> Callable[..., Any]:
    """Return the method that gets the token of an identity plugin, refused while it runs in this thread.

    keystoneauth holds a lock while it logs in. Where Keystone answers 401 to the request for its versions, keystoneauth
    repeats that with a token, and waits for its own lock forever (ADR 0015). After an error, keystoneauth goes on with
    the version in the URL.
    """
    here = threading.local()

    def get_access_once(*args: Any, **options: Any) -> Any:
        if getattr(here, "is_running", False):
            raise exceptions.Unauthorized("Keystone requires a token for its list of versions, to get a token")
        here.is_running = True
        try:
            return get_access(*args, **options)
        finally:
            here.is_running = False

    get_access_once.is_limited = True  # type: ignore[attr-defined]
    return get_access_once


class WholeAnswers(BaseAdapter):
    """Reads each response to its end before it returns it.

    :param transport: sends the requests
    """

    def __init__(self, transport: BaseAdapter) -> None:
        super().__init__()
        self._transport = transport

    def send(self, request: requests.PreparedRequest, *args: Any, **options: Any) -> requests.Response:
        """Send a request.

        :raises requests.ReadTimeout: if the response has not ended in time
        :raises requests.ConnectionError: if the response is too long
        :raises requests.RequestException: if the response is a redirect to another scheme, host or port
        """
        timeout = options.get("timeout")
        seconds = timeout if isinstance(timeout, tuple) else (timeout,)
        # Uploads take their time; other users of the session may send files.
        is_file = not isinstance(request.body, (str, bytes, type(None)))
        if None in seconds or options.get("stream") or is_file:
            response = self._transport.send(request, *args, **options)
        else:
            response = self._send_in_time(WHOLE * max(seconds), request, *args, **options)
        _check_redirect(request, response)
        return response

    def close(self) -> None:
        """Close all connections."""
        self._transport.close()

    def _send_in_time(
        self, seconds: float, request: requests.PreparedRequest, *args: Any, **options: Any
    ) -> requests.Response:
        """Send a request in a thread, which may not even get to the end of the headers."""
        options["stream"] = True
        until = time.monotonic() + seconds
        late = requests.ReadTimeout(f"the response has not ended in {seconds:g} seconds", request=request)
        begun: list[requests.Response] = []

        def read() -> requests.Response:
            response = self._transport.send(request, *args, **options)
            begun.append(response)
            # A transport of another library may have no body to read.
            if response.raw is not None:
                try:
                    # As response.content does; it has no other name.
                    response._content = _body(response, until, late)  # noqa: SLF001
                except BaseException:
                    response.close()
                    raise
            return response

        reading = start_thread(read, f"response of {request.url}")
        try:
            return reading.result(seconds)
        except NotDoneError as error:
            if reading.done():
                # At the last moment.
                return reading.result()
            for response in begun:
                _shut(response)
            raise late from error


def _body(response: requests.Response, until: float, late: Exception) -> bytes:
    pieces: list[bytes] = []
    length = 0
    reader = response.iter_content(_PIECE)
    # Also before the first piece: a response whose headers came too late could not be shut.
    while time.monotonic() <= until:
        piece = next(reader, None)
        if piece is None:
            return b"".join(pieces)
        pieces.append(piece)
        length += len(piece)
        if length > MOST_BYTES:
            raise requests.ConnectionError(f"the response is longer than {MOST_BYTES} bytes")
    raise late


def _shut(response: requests.Response) -> None:
    """End the thread that reads a response: it finds the end of the data.

    urllib3 has a function for it since 2.3. Before that the thread lives until the next piece is full, or nothing comes
    for as long as the timeout.
    """
    shutdown = getattr(response.raw, "shutdown", None)
    if shutdown:
        # The response has ended meanwhile, or there is no socket.
        with suppress(ValueError, RuntimeError, OSError):
            shutdown()


def _check_redirect(request: requests.PreparedRequest, response: requests.Response) -> None:
    """Refuse a redirect to another origin: the headers and the body of a request, with secrets, would go there."""
    location = response.headers.get("Location")
    if response.status_code not in _REDIRECTS or location is None:
        return
    url = request.url or ""
    try:
        is_same = _origin_of(url) == _origin_of(urljoin(url, location))
    except ValueError:
        # Also LocationParseError: one cannot be read.
        is_same = False
    if not is_same:
        raise requests.RequestException(
            f"the response is a redirect to {quote(location)}: to another scheme, host or port. It is not followed, as "
            "the token or the password would go there. If that is the right URL, configure it",
            request=request,
        )


def _origin_of(url: str) -> tuple[str | None, str | None, int | None]:
    """Return the scheme, the host and the port of a URL: another port is another service, perhaps another user's."""
    # By the parser of the library that connects: others see another host where there is a backslash.
    parts = parse_url(url)
    return parts.scheme, parts.host, parts.port or _PORTS.get(parts.scheme or "")
