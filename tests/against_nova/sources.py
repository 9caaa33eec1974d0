# SPDX-License-Identifier: Apache-2.0

"""What else a server may need of a host than its image and flavor say: the
capabilities of Nova's virt drivers and the fields of a boot request.

The page "How it behaves in Nova" shows these tables, and
``test_closed_vocabulary.py`` compares them with the installed Nova. This
module imports nothing of Nova.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

REQUIRED = "required"
NOTED = "noted"
NOT_OURS = "not ours"


class Source(NamedTuple):
    """Names of Nova with one verdict, for one reason."""

    names: tuple[str, ...]
    verdict: str
    """:data:`REQUIRED`, :data:`NOTED` or :data:`NOT_OURS`."""
    why: str
    """The filters that require it, by space; else the reason."""


def _source(names: str, verdict: str, why: str) -> Source:
    return Source(tuple(names.split()), verdict, why)


CAPABILITIES = (
    _source(
        "supports_device_tagging supports_trusted_certs supports_multiattach"
        " supports_virtio_fs supports_mem_backing_file",
        REQUIRED,
        "server_options",
    ),
    _source("supports_remote_managed_ports", REQUIRED, "remote_managed_ports"),
    _source(
        "supports_attach_interface supports_tagged_attach_interface"
        " supports_tagged_attach_volume supports_extend_volume",
        NOT_OURS,
        "it is checked when something is attached to a server that runs;"
        " nothing is scheduled",
    ),
    _source(
        "supports_bfv_rescue",
        NOT_OURS,
        "a server is rescued on its own host, of which nova-api checks the"
        " trait",
    ),
    _source(
        "supports_migrate_to_same_host",
        NOT_OURS,
        "it concerns a cold migration to the server's own host alone, which"
        " nova.conf must allow; Nova then tries the alternates",
    ),
    _source(
        "supports_evacuate",
        NOT_OURS,
        "no trait says it; img_hv_type leads to hosts of a driver that can",
    ),
    _source(
        "supports_pcpus",
        NOT_OURS,
        "no trait says it; a host that has dedicated CPUs has the resource"
        " PCPU, which Nova's query requests",
    ),
    _source(
        "supports_vtpm",
        NOT_OURS,
        "no trait is of it alone; those of the versions and models of TPMs"
        " are required",
    ),
)
"""``supports_*`` of a virt driver whose trait is in no row of the vocabulary,
or that have none.
"""

BOOT_FIELDS = (
    _source(
        "server.block_device_mapping_v2.tag server.networks.tag"
        " server.trusted_image_certificates",
        REQUIRED,
        "server_options",
    ),
    _source(
        "server.imageRef server.block_device_mapping_v2.boot_index"
        " server.block_device_mapping_v2.destination_type"
        " server.block_device_mapping_v2.source_type"
        " server.block_device_mapping_v2.uuid",
        REQUIRED,
        "image_metadata image_type",
    ),
    _source(
        "server.flavorRef", REQUIRED, "hpet deploy_config tpm_secret_security"
    ),
    _source("server.availability_zone", REQUIRED, "availability_zone"),
    _source(
        "server.networks server.networks.port server.networks.uuid",
        REQUIRED,
        "routed_networks remote_managed_ports",
    ),
    _source(
        "server.block_device_mapping_v2.disk_bus"
        " server.block_device_mapping_v2.device_type",
        NOT_OURS,
        "it wins over the image, and no request spec has it; libvirt refuses"
        " a bus that the machine type lacks",
    ),
    _source(
        "server.config_drive",
        NOTED,
        "every driver gives one; on a bus that the machine type of its image"
        " lacks it is noted where the image requires it (img_config_drive)",
    ),
    _source(
        "server.host server.hypervisor_hostname",
        NOT_OURS,
        "Nova asks Placement for that host alone; the filters run for it",
    ),
    _source(
        "os:scheduler_hints OS-SCH-HNT:scheduler_hints"
        " os:scheduler_hints.group OS-SCH-HNT:scheduler_hints.group"
        " os:scheduler_hints.same_host OS-SCH-HNT:scheduler_hints.same_host"
        " os:scheduler_hints.different_host"
        " OS-SCH-HNT:scheduler_hints.different_host"
        " os:scheduler_hints.query OS-SCH-HNT:scheduler_hints.query"
        " os:scheduler_hints.build_near_host_ip"
        " OS-SCH-HNT:scheduler_hints.build_near_host_ip"
        " os:scheduler_hints.cidr OS-SCH-HNT:scheduler_hints.cidr"
        " os:scheduler_hints.different_cell"
        " OS-SCH-HNT:scheduler_hints.different_cell"
        " os:scheduler_hints.target_cell"
        " OS-SCH-HNT:scheduler_hints.target_cell",
        NOT_OURS,
        "Nova's host filters compare it with the state of each host",
    ),
    _source(
        "server.block_device_mapping server.block_device_mapping_v2"
        " server.block_device_mapping.connection_info"
        " server.block_device_mapping.delete_on_termination"
        " server.block_device_mapping.device_name"
        " server.block_device_mapping.no_device"
        " server.block_device_mapping.snapshot_id"
        " server.block_device_mapping.virtual_name"
        " server.block_device_mapping.volume_id"
        " server.block_device_mapping.volume_size"
        " server.block_device_mapping_v2.connection_info"
        " server.block_device_mapping_v2.delete_on_termination"
        " server.block_device_mapping_v2.device_name"
        " server.block_device_mapping_v2.guest_format"
        " server.block_device_mapping_v2.image_id"
        " server.block_device_mapping_v2.no_device"
        " server.block_device_mapping_v2.snapshot_id"
        " server.block_device_mapping_v2.virtual_name"
        " server.block_device_mapping_v2.volume_id"
        " server.block_device_mapping_v2.volume_size"
        " server.block_device_mapping_v2.volume_type",
        NOT_OURS,
        "Nova and Cinder make volumes and disks of it on any host",
    ),
    _source(
        "server.networks.fixed_ip server.security_groups"
        " server.security_groups.name",
        NOT_OURS,
        "Neutron serves it wherever the server is",
    ),
    _source(
        "server.max_count server.min_count server.return_reservation_id",
        NOT_OURS,
        "each of several servers is scheduled for itself",
    ),
    _source(
        "server.OS-DCF:diskConfig server.accessIPv4 server.accessIPv6"
        " server.adminPass server.description server.hostname server.key_name"
        " server.metadata server.name server.personality"
        " server.personality.contents server.personality.path server.tags"
        " server.user_data",
        NOT_OURS,
        "it is kept with the server, or is data in the guest",
    ),
)
"""Fields of ``POST /servers``, of every microversion."""


def names_of(sources: Iterable[Source]) -> list[str]:
    """Return the names of all sources."""
    return [name for source in sources for name in source.names]
