# SPDX-License-Identifier: Apache-2.0

"""A small server on a loopback port, which answers as a test says and is gone
with it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

_NO_CONTENT = 204


class Call(NamedTuple):
    method: str
    path: str
    headers: Message
    """A mapping whose names are found in any case."""
    body: bytes


class Reply(NamedTuple):
    status: int
    body: bytes | Iterator[bytes]
    """Whole, or as pieces that are sent as they come; after these the
    connection is closed.
    """
    headers: Mapping[str, str]
    """Beside Content-Length, which pieces do not have unless it is here."""


@contextmanager
def serving(
    answer: Callable[[Call], Reply | None],
    *,
    protocol: str = "HTTP/1.0",
    waits: bool = False,
    at_end: Callable[[], None] = lambda: None,
) -> Iterator[str]:
    """Yield the URL of a server.

    :param answer: called in a thread of each request; None closes the
        connection without an answer
    :param protocol: with ``HTTP/1.1`` connections stay open
    :param waits: whether requests that are under way at the end are waited for
    :param at_end: lets go what hangs
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = protocol
        # Headers and body are two writes: with Nagle's algorithm the second
        # one waits up to 40 ms for the client to acknowledge the first.
        disable_nagle_algorithm = True

        def serve(self) -> None:
            body = self.rfile.read(
                int(self.headers.get("content-length") or 0)
            )
            reply = answer(Call(self.command, self.path, self.headers, body))
            if reply is None:
                self.close_connection = True
                return
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            if reply.status != _NO_CONTENT and isinstance(reply.body, bytes):
                self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            if isinstance(reply.body, bytes):
                self.wfile.write(reply.body)
                return
            self.close_connection = True
            for piece in reply.body:
                self.wfile.write(piece)

        do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = serve  # noqa: N815 - the server's own names

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = not waits
        # Many clients may connect at once; the kernel turns others away for
        # seconds.
        request_queue_size = 128

        def handle_error(
            self, request: object, client_address: object
        ) -> None:
            """Say nothing: clients give up, or are killed here."""

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(
            target=server.serve_forever,
            kwargs={"poll_interval": 0.01},
            daemon=True,
        )
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            at_end()
            server.shutdown()
            thread.join()
