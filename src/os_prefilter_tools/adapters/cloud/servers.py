"""The servers of a live cloud and the requests they were scheduled by, as far as the services' APIs show them."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from openstack import utils

from os_prefilter.adapters.cloud_service import CloudError, CloudService, unexpected
from os_prefilter.common.errors import DocumentError
from os_prefilter.common.logs import get_logger
from os_prefilter.common.quoting import quote
from os_prefilter.common.threads import start_thread
from os_prefilter.common.uuids import is_hyphenated_uuid
from os_prefilter.request.spec import Image, RequestSpec
from os_prefilter.request.view import UNKNOWN_MACHINE_TYPE
from os_prefilter_tools.adapters.cloud.resources import flavor_of, image_of
from os_prefilter_tools.fleet.server import Server

LOG = get_logger(__name__)

_T = TypeVar("_T")

# The first that shows a server's flavor as it was, with its extra specs: Nova 16.0.0 (Pike).
_FLAVOR = "2.47"
# The first that shows the image properties that a server was built with: Nova 31.0.0 (2025.1).
_IMAGE_PROPERTIES = "2.98"
_LISTING = "/servers/detail?all_tenants=1&limit=1000"
_HOST = "OS-EXT-SRV-ATTR:hypervisor_hostname"
_ZONE = "pinned_availability_zone"
_VOLUMES = "/volumes/detail?all_tenants=1&limit=1000"
_VOLUME = ("attachments", "bootable", "volume_image_metadata")
_THREADS = 8
# Servers whose images are read before the first of them is judged.
_BATCH = 100
_NOT_FOUND = 404
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
    if not is_hyphenated_uuid(server):
        raise DocumentError("--server", f"{quote(server)} is no ID. 'openstack server list' shows the IDs.")
    found = CloudService(connection, "compute").find(f"/servers/{server}", _microversion(connection))
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
        volumes = _Volumes(connection, lists=False)
        volumes.read(_attached(shown))
        image = None
        try:
            image = _image_of_volume(shown, volumes)
        except CloudError as error:
            LOG.warning("The image of the server's root volume is not known: %s", error)
        return RequestSpec(flavor, image, is_bfv=True)
    return RequestSpec(flavor, _image(connection, shown["image"]))


def servers(connection: Any, broken: Callable[[str], None]) -> Iterator[Server]:
    """Yield each server of all projects, each page when it is needed, with its image or that of its root volume.

    A server that cannot be read is skipped, and ``broken`` gets a sentence about it. Where Glance or Cinder does not
    show its image, ``Server.unknown`` has the reason.

    :param connection: an ``openstack.connection.Connection`` of an administrator
    :raises CloudError: a service does not answer, or refuses: by default only administrators may list all servers
    """
    images, volumes = _Read(connection, "image", "/images"), _Volumes(connection)
    rows = CloudService(connection, "compute").rows(_LISTING, "servers", _microversion(connection))
    while batch := list(islice(rows, _BATCH)):
        found = []
        for row in batch:
            try:
                found.append((_server(row), row))
            except CloudError as error:
                broken(str(error))
        images.read(_reference(row["image"])[0] for _, row in found if row.get("image"))
        volumes.read(each for _, row in found if not row.get("image") for each in _attached(row))
        for server, row in found:
            _add_image(server, row, images, volumes)
            yield server


def _server(row: Any) -> Server:
    """Return the server in Nova's JSON, without its image.

    :raises CloudError: it is none, or shows too little
    """
    if not isinstance(row, dict) or not is_hyphenated_uuid(str(row.get("id"))):
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


def _add_image(server: Server, row: Mapping[str, Any], images: "_Read", volumes: "_Volumes") -> None:
    """Add the image to the request of a server, and what is known of its machine type."""
    reference = row.get("image")
    if not reference:
        server.request.is_bfv = True
        try:
            server.request.image = _image_of_volume(row, volumes)
        except CloudError as error:
            server.unknown = f"the image of its root volume is not known: {error}"
            server.not_judged = (*server.not_judged, "the image of a root volume that Cinder does not show")
        return
    image_id, built_with = _reference(reference)
    image = Image(id=image_id)
    try:
        image = image_of(images[image_id])
    except CloudError as error:
        is_gone = error.status == _NOT_FOUND
        if not is_gone or "properties" not in reference:
            server.unknown = f"its image is not known: {error}"
        what = "is gone from Glance" if is_gone else "Glance does not show"
        server.not_judged = (*server.not_judged, f"an image that {what}: its format and its trait:...")
    server.request.image = Image({**image.properties, **built_with}, image.disk_format, image.id, image.name)
    # With the properties that it was built with, Nova shows the machine type that it keeps.
    server.machine_type = None if "properties" in reference else UNKNOWN_MACHINE_TYPE


class _Read:
    """What a service has, by ID, each read once and at most eight at a time.

    After a request without a response none is sent any more: each would wait as long.
    """

    def __init__(self, connection: Any, kind: str, path: str) -> None:
        self._service = CloudService(connection, kind)
        self._path = path
        self._found: dict[str, Any] = {}
        self._silent: CloudError | None = None

    def __getitem__(self, identity: str) -> Any:
        """Return what was read.

        :raises CloudError: the service did not answer, refused, or does not have it
        """
        found = self._found.get(identity, self._silent)
        if isinstance(found, CloudError):
            raise found
        return found

    def read(self, identities: Iterable[str]) -> None:
        """Read what was not read yet; errors are raised where it is looked at."""
        waiting = deque(each for each in dict.fromkeys(identities) if each not in self._found)

        def send() -> None:
            while not self._silent:
                try:
                    identity = waiting.popleft()
                except IndexError:
                    return
                self._found[identity] = self._outcome(partial(self._get, identity))

        try:
            # The first request alone: the SDK finds the service with it.
            if waiting and not self._found:
                identity = waiting.popleft()
                self._found[identity] = self._outcome(partial(self._get, identity))
            for each in [start_thread(send, f"requests {number}") for number in range(min(_THREADS, len(waiting)))]:
                each.result()
        finally:
            # After an interruption.
            waiting.clear()

    def _outcome(self, call: Callable[[], _T]) -> _T | CloudError:
        """Return the result of a call, or its error."""
        try:
            return call()
        except CloudError as error:
            if not error.status:
                self._silent = error
            return error

    def _get(self, identity: str) -> Any:
        return self._service.get(f"{self._path}/{identity}")


class _Volumes(_Read):
    """The volumes of a Cinder: those that it lists, of all projects for an administrator, and others by ID.

    :param lists: whether to list them before one is read by ID
    """

    def __init__(self, connection: Any, *, lists: bool = True) -> None:
        super().__init__(connection, "block_storage", "/volumes")
        self._lists = lists

    def read(self, identities: Iterable[str]) -> None:
        wanted = list(identities)
        if wanted and self._lists:
            self._lists = False
            self._outcome(self._list)
        super().read(wanted)

    def _list(self) -> None:
        for row in self._service.rows(_VOLUMES, "volumes"):
            if isinstance(row, dict) and isinstance(row.get("id"), str):
                self._found[row["id"]] = {name: row.get(name) for name in _VOLUME}

    def _get(self, identity: str) -> object:
        return super()._get(identity).get("volume")


def _microversion(connection: Any) -> str:
    try:
        newest = utils.maximum_supported_microversion(connection.compute, _IMAGE_PROPERTIES)
    except Exception:  # noqa: BLE001 - the request that follows fails with a better message
        newest = None
    return newest or _FLAVOR


def _image(connection: Any, reference: Any) -> Image:
    """Return a server's image; the properties that the server was built with override those of today."""
    image_id, built_with = _reference(reference)
    row = CloudService(connection, "image").find(f"/images/{image_id}")
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
    if not isinstance(reference, dict) or not is_hyphenated_uuid(str(reference.get("id"))):
        raise unexpected("Nova, the image of a server", reference)
    properties = reference.get("properties") or {}
    if not isinstance(properties, dict):
        raise unexpected("Nova, the image properties of a server", properties)
    return str(reference["id"]), properties


def _attached(server: Mapping[str, Any]) -> list[str]:
    """Return the IDs of a server's volumes; those of another answer than Nova's are left out."""
    attached = server.get("os-extended-volumes:volumes_attached")
    rows = attached if isinstance(attached, list) else []
    return [each["id"] for each in rows if isinstance(each, dict) and is_hyphenated_uuid(str(each.get("id")))]


def _image_of_volume(server: Mapping[str, Any], volumes: _Read) -> Image:
    """Return what Cinder knows of the image that the root volume was made from.

    :raises CloudError: nothing
    """
    root = server.get("OS-EXT-SRV-ATTR:root_device_name")
    for identity in _attached(server):
        volume = volumes[identity]
        try:
            devices = [attachment.get("device") for attachment in volume["attachments"]]
            is_root = root in devices if root and any(devices) else volume["bootable"] in ("true", True)
            metadata = dict(volume.get("volume_image_metadata") or {})
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise unexpected("Cinder, a volume", volume) from error
        if is_root:
            properties = {name: value for name, value in metadata.items() if name not in _VOLUME_FIELDS}
            return Image(properties, metadata.get("disk_format"), name=metadata.get("image_name"))
    reason = "the server boots from a volume that is not named"
    raise CloudError("Nova", reason, "The policy os_compute_api:os-extended-volumes must allow it.")
