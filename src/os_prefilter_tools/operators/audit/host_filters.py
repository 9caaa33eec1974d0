# SPDX-License-Identifier: Apache-2.0

"""What Nova's host filters decide by data that no API shows.

An audit of servers cannot judge it.

A server that asks for such a thing gets no all-clear. Sources:
``nova/scheduler/filters/`` and, for what makes a NUMA topology,
``numa_get_constraints`` in ``nova/virt/hardware.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from os_prefilter.request.spec import RequestSpec
from os_prefilter.request.view import Request
from os_prefilter_tools.operators.diagnose.findings import Sources

_PINNED = frozenset(("dedicated", "mixed"))
_NUMA_EXTRA_SPECS = ("hw:numa_nodes", "hw:mem_page_size", "hw:pmem")
_NUMA_PROPERTIES = ("hw_numa_nodes", "hw_mem_page_size")
_OF_HOST = (
    "hw_architecture",
    "img_hv_type",
    "hw_vm_mode",
    "img_hv_requested_version",
    "hw_maxphysaddr_bits",
)
"""Image properties that ImagePropertiesFilter compares.

With ``supported_instances`` of a host.
"""
_UNSCOPED = frozenset(("group_policy", "hide_hypervisor_id"))
"""Extra specs without a scope that ComputeCapabilitiesFilter ignores."""
_AGGREGATE_SCOPE = "aggregate_instance_extra_specs:"
JUDGED = frozenset(
    (
        "AllHostsFilter",
        "ComputeFilter",
        "RebuildFilter",
        "ServerGroupAffinityFilter",
        "ServerGroupAntiAffinityFilter",
        "AggregateInstanceExtraSpecsFilter",
        "ComputeCapabilitiesFilter",
        "ImagePropertiesFilter",
        "NUMATopologyFilter",
        "PciPassthroughFilter",
        "DifferentHostFilter",
        "JsonFilter",
        "SameHostFilter",
        "SimpleCIDRAffinityFilter",
    )
)
"""Host filters that an audit can judge.

Any other may exclude hosts for any request, by data that no API shows.
"""


def find_not_judged(asked: RequestSpec, sources: Sources) -> Iterator[str]:
    """Yield what a request requires that cannot be judged of a host.

    :param asked: the request
    :param sources: its requirements, with the filters
    """
    request = sources.request
    extra_specs = request.extra_specs
    if "pci_passthrough:alias" in extra_specs:
        yield "PCI devices"
    if _has_numa_topology(request):
        yield "a NUMA topology"
    if "accel:device_profile" in extra_specs:
        yield "a device profile"
    if _is_compared_with_hosts(extra_specs):
        yield "extra specs that Nova compares with capabilities of hosts"
    if any(key.startswith(_AGGREGATE_SCOPE) for key in extra_specs):
        yield "extra specs that Nova compares with metadata of aggregates"
    required = {
        each.partition("=")[0]
        for item in sources.decision.requirements
        for each in item.properties
    }
    for name in _OF_HOST:
        if name in request.image_properties and name not in required:
            yield f"image property {name}, which no enabled filter requires"
    # A server's group is judged.
    if any(
        values
        for name, values in asked.scheduler_hints.items()
        if name != "group"
    ):
        yield "scheduler hints"


def _has_numa_topology(request: Request) -> bool:
    extra_specs, properties = request.extra_specs, request.image_properties
    policies = (
        extra_specs.get("hw:cpu_policy"),
        properties.get("hw_cpu_policy"),
    )
    asked = [extra_specs.get(name) for name in _NUMA_EXTRA_SPECS]
    asked += [properties.get(name) for name in _NUMA_PROPERTIES]
    if any(asked):
        return True
    if any(str(policy).lower() in _PINNED for policy in policies):
        return True
    groups = request.flavor_groups.values()
    return any("PCPU" in group.resources for group in groups)


def _is_compared_with_hosts(extra_specs: Mapping[str, object]) -> bool:
    """Return whether ComputeCapabilitiesFilter may read an extra spec.

    It compares the extra spec with a field of a host.

    One without a scope, such as ``gpu``, is compared with a host that has a
    field or a statistic of the name.
    """
    for key in extra_specs:
        scope, colon, _ = key.partition(":")
        is_unscoped = not colon and key not in _UNSCOPED
        if (
            is_unscoped
            or scope == "capabilities"
            or key == "hw:maxphysaddr_bits"
        ):
            return True
    return False
