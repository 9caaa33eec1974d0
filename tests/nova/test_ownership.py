# SPDX-License-Identifier: Apache-2.0

"""owner in Nova's scheduler: what Nova makes of a request that it changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import nova.conf
import pytest
from keystoneauth1.adapter import Adapter
from nova import objects
from nova.compute.pci_placement_translator import PlacementView
from nova.compute.provider_tree import ProviderTree
from nova.scheduler import utils
from nova.scheduler.client.report import SchedulerReportClient

from os_prefilter import Options, RequestGroup, allocation_candidates_query
from os_prefilter.adapters.placement.client import PlacementClient
from os_prefilter.adapters.placement.facts import PlacementFacts
from os_prefilter.adapters.placement.trait_sync import ProviderTraits
from os_prefilter.hosts.desired_traits import Goal
from os_prefilter.service import Service
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.fleet.model import Fleet, provider_uuid
from tests.conftest import conf_with, pipeline_of, spec_of
from tests.support.gpu_trees import (
    PCI_REQUEST,
    PROFILE,
    REQUESTS,
    Asked,
    Tree,
    fleet_of,
    trees,
)
from tests.support.nova_objects import nova_spec
from tests.support.nova_start import user_context
from tests.support.placements import HOST, UUID, provider
from tests.support.zipping import zip_equal


def _spec(asked: Asked) -> Any:
    """Return a request as Nova's own objects."""
    ours = asked.spec()
    groups = [
        objects.RequestGroup(requester_id=each.requester_id)
        for each in ours.requested_resources
    ]
    for group, each in zip_equal(groups, ours.requested_resources):
        group.obj_set_defaults()
        group.resources = dict(each.resources)
    own = objects.InstancePCIRequest(
        request_id=PCI_REQUEST, alias_name="a", count=1, spec=[]
    )
    return nova_spec(
        {},
        dict(ours.flavor.extra_specs),
        is_bfv=False,
        requested_resources=groups,
        requested_destination=None,
        pci_requests=(
            objects.InstancePCIRequests(requests=[own]) if asked.pci else None
        ),
    )


@pytest.fixture
def _conf() -> Iterator[None]:
    nova.conf.CONF(
        [], project="nova", default_config_files=[], default_config_dirs=[]
    )
    yield
    nova.conf.CONF.reset()


@pytest.mark.usefixtures("_conf")
@pytest.mark.parametrize("scope", ["root", "root_and_unsuffixed"])
@pytest.mark.parametrize("asked", REQUESTS, ids=lambda each: each.name)
def test_our_query_equals_novas_query_for_the_filtered_request(
    asked: Asked, scope: str
) -> None:
    """Nova chooses a group_policy where the flavor has one group: with the one
    that the filter made as well.
    """
    spec = _spec(asked)
    pipeline_of("owner", trait_scope=scope).apply(spec)
    novas = utils.resources_from_request_spec(
        user_context(), spec, None
    ).to_querystring()
    assert allocation_candidates_query(spec) == novas


class PciHost:
    """A host whose PCI device a real nova-compute's code reports, and whose
    agent runs rounds.
    """

    def __init__(
        self, placement: EmbeddedPlacement, resource_class: str
    ) -> None:
        adapter = Adapter(
            placement.client._adapter.session,
            service_type="placement",
            raise_exc=False,
        )
        self._client = SchedulerReportClient(adapter)
        self._tags = (
            {"resource_class": resource_class} if resource_class else {}
        )
        self.agent = ProviderTraits(placement.client, HOST)

    def report(self) -> None:
        """Do what the resource tracker does for PCI devices, after its cache
        has expired.
        """
        self._client._association_refresh_time.clear()
        tree = self._client.get_provider_subtree_and_ensure_root(
            user_context(), UUID, name=HOST
        )
        device = SimpleNamespace(
            address="0000:84:00.0",
            dev_type="type-PCI",
            vendor_id="10de",
            product_id="20b0",
            extra_info={},
        )
        device.status, device.instance_uuid = "available", None
        view = PlacementView(HOST, [])
        view._add_dev(device, self._tags)
        view.update_provider_tree(tree, {})
        self._client.update_from_provider_tree(user_context(), tree)

    def run_round(self) -> None:
        self.agent.sync(Goal({}, {}, frozenset(), Options()))


_PCI_CLASSES = {
    "CUSTOM_A100": "a100",
    "PGPU": "pgpu",
    "CUSTOM_PCI_10DE_20B0": "",
}


@pytest.mark.usefixtures("_conf")
@pytest.mark.parametrize("before_34", [True, False])
@pytest.mark.parametrize("resource_class", _PCI_CLASSES)
def test_pci_device_of_any_resource_class_is_found_once_the_owner_is_enforced(
    resource_class: str, before_34: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before version 34 Nova does not give it the owner trait, and removes the
    trait that another gives.
    """
    if before_34:
        monkeypatch.setattr(ProviderTree, "add_traits", lambda *_: None)
    cyborgs = provider("cyborgs", resource_class, "OWNER_CYBORG")
    with EmbeddedPlacement(
        Fleet((provider(HOST, "VCPU DISK_GB", "COMPUTE_NODE", (cyborgs,)),))
    ) as placement:
        host = PciHost(placement, _PCI_CLASSES[resource_class])
        service = Service.from_conf(
            conf_with(enabled_filters=["owner"], facts_interval=0),
            {
                "owner_coverage": PlacementFacts(
                    placement.client
                ).owner_is_reported
            },
        )
        steps = (
            host.report,
            host.run_round,
            host.run_round,
            host.run_round,
            host.report,
            host.run_round,
            host.report,
        )
        for step in steps:
            step()
            request = RequestGroup("pci-0", {resource_class: 1})
            spec = spec_of(
                extra_specs={"resources:MEMORY_MB": "0"},
                requested_resources=[request],
                pci_request_ids=frozenset(("pci",)),
            )
            is_enforced = bool(service.apply(spec).requirements)
            found = placement.client.allocation_candidates(
                allocation_candidates_query(spec)
            )
            assert f"{HOST}_0000:84:00.0" in found.providers[HOST]
            assert ("cyborgs" in found.providers[HOST]) is not is_enforced
        assert is_enforced


@pytest.fixture(scope="module")
def mixed() -> Iterator[tuple[Tree, PlacementClient]]:
    """Return a host with GPUs of both owners, one of Cyborg's without a trait,
    and its Placement.
    """
    (tree,) = [
        each
        for each in trees()
        if each.name == "deep-novas-cyborgs-untagged-shared-"
    ]
    with EmbeddedPlacement(fleet_of([tree])) as placement:
        yield tree, placement.client


@pytest.mark.usefixtures("_conf")
@pytest.mark.parametrize(
    "asked",
    [each for each in REQUESTS if each.profile and not each.in_place],
    ids=lambda each: each.name,
)
def test_nova_maps_device_profile_groups_only_to_cyborg_providers(
    asked: Asked, mixed: tuple[Tree, PlacementClient]
) -> None:
    """In the answer to the query, for the groups of the request as
    nova-conductor has it: without the filter's.
    """
    tree, client = mixed
    spec, conductors = _spec(asked), _spec(asked)
    pipeline_of("owner").apply(spec)
    query = utils.resources_from_request_spec(
        user_context(), spec, None
    ).to_querystring()
    cyborgs = {
        provider_uuid(each.provider.name)
        for each in tree.devices
        if each.owner == "cyborg"
    }
    found = client.request("GET", f"/allocation_candidates?{query}")[
        "allocation_requests"
    ]
    assert found
    for each in found:
        utils.fill_provider_mapping(
            conductors, objects.Selection(allocation_request=json.dumps(each))
        )
        (profile,) = [
            group
            for group in conductors.requested_resources
            if group.requester_id == PROFILE
        ]
        assert set(profile.provider_uuids) <= cyborgs
