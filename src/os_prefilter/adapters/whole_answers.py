"""An HTTP answer must be there as a whole in time: the usual timeout is one for each part of it.

``requests`` waits so long for the connection, and then for each piece of data: an answer that trickles in never ends,
and one that is endless fills the memory. This limits both, for any session of keystoneauth.
"""

import time
from collections.abc import Iterator
from concurrent.futures import TimeoutError as NotYetError
from contextlib import suppress
from functools import partial
from typing import Any

import requests
from requests.adapters import BaseAdapter

from os_prefilter.background import start

WHOLE = 2.0
"""How many times the timeout the whole answer may take: one to begin, one to arrive."""

MOST_BYTES = 512 * 1024 * 1024
"""The longest answer: what a Placement with 100,000 hosts says in one is below a fifth of it."""

_PIECE = 64 * 1024

# When nobody waits for the answer any more, and the error that says so.
_Until = tuple[float, Exception]


def limit(session: Any) -> None:
    """Limit the answers that a ``keystoneauth1.session.Session`` waits for, by the timeout of each request."""
    for scheme in ("http://", "https://"):
        transport = session.session.get_adapter(scheme)
        if not isinstance(transport, WholeAnswers):
            session.mount(scheme, WholeAnswers(transport))


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
        """
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
        answer = start(read, f"answer of {request.url}")
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
