# SPDX-License-Identifier: Apache-2.0

"""GPUs of Nova's beside one of a real Cyborg's, on the same host.

Device profiles are created with Cyborg's API and read by Nova's own client.
"""

from __future__ import annotations

import shutil
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import pytest
import requests
from nova.accelerator.cyborg import get_device_profile_request_groups
from nova.conf import CONF
from nova.context import RequestContext

from os_prefilter import allocation_candidates_query
from os_prefilter_tools.fleet.model import provider_uuid
from tests.conftest import pipeline_of
from tests.services.cyborg.agents import LITTLE, Rounds, gpus_offered
from tests.services.cyborg.conftest import (
    OTHER_HOST,
    novas_gpu,
    placement_with_hosts,
)
from tests.services.cyborg.real_cyborg import ADDRESSES, GPU_TRAITS, Cyborg
from tests.support.nova_objects import nova_spec
from tests.support.placements import HOST

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from os_prefilter.adapters.placement.client import PlacementClient
    from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
    from tests.services.cyborg.real_cyborg import CyborgProgram, Hardware

CYBORGS_GPU = f"{HOST}_{ADDRESSES[0]}"
NOVAS_GPUS = {novas_gpu(HOST), novas_gpu(OTHER_HOST)}
_PROFILES = {
    "any-vgpu": {"resources:VGPU": "1"},
    "t4-vgpu": {
        "resources:VGPU": "1",
        f"trait:{max(GPU_TRAITS - {'OWNER_CYBORG'})}": "required",
    },
}
_OWNERS = {"project_id": str(uuid4()), "user_id": str(uuid4())}


class Cloud(NamedTuple):
    """A Placement in which Cyborg and agents have reported."""

    placement: EmbeddedPlacement
    api: str
    """URL of Cyborg's API."""

    @property
    def client(self) -> PlacementClient:
        return self.placement.client

    def flavor(self, **fields: Any) -> Any:
        """Return a request of Nova's for a virtual GPU of the flavor."""
        return nova_spec({}, {"resources:VGPU": "1", **LITTLE}, **fields)

    def profile(self, name: str) -> Any:
        """Return one for a device profile."""
        return nova_spec({}, LITTLE, requested_resources=groups_of(name))


def groups_of(profile: str) -> list[Any]:
    """Return the request groups that nova-api makes of a device profile."""
    context = RequestContext("user", "project", auth_token=str(uuid4()))
    groups: list[Any] = get_device_profile_request_groups(context, profile)
    return groups


@pytest.fixture(scope="module")
def cloud(
    program: CyborgProgram,
    hardware: Hardware,
    empty_database: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Cloud]:
    folder = tmp_path_factory.mktemp("cyborg")
    shutil.copy(empty_database, folder / "cyborg.db")
    hardware.unplug_all()
    hardware.plug_gpu(ADDRESSES[0])
    with ExitStack() as stack:
        placement = stack.enter_context(placement_with_hosts())
        cyborg = Cyborg(program, placement, folder)
        stack.enter_context(closing(cyborg))
        cyborg.start()
        cyborg.report()
        for host in (HOST, OTHER_HOST):
            Rounds(placement.placement, provider_uuid(host)).two()
        api = cyborg.call("serve_api")
        for name, group in _PROFILES.items():
            created = create_profile(api, name, group)
            assert created.status_code == 201, created.text
        CONF([], default_config_files=[])
        CONF.set_override("endpoint_override", api, "cyborg")
        yield Cloud(placement.placement, api)
        CONF.clear_override("endpoint_override", "cyborg")


@pytest.fixture
def server(cloud: Cloud) -> Iterator[Server]:
    server = Server(cloud.client)
    yield server
    for consumer in (server.uuid, server.migration):
        if server.held_by(consumer):
            server.release(consumer)


def create_profile(
    api: str, name: str, group: dict[str, str]
) -> requests.Response:
    profile = {"name": name, "groups": [group]}
    return requests.post(f"{api}/device_profiles", json=[profile], timeout=60)


def test_flavor_is_offered_novas_gpus_alone(cloud: Cloud) -> None:
    offered = gpus_offered(cloud.placement, cloud.flavor())
    assert offered == {*NOVAS_GPUS, CYBORGS_GPU}
    offered = gpus_offered(cloud.placement, cloud.flavor(), "owner")
    assert offered == NOVAS_GPUS


def test_device_profile_is_offered_cyborgs_gpu_alone(cloud: Cloud) -> None:
    any_gpu = cloud.profile("any-vgpu")
    assert gpus_offered(cloud.placement, any_gpu) == {
        *NOVAS_GPUS,
        CYBORGS_GPU,
    }
    any_gpu = cloud.profile("any-vgpu")
    assert gpus_offered(cloud.placement, any_gpu, "owner") == {CYBORGS_GPU}


def test_filter_takes_nothing_from_a_profile_that_names_cyborgs_trait(
    cloud: Cloud,
) -> None:
    t4 = cloud.profile("t4-vgpu")
    assert gpus_offered(cloud.placement, t4) == {CYBORGS_GPU}
    t4 = cloud.profile("t4-vgpu")
    assert gpus_offered(cloud.placement, t4, "owner") == {CYBORGS_GPU}


def test_server_gets_one_gpu_of_each_owner(cloud: Cloud) -> None:
    """Without knowledge of Placement or scheduling: the spec's use case."""
    both = cloud.flavor(requested_resources=groups_of("any-vgpu"))
    pipeline_of("owner").apply(both)
    candidates = cloud.client.candidates(allocation_candidates_query(both))
    used = [
        {*cloud.client.names_of(candidate["allocations"]).values()}
        for candidate in candidates.allocation_requests
    ]
    assert used == [{HOST, novas_gpu(HOST), CYBORGS_GPU}]


class Server:
    """What a server and its migration hold in Placement, as Nova does it."""

    def __init__(self, client: PlacementClient) -> None:
        self._client = client
        self.uuid = str(uuid4())
        self.migration = str(uuid4())

    def claim(self, spec: Any) -> None:
        """Claim the first candidate, as nova-scheduler does."""
        pipeline_of("owner").apply(spec)
        found = self._client.candidates(allocation_candidates_query(spec))
        candidate = found.allocation_requests[0]
        assert self._client.claim(self.uuid, candidate, **_OWNERS)

    def move(self, source: str, target: str) -> None:
        """Move allocations to another consumer, as nova-conductor does."""
        held = self._client.request("GET", f"/allocations/{source}")
        moved = {
            "allocations": {
                provider: {"resources": each["resources"]}
                for provider, each in held["allocations"].items()
            },
            "consumer_generation": None,
            "consumer_type": "MIGRATION",
            **_OWNERS,
        }
        emptied = {
            "allocations": {},
            "consumer_generation": held["consumer_generation"],
            "consumer_type": held["consumer_type"],
            **_OWNERS,
        }
        self._client.request(
            "POST", "/allocations", {source: emptied, target: moved}
        )

    def release(self, consumer: str) -> None:
        self._client.request("DELETE", f"/allocations/{consumer}")

    def held_by(self, consumer: str) -> dict[str, dict[str, int]]:
        """Return the name of a provider -> resources."""
        held = self._client.request("GET", f"/allocations/{consumer}")
        names = self._client.names_of(held["allocations"])
        return {
            names[provider]: each["resources"]
            for provider, each in held["allocations"].items()
        }


def used_gpus(client: PlacementClient) -> dict[str, int]:
    """Return the name of a provider -> virtual GPUs in use; none is left
    out.
    """
    used = {}
    for provider in client.providers("resources=VGPU:1"):
        path = f"/resource_providers/{provider.uuid}/usages"
        usages = client.request("GET", path)["usages"]
        used[provider.name] = usages["VGPU"]
    return used


_UNUSED = dict.fromkeys((*NOVAS_GPUS, CYBORGS_GPU), 0)


@pytest.mark.parametrize("profile", _PROFILES)
@pytest.mark.parametrize("to_cyborg", [True, False], ids=["to", "from"])
@pytest.mark.parametrize("confirmed", [True, False], ids=["confirm", "revert"])
def test_server_is_resized_from_one_owners_gpu_to_the_others(
    profile: str,
    to_cyborg: bool,
    confirmed: bool,
    cloud: Cloud,
    server: Server,
) -> None:
    novas, cyborgs = NOVAS_GPUS, {CYBORGS_GPU}
    old, new = cloud.flavor(), cloud.profile(profile)
    if not to_cyborg:
        old, new = new, old
        novas, cyborgs = cyborgs, novas
    assert used_gpus(cloud.client) == _UNUSED

    server.claim(old)
    before = server.held_by(server.uuid)
    assert len(before.keys() & novas) == 1
    assert len(before.keys() & cyborgs) == 0

    server.move(server.uuid, server.migration)
    server.claim(new)
    after = server.held_by(server.uuid)
    assert server.held_by(server.migration) == before
    assert len(after.keys() & novas) == 0
    assert len(after.keys() & cyborgs) == 1
    assert sum(used_gpus(cloud.client).values()) == 2

    if confirmed:
        server.release(server.migration)
        assert server.held_by(server.uuid) == after
    else:
        server.release(server.uuid)
        server.move(server.migration, server.uuid)
        assert server.held_by(server.uuid) == before
    assert server.held_by(server.migration) == {}
    assert sum(used_gpus(cloud.client).values()) == 1

    server.release(server.uuid)
    assert used_gpus(cloud.client) == _UNUSED


def test_device_profile_cannot_name_an_owner(cloud: Cloud) -> None:
    """So the filter keeps device profiles off Nova's GPUs by Nova's trait."""
    group = {"resources:VGPU": "1", "trait:OWNER_CYBORG": "required"}
    refused = create_profile(cloud.api, "cyborgs", group)
    assert refused.status_code == 400
    assert "should start with CUSTOM_" in refused.text
