# SPDX-License-Identifier: Apache-2.0

"""Nova's host aggregates, of a live cloud."""

from typing import Any
from uuid import UUID

from os_prefilter_tools.adapters.cloud.service import CloudService, unexpected
from os_prefilter_tools.fleet.model import Aggregate

# The first that shows the UUIDs of aggregates, by which Placement knows them:
# Nova 15.0.0 (Ocata).
_AGGREGATE_UUIDS = "2.41"
# Of its metadata, the keys that request filters read.
_READ = ("filter_tenant_id", "trait:")


def host_aggregates(connection: Any) -> tuple[Aggregate, ...]:
    """Return Nova's host aggregates with their availability zones and the
    metadata that filters read, in Nova's order.

    :raises CloudError: Nova does not respond, or refuses: by default only
        administrators may see them
    """
    rows: Any = (
        CloudService(connection, "compute")
        .get("/os-aggregates", _AGGREGATE_UUIDS)
        .get("aggregates")
    )
    try:
        return tuple(
            Aggregate(
                str(UUID(row["uuid"])),
                str(row["name"]),
                str(row["availability_zone"] or ""),
                {
                    key: str(value)
                    for key, value in (row.get("metadata") or {}).items()
                    if key.startswith(_READ)
                },
            )
            for row in rows
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise unexpected("Nova, the host aggregates", rows) from error
