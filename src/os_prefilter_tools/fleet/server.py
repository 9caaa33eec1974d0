# SPDX-License-Identifier: Apache-2.0

"""A server that exists, with the request that it was scheduled by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field

from os_prefilter.common.dataclasses import dataclass
from os_prefilter.common.host_sets import set_of
from os_prefilter.request.spec import RequestSpec
from os_prefilter.request.view import UNKNOWN_MACHINE_TYPE

AFFINITY, ANTI_AFFINITY = "affinity", "anti-affinity"
_MOST_ON_HOST = "max_server_per_host"


@dataclass(eq=False, slots=True)
class ServerGroup:
    """A server group whose policy Nova's host filters enforce.

    ``nova/scheduler/filters/affinity_filter.py``
    """

    uuid: str
    policy: str
    """``affinity`` or ``anti-affinity``."""
    most_on_host: int = 1
    """The most members on one host; only of an anti-affinity group."""
    members: Collection[str] = field(default=(), repr=False)
    """UUIDs of the members that Nova lists.

    Empty where only their own entries name the group.
    """
    hosts: dict[str, str] = field(default_factory=dict, repr=False)
    """UUID of each member that was read -> its host, or empty."""

    @classmethod
    def of(
        cls,
        uuid: str,
        policy: object,
        rules: object,
        members: Collection[str] = (),
    ) -> ServerGroup | None:
        """Return a group; None if its policy excludes no host.

        A soft policy only prefers hosts; one that Nova does not know does
        nothing.

        :raises ValueError: if the rules have no number of servers where there
            should be one
        """
        if policy not in (AFFINITY, ANTI_AFFINITY):
            return None
        most: object = (
            rules.get(_MOST_ON_HOST, 1) if isinstance(rules, Mapping) else 1
        )
        return cls(uuid, str(policy), int(str(most)), members)

    def members_on(self, numbers: Mapping[str, int]) -> Counter[int]:
        """Return how many members are on each host.

        :param numbers: name of a host -> its number
        """
        return Counter(
            numbers[host] for host in self.hosts.values() if host in numbers
        )

    def closed_hosts(self, members: Mapping[int, int]) -> int:
        """Return the set of hosts with as many members as the group allows.

        :param members: number of a host -> how many members are on it
        """
        return set_of(
            number
            for number, count in members.items()
            if count >= self.most_on_host
        )

    def count_lost(self, numbers: Mapping[str, int]) -> int:
        """Return how many members are on hosts that are not known."""
        elsewhere = sum(
            bool(host) and host not in numbers for host in self.hosts.values()
        )
        return elsewhere + sum(
            member not in self.hosts for member in self.members
        )


_PLAIN_PORTS = frozenset(("normal", "virtio-forwarder"))


def needs_of_ports(
    vnic_types: Iterable[str], *, has_resources: bool
) -> list[str]:
    """Return what a server's ports require of a host, apart from networks.

    :param vnic_types: the type of each port: ``binding:vnic_type`` of Neutron
    :param has_resources: some port has a guaranteed bandwidth or packet rate
    """
    found = []
    if not _PLAIN_PORTS.issuperset(vnic_types):
        found.append("PCI devices of ports")
    if has_resources:
        found.append("a guaranteed bandwidth of ports")
    return found


_DELETED = "deleted"
_STATES = {
    "build": "being built",
    "building": "being built",
    "error": "failed boots, without a host ever",
    "deleted": _DELETED,
    "soft-delete": _DELETED,
    "soft_deleted": _DELETED,
}
"""Status in the API, or vm_state -> why a server needs no place.

In lower case.
"""


def find_why_no_place(state: str, host: str, launched_at: object) -> str:
    """Return why a server needs no place on another host, or empty.

    :param state: its status in Nova's API, or its vm_state in Nova's database
    :param launched_at: when it first ran; empty if it never did
    """
    why = _STATES.get(state.lower(), "")
    # With a host, a server is there, in an error or not. Without one, a server
    # that has run may be unshelved.
    return why if why == _DELETED or not (host or launched_at) else ""


@dataclass(slots=True)
class Server:
    """A server that runs, or one that has no host at present."""

    request: RequestSpec
    """The request that it was scheduled by."""
    host: str = ""
    """The resource provider of its host (Nova's ``node``), or empty."""
    uuid: str = ""
    name: str = ""
    project: str = ""
    machine_type: str | None = UNKNOWN_MACHINE_TYPE
    """The machine type that it keeps.

    None if it keeps none and gets the default of its next host; empty if that
    is not known, which excludes no host.
    """
    unknown: str = ""
    """Why too little of :attr:`request` is known for an all-clear.

    Empty if it is known.
    """
    not_judged: Sequence[str] = ()
    """Other needs of its next host, which are not part of :attr:`request`."""
    group: ServerGroup | None = None
    """The group whose policy excludes hosts."""
    no_place: str = ""
    """Why it needs no place on another host, such as a failed boot.

    Empty if it needs one.
    """

    @property
    def current_machine_type(self) -> str:
        """The machine type that it has now; empty if that is not known."""
        # Nova's API shows the type that a server keeps as an image property.
        image = self.request.image
        named = image.properties.get("hw_machine_type") if image else None
        return str(self.machine_type or named or "")


@dataclass(frozen=True)
class HostFilter:
    """A host filter of Nova and the candidates that it left."""

    name: str
    left: int
    """How many hosts it left."""
    excluded: tuple[str, ...]
    not_known: tuple[str, ...]
    """What it read and no API shows: fields of hosts, or its error.

    Such hosts are left.
    """
