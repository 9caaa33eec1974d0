"""Reader of lists of images or servers; of JSON lines one entry at a time, so that a million need the memory of one.

Three formats: a JSON array; an object with the array under the key that the service uses, such as ``images`` in
Glance's ``GET /v2/images``; and JSON lines, one entry a line, for lists above 64 MiB.
"""

import json
from collections.abc import Callable, Iterator
from json import JSONDecodeError
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from os_prefilter.common.errors import DocumentError
from os_prefilter.common.quoting import quote
from os_prefilter.documents.files import MAX_BYTES, decode, open_file
from os_prefilter.documents.strict_json import strict

Broken = Callable[[str], None]
"""Gets the place and the problem of each entry that cannot be read."""

_MOST_KEPT = 200


class LeftOut:
    """The problems of entries that cannot be read: the first ones, and their number."""

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


class EntryKind(NamedTuple):
    """What a list has."""

    one: str
    many: str
    """Also the key of the list in a response of the service."""


def read_entries(path: str | Path, kind: EntryKind, broken: Broken) -> Iterator[tuple[str, object]]:
    """Yield each entry in a file with its place; report one that is not JSON to ``broken``, and skip it.

    :raises DocumentError: if there is no such file, it cannot be read, is too large, or is no list.
    """
    with open_file(path) as file:
        number, first = 1, file.readline(MAX_BYTES + 1).removeprefix(b"\xef\xbb\xbf")
        while first and not first.strip():
            number, first = number + 1, file.readline(MAX_BYTES + 1)
        if not first and Path(path).suffix not in _OF_LINES:
            advice = "Check the command that wrote it."
            raise DocumentError(path, f"the file is empty; expected a JSON list of {kind.many}. {advice}")
        if Path(path).suffix in _OF_LINES or _is_entry(first, kind):
            yield from _from_lines(number, first, file, kind, broken)
            return
        data = first + file.read(MAX_BYTES + 1 - len(first))
    if len(data) > MAX_BYTES:
        raise DocumentError(path, f"the list is larger than 64 MiB. Give it as JSON lines: one {kind.one} a line.")
    for number, entry in enumerate(_entries_of(decode(data, path, "utf-8"), path, kind, broken)):
        yield f"{kind.many}[{number}]", entry


def _is_entry(line: bytes, kind: EntryKind) -> bool:
    """Whether a line is one entry: then the file has JSON lines."""
    if len(line) > _LARGEST_LINE or not line.lstrip().startswith(b"{"):
        return False
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and kind.many not in document


def _from_lines(
    number: int, first: bytes, file: BinaryIO, kind: EntryKind, broken: Broken
) -> Iterator[tuple[str, object]]:
    line = first
    while line:
        where = f"line {number}"
        if len(line) > _LARGEST_LINE:
            broken(f"{where}: longer than 4 MiB, the limit for one {kind.one}")
            while line and not line.endswith(b"\n"):
                line = file.readline(_LARGEST_LINE + 1)
        elif line.strip():
            try:
                entry = strict(line.decode())
            except (ValueError, RecursionError) as error:
                broken(f"{where}: not JSON: {quote(getattr(error, 'msg', str(error)))}")
            else:
                yield where, entry
        number, line = number + 1, file.readline(_LARGEST_LINE + 1)


def _entries_of(text: str, path: str | Path, kind: EntryKind, broken: Broken) -> list[object]:
    try:
        document = strict(text)
    except JSONDecodeError as error:
        raise DocumentError(path, f"line {error.lineno}, column {error.colno}: not JSON: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise DocumentError(path, f"not JSON that can be read: {quote(str(error))}") from error
    if isinstance(document, list):
        return document
    if not isinstance(document, dict):
        raise DocumentError(path, f"it holds {quote(document)}; expected a list of {kind.many}.")
    if kind.many not in document:
        return [document]
    entries = document[kind.many]
    if not isinstance(entries, list):
        raise DocumentError(path, f"{kind.many} is {quote(entries)}; expected a list.")
    if document.get("next"):
        broken("next: this is one page of a longer list; the other pages are missing")
    return entries
