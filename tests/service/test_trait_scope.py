# SPDX-License-Identifier: Apache-2.0

"""``trait_scope``: each value gives the same candidates, on a real Placement,
and ``auto`` chooses by what it has.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from os_prefilter import (
    Options,
    Request,
    RequestSpec,
    Requirements,
    allocation_candidates_query,
    require,
)
from os_prefilter.adapters.placement.client import Candidates, PlacementClient
from os_prefilter.request.requirements import ROOT, UNSUFFIXED
from os_prefilter.service import Service
from os_prefilter.service.deployment_facts import Fact
from os_prefilter.service.loading import as_filter
from os_prefilter.vocabulary.options import TraitScope
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.fleet.model import (
    Fleet,
    Inventory,
    Provider,
    provider_uuid,
)
from tests.conftest import conf_with, pipeline_of, spec_of

_TRAITS = ("COMPUTE_NET_VIF_MODEL_E1000E", "COMPUTE_STATUS_DISABLED")
_SUBSETS = [
    frozenset(each)
    for size in range(3)
    for each in itertools.combinations(_TRAITS, size)
]


def _provider(
    name: str, classes: str, traits: frozenset[str], *below: Provider
) -> Provider:
    totals = {"VCPU": 8, "MEMORY_MB": 8192, "DISK_GB": 100, "VGPU": 1}
    resources = {each: Inventory(totals[each]) for each in classes.split()}
    return Provider(
        name, provider_uuid(name), resources, traits, providers=below
    )


def _nested() -> Iterator[Provider]:
    """Yield a host for each set of traits of its root and of the child that
    has its GPU and disk.
    """
    for number, (above, below) in enumerate(
        itertools.product(_SUBSETS, _SUBSETS)
    ):
        child = _provider(f"nested-{number}-child", "VGPU DISK_GB", below)
        yield _provider(f"nested-{number}", "VCPU MEMORY_MB", above, child)


@pytest.fixture(scope="module")
def client() -> Iterator[PlacementClient]:
    flat = (
        _provider(f"flat-{n}", "VCPU MEMORY_MB DISK_GB VGPU", traits)
        for n, traits in enumerate(_SUBSETS)
    )
    with EmbeddedPlacement(Fleet((*flat, *_nested()))) as placement:
        yield placement.client


_EXTRA_SPECS: list[dict[str, str]] = [
    {},
    {"resources:VGPU": "1"},
    {"resources_gpu:VGPU": "1"},
    {"resources:VCPU": "0"},
    {"resources:VCPU": "0", "resources:MEMORY_MB": "0", "resources:VGPU": "1"},
    {"resources_cpu:VCPU": "1", "resources_cpu:MEMORY_MB": "512"},
]


@pytest.mark.parametrize(
    "extra_specs", _EXTRA_SPECS, ids=lambda each: ",".join(each) or "plain"
)
def test_both_trait_scopes_give_the_same_allocation_candidates(
    client: PlacementClient, extra_specs: dict[str, str]
) -> None:
    """Hosts, the providers used of each, and the number of candidates; and
    filtering does filter.
    """

    def found(is_bfv: bool, scope: str, *names: str) -> Candidates:
        spec: RequestSpec = spec_of(
            {"hw_vif_model": "e1000e"}, extra_specs, is_bfv=is_bfv
        )
        pipeline_of(*names, trait_scope=scope, reported_traits=[]).apply(spec)
        return client.allocation_candidates(allocation_candidates_query(spec))

    for is_bfv in (False, True):
        on_root = found(is_bfv, "root", "image_metadata", "compute_status")
        assert (
            found(
                is_bfv,
                "root_and_unsuffixed",
                "image_metadata",
                "compute_status",
            )
            == on_root
        )
        assert 0 < len(on_root.hosts) < len(found(is_bfv, "root").hosts)


def test_amounts_that_the_query_computes_refuse_nothing_and_change_no_scope() -> (
    None
):
    """Inside Nova it is Nova's own query that computes them: it takes the
    first, and says why it refuses others.
    """

    def required(*names: str, **more: str) -> set[tuple[str, str]]:
        spec = spec_of({"hw_vif_model": "e1000e"}, more)
        decision = pipeline_of(
            *names, trait_scope="root_and_unsuffixed", reported_traits=[]
        ).apply(spec)
        return {(item.scope, item.trait) for item in decision.requirements}

    for names in (("image_metadata",), ("image_metadata", "owner")):
        for extra_specs in (
            {"hw:mem_encryption": "maybe"},
            {"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "9"},
        ):
            assert required(*names, **extra_specs) == required(*names), (
                names,
                extra_specs,
            )


_IMAGE = {"hw_vif_model": "e1000e"}
_ON_ROOT, _ON_BOTH = {ROOT}, {ROOT, UNSUFFIXED}


def test_other_values_do_not_ask_placement() -> None:
    asked: list[object] = []
    for scope, expected in (
        ("root", _ON_ROOT),
        ("root_and_unsuffixed", _ON_BOTH),
    ):
        conf = conf_with(enabled_filters=["image_metadata"], trait_scope=scope)
        decision = Service.from_conf(
            conf, {"nested_providers": asked.append}
        ).apply(spec_of(_IMAGE))
        assert {
            item.scope
            for item in decision.requirements
            if item.trait == _TRAITS[0]
        } == expected
    # Nor does a pipeline without filters.
    Service.from_conf(conf_with(), {"nested_providers": asked.append}).apply(
        spec_of(_IMAGE)
    )
    assert asked == []


@pytest.mark.parametrize("is_nested", [True, False], ids=["nested", "flat"])
def test_given_scope_is_used_where_a_filter_needs_the_fact_itself(
    *, is_nested: bool
) -> None:
    def needing(_request: Request, *, nested_providers: bool) -> Requirements:
        return require(_TRAITS[0], f"nested: {nested_providers}")

    name = "nested_providers"
    filters = (as_filter("mine", needing, {name}),)
    options = Options(trait_scope=TraitScope.ROOT_AND_UNSUFFIXED)
    facts = {name: Fact(name, lambda _context: is_nested, 60)}
    decision = Service(filters, options, facts).apply(spec_of())
    assert {item.scope for item in decision.requirements} == _ON_BOTH
