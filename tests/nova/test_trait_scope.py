# SPDX-License-Identifier: Apache-2.0

"""``trait_scope = auto`` in Nova's scheduler: by its own client of Placement,
with its own objects.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from nova import context as nova_context
from nova import exception, objects

from os_prefilter import allocation_candidates_query
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.fleet.model import Fleet, provider_uuid
from tests.support.nova_objects import nova_spec
from tests.support.nova_start import Start, ask, our_entry, user_context
from tests.support.placements import Observed, provider

_E1000E = "COMPUTE_NET_VIF_MODEL_E1000E"
_ROOM = "VCPU MEMORY_MB DISK_GB"


@pytest.fixture
def observed() -> Iterator[Observed]:
    """Return a Placement without nested providers, of whose two hosts one has
    the model.
    """
    hosts = (
        provider("kvm-0", _ROOM, f"COMPUTE_NODE {_E1000E}"),
        provider("kvm-1", _ROOM, "COMPUTE_NODE"),
    )
    with EmbeddedPlacement(Fleet(hosts)) as placement:
        yield Observed(placement)


def _schedule(observed: Observed) -> Any:
    """Return what became of the flavor; the hosts are always the same."""
    spec = nova_spec(
        {"hw_vif_model": "e1000e"}, requested_resources=[], is_bfv=False
    )
    spec.flavor.memory_mb = spec.flavor.vcpus = spec.flavor.root_gb = 1
    spec.flavor.ephemeral_gb = spec.flavor.swap = 0
    before = dict(spec.flavor.extra_specs)
    our_entry()(user_context(), spec)
    assert spec.root_required == {_E1000E}
    assert observed.placement.client.allocation_candidates(
        allocation_candidates_query(spec)
    ).hosts == ("kvm-0",)
    return spec.flavor.extra_specs.items() - before.items()


_MIRRORED = {(f"trait:{_E1000E}", "required")}


def test_scheduler_mirrors_traits_while_there_is_no_nested_provider(
    start: Start, observed: Observed
) -> None:
    """Without a restart, also of a request whose decision was cached, and
    again once it has gone.

    Of the root alone while Placement is down.
    """
    observed.hook = lambda _method, _url: (503, b"down")
    start("image_metadata", "facts_interval = 0")
    ask(observed)
    assert _schedule(observed) == set()
    observed.hook = lambda _method, _url: None
    assert _schedule(observed) == _schedule(observed) == _MIRRORED
    body = {
        "name": "gpu",
        "uuid": provider_uuid("gpu"),
        "parent_provider_uuid": provider_uuid("kvm-1"),
    }
    observed.placement.client.request("POST", "/resource_providers", body)
    assert _schedule(observed) == _schedule(observed) == set()
    observed.placement.client.request(
        "DELETE", f"/resource_providers/{provider_uuid('gpu')}"
    )
    assert _schedule(observed) == _MIRRORED


def test_tree_of_one_compute_node_in_each_cell_is_looked_at_first(
    start: Start, observed: Observed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cell that does not respond is left out: the list of all nested
    providers decides.
    """
    nodes = {
        "cell1": exception.CellTimeout(),
        "cell2": nova_context.did_not_respond_sentinel,
        "cell3": objects.ComputeNodeList(
            objects=[objects.ComputeNode(uuid=provider_uuid("kvm-1"))]
        ),
        "cell4": objects.ComputeNodeList(objects=[]),
    }
    asked = []

    def cells(_context: Any, function: Any, **arguments: Any) -> Any:
        asked.append((function.__name__, arguments))
        return nodes

    monkeypatch.setattr(nova_context, "scatter_gather_skip_cell0", cells)
    start("image_metadata", "facts_interval = 0")
    ask(observed)
    assert _schedule(observed) == _MIRRORED
    assert asked == [("get_by_pagination", {"limit": 1})]
    trees = [each for each in observed.sent if "in_tree" in each]
    assert trees == [
        f"GET /resource_providers?in_tree={provider_uuid('kvm-1')}"
    ]
