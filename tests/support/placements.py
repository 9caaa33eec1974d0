# SPDX-License-Identifier: Apache-2.0

"""A real Placement, and what tests do to it: count requests, answer in its
place, serve it on a loopback port.
"""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Optional

import requests

from os_prefilter.adapters.placement.client import PlacementClient
from os_prefilter.service.answer import is_met
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.fleet.model import (
    Fleet,
    Inventory,
    Provider,
    provider_uuid,
)
from tests.support.loopback import Call, Reply, serving

HOST = "kvm-1"
UUID = provider_uuid(HOST)

Answer = tuple[int, object]
Hook = Callable[[str, str], Optional[Answer]]
"""(method, URL) -> an answer in Placement's place, or None to let it answer.
"""


def answering(answer: Answer | None, part: str = "") -> Hook:
    """Return a hook with one answer, to each request whose URL has this
    part.
    """
    return lambda _method, url: answer if part in url else None


def provider(
    name: str,
    classes: str = "VCPU MEMORY_MB",
    traits: str = "",
    children: tuple[Provider, ...] = (),
) -> Provider:
    inventories = {each: Inventory(16) for each in classes.split()}
    return Provider(
        name,
        provider_uuid(name),
        inventories,
        frozenset(traits.split()),
        (),
        children,
    )


def lone_host(
    traits: str = "COMPUTE_NODE HW_ARCH_X86_64 CUSTOM_OF_AN_OPERATOR",
) -> Fleet:
    """Return a host without nested providers."""
    return Fleet((provider(HOST, traits=traits),))


class Observed:
    """A client of a Placement whose requests are counted and may be answered
    by a hook.
    """

    def __init__(
        self,
        placement: EmbeddedPlacement,
        hook: Hook = lambda _method, _url: None,
    ) -> None:
        self.placement = placement
        self._adapter = placement.client._adapter
        self.hook = hook
        self.sent: list[str] = []
        """METHOD and path of each request."""
        self.received = 0
        """Bytes of all responses of Placement."""
        adapter: Any = self
        self.client = PlacementClient(adapter)

    def request(
        self, url: str, method: str, **options: Any
    ) -> requests.Response:
        """Pass a request on, as ``keystoneauth1.adapter.Adapter`` does."""
        self.sent.append(f"{method} {url}")
        answer = self.hook(method, url)
        if answer is None:
            response: requests.Response = self._adapter.request(
                url, method, **options
            )
            self.received += len(response.content)
            return response
        return response_of(answer)

    @property
    def methods(self) -> list[str]:
        return [each.partition(" ")[0] for each in self.sent]


class HostsInProcess:
    """A reader of hosts without a Placement; none has any resources.

    :param traits: UUID of a host -> its traits
    :param some: those that are known at first
    """

    def __init__(
        self, traits: Mapping[str, frozenset[str]], some: Iterable[str] = ()
    ) -> None:
        self._traits = traits
        self._some = tuple(some)

    def some_hosts(self, _context: object) -> tuple[str, ...]:
        return self._some

    def traits(self, host: str) -> frozenset[str] | None:
        return self._traits.get(host)

    def traits_in_use(self) -> frozenset[str]:
        return frozenset().union(*self._traits.values())

    def count_providers(self, _query: str) -> int:
        return len(self._traits)

    def count_candidate_hosts(self, _query: str) -> int:
        return 0

    def hosts(self, demand: Iterable[str]) -> list[str]:
        return [
            host
            for host, traits in self._traits.items()
            if is_met(frozenset(demand), traits)
        ]


def response_of(answer: Answer) -> requests.Response:
    """Return an HTTP response; what is not bytes is sent as JSON."""
    response = requests.Response()
    response.status_code = answer[0]
    response.raw = io.BytesIO(
        answer[1]
        if isinstance(answer[1], bytes)
        else json.dumps(answer[1]).encode()
    )
    response.encoding = "utf-8"
    return response


def traits_of(
    placement: EmbeddedPlacement, name: str = HOST
) -> frozenset[str]:
    return frozenset(
        placement.client.request(
            "GET", f"/resource_providers/{provider_uuid(name)}/traits"
        )["traits"]
    )


def everything(placement: EmbeddedPlacement) -> Mapping[str, Any]:
    """Return all that a report could change: the traits that exist, and each
    provider's generation and traits.
    """
    read = placement.client.request
    providers = read("GET", "/resource_providers")["resource_providers"]
    traits = {
        each["uuid"]: read("GET", f"/resource_providers/{each['uuid']}/traits")
        for each in providers
    }
    return {"traits": placement.client.traits(), "providers": traits}


def put_traits(
    placement: EmbeddedPlacement,
    change: Callable[[set[str]], None],
    name: str = HOST,
) -> None:
    """Write a provider's traits as another client does: read, change,
    write.
    """
    url = f"/resource_providers/{provider_uuid(name)}/traits"
    body = placement.client.request("GET", url)
    traits = set(body["traits"])
    change(traits)
    body = {
        "traits": sorted(traits),
        "resource_provider_generation": body["resource_provider_generation"],
    }
    placement.client.request("PUT", url, body)


class Served:
    """A Placement on a loopback port; ``before`` and ``after`` are called with
    the number of each request.
    """

    def __init__(self, placement: EmbeddedPlacement) -> None:
        self.placement = placement
        self.sent: list[str] = []
        self.before: Callable[[int], None] = lambda _number: None
        self.after: Callable[[int], None] = lambda _number: None
        self.answer: Hook = lambda _method, _url: None
        self.url = ""
        self._came = threading.Condition()
        self._closing = threading.Event()

    def wait_for(self, number: int) -> None:
        with self._came:
            assert self._came.wait_for(
                lambda: len(self.sent) >= number, timeout=60
            )

    def hang(self, _number: int) -> None:
        self._closing.wait()

    def close(self) -> None:
        self._closing.set()

    def handle(self, call: Call) -> Reply:
        response = self._response(call)
        return Reply(
            response.status_code,
            response.content,
            {
                "content-type": response.headers.get(
                    "content-type", "application/json"
                )
            },
        )

    def _response(self, call: Call) -> requests.Response:
        method, path, headers, body = call
        with self._came:
            self.sent.append(f"{method} {path}")
            number = len(self.sent)
            self._came.notify_all()
        self.before(number)
        answer = self.answer(method, path)
        if answer is not None:
            return response_of(answer)
        adapter: Any = self.placement.client._adapter
        http: requests.Session = adapter.session.session
        response = http.request(
            method,
            f"http://embedded.invalid{path}",
            headers=dict(headers.items()),
            data=body,
        )
        self.after(number)
        return response


@contextmanager
def served(placement: EmbeddedPlacement) -> Iterator[Served]:
    """Serve a Placement on a loopback port while the context lasts."""
    state = Served(placement)
    with serving(
        state.handle, protocol="HTTP/1.1", at_end=state.close
    ) as state.url:
        yield state


def nova_conf(url: str) -> str:
    return (
        f"[placement]\nauth_type = admin_token\nendpoint = {url}\ntoken ="
        " admin\n"
    )
