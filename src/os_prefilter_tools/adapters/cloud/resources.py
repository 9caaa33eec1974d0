# SPDX-License-Identifier: Apache-2.0

"""Images, volumes, flavors and host aggregates of a cloud."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from itertools import islice
from typing import Any
from urllib.parse import quote as quote_url
from urllib.parse import urlencode
from uuid import UUID

from os_prefilter.adapters.cloud_service import CloudError
from os_prefilter.adapters.from_json import (
    VOLUME,
    flavor_from,
    image_from,
    kind_of,
    properties_beside_fields,
)
from os_prefilter.common.errors import DocumentError
from os_prefilter.common.placement_values import is_hyphenated_uuid
from os_prefilter.common.quoting import join_first_names, quote
from os_prefilter.request.spec import Flavor, Image
from os_prefilter_tools.adapters.cloud.service import CloudService, unexpected
from os_prefilter_tools.fleet.model import Aggregate

# The first that shows the UUIDs of aggregates, by which Placement knows them:
# Nova 15.0.0 (Ocata).
_AGGREGATE_UUIDS = "2.41"
# Of its metadata, the keys that request filters read.
_READ_METADATA = ("filter_tenant_id", "trait:")
# Hidden images are in no other listing, and can be booted.
_IMAGE_LISTINGS = (
    "/images?visibility=all&limit=1000",
    "/images?visibility=all&os_hidden=true&limit=1000",
)
# Others for Cinder: it ignores all_tenants of any but administrators. With the
# most metadata that its quota allows, such a page has 13 MB.
_VOLUME_LISTING = "/volumes/detail?all_tenants=1&bootable=true&limit=200"
_FLAVOR_LISTING = "/flavors/detail?is_public=None&limit=1000"
# The first that shows a flavor with its extra specs: Nova 18.0.0 (Rocky).
_FLAVOR_MICROVERSION = "2.61"
# The characters that Nova allows in a flavor ID, which also keep a name from
# becoming another part of the URL.
_FLAVOR_ID = re.compile(r"[A-Za-z0-9. _-]{1,255}", re.ASCII)
# Close names are looked for among so many images, and so many are shown.
_MOST_NAMES = 5_000
_MOST_SHOWN = 5


def image_named(connection: Any, name_or_id: str) -> Image:
    """Return the image with an ID, or else with a name.

    :param connection: an ``openstack.connection.Connection``
    :raises DocumentError: no image has it (the message has close names), or
        several have it (the message has their IDs)
    :raises CloudError: Glance does not respond, or refuses
    """
    glance = CloudService(connection, "image")
    if (
        is_hyphenated_uuid(name_or_id)
        and (row := glance.find(f"/images/{name_or_id}")) is not None
    ):
        return image_of(row)
    # Glance takes "in:..." for a list of names, and cannot quote every name
    # that begins so.
    query = (
        ""
        if name_or_id.startswith("in:")
        else f"&{urlencode({'name': name_or_id})}"
    )
    return image_of(
        _row_named(
            "image",
            name_or_id,
            _image_rows(glance, query),
            _image_rows(glance),
        )
    )


def images(connection: Any, broken: Callable[[str], None]) -> Iterator[Image]:
    """Yield each image that the user may see, hidden ones too.

    Images have any visibility; pages are requested as needed.

    An image that cannot be read is skipped, and ``broken`` gets a sentence
    about it.

    :raises CloudError: Glance does not respond, or refuses
    """
    for row in _image_rows(CloudService(connection, "image")):
        try:
            yield image_of(row)
        except CloudError as error:
            broken(str(error))


def bootable_volumes(
    connection: Any, broken: Callable[[str], None]
) -> Iterator[Image]:
    """Yield the image in the metadata of each bootable volume.

    For an administrator those of all projects. Each page is requested when it
    is needed; a volume that cannot be read is skipped as in :func:`images`.

    :raises CloudError: Cinder does not respond, or refuses
    """
    cinder = CloudService(connection, "block_storage")
    for row in cinder.rows(_VOLUME_LISTING, "volumes"):
        try:
            if not isinstance(row, dict) or kind_of(row) != VOLUME:
                raise unexpected("Cinder, a volume", row)
            yield image_from(row, f"Cinder, the volume {quote(row.get('id'))}")
        except (CloudError, DocumentError) as error:
            broken(str(error))


def image_of(row: object) -> Image:
    """Return the image in Glance's JSON."""
    if not isinstance(row, dict) or not isinstance(row.get("id"), str):
        raise unexpected("Glance, an image", row)
    for field in ("name", "disk_format"):
        if not isinstance(row.get(field), (str, type(None))):
            raise unexpected(
                f"Glance, the {field} of the image {quote(row['id'])}",
                row[field],
            )
    return Image(
        properties_beside_fields(row),
        row.get("disk_format"),
        row["id"],
        row.get("name"),
    )


def flavor_named(connection: Any, name_or_id: str) -> Flavor:
    """Return the flavor with an ID, or else with a name.

    :param connection: an ``openstack.connection.Connection``
    :raises DocumentError: no flavor has it; the message has close names
    :raises CloudError: Nova does not respond, refuses, or does not show the
        extra specs
    """
    nova = CloudService(connection, "compute")
    # requests would read a path of dots as a way up.
    if _FLAVOR_ID.fullmatch(name_or_id) and name_or_id.strip("."):
        found = nova.find(
            f"/flavors/{quote_url(name_or_id, safe='')}", _FLAVOR_MICROVERSION
        )
        if found is not None:
            return flavor_of(found.get("flavor"))
    rows = list(nova.rows(_FLAVOR_LISTING, "flavors", _FLAVOR_MICROVERSION))
    return flavor_of(_row_named("flavor", name_or_id, rows, rows))


def flavor_of(row: object) -> Flavor:
    """Return the flavor in Nova's JSON, of a flavor or of a server."""
    if not isinstance(row, dict):
        raise unexpected("Nova, a flavor", row)
    name = row.get("name", row.get("original_name"))
    if "extra_specs" not in row:
        # Read as none, they would make the request require too little.
        reason = f"the extra specs of the flavor {quote(name)} are not shown"
        raise CloudError(
            "Nova",
            reason,
            "The policy os_compute_api:os-flavor-extra-specs:index must"
            " allow it.",
        )
    ephemeral = row.get("OS-FLV-EXT-DATA:ephemeral", row.get("ephemeral"))
    try:
        return flavor_from(
            {**row, "name": name, "ephemeral_gb": ephemeral}, "Nova"
        )
    except DocumentError as error:
        raise unexpected(f"Nova, the flavor {quote(name)}", row) from error


def host_aggregates(connection: Any) -> tuple[Aggregate, ...]:
    """Return Nova's host aggregates with their availability zones and the
    metadata that filters read, in Nova's order.

    :raises CloudError: Nova does not respond, or refuses: by default only
        administrators may see them
    """
    compute = CloudService(connection, "compute")
    page = compute.get("/os-aggregates", _AGGREGATE_UUIDS)
    rows: Any = page.get("aggregates")
    found = []
    try:
        for row in rows:
            metadata = {
                key: str(value)
                for key, value in (row.get("metadata") or {}).items()
                if key.startswith(_READ_METADATA)
            }
            uuid = str(UUID(row["uuid"]))
            zone = str(row["availability_zone"] or "")
            found.append(Aggregate(uuid, str(row["name"]), zone, metadata))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise unexpected("Nova, the host aggregates", rows) from error
    return tuple(found)


def _image_rows(glance: CloudService, query: str = "") -> Iterator[Any]:
    for listing in _IMAGE_LISTINGS:
        yield from glance.rows(f"{listing}{query}", "images")


def _row_named(
    kind: str, name: str, found: Iterable[Any], every: Iterable[Any]
) -> Mapping[str, Any]:
    """Return the one row with a name.

    :param kind: ``image`` or ``flavor``, for messages; also the name of the
        option
    :param found: the rows to look at
    :param every: all rows, for close names; read only if ``found`` has no such
        row
    :raises DocumentError: no row has the name, or several have
    """
    rows: dict[str, Mapping[str, Any]] = {
        row["id"]: row for row in found if _name(row) == name
    }
    if len(rows) > 1:
        ids = join_first_names(list(rows), 2 * _MOST_SHOWN)
        raise DocumentError(
            f"--{kind}",
            f"{len(rows)} {kind}s have the name {quote(name)}. Give an ID:"
            f" {ids}.",
        )
    if rows:
        return next(iter(rows.values()))
    names = {_name(row) for row in islice(every, _MOST_NAMES)} - {""}
    close = ", ".join(
        map(
            quote,
            get_close_matches(name, sorted(names), n=_MOST_SHOWN, cutoff=0.5),
        )
    )
    advice = (
        f"Close names: {close}."
        if close
        else "Give a name or an ID that exists, or a file."
    )
    raise DocumentError(
        f"--{kind}",
        f"there is no {kind} {quote(name)}, neither in this cloud nor as a"
        f" file. {advice}",
    )


def _name(row: Any) -> str:
    name = (
        row.get("name")
        if isinstance(row, dict) and isinstance(row.get("id"), str)
        else ""
    )
    return name if isinstance(name, str) else ""
