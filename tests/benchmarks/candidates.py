"""How long Placement takes for allocation candidates: ``python tests/benchmarks/candidates.py [small]``.

The first image asks for ``hw_vif_model=igb``, which 5 % of the hosts can, and for a bus and a video model that all can;
the second one asks for the bus alone. The same request goes to the same Placement without any prefilter, as Nova sends
it, and as this library sends it, in turn. The time is that of Placement: its WSGI application is called in this
process, and the answer is not parsed. All sides ask as Nova does by default: for at most 1,000 candidates.
``ours, auto`` first learns from that Placement whether it has nested or shared providers; the lines ``fact`` show what
that costs at first and later.
"""

import json
import logging
import sys
from collections.abc import Mapping
from functools import partial
from time import perf_counter
from typing import Any
from unittest import mock

import nova.conf
from nova import context, objects
from nova.scheduler import request_filter
from nova.scheduler.utils import ResourceRequest
from oslo_config import cfg
from placements import ALL_NESTED, FLAT, ONE_NESTED, SHARED, databases, fleet_of, placement_on
from side_by_side import MARIADB, side_by_side

from os_prefilter import Pipeline, allocation_candidates_query
from os_prefilter.adapters.embedded import EmbeddedPlacement
from os_prefilter.adapters.placement.client import PlacementClient
from os_prefilter.adapters.placement.coverage import NestedProviders
from os_prefilter.conf import register_opts
from os_prefilter.pipeline.deployment_facts import ReadFact

NOTHING, NOVA, ROOT, BOTH, AUTO = "no prefilter", "Nova", "ours, root", "ours, both", "ours, auto"
SELECTIVE = {"hw_vif_model": "igb", "hw_disk_bus": "virtio", "hw_video_model": "virtio"}
COMMON = {"hw_disk_bus": "virtio"}
LIMIT = 1000
OURS = ["compute_status", "image_metadata", "image_type"]


def nova_spec(properties: Mapping[str, str]) -> Any:
    """Return a request of Nova's, as its API makes it."""
    flavor = objects.Flavor(vcpus=1, memory_mb=512, root_gb=1, ephemeral_gb=0, swap=0, name="small", extra_specs={})
    image = objects.ImageMeta.from_dict({"disk_format": "qcow2", "container_format": "bare", "properties": properties})
    return objects.RequestSpec(
        flavor=flavor,
        image=image,
        availability_zone=None,
        force_hosts=None,
        force_nodes=None,
        is_bfv=False,
        requested_resources=[],
        request_level_params=objects.RequestLevelParams(),
        scheduler_hints={},
    )


def queries(properties: Mapping[str, str], *, nested: bool = True) -> dict[str, str]:
    """Return the query of each side for an image.

    :param nested: the fact by which ``auto`` chooses
    """
    return {
        NOTHING: _as_nova(nova_spec(properties)),
        NOVA: _as_nova(_filtered_by_nova(properties)),
        ROOT: _ours(properties, "root"),
        BOTH: _ours(properties, "root_and_unsuffixed"),
        AUTO: _ours(properties, "auto", {"nested_providers": lambda _context: nested}),
    }


def _as_nova(spec: Any) -> str:
    return str(ResourceRequest.from_request_spec(spec).to_querystring())


def _filtered_by_nova(properties: Mapping[str, str]) -> Any:
    for option in ("image_metadata_prefilter", "query_placement_for_image_type_support"):
        nova.conf.CONF.set_override(option, True, "scheduler")
    spec = nova_spec(properties)
    # No cell is asked: the owner's trait is not required, on either side.
    with mock.patch.object(objects.service, "get_minimum_version_all_cells", return_value=0):
        request_filter.process_reqspec(context.get_admin_context(), spec)
    return spec


def _ours(properties: Mapping[str, str], scope: str, facts: Mapping[str, ReadFact] | None = None) -> str:
    conf = cfg.ConfigOpts()
    conf([], default_config_files=[])
    register_opts(conf)
    conf.set_override("enabled_filters", OURS, "prefilter")
    conf.set_override("trait_scope", scope, "prefilter")
    spec = nova_spec(properties)
    Pipeline.from_conf(conf, facts).apply(spec)
    return allocation_candidates_query(spec)


class Counted:
    """A Placement's adapter that counts requests and the bytes of the responses."""

    def __init__(self, placement: EmbeddedPlacement) -> None:
        self._adapter = placement.client._adapter
        self.requests = self.bytes = 0

    def request(self, url: str, method: str, **options: Any) -> Any:
        """Pass a request on."""
        response = self._adapter.request(url, method, **options)
        self.requests += 1
        self.bytes += len(response.content)
        return response


def learn(placement: EmbeddedPlacement, where: str) -> bool:
    """Return the fact by which ``auto`` chooses; print a line for the first query for it, and one for the next."""
    counted: Any = Counted(placement)
    fact = NestedProviders(PlacementClient(counted, microversion="1.22"))
    fact()
    for name in ("fact, first", "fact, later"):
        if name == "fact, first":
            # Placement's own caches are warm now, and those of the fact are not.
            fact = NestedProviders(PlacementClient(counted, microversion="1.22"))
        counted.requests = counted.bytes = 0
        start = perf_counter()
        nested = fact()
        milliseconds = (perf_counter() - start) * 1000
        told = f"{counted.requests} requests {counted.bytes / 1024:6.0f} KiB {milliseconds:6.0f} ms"
        print(f"{where:25} {name:12} {told} {'nested or shared' if nested else 'flat'}", flush=True)
    return nested


def answer(placement: EmbeddedPlacement, query: str) -> bytes:
    """Return what Placement answers, as it is sent."""
    adapter = placement.client._adapter
    response = adapter.get(f"/allocation_candidates?{query}", microversion="1.39", raise_exc=True)
    return bytes(response.content)


def hosts_in(answered: bytes) -> frozenset[str]:
    """Return the UUIDs of the hosts in an answer."""
    document = json.loads(answered)
    summaries = document["provider_summaries"]
    return frozenset(
        summaries[provider]["root_provider_uuid"]
        for request in document["allocation_requests"]
        for provider in request["allocations"]
    )


def measure(
    placement: EmbeddedPlacement, where: str, asked: Mapping[str, str], rounds: int
) -> dict[str, frozenset[str]]:
    """Print a line for each side; return the hosts that each was offered."""
    answers: dict[str, bytes] = {}

    def ask(name: str) -> None:
        answers[name] = answer(placement, asked[name])

    seconds = side_by_side({name: partial(ask, name) for name in asked}, rounds=rounds)
    hosts = {name: hosts_in(each) for name, each in answers.items()}
    for name, each in answers.items():
        ratios = f"{seconds[name] / seconds[NOVA]:5.2f} x Nova {seconds[name] / seconds[NOTHING]:5.2f} x none"
        told = f"{len(hosts[name]):5} hosts {len(each) / 1024:5.0f} KiB {seconds[name] * 1000:6.0f} ms"
        print(f"{where:25} {name:12} {told} {ratios}", flush=True)
    return hosts


def main(arguments: list[str]) -> None:
    """Measure each kind of fleet on each kind of database."""
    hosts, rounds = (200, 1) if "small" in arguments else (10_000, 5)
    logging.disable(logging.WARNING)
    objects.register_all()
    print(f"{hosts:,} hosts, {hosts // 20:,} of them can. Medians of {rounds} rounds.", flush=True)
    for database in databases():
        for nesting in (FLAT, SHARED, ONE_NESTED, ALL_NESTED):
            with placement_on(database, fleet_of(hosts, capable=hosts // 20, nesting=nesting)) as placement:
                where = f"{database}, {nesting}"
                asked = queries(SELECTIVE, nested=learn(placement, where))
                assert asked[AUTO] == asked[BOTH if nesting == FLAT else ROOT]
                found = measure(placement, where, asked, rounds)
                assert found[NOVA] == found[ROOT] == found[BOTH] == found[AUTO]
                assert len(found[NOVA]) == hosts // 20
    if "MariaDB" not in databases():
        print(f"No MariaDB: {MARIADB} is not set.")
    # A fifth of the hosts: with all of them, one round of the last line takes minutes.
    hosts //= 5
    print(f"{hosts:,} hosts, all of them can.", flush=True)
    for nesting in (FLAT, ONE_NESTED):
        with placement_on("SQLite", fleet_of(hosts, capable=hosts, nesting=nesting)) as placement:
            where = f"SQLite, {nesting}"
            found = measure(placement, where, queries(COMMON, nested=learn(placement, where)), rounds)
            assert {len(each) for each in found.values()} == {min(hosts, LIMIT)}


if __name__ == "__main__":
    main(sys.argv[1:])
