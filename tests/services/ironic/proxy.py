"""Between the library and a real Ironic: counts requests, answers in Ironic's place, and loses requests or answers."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import requests

from tests.support.loopback import Call, Reply, serving

LOST = (0, None)
"""The answer of a connection that breaks."""

Answer = tuple[int, object]
Hook = Callable[[str, str], Answer | None]
"""(method, path) -> an answer in Ironic's place, or None to let it answer."""

_KEPT = ("content-type", "x-openstack", "openstack")
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

    def pass_on(self, call: Call) -> Reply | None:
        """Let Ironic, or a hook, answer."""
        method, path, given, body = call
        if method != "GET":
            self.sent.append(f"{method} {path}")
        answer = self.before(method, path)
        if answer is None:
            headers = {name: given[name] for name in _PASSED_ON if name in given}
            with requests.Session() as http:
                http.trust_env = False
                response = http.request(method, self._ironic + path, headers=headers, data=body, timeout=60)
            answer = self.after(method, path)
            if answer is None:
                kept = {name: value for name, value in response.headers.items() if name.lower().startswith(_KEPT)}
                return Reply(response.status_code, response.content, kept)
        if answer == LOST:
            return None
        return Reply(answer[0], json.dumps(answer[1]).encode(), {"Content-Type": "application/json"})


@contextmanager
def proxied(ironic: str) -> Iterator[Proxy]:
    """Stand before the Ironic at this URL while the context lasts; what it still passes on is waited for at the end."""
    state = Proxy(ironic)
    with serving(state.pass_on, waits=True) as state.url:
        yield state
