# SPDX-License-Identifier: Apache-2.0

"""Agents of ours on a host where Cyborg reports, and what a host's server is
offered there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from os_prefilter import RequestGroup, allocation_candidates_query
from os_prefilter.adapters.placement.trait_sync import ProviderTraits
from os_prefilter.hosts.desired_traits import Goal
from os_prefilter.vocabulary.options import Options
from tests.conftest import pipeline_of, spec_of
from tests.support.placements import UUID

if TYPE_CHECKING:
    from os_prefilter_tools.adapters.embedded import EmbeddedPlacement

LITTLE = {"resources:MEMORY_MB": "0", "resources:DISK_GB": "0"}
"""Extra specs of a flavor for the small hosts of these tests."""
_GOAL = Goal({}, {}, frozenset(), Options())


def _agent(placement: EmbeddedPlacement, host: str) -> ProviderTraits:
    return ProviderTraits(placement.client, host, sleep=lambda _seconds: None)


class Rounds:
    """What agents do between two requests of Cyborg's."""

    def __init__(self, placement: EmbeddedPlacement, host: str = UUID) -> None:
        self._placement = placement
        self._host = host
        self._agent = _agent(placement, host)

    def one(self) -> None:
        self._agent.sync(_GOAL)

    def two(self) -> None:
        self.one()
        self.one()

    def two_of_a_new_agent(self) -> None:
        self._agent = _agent(self._placement, self._host)
        self.two()


def gpus_offered(
    placement: EmbeddedPlacement, spec: object, *filters: str
) -> set[str]:
    """Return the providers below hosts in the allocation candidates."""
    pipeline_of(*filters).apply(spec)
    candidates = placement.client.allocation_candidates(
        allocation_candidates_query(spec)
    )
    used = set().union(*candidates.providers.values())
    return used - {*candidates.hosts}


def gpus_for_flavor(placement: EmbeddedPlacement) -> set[str]:
    """Return the GPUs from which a flavor can get a virtual one."""
    spec = spec_of(extra_specs={"resources:VGPU": "1", **LITTLE})
    return gpus_offered(placement, spec, "owner")


def gpus_for_profile(placement: EmbeddedPlacement) -> set[str]:
    """Return those from which a device profile without traits can."""
    group = RequestGroup("device_profile_0", {"VGPU": 1})
    spec = spec_of(extra_specs=LITTLE, requested_resources=[group])
    return gpus_offered(placement, spec, "owner")
