"""Between the library and a real service: counts requests, answers in its place, or keeps silent."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import requests

from tests.support.loopback import Call, Reply, serving

Answer = tuple[int, object]
Hook = Callable[[str, str], Answer | None]
"""(method, path) -> an answer in the service's place, or None to let it answer."""

_KEPT = ("accept", "content-type", "openstack-api-version", "x-auth-token", "x-subject-token")


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

    def answer(self, call: Call) -> Reply:
        """Let the service, or the hook, answer."""
        method, path, given, body = call
        self.sent.append(f"{method} {path}")
        if self.is_hanging:
            self._end.wait()
        answer = self.hook(method, path)
        if answer is not None:
            content = answer[1] if isinstance(answer[1], bytes) else json.dumps(answer[1]).encode()
            return Reply(answer[0], content, {"Content-Type": "application/json"})
        headers = {name: value for name, value in given.items() if name.lower() in _KEPT}
        with requests.Session() as http:
            http.trust_env = False
            response = http.request(
                method, self.real + path, headers=headers, data=body, timeout=60, allow_redirects=False
            )
        # A service says in its answers where it is.
        content = response.content.replace(self.real.encode(), self.url.encode())
        kept = {name: value for name, value in response.headers.items() if name.lower() in (*_KEPT, "location")}
        return Reply(response.status_code, content, kept)


@contextmanager
def recorded(real: str) -> Iterator[Recorder]:
    """Stand before the service at this URL while the context lasts."""
    state = Recorder(real)
    with serving(state.answer, at_end=state.close) as state.url:
        yield state
