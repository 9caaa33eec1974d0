# SPDX-License-Identifier: Apache-2.0

"""Reader of lists of images, volumes or servers.

JSON lines are read one at a time: a million entries need the memory of one.

Three formats: a JSON array; an object with the array under the key that the
service uses, such as ``images`` in Glance's ``GET /v2/images``; and JSON
lines, one entry a line, for lists above 64 MiB.

An image is an output of ``openstack image show -f json``, with its properties
under ``properties``, or has them among its fields, as in Glance's API. A
volume is an output of ``openstack volume show -f json``, or as in Cinder's
API.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from os_prefilter.adapters.from_json import (
    VOLUME,
    image_from,
    kind_of,
    not_of_kind,
)
from os_prefilter.common.errors import DocumentError
from os_prefilter.common.quoting import quote
from os_prefilter.documents.files import MAX_BYTES, open_file
from os_prefilter.documents.strict_json import parse_json, strict
from os_prefilter.request.spec import Image

_T = TypeVar("_T")

Broken = Callable[[str], None]
"""Gets the place and the problem of each entry that cannot be read."""

_MOST_KEPT = 200


class LeftOut:
    """The problems of unreadable entries: the first, and their number."""

    def __init__(self) -> None:
        self.first: list[str] = []
        self.count = 0

    def __call__(self, problem: str) -> None:
        """Add the problem of one entry."""
        self.count += 1
        if len(self.first) < _MOST_KEPT:
            self.first.append(problem)

    def as_document(self) -> dict[str, Any]:
        """Return their number and the first ones as JSON has them."""
        return {"count": self.count, "first": self.first}


# File name endings of JSON lines; without one of them, the first line decides.
_OF_LINES = (".jsonl", ".ndjson")
_LARGEST_LINE = 4 * 1024 * 1024


def read_entries(
    path: str | Path, what: str, parse: Callable[[object], _T], broken: Broken
) -> Iterator[_T]:
    """Yield each parsed entry of a file; report unreadable ones.

    :param what: one entry, such as ``image``; with an s, the key of the
        list in a response of the service
    :param parse: raises DocumentError for an entry of something else
    :raises DocumentError: if there is no such file, it cannot be read, is too
        large, or is no list.
    """
    for where, entry in _entries(path, what, broken):
        try:
            yield parse(entry)
        except DocumentError as error:
            uuid = entry.get("uuid") if isinstance(entry, dict) else None
            problem = error.problem
            if isinstance(uuid, str):
                problem = f"{what} {quote(uuid)}: {problem}"
            broken(f"{where}: {problem}")


def _entries(
    path: str | Path, what: str, broken: Broken
) -> Iterator[tuple[str, object]]:
    """Yield each entry with its place."""
    key = f"{what}s"
    with open_file(path) as file:
        number, first = (
            1,
            file.readline(MAX_BYTES + 1).removeprefix(b"\xef\xbb\xbf"),
        )
        while first and not first.strip():
            number, first = number + 1, file.readline(MAX_BYTES + 1)
        if Path(path).suffix in _OF_LINES or _is_entry(first, key):
            yield from _from_lines(number, first, file, what, broken)
            return
        data = first + file.read(MAX_BYTES + 1 - len(first))
    if len(data) > MAX_BYTES:
        raise DocumentError(
            path,
            "the list is larger than 64 MiB. Give it as JSON lines: one"
            f" {what} a line.",
        )
    document = parse_json(data, path)
    if (
        isinstance(document, dict)
        and key in document
        and (document.get("next") or document.get(f"{key}_links"))
    ):
        broken(
            "next: this is one page of a longer list; the other pages are"
            " missing"
        )
    entries = (
        document.get(key, [document])
        if isinstance(document, dict)
        else document
    )
    if not isinstance(entries, list):
        held = "null" if entries is None else quote(entries)
        raise DocumentError(
            path, f"it holds {held}; expected a list of {key}."
        )
    for number, entry in enumerate(entries):
        yield f"{key}[{number}]", entry


def _is_entry(line: bytes, key: str) -> bool:
    """Return whether a line is one entry: then the file has JSON lines."""
    if len(line) > _LARGEST_LINE or not line.lstrip().startswith(b"{"):
        return False
    try:
        return key not in json.loads(line)
    except (ValueError, RecursionError):
        return False


def _from_lines(
    number: int, first: bytes, file: BinaryIO, what: str, broken: Broken
) -> Iterator[tuple[str, object]]:
    line = first
    while line:
        where = f"line {number}"
        if len(line) > _LARGEST_LINE:
            broken(f"{where}: longer than 4 MiB, the limit for one {what}")
            while line and not line.endswith(b"\n"):
                line = file.readline(_LARGEST_LINE + 1)
        elif line.strip():
            try:
                entry = strict(line.decode())
            except (ValueError, RecursionError) as error:
                broken(
                    f"{where}: not JSON:"
                    f" {quote(getattr(error, 'msg', str(error)))}"
                )
            else:
                yield where, entry
        number, line = number + 1, file.readline(_LARGEST_LINE + 1)


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
            f"found {quote(entry)}; expected the output of 'openstack image"
            " show -f json'.",
        )
    return image_from(entry, "", "", or_volume=False)


def read_volumes(path: str | Path, broken: Broken) -> Iterator[Image]:
    """Yield the images in the metadata of the bootable volumes in a file.

    Other entries are reported, and errors are those of :func:`read_images`.
    """
    return read_entries(path, "volume", _image_of_volume, broken)


def _image_of_volume(entry: object) -> Image:
    if not isinstance(entry, dict):
        raise DocumentError(
            "",
            f"found {quote(entry)}; expected the output of 'openstack volume"
            " show -f json'.",
        )
    if kind_of(entry) != VOLUME:
        raise not_of_kind("volume", entry, "")
    return image_from(entry, "", "")
