# SPDX-License-Identifier: Apache-2.0

"""owner, for a service that is not Nova: its providers may be below a root of
Nova's, or stand alone.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any

import pytest

from os_prefilter import (
    Flavor,
    RequestGroup,
    RequestSpec,
    allocation_candidates_query,
)
from os_prefilter.adapters.placement.client import PlacementClient
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.fleet.model import provider_uuid
from tests.conftest import one_in, pipeline_of, required_by, spec_of
from tests.support.gpu_trees import DEVICE_TRAIT, HOST_TRAIT, fleet_of, trees

_CYBORG: dict[str, Any] = {
    "owner_trait": "OWNER_CYBORG",
    "foreign_owner_traits": ["OWNER_NOVA"],
    "owned_resource_classes": ["VGPU", "FPGA", "CUSTOM_ACCELERATOR_*"],
}
_VGPU = {"resources:VGPU": "1"}
_TREES = list(trees())[:: one_in(3)]


def _accelerator_alone(**extra_specs: str) -> RequestSpec:
    """Return a request for a GPU without a server: nothing of a host."""
    return RequestSpec(Flavor(0, 0, 0, extra_specs={**_VGPU, **extra_specs}))


@pytest.fixture(scope="module")
def gpus() -> Iterator[PlacementClient]:
    with EmbeddedPlacement(fleet_of(_TREES)) as placement:
        yield placement.client


_PROFILE = RequestGroup("device_profile_0", {"VGPU": 1})
_OF_HOST = {f"trait:{HOST_TRAIT}": "required"}
_OF_DEVICE = {f"trait:{DEVICE_TRAIT}": "required"}
_REQUESTS = {
    "beside a host": spec_of(extra_specs=_VGPU),
    "described host": spec_of(extra_specs={**_VGPU, **_OF_HOST}),
    "in its own group": spec_of(extra_specs={"resources_gpu:VGPU": "1"}),
    "alone": _accelerator_alone(),
    "alone, and described": _accelerator_alone(**_OF_DEVICE),
    "device profile": spec_of(requested_resources=[_PROFILE]),
}


@pytest.mark.parametrize("scope", ["root", "root_and_unsuffixed"])
@pytest.mark.parametrize("name", _REQUESTS)
def test_other_service_gets_every_gpu_with_its_owner_trait_and_no_other(
    name: str, scope: str, gpus: PlacementClient
) -> None:
    """All GPUs with its trait, in each tree: Nova's roots with them below,
    roots of its own, sharing ones.
    """
    spec = copy.deepcopy(_REQUESTS[name])
    pipeline_of("owner", trait_scope=scope, **_CYBORG).apply(spec)
    assert not spec.root_required
    query = allocation_candidates_query(spec, limit=None)
    url = f"/allocation_candidates?{query}"
    found: set[str] = set()
    for each in gpus.request("GET", url)["allocation_requests"]:
        for provider, part in each["allocations"].items():
            if "VGPU" in part["resources"]:
                found.add(provider)
    traits = {"OWNER_CYBORG"}
    if name == "alone, and described":
        traits.add(DEVICE_TRAIT)
    assert found == {
        provider_uuid(device.provider.name)
        for tree in _TREES
        for device in tree.devices
        if device.has("VGPU") and traits <= {*device.provider.traits}
    }


@pytest.mark.parametrize("trait", [DEVICE_TRAIT, "OWNER_CYBORG"])
def test_gpu_that_must_stay_unsuffixed_gets_no_requirement_but_a_warning(
    trait: str, caplog: pytest.LogCaptureFixture
) -> None:
    """To forbid Nova's trait there would forbid the host."""
    spec = spec_of(extra_specs={**_VGPU, f"trait:{trait}": "required"})
    assert not pipeline_of("owner", **_CYBORG).apply(spec).requirements
    source = "flavor extra spec resources:VGPU, in no group of its own"
    reason = f"trait:{trait}=required may be met"
    problem = "cannot be kept on providers of the owner OWNER_CYBORG"
    assert re.search(f"{source}: {reason}.*: {problem}", caplog.text)


def test_pci_groups_of_nova_and_profiles_that_name_an_owner_are_left_alone() -> (
    None
):
    groups = [
        RequestGroup("pci-0", {"CUSTOM_PCI_1": 1}),
        RequestGroup("device_profile_0", {"VGPU": 1}, {"OWNER_NOVA"}),
        RequestGroup("device_profile_1", {"CUSTOM_OTHER": 1}),
    ]
    spec = spec_of(
        requested_resources=groups, pci_request_ids=frozenset({"pci"})
    )
    assert required_by("owner", spec, **_CYBORG) == []
