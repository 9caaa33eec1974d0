# SPDX-License-Identifier: Apache-2.0

"""A real Placement behind a proxy that delays, drops, cuts and spoils answers,
and loses those to what was done.

What it breaks, and when others write in between, is a seeded random choice.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from os_prefilter.adapters.nova_conf import load_conf
from os_prefilter.adapters.placement import client as placement_client
from os_prefilter.adapters.placement.client import PlacementClient
from os_prefilter.adapters.placement.from_conf import client_from
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from tests.support.loopback import Call, Reply, serving
from tests.support.placements import Served, nova_conf

TIMEOUT = 0.3
"""Seconds that the client behind the proxy waits for each part of an answer;
twice that for its body.
"""

WRONG = (
    b"[]",
    b"5",
    b"null",
    b"{}",
    b'{"traits": null, "resource_providers": null}',
    (
        b'{"traits": "CUSTOM_A", "resource_providers": "abc",'
        b' "allocation_requests": "x"}'
    ),
    (
        b'{"traits": {}, "resource_providers": {},'
        b' "resource_provider_generation": "7"}'
    ),
    (
        b'{"traits": [1, null], "resource_providers": [null, 5],'
        b' "resource_provider_generation": true}'
    ),
    (
        b'{"traits": [["CUSTOM_A"]], "resource_providers": [{"uuid": 5,'
        b' "name": null, "generation": "x"}]}'
    ),
    b'{"inventories": [], "usages": [], "aggregates": {}}',
    b"[" * 100_000,
    b"\xff\xfe{not JSON",
    b"<html><body><h1>It works!</h1></body></html>",
    b"",
)
"""Answers with status 200 that no Placement gives."""


def _status(proxy: BrokenPlacement, _answer: Reply) -> Reply:
    status = proxy.random.choice((404, 409, 429, 500, 502, 503, 504))
    bodies = (
        b"",
        b"<html>no</html>",
        b'{"errors": [{"detail": "broken"}]}',
        b'{"errors": 5}',
    )
    return Reply(
        status,
        proxy.random.choice(bodies),
        {"Content-Type": "application/json"},
    )


def _wrong(proxy: BrokenPlacement, _answer: Reply) -> Reply:
    return Reply(
        200, proxy.random.choice(WRONG), {"Content-Type": "application/json"}
    )


def _cut(proxy: BrokenPlacement, answer: Reply) -> Reply:
    body = answer.body if isinstance(answer.body, bytes) else b""
    cut = body[: proxy.random.randrange(len(body))] if body else b""
    return Reply(
        answer.status,
        iter((cut,)),
        {**answer.headers, "Content-Length": str(len(body) + 1)},
    )


def _trickle(proxy: BrokenPlacement, answer: Reply) -> Reply:
    def pieces() -> Iterator[bytes]:
        while not proxy.closing.wait(TIMEOUT / 30):
            # Slower ones end with the round of the agent, or with the command.
            yield b" " * 500

    return Reply(200, pieces(), answer.headers)


def _flood(proxy: BrokenPlacement, answer: Reply) -> Reply:
    def pieces() -> Iterator[bytes]:
        while not proxy.closing.wait(0.001):
            yield b'"' * 1000

    return Reply(200, pieces(), answer.headers)


def _silence(proxy: BrokenPlacement, _answer: Reply) -> None:
    proxy.closing.wait(4 * TIMEOUT)


FAULTS: Mapping[str, Callable[[BrokenPlacement, Reply], Reply | None]] = {
    "lost": lambda _proxy, _answer: None,
    "cut": _cut,
    "status": _status,
    "wrong": _wrong,
    "silent": _silence,
    "trickling": _trickle,
    "endless": _flood,
}
"""What becomes of the answer; in half of the cases, what was asked is done all
the same.
"""
# Those that take the client's timeout are rarer.
_WEIGHTS = {"silent": 1, "trickling": 1, "endless": 1}


class BrokenPlacement:
    """What stands between a client and Placement.

    :param seed: of all its choices
    :param rate: of the requests that are broken
    """

    def __init__(
        self, behind: EmbeddedPlacement, seed: int, rate: float
    ) -> None:
        self.random = random.Random(seed)  # noqa: S311 - a choice of faults
        self.rate = rate
        self.between: Callable[[], None] = lambda: None
        """Called before some of the requests: others write."""
        self.broken: list[str] = []
        self.closing = threading.Event()
        self._placement = Served(behind)
        self._one = threading.Lock()
        self._under_way = 0
        self._idle = threading.Condition()

    def handle(self, call: Call) -> Reply | None:
        with self._idle:
            self._under_way += 1
        try:
            return self._broken_or_not(call)
        finally:
            with self._idle:
                self._under_way -= 1
                self._idle.notify_all()

    def settle(self, client: PlacementClient) -> None:
        """Break nothing more, wait until nothing is on its way to Placement,
        and let the client wait as usual.
        """
        self.rate = 0.0
        client._timeout = placement_client.TIMEOUT
        with self._idle:
            assert self._idle.wait_for(lambda: not self._under_way, timeout=60)

    def _broken_or_not(self, call: Call) -> Reply | None:
        with self._one:
            is_broken = self.random.random() < self.rate
            if self.rate and self.random.random() < 0.3:
                self.between()
            kind = self.random.choices(
                list(FAULTS), [_WEIGHTS.get(name, 6) for name in FAULTS]
            )[0]
            is_done, is_late = (
                self.random.random() < 0.5,
                self.random.random() < 0.1,
            )
        if not is_broken:
            return self._placement.handle(call)
        self.broken.append(kind)
        if is_late:
            # The client has given up meanwhile, and may have gone on.
            self.closing.wait(3 * TIMEOUT)
        nothing = Reply(200, b"{}", {"Content-Type": "application/json"})
        return FAULTS[kind](
            self, self._placement.handle(call) if is_done else nothing
        )


@contextmanager
def broken(
    behind: EmbeddedPlacement, seed: int, rate: float = 0.3
) -> Iterator[tuple[BrokenPlacement, str]]:
    proxy = BrokenPlacement(behind, seed, rate)
    with serving(
        proxy.handle, protocol="HTTP/1.1", at_end=proxy.closing.set
    ) as url:
        yield proxy, url


def client_of(url: str, folder: object) -> PlacementClient:
    """Return a client as a nova.conf gives it, but for a timeout that is
    shorter than one that can be written there.
    """
    path = f"{folder}/nova.conf"
    with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123
        file.write(nova_conf(url))
    client = client_from(load_conf(path), path)
    client._timeout = TIMEOUT
    return client
