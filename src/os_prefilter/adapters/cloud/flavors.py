"""Flavors of a live cloud, with their extra specs."""

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote as quote_url

from os_prefilter.adapters.cloud.names import the_one
from os_prefilter.adapters.cloud.service import CloudError, Service, unexpected
from os_prefilter.common.quoting import quote
from os_prefilter.errors import DocumentError
from os_prefilter.request.from_json import flavor_from
from os_prefilter.request.spec import Flavor

# The first that shows a flavor with its extra specs: Nova 18.0.0 (Rocky).
MICROVERSION = "2.61"
# What Nova lets be an ID, which also keeps a name from becoming another part of the URL.
_ID = re.compile(r"[A-Za-z0-9. _-]{1,255}", re.ASCII)


def flavor_named(connection: Any, name_or_id: str) -> Flavor:
    """Return the flavor of an ID, or else the one of a name.

    :param connection: an ``openstack.connection.Connection``
    :raises DocumentError: there is none; the message has close names
    :raises CloudError: Nova does not answer, or refuses, or does not show the extra specs
    """
    nova = Service(connection, "compute")
    # requests would take dots for a way up the path.
    if _ID.fullmatch(name_or_id) and name_or_id.strip("."):
        try:
            return flavor_of(nova.get(f"/flavors/{quote_url(name_or_id, safe='')}", MICROVERSION).get("flavor"))
        except CloudError as error:
            if error.status != 404:  # noqa: PLR2004
                raise
    rows = list(_rows(nova))
    return flavor_of(the_one("flavor", name_or_id, rows, rows))


def flavors(connection: Any) -> Iterator[Flavor]:
    """Yield each flavor that the user may see, for an administrator private ones too.

    :raises CloudError: Nova does not answer, or refuses, or does not show the extra specs
    """
    yield from map(flavor_of, _rows(Service(connection, "compute")))


def flavor_of(row: object) -> Flavor:
    """Return the flavor in Nova's JSON, of a flavor or of a server."""
    if not isinstance(row, dict):
        raise unexpected("Nova, a flavor", row)
    name = row.get("name", row.get("original_name"))
    if "extra_specs" not in row:
        # As if it had none: the request would ask for too little.
        reason = f"the extra specs of the flavor {quote(name)} are not shown"
        raise CloudError("Nova", reason, "The policy os_compute_api:os-flavor-extra-specs:index must allow it.")
    ephemeral = row.get("OS-FLV-EXT-DATA:ephemeral", row.get("ephemeral"))
    try:
        return flavor_from({**row, "name": name, "ephemeral_gb": ephemeral}, "Nova")
    except DocumentError as error:
        raise unexpected(f"Nova, the flavor {quote(name)}", row) from error


def _rows(nova: Service) -> Iterator[Any]:
    yield from nova.rows("/flavors/detail?is_public=None&limit=1000", "flavors", MICROVERSION)
