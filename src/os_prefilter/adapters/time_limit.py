"""What keeps a session of keystoneauth from waiting without end, and from sending its secrets to another host.

The timeout of ``requests`` is one for the connection, and then for each piece of data: an answer that trickles in never
ends, and one that is endless fills the memory. keystoneauth waits for itself where Keystone does not tell its versions
(ADR 0026), and takes the token, or the password of a login, along wherever a redirect leads.
"""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import TimeoutError as NotYetError
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import urljoin

import requests
from keystoneauth1 import exceptions
from keystoneauth1.identity.base import BaseIdentityPlugin
from requests.adapters import BaseAdapter
from urllib3.exceptions import LocationParseError
from urllib3.util import parse_url

from os_prefilter.common.quoting import quote
from os_prefilter.common.threads import start_thread

WHOLE = 2.0
"""How many times the timeout the whole answer may take: one to begin, one to arrive."""

MOST_BYTES = 512 * 1024 * 1024
"""The longest answer: what a Placement with 100,000 hosts says in one is below a fifth of it."""

_PIECE = 64 * 1024
# Those that keystoneauth follows.
_REDIRECTS = frozenset((301, 302, 303, 305, 307, 308))

# When nobody waits for the answer any more, and the error that says so.
_Until = tuple[float, Exception]


def limit(session: Any) -> None:
    """Limit how long a ``keystoneauth1.session.Session`` waits, by the timeout of each request, and where secrets go.

    Call it before the session logs in.
    """
    for scheme in ("http://", "https://"):
        transport = session.session.get_adapter(scheme)
        if not isinstance(transport, WholeAnswers):
            session.mount(scheme, WholeAnswers(transport))
    auth = session.auth
    # Others, such as a fixed token, ask for none.
    if isinstance(auth, BaseIdentityPlugin) and not isinstance(auth.get_access, _Login):
        setattr(auth, "get_access", _Login(auth.get_access))  # noqa: B010 - to mypy a method is no attribute


class _Login:
    """Gets the token of an identity plugin, and refuses to ask for it while it is being asked for.

    keystoneauth holds a lock while it logs in. Where Keystone answers 401 to the request for its versions, keystoneauth
    repeats that with a token, for which it waits for its own lock: without end (ADR 0026). As an error, keystoneauth
    goes on with the version in the URL.
    """

    def __init__(self, get_access: Callable[..., Any]) -> None:
        self._get_access = get_access
        self._here = threading.local()

    def __call__(self, *args: Any, **options: Any) -> Any:
        if getattr(self._here, "asked", False):
            raise exceptions.Unauthorized("Keystone wants a token of those who ask it for its versions, to get a token")
        self._here.asked = True
        try:
            return self._get_access(*args, **options)
        finally:
            self._here.asked = False


class WholeAnswers(BaseAdapter):
    """Reads each answer to its end before it returns it.

    :param transport: sends the requests
    """

    def __init__(self, transport: BaseAdapter) -> None:
        super().__init__()
        self._transport = transport

    def send(self, request: requests.PreparedRequest, *args: Any, **options: Any) -> requests.Response:
        """Send a request.

        :raises requests.ReadTimeout: if the answer has not ended in time
        :raises requests.ConnectionError: if the answer is too long
        :raises requests.RequestException: if the answer is a redirect to another host
        """
        response = self._answer(request, *args, **options)
        _check_redirect(request, response)
        return response

    def _answer(self, request: requests.PreparedRequest, *args: Any, **options: Any) -> requests.Response:
        timeout = _seconds(options.get("timeout"))
        # Somebody else of the same session may send a file, which takes its time.
        is_file = not isinstance(request.body, (str, bytes, type(None)))
        if timeout is None or options.get("stream") or is_file:
            return self._transport.send(request, *args, **options)
        options["stream"] = True
        seconds = WHOLE * timeout
        late = requests.ReadTimeout(f"the answer has not ended in {seconds:g} seconds", request=request)
        begun: list[requests.Response] = []
        read = partial(self._read, begun, (time.monotonic() + seconds, late), request, *args, **options)
        answer = start_thread(read, f"answer of {request.url}")
        try:
            return answer.result(seconds)
        except NotYetError as error:
            if answer.done():
                # At the last moment.
                return answer.result()
            for response in begun:
                _shut(response)
            raise late from error

    def close(self) -> None:
        """Close all connections."""
        self._transport.close()

    def _read(self, begun: list[requests.Response], until: _Until, *args: Any, **options: Any) -> requests.Response:
        """Read an answer.

        :param begun: gets the answer as soon as its headers are there
        """
        response = self._transport.send(*args, **options)
        begun.append(response)
        if response.raw is None:
            # A transport of somebody else's, which has no body to read.
            return response
        try:
            # As response.content does; it has no other name.
            response._content = b"".join(_pieces(response, until))  # noqa: SLF001
        except BaseException:
            response.close()
            raise
        return response


def _check_redirect(request: requests.PreparedRequest, response: requests.Response) -> None:
    """Refuse what would take the headers and the body of a request, with the secrets in them, to another host."""
    location = response.headers.get("Location")
    if response.status_code not in _REDIRECTS or location is None:
        return
    url = request.url or ""
    try:
        # By the parser of those that connect: others see another host where there is a backslash.
        before, after = parse_url(url), parse_url(urljoin(url, location))
        is_same = before.host == after.host and not (before.scheme == "https" and after.scheme != "https")
    except LocationParseError:
        is_same = False
    if not is_same:
        raise requests.RequestException(
            f"the answer is a redirect to {quote(location)}: to another host, or without TLS. It is not followed, as "
            "the token or the password would go there. If that is the right URL, configure it",
            request=request,
        )


def _pieces(response: requests.Response, until: _Until) -> Iterator[bytes]:
    length = 0
    pieces = response.iter_content(_PIECE)
    # Also before the first: an answer whose headers came too late was not there to be shut.
    while time.monotonic() <= until[0]:
        piece = next(pieces, None)
        if piece is None:
            return
        yield piece
        length += len(piece)
        if length > MOST_BYTES:
            raise requests.ConnectionError(f"the answer is longer than {MOST_BYTES} bytes")
    raise until[1]


def _shut(response: requests.Response) -> None:
    """End the thread that reads an answer: it finds the end of the data.

    urllib3 has a function for it since 2.3. Before that the thread lives until the next piece is full, or nothing comes
    for as long as the timeout.
    """
    shutdown = getattr(response.raw, "shutdown", None)
    if shutdown:
        # It has ended meanwhile, or there is no socket.
        with suppress(ValueError, RuntimeError, OSError):
            shutdown()


def _seconds(timeout: Any) -> float | None:
    """Return the longest of the times that ``requests`` was given; None where it waits without end."""
    each = timeout if isinstance(timeout, tuple) else (timeout,)
    return None if None in each else float(max(each))
