"""On a real Placement with real allocations: a resize between a flavor with a VGPU and one with a device profile."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from os_prefilter import RequestGroup, RequestSpec, allocation_candidates_query
from os_prefilter.adapters.embedded import EmbeddedPlacement
from os_prefilter.adapters.placement.client import PlacementClient
from os_prefilter.fleet.model import Fleet, Inventory, Provider, provider_uuid
from tests.conftest import pipeline_of, spec_of

_INSTANCE, _MIGRATION = (str(uuid.uuid5(uuid.NAMESPACE_DNS, name)) for name in ("instance", "migration"))
_NAMES = {provider_uuid(f"{host}{gpu}"): f"{host}{gpu}" for host in "ab" for gpu in ("", "-nova", "-cyborg")}


def _provider(name: str, classes: str, traits: str, *providers: Provider) -> Provider:
    # One GPU each: while the migration holds it, it is taken.
    resources = {each: Inventory(1 if each == "VGPU" else 4096) for each in classes.split()}
    return Provider(name, provider_uuid(name), resources, frozenset(traits.split()), (), providers)


def _host(name: str, cyborgs_trait: str) -> Provider:
    """Return a host with a GPU of Nova's and one of Cyborg's."""
    novas = _provider(f"{name}-nova", "VGPU", "OWNER_NOVA")
    cyborgs = _provider(f"{name}-cyborg", "VGPU", cyborgs_trait)
    return _provider(name, "VCPU MEMORY_MB DISK_GB", "COMPUTE_NODE OWNER_NOVA", novas, cyborgs)


@pytest.fixture(params=["OWNER_CYBORG", ""], ids=["with Cyborg's trait", "without it"])
def cloud(request: pytest.FixtureRequest) -> Iterator["_Cloud"]:
    """Return two hosts, each with both kinds of GPU."""
    with EmbeddedPlacement(Fleet((_host("a", request.param), _host("b", request.param)))) as placement:
        yield _Cloud(placement.client)


class _Cloud:
    """What Nova's scheduler and conductor do with Placement, request for request."""

    def __init__(self, client: PlacementClient) -> None:
        self._client = client

    def candidates(self, spec: RequestSpec) -> dict[str, dict[str, Any]]:
        """Return the allocations that Placement offers, by the GPU that they take."""
        pipeline_of("owner").apply(spec)
        answer = self._client.request("GET", f"/allocation_candidates?{allocation_candidates_query(spec)}")
        by_gpu = {_gpu(each["allocations"]): each["allocations"] for each in answer["allocation_requests"]}
        assert len(by_gpu) == len(answer["allocation_requests"])
        return by_gpu

    def allocations(self, consumer: str) -> dict[str, Any]:
        """Return what a consumer has."""
        return dict(self._client.request("GET", f"/allocations/{consumer}")["allocations"])

    def claim(self, consumer: str, allocations: dict[str, Any]) -> None:
        """Take one candidate, as Nova's claim_resources does."""
        self._client.request("POST", "/allocations", {consumer: self._body(consumer, allocations)})

    def move(self, source: str, target: str) -> None:
        """Give all that one consumer has to another at once, as Nova's move_allocations does."""
        body = {target: self._body(target, self.allocations(source)), source: self._body(source, {})}
        self._client.request("POST", "/allocations", body)

    def release(self, consumer: str) -> None:
        """Give all back."""
        self._client.request("DELETE", f"/allocations/{consumer}")

    def _body(self, consumer: str, allocations: dict[str, Any]) -> dict[str, Any]:
        generation = self._client.request("GET", f"/allocations/{consumer}").get("consumer_generation")
        plain = {rp: {"resources": each["resources"]} for rp, each in allocations.items()}
        kind = "INSTANCE" if consumer == _INSTANCE else "MIGRATION"
        names = {"project_id": "project", "user_id": "user", "consumer_type": kind}
        return {"allocations": plain, "consumer_generation": generation, **names}


def _gpu(allocations: dict[str, Any]) -> str:
    (gpu,) = (_NAMES[rp] for rp, each in allocations.items() if "VGPU" in each["resources"])
    return gpu


def _novas(kind: str) -> RequestSpec:
    return spec_of(extra_specs={"unsuffixed": {"resources:VGPU": "1"}, "own group": {"resources1:VGPU": "1"}}[kind])


def _cyborgs() -> RequestSpec:
    group = RequestGroup("device_profile_0", {"VGPU": 1})
    return spec_of(extra_specs={"accel:device_profile": "gpu"}, requested_resources=[group])


@pytest.mark.parametrize(("host", "end"), [("a", "confirmed"), ("b", "confirmed"), ("b", "reverted")])
@pytest.mark.parametrize("kind", ["unsuffixed", "own group"])
def test_resize_between_vgpu_and_device_profile_gets_a_gpu_of_the_right_owner(
    kind: str, host: str, end: str, cloud: _Cloud
) -> None:
    """To each of both hosts, confirmed or reverted; while it lasts, the migration holds the old GPU."""
    offered = cloud.candidates(_novas(kind))
    assert set(offered) == {"a-nova", "b-nova"}
    cloud.claim(_INSTANCE, offered[f"{host}-nova"])

    cloud.move(_INSTANCE, _MIGRATION)
    offered = cloud.candidates(_cyborgs())
    assert set(offered) == {"a-cyborg", "b-cyborg"}
    cloud.claim(_INSTANCE, offered["a-cyborg"])
    assert (_gpu(cloud.allocations(_MIGRATION)), _gpu(cloud.allocations(_INSTANCE))) == (f"{host}-nova", "a-cyborg")
    if end == "reverted":
        cloud.release(_INSTANCE)
        cloud.move(_MIGRATION, _INSTANCE)
        assert _gpu(cloud.allocations(_INSTANCE)) == f"{host}-nova"
        return

    cloud.release(_MIGRATION)
    cloud.move(_INSTANCE, _MIGRATION)
    offered = cloud.candidates(_novas(kind))
    assert set(offered) == {"a-nova", "b-nova"}
    cloud.claim(_INSTANCE, offered["b-nova"])
    assert (_gpu(cloud.allocations(_MIGRATION)), _gpu(cloud.allocations(_INSTANCE))) == ("a-cyborg", "b-nova")


@pytest.mark.parametrize("kind", ["unsuffixed", "own group"])
def test_request_gets_no_gpu_of_the_other_owner_when_its_own_are_taken(kind: str, cloud: _Cloud) -> None:
    """Two instances have Nova's GPUs: one more, or one that comes from Cyborg's, gets none of Cyborg's."""
    consumers = [str(uuid.uuid4()) for _ in range(2)]
    for consumer in consumers:
        cloud.claim(consumer, next(iter(cloud.candidates(_novas(kind)).values())))
    cloud.claim(_INSTANCE, cloud.candidates(_cyborgs())["a-cyborg"])
    cloud.move(_INSTANCE, _MIGRATION)
    assert cloud.candidates(_novas(kind)) == {}
    cloud.release(consumers[0])
    assert len(cloud.candidates(_novas(kind))) == 1
