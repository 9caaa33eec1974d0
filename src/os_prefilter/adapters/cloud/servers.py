"""The servers of a live cloud and the requests they were scheduled by, as far as the services' APIs show them."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from openstack import utils

from os_prefilter.adapters.cloud.resources import flavor_of, image_of
from os_prefilter.adapters.cloud.service import CloudError, Service, unexpected
from os_prefilter.common.errors import DocumentError
from os_prefilter.common.logs import get_logger
from os_prefilter.common.quoting import quote
from os_prefilter.hosts.desired_traits import is_uuid
from os_prefilter.request.server import Server
from os_prefilter.request.spec import Image, RequestSpec
from os_prefilter.request.view import UNKNOWN_MACHINE_TYPE

LOG = get_logger(__name__)

# The first that shows a server's flavor as it was, with its extra specs: Nova 16.0.0 (Pike).
_FLAVOR = "2.47"
# The first that shows the image properties that a server was built with: Nova 31.0.0 (2025.1).
_IMAGE_PROPERTIES = "2.98"
_LISTING = "/servers/detail?all_tenants=1&limit=1000"
_HOST = "OS-EXT-SRV-ATTR:hypervisor_hostname"
_ZONE = "pinned_availability_zone"
_MACHINE_TYPE = "hw_machine_type"
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
        return RequestSpec(flavor, _image_of_volume(connection, shown, LOG.warning), is_bfv=True)
    return RequestSpec(flavor, _image(connection, shown["image"]))


def servers(connection: Any, broken: Callable[[str], None]) -> Iterator[Server]:
    """Yield each server of all projects, each page when it is needed, with a request for each image or root volume.

    A server that cannot be read is skipped, and ``broken`` gets a sentence about it.

    :param connection: an ``openstack.connection.Connection`` of an administrator
    :raises CloudError: a service does not answer, or refuses: by default only administrators may list all servers
    """
    images: dict[str, Image | None] = {}
    for row in Service(connection, "compute").rows(_LISTING, "servers", _microversion(connection)):
        try:
            server = _server(row)
        except CloudError as error:
            broken(str(error))
        else:
            _add_image(connection, server, row, images)
            yield server


def _server(row: Any) -> Server:
    """Return the server in Nova's JSON, without its image.

    :raises CloudError: it is none, or shows too little
    """
    if not isinstance(row, dict) or not is_uuid(str(row.get("id"))):
        raise unexpected("Nova, a server", row)
    if "flavor" not in row:
        raise CloudError(
            "Nova", f"only the ID of the server {row['id']} is shown", "Its cell does not answer; try again."
        )
    if row.get("image"):
        _reference(row["image"])
    if _HOST not in row:
        reason = f"the host of the server {row['id']} is not shown"
        raise CloudError("Nova", reason, "The policy os_compute_api:os-extended-server-attributes must allow it.")
    texts = {name: row.get(name) for name in (_HOST, _ZONE, "name", "tenant_id")}
    for name, value in texts.items():
        if not isinstance(value, str | None):
            raise unexpected(f"Nova, {name} of the server {row['id']}", value)
    # Nova before 29.0.0 (2024.1).
    not_judged = () if _ZONE in row else ("an availability zone, which Nova's API before microversion 2.96 hides",)
    return Server(
        request=RequestSpec(
            flavor_of(row.get("flavor")), project_id=texts["tenant_id"], availability_zone=texts[_ZONE]
        ),
        host=texts[_HOST] or "",
        uuid=row["id"],
        name=texts["name"] or "",
        project=texts["tenant_id"] or "",
        not_judged=not_judged,
    )


def _add_image(connection: Any, server: Server, row: Mapping[str, Any], images: dict[str, Image | None]) -> None:
    """Add the image to the request of a server, and what is known of its machine type."""
    reference = row.get("image")
    if not reference:
        server.request.is_bfv = True
        server.request.image = _image_of_volume(connection, row, lambda *_problem: None)
        if server.request.image is None:
            server.not_judged = (*server.not_judged, "the image of a root volume that Cinder does not show")
        return
    image_id, built_with = _reference(reference)
    if image_id not in images:
        found = Service(connection, "image").find(f"/images/{image_id}")
        images[image_id] = image_of(found) if found is not None else None
    image = images[image_id] or Image(id=image_id)
    server.request.image = Image({**image.properties, **built_with}, image.disk_format, image.id, image.name)
    if images[image_id] is None:
        server.not_judged = (*server.not_judged, "an image that is gone from Glance: its format and its trait:...")
    # With the properties that it was built with, Nova shows the machine type that it keeps.
    server.machine_type = None if "properties" in reference else UNKNOWN_MACHINE_TYPE


def _microversion(connection: Any) -> str:
    try:
        newest = utils.maximum_supported_microversion(connection.compute, _IMAGE_PROPERTIES)
    except Exception:  # noqa: BLE001 - the request that follows fails with a better message
        newest = None
    return newest or _FLAVOR


def _image(connection: Any, reference: Any) -> Image:
    """Return a server's image; the properties that the server was built with override those of today."""
    image_id, built_with = _reference(reference)
    row = Service(connection, "image").find(f"/images/{image_id}")
    if row is None:
        LOG.warning(
            "The image %s is gone from Glance: its format and its trait:... properties are not known.", image_id
        )
        return Image(dict(built_with), id=image_id)
    image = image_of(row)
    image.properties = {**image.properties, **built_with}
    return image


def _reference(reference: Any) -> tuple[str, Mapping[str, Any]]:
    """Return the ID of a server's image, and the properties that the server was built with."""
    if not isinstance(reference, dict) or not is_uuid(str(reference.get("id"))):
        raise unexpected("Nova, the image of a server", reference)
    properties = reference.get("properties") or {}
    if not isinstance(properties, dict):
        raise unexpected("Nova, the image properties of a server", properties)
    return str(reference["id"]), properties


def _image_of_volume(connection: Any, server: Mapping[str, Any], warn: Callable[..., object]) -> Image | None:
    """Return what Cinder knows of the image that the root volume was made from; None, after a warning, if nothing."""
    root = server.get("OS-EXT-SRV-ATTR:root_device_name")
    cinder = Service(connection, "block_storage")
    attached = server.get("os-extended-volumes:volumes_attached")
    for each in attached if isinstance(attached, list) else ():
        try:
            volume = cinder.get(f"/volumes/{each['id']}")["volume"]
            devices = [attachment.get("device") for attachment in volume["attachments"]]
            is_root = root in devices if root and any(devices) else volume["bootable"] in ("true", True)
            metadata = dict(volume.get("volume_image_metadata") or {})
        except (CloudError, KeyError, TypeError, AttributeError, ValueError) as error:
            warn("The image of the server's root volume is not known: %s", error)
            return None
        if is_root:
            properties = {name: value for name, value in metadata.items() if name not in _VOLUME_FIELDS}
            return Image(properties, metadata.get("disk_format"), name=metadata.get("image_name"))
    warn("The server boots from a volume that Nova does not name: the requirements of its image are not known.")
    return None
