# SPDX-License-Identifier: Apache-2.0

"""Between the library and a real service: counts requests, answers in its
place, loses requests, or keeps silent.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Optional

import requests

from tests.support.loopback import Call, Reply, serving

Answer = tuple[int, object]
LOST = (0, None)
"""The answer of a connection that breaks."""
Hook = Callable[[str, str], Optional[Answer]]
"""(method, path) -> an answer in the service's place, or None to let it
answer.
"""

_PASSED_ON = (
    "accept",
    "content-type",
    "location",
    "openstack-api-version",
    "x-auth-token",
    "x-subject-token",
)
_OF_IRONIC = "x-openstack-ironic-api-"


class Recorder:
    def __init__(self, real: str) -> None:
        self.url = ""
        self.real = real
        """The URL of the service itself."""
        self._end = threading.Event()
        self.sent: list[str] = []
        """METHOD and path of each request."""
        self.forget()

    def forget(self) -> None:
        """Be as at the start."""
        self.sent.clear()
        self.before: Hook = lambda _method, _path: None
        """Called before the service is asked."""
        self.after: Hook = lambda _method, _path: None
        """Called after the service has done what was asked."""
        self.is_hanging = False

    @property
    def written(self) -> list[str]:
        """The requests that may have changed anything; a login is none."""
        return [
            each
            for each in self.sent
            if not each.startswith(("GET ", "POST /v3/auth/tokens"))
        ]

    def close(self) -> None:
        self._end.set()

    def answer(self, call: Call) -> Reply | None:
        method, path, given, body = call
        self.sent.append(f"{method} {path}")
        if self.is_hanging:
            self._end.wait()
        answer = self.before(method, path)
        if answer is None:
            with requests.Session() as http:
                http.trust_env = False
                headers = {
                    name: value
                    for name, value in given.items()
                    if _is_passed_on(name)
                }
                response = http.request(
                    method,
                    self.real + path,
                    headers=headers,
                    data=body,
                    timeout=60,
                    allow_redirects=False,
                )
            answer = self.after(method, path)
            if answer is None:
                # A service says in its answers where it is.
                content = response.content.replace(
                    self.real.encode(), self.url.encode()
                )
                kept = {
                    name: value
                    for name, value in response.headers.items()
                    if _is_passed_on(name)
                }
                return Reply(response.status_code, content, kept)
        if answer == LOST:
            return None
        content = (
            answer[1]
            if isinstance(answer[1], bytes)
            else json.dumps(answer[1]).encode()
        )
        return Reply(answer[0], content, {"Content-Type": "application/json"})


def _is_passed_on(header: str) -> bool:
    return header.lower() in _PASSED_ON or header.lower().startswith(
        _OF_IRONIC
    )


@contextmanager
def recorded(real: str, *, waits: bool = False) -> Iterator[Recorder]:
    """Stand before the service at this URL while the context lasts.

    :param waits: whether what it still passes on is waited for at the end
    """
    state = Recorder(real)
    with serving(state.answer, waits=waits, at_end=state.close) as state.url:
        yield state
