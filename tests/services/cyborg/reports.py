# SPDX-License-Identifier: Apache-2.0

"""Cyborg's reports: what they leave in Placement, and what happens before one
of their requests.
"""

from __future__ import annotations

import threading
from itertools import count
from typing import TYPE_CHECKING, NamedTuple
from uuid import NAMESPACE_DNS, uuid3

import pytest

from tests.services.cyborg.real_cyborg import (
    ADDRESSES,
    GPU_TRAITS,
    SSD_TRAITS,
    VGPUS,
    Cyborg,
    CyborgDied,
    Hardware,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
    from tests.support.placements import Answer, Served


class Left(NamedTuple):
    """What Placement has of a provider of Cyborg's."""

    inventories: dict[str, int]
    traits: frozenset[str]


WHOLE_GPU = Left({"VGPU": VGPUS}, frozenset(GPU_TRAITS))
WHOLE_SSD = Left({"CUSTOM_SSD": 1}, frozenset(SSD_TRAITS))


def provider_of(name: str) -> str:
    """Return the UUID that Cyborg gives to a provider."""
    return str(uuid3(NAMESPACE_DNS, name))


def left_of(placement: EmbeddedPlacement, name: str) -> Left | None:
    """Return None if there is no provider of that name."""
    if not placement.client.providers(f"name={name}"):
        return None
    read = placement.client.request
    path = f"/resource_providers/{provider_of(name)}"
    inventories = read("GET", f"{path}/inventories")["inventories"]
    return Left(
        {each: row["total"] for each, row in inventories.items()},
        frozenset(read("GET", f"{path}/traits")["traits"]),
    )


def requests_of_report(cyborg: Cyborg, hardware: Hardware) -> list[str]:
    """Start Cyborg; return the requests of a report of one more GPU.

    The first report creates the trait of the GPU's type as well.
    """
    hardware.plug_gpu(ADDRESSES[0])
    cyborg.start()
    cyborg.report()
    hardware.plug_gpu(ADDRESSES[1])
    requests = cyborg.report()
    # Its traits, several requests after its inventory.
    name = provider_of(cyborg.provider(ADDRESSES[1]))
    path = f"PUT /resource_providers/{name}"
    assert requests[-1] == f"{path}/traits"
    assert requests.index(f"{path}/inventories") < len(requests) - 2
    return requests


def at_request(number: int, call: Callable[[], None]) -> Callable[[int], None]:
    """Return a hook for the requests to come: it calls at one of them."""
    numbers = count(1)

    def hook(_number: int) -> None:
        if next(numbers) == number:
            call()

    return hook


class Death(NamedTuple):
    """When Cyborg is killed."""

    request: int
    """The number of the request within the report."""
    arrives: bool = False
    """Whether Placement still serves that request."""


def die(death: Death, cyborg: Cyborg, placement: Served) -> None:
    """Let Cyborg report, and kill it."""
    served = threading.Event()

    def refuse(_method: str, _url: str) -> Answer:
        served.set()
        return 503, {}

    def kill() -> None:
        if not death.arrives:
            placement.answer = refuse
        cyborg.kill()
        if death.arrives:
            served.set()

    moment = "after" if death.arrives else "before"
    setattr(placement, moment, at_request(death.request, kill))
    with pytest.raises(CyborgDied):
        cyborg.report()
    # Cyborg may be gone before its last request has been dealt with.
    assert served.wait(timeout=60)
    setattr(placement, moment, lambda _number: None)
    placement.answer = lambda _method, _url: None
