"""The request that a server of a live cloud was scheduled by, as far as its APIs tell."""

from collections.abc import Mapping
from typing import Any

from openstack import utils
from oslo_log import log as logging

from os_prefilter.adapters.cloud.flavors import flavor_of
from os_prefilter.adapters.cloud.images import image_of
from os_prefilter.adapters.cloud.names import is_uuid
from os_prefilter.adapters.cloud.service import CloudError, Service, unexpected
from os_prefilter.common.quoting import quote
from os_prefilter.errors import DocumentError
from os_prefilter.request.spec import Image, RequestSpec

LOG = logging.getLogger(__name__)

# The first that shows a server's flavor as it was, with its extra specs: Nova 16.0.0 (Pike).
_FLAVOR = "2.47"
# The first that shows the image properties that a server was built with: Nova 31.0.0 (2025.1).
_IMAGE_PROPERTIES = "2.98"
_NOT_FOUND = 404
# Beside the image's properties, Cinder keeps these fields of the image.
_FIELDS = frozenset(
    (
        *("image_id", "image_name", "checksum", "container_format", "disk_format", "min_disk", "min_ram", "size"),
        "signature_verified",
    )
)


def request_of_server(connection: Any, server: str) -> RequestSpec:
    """Return what a server asks for: its flavor as it was, and its image or the image metadata of its root volume.

    What Nova's API does not tell is said in a warning: the resources of ports, of device profiles, hints, destinations.

    :param connection: an ``openstack.connection.Connection``
    :param server: its ID
    :raises DocumentError: this is no ID, or there is no such server
    :raises CloudError: a service does not answer, or refuses
    """
    if not is_uuid(server):
        raise DocumentError("--server", f"{quote(server)} is no ID. 'openstack server list' shows the IDs.")
    nova = Service(connection, "compute")
    try:
        shown_server = nova.get(f"/servers/{server}", _microversion(connection)).get("server")
    except CloudError as error:
        if error.status != _NOT_FOUND:
            raise
        problem = f"there is no server {server} in this cloud, or the user may not see it."
        raise DocumentError("--server", problem) from error
    if not isinstance(shown_server, dict):
        raise unexpected("Nova, a server", shown_server)
    LOG.warning(
        "Of the server %s, Nova's API tells the flavor and the image. What its ports, device profiles, hints or a "
        "chosen host ask for is not part of the request; the request spec in Nova's database has it.",
        server,
    )
    flavor = flavor_of(shown_server.get("flavor"))
    reference = shown_server.get("image")
    if not reference:
        return RequestSpec(flavor, _image_of_volume(connection, shown_server), is_bfv=True)
    return RequestSpec(flavor, _image(connection, reference))


def _microversion(connection: Any) -> str:
    """Return the newest microversion that is of use here."""
    try:
        newest = utils.maximum_supported_microversion(connection.compute, _IMAGE_PROPERTIES)
    except Exception:  # noqa: BLE001 - whatever it is, the request that follows says it better
        newest = None
    return newest or _FLAVOR


def _image(connection: Any, reference: Any) -> Image:
    """Return a server's image: with what it says now, and before that with what the server was built with."""
    if not isinstance(reference, dict) or not is_uuid(str(reference.get("id"))):
        raise unexpected("Nova, the image of a server", reference)
    built_with = reference.get("properties") or {}
    try:
        image = image_of(Service(connection, "image").get(f"/images/{reference['id']}"))
    except CloudError as error:
        if error.status != _NOT_FOUND:
            raise
        LOG.warning(
            "The image %s is gone from Glance: its format and its trait:... properties are not known.", reference["id"]
        )
        return Image(dict(built_with), id=reference["id"])
    image.properties = {**image.properties, **built_with}
    return image


def _image_of_volume(connection: Any, server: Mapping[str, Any]) -> Image | None:
    """Return what Cinder knows of the image that the root volume was made from; None if that is nothing."""
    attached = server.get("os-extended-volumes:volumes_attached") or ()
    root = server.get("OS-EXT-SRV-ATTR:root_device_name")
    cinder = Service(connection, "block_storage")
    for each in attached:
        try:
            volume = cinder.get(f"/volumes/{each['id']}")["volume"]
            devices = [attachment.get("device") for attachment in volume["attachments"]]
            is_root = root in devices if root and any(devices) else volume["bootable"] in ("true", True)
            metadata = dict(volume.get("volume_image_metadata") or {})
        except (CloudError, KeyError, TypeError, AttributeError, ValueError) as error:
            LOG.warning("What the server's root volume was made from is not known: %s", error)
            return None
        if is_root:
            properties = {name: value for name, value in metadata.items() if name not in _FIELDS}
            return Image(properties, metadata.get("disk_format"), name=metadata.get("image_name"))
    LOG.warning("The server boots from a volume, and Nova does not say which: what its image asks for is not known.")
    return None
