# SPDX-License-Identifier: Apache-2.0

"""Lists of images: their forms; a broken entry leaves the others."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from os_prefilter import Image
from os_prefilter.common.errors import DocumentError
from os_prefilter_tools.operators.audit import entry_list
from os_prefilter_tools.operators.audit.entry_list import (
    read_images,
    read_volumes,
)

SHOWN = {
    "id": "1",
    "name": "a",
    "disk_format": "raw",
    "properties": {"hw_vif_model": "igb"},
    "tags": [],
}
OF_GLANCE = {
    "id": "1",
    "name": "a",
    "disk_format": "raw",
    "hw_vif_model": "igb",
    "tags": [],
    "os_hidden": False,
}
IMAGE = Image({"hw_vif_model": "igb"}, "raw", "1", "a")


def read(
    tmp_path: Path, text: str | bytes, name: str = "images"
) -> tuple[list[Image], list[str]]:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    broken: list[str] = []
    return list(read_images(path, broken.append)), broken


Entry = dict[str, Any]
_ENTRY = json.dumps(SHOWN)


def _as_array(entry: Entry) -> str:
    return json.dumps([entry, entry], indent=4)


def _as_array_with_spaces(entry: Entry) -> str:
    text = json.dumps(entry)
    return f"\ufeff \n[{text}\t,\n{text} ] \n"


def _as_page(entry: Entry) -> str:
    page = {"images": [entry, entry], "schema": "/v2/schemas/images"}
    return json.dumps(page)


def _as_indented_page(entry: Entry) -> str:
    page = {"first": "/v2/images", "images": [entry, entry]}
    return json.dumps(page, indent=1)


def _as_lines(entry: Entry) -> str:
    return f"{json.dumps(entry)}\n" * 2


def _as_lines_with_empty_ones(entry: Entry) -> str:
    text = json.dumps(entry)
    return f"\n\n{text}\r\n\r\n{text}"


@pytest.mark.parametrize("entry", [SHOWN, OF_GLANCE], ids=["shown", "API"])
@pytest.mark.parametrize(
    "write",
    [
        _as_array,
        _as_array_with_spaces,
        _as_page,
        _as_indented_page,
        _as_lines,
        _as_lines_with_empty_ones,
    ],
)
def test_all_image_list_formats_give_the_same_images(
    entry: Entry, write: Callable[[Entry], str], tmp_path: Path
) -> None:
    images, broken = read(tmp_path, write(entry))
    assert images == [IMAGE, IMAGE]
    assert broken == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[]", []),
        ("[ ]\n", []),
        ('{"images": []}', []),
        (json.dumps(SHOWN, indent=1), [IMAGE]),
    ],
    ids=["empty", "empty with spaces", "empty page", "one image"],
)
def test_list_may_have_one_image_or_none(
    text: str, expected: list[Image], tmp_path: Path
) -> None:
    images, broken = read(tmp_path, text)
    assert images == expected
    assert broken == []


_SERVER = {"status": "ACTIVE", "flavor": {}, "properties": {}}
_VOLUME = {
    "bootable": "true",
    "size": 1,
    "properties": {},
    "volume_image_metadata": {},
}
_BROKEN: dict[str, tuple[object, str]] = {
    "null": (None, "found None"),
    "number": (1, "found 1"),
    "text": ("<b>\n", r"found '<b>\n'"),
    "list": ([], "found a list"),
    "nothing": ({}, "no image"),
    "table": ({"ID": "1", "Name": "a", "Disk Format": "raw"}, "no image"),
    "flavor": (
        {"name": "m1", "ram": 1, "vcpus": 1, "properties": {}},
        "no image",
    ),
    "volume": (_VOLUME, "this is a volume, no image"),
    "server": (_SERVER, "this is a server, no image"),
    "volume of the API": ({"volume": _VOLUME}, "this is a volume, no image"),
    "snapshot": (
        {"volume_id": "1", "properties": {}},
        "this is a volume snapshot, no image",
    ),
    "list of properties": ({"properties": [1]}, "properties is a list"),
    "list of traits": (
        {"properties": {"traits_required": "X"}},
        "traits_required",
    ),
    "number for a format": ({"disk_format": 7}, "disk_format is 7"),
    "list for a name": (
        {"disk_format": "raw", "name": ["a"]},
        "name is a list",
    ),
}


@pytest.mark.parametrize(
    ("write", "place"),
    [
        (json.dumps, "images[1]"),
        (lambda entries: "\n".join(map(json.dumps, entries)), "line 2"),
    ],
    ids=["array", "lines"],
)
@pytest.mark.parametrize(("entry", "problem"), _BROKEN.values(), ids=_BROKEN)
def test_broken_image_entry_is_reported_with_its_position_and_skipped(
    entry: object,
    problem: str,
    write: Callable[[object], str],
    place: str,
    tmp_path: Path,
) -> None:
    images, (message,) = read(tmp_path, write([SHOWN, entry, SHOWN]))
    assert images == [IMAGE, IMAGE]
    assert message.startswith(place)
    assert problem in message
    assert message.isprintable()


_LONG = b'"' + b"x" * (5 * 1024 * 1024) + b'"'
_BROKEN_LINES = {
    "broken": (b"{x", "not JSON"),
    "nested": (b"[" * 100_000, "not JSON"),
    "long": (_LONG, "longer than 4 MiB"),
    "not UTF-8": (b"\xff\xfe", "not JSON"),
    "key twice": (
        b'{"disk_format": "raw", "disk_format": "qcow2"}',
        "is given twice",
    ),
}


@pytest.mark.parametrize("place", [0, 1], ids=["first", "second"])
@pytest.mark.parametrize(
    ("line", "problem"), _BROKEN_LINES.values(), ids=_BROKEN_LINES
)
def test_invalid_json_line_is_skipped_and_the_other_images_are_kept(
    line: bytes, problem: str, place: int, tmp_path: Path
) -> None:
    lines = [_ENTRY.encode()] * 2
    lines.insert(place, line)
    images, (message,) = read(tmp_path, b"\n".join(lines), "images.jsonl")
    assert images == [IMAGE, IMAGE]
    assert message.startswith(f"line {place + 1}: ")
    assert problem in message


_WRONG: dict[str, tuple[str | bytes, str]] = {
    "empty": ("", "the file is empty"),
    "cut array": ("[", "broken JSON"),
    "no comma": ("[1 2]", "broken JSON"),
    "no entry": ("[1,]", "broken JSON"),
    "more": ("[]]", "line 1, column 3: broken JSON: Extra data"),
    "cut object": ("{", "broken JSON"),
    "number": ("1", "expected a list of images"),
    "text": ('"x"', "expected a list of images"),
    "number for images": (
        '{"images": 1}',
        "it holds 1; expected a list of images",
    ),
    "nested": ("[" * 100_000, "nested too deep"),
    "not UTF-8": (b'["\xff"]', "byte 2 is not UTF-8"),
    "broken entry": ("[\n{},\n{x}]", "line 3, column 2"),
}


@pytest.mark.parametrize(("text", "problem"), _WRONG.values(), ids=_WRONG)
def test_file_that_is_not_an_image_list_raises_document_error(
    text: str | bytes, problem: str, tmp_path: Path
) -> None:
    with pytest.raises(DocumentError) as raised:
        read(tmp_path, text)
    assert problem in str(raised.value)
    assert str(raised.value).isprintable()


def test_image_list_warns_if_it_is_one_page_of_a_longer_list(
    tmp_path: Path,
) -> None:
    page = {"images": [OF_GLANCE], "next": "/v2/images?marker=1"}
    images, (message,) = read(tmp_path, json.dumps(page))
    assert images == [IMAGE]
    assert "one page of a longer list" in message


_BOOTABLE = {
    "id": "1",
    "name": "a",
    "bootable": "true",
    "size": 1,
    "volume_image_metadata": {"hw_vif_model": "igb", "disk_format": "raw"},
}


@pytest.mark.parametrize(
    "write",
    [
        lambda entry: json.dumps([entry, entry]),
        lambda entry: json.dumps({"volumes": [entry, entry]}),
        lambda entry: f"{json.dumps(entry)}\n" * 2,
        lambda entry: f"{json.dumps({'volume': entry})}\n" * 2,
    ],
    ids=["array", "response", "lines", "lines of responses"],
)
def test_all_volume_list_formats_give_the_images_of_the_metadata(
    write: Callable[[Entry], str], tmp_path: Path
) -> None:
    path = tmp_path / "volumes"
    path.write_text(write(_BOOTABLE))
    broken: list[str] = []
    images = list(read_volumes(path, broken.append))
    assert images == [Image({"hw_vif_model": "igb"}, name="a")] * 2
    assert broken == []


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        (None, "found None; expected the output of 'openstack volume"),
        ({}, "this is no volume. Expected the output of 'openstack volume"),
        (SHOWN, "this is an image, no volume"),
        ({"volume_id": "1", "size": 1}, "this is a volume snapshot, no volum"),
        ({**_BOOTABLE, "bootable": "false"}, "a volume that is not bootable"),
        ({**_BOOTABLE, "name": ["a"]}, "volume: name is a list"),
    ],
    ids=["null", "nothing", "image", "snapshot", "not bootable", "list"],
)
def test_entry_that_is_no_bootable_volume_is_reported_and_skipped(
    entry: object, problem: str, tmp_path: Path
) -> None:
    path = tmp_path / "volumes"
    path.write_text(json.dumps([_BOOTABLE, entry, _BOOTABLE]))
    broken: list[str] = []
    images = list(read_volumes(path, broken.append))
    assert len(images) == 2
    (message,) = broken
    assert message.startswith("volumes[1]")
    assert problem in message


def test_volume_list_warns_if_it_is_one_page_of_a_longer_list(
    tmp_path: Path,
) -> None:
    links = [{"rel": "next", "href": "http://a/v3/volumes/detail?marker=1"}]
    path = tmp_path / "volumes"
    path.write_text(
        json.dumps({"volumes": [_BOOTABLE], "volumes_links": links})
    )
    broken: list[str] = []
    assert len(list(read_volumes(path, broken.append))) == 1
    (message,) = broken
    assert "one page of a longer list" in message


def test_json_array_has_a_size_limit_and_json_lines_have_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entry_list, "MAX_BYTES", 1000)
    with pytest.raises(DocumentError, match="JSON lines: one image a line"):
        read(tmp_path, json.dumps([SHOWN] * 100))
    images, broken = read(tmp_path, f"{_ENTRY}\n" * 100)
    assert len(images) == 100
    assert broken == []


def test_reading_images_of_json_lines_uses_the_memory_of_one(
    tmp_path: Path,
) -> None:
    path = tmp_path / "images"
    path.write_text(f"{_ENTRY}\n" * 2_000)
    # The first image imports jsonschema, and keeps its schema.
    next(iter(read_images(path, print)))
    tracemalloc.start()
    assert sum(1 for _ in read_images(path, print)) == 2_000
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 200_000


def test_reading_volumes_of_json_lines_uses_the_memory_of_one(
    tmp_path: Path,
) -> None:
    """Of each with as much metadata as Cinder's quota allows."""
    metadata = {f"p{number}": "x" * 255 for number in range(250)}
    line = json.dumps({**_BOOTABLE, "volume_image_metadata": metadata})
    assert len(line) > 64_000
    path = tmp_path / "volumes"
    path.write_text(f"{line}\n" * 200)
    next(iter(read_volumes(path, print)))
    tracemalloc.start()
    assert sum(1 for _ in read_volumes(path, print)) == 200
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000
