"""A live cloud, by its name in ``clouds.yaml``, through openstacksdk: what is read of it. Nothing is written."""

from typing import Any
from uuid import UUID

import openstack
from keystoneauth1.exceptions import ClientException
from openstack.exceptions import ConfigException, SDKException

from os_prefilter.adapters.cloud_api import Service, unexpected
from os_prefilter.adapters.cloud_flavors import flavor_named, flavors
from os_prefilter.adapters.cloud_images import image_named, images
from os_prefilter.adapters.cloud_servers import request_of_server
from os_prefilter.adapters.placement import TIMEOUT, PlacementClient
from os_prefilter.adapters.whole_answers import limit
from os_prefilter.errors import ConfigurationError, PlacementUnavailable
from os_prefilter.operators.fleet import Aggregate
from os_prefilter.texts import shown, told

__all__ = [
    "connect",
    "flavor_named",
    "flavors",
    "host_aggregates",
    "image_named",
    "images",
    "placement_of",
    "request_of_server",
]

# The first that shows the UUIDs of aggregates, which Placement knows them by: Nova 15.0.0 (Ocata).
_AGGREGATE_UUIDS = "2.41"


def connect(name: str) -> Any:
    """Return an ``openstack.connection.Connection`` to a cloud; nothing is asked of it yet.

    :raises ConfigurationError: if there is no such cloud, or its entry cannot be used.
    """
    try:
        # Without an end to wait for, a service that hangs would keep the command for ever.
        connection = openstack.connect(cloud=name, api_timeout=TIMEOUT, app_name="os-prefilter")
    except (ConfigException, SDKException, ClientException, OSError, ValueError, TypeError, AttributeError) as error:
        raise ConfigurationError(
            f"The cloud {shown(name)} cannot be used: {told(error).rstrip('.')}. Name one that clouds.yaml has, in "
            "this folder, in ~/.config/openstack or in /etc/openstack, and check its entry."
        ) from error
    limit(connection.session)
    return connection


def placement_of(connection: Any) -> PlacementClient:
    """Return the client of a cloud's Placement.

    :raises PlacementUnavailable: if the cloud does not say where it is.
    """
    try:
        return PlacementClient(connection.placement)
    except (SDKException, ClientException) as error:
        raise PlacementUnavailable("GET /", told(error)) from error


def host_aggregates(connection: Any) -> tuple[Aggregate, ...]:
    """Return Nova's host aggregates with their availability zones, in Nova's order.

    :raises CloudError: Nova does not answer, or refuses: by default only administrators may see them
    """
    rows: Any = Service(connection, "compute").get("/os-aggregates", _AGGREGATE_UUIDS).get("aggregates")
    try:
        return tuple(
            Aggregate(str(UUID(row["uuid"])), str(row["name"]), str(row["availability_zone"] or "")) for row in rows
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise unexpected("Nova, the host aggregates", rows) from error
