"""Images of a live cloud, exactly as Glance has them."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any
from urllib.parse import quote as quote_url
from urllib.parse import urlencode

from oslo_log import log as logging

from os_prefilter.adapters.cloud.names import is_uuid, the_one
from os_prefilter.adapters.cloud.service import CloudError, Service, unexpected
from os_prefilter.common.quoting import quote
from os_prefilter.request.spec import Image

LOG = logging.getLogger(__name__)

# What Glance says of each image itself; all else is a property (its schema "image", without additional properties).
_FIELDS = frozenset(
    (
        *("id", "name", "status", "visibility", "protected", "os_hidden", "owner", "tags", "stores", "locations"),
        *("checksum", "os_hash_algo", "os_hash_value", "size", "virtual_size", "container_format", "disk_format"),
        *("created_at", "updated_at", "min_disk", "min_ram", "self", "file", "schema", "direct_url"),
    )
)
# Hidden ones are in no other listing, and can be booted.
_LISTINGS = ("visibility=all&limit=1000", "visibility=all&os_hidden=true&limit=1000")


def image_named(connection: Any, name_or_id: str) -> Image:
    """Return the image of an ID, or else the one of a name.

    :param connection: an ``openstack.connection.Connection``
    :raises DocumentError: there is none, or there are several of that name; the message has their IDs, or close names
    :raises CloudError: Glance does not answer, or refuses
    """
    glance = Service(connection, "image")
    if is_uuid(name_or_id):
        try:
            return image_of(glance.get(f"/images/{quote_url(name_or_id, safe='')}"))
        except CloudError as error:
            if error.status != 404:  # noqa: PLR2004
                raise
    return image_of(the_one("image", name_or_id, _of_name(glance, name_or_id), _rows(glance)))


def images(connection: Any, on_broken: Callable[[str], None] | None = None) -> Iterator[Image]:
    """Yield each image that the user may see, of every visibility, hidden ones too; pages are asked for as needed.

    An image that cannot be read ends nothing: ``on_broken`` gets a sentence about it, by default a warning in the log.

    :raises CloudError: Glance does not answer, or refuses
    """
    tell = on_broken or partial(LOG.warning, "%s")
    for row in _rows(Service(connection, "image")):
        try:
            yield image_of(row)
        except CloudError as error:
            tell(str(error))


def image_of(row: object) -> Image:
    """Return the image in Glance's JSON."""
    if not isinstance(row, dict) or not isinstance(row.get("id"), str):
        raise unexpected("Glance, an image", row)
    name, disk_format = row.get("name"), row.get("disk_format")
    for field, value in (("name", name), ("disk_format", disk_format)):
        if not isinstance(value, str | None):
            raise unexpected(f"Glance, the {field} of the image {quote(row['id'])}", value)
    return Image(properties_of(row), disk_format, row["id"], name)


def properties_of(row: Mapping[str, Any]) -> dict[str, object]:
    """Return the properties in what Glance says of an image: whatever is not a field of its own."""
    return {name: value for name, value in row.items() if name not in _FIELDS}


def _of_name(glance: Service, name: str) -> Iterator[Any]:
    if name.startswith("in:"):
        # Glance takes it for a list of names, and has no way to quote every one that begins so.
        yield from _rows(glance)
        return
    for listing in _LISTINGS:
        yield from glance.rows(f"/images?{listing}&{urlencode({'name': name})}", "images")


def _rows(glance: Service) -> Iterator[Any]:
    for listing in _LISTINGS:
        yield from glance.rows(f"/images?{listing}", "images")
