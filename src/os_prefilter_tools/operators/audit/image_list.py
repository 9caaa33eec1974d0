"""Reader of image lists: the outputs of ``openstack image show -f json``, or a response of Glance's ``GET /v2/images``.

An image has its properties under ``properties`` or, as in Glance's API, beside its fields.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from os_prefilter.adapters.from_json import image_from, properties_beside_fields
from os_prefilter.common.errors import DocumentError
from os_prefilter.common.quoting import quote
from os_prefilter.request.spec import Image
from os_prefilter_tools.operators.audit.entry_list import Broken, read_entries


def read_images(path: str | Path, broken: Broken) -> Iterator[Image]:
    """Yield the images in a file; report an entry that is no image to ``broken``, and skip it.

    :raises DocumentError: if there is no such file, it cannot be read, is too large, or is no list of images.
    """
    for where, entry in read_entries(path, "image", broken):
        try:
            yield image_from(_document(entry), path, "")
        except DocumentError as error:
            broken(f"{where}: {error.problem}")


def _document(entry: object) -> Any:
    """Return an entry in the format that has ``properties``."""
    if not isinstance(entry, dict):
        raise DocumentError("", f"found {quote(entry)}; expected an image, an object with disk_format and properties.")
    if not ("disk_format" in entry or "properties" in entry) or "ram" in entry or "vcpus" in entry:
        raise DocumentError("", "found an object that is no image: without disk_format and properties.")
    if "properties" in entry:
        return entry
    return {
        "properties": properties_beside_fields(entry),
        **{key: entry.get(key) for key in ("id", "name", "disk_format")},
    }
