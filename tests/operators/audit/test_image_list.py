# SPDX-License-Identifier: Apache-2.0

"""Lists of images: which forms are understood, and that one broken entry never
costs the others.
"""

import json
import tracemalloc
from itertools import product
from pathlib import Path

import pytest

from os_prefilter import Image
from os_prefilter.common.errors import DocumentError
from os_prefilter_tools.operators.audit import entry_list
from os_prefilter_tools.operators.audit.image_list import read_images

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


FORMATS = (
    lambda entry: json.dumps([entry, entry], indent=4),
    lambda entry: (
        f"\ufeff \n[{json.dumps(entry)}\t,\n{json.dumps(entry)} ] \n"
    ),
    lambda entry: json.dumps(
        {"images": [entry, entry], "schema": "/v2/schemas/images"}
    ),
    lambda entry: json.dumps(
        {"first": "/v2/images", "images": [entry, entry]}, indent=1
    ),
    lambda entry: f"{json.dumps(entry)}\n{json.dumps(entry)}\n",
    lambda entry: f"\n\n{json.dumps(entry)}\r\n\r\n{json.dumps(entry)}",
)


def test_all_image_list_formats_give_the_same_images(tmp_path: Path) -> None:
    for entry, write in product((SHOWN, OF_GLANCE), FORMATS):
        assert read(tmp_path, write(entry)) == ([IMAGE, IMAGE], [])
    for text, images in (
        ("[]", []),
        ("[ ]\n", []),
        ('{"images": []}', []),
        (json.dumps(SHOWN, indent=1), [IMAGE]),
    ):
        assert read(tmp_path, text) == (images, [])


BROKEN: list[tuple[object, str]] = [
    (None, "found None"),
    (1, "found 1"),
    ("<b>\n", r"found '<b>\n'"),
    ([], "found a list"),
    ({}, "no image"),
    ({"ID": "1", "Name": "a", "Disk Format": "raw"}, "no image"),
    ({"name": "m1", "ram": 1, "vcpus": 1, "properties": {}}, "no image"),
    (
        {
            "bootable": "true",
            "size": 1,
            "properties": {},
            "volume_image_metadata": {},
        },
        "this is a volume, no image",
    ),
    (
        {"status": "ACTIVE", "flavor": {}, "properties": {}},
        "this is a server, no image",
    ),
    ({"volume_id": "1", "properties": {}}, "this is no image"),
    ({"properties": [1]}, "properties is a list"),
    ({"properties": {"traits_required": "X"}}, "traits_required"),
    ({"disk_format": 7}, "disk_format is 7"),
    ({"disk_format": "raw", "name": ["a"]}, "name is a list"),
]


def test_broken_image_entry_is_reported_with_its_position_and_skipped(
    tmp_path: Path,
) -> None:
    for entry, says in BROKEN:
        entries = [SHOWN, entry, SHOWN]
        for text, place in (
            (json.dumps(entries), "images[1]"),
            ("\n".join(map(json.dumps, entries)), "line 2"),
        ):
            images, (told,) = read(tmp_path, text)
            assert images == [IMAGE, IMAGE]
            assert told.startswith(place)
            assert says in told
            assert told.isprintable()


BROKEN_LINES = [
    (b"{x", "not JSON"),
    (b"[" * 100_000, "not JSON"),
    (b'"' + b"x" * (5 * 1024 * 1024) + b'"', "longer than 4 MiB"),
    (b"\xff\xfe", "not JSON"),
    (b'{"disk_format": "raw", "disk_format": "qcow2"}', "is given twice"),
]


def test_invalid_json_line_is_skipped_and_the_other_images_are_kept(
    tmp_path: Path,
) -> None:
    good = json.dumps(SHOWN).encode()
    for line, says in BROKEN_LINES:
        for order in ([good, line, good], [line, good, good]):
            images, (told,) = read(tmp_path, b"\n".join(order), "images.jsonl")
            assert images == [IMAGE, IMAGE]
            assert told.startswith(f"line {order.index(line) + 1}: ")
            assert says in told


WRONG: list[tuple[str | bytes, str]] = [
    ("", "the file is empty"),
    ("[", "broken JSON"),
    ("[1 2]", "broken JSON"),
    ("[1,]", "broken JSON"),
    ("[]]", "line 1, column 3: broken JSON: Extra data"),
    ("{", "broken JSON"),
    ("1", "expected a list of images"),
    ('"x"', "expected a list of images"),
    ('{"images": 1}', "it holds 1; expected a list of images"),
    ("[" * 100_000, "nested too deep"),
    (b'["\xff"]', "byte 2 is not UTF-8"),
    ("[\n{},\n{x}]", "line 3, column 2"),
]


def test_file_that_is_not_an_image_list_raises_document_error(
    tmp_path: Path,
) -> None:
    for text, says in WRONG:
        with pytest.raises(DocumentError) as raised:
            read(tmp_path, text)
        assert says in str(raised.value)
        assert str(raised.value).isprintable()


def test_image_list_warns_if_it_is_one_page_of_a_longer_list(
    tmp_path: Path,
) -> None:
    images, (told,) = read(
        tmp_path,
        json.dumps({"images": [OF_GLANCE], "next": "/v2/images?marker=1"}),
    )
    assert images == [IMAGE]
    assert "one page of a longer list" in told


def test_json_array_has_a_size_limit_and_json_lines_have_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entry_list, "MAX_BYTES", 1000)
    with pytest.raises(DocumentError, match="JSON lines: one image a line"):
        read(tmp_path, json.dumps([SHOWN] * 100))
    images, broken = read(tmp_path, f"{json.dumps(SHOWN)}\n" * 100)
    assert (len(images), broken) == (100, [])


def test_reading_images_of_json_lines_uses_the_memory_of_one(
    tmp_path: Path,
) -> None:
    path = tmp_path / "images"
    path.write_text(f"{json.dumps(SHOWN)}\n" * 2_000)
    # The first image imports jsonschema, and keeps its schema.
    next(iter(read_images(path, print)))
    tracemalloc.start()
    assert sum(1 for _ in read_images(path, print)) == 2_000
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 200_000
