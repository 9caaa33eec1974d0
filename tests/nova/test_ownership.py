#    Licensed under the Apache License, Version 2.0 (the "License"); you may
#    not use this file except in compliance with the License. You may obtain
#    a copy of the License at
#
#         http://www.apache.org/licenses/LICENSE-2.0
#
#    Unless required by applicable law or agreed to in writing, software
#    distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
#    WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
#    License for the specific language governing permissions and limitations
#    under the License.

"""owner in Nova's scheduler: what Nova makes of a request that it changed."""

import json
from collections.abc import Iterator
from typing import Any

import nova.conf
import pytest
from nova import objects
from nova.scheduler import utils

from os_prefilter import allocation_candidates_query
from os_prefilter.adapters.placement.client import PlacementClient
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.fleet.model import provider_uuid
from tests.conftest import pipeline_of
from tests.support.gpu_trees import PCI_REQUEST, PROFILE, REQUESTS, Asked, Tree, fleet_of, trees
from tests.support.nova_objects import nova_spec
from tests.support.nova_start import user_context


def _spec(asked: Asked) -> Any:
    """Return a request as Nova's own objects."""
    ours = asked.spec()
    groups = [objects.RequestGroup(requester_id=each.requester_id) for each in ours.requested_resources]
    for group, each in zip(groups, ours.requested_resources, strict=True):
        group.obj_set_defaults()
        group.resources = dict(each.resources)
    own = objects.InstancePCIRequest(request_id=PCI_REQUEST, alias_name="a", count=1, spec=[])
    return nova_spec(
        {},
        dict(ours.flavor.extra_specs),
        is_bfv=False,
        requested_resources=groups,
        requested_destination=None,
        pci_requests=objects.InstancePCIRequests(requests=[own]) if asked.pci else None,
    )


@pytest.fixture
def _conf() -> Iterator[None]:
    nova.conf.CONF([], project="nova", default_config_files=[], default_config_dirs=[])
    yield
    nova.conf.CONF.reset()


@pytest.mark.usefixtures("_conf")
@pytest.mark.parametrize("scope", ["root", "root_and_unsuffixed"])
@pytest.mark.parametrize("asked", REQUESTS, ids=lambda each: each.name)
def test_our_query_equals_novas_query_for_the_filtered_request(asked: Asked, scope: str) -> None:
    """Nova chooses a group_policy where the flavor has one group: with the one that the filter made as well."""
    spec = _spec(asked)
    pipeline_of("owner", trait_scope=scope).apply(spec)
    novas = utils.resources_from_request_spec(user_context(), spec, None).to_querystring()
    assert allocation_candidates_query(spec) == novas


@pytest.fixture(scope="module")
def mixed() -> Iterator[tuple[Tree, PlacementClient]]:
    """Return a host with GPUs of both owners, one of Cyborg's without a trait, and its Placement."""
    (tree,) = [each for each in trees() if each.name == "deep-novas-cyborgs-untagged-shared-"]
    with EmbeddedPlacement(fleet_of([tree])) as placement:
        yield tree, placement.client


@pytest.mark.usefixtures("_conf")
@pytest.mark.parametrize(
    "asked", [each for each in REQUESTS if each.profile and not each.in_place], ids=lambda each: each.name
)
def test_nova_maps_device_profile_groups_only_to_cyborg_providers(
    asked: Asked, mixed: tuple[Tree, PlacementClient]
) -> None:
    """In the answer to the query, for the groups of the request as nova-conductor has it: without the filter's."""
    tree, client = mixed
    spec, conductors = _spec(asked), _spec(asked)
    pipeline_of("owner").apply(spec)
    query = utils.resources_from_request_spec(user_context(), spec, None).to_querystring()
    cyborgs = {provider_uuid(each.provider.name) for each in tree.devices if each.owner == "cyborg"}
    found = client.request("GET", f"/allocation_candidates?{query}")["allocation_requests"]
    assert found
    for each in found:
        utils.fill_provider_mapping(conductors, objects.Selection(allocation_request=json.dumps(each)))
        (profile,) = [group for group in conductors.requested_resources if group.requester_id == PROFILE]
        assert set(profile.provider_uuids) <= cyborgs
