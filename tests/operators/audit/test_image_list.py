"""Lists of images: which forms are understood, and that one broken entry never costs the others."""

import json
import re
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from os_prefilter import Image
from os_prefilter.common.errors import DocumentError
from os_prefilter.operators.audit import entry_list
from os_prefilter.operators.audit.entry_list import LeftOut
from os_prefilter.operators.audit.image_list import read_images

SHOWN = {"id": "1", "name": "a", "disk_format": "raw", "properties": {"hw_vif_model": "igb"}, "tags": []}
OF_GLANCE = {"id": "1", "name": "a", "disk_format": "raw", "hw_vif_model": "igb", "tags": [], "os_hidden": False}
IMAGE = Image({"hw_vif_model": "igb"}, "raw", "1", "a")


def read(tmp_path: Path, text: str | bytes, name: str = "images") -> tuple[list[Image], list[str]]:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    broken: list[str] = []
    return list(read_images(path, broken.append)), broken


@pytest.mark.parametrize("entry", [SHOWN, OF_GLANCE])
@pytest.mark.parametrize(
    "write",
    [
        lambda entry: json.dumps([entry, entry]),
        lambda entry: json.dumps([entry, entry], indent=4),
        lambda entry: f"\ufeff \n[{json.dumps(entry)}\t,\n{json.dumps(entry)} ] \n",
        lambda entry: json.dumps({"images": [entry, entry], "schema": "/v2/schemas/images"}),
        lambda entry: json.dumps({"first": "/v2/images", "images": [entry, entry]}, indent=1),
        lambda entry: f"{json.dumps(entry)}\n{json.dumps(entry)}\n",
        lambda entry: f"\n\n{json.dumps(entry)}\r\n\r\n{json.dumps(entry)}",
    ],
    ids=["array", "indented", "spaces", "Glance", "Glance, indented", "lines", "lines with empty ones"],
)
def test_all_image_list_formats_give_the_same_images(entry: dict[str, Any], write: Any, tmp_path: Path) -> None:
    assert read(tmp_path, write(entry)) == ([IMAGE, IMAGE], [])


@pytest.mark.parametrize(
    ("text", "count"), [("[]", 0), ("[ ]\n", 0), ('{"images": []}', 0), (json.dumps(SHOWN, indent=1), 1)]
)
def test_empty_list_and_single_image_document_are_accepted(text: str, count: int, tmp_path: Path) -> None:
    images, broken = read(tmp_path, text)
    assert (len(images), broken) == (count, [])


BROKEN: list[tuple[object, str]] = [
    (None, "found None"),
    (1, "found 1"),
    ("<b>\n", r"found '<b>\n'"),
    ([], "found a list"),
    ({}, "no image"),
    ({"ID": "1", "Name": "a", "Disk Format": "raw"}, "no image"),
    ({"name": "m1", "ram": 1, "vcpus": 1, "properties": {}}, "no image"),
    ({"properties": [1]}, "properties is a list"),
    ({"properties": {"traits_required": "X"}}, "traits_required"),
    ({"disk_format": 7}, "disk_format is 7"),
    ({"disk_format": "raw", "name": ["a"]}, "name is a list"),
]


@pytest.mark.parametrize(("entry", "says"), BROKEN)
@pytest.mark.parametrize("lines", [False, True])
def test_broken_image_entry_is_reported_with_its_position_and_skipped(
    entry: object, says: str, lines: bool, tmp_path: Path
) -> None:
    entries = [SHOWN, entry, SHOWN]
    text = "\n".join(map(json.dumps, entries)) if lines else json.dumps(entries)
    images, (told,) = read(tmp_path, text)
    assert images == [IMAGE, IMAGE]
    assert told.startswith("line 2" if lines else "images[1]")
    assert says in told
    assert told.isprintable()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{x", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("9" * 5000, "not JSON"),
        ('"' + "x" * (5 * 1024 * 1024) + '"', "longer than 4 MiB"),
        (b"\xff\xfe", "not JSON"),
    ],
    ids=["broken", "deep", "number", "long", "bytes"],
)
def test_invalid_json_line_is_skipped_and_the_other_images_are_kept(
    line: str | bytes, says: str, tmp_path: Path
) -> None:
    """Also where it is the first, if the name of the file says that it has lines."""
    raw = line if isinstance(line, bytes) else line.encode()
    good = json.dumps(SHOWN).encode()
    for order in ([good, raw, good], [raw, good, good]):
        images, (told,) = read(tmp_path, b"\n".join(order), "images.jsonl")
        assert images == [IMAGE, IMAGE]
        assert told.startswith(f"line {order.index(raw) + 1}: ")
        assert says in told


WRONG: list[tuple[str | bytes, str]] = [
    ("", "the file is empty"),
    ("[", "not JSON"),
    ("[1", "not JSON"),
    ("[1 2]", "not JSON"),
    ("[1,]", "not JSON"),
    ("[]]", "line 1, column 3: not JSON: Extra data"),
    ("{", "not JSON"),
    ("1", "expected a list of images"),
    ('"x"', "expected a list of images"),
    ('{"images": 1}', "images is 1"),
    ("[" * 100_000, "not JSON"),
    (b'["\xff"]', "byte 2 is not UTF-8"),
    ("[\n{},\n{x}]", "line 3, column 2"),
]


@pytest.mark.parametrize(("text", "says"), WRONG, ids=[str(number) for number in range(len(WRONG))])
def test_file_that_is_not_an_image_list_raises_document_error(text: str | bytes, says: str, tmp_path: Path) -> None:
    with pytest.raises(DocumentError) as raised:
        read(tmp_path, text)
    assert says in str(raised.value)
    assert str(raised.value).isprintable()


def test_image_list_warns_if_it_is_one_page_of_a_longer_list(tmp_path: Path) -> None:
    images, (told,) = read(tmp_path, json.dumps({"images": [OF_GLANCE], "next": "/v2/images?marker=1"}))
    assert images == [IMAGE]
    assert "one page of a longer list" in told


@pytest.mark.parametrize(
    "entry", ['{"disk_format": "raw", "disk_format": "qcow2"}', '{"disk_format": "raw", "size": NaN}']
)
def test_image_with_a_key_twice_or_no_number_is_not_read(entry: str, tmp_path: Path) -> None:
    """The last key would win, and a requirement be lost."""
    reason = "is given twice|is no number of JSON"
    for text in (f"[{entry}]", f'{{"images": [{entry}]}}'):
        with pytest.raises(DocumentError, match=f"not JSON that can be read: .*({reason})"):
            read(tmp_path, text)
    images, (told,) = read(tmp_path, f"{json.dumps(SHOWN)}\n{entry}\n")
    assert images == [IMAGE]
    assert re.match(f"line 2: not JSON: .*({reason})", told)


def test_json_array_has_a_size_limit_and_json_lines_have_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_list, "MAX_BYTES", 1000)
    with pytest.raises(DocumentError, match="JSON lines: one image a line"):
        read(tmp_path, json.dumps([SHOWN] * 100))
    images, broken = read(tmp_path, f"{json.dumps(SHOWN)}\n" * 100)
    assert (len(images), broken) == (100, [])


def test_reading_many_images_of_json_lines_uses_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "images"
    path.write_text(f"{json.dumps(SHOWN)}\n" * 20_000)
    # The first image imports jsonschema, and keeps its schema.
    next(iter(read_images(path, print)))
    tracemalloc.start()
    assert sum(1 for _ in read_images(path, print)) == 20_000
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 400_000


def test_all_broken_image_entries_are_counted_but_only_the_first_200_are_kept() -> None:
    left_out = LeftOut()
    for number in range(201):
        left_out(str(number))
    assert left_out.count == 201
    assert left_out.first == [str(number) for number in range(200)]
