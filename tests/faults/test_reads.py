# SPDX-License-Identifier: Apache-2.0

"""What is read from a Placement that breaks at random is the truth or an
error, and never takes longer than stated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from os_prefilter.adapters.placement.client import PlacementClient
from os_prefilter.adapters.placement.facts import PlacementFacts
from os_prefilter.common.errors import PlacementError
from os_prefilter.common.threads import start_thread
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.adapters.fleet_reader import read_fleet
from os_prefilter_tools.fleet.model import Fleet
from tests.conftest import one_in, times
from tests.faults.broken_proxy import WRONG, broken, client_of
from tests.support.every_trait import ALL_REPORTED, EVERY_GROUP
from tests.support.placements import UUID, Answer, Observed, provider

FOREVER = 60.0

QUESTIONS: Mapping[str, Callable[[PlacementClient], object]] = {
    "owner coverage": lambda client: PlacementFacts(
        client
    ).owner_is_reported(),
    "reports": lambda client: PlacementFacts(
        client, groups=EVERY_GROUP
    ).reports(),
    "nested providers": lambda client: PlacementFacts(
        client, compute_nodes=lambda _context: [UUID]
    ).nested_providers(),
    "coverage of another trait": lambda client: PlacementFacts(
        client, owner_trait="CUSTOM_A"
    ).owner_is_reported(),
    "all facts": lambda client: PlacementFacts(
        client,
        ("known_traits", "nested_providers", "owner_is_reported", "reports"),
        EVERY_GROUP,
    )(),
    "fleet": lambda client: read_fleet(client).hosts,
    "fleet without inventories": lambda client: (
        read_fleet(client, inventories=False).hosts
    ),
    "traits": lambda client: (
        client.traits(),
        client.custom_traits(),
        client.traits_in_use(),
    ),
    "ensure_traits": lambda client: client.ensure_traits(
        ["CUSTOM_A", "COMPUTE_NODE"]
    ),
    "candidates": lambda client: client.allocation_candidates(
        "resources=VCPU:1"
    ),
    "providers": lambda client: client.providers("required=CUSTOM_UNUSED"),
    "tree": lambda client: client.providers(f"in_tree={UUID}"),
    "provider": lambda client: (
        client.provider_traits(UUID),
        client.provider_resource_classes(UUID),
    ),
}


@pytest.fixture(scope="module")
def placement() -> Iterator[EmbeddedPlacement]:
    gpu = provider("gpu", "VGPU", "OWNER_NOVA")
    traits = " ".join(("COMPUTE_NODE OWNER_NOVA CUSTOM_A", *ALL_REPORTED))
    hosts = (
        provider("kvm-1", traits=traits, children=(gpu,)),
        provider("kvm-2", traits=traits),
    )
    with EmbeddedPlacement(Fleet(hosts)) as embedded:
        embedded.know(["CUSTOM_UNUSED"])
        yield embedded


@pytest.mark.parametrize("name", QUESTIONS)
def test_read_from_a_failing_placement_is_correct_or_raises(
    name: str, placement: EmbeddedPlacement, tmp_path: Path
) -> None:
    ask = QUESTIONS[name]
    with broken(placement, len(name), rate=0.4) as (proxy, url):
        truth, client, answers = (
            ask(placement.client),
            client_of(url, tmp_path),
            [],
        )
        for _ in range(times(3)):
            try:
                answers.append(
                    start_thread(lambda: ask(client), "a question").result(
                        FOREVER
                    )
                )
            except PlacementError as error:
                assert "\n" not in str(error)
        proxy.settle(client)
        answers.append(ask(client))
        assert all(answer == truth for answer in answers)
        assert proxy.broken


@pytest.mark.parametrize("name", QUESTIONS)
def test_malformed_placement_response_never_gives_a_wrong_result(
    name: str, placement: EmbeddedPlacement
) -> None:
    truth = QUESTIONS[name](placement.client)
    for wrong, number in [
        (wrong, number) for wrong in WRONG for number in range(3)
    ][len(name) % 4 :: one_in(4)]:
        seen = Observed(placement)

        def spoil(
            method: str,
            url: str,
            seen: Observed = seen,
            at: int = number,
            body: bytes = wrong,
        ) -> Answer | None:
            return (200, body) if len(seen.sent) == at + 1 else None

        seen.hook = spoil
        try:
            assert QUESTIONS[name](seen.client) == truth, (wrong, seen.sent)
        except PlacementError:
            assert len(seen.sent) >= number + 1
