"""An HTTP answer must be there as a whole in time: the usual timeout is one for each part of it.

``requests`` waits so long for the connection, and then for each piece of data: an answer that trickles in never ends,
and one that is endless fills the memory. This limits both, for any session of keystoneauth.
"""

import time
from concurrent.futures import TimeoutError as NotYetError
from functools import partial
from typing import Any

import requests
from requests.adapters import BaseAdapter

from os_prefilter.background import start

WHOLE = 2.0
"""How many times the timeout the whole answer may take: one to begin, one to arrive."""

MOST_BYTES = 512 * 1024 * 1024
"""The longest answer: what a Placement with 100,000 hosts says in one is below a fifth of it."""

# After each piece it is seen whether anybody still waits. One that trickles keeps its thread for as long as it goes on.
_PIECE = 10 * 1024


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
        until = time.monotonic() + seconds, late
        answer = start(partial(self._read, until, request, *args, **options), f"answer of {request.url}")
        try:
            return answer.result(seconds)
        except NotYetError as error:
            if answer.done():
                # At the last moment.
                return answer.result()
            raise late from error

    def close(self) -> None:
        """Close all connections."""
        self._transport.close()

    def _read(self, until: tuple[float, Exception], *args: Any, **options: Any) -> requests.Response:
        response = self._transport.send(*args, **options)
        pieces, length = [], 0
        try:
            for piece in response.iter_content(_PIECE):
                pieces.append(piece)
                length += len(piece)
                if length > MOST_BYTES:
                    raise requests.ConnectionError(f"the answer is longer than {MOST_BYTES} bytes")
                if time.monotonic() > until[0]:
                    raise until[1]
        except BaseException:
            response.close()
            raise
        # As response.content does.
        response._content = b"".join(pieces)  # noqa: SLF001 - it has no other name
        return response


def _seconds(timeout: Any) -> float | None:
    """Return the longest of the times that ``requests`` was given; None where it waits without end."""
    each = timeout if isinstance(timeout, tuple) else (timeout,)
    return None if None in each else float(max(each))
