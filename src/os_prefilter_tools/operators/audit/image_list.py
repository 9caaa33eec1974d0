# SPDX-License-Identifier: Apache-2.0

"""Reader of image lists.

Outputs of ``openstack image show -f json``, or a response of Glance's ``GET
/v2/images``.

An image has its properties under ``properties`` or, as in Glance's API, among
its fields.
"""

from collections.abc import Iterator
from pathlib import Path

from os_prefilter.adapters.from_json import (
    image_from,
    properties_beside_fields,
)
from os_prefilter.common.errors import DocumentError
from os_prefilter.common.quoting import quote
from os_prefilter.request.spec import Image
from os_prefilter_tools.operators.audit.entry_list import Broken, read_entries


def read_images(path: str | Path, broken: Broken) -> Iterator[Image]:
    """Yield the images in a file; report entries that are none.

    :raises DocumentError: if there is no such file, it cannot be read, is too
        large, or is no list of images.
    """
    return read_entries(path, "image", _image, broken)


def _image(entry: object) -> Image:
    if not isinstance(entry, dict):
        raise DocumentError(
            "",
            f"found {quote(entry)}; expected an image, an object with"
            " disk_format and properties.",
        )
    if "properties" not in entry and "disk_format" in entry:
        fields = {key: entry.get(key) for key in ("id", "name", "disk_format")}
        entry = {**fields, "properties": properties_beside_fields(entry)}
    return image_from(entry, "", "")
