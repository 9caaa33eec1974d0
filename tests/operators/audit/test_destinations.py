# SPDX-License-Identifier: Apache-2.0

"""Destinations of servers: now, if the host died, without drained hosts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from random import Random

import pytest

from os_prefilter import (
    Flavor,
    Image,
    RequestSpec,
    allocation_candidates_query,
)
from os_prefilter.request.spec import Destination
from os_prefilter.service import Service
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.fleet.demand import AGGREGATE, Condition
from os_prefilter_tools.fleet.matching import hosts_in, meets
from os_prefilter_tools.fleet.model import (
    Aggregate,
    Fleet,
    Inventory,
    Provider,
    aggregate_uuid,
    provider_uuid,
)
from os_prefilter_tools.fleet.server import Server
from os_prefilter_tools.operators.audit.destinations import Destinations
from os_prefilter_tools.operators.audit.joint_placement import (
    JointPlacement,
    Moving,
)
from os_prefilter_tools.operators.audit.server_audit import (
    ServerAudit,
    ServerVerdict,
    audit_servers,
)
from tests.conftest import pipeline_of, times
from tests.operators.audit.test_agreement import (
    FILTERS,
    FLAVORS,
    PROPERTIES,
    Cloud,
    hosts,
)
from tests.support.fleets import emptied

SIZES = {"VCPU": Inventory(4), "MEMORY_MB": Inventory(4096)}
ZONE = "az-1"
OTHER_ZONE = "az-2"
ZONES = {"rack-1": ZONE, "rack-2": ZONE, "rack-3": OTHER_ZONE}
AGGREGATES = {
    aggregate_uuid(name): Aggregate(aggregate_uuid(name), name, zone)
    for name, zone in ZONES.items()
}


_NO_DESTINATION = (ServerVerdict.NONE, ServerVerdict.NONE_IF_EMPTY)


def plain(
    name: str,
    traits: str = "",
    sizes: Mapping[str, Inventory] = SIZES,
    *aggregates: str,
) -> Provider:
    has = frozenset(f"CUSTOM_{each}" for each in traits.split())
    uuids = tuple(map(aggregate_uuid, aggregates))
    return Provider(name, provider_uuid(name), sizes, has, uuids)


def random_fleet(random: Random) -> Fleet:
    def inventory(total: int) -> Inventory:
        used = random.choice((0, 0, total // 2, total))
        ratio = random.choice((1.0, 1.5))
        return Inventory(total, used=used, allocation_ratio=ratio)

    found = tuple(hosts(random, list(ZONES), inventory))
    return Fleet(found, aggregates=AGGREGATES)


def random_servers(random: Random, fleet: Fleet) -> Iterator[Server]:
    names = [host.name for host in fleet.instance_hosts]
    for number in range(6):
        properties = random.sample(PROPERTIES, random.randint(0, 3))
        disk_format = random.choice(("qcow2", "raw", None))
        flavor = replace(
            random.choice(FLAVORS),
            vcpus=random.choice((1, 2, 3)),
            memory_mb=random.choice((512, 1024)),
        )
        request = RequestSpec(flavor, Image(dict(properties), disk_format))
        if random.random() < 0.2:
            rack = {aggregate_uuid("rack-1")}
            destination = Destination(forbidden_aggregates=rack)
            request.requested_destination = destination
        zone = random.choice(("", "", ZONE, OTHER_ZONE))
        request.availability_zone = zone
        host = random.choice([*names, "", "elsewhere"])
        project = random.choice(("shop", "lab"))
        yield Server(request, host=host, uuid=f"id-{number}", project=project)


def candidates(cloud: Cloud, server: Server, pipeline: Service) -> set[str]:
    """Return the enabled hosts that Placement returns for a server."""
    spec = RequestSpec(**vars(replace(server.request)))
    if spec.availability_zone:
        racks = [
            aggregate_uuid(name)
            for name, zone in ZONES.items()
            if zone == spec.availability_zone
        ]
        spec.requested_destination = replace(
            spec.requested_destination or Destination(),
            aggregates=[",".join(racks)],
        )
    pipeline.apply(spec)
    spec.request_level_params.root_forbidden.add("COMPUTE_STATUS_DISABLED")
    cloud.know(spec.root_required | spec.root_forbidden)
    return cloud.hosts(allocation_candidates_query(spec, limit=None))


@pytest.mark.parametrize("seed", range(times(2)))
def test_destinations_match_placement(seed: int) -> None:
    """A dead host is a fleet without it, with all that it shares; a drained
    host is one that takes nothing.
    """
    random = Random(seed)  # noqa: S311
    fleet = random_fleet(random)
    names = random.sample(FILTERS, random.randint(1, len(FILTERS)))
    scope = random.choice(("root", "root_and_unsuffixed"))
    pipeline = pipeline_of(*names, trait_scope=scope)
    destinations = Destinations(fleet, pipeline)
    drained = random.choice(fleet.instance_hosts).name
    servers = list(random_servers(random, fleet))
    audited = audit_servers(servers, destinations, [drained])
    index = destinations.index
    lines = {each.id: line for line in audited.lines for each in line.servers}
    with ExitStack() as stack:

        def start(hosts: Iterable[Provider]) -> Cloud:
            placement = EmbeddedPlacement(replace(fleet, hosts=tuple(hosts)))
            return Cloud(stack.enter_context(placement))

        @cache
        def without(dead: str) -> Cloud:
            return start(host for host in fleet.hosts if host.name != dead)

        for server in servers:
            line = lines[server.uuid]
            now = candidates(without(""), server, pipeline) - {server.host}
            if_died = candidates(without(server.host), server, pipeline)
            assert set(index.names_of(line.now)) == now
            assert set(index.names_of(line.if_died)) == if_died
            assert set(index.names_of(line.without)) == now - {drained}
            assert (line.verdict in _NO_DESTINATION) == (not now)
        instance_hosts = {host.name for host in fleet.instance_hosts}
        empty = start(map(emptied, fleet.hosts))
        for server in servers:
            line = lines[server.uuid]
            if not line.now:
                found = candidates(empty, server, pipeline) & instance_hosts
                assert line.if_empty == len(found - {server.host})
    for each in audited.of_hosts:
        own = [server for server in servers if server.host == each.host]
        judged = map(destinations.judge, own)
        stranded = [found for found in judged if not found.if_died]
        assert each.servers == len(own)
        assert each.stranded == len(stranded)
        assert each.placed <= len(own) - len(stranded)


@pytest.mark.parametrize("seed", range(100, 100 + times(4)))
def test_conflict_is_a_set_that_no_other_host_meets(seed: int) -> None:
    random = Random(seed)  # noqa: S311
    fleet = random_fleet(random)
    destinations = Destinations(fleet, pipeline_of(*FILTERS))
    for server in random_servers(random, fleet):
        judged = destinations.judge(server)
        demand = judged.kind.demand
        others = [each for each in hosts_in(fleet) if each.name != server.host]
        has_destination = any(meets(host, demand) for host in others)
        assert bool(judged.now) == has_destination
        if has_destination:
            continue
        conflict = {each.text for each in destinations.conflict(judged)}
        named = [
            item for item in demand.conditions() if _text(item) in conflict
        ]
        assert conflict
        assert not any(meets(host, demand.only(named)) for host in others)


def _text(item: Condition) -> str:
    text = str(item)
    if item.kind == AGGREGATE:
        racks = "|".join(AGGREGATES[uuid].name for uuid in item.names)
        text = f"aggregate {racks}" if item.wanted else f"!aggregate {racks}"
    return f"{text} on {item.suffix}" if item.suffix else text


@pytest.mark.parametrize("seed", range(200, 200 + times(2)))
def test_servers_that_are_placed_together_fit_in_a_real_placement(
    seed: int,
) -> None:
    """Placement takes each counted allocation together with those before."""
    random = Random(seed)  # noqa: S311
    fleet = random_fleet(random)
    destinations = Destinations(fleet, pipeline_of("image_type"))
    servers = [*random_servers(random, fleet), *random_servers(random, fleet)]
    placed = _place(destinations, servers)
    with EmbeddedPlacement(fleet) as placement:
        for number, resources in enumerate(placed):
            consumer = provider_uuid(f"server-{number}")
            allocations = {
                uuid: {"resources": dict(amounts)}
                for uuid, amounts in resources.items()
            }
            body = {
                "allocations": allocations,
                "project_id": "p",
                "user_id": "u",
                "consumer_generation": None,
                "consumer_type": "INSTANCE",
            }
            placement.client.request("PUT", f"/allocations/{consumer}", body)
    kinds = [destinations.judge(server).kind for server in servers]
    placeable = [kind for kind in kinds if kind.hosts]
    assert len(placed) <= len(placeable)
    assert bool(placed) == bool(placeable)


def _place(
    destinations: Destinations, servers: list[Server]
) -> Sequence[Mapping[str, Mapping[str, int]]]:
    """Return the allocations of the servers that find a place together."""
    kinds = [destinations.judge(server).kind for server in servers]
    moving = [Moving(kind.demand, kind.hosts) for kind in kinds]
    placed = JointPlacement(destinations.index).place(moving)
    return [allocation for _, allocation in placed]


contested_fleets = pytest.mark.parametrize("seed", range(300, 300 + times(20)))


@contested_fleets
def test_servers_placed_together_are_as_many_in_each_order(seed: int) -> None:
    random = Random(seed)  # noqa: S311
    fleet, servers = _contested(random)
    audited = _audit(fleet, servers)
    random.shuffle(servers)
    again = _audit(replace(fleet, hosts=fleet.hosts[::-1]), servers)
    assert again.of_hosts == audited.of_hosts
    assert again.if_drained == audited.if_drained
    assert _verdicts(again) == _verdicts(audited)


@contested_fleets
def test_all_clear_is_one_for_all_servers_together(seed: int) -> None:
    audited = _audit(*_contested(Random(seed)))  # noqa: S311
    assert audited.if_drained
    for each in (*audited.of_hosts, audited.if_drained):
        if each.placed != each.servers:
            assert _verdicts(audited)[each.host] != {"ok"}


def _audit(fleet: Fleet, servers: list[Server]) -> ServerAudit:
    return audit_servers(servers, Destinations(fleet, Service()), ["host-0"])


def _contested(random: Random) -> tuple[Fleet, list[Server]]:
    """Return a few hosts with little left, and servers on two of them."""
    count = random.randint(1, 5)
    servers = range(random.randint(1, 7))
    found = [_contested_host(random, f"host-{n}") for n in range(count)]
    return Fleet(tuple(found)), [
        Server(
            _contested_request(random),
            host=f"host-{number % 2 % count}",
            uuid=f"id-{number}",
        )
        for number in servers
    ]


def _contested_host(random: Random, name: str) -> Provider:
    sizes = {
        "VCPU": Inventory(8, used=random.randint(0, 8)),
        "MEMORY_MB": Inventory(4096, used=512 * random.randint(2, 7)),
    }
    traits = [each for each in "AB" if random.random() < 0.6]
    return plain(name, " ".join(traits), sizes)


def _contested_request(random: Random) -> RequestSpec:
    traits = [each for each in "AB" if random.random() < 0.3]
    vcpus = random.randint(1, 4)
    memory_mb = 256 * random.randint(1, 6)
    return RequestSpec(_requiring(traits, vcpus, memory_mb))


def _requiring(
    traits: Iterable[str], vcpus: int = 1, memory_mb: int = 512
) -> Flavor:
    extra_specs = {f"trait:CUSTOM_{each}": "required" for each in traits}
    return Flavor(vcpus, memory_mb, extra_specs=extra_specs)


def _verdicts(audited: ServerAudit) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {
        each.host: set() for each in audited.of_hosts
    }
    for line in audited.lines:
        if line.host in found:
            found[line.host].add(str(line.verdict))
    return found


_NOWHERE = {"trait:CUSTOM_NOWHERE": "required"}
_BY_IMAGE = RequestSpec(Flavor(1, 512), Image(_NOWHERE))
_BY_FLAVOR = RequestSpec(Flavor(1, 512, extra_specs=_NOWHERE), Image({}))


def test_reason_is_the_servers_own_where_others_demand_the_same() -> None:
    """One tenant's image and another one's flavor require the same trait."""
    fleet = random_fleet(Random(3))  # noqa: S311
    destinations = Destinations(fleet, pipeline_of("image_metadata"))
    requests = (_BY_IMAGE, _BY_FLAVOR, _BY_IMAGE)
    judged = [destinations.judge(Server(request)) for request in requests]
    found = [destinations.conflict(each)[0].because for each in judged]
    by_image = "image property trait:CUSTOM_NOWHERE=required"
    by_flavor = "flavor extra spec trait:CUSTOM_NOWHERE=required"
    assert found == [by_image, by_flavor, by_image]


def test_smallest_set_is_found_where_leaving_out_one_by_one_ends_at_a_larger_one() -> (
    None
):
    traits = {"h1": "A C D", "h2": "A D E", "h3": "B C E", "own": "A B C D E"}
    fleet = Fleet(tuple(plain(name, some) for name, some in traits.items()))
    destinations = Destinations(fleet, Service())
    server = Server(RequestSpec(_requiring("ABCDE")), host="own")
    conflict = destinations.conflict(destinations.judge(server))
    assert [each.text for each in conflict] == ["CUSTOM_A", "CUSTOM_B"]


def test_reason_says_when_the_destinations_are_lost_with_the_host() -> None:
    pool = Provider(
        "pool",
        provider_uuid("pool"),
        {"DISK_GB": Inventory(100)},
        frozenset({"MISC_SHARES_VIA_AGGREGATE"}),
        (aggregate_uuid("rack-1"),),
    )
    owner = replace(plain("owner", "", SIZES, "rack-1"), providers=(pool,))
    fleet = Fleet((owner, plain("user", "", SIZES, "rack-1")))
    request = RequestSpec(Flavor(1, 512, root_gb=1))
    server = Server(request, host="owner", uuid="a", project="p")
    destinations = Destinations(fleet, pipeline_of("noop"))
    (line,) = audit_servers([server], destinations).lines
    assert line.verdict == ServerVerdict.NONE_IF_DIED
    assert line.reason == "each other host would use what this one shares"
