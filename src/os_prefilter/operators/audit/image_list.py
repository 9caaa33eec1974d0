"""Streaming reader of image lists: one image at a time, so that a million images need the memory of one.

Three formats: a JSON array of ``openstack image show -f json`` outputs; a response of Glance's ``GET /v2/images``, an
object with ``images``; and JSON lines, one image a line, for lists above 64 MiB. An image has its properties under
``properties`` or, as in Glance's API, beside its fields.
"""

import json
from collections.abc import Callable, Iterator
from json import JSONDecodeError
from pathlib import Path
from typing import Any, BinaryIO

from os_prefilter.common.errors import DocumentError
from os_prefilter.common.quoting import quote
from os_prefilter.documents.files import MAX_BYTES, decode, open_file
from os_prefilter.documents.strict_json import DECODER, strict
from os_prefilter.request.from_json import image_from
from os_prefilter.request.spec import Image

Broken = Callable[[str], None]
"""Gets the place and the problem of each entry that is no image."""

_MOST_KEPT = 200


class LeftOut:
    """The problems of entries that are no images: the first ones, and their number."""

    def __init__(self) -> None:
        self.first: list[str] = []
        self.count = 0

    def __call__(self, problem: str) -> None:
        """Add the problem of one entry."""
        self.count += 1
        if len(self.first) < _MOST_KEPT:
            self.first.append(problem)


# The fields of an image that are no properties (Glance's API reference, "Show image").
_FIELDS = frozenset(
    (
        *("checksum", "container_format", "created_at", "direct_url", "disk_format", "file", "id", "locations"),
        *("min_disk", "min_ram", "name", "os_hash_algo", "os_hash_value", "os_hidden", "owner", "protected", "schema"),
        *("self", "size", "status", "stores", "tags", "updated_at", "virtual_size", "visibility"),
    )
)
# File name endings of JSON lines; without one of them, the first line decides.
_OF_LINES = (".jsonl", ".ndjson")
_LARGEST_LINE = 4 * 1024 * 1024
_SPACE = " \t\r\n"


def read_images(path: str | Path, broken: Broken) -> Iterator[Image]:
    """Yield the images in a file; report an entry that is no image to ``broken``, and skip it.

    :raises DocumentError: if there is no such file, it cannot be read, is too large, or is no list of images.
    """
    with open_file(path) as file:
        yield from _images(file, path, broken)


def _images(file: BinaryIO, path: str | Path, broken: Broken) -> Iterator[Image]:
    number, first = 1, file.readline(MAX_BYTES + 1).removeprefix(b"\xef\xbb\xbf")
    while first and not first.strip():
        number, first = number + 1, file.readline(MAX_BYTES + 1)
    if Path(path).suffix in _OF_LINES or _is_image(first):
        yield from _from_lines(number, first, file, path, broken)
        return
    text = _text(first + file.read(MAX_BYTES + 1 - len(first)), path).lstrip(_SPACE)
    entries = _entries_of_array(text, path) if text.startswith("[") else iter(_entries_of_object(text, path, broken))
    for number, entry in enumerate(entries):
        yield from _image(entry, path, f"images[{number}]", broken)


def _is_image(line: bytes) -> bool:
    """Whether a line is one image: then the file has JSON lines."""
    if len(line) > _LARGEST_LINE or not line.lstrip().startswith(b"{"):
        return False
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and "images" not in document


def _from_lines(number: int, first: bytes, file: BinaryIO, path: str | Path, broken: Broken) -> Iterator[Image]:
    line = first
    while line:
        where = f"line {number}"
        if len(line) > _LARGEST_LINE:
            broken(f"{where}: longer than 4 MiB, the limit for one image")
            while line and not line.endswith(b"\n"):
                line = file.readline(_LARGEST_LINE + 1)
        elif line.strip():
            try:
                entry = strict(line.decode())
            except (ValueError, RecursionError) as error:
                broken(f"{where}: not JSON: {quote(getattr(error, 'msg', str(error)))}")
            else:
                yield from _image(entry, path, where, broken)
        number, line = number + 1, file.readline(_LARGEST_LINE + 1)


def _entries_of_array(text: str, path: str | Path) -> Iterator[object]:
    """Yield the entries of an array one by one: all at once take many times the memory of the text."""
    number, position = 0, _after_space(text, 1)
    sign = text[position : position + 1]
    position += sign == "]"
    while sign != "]":
        try:
            entry, position = DECODER.raw_decode(text, position)
        except (ValueError, RecursionError) as error:
            raise _not_json(path, error, f"images[{number}]: ") from error
        yield entry
        number += 1
        position = _after_space(text, position)
        sign = text[position : position + 1]
        position = _after_space(text, position + 1)
        if sign not in ("]", ","):
            raise _not_json(path, JSONDecodeError("Expecting ',' or ']'", text, position - 1))
    position = _after_space(text, position)
    if position < len(text):
        raise _not_json(path, JSONDecodeError("Extra data", text, position))


def _entries_of_object(text: str, path: str | Path, broken: Broken) -> list[object]:
    try:
        document = strict(text)
    except (ValueError, RecursionError) as error:
        raise _not_json(path, error) from error
    if not isinstance(document, dict):
        raise DocumentError(path, f"it holds {quote(document)}; expected a list of images.")
    if "images" not in document:
        return [document]
    if not isinstance(document["images"], list):
        raise DocumentError(path, f"images is {quote(document['images'])}; expected a list.")
    if document.get("next"):
        broken("next: this is one page of a longer list; the other pages are missing")
    return document["images"]


def _image(entry: object, path: str | Path, where: str, broken: Broken) -> Iterator[Image]:
    try:
        yield image_from(_document(entry), path, where)
    except DocumentError as error:
        broken(error.problem if where in error.problem else f"{where}: {error.problem}")


def _document(entry: object) -> Any:
    """Return an entry in the format that has ``properties``."""
    if not isinstance(entry, dict):
        raise DocumentError("", f"found {quote(entry)}; expected an image, an object with disk_format and properties.")
    if not ("disk_format" in entry or "properties" in entry) or "ram" in entry or "vcpus" in entry:
        raise DocumentError("", "found an object that is no image: without disk_format and properties.")
    if "properties" in entry:
        return entry
    properties = {key: value for key, value in entry.items() if key not in _FIELDS}
    return {"properties": properties, **{key: entry.get(key) for key in ("id", "name", "disk_format")}}


def _text(data: bytes, path: str | Path) -> str:
    if len(data) > MAX_BYTES:
        raise DocumentError(path, "the list is larger than 64 MiB. Give it as JSON lines: one image a line.")
    return decode(data, path, "utf-8")


def _after_space(text: str, position: int) -> int:
    while position < len(text) and text[position] in _SPACE:
        position += 1
    return position


def _not_json(path: str | Path, error: Exception, where: str = "") -> DocumentError:
    """Return the error about text that is not JSON.

    :param where: the entry, named where the line is not known, as for a duplicate key
    """
    if isinstance(error, JSONDecodeError):
        return DocumentError(path, f"line {error.lineno}, column {error.colno}: not JSON: {error.msg}")
    return DocumentError(path, f"{where}not JSON that can be read: {quote(str(error))}")
