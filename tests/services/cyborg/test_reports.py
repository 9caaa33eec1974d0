# SPDX-License-Identifier: Apache-2.0

"""Cyborg reports a device in several requests, its traits in the last one.

Agents of ours run rounds between any two of them, and Cyborg dies there.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.services.cyborg.agents import (
    Rounds,
    gpus_for_flavor,
    gpus_for_profile,
)
from tests.services.cyborg.conftest import novas_gpu
from tests.services.cyborg.real_cyborg import ADDRESSES
from tests.services.cyborg.reports import (
    WHOLE_GPU,
    WHOLE_SSD,
    Death,
    at_request,
    die,
    left_of,
    provider_of,
    requests_of_report,
)
from tests.support.placements import HOST, UUID, traits_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
    from tests.services.cyborg.real_cyborg import Cyborg, Hardware
    from tests.support.placements import Served

GPU = ADDRESSES[0]


def assert_novas_have_their_trait(placement: EmbeddedPlacement) -> None:
    assert "OWNER_NOVA" in traits_of(placement)
    assert "OWNER_NOVA" in traits_of(placement, novas_gpu(HOST))


_ROUNDS = {
    "a round": Rounds.one,
    "two of a new agent": Rounds.two_of_a_new_agent,
}


@pytest.mark.parametrize("rounds", _ROUNDS.values(), ids=_ROUNDS)
def test_gpu_of_cyborg_never_gets_novas_trait_whenever_agents_look(
    rounds: Callable[[Rounds], None],
    cyborg: Cyborg,
    hardware: Hardware,
    placement: Served,
) -> None:
    requests = requests_of_report(cyborg, hardware)
    for number in range(1, len(requests) + 1):
        agents, address = Rounds(placement.placement), ADDRESSES[1 + number]
        hardware.plug_gpu(address)
        placement.before = at_request(number, partial(rounds, agents))
        cyborg.report()
        placement.before = lambda _number: None
        agents.two()
        left = left_of(placement.placement, cyborg.provider(address))
        assert left == WHOLE_GPU, f"request {number}"
    assert_novas_have_their_trait(placement.placement)


def test_device_of_a_driver_without_an_owner_trait_never_gets_novas(
    cyborg: Cyborg, hardware: Hardware, placement: Served
) -> None:
    agents = Rounds(placement.placement)
    placement.before = lambda _number: agents.two_of_a_new_agent()
    hardware.plug_ssd(GPU)
    cyborg.start()
    cyborg.report()
    agents.two()
    left = left_of(placement.placement, cyborg.provider(GPU))
    assert left == WHOLE_SSD
    assert_novas_have_their_trait(placement.placement)


def test_trait_that_an_earlier_agent_gave_to_a_gpu_of_cyborg_is_taken_back(
    cyborg: Cyborg, hardware: Hardware, placement: Served
) -> None:
    """Cyborg keeps the traits that it finds."""
    client, name = placement.placement.client, cyborg.provider(GPU)
    client.request(
        "POST",
        "/resource_providers",
        {
            "name": name,
            "uuid": provider_of(name),
            "parent_provider_uuid": UUID,
        },
    )
    client.set_provider_traits(provider_of(name), 0, {"OWNER_NOVA"})
    hardware.plug_gpu(GPU)
    cyborg.start()
    cyborg.report()
    left = left_of(placement.placement, name)
    assert left == WHOLE_GPU._replace(traits=WHOLE_GPU.traits | {"OWNER_NOVA"})
    Rounds(placement.placement).one()
    left = left_of(placement.placement, name)
    assert left == WHOLE_GPU


def test_owners_are_kept_apart_wherever_cyborg_dies(
    cyborg: Cyborg, hardware: Hardware, placement: Served
) -> None:
    """While it is down, when it has started again, and when the GPU has been
    found anew.
    """
    real = placement.placement
    agents = Rounds(real)
    whole = {cyborg.provider(address) for address in ADDRESSES[:2]}

    def assert_apart(name: str, when: str) -> None:
        agents.two()
        left = left_of(real, name)
        assert left is None or "OWNER_NOVA" not in left.traits, when
        assert gpus_for_flavor(real) == {novas_gpu(HOST)}, when
        assert gpus_for_profile(real) - {name} == whole, when

    requests = requests_of_report(cyborg, hardware)
    # Between two writes Placement is the same whenever Cyborg dies.
    deaths = [
        Death(number)
        for number, request in enumerate(requests, 1)
        if number == 1 or not request.startswith("GET")
    ]
    deaths.append(Death(len(requests), arrives=True))
    for number, death in enumerate(deaths, 2):
        address = ADDRESSES[number]
        name = cyborg.provider(address)
        hardware.plug_gpu(address)
        die(death, cyborg, placement)
        assert_apart(name, f"dead at {death}")
        cyborg.start()
        cyborg.report()
        assert_apart(name, f"started after a death at {death}")
        hardware.unplug(address)
        cyborg.report()
        assert left_of(real, name) is None, death
        hardware.plug_gpu(address)
        cyborg.report()
        assert_apart(name, f"found anew after a death at {death}")
        assert left_of(real, name) == WHOLE_GPU, death
        whole.add(name)
    assert_novas_have_their_trait(real)
