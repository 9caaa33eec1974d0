# SPDX-License-Identifier: Apache-2.0

"""Hostile tenants: what the commands print, and the page of an audit, have no
more lines, cells or elements by them.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from os_prefilter import Image
from os_prefilter.common.quoting import escape_line
from os_prefilter.service import Service
from os_prefilter_tools.cli.audit_page import Lines, render_page
from os_prefilter_tools.cli.main import main
from os_prefilter_tools.fleet.reader import example_fleet
from os_prefilter_tools.operators.audit.image_audit import (
    FilterChange,
    audit_images,
)
from tests.conftest import one_in, pipeline_of
from tests.faults.hostile import texts

Capture = pytest.CaptureFixture[str]
Spelling = Callable[[int, str], str]

# As long as a name in Glance may be.
_TEXTS = [each.value[:255] for each in texts()]
# Nova brings it; it has no types.
_LXML: Any = import_module("lxml.html")
_FLEET = {
    "hosts": {
        "kvm-1": {
            "resources": {"VCPU": 8, "MEMORY_MB": 8192, "DISK_GB": 100},
            "traits": ["COMPUTE_NODE"],
        }
    }
}


def _hostile(_number: int, text: str) -> str:
    return text


def _harmless(number: int, text: str) -> str:
    # What is empty asks for nothing, so it must stay so.
    return f"harmless-{number}" if text.strip() else text


def _images(spell: Spelling) -> list[Image]:
    """Return an image for each text, and a trait of its own for each, so that
    no two are one line.
    """
    return [
        Image(
            {
                "hw_vif_model": spell(number, text),
                f"note {spell(number, text)}": "1",
                f"trait:CUSTOM_{number}": "required",
            },
            "qcow2",
            name=spell(number, text),
            id=str(number),
        )
        for number, text in enumerate(_TEXTS)
    ]


def _written(path: Path, spell: Spelling) -> str:
    images = [
        {
            "id": x.id,
            "name": x.name,
            "disk_format": "qcow2",
            "properties": x.properties,
        }
        for x in _images(spell)
    ]
    path.write_text(json.dumps(images), encoding="utf-8")
    return str(path)


def _lines(text: str) -> list[str]:
    """Return the lines of an output, each of which must be printable."""
    lines = text.split("\n")
    assert all(line.isprintable() for line in lines), [
        ascii(line) for line in lines if not line.isprintable()
    ][:3]
    return lines


def _audited(capsys: Capture, path: Path, spell: Spelling, form: str) -> str:
    assert (
        main(
            [
                "audit",
                "--images",
                _written(path, spell),
                "--enable",
                "image_metadata",
                "-f",
                form,
            ]
        )
        == 0
    )
    printed = capsys.readouterr()
    _lines(printed.err)
    return printed.out


@pytest.mark.parametrize("form", ["table", "json", "yaml", "csv", "value"])
def test_hostile_names_add_no_rows_or_lines_to_an_audit(
    form: str, capsys: Capture, tmp_path: Path
) -> None:
    hostile, harmless = (
        _audited(capsys, tmp_path / "images.json", each, form)
        for each in (_hostile, _harmless)
    )
    # YAML folds long text.
    assert len(_lines(hostile)) == len(_lines(harmless)) or form == "yaml"
    if form in ("json", "yaml"):
        load = yaml.safe_load if form == "yaml" else json.loads
        rows, plain = (load(each)["lines"] for each in (hostile, harmless))
        assert [row.keys() for row in rows] == [row.keys() for row in plain]
        # After the colon is the value that Nova refuses.
        assert [row["Verdict"].partition(":")[0] for row in rows] == [
            row["Verdict"].partition(":")[0] for row in plain
        ]
        names = {name for row in rows for name in row["Images"]}
        assert names == {
            escape_line(text) or str(number)
            for number, text in enumerate(_TEXTS)
        }
    if form == "csv":
        # A spreadsheet that opens the file runs nothing: what would be a
        # formula begins with an apostrophe.
        cells = list(csv.reader(io.StringIO(hostile)))
        assert {len(row) for row in cells} == {7}
        assert not [
            cell
            for row in cells
            for cell in row
            if cell.startswith(("=", "+", "-", "@", "\t", "\r"))
        ]
        assert "'=cmd|' /C calc'!A1" in {row[0] for row in cells}


def _page(spell: Spelling) -> str:
    left_out: Lines = [
        (escape_line(f"line {number}: {spell(number, text)}"), True)
        for number, text in enumerate(_TEXTS)
    ]
    change = FilterChange(Service(), pipeline_of("image_metadata"))
    return render_page(
        audit_images(_images(spell), example_fleet(), change), left_out
    )


def test_hostile_names_add_no_element_or_attribute_to_the_audit_page() -> None:
    trees = [
        _LXML.document_fromstring(_page(each).encode())
        for each in (_hostile, _harmless)
    ]
    found = [
        [(each.tag, dict(each.attrib)) for each in tree.iter()]
        for tree in trees
    ]
    assert found[0] == found[1]
    assert all(isinstance(tag, str) for tag, _ in found[0])
    shown = "".join(trees[0].itertext())
    for number, text in enumerate(_TEXTS):
        assert escape_line(f"line {number}: {text}") in shown
    for text in filter(None, _TEXTS):
        assert escape_line(text) in shown


def _one_request(path: Path, spell: Spelling) -> str:
    """Write an image that has all texts in its properties, and return the
    path.
    """
    properties = {
        f"hw_{number}_{spell(number, text)}": spell(number, text)
        for number, text in enumerate(_TEXTS)
    }
    every = spell(0, "".join(text[:40] for text in _TEXTS))
    document = {
        "name": every,
        "id": every,
        "disk_format": "qcow2",
        "properties": {**properties, "hw_vif_model": every},
    }
    path.write_text(json.dumps(document), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("command", "form"),
    [("explain", "table"), ("diagnose", "json"), ("diagnose", "csv")],
)
def test_hostile_image_adds_no_output_lines_to_explain_or_diagnose(
    command: str, form: str, capsys: Capture, tmp_path: Path
) -> None:
    fleet = tmp_path / "fleet.json"
    fleet.write_text(json.dumps(_FLEET), encoding="utf-8")
    printed = []
    for spell in (_hostile, _harmless):
        path = _one_request(tmp_path / "image.json", spell)
        arguments = ["--image", path, "--hosts", str(fleet), "-f", form]
        code = main([command, *arguments, "--filter", "image_metadata"])
        # Nova refuses such an image at each boot.
        assert code == (1 if command == "explain" else 0)
        out, error = capsys.readouterr()
        printed.append((len(_lines(out)), len(_lines(error))))
    assert printed[0] == printed[1]


def test_hostile_argument_causes_no_traceback_and_no_extra_error_lines(
    capsys: Capture,
) -> None:
    """A name that a script took over from a tenant: no traceback, no second
    line, nothing run.
    """
    options = (
        "--image",
        "--flavor",
        "--request-spec",
        "--hosts",
        "--example",
        "--filter",
    )
    for number, text in list(enumerate(_TEXTS * len(options)))[
        :: one_in(len(options) - 1)
    ]:
        main(
            [
                "explain",
                f"{options[number % len(options)]}={text}",
                "--property=a=b",
            ]
        )
        out, error = capsys.readouterr()
        _lines(out)
        assert len(_lines(error.removesuffix("\n"))) <= 2, ascii(error[:300])
        assert "Traceback" not in error
