# SPDX-License-Identifier: Apache-2.0

"""The destinations of servers against a real Placement: now, if the host died,
and without hosts that are drained.
"""

from collections.abc import Iterator, Mapping
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
from os_prefilter_tools.fleet.demand import AGGREGATE, POLICY, Condition
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
ZONE, OTHER_ZONE = "az-1", "az-2"
AGGREGATES = {
    aggregate_uuid(name): Aggregate(aggregate_uuid(name), name, zone)
    for name, zone in (
        ("rack-1", ZONE),
        ("rack-2", ZONE),
        ("rack-3", OTHER_ZONE),
    )
}


def plain(
    name: str,
    traits: str = "",
    sizes: Mapping[str, Inventory] = SIZES,
    *aggregates: str,
) -> Provider:
    has = frozenset(f"CUSTOM_{each}" for each in traits.split())
    return Provider(
        name,
        provider_uuid(name),
        sizes,
        has,
        tuple(map(aggregate_uuid, aggregates)),
    )


def random_fleet(random: Random) -> Fleet:
    def room(total: int) -> Inventory:
        used = random.choice((0, 0, total // 2, total))
        return Inventory(
            total, used=used, allocation_ratio=random.choice((1.0, 1.5))
        )

    return Fleet(
        tuple(
            hosts(random, [each.name for each in AGGREGATES.values()], room)
        ),
        aggregates=AGGREGATES,
    )


def random_servers(random: Random, fleet: Fleet) -> Iterator[Server]:
    for number in range(6):
        image = Image(
            dict(random.sample(PROPERTIES, random.randint(0, 3))),
            random.choice(("qcow2", "raw", None)),
        )
        flavor = replace(
            random.choice(FLAVORS),
            vcpus=random.choice((1, 2, 3)),
            memory_mb=random.choice((512, 1024)),
        )
        destination = None
        if random.random() < 0.2:
            destination = Destination(
                forbidden_aggregates={aggregate_uuid("rack-1")}
            )
        zone = random.choice(("", "", ZONE, OTHER_ZONE))
        yield Server(
            RequestSpec(
                flavor,
                image,
                requested_destination=destination,
                availability_zone=zone,
            ),
            host=random.choice(
                [host.name for host in fleet.instance_hosts]
                + ["", "elsewhere"]
            ),
            uuid=f"id-{number}",
            project=random.choice(("shop", "lab")),
        )


def candidates(asked: Cloud, server: Server, pipeline: Service) -> set[str]:
    """Return the hosts that Placement returns for a server's request, disabled
    ones excluded.
    """
    spec = RequestSpec(**vars(replace(server.request)))
    zone = [
        each.uuid
        for each in AGGREGATES.values()
        if each.availability_zone == spec.availability_zone
    ]
    if spec.availability_zone:
        spec.requested_destination = replace(
            spec.requested_destination or Destination(),
            aggregates=[",".join(zone)],
        )
    pipeline.apply(spec)
    spec.request_level_params.root_forbidden.add("COMPUTE_STATUS_DISABLED")
    asked.know(spec.root_required | spec.root_forbidden)
    return asked.hosts(allocation_candidates_query(spec, limit=None))


@pytest.mark.parametrize("seed", range(times(2)))
def test_destinations_match_placement(seed: int) -> None:
    """A dead host is a fleet without it, with all that it shares; a drained
    host is one that takes nothing.
    """
    random = Random(seed)  # noqa: S311
    fleet, names = (
        random_fleet(random),
        random.sample(FILTERS, random.randint(1, len(FILTERS))),
    )
    pipeline = pipeline_of(
        *names, trait_scope=random.choice(("root", "root_and_unsuffixed"))
    )
    destinations, drained = (
        Destinations(fleet, pipeline),
        random.choice(fleet.instance_hosts).name,
    )
    servers = list(random_servers(random, fleet))
    audited = audit_servers(servers, destinations, [drained])
    with ExitStack() as stack:

        @cache
        def asked(dead: str | None = None) -> Cloud:
            """Return a Placement without usage, or with it and without one of
            the hosts.
            """
            left = (
                map(emptied, fleet.hosts)
                if dead is None
                else (each for each in fleet.hosts if each.name != dead)
            )
            return Cloud(
                stack.enter_context(
                    EmbeddedPlacement(replace(fleet, hosts=tuple(left)))
                )
            )

        for server in servers:
            (line,) = (
                line
                for line in audited.lines
                if server.uuid in {each.id for each in line.servers}
            )
            found = [
                set(destinations.index.names_of(each))
                for each in (line.now, line.if_died, line.without)
            ]
            now = candidates(asked(""), server, pipeline) - {server.host}
            assert found == [
                now,
                candidates(asked(server.host), server, pipeline),
                now - {drained},
            ]
            if not now:
                empty = {host.name for host in fleet.instance_hosts} - {
                    server.host
                }
                assert line.if_empty == len(
                    candidates(asked(), server, pipeline) & empty
                )
            assert (
                line.verdict
                in (
                    ServerVerdict.NONE,
                    ServerVerdict.NONE_IF_EMPTY,
                )
            ) == (not now)
    for each in audited.of_hosts:
        there = [
            destinations.judge(server)
            for server in servers
            if server.host == each.host
        ]
        stranded = [found for found in there if not found.if_died]
        assert (each.servers, each.stranded) == (len(there), len(stranded))
        assert each.placed <= len(there) - len(stranded)


@pytest.mark.parametrize("seed", range(100, 100 + times(4)))
def test_conflict_is_a_smallest_set_that_no_other_host_meets(
    seed: int,
) -> None:
    """Placement returns no other host for its requirements, and some host
    without any one of them.
    """
    random = Random(seed)  # noqa: S311
    fleet = random_fleet(random)
    destinations = Destinations(fleet, pipeline_of(*FILTERS))
    for server in random_servers(random, fleet):
        judged = destinations.judge(server)
        kind, hosts = (
            judged.kind,
            [host for host in hosts_in(fleet) if host.name != server.host],
        )
        met = [host for host in hosts if meets(host, kind.demand)]
        assert bool(judged.now) == bool(met)
        if not met:
            conflict = {each.text for each in destinations.conflict(judged)}
            assert conflict
            named = [
                item
                for item in kind.demand.conditions()
                if _text(item) in conflict
            ]
            assert not any(
                meets(host, kind.demand.only(named)) for host in hosts
            ), (server, conflict)


def _text(item: Condition) -> str:
    text = str(item)
    if item.kind == AGGREGATE:
        text = (
            ("" if item.wanted else "!")
            + "aggregate "
            + "|".join(AGGREGATES[uuid].name for uuid in item.names)
        )
    elif item.kind == POLICY:
        text = f"group_policy={text}"
    return f"{text} on {item.suffix}" if item.suffix else text


@pytest.mark.parametrize("seed", range(200, 200 + times(2)))
def test_servers_that_are_placed_together_fit_in_a_real_placement(
    seed: int,
) -> None:
    """Each allocation that is counted is one that Placement takes beside those
    before.
    """
    random = Random(seed)  # noqa: S311
    fleet = random_fleet(random)
    destinations = Destinations(fleet, pipeline_of("image_type"))
    servers = [*random_servers(random, fleet), *random_servers(random, fleet)]
    kinds = [destinations.judge(server).kind for server in servers]
    with EmbeddedPlacement(fleet) as placement:
        placed = JointPlacement(destinations.index).place(
            [Moving(kind.demand, kind.hosts) for kind in kinds]
        )
        for number, resources in enumerate(placed):
            body = {
                "allocations": {
                    uuid: {"resources": dict(of_one)}
                    for uuid, of_one in resources.items()
                },
                "project_id": "p",
                "user_id": "u",
                "consumer_generation": None,
                "consumer_type": "INSTANCE",
            }
            placement.client.request(
                "PUT",
                f"/allocations/{provider_uuid(f'server-{number}')}",
                body,
            )
    assert len(placed) <= sum(bool(kind.hosts) for kind in kinds)
    assert len(placed) >= min(1, sum(bool(kind.hosts) for kind in kinds))


@pytest.mark.parametrize("seed", range(300, 300 + times(20)))
def test_servers_placed_together_are_as_many_in_each_order_and_all_where_that_is_said(
    seed: int,
) -> None:
    random = Random(seed)  # noqa: S311
    fleet, servers = _contested(
        random, random.randint(1, 5), random.randint(1, 7)
    )
    destinations = Destinations(fleet, Service())
    judged = [destinations.judge(server).kind for server in servers]
    found = JointPlacement(destinations.index).place(
        [Moving(kind.demand, kind.hosts) for kind in judged]
    )
    flavors = [server.request.flavor for server in servers]
    sizes = [(each.vcpus, each.memory_mb) for each in flavors]
    choices = [
        [n for n in range(len(fleet.hosts)) if kind.hosts >> n & 1]
        for kind in judged
    ]
    rooms = [
        tuple(each.total - each.used for each in host.resources.values())
        for host in fleet.hosts
    ]
    assert len(found) <= _most(sizes, choices, rooms)
    audited = audit_servers(servers, destinations, ["host-0"])
    random.shuffle(servers)
    again = audit_servers(
        servers,
        Destinations(replace(fleet, hosts=fleet.hosts[::-1]), Service()),
        ["host-0"],
    )
    assert (again.of_hosts, again.if_drained) == (
        audited.of_hosts,
        audited.if_drained,
    )
    assert _verdicts(again) == _verdicts(audited)
    # An all-clear is one for all servers together.
    assert audited.if_drained
    for each in (*audited.of_hosts, audited.if_drained):
        assert each.placed == each.servers or _verdicts(audited)[
            each.host
        ] != {"ok"}


def _contested(
    random: Random, hosts: int, servers: int
) -> tuple[Fleet, list[Server]]:
    def contested(number: int) -> Provider:
        rooms = {
            "VCPU": Inventory(8, used=random.randint(0, 8)),
            "MEMORY_MB": Inventory(4096, used=512 * random.randint(2, 7)),
        }
        return plain(
            f"host-{number}",
            " ".join(each for each in "AB" if random.random() < 0.6),
            rooms,
        )

    fleet, found = Fleet(tuple(map(contested, range(hosts)))), []
    for number in range(servers):
        extra_specs = {
            f"trait:CUSTOM_{each}": "required"
            for each in "AB"
            if random.random() < 0.3
        }
        flavor = Flavor(
            random.randint(1, 4),
            256 * random.randint(1, 6),
            extra_specs=extra_specs,
        )
        found.append(
            Server(
                RequestSpec(flavor),
                host=f"host-{number % 2 % hosts}",
                uuid=f"id-{number}",
            )
        )
    return fleet, found


def _most(
    sizes: list[tuple[int, int]],
    choices: list[list[int]],
    rooms: list[tuple[int, ...]],
) -> int:
    """Return how many servers fit at the same time, by trying each on each
    host and leaving each out.
    """
    if not sizes:
        return 0
    most = _most(sizes[1:], choices[1:], rooms)
    for number in choices[0]:
        left = tuple(
            room - need
            for room, need in zip(rooms[number], sizes[0], strict=True)
        )
        if min(left) >= 0:
            most = max(
                most,
                1
                + _most(
                    sizes[1:],
                    choices[1:],
                    [*rooms[:number], left, *rooms[number + 1 :]],
                ),
            )
    return most


def _verdicts(audited: ServerAudit) -> dict[str, set[str]]:
    return {
        each.host: {
            str(x.verdict) for x in audited.lines if x.host == each.host
        }
        for each in audited.of_hosts
    }


def test_reason_is_the_servers_own_where_others_demand_the_same() -> None:
    """One tenant's image and another one's flavor require the same trait."""
    fleet = random_fleet(Random(3))  # noqa: S311
    destinations = Destinations(fleet, pipeline_of("image_metadata"))
    trait = {"trait:CUSTOM_NOWHERE": "required"}
    by_image = Server(RequestSpec(Flavor(1, 512), Image(trait)))
    by_flavor = Server(
        RequestSpec(Flavor(1, 512, extra_specs=trait), Image({}))
    )
    judged = map(destinations.judge, (by_image, by_flavor, by_image))
    found = [destinations.conflict(each)[0].because for each in judged]
    by_image_text = "image property trait:CUSTOM_NOWHERE=required"
    assert found == [
        by_image_text,
        "flavor extra spec trait:CUSTOM_NOWHERE=required",
        by_image_text,
    ]


def test_smallest_set_is_found_where_leaving_out_one_by_one_ends_at_a_larger_one() -> (
    None
):
    traits = {"h1": "A C D", "h2": "A D E", "h3": "B C E", "own": "A B C D E"}
    fleet = Fleet(tuple(plain(name, some) for name, some in traits.items()))
    flavor = Flavor(
        1,
        512,
        extra_specs={f"trait:CUSTOM_{each}": "required" for each in "ABCDE"},
    )
    destinations = Destinations(fleet, Service())
    conflict = destinations.conflict(
        destinations.judge(Server(RequestSpec(flavor), host="own"))
    )
    assert [each.text for each in conflict] == ["CUSTOM_A", "CUSTOM_B"]


def test_reason_says_when_the_destinations_are_lost_with_the_host() -> None:
    sharing = frozenset(("MISC_SHARES_VIA_AGGREGATE",))
    pool = Provider(
        "pool",
        provider_uuid("pool"),
        {"DISK_GB": Inventory(100)},
        sharing,
        (aggregate_uuid("rack-1"),),
    )
    owner, user = (
        plain(name, "", SIZES, "rack-1") for name in ("owner", "user")
    )
    fleet = Fleet((replace(owner, providers=(pool,)), user))
    server = Server(
        RequestSpec(Flavor(1, 512, root_gb=1)),
        host="owner",
        uuid="a",
        project="p",
    )
    (line,) = audit_servers(
        [server], Destinations(fleet, pipeline_of("noop"))
    ).lines
    assert (line.verdict, line.reason) == (
        ServerVerdict.NONE_IF_DIED,
        "each other host would use what this one shares",
    )
