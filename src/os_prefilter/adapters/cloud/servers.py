"""The request that a server of a live cloud was scheduled by, as far as the services' APIs show it."""

from collections.abc import Mapping
from typing import Any

from openstack import utils
from oslo_log import log as logging

from os_prefilter.adapters.cloud.resources import flavor_of, image_of
from os_prefilter.adapters.cloud.service import CloudError, Service, unexpected
from os_prefilter.common.errors import DocumentError
from os_prefilter.common.quoting import quote
from os_prefilter.hosts.desired_traits import is_uuid
from os_prefilter.request.spec import Image, RequestSpec

LOG = logging.getLogger(__name__)

# The first that shows a server's flavor as it was, with its extra specs: Nova 16.0.0 (Pike).
_FLAVOR = "2.47"
# The first that shows the image properties that a server was built with: Nova 31.0.0 (2025.1).
_IMAGE_PROPERTIES = "2.98"
# Cinder keeps these fields of the image beside its properties.
_VOLUME_FIELDS = frozenset(
    (
        *("image_id", "image_name", "checksum", "container_format", "disk_format", "min_disk", "min_ram", "size"),
        "signature_verified",
    )
)


def request_of_server(connection: Any, server: str) -> RequestSpec:
    """Return the request for a server: its flavor as it was, and its image or the image metadata of its root volume.

    A warning names what Nova's API does not show: resources of ports and device profiles, hints, destinations.

    :param connection: an ``openstack.connection.Connection``
    :param server: its ID
    :raises DocumentError: this is no ID, or there is no such server
    :raises CloudError: a service does not answer, or refuses
    """
    if not is_uuid(server):
        raise DocumentError("--server", f"{quote(server)} is no ID. 'openstack server list' shows the IDs.")
    found = Service(connection, "compute").find(f"/servers/{server}", _microversion(connection))
    if found is None:
        raise DocumentError("--server", f"there is no server {server} in this cloud, or the user may not see it.")
    shown = found.get("server")
    if not isinstance(shown, dict):
        raise unexpected("Nova, a server", shown)
    LOG.warning(
        "Of the server %s, Nova's API shows the flavor and the image. What its ports, device profiles, hints or a "
        "chosen host require is not part of the request; the request spec in Nova's database has it.",
        server,
    )
    flavor = flavor_of(shown.get("flavor"))
    if not shown.get("image"):
        return RequestSpec(flavor, _image_of_volume(connection, shown), is_bfv=True)
    return RequestSpec(flavor, _image(connection, shown["image"]))


def _microversion(connection: Any) -> str:
    try:
        newest = utils.maximum_supported_microversion(connection.compute, _IMAGE_PROPERTIES)
    except Exception:  # noqa: BLE001 - the request that follows fails with a better message
        newest = None
    return newest or _FLAVOR


def _image(connection: Any, reference: Any) -> Image:
    """Return a server's image; the properties that the server was built with override those of today."""
    if not isinstance(reference, dict) or not is_uuid(str(reference.get("id"))):
        raise unexpected("Nova, the image of a server", reference)
    built_with = reference.get("properties") or {}
    row = Service(connection, "image").find(f"/images/{reference['id']}")
    if row is None:
        LOG.warning(
            "The image %s is gone from Glance: its format and its trait:... properties are not known.", reference["id"]
        )
        return Image(dict(built_with), id=reference["id"])
    image = image_of(row)
    image.properties = {**image.properties, **built_with}
    return image


def _image_of_volume(connection: Any, server: Mapping[str, Any]) -> Image | None:
    """Return what Cinder knows of the image that the root volume was made from; None if it knows nothing."""
    root = server.get("OS-EXT-SRV-ATTR:root_device_name")
    cinder = Service(connection, "block_storage")
    for each in server.get("os-extended-volumes:volumes_attached") or ():
        try:
            volume = cinder.get(f"/volumes/{each['id']}")["volume"]
            devices = [attachment.get("device") for attachment in volume["attachments"]]
            is_root = root in devices if root and any(devices) else volume["bootable"] in ("true", True)
            metadata = dict(volume.get("volume_image_metadata") or {})
        except (CloudError, KeyError, TypeError, AttributeError, ValueError) as error:
            LOG.warning("The image of the server's root volume is not known: %s", error)
            return None
        if is_root:
            properties = {name: value for name, value in metadata.items() if name not in _VOLUME_FIELDS}
            return Image(properties, metadata.get("disk_format"), name=metadata.get("image_name"))
    LOG.warning("The server boots from a volume that Nova does not name: the requirements of its image are not known.")
    return None
