#    Licensed under the Apache License, Version 2.0 (the "License"); you may
#    not use this file except in compliance with the License. You may obtain
#    a copy of the License at
#
#         http://www.apache.org/licenses/LICENSE-2.0
#
#    Unless required by applicable law or agreed to in writing, software
#    distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
#    WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
#    License for the specific language governing permissions and limitations
#    under the License.

"""Why no host is left for a request whose traits hosts have: no room, or one of the scheduler's own host filters.

The words for a server's owner name no host, no project and no server; numbers are told only if the operator wants it.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final
from urllib.parse import parse_qsl, urlencode

from os_traits import COMPUTE_NODE

from os_prefilter.common.errors import HostsAt, NoHostLeft

SUBJECTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "AggregateImagePropertiesIsolation": "The aggregate of no host allows the properties of this image",
        "AggregateInstanceExtraSpecsFilter": "No host is in an aggregate for the extra specs of this flavor",
        "AggregateIoOpsFilter": "Each host is busy with other builds and moves",
        "AggregateMultiTenancyIsolation": "No host is open to this project",
        "AggregateNumInstancesFilter": "Each host has as many servers as it may have",
        "AggregateTypeAffinityFilter": "The aggregate of no host allows this flavor",
        "AvailabilityZoneFilter": "No host is in the requested availability zone",
        "ComputeCapabilitiesFilter": "No host has the capabilities that this flavor requires",
        "ComputeFilter": "The compute service of each host is down or disabled",
        "DifferentHostFilter": "The hint different_host allows no host",
        "ImagePropertiesFilter": "No host supports the architecture, hypervisor or VM mode of this image",
        "IoOpsFilter": "Each host is busy with other builds and moves",
        "IsolatedHostsFilter": "No host may run this image",
        "JsonFilter": "No host matches the hint query",
        "NUMATopologyFilter": "No host has the NUMA topology, dedicated CPUs or huge pages of this request",
        "NumInstancesFilter": "Each host has as many servers as it may have",
        "PciPassthroughFilter": "No host has the PCI device",
        "SameHostFilter": "The hint same_host allows no host",
        "ServerGroupAffinityFilter": "The host of the server group cannot take this server",
        "ServerGroupAntiAffinityFilter": "The server group allows no further host",
        "SimpleCIDRAffinityFilter": "The hint cidr allows no host",
    }
)
"""Name of a host filter of Nova -> what its user reads if it left no host."""

HOST_FILTERS, ROOM = "host filters", "room"

# Each host once, for numbers.
_MOST_HOSTS = 1_000
_WORDS = MappingProxyType({"MEMORY_MB": "memory", "VCPU": "CPUs", "PCPU": "dedicated CPUs", "DISK_GB": "disk"})
# Of Nova's query: where a host may be, and what its root must have.
_OF_HOST = frozenset(("required", "member_of", "in_tree", "root_required"))
_MOST_CLASSES = 6
_MOST_REMEMBERED = 1_000
# A worker asks Placement at most a twentieth of its time.
_PAUSE = 20


def left_by_filters(steps: Sequence[HostsAt], *, counts: bool) -> NoHostLeft:
    """Return why the last of these host filters left no host.

    :param steps: of one request, in the order of the filters
    """
    name = steps[-1].by
    subject = SUBJECTS.get(name) or f"The host filter {name} of this cloud allows no host"
    numbers = (f"{each.by} {each.after} of {each.before}" for each in steps if each.after < each.before)
    return NoHostLeft(subject, HOST_FILTERS, (name,), steps, numbers if counts else ())


class RoomCheck:
    """Finds which resource is short where Placement has no candidate.

    Each resource class of the request is asked for alone, with all else that the query says of the host: Placement
    knows ``max_unit``, shared storage and reserved amounts, which no summary of providers shows.

    :param candidate_hosts: returns how many hosts are among the allocation candidates of a query
    :param hosts: returns how many root providers a query of ``GET /resource_providers`` finds
    :param records: whether numbers of hosts are recorded, beside what is told
    :param counts: whether numbers are told (``no_host_reason = counts``)
    """

    def __init__(
        self, candidate_hosts: Callable[[str], int], hosts: Callable[[str], int], *, records: bool, counts: bool
    ) -> None:
        self._candidate_hosts = candidate_hosts
        self._hosts = hosts
        self._numbered = records or counts
        self._counts = counts
        self._known: dict[tuple[Callable[[str], int], str], tuple[int, float]] = {}

    def look(self, query: str) -> NoHostLeft | None:
        """Return what is short for a query that had no candidate; ``by`` is empty if that is not known for certain.

        None if no resource is to blame: without a request for any, or if no host is where the query wants it.

        :param query: as it was sent to Placement, urlencoded
        :raises os_prefilter.common.errors.PlacementError: if Placement fails or does not answer
        """
        parts = parse_qsl(query)
        kept = [part for part in parts if part[0] in _OF_HOST]
        amounts = [amount for key, value in parts if key == "resources" for amount in value.split(",")]
        amounts.sort(key=lambda each: [*_WORDS, each.partition(":")[0]].index(each.partition(":")[0]))
        limit = ("limit", str(_MOST_HOSTS if self._numbered else 1))
        room = {
            amount.partition(":")[0]: self._ask(self._candidate_hosts, [("resources", amount), *kept, limit])
            for amount in amounts[:_MOST_CLASSES]
        }
        if not room:
            return None
        short = [name for name, number in room.items() if not number]
        hosts = 0
        if self._numbered or len(short) == len(room):
            # A provider that shares its disk is no host.
            traits = [COMPUTE_NODE, *(value for key, value in kept if key in ("required", "root_required"))]
            others = [part for part in kept if part[0] not in ("required", "root_required")]
            hosts = self._ask(self._hosts, [*others, ("required", ",".join(traits))])
            if not hosts:
                # No host is in the zone, for instance, or none has the traits: room is not to blame.
                return None
        steps = [HostsAt(name, hosts, number) for name, number in room.items()] if self._numbered else []
        if not short and any(key.startswith("resources") and key != "resources" for key, _ in parts):
            reason = "Hosts have room for each resource of the flavor; a device or another part of the request has none"
            return NoHostLeft(reason, ROOM, (), steps)
        words = [_WORDS.get(name, name) for name in short or room]
        text = " and ".join(filter(None, (", ".join(words[:-1]), words[-1]))) + (" together" * (not short))
        numbers = (f"{_WORDS.get(each.by, each.by)}: {each.after} of {each.before} hosts" for each in steps)
        reason = f"No available host has room for this flavor's {text}"
        return NoHostLeft(reason, ROOM, short or room, steps, numbers if self._counts else ())

    def _ask(self, ask: Callable[[str], int], query: Iterable[tuple[str, str]]) -> int:
        key = (ask, urlencode(list(query)))
        number, due = self._known.get(key, (0, 0.0))
        begun = time.monotonic()
        if begun >= due:
            number = ask(key[1])
            if len(self._known) >= _MOST_REMEMBERED:
                self._known = {}
            now = time.monotonic()
            self._known[key] = number, now + _PAUSE * (now - begun)
        return number
