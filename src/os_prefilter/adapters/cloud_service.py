# SPDX-License-Identifier: Apache-2.0

"""The services of a cloud in openstacksdk's catalogue, and their one error."""

from __future__ import annotations

from typing import Any

from keystoneauth1.exceptions import CatalogException
from openstack.exceptions import ServiceDisabledException

from os_prefilter.common.errors import PrefilterError
from os_prefilter.common.quoting import quote

SERVICES = {
    "baremetal": "Ironic",
    "block_storage": "Cinder",
    "compute": "Nova",
    "image": "Glance",
    "network": "Neutron",
    "placement": "Placement",
}
"""Kind of a service -> its name."""


class CloudError(PrefilterError):
    """A service did not respond, refused, or sent something unexpected."""

    def __init__(
        self, what: str, reason: str, advice: str, status: int = 0
    ) -> None:
        self.status = status
        """The HTTP status of the response; 0 if there was none."""
        super().__init__(f"{what}: {reason}. {advice}")


def proxy_of(connection: Any, kind: str) -> Any:
    """Return openstacksdk's proxy of a service.

    It sends requests to the endpoint in the service catalogue.

    :param connection: an ``openstack.connection.Connection``
    :param kind: a key of ``SERVICES``
    :raises CloudError: the catalogue has no endpoint of the service
    :raises SDKException, ClientException: the service does not show its
        versions, or Keystone refuses
    """
    try:
        proxy = getattr(connection, kind)
        # The SDK has a proxy of a missing service too, which fails when it is
        # used.
        _ = proxy.request
    except (ServiceDisabledException, CatalogException) as error:
        region = connection.config.get_region_name(kind)
        interface = connection.config.get_interface(kind)
        where = f"region {quote(region)}, interface {quote(interface)}"
        reason = (
            "the service catalogue has no endpoint of type"
            f" {kind.replace('_', '-')} for this user ({where})"
        )
        advice = (
            "Check region_name and interface in clouds.yaml; 'openstack"
            " catalog list' shows what is there."
        )
        raise CloudError(SERVICES[kind], reason, advice) from error
    return proxy
