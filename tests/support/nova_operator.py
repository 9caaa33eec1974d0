# SPDX-License-Identifier: Apache-2.0

"""What Red Hat's operator writes into the nova.conf of nova-scheduler.

Options and values of openstack-k8s-operators/nova-operator,
``templates/nova/nova.conf`` at b3775364 of 2026-08-08, read on 2026-11-29: a
control plane without TLS, notifications and quorum queues. Left out is what
names the services and folders of one cloud, such as its databases.

nova-scheduler is started without arguments, with an empty
``/etc/nova/nova.conf``; the operator's file is ``01-nova.conf`` in
``nova.conf.d``, and ``customServiceConfig`` is ``02-nova-override.conf``.
"""

from __future__ import annotations

from collections.abc import Mapping

FILE, OVERRIDE = "01-nova.conf", "02-nova-override.conf"

HOST_FILTERS = (
    "AggregateInstanceExtraSpecsFilter",
    "ComputeFilter",
    "ComputeCapabilitiesFilter",
    "ImagePropertiesFilter",
    "ServerGroupAntiAffinityFilter",
    "ServerGroupAffinityFilter",
    "SameHostFilter",
    "DifferentHostFilter",
    "PciPassthroughFilter",
    "NUMATopologyFilter",
)

SECTIONS: Mapping[str, Mapping[str, str]] = {
    "DEFAULT": {
        "debug": "true",
        "log_rotation_type": "size",
        "max_concurrent_live_migrations": "1",
        "max_logfile_count": "1",
        "max_logfile_size_mb": "20",
    },
    "oslo_messaging_rabbit": {
        "amqp_auto_delete": "false",
        "amqp_durable_queues": "false",
        "heartbeat_in_pthread": "false",
    },
    "filter_scheduler": {
        "available_filters": "nova.scheduler.filters.all_filters",
        "enabled_filters": ",".join(HOST_FILTERS),
        "shuffle_best_same_weighed_hosts": "true",
    },
    "scheduler": {
        "discover_hosts_in_cells_interval": "900",
        "enable_isolated_aggregate_filtering": "true",
        "image_metadata_prefilter": "true",
        "limit_tenants_to_placement_aggregate": "true",
        "max_attempts": "10",
        "placement_aggregate_required_for_tenants": "false",
        "query_placement_for_availability_zone": "true",
        "query_placement_for_image_type_support": "true",
        "query_placement_for_routed_network_aggregates": "true",
        "workers": "1",
    },
    "api": {"dhcp_domain": "''"},
    "oslo_messaging_notifications": {"driver": "noop"},
    "cache": {"enabled": "True", "backend": "oslo_cache.dict"},
    "workarounds": {"disable_fallback_pcpu_query": "true"},
    "upgrade_levels": {"compute": "auto"},
}


def conf_text() -> str:
    """Return the operator's file, as far as it does not name services."""
    lines = []
    for section, options in SECTIONS.items():
        lines.append(f"[{section}]")
        lines += [f"{name} = {value}" for name, value in options.items()]
    return "\n".join(lines) + "\n"
