# SPDX-License-Identifier: Apache-2.0

"""Server groups in an audit of servers against Nova's own host filters: each
server alone, and all at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from nova import objects
from nova.scheduler.filters.affinity_filter import (
    ServerGroupAffinityFilter,
    ServerGroupAntiAffinityFilter,
)
from nova.scheduler.host_manager import HostState

from os_prefilter import Flavor, RequestSpec
from os_prefilter.service import Service
from os_prefilter_tools.fleet.model import (
    Fleet,
    Inventory,
    Provider,
    provider_uuid,
)
from os_prefilter_tools.fleet.server import Server, ServerGroup
from os_prefilter_tools.operators.audit.destinations import Destinations
from os_prefilter_tools.operators.audit.server_audit import (
    ServerAudit,
    ServerVerdict,
    audit_servers,
)
from tests.conftest import times

objects.register_all()
_FILTERS = (ServerGroupAffinityFilter(), ServerGroupAntiAffinityFilter())
_POLICIES = (
    "affinity",
    "anti-affinity",
    "soft-affinity",
    "soft-anti-affinity",
)
_CPUS = 8
_VERDICTS_OF_CAPACITY = (ServerVerdict.NONE, ServerVerdict.NONE_IF_EMPTY)


class _Cloud:
    """A small cloud: hosts with room for some servers of one CPU, and servers
    of groups on them.
    """

    def __init__(self, random: Random) -> None:
        self.hosts = [
            f"host-{number}" for number in range(random.randint(2, 5))
        ]
        self.room = {
            host: random.choice((0, 1, 1, 2, 4)) for host in self.hosts
        }
        self.groups: list[dict[str, Any]] = []
        self.place: dict[str, str] = {}
        """UUID of a server -> its host; empty for one without a host."""
        self.group_of: dict[str, dict[str, Any] | None] = {}
        for number in range(random.randint(1, 3)):
            policy = random.choice(_POLICIES)
            rules = (
                {"max_server_per_host": random.choice((1, 2))}
                if policy == "anti-affinity"
                else {}
            )
            self.groups.append(
                {
                    "uuid": str(UUID(int=1000 + number)),
                    "policy": policy,
                    "rules": rules,
                    "members": [],
                }
            )
        for number in range(random.randint(1, 6)):
            server, group = (
                str(UUID(int=number + 1)),
                random.choice((None, *self.groups)),
            )
            self.place[server] = random.choice((*self.hosts, *self.hosts, ""))
            self.group_of[server] = group
            if group:
                group["members"].append(server)

    def audit(self, drained: list[str], random: Random) -> ServerAudit:
        used = {
            host: Inventory(_CPUS, used=_CPUS - room)
            for host, room in self.room.items()
        }
        roots = [
            Provider(
                host, provider_uuid(host), {"VCPU": each}, frozenset(), ()
            )
            for host, each in used.items()
        ]
        groups = {
            each["uuid"]: ServerGroup.of(
                each["uuid"], each["policy"], each["rules"], each["members"]
            )
            for each in self.groups
        }
        servers = []
        for uuid, host in self.place.items():
            group = self.group_of[uuid]
            servers.append(
                Server(
                    _request(),
                    host,
                    uuid=uuid,
                    group=groups[group["uuid"]] if group else None,
                )
            )
        random.shuffle(servers)
        return audit_servers(
            servers, Destinations(Fleet(tuple(roots)), Service()), drained
        )

    def accepts(
        self, server: str, host: str, place: Mapping[str, str]
    ) -> bool:
        """Return whether Nova's filters leave a host to a server, with all
        servers where they are.
        """
        state = HostState(host, host, None)
        state.instances = {
            each: SimpleNamespace()
            for each, of_it in place.items()
            if of_it == host
        }
        group, found = self.group_of[server], None
        if group:
            hosts = sorted(
                {place[member] for member in group["members"]} - {""}
            )
            found = objects.InstanceGroup(
                hosts=hosts, policies=[group["policy"]], **group
            )
        spec = objects.RequestSpec(instance_uuid=server, instance_group=found)
        return all(each.host_passes(state, spec) for each in _FILTERS)

    def destinations(
        self, server: str, place: Mapping[str, str], excluded: set[str]
    ) -> Iterator[str]:
        """Yield the hosts to which Nova moves a server, with all servers where
        they are now.
        """
        for host in self.hosts:
            came = sum(
                there == host and self.place[each] != host
                for each, there in place.items()
            )
            is_free = (
                host not in {*excluded, self.place[server]}
                and came < self.room[host]
            )
            if is_free and self.accepts(server, host, place):
                yield host

    def most(
        self, moving: list[str], place: Mapping[str, str], excluded: set[str]
    ) -> int:
        """Return how many of some servers Nova moves one after the other, in
        the best case.
        """
        if not moving:
            return 0
        server, *others = moving
        most = self.most(others, place, excluded)
        for host in self.destinations(server, place, excluded):
            if most == len(moving):
                break
            most = max(
                most, 1 + self.most(others, {**place, server: host}, excluded)
            )
        return most


def _request() -> RequestSpec:
    return RequestSpec(Flavor(1, 0, extra_specs={"resources:MEMORY_MB": "0"}))


@pytest.mark.parametrize("seed", range(times(150)))
def test_destinations_and_joint_verdicts_are_those_of_novas_filters(
    seed: int,
) -> None:
    """Of a server alone exactly; together, no more servers are placed than
    Nova's filters accept in some sequence.
    """
    random = Random(seed)  # noqa: S311
    cloud = _Cloud(random)
    drained = random.sample(cloud.hosts, random.randint(1, 2))
    audited = cloud.audit(drained, random)
    names = audited.names
    line_of = {
        server.id: line for line in audited.lines for server in line.servers
    }
    for server in cloud.place:
        line = line_of[server]
        now = {
            names[number]
            for number in range(len(names))
            if line.now >> number & 1
        }
        expected = set(cloud.destinations(server, cloud.place, set()))
        assert now == expected, (server, cloud.group_of[server], cloud.place)
        without = {
            names[number]
            for number in range(len(names))
            if line.without >> number & 1
        }
        assert without == expected - {*drained}
        assert (line.verdict in _VERDICTS_OF_CAPACITY) == (not expected)
    assert audited.if_drained
    moving = [
        server for server, host in cloud.place.items() if host in drained
    ]
    assert audited.if_drained.placed <= cloud.most(
        moving, cloud.place, {*drained}
    )
    for of_host in audited.of_hosts:
        dying = [
            server
            for server, host in cloud.place.items()
            if host == of_host.host
        ]
        assert of_host.placed <= cloud.most(dying, cloud.place, {of_host.host})
    # An all-clear is one for all that move.
    if all(line_of[server].verdict == ServerVerdict.OK for server in moving):
        assert cloud.most(moving, cloud.place, {*drained}) == len(moving)


@pytest.mark.parametrize(
    ("most_on_host", "verdict"),
    [(1, ServerVerdict.NOT_ALL_WITHOUT), (2, ServerVerdict.OK)],
)
def test_drained_members_of_an_anti_affinity_group_exclude_each_other(
    most_on_host: int, verdict: ServerVerdict
) -> None:
    """Each has a destination, the same one, with room for both: Nova's filter
    refuses the second.
    """
    random = Random(0)  # noqa: S311
    cloud = _Cloud(random)
    cloud.hosts = ["host-0", "host-1", "host-2"]
    cloud.room = dict.fromkeys(cloud.hosts, 4)
    members = [str(UUID(int=1)), str(UUID(int=2))]
    cloud.place = dict(zip(members, cloud.hosts))
    rules = {"max_server_per_host": most_on_host}
    group = {
        "uuid": str(UUID(int=1000)),
        "policy": "anti-affinity",
        "rules": rules,
        "members": members,
    }
    cloud.groups, cloud.group_of = [group], dict.fromkeys(members, group)
    audited = cloud.audit(["host-0", "host-1"], random)
    assert {line.verdict for line in audited.lines} == {verdict}
    assert (
        cloud.most(members, cloud.place, {"host-0", "host-1"}) == most_on_host
    )


def test_nearly_always_as_many_are_placed_as_nova_can_move() -> None:
    """Few operators would read a bound that is far below what Nova does."""
    seeds = range(1000, 1000 + times(100))
    found = short = 0
    for seed in seeds:
        random = Random(seed)  # noqa: S311
        cloud = _Cloud(random)
        audited = cloud.audit([cloud.hosts[0]], random)
        moving = [
            server
            for server, host in cloud.place.items()
            if host == cloud.hosts[0]
        ]
        assert audited.if_drained
        short += audited.if_drained.placed < len(moving)
        found += audited.if_drained.placed == cloud.most(
            moving, cloud.place, {cloud.hosts[0]}
        )
    assert short
    assert found >= 0.95 * len(seeds)
