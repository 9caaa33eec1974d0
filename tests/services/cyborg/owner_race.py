# SPDX-License-Identifier: Apache-2.0

"""A real Cyborg reports a GPU while agents run rounds: at each of its requests
to Placement, in each combination.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
import requests
from cyborg.conductor.manager import ConductorManager
from cyborg.context import RequestContext
from keystoneauth1.adapter import Adapter

from os_prefilter import RequestGroup, allocation_candidates_query
from os_prefilter.adapters.placement.trait_sync import ProviderTraits
from os_prefilter.hosts.desired_traits import Goal
from os_prefilter.vocabulary.options import Options
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.fleet.model import Fleet
from tests.conftest import pipeline_of, spec_of
from tests.support.placements import HOST, UUID, provider, traits_of

_GOAL = Goal({}, {}, frozenset(), Options())
_CYBORGS = "CUSTOM_NVIDIA_1EB8_T4_2B"
# Of Cyborg's driver for NVIDIA GPUs, which has an owner trait, and as most of
# its drivers leave their providers.
_TRAITS = {
    "NVIDIA": ["OWNER_CYBORG", _CYBORGS],
    "without an owner trait": [_CYBORGS],
}
_NAMES = (f"{HOST}_0000:{bus:02x}:00.0" for bus in count(1))


class Watched(Adapter):
    """Cyborg's way to Placement; calls a function before one of its
    requests.
    """

    def __init__(self, placement: EmbeddedPlacement) -> None:
        super().__init__(
            placement.client._adapter.session,
            service_type="placement",
            raise_exc=False,
        )
        self.sent: list[str] = []
        self.before: Callable[[int], None] = lambda _number: None

    def request(
        self, url: str, method: str, **options: Any
    ) -> requests.Response:
        self.sent.append(method)
        self.before(len(self.sent))
        return super().request(f"/{url.lstrip('/')}", method, **options)


@pytest.fixture(scope="module")
def placement() -> Iterator[EmbeddedPlacement]:
    """Return a host with a GPU that is Nova's, before Nova 34."""
    gpu = provider(f"{HOST}_pci_0000_84_00_0", "VGPU")
    with EmbeddedPlacement(
        Fleet(
            (provider(HOST, "VCPU MEMORY_MB DISK_GB", "COMPUTE_NODE", (gpu,)),)
        )
    ) as placement:
        yield placement


class Cyborg:
    """Cyborg's conductor, as far as it reports to Placement: without its
    database.
    """

    def __init__(
        self, placement: EmbeddedPlacement, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.to_placement = Watched(placement)
        monkeypatch.setattr(
            "cyborg.common.utils.get_sdk_adapter",
            lambda _type: self.to_placement,
        )
        self.manager = ConductorManager("topic", HOST)

    def report(self, name: str, traits: list[str]) -> str:
        """Return the UUID of the provider of a virtual GPU."""
        self.to_placement.sent.clear()
        context = RequestContext()
        root = self.manager._get_root_provider(context, HOST)
        uuid: str = self.manager.provider_report(
            context, name, "VGPU", list(traits), 4, root
        )
        return uuid


def agent(placement: EmbeddedPlacement) -> ProviderTraits:
    return ProviderTraits(placement.client, UUID, sleep=lambda _seconds: None)


class Rounds:
    """What agents do between two requests of Cyborg's."""

    def __init__(self, placement: EmbeddedPlacement) -> None:
        self.placement = placement
        self.agents = [agent(placement), agent(placement)]

    def one(self) -> None:
        self.agents[0].sync(_GOAL)

    def two(self) -> None:
        self.one()
        self.one()

    def one_of_each(self) -> None:
        for each in self.agents:
            each.sync(_GOAL)

    def restart(self) -> None:
        self.agents[0] = agent(self.placement)
        self.two()


_ROUNDS = {
    "a round": Rounds.one,
    "two": Rounds.two,
    "one of each of two agents": Rounds.one_of_each,
    "two of a new agent": Rounds.restart,
}


def _number_of_requests(cyborg: Cyborg) -> int:
    cyborg.report(next(_NAMES), [_CYBORGS])
    return len(cyborg.to_placement.sent)


@pytest.mark.parametrize("traits", _TRAITS.values(), ids=_TRAITS)
@pytest.mark.parametrize("rounds", _ROUNDS.values(), ids=_ROUNDS)
def test_gpu_of_cyborg_never_gets_novas_trait_whenever_agents_look(
    rounds: Callable[[Rounds], None],
    traits: list[str],
    placement: EmbeddedPlacement,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Cyborg writes the inventory four requests before its owner trait, and
    keeps what it finds beside that.
    """
    cyborg = Cyborg(placement, monkeypatch)
    last = _number_of_requests(cyborg)
    assert last >= 8
    for number in range(1, last + 1):
        agents, name = Rounds(placement), next(_NAMES)
        cyborg.to_placement.before = lambda now: (
            rounds(agents) if now == number else None  # noqa: B023
        )
        uuid = cyborg.report(name, traits)
        agents.two()
        assert placement.client.provider_traits(uuid)[1] == {*traits}
        placement.client.request("DELETE", f"/resource_providers/{uuid}")
    assert "OWNER_NOVA" in traits_of(placement)
    assert "OWNER_NOVA" in traits_of(placement, f"{HOST}_pci_0000_84_00_0")


def test_trait_that_an_earlier_agent_gave_to_a_gpu_of_cyborg_is_taken_back(
    placement: EmbeddedPlacement, monkeypatch: pytest.MonkeyPatch
) -> None:
    cyborg, name = Cyborg(placement, monkeypatch), next(_NAMES)
    uuid = cyborg.report(name, [_CYBORGS])
    generation, traits = placement.client.provider_traits(uuid)
    placement.client.set_provider_traits(
        uuid, generation, traits | {"OWNER_NOVA"}
    )
    cyborg.report(name, _TRAITS["NVIDIA"])
    assert placement.client.provider_traits(uuid)[1] == {
        "OWNER_NOVA",
        *_TRAITS["NVIDIA"],
    }
    agent(placement).sync(_GOAL)
    assert placement.client.provider_traits(uuid)[1] == {*_TRAITS["NVIDIA"]}


def test_flavors_get_novas_gpu_and_device_profiles_cyborgs(
    placement: EmbeddedPlacement, monkeypatch: pytest.MonkeyPatch
) -> None:
    cyborg, agents, name = (
        Cyborg(placement, monkeypatch),
        Rounds(placement),
        next(_NAMES),
    )
    cyborg.to_placement.before = lambda _number: agents.one()
    cyborg.report(name, _TRAITS["NVIDIA"])
    agents.two()
    little = {"resources:MEMORY_MB": "0"}
    flavor = spec_of(extra_specs={"resources:VGPU": "1", **little})
    profile = spec_of(
        extra_specs=little,
        requested_resources=[RequestGroup("device_profile_0", {"VGPU": 1})],
    )
    found = []
    for spec in (flavor, profile):
        pipeline_of("owner").apply(spec)
        candidates = placement.client.allocation_candidates(
            allocation_candidates_query(spec)
        )
        found.append(set(candidates.providers[HOST]) - {HOST})
    assert found[0] == {f"{HOST}_pci_0000_84_00_0"}
    assert name in found[1]
    assert f"{HOST}_pci_0000_84_00_0" not in found[1]
