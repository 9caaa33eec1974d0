# SPDX-License-Identifier: Apache-2.0

"""How long Placement takes for allocation candidates:
``python -m tests.benchmarks.candidates [small]``.

The first image asks for ``hw_vif_model=igb``, which 5 % of the hosts can, and
for a bus and a video model that all can; the second one asks for the bus
alone. The same request goes to the same Placement without any prefilter, as
Nova sends it, and as this library sends it, in turn. The time is that of
Placement: its WSGI application is called in this process, and the answer is
not parsed. All sides ask as Nova does by default: for at most 1,000
candidates. ``ours, auto`` first learns from that Placement whether it has
nested or shared providers; the lines ``fact`` show what that costs at first
and later.
"""

from __future__ import annotations

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

from os_prefilter import allocation_candidates_query
from os_prefilter.adapters.placement.facts import PlacementFacts
from os_prefilter.service import Service
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from tests.benchmarks.shared import (
    FLAT,
    MARIADB,
    NESTINGS,
    ONE_NESTED,
    databases,
    fleet_of,
    placement_on,
    side_by_side,
)
from tests.conftest import conf_with
from tests.support.nova_objects import nova_spec
from tests.support.placements import Observed

NOTHING, NOVA, ROOT, BOTH, AUTO = (
    "no prefilter",
    "Nova",
    "ours, root",
    "ours, both",
    "ours, auto",
)
SELECTIVE = {
    "hw_vif_model": "igb",
    "hw_disk_bus": "virtio",
    "hw_video_model": "virtio",
}
COMMON = {"hw_disk_bus": "virtio"}
LIMIT = 1000
OURS = ["compute_status", "image_metadata", "image_type"]


def queries(
    properties: Mapping[str, str], *, nested: bool = True
) -> dict[str, str]:
    """Return the query of each side for an image.

    :param nested: the fact by which ``auto`` chooses
    """
    conf = nova.conf.CONF
    for option in (
        "image_metadata_prefilter",
        "query_placement_for_image_type_support",
    ):
        conf.set_override(option, True, "scheduler")
    plain, filtered = (_nova_spec(properties) for _ in range(2))
    # No cell is asked: the owner's trait is not required, on either side.
    with mock.patch.object(
        objects.service, "get_minimum_version_all_cells", return_value=0
    ):
        request_filter.process_reqspec(context.get_admin_context(), filtered)
    found = {
        name: str(ResourceRequest.from_request_spec(spec).to_querystring())
        for name, spec in ((NOTHING, plain), (NOVA, filtered))
    }
    for name, scope in (
        (ROOT, "root"),
        (BOTH, "root_and_unsuffixed"),
        (AUTO, "auto"),
    ):
        spec, facts = (
            _nova_spec(properties),
            {"nested_providers": lambda _context: nested},
        )
        Service.from_conf(
            conf_with(enabled_filters=OURS, trait_scope=scope), facts
        ).apply(spec)
        found[name] = allocation_candidates_query(spec)
    return found


def _nova_spec(properties: Mapping[str, str]) -> Any:
    level = objects.RequestLevelParams()
    unset = dict.fromkeys(("availability_zone", "force_hosts", "force_nodes"))
    return nova_spec(
        dict(properties),
        is_bfv=False,
        requested_resources=[],
        request_level_params=level,
        scheduler_hints={},
        **unset,
    )


def learn(placement: EmbeddedPlacement, where: str) -> bool:
    """Return the fact by which ``auto`` chooses; print a line for the first
    query for it, and one for the next.
    """
    observed = Observed(placement)
    # For Placement's own caches.
    PlacementFacts(observed.client).nested_providers()
    fact = PlacementFacts(observed.client).nested_providers
    for name in ("fact, first", "fact, later"):
        observed.sent.clear()
        observed.received = 0
        start = perf_counter()
        nested = fact()
        milliseconds = (perf_counter() - start) * 1000
        told = (
            f"{len(observed.sent)} requests {observed.received / 1024:6.0f}"
            f" KiB {milliseconds:6.0f} ms"
        )
        print(
            f"{where:25} {name:12} {told}"
            f" {'nested or shared' if nested else 'flat'}",
            flush=True,
        )
    return nested


def answer(placement: EmbeddedPlacement, query: str) -> bytes:
    response = placement.client._adapter.get(
        f"/allocation_candidates?{query}", microversion="1.39", raise_exc=True
    )
    return bytes(response.content)


def hosts_in(answered: bytes) -> frozenset[str]:
    document = json.loads(answered)
    summaries = document["provider_summaries"]
    return frozenset(
        summaries[provider]["root_provider_uuid"]
        for request in document["allocation_requests"]
        for provider in request["allocations"]
    )


def measure(
    placement: EmbeddedPlacement,
    where: str,
    asked: Mapping[str, str],
    rounds: int,
) -> dict[str, frozenset[str]]:
    """Print a line for each side; return the hosts that each was offered."""
    answers = {name: answer(placement, query) for name, query in asked.items()}
    seconds = side_by_side(
        {
            name: partial(answer, placement, each)
            for name, each in asked.items()
        },
        rounds=rounds,
    )
    hosts = {name: hosts_in(each) for name, each in answers.items()}
    for name, each in answers.items():
        ratios = (
            f"{seconds[name] / seconds[NOVA]:5.2f} x Nova"
            f" {seconds[name] / seconds[NOTHING]:5.2f} x none"
        )
        told = (
            f"{len(hosts[name]):5} hosts {len(each) / 1024:5.0f} KiB"
            f" {seconds[name] * 1000:6.0f} ms"
        )
        print(f"{where:25} {name:12} {told} {ratios}", flush=True)
    return hosts


def main(arguments: list[str]) -> None:
    hosts, rounds = (200, 1) if "small" in arguments else (10_000, 5)
    logging.disable(logging.WARNING)
    print(
        f"{hosts:,} hosts, {hosts // 20:,} of them can. Medians of {rounds}"
        " rounds.",
        flush=True,
    )
    for database in databases():
        for nesting in NESTINGS:
            with placement_on(
                database, fleet_of(hosts, capable=hosts // 20, nesting=nesting)
            ) as placement:
                where = f"{database}, {nesting}"
                asked = queries(SELECTIVE, nested=learn(placement, where))
                assert asked[AUTO] == asked[BOTH if nesting == FLAT else ROOT]
                found = measure(placement, where, asked, rounds)
                assert found[NOVA] == found[ROOT] == found[BOTH] == found[AUTO]
                assert len(found[NOVA]) == hosts // 20
    if "MariaDB" not in databases():
        print(f"No MariaDB: {MARIADB} is not set.")
    # A fifth of the hosts: with all of them, one round of the last line takes
    # minutes.
    hosts //= 5
    print(f"{hosts:,} hosts, all of them can.", flush=True)
    for nesting in (FLAT, ONE_NESTED):
        with placement_on(
            "SQLite", fleet_of(hosts, capable=hosts, nesting=nesting)
        ) as placement:
            where = f"SQLite, {nesting}"
            found = measure(
                placement,
                where,
                queries(COMMON, nested=learn(placement, where)),
                rounds,
            )
            assert {len(each) for each in found.values()} == {
                min(hosts, LIMIT)
            }


if __name__ == "__main__":
    main(sys.argv[1:])
