"""``root_and_unsuffixed`` gives the candidates that ``root`` gives, on a real Placement, flat and nested."""

import itertools
from collections.abc import Iterator

import pytest

from os_prefilter import RequestSpec, allocation_candidates_query
from os_prefilter.adapters.embedded import EmbeddedPlacement
from os_prefilter.adapters.placement.client import Candidates, PlacementClient
from os_prefilter.fleet.model import Fleet, Inventory, Provider, provider_uuid
from tests.conftest import pipeline_of, spec_of

_TRAITS = ("COMPUTE_NET_VIF_MODEL_E1000E", "COMPUTE_STATUS_DISABLED")
_SUBSETS = [frozenset(each) for size in range(3) for each in itertools.combinations(_TRAITS, size)]


def _provider(name: str, amounts: dict[str, int], traits: frozenset[str], *below: Provider) -> Provider:
    return Provider(
        name,
        provider_uuid(name),
        resources={each: Inventory(total) for each, total in amounts.items()},
        traits=traits,
        providers=below,
    )


def _flat() -> Iterator[Provider]:
    """Yield one host for each set of traits."""
    for number, traits in enumerate(_SUBSETS):
        yield _provider(f"flat-{number}", {"VCPU": 8, "MEMORY_MB": 8192, "DISK_GB": 100, "VGPU": 1}, traits)


def _nested() -> Iterator[Provider]:
    """Yield a host for each set of traits of its root and of the child that has its GPU and disk."""
    for number, (above, below) in enumerate(itertools.product(_SUBSETS, _SUBSETS)):
        child = _provider(f"nested-{number}-child", {"VGPU": 1, "DISK_GB": 100}, below)
        yield _provider(f"nested-{number}", {"VCPU": 8, "MEMORY_MB": 8192}, above, child)


@pytest.fixture(scope="module")
def client() -> Iterator[PlacementClient]:
    with EmbeddedPlacement(Fleet((*_flat(), *_nested()))) as placement:
        yield placement.client


_EXTRA_SPECS: list[dict[str, str]] = [
    {},
    {"resources:VGPU": "1"},
    {"resources_gpu:VGPU": "1"},
    {"resources:VCPU": "0"},
    {"resources:VCPU": "0", "resources:MEMORY_MB": "0", "resources:VGPU": "1"},
    {"resources_cpu:VCPU": "1", "resources_cpu:MEMORY_MB": "512"},
]


@pytest.mark.parametrize("extra_specs", _EXTRA_SPECS, ids=lambda each: ",".join(each) or "plain")
@pytest.mark.parametrize("is_bfv", [False, True])
def test_both_trait_scopes_give_the_same_allocation_candidates(
    client: PlacementClient, extra_specs: dict[str, str], is_bfv: bool
) -> None:
    """Hosts, the providers used of each, and the number of candidates; and filtering does filter."""

    def found(scope: str, *names: str) -> Candidates:
        spec: RequestSpec = spec_of({"hw_vif_model": "e1000e"}, extra_specs, is_bfv=is_bfv)
        pipeline_of(*names, trait_scope=scope, reported_traits=[]).apply(spec)
        return client.allocation_candidates(allocation_candidates_query(spec))

    on_root = found("root", "image_metadata", "compute_status")
    assert found("root_and_unsuffixed", "image_metadata", "compute_status") == on_root
    assert 0 < len(on_root.hosts) < len(found("root").hosts)
