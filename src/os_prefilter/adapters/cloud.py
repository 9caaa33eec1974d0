"""A live cloud, by its name in ``clouds.yaml``, through openstacksdk."""

from typing import Any

import openstack
from keystoneauth1.exceptions import ClientException
from openstack.exceptions import ConfigException, SDKException

from os_prefilter.adapters.placement import TIMEOUT, PlacementClient
from os_prefilter.errors import ConfigurationError, PlacementUnavailable
from os_prefilter.texts import shown, told


def connect(name: str) -> Any:
    """Return an ``openstack.connection.Connection`` to a cloud; nothing is asked of it yet.

    :raises ConfigurationError: if there is no such cloud, or its entry cannot be used.
    """
    try:
        # Without an end to wait for, a service that hangs would keep the command for ever.
        return openstack.connect(cloud=name, api_timeout=TIMEOUT, app_name="os-prefilter")
    except (ConfigException, SDKException, ClientException, OSError, ValueError, TypeError, AttributeError) as error:
        raise ConfigurationError(
            f"The cloud {shown(name)} cannot be used: {told(error)}. Name one that clouds.yaml has, in this folder, in "
            "~/.config/openstack or in /etc/openstack, and check its entry."
        ) from error


def placement_of(connection: Any) -> PlacementClient:
    """Return the client of a cloud's Placement.

    :raises PlacementUnavailable: if the cloud does not say where it is.
    """
    try:
        return PlacementClient(connection.placement)
    except (SDKException, ClientException) as error:
        raise PlacementUnavailable("GET /", told(error)) from error
