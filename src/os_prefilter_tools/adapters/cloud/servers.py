# SPDX-License-Identifier: Apache-2.0

"""Servers of a cloud, and the requests they were scheduled by.

They are as complete as the services' APIs show them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Generic, TypeVar

from openstack import utils

from os_prefilter.adapters.cloud_service import CloudError
from os_prefilter.adapters.from_json import image_of_volume
from os_prefilter.common.errors import DocumentError
from os_prefilter.common.logs import get_logger
from os_prefilter.common.placement_values import is_hyphenated_uuid
from os_prefilter.common.quoting import quote
from os_prefilter.request.spec import Image, RequestSpec
from os_prefilter.request.view import UNKNOWN_MACHINE_TYPE
from os_prefilter_tools.adapters.cloud.resources import (
    flavor_of,
    image_of,
    images,
)
from os_prefilter_tools.adapters.cloud.service import CloudService, unexpected
from os_prefilter_tools.fleet.server import (
    Server,
    ServerGroup,
    find_why_no_place,
    needs_of_ports,
)

LOG = get_logger(__name__)

_T = TypeVar("_T")

# The first that shows a server's flavor as it was, with its extra specs: Nova
# 16.0.0 (Pike).
_FLAVOR = "2.47"
# The first that shows scheduler hints: Nova 32.0.0 (2025.2). 2.98 shows the
# image properties that it was built with, 2.64 the policy of a server group
# with its rules.
_HINTS = "2.100"
_LISTING = "/servers/detail?all_tenants=1&limit=1000"
_HOST = "OS-EXT-SRV-ATTR:hypervisor_hostname"
_ZONE = "pinned_availability_zone"
_VOLUMES = "/volumes/detail?all_tenants=1&limit=1000"
_VOLUME = ("attachments", "bootable", "volume_image_metadata")
_GROUPS = "/os-server-groups?all_projects=true&limit=1000"
# Without the other fields, a port takes a tenth of the space.
_PORTS = (
    "/ports?fields=device_id&fields=binding:vnic_type"
    "&fields=resource_request&fields=id&limit=1000"
)
_NOT_FOUND = 404


def request_of_server(connection: Any, identity: str) -> RequestSpec:
    """Return the request for a server.

    With its flavor as it was, and its image or the image metadata of its root
    volume.

    A warning names what Nova's API does not show: resources of ports and
    device profiles, hints, destinations.

    :param connection: an ``openstack.connection.Connection``
    :raises DocumentError: this is no ID, or there is no such server
    :raises CloudError: a service does not respond, or refuses
    """
    if not is_hyphenated_uuid(identity):
        raise DocumentError(
            "--server",
            f"{quote(identity)} is no ID. 'openstack server list' shows the"
            " IDs.",
        )
    found = CloudService(connection, "compute").find(
        f"/servers/{identity}", _microversion(connection)
    )
    if found is None:
        raise DocumentError(
            "--server",
            f"there is no server {identity} in this cloud, or the user may not"
            " see it.",
        )
    row: Any = found.get("server")
    LOG.warning(
        "What ports, device profiles%s or a chosen host require is not part of"
        " the request for the server %s: Nova's API does not show it, and the"
        " request spec in Nova's database has it.",
        "".join(
            f", {what}"
            for what, name in (("hints", "scheduler_hints"), ("zone", _ZONE))
            if name not in row
        ),
        identity,
    )
    server = _server(row)
    # Of an older Nova, the group alone.
    hints = row.get("scheduler_hints") or {"group": row.get("server_groups")}
    server.request.scheduler_hints = _hints_in(hints)
    server.request.project_id, server.request.availability_zone = (
        row.get("tenant_id"),
        row.get(_ZONE),
    )
    try:
        _add_image(
            server, row, _images(connection, ()), _volumes(connection, ())
        )
    except CloudError as error:
        # A service that fails may respond the next time; an image that is gone
        # stays so.
        if error.status != _NOT_FOUND and not server.request.is_bfv:
            raise
        server.unknown = f"the image is not known: {error}"
    for reason in filter(None, (server.unknown, *server.not_judged)):
        LOG.warning("Not part of the request: %s", reason)
    return server.request


def servers(
    connection: Any, broken: Callable[[str], None]
) -> Iterator[Server]:
    """Yield each server of all projects with the image it boots from.

    Each page is read when it is needed.

    A server that cannot be read is skipped, and ``broken`` gets a sentence
    about it. Where Glance or Cinder does not show its image,
    ``Server.unknown`` has the reason.

    :param connection: an ``openstack.connection.Connection`` of an
        administrator
    :raises CloudError: a service does not respond, or refuses: by default only
        administrators may list all servers
    """
    found_images = _images(
        connection, images(connection, lambda _problem: None)
    )
    found_volumes = _volumes(
        connection,
        CloudService(connection, "block_storage").rows(_VOLUMES, "volumes"),
    )
    groups = _Groups(connection)
    needs, unknown = _needs_of_servers(connection)
    for row in CloudService(connection, "compute").rows(
        _LISTING, "servers", _microversion(connection)
    ):
        try:
            server = _server(row)
            _add_place(server, row)
            groups.add_to(server, row)
        except CloudError as error:
            broken(str(error))
            continue
        of_ports = dict.fromkeys(needs.get(server.uuid, ()))
        server.not_judged = (*server.not_judged, *of_ports)
        server.unknown = server.unknown or unknown
        try:
            _add_image(server, row, found_images, found_volumes)
        except CloudError as error:
            what = "its image"
            if server.request.is_bfv:
                what = "the image of its root volume"
            server.unknown = f"{what} is not known: {error}"
        yield server


class _Groups:
    """The server groups of all projects, as far as Nova shows them."""

    def __init__(self, connection: Any) -> None:
        self._of: dict[str, ServerGroup | None] = {}
        """UUID of a server -> its group; None for one that excludes no host.
        """
        self._unknown = ""
        try:
            for row in _pages(connection):
                self._add(row)
        except CloudError as error:
            self._unknown = f"its server group is not known: {error}"
        session = connection.session
        try:
            self._is_complete = (
                "admin" in session.auth.get_access(session).role_names
            )
        except Exception:  # noqa: BLE001 - a plugin without a token of Keystone: it is not known
            self._is_complete = False

    def _add(self, row: Any) -> None:
        try:
            # Before microversion 2.64, there is a list of one policy, and no
            # rules.
            policies = [row["policy"]] if "policy" in row else row["policies"]
            policy = next(iter(policies), None)
            members = frozenset(row["members"])
            uuid = str(row["id"])
            group = ServerGroup.of(uuid, policy, row.get("rules"), members)
            self._of.update(dict.fromkeys(members, group))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise unexpected("Nova, a server group", row) from error

    def add_to(self, server: Server, row: Mapping[str, Any]) -> None:
        """Add its group to a server."""
        if server.uuid in self._of:
            server.group = self._of[server.uuid]
            return
        hints = row.get("scheduler_hints")
        if isinstance(hints, dict) and not hints.get("group"):
            return
        if self._unknown:
            server.unknown = self._unknown
        elif not self._is_complete:
            # Nova leaves out those of other projects, and does not say so.
            server.unknown = (
                "its server group is not known: Nova shows those of all"
                " projects to administrators alone"
            )


def _pages(connection: Any) -> Iterator[Any]:
    """Yield the server groups.

    Their listing has no links to its next page, and no marker.
    """
    compute = CloudService(connection, "compute")
    microversion = _microversion(connection)
    offset = 0
    while True:
        page = compute.get(f"{_GROUPS}&offset={offset}", microversion)
        rows = page.get("server_groups")
        if not isinstance(rows, list) or not all(
            isinstance(row, dict) for row in rows
        ):
            raise unexpected("Nova, GET /os-server-groups", rows)
        yield from rows
        if not rows:
            return
        offset += len(rows)


def _needs_of_servers(connection: Any) -> tuple[dict[str, list[str]], str]:
    """Return what ports of servers require of hosts, as Neutron shows them.

    :return: UUID of a server -> what its ports require, apart from networks;
        and why that is not known, or empty
    """
    found: dict[str, list[str]] = {}
    row: Any = None
    try:
        for row in CloudService(connection, "network").rows(_PORTS, "ports"):
            vnic_type = row.get("binding:vnic_type") or "normal"
            has_resources = bool(row.get("resource_request"))
            needs = needs_of_ports([vnic_type], has_resources=has_resources)
            if needs:
                found.setdefault(row["device_id"], []).extend(needs)
    except (CloudError, KeyError, TypeError, AttributeError) as error:
        if not isinstance(error, CloudError):
            error = unexpected("Neutron, a port", row)
        return found, f"its ports are not known: {error}"
    return found, ""


class _Resources(Generic[_T]):
    """Resources of a service by ID, listed when the first is needed.

    One that the list lacks is read alone.
    """

    def __init__(
        self, listing: Iterable[tuple[str, _T]], read: Callable[[str], _T]
    ) -> None:
        self._listing = iter(listing)
        self._read = read
        self._found: dict[str, _T | CloudError] = {}
        self._silent: CloudError | None = None

    def __getitem__(self, identity: str) -> _T:
        """Return what the service has.

        :raises CloudError: the service did not respond, refused, or does not
            have it
        """
        try:
            # Nothing is left of the listing after the first time, nor after an
            # error.
            self._found.update(self._listing)
        except CloudError as error:
            # Without a response, each other request would wait as long.
            self._silent = None if error.status else error
        if identity not in self._found:
            try:
                self._found[identity] = self._silent or self._read(identity)
            except CloudError as error:
                self._found[identity] = error
        found = self._found[identity]
        if isinstance(found, CloudError):
            raise found
        return found


def _images(connection: Any, listed: Iterable[Image]) -> _Resources[Image]:
    glance = CloudService(connection, "image")
    return _Resources(
        ((str(each.id), each) for each in listed),
        lambda image: image_of(glance.get(f"/images/{image}")),
    )


def _volumes(connection: Any, listed: Iterable[Any]) -> _Resources[Any]:
    cinder = CloudService(connection, "block_storage")
    rows = (
        row
        for row in listed
        if isinstance(row, dict) and isinstance(row.get("id"), str)
    )
    return _Resources(
        (
            (row["id"], {name: row.get(name) for name in _VOLUME})
            for row in rows
        ),
        lambda volume: cinder.get(f"/volumes/{volume}").get("volume"),
    )


def _microversion(connection: Any) -> str:
    try:
        newest = utils.maximum_supported_microversion(
            connection.compute, _HINTS
        )
    except Exception:  # noqa: BLE001 - the request that follows fails with a better message
        newest = None
    return newest or _FLAVOR


def _server(row: Any) -> Server:
    """Return the server in Nova's JSON, with Nova's part of its image.

    :raises CloudError: it is none, or shows too little
    """
    if not isinstance(row, dict) or not is_hyphenated_uuid(str(row.get("id"))):
        raise unexpected("Nova, a server", row)
    if "flavor" not in row:
        raise CloudError(
            "Nova",
            f"only the ID of the server {row['id']} is shown",
            "Its cell does not respond; try again.",
        )
    request = RequestSpec(
        flavor_of(row["flavor"]), is_bfv=not row.get("image")
    )
    server = Server(request, uuid=row["id"])
    if request.is_bfv:
        return server
    reference = row["image"]
    if not isinstance(reference, dict) or not is_hyphenated_uuid(
        str(reference.get("id"))
    ):
        raise unexpected("Nova, the image of a server", reference)
    properties = reference.get("properties") or {}
    if not isinstance(properties, dict):
        raise unexpected("Nova, the image properties of a server", properties)
    request.image = Image(properties, id=reference["id"])
    # With the properties that it was built with, Nova shows the machine type
    # that it keeps.
    server.machine_type = (
        None if "properties" in reference else UNKNOWN_MACHINE_TYPE
    )
    return server


def _hints_in(hints: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: [hint] if isinstance(hint, str) else hint
        for name, hint in hints.items()
        if hint
    }


def _add_place(server: Server, row: Mapping[str, Any]) -> None:
    """Add the host, the zone, the name and the project of a server.

    :raises CloudError: Nova does not show them
    """
    if _HOST not in row:
        reason = f"the host of the server {server.uuid} is not shown"
        raise CloudError(
            "Nova",
            reason,
            "The policy os_compute_api:os-extended-server-attributes must"
            " allow it.",
        )
    texts = {
        name: row.get(name) for name in (_HOST, _ZONE, "name", "tenant_id")
    }
    for name, value in texts.items():
        if not isinstance(value, (str, type(None))):
            raise unexpected(
                f"Nova, {name} of the server {server.uuid}", value
            )
    server.host, server.name, server.project = (
        texts[name] or "" for name in (_HOST, "name", "tenant_id")
    )
    server.request.project_id, server.request.availability_zone = (
        texts["tenant_id"],
        texts[_ZONE],
    )
    server.no_place = find_why_no_place(
        str(row.get("status")), server.host, row.get("OS-SRV-USG:launched_at")
    )
    server.request.scheduler_hints = _hints_in(
        row.get("scheduler_hints") or {}
    )
    if _ZONE not in row:
        # Nova before 29.0.0 (2024.1).
        server.not_judged = (
            (
                "an availability zone, which Nova's API before microversion"
                " 2.96 hides"
            ),
        )


def _add_image(
    server: Server,
    row: Mapping[str, Any],
    found_images: _Resources[Image],
    found_volumes: _Resources[Any],
) -> None:
    """Add what Glance or Cinder has of the image.

    The properties that a server was built with override those of today.

    :raises CloudError: neither they nor Nova show its properties
    """
    known = server.request.image
    if known is None:
        server.request.image = _image_of_volume(row, found_volumes)
        return
    try:
        image = found_images[str(known.id)]
    except CloudError as error:
        if error.status != _NOT_FOUND or "properties" not in row["image"]:
            raise
        server.not_judged = (
            *server.not_judged,
            "an image that is gone from Glance: its format and its trait:...",
        )
        return
    server.request.image = Image(
        {**image.properties, **known.properties},
        image.disk_format,
        image.id,
        image.name,
    )


def _image_of_volume(
    server: Mapping[str, Any], volumes: _Resources[Any]
) -> Image:
    """Return the image that the root volume was made from, by Cinder.

    :raises CloudError: nothing
    """
    root = server.get("OS-EXT-SRV-ATTR:root_device_name")
    attached = server.get("os-extended-volumes:volumes_attached")
    for each in attached if isinstance(attached, list) else ():
        if not isinstance(each, dict) or not is_hyphenated_uuid(
            str(each.get("id"))
        ):
            continue
        volume = volumes[each["id"]]
        try:
            devices = [
                attachment.get("device")
                for attachment in volume["attachments"]
            ]
            is_root = (
                root in devices
                if root and any(devices)
                else volume["bootable"] in ("true", True)
            )
            metadata = volume.get("volume_image_metadata") or {}
            # The format is there in some releases of Nova.
            image = replace(
                image_of_volume(volume),
                disk_format=metadata.get("disk_format"),
                name=metadata.get("image_name"),
            )
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise unexpected("Cinder, a volume", volume) from error
        if is_root:
            return image
    reason = "the server boots from a volume that is not named"
    raise CloudError(
        "Nova",
        reason,
        "The policy os_compute_api:os-extended-volumes must allow it.",
    )
