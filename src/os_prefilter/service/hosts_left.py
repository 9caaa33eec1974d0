# SPDX-License-Identifier: Apache-2.0

"""Words for a request whose hosts were all excluded by host filters.

The words for a server's owner name no host, no project and no server; they
have numbers only if the operator wants that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from os_prefilter.common.errors import HostsAt, NoHostLeft

HOST_FILTERS: Final = "host filters"
"""Stage of a request whose candidates were all excluded."""

SUBJECTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "AggregateImagePropertiesIsolation": (
            "The aggregate of no host allows the properties of this image"
        ),
        "AggregateInstanceExtraSpecsFilter": (
            "No host is in an aggregate for the extra specs of this flavor"
        ),
        "AggregateIoOpsFilter": (
            "Each host is busy with other builds and moves"
        ),
        "AggregateMultiTenancyIsolation": "No host is open to this project",
        "AggregateNumInstancesFilter": (
            "Each host has as many servers as it may have"
        ),
        "AggregateTypeAffinityFilter": (
            "The aggregate of no host allows this flavor"
        ),
        "AvailabilityZoneFilter": (
            "No host is in the requested availability zone"
        ),
        "ComputeCapabilitiesFilter": (
            "No host has the capabilities that this flavor requires"
        ),
        "ComputeFilter": (
            "The compute service of each host is down or disabled"
        ),
        "DifferentHostFilter": "The hint different_host allows no host",
        "ImagePropertiesFilter": (
            "No host supports the architecture, hypervisor or VM mode of this"
            " image"
        ),
        "IoOpsFilter": "Each host is busy with other builds and moves",
        "IsolatedHostsFilter": "No host may run this image",
        "JsonFilter": "No host matches the hint query",
        "NUMATopologyFilter": (
            "No host has the NUMA topology, dedicated CPUs or huge pages of"
            " this request"
        ),
        "NumInstancesFilter": "Each host has as many servers as it may have",
        "PciPassthroughFilter": "No host has the PCI device",
        "SameHostFilter": "The hint same_host allows no host",
        "ServerGroupAffinityFilter": (
            "The host of the server group cannot take this server"
        ),
        "ServerGroupAntiAffinityFilter": (
            "The server group allows no further host"
        ),
        "SimpleCIDRAffinityFilter": "The hint cidr allows no host",
    }
)
"""Name of a host filter of Nova -> what its users read if it left no host."""


def left_by_filters(steps: Sequence[HostsAt], *, counts: bool) -> NoHostLeft:
    """Return why the last of these host filters left no host.

    :param steps: of one request, in the order of the filters
    """
    name = steps[-1].by
    subject = (
        SUBJECTS.get(name)
        or f"The host filter {name} of this cloud allows no host"
    )
    numbers = (
        f"{each.by} {each.after} of {each.before}"
        for each in steps
        if each.after < each.before
    )
    return NoHostLeft(
        subject, HOST_FILTERS, (name,), steps, numbers if counts else ()
    )
