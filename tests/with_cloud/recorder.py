"""Between the library and a real service: counts requests, answers in its place, or keeps silent."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import requests

Answer = tuple[int, object]
Hook = Callable[[str, str], Answer | None]
"""(method, path) -> an answer in the service's place, or None to let it answer."""

_KEPT = ("content-type", "openstack-api-version", "x-auth-token")


class Recorder:
    """What passed, and what is done to it."""

    def __init__(self, real: str) -> None:
        self.url = ""
        self.real = real
        """The URL of the service itself."""
        self.sent: list[str] = []
        """METHOD and path of each request."""
        self.hook: Hook = lambda _method, _path: None
        self.is_hanging = False
        self._end = threading.Event()

    def forget(self) -> None:
        """Be as at the start."""
        self.sent.clear()
        self.hook = lambda _method, _path: None
        self.is_hanging = False

    def close(self) -> None:
        """Let go what hangs."""
        self._end.set()

    def answer(self, request: BaseHTTPRequestHandler) -> tuple[int, bytes, dict[str, str]]:
        """Let the service, or the hook, answer."""
        body = request.rfile.read(int(request.headers.get("content-length") or 0))
        self.sent.append(f"{request.command} {request.path}")
        if self.is_hanging:
            self._end.wait()
        answer = self.hook(request.command, request.path)
        if answer is not None:
            content = answer[1] if isinstance(answer[1], bytes) else json.dumps(answer[1]).encode()
            return answer[0], content, {"Content-Type": "application/json"}
        headers = {name: value for name, value in request.headers.items() if name.lower() in _KEPT}
        with requests.Session() as http:
            http.trust_env = False
            response = http.request(
                request.command, self.real + request.path, headers=headers, data=body, timeout=60, allow_redirects=False
            )
        # A service says in its answers where it is.
        content = response.content.replace(self.real.encode(), self.url.encode())
        return response.status_code, content, dict(response.headers)


@contextmanager
def recorded(real: str) -> Iterator[Recorder]:
    """Stand before the service at this URL while the context lasts."""
    state = Recorder(real)

    class Handler(BaseHTTPRequestHandler):
        def serve(self) -> None:
            status, body, headers = state.answer(self)
            self.send_response(status)
            for name, value in headers.items():
                if name.lower() in (*_KEPT, "location"):
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = serve  # noqa: N815 - the server's own names

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """Say nothing: clients give up here."""

    with Server(("127.0.0.1", 0), Handler) as server:
        state.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield state
        finally:
            state.close()
            server.shutdown()
            thread.join()
