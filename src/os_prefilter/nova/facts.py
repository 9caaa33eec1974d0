# SPDX-License-Identifier: Apache-2.0

"""Deployment facts that Nova has in its database.

Compute nodes, service versions, the machine type of a server, and what it asks
for in addition to image and flavor.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from nova import context as nova_context
from nova import objects
from nova.compute.task_states import MIGRATING, RESIZE_PREP
from nova.objects import service as nova_service
from nova.objects.block_device import BlockDeviceMappingList
from nova.objects.build_request import BuildRequest
from nova.objects.compute_node import ComputeNode, ComputeNodeList
from nova.objects.host_mapping import HostMapping
from nova.objects.instance import Instance
from nova.objects.instance_mapping import InstanceMapping
from nova.objects.trusted_certs import TrustedCerts
from nova.objects.virtual_interface import VirtualInterfaceList
from nova.scheduler.utils import request_is_rebuild
from nova.utils import SM_IMAGE_PROP_PREFIX
from oslo_serialization import jsonutils

from os_prefilter.nova.connections import lock_of
from os_prefilter.request.fields import field_of
from os_prefilter.request.spec import ServerOptions
from os_prefilter.request.view import UNKNOWN_MACHINE_TYPE, Request
from os_prefilter.service.existing_server import KEEPS_NOTHING, ExistingServer

# Facts are read at the same time, each in a thread; a worker takes one
# connection for them to each cell.
_CELLS = "cells"


def look_up_server(context: Any, request_spec: Any) -> ExistingServer:
    """Return what Nova keeps for a server that exists.

    Its libvirt driver keeps the machine type in the server's system metadata;
    with another driver, none is kept.
    """
    if request_is_rebuild(request_spec):
        # nova-api removes what is kept.
        return KEEPS_NOTHING
    admin = (context or nova_context.get_admin_context()).elevated()
    mapping = InstanceMapping.get_by_instance_uuid(
        admin, request_spec.instance_uuid
    )
    with nova_context.target_cell(admin, mapping.cell_mapping) as in_cell:
        server = Instance.get_by_uuid(
            in_cell,
            request_spec.instance_uuid,
            expected_attrs=["system_metadata"],
        )
    if server.task_state != RESIZE_PREP:
        name = f"{SM_IMAGE_PROP_PREFIX}hw_machine_type"
        return ExistingServer(server.system_metadata.get(name))
    # A resize, or a cold migration to the server's own flavor: nova-conductor
    # decides by the same fields. nova-compute then starts the guest from the
    # request's image, so that the destination's default counts.
    found = ExistingServer(
        None, server.instance_type_id != request_spec.flavor.id
    )
    if request_spec.requested_destination.allow_cross_cell_move:
        # There the server moves by a snapshot, which has what is kept.
        return found._replace(machine_type=UNKNOWN_MACHINE_TYPE)
    return found


def look_up_server_options(context: Any, request_spec: Any) -> ServerOptions:
    """Return what a server asks for in addition to image and flavor.

    Of a new server, its build request has it, and the request spec the tags of
    NICs; of one that exists, the database of its cell. Whether a volume is
    multi-attach is in the database once it is attached: before, in Cinder
    alone.
    """
    admin = (context or nova_context.get_admin_context()).elevated()
    uuid = request_spec.instance_uuid
    request = Request(request_spec)
    # Nova names no cell for a rebuild.
    if not (request.server_exists or request.is_rebuild):
        build = BuildRequest.get_by_instance_uuid(admin, uuid)
        return ServerOptions(
            block_device_tag=_has_tag(build.block_device_mappings),
            trusted_certs=bool(field_of(build.instance, "trusted_certs")),
        )
    mapping = InstanceMapping.get_by_instance_uuid(admin, uuid)
    with nova_context.target_cell(admin, mapping.cell_mapping) as in_cell:
        devices = BlockDeviceMappingList.get_by_instance_uuid(in_cell, uuid)
        nics = VirtualInterfaceList.get_by_instance_uuid(in_cell, uuid)
        certs = TrustedCerts.get_by_instance_uuid(in_cell, uuid)
        shares: list[Any] = []
        # Nova 27 has none.
        if hasattr(objects, "ShareMappingList"):
            shares = objects.ShareMappingList.get_by_instance_uuid(
                in_cell, uuid
            )
        return ServerOptions(
            _has_tag(nics),
            _has_tag(devices),
            bool(certs),
            any(map(_is_multiattach, devices)),
            len(shares) > 0,
        )


def _has_tag(devices: Iterable[Any]) -> bool:
    return any(field_of(each, "tag") is not None for each in devices)


def _is_multiattach(device: Any) -> bool:
    # nova-compute writes it there when it attaches the volume
    # (nova/virt/block_device.py); older releases than 33 have no property for
    # it.
    info = jsonutils.loads(field_of(device, "connection_info") or "{}")
    return bool(info.get("multiattach"))


def some_compute_nodes(context: Any) -> list[str]:
    """Return the UUID of one compute node of each cell that responds.

    It is that of the node's root provider in Placement, too.
    """
    admin = (context or nova_context.get_admin_context()).elevated()
    with lock_of(_CELLS):
        by_cell = nova_context.scatter_gather_skip_cell0(
            admin, ComputeNodeList.get_by_pagination, limit=1
        )
    uuids: list[str] = []
    for nodes in by_cell.values():
        if not nova_context.is_cell_failure_sentinel(nodes):
            uuids += [node.uuid for node in nodes]
    return uuids


def compute_nodes_of(context: Any, hosts: Iterable[str]) -> set[str]:
    """Return the UUIDs of the compute nodes of these hosts."""
    admin = context.elevated()
    uuids: set[str] = set()
    for host in hosts:
        cell = HostMapping.get_by_host(admin, host).cell_mapping
        with nova_context.target_cell(admin, cell) as in_cell:
            nodes = ComputeNodeList.get_all_by_host(in_cell, host)
            uuids.update(node.uuid for node in nodes)
    return uuids


def source_of_live_migration(context: Any, request_spec: Any) -> str | None:
    """Return the UUID of the compute node that a live migration leaves.

    None for any other move: its guest starts anew, with a CPU of its next
    host.
    """
    admin = context.elevated()
    uuid = request_spec.instance_uuid
    mapping = InstanceMapping.get_by_instance_uuid(admin, uuid)
    with nova_context.target_cell(admin, mapping.cell_mapping) as in_cell:
        server = Instance.get_by_uuid(in_cell, uuid, expected_attrs=[])
        if server.task_state != MIGRATING:
            return None
        node = ComputeNode.get_by_host_and_nodename(
            in_cell, server.host, server.node
        )
    return str(node.uuid)


def minimum_compute_version(context: Any) -> int:
    """Return the lowest service version of all nova-computes.

    :raises nova.exception.CellTimeout: if a cell does not respond: its nodes
        may be old.
    """
    with lock_of(_CELLS):
        admin = context or nova_context.get_admin_context()
        return int(
            nova_service.get_minimum_version_all_cells(
                admin, ["nova-compute"], require_all=True
            )
        )
