# SPDX-License-Identifier: Apache-2.0

"""Run Nova's own host filters here, on hosts as the APIs show them.

nova-scheduler is not asked.

A filter that reads of a host what no API shows leaves the host, and is named
with what it read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import nova.conf
from nova import objects
from nova.scheduler import filters
from nova.virt import hardware
from oslo_utils import timeutils

from os_prefilter.common.placement_values import is_hyphenated_uuid
from os_prefilter.common.quoting import describe_error, escape_line
from os_prefilter.nova.host_filters import OURS
from os_prefilter.request.spec import Image, RequestSpec
from os_prefilter_tools.adapters.cloud.service import CloudService, unexpected
from os_prefilter_tools.fleet.server import HostFilter

# Later ones show no amounts, and ask each host how long it is up.
_MICROVERSION = "2.75"
_HOSTS = "/os-hypervisors/detail?with_servers=true&limit=1000"
_LONGEST_NAME = 80
_SHOWN = (
    "hypervisor_hostname",
    "hypervisor_type",
    "hypervisor_version",
    "host_ip",
    "free_ram_mb",
    "vcpus_used",
)


class _NotShownError(Exception):
    """No API shows this field of a host."""


class _Host:
    """A host as filters see it, with the fields that an API shows.

    It stands for ``nova.scheduler.host_manager.HostState``.
    """

    def __init__(self, **fields: Any) -> None:
        vars(self).update(fields)

    def __getattr__(self, name: str) -> Any:
        raise _NotShownError(name)

    def __repr__(self) -> str:
        return str(vars(self).get("hypervisor_hostname"))


def run_filters(
    connection: Any,
    request: RequestSpec,
    server: str,
    candidates: Collection[str],
    conf_file: str | None,
) -> Iterator[HostFilter]:
    """Yield what each enabled filter leaves, until one leaves no host.

    :param connection: an ``openstack.connection.Connection`` of an
        administrator
    :param server: UUID of the server that is to be scheduled
    :param conf_file: Nova's, with the filters and their options; None for
        Nova's defaults
    :raises CloudError: Nova does not respond, or refuses
    """
    objects.register_all()
    nova.conf.CONF(
        [],
        project="nova",
        default_config_files=[conf_file] if conf_file else [],
        default_config_dirs=[],
    )
    options = nova.conf.CONF.filter_scheduler
    lines = [
        each for each in options.available_filters if each.strip() != OURS
    ]
    classes = {
        each.__name__: each
        for each in filters.HostFilterHandler().get_matching_classes(lines)
    }
    compute = CloudService(connection, "compute")
    hosts = {each.hypervisor_hostname: each for each in _hosts(compute)}
    spec = _spec(compute, request, server, hosts.values())
    left = {name: hosts.get(name) or _Host() for name in candidates}
    if spec.numa_topology is None:
        # It reads fields that no API shows, also where nothing is asked.
        classes.pop("NUMATopologyFilter", None)
    for host in hosts.values():
        # Now, not when it was read: the listing of a large cloud takes longer
        # than a service may be silent.
        host.service["last_seen_up"] = timeutils.utcnow()
    for name in dict.fromkeys(options.enabled_filters):
        if name not in classes or not left:
            continue
        one, excluded, unknown = classes[name](), dict[str, None](), set[str]()
        for host_name, host in left.items():
            try:
                if not list(one.filter_all([host], spec)):
                    excluded[host_name] = None
            except _NotShownError as field:
                unknown.add(escape_line(str(field))[:_LONGEST_NAME])
            except Exception as error:  # noqa: BLE001 - any class of another package
                unknown.add(describe_error(error))
        left = {
            each: host for each, host in left.items() if each not in excluded
        }
        yield HostFilter(
            name, len(left), tuple(excluded), tuple(sorted(unknown))
        )


def _hosts(compute: CloudService) -> Iterator[Any]:
    rows: Any = compute.get("/os-aggregates", _MICROVERSION).get("aggregates")
    try:
        fields = ("id", "uuid", "name", "hosts", "metadata")
        aggregates = [
            objects.Aggregate(**{name: row[name] for name in fields})
            for row in rows
        ]
        for row in compute.rows(_HOSTS, "hypervisors", _MICROVERSION):
            rows, host = row, row["service"]["host"]
            instances = {
                each["uuid"]: SimpleNamespace(**each)
                for each in row["servers"]
            }
            service = {
                "host": host,
                "disabled": row["status"] != "enabled",
                "forced_down": row["state"] != "up",
            }
            yield _Host(
                **{name: row[name] for name in _SHOWN},
                host=host,
                nodename=row["hypervisor_hostname"],
                uuid=row["id"],
                instances=instances,
                num_instances=row["running_vms"],
                aggregates=[each for each in aggregates if host in each.hosts],
                service=service,
            )
    except (KeyError, TypeError, ValueError) as error:
        raise unexpected(
            "Nova, its hosts and their aggregates", rows
        ) from error


def _spec(
    compute: CloudService,
    request: RequestSpec,
    server: str,
    hosts: Collection[Any],
) -> Any:
    image, flavor = request.image or Image(), request.flavor
    sizes = {
        name: getattr(flavor, name)
        for name in ("vcpus", "memory_mb", "root_gb", "ephemeral_gb", "swap")
    }
    novas_flavor = objects.Flavor(
        name=flavor.name, extra_specs=dict(flavor.extra_specs), **sizes
    )
    known = {
        "id": image.id,
        "name": image.name,
        "disk_format": image.disk_format,
        "properties": dict(image.properties),
    }
    novas_image = objects.ImageMeta.from_dict(
        {name: value for name, value in known.items() if value is not None}
    )
    # Which devices these are only the host's pci_stats say, and no API shows
    # those.
    devices = []
    if "pci_passthrough:alias" in flavor.extra_specs:
        devices.append(objects.InstancePCIRequest(count=1))
    hints = {
        name: list(values) for name, values in request.scheduler_hints.items()
    }
    unset = (
        "ignore_hosts",
        "force_hosts",
        "force_nodes",
        "retry",
        "requested_destination",
    )
    return objects.RequestSpec(
        instance_uuid=server.lower(),
        image=novas_image,
        flavor=novas_flavor,
        numa_topology=hardware.numa_get_constraints(novas_flavor, novas_image),
        pci_requests=objects.InstancePCIRequests(requests=devices),
        instance_group=_group(compute, request.scheduler_hints, hosts),
        scheduler_hints=hints,
        project_id=request.project_id,
        availability_zone=request.availability_zone,
        num_instances=1,
        requested_resources=[],
        **dict.fromkeys(unset),
    )


def _group(
    compute: CloudService, hints: Mapping[str, Any], hosts: Collection[Any]
) -> Any:
    group, *_ = hints.get("group") or [""]
    found: Any = None
    if is_hyphenated_uuid(group):
        found = compute.find(f"/os-server-groups/{group}", _MICROVERSION)
    if not found:
        return None
    try:
        members = found["server_group"]["members"]
        fields = {
            name: found["server_group"][name]
            for name in ("policy", "rules", "name")
        }
        fields["policies"] = [fields["policy"]]
    except (KeyError, TypeError) as error:
        raise unexpected("Nova, a server group", found) from error
    with_members = [
        each.host
        for each in hosts
        if not each.instances.keys().isdisjoint(members)
    ]
    return objects.InstanceGroup(
        uuid=group, members=members, hosts=with_members, **fields
    )
