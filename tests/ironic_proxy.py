"""Between the library and a real Ironic: counts requests, answers in Ironic's place, and loses requests or answers."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import requests

LOST = (0, None)
"""The answer of a connection that breaks."""

Answer = tuple[int, object]
Hook = Callable[[str, str], Answer | None]
"""(method, path) -> an answer in Ironic's place, or None to let it answer."""

_PASSED_ON = ("Content-Type", "X-OpenStack-Ironic-API-Version", "OpenStack-API-Version")


class Proxy:
    """What passed, and what is done to it."""

    def __init__(self, ironic: str) -> None:
        self.url = ""
        self.sent: list[str] = []
        """METHOD and path of each request that writes."""
        self.before: Hook = lambda _method, _path: None
        """Called before Ironic is asked."""
        self.after: Hook = lambda _method, _path: None
        """Called after Ironic has done what was asked."""
        self._ironic = ironic

    def pass_on(self, request: BaseHTTPRequestHandler) -> tuple[int, bytes, dict[str, str]]:
        """Let Ironic, or a hook, answer."""
        method, path = request.command, request.path
        body = request.rfile.read(int(request.headers.get("content-length") or 0))
        if method != "GET":
            self.sent.append(f"{method} {path}")
        answer = self.before(method, path)
        if answer is None:
            headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
            with requests.Session() as http:
                http.trust_env = False
                response = http.request(method, self._ironic + path, headers=headers, data=body, timeout=60)
            answer = self.after(method, path)
            if answer is None:
                return response.status_code, response.content, dict(response.headers)
        return answer[0], json.dumps(answer[1]).encode(), {"Content-Type": "application/json"}


@contextmanager
def proxied(ironic: str) -> Iterator[Proxy]:
    """Stand before the Ironic at this URL while the context lasts."""
    state = Proxy(ironic)

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            status, body, headers = state.pass_on(self)
            if (status, None) == LOST:
                self.close_connection = True
                return
            self.send_response(status)
            for name, value in headers.items():
                if name.lower().startswith(("content-type", "x-openstack", "openstack")):
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = answer  # noqa: N815 - the server's own names

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    class Server(ThreadingHTTPServer):
        # What it still passes on is waited for at the end.
        daemon_threads = False

        def handle_error(self, request: object, client_address: object) -> None:
            """Say nothing: clients give up here."""

    with Server(("127.0.0.1", 0), Handler) as server:
        state.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield state
        finally:
            server.shutdown()
            thread.join()
