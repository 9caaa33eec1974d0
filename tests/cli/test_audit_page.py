# SPDX-License-Identifier: Apache-2.0

"""The structure of an audit's page: what a reader finds, in which order, and
what is folded.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from importlib import import_module
from itertools import product
from typing import Any

import pytest

from os_prefilter import Flavor, Image, RequestSpec
from os_prefilter.service import Service
from os_prefilter_tools.cli import audit_page
from os_prefilter_tools.cli.audit_page import render_page
from os_prefilter_tools.cli.audit_rows import ItemList, Totals
from os_prefilter_tools.fleet.model import (
    Fleet,
    Inventory,
    Provider,
    provider_uuid,
)
from os_prefilter_tools.fleet.reader import example_fleet
from os_prefilter_tools.fleet.server import Server
from os_prefilter_tools.operators.audit.destinations import Destinations
from os_prefilter_tools.operators.audit.image_audit import (
    FilterChange,
    ImageVerdict,
    audit_images,
)
from os_prefilter_tools.operators.audit.server_audit import (
    ServerVerdict,
    audit_servers,
)
from tests.conftest import pipeline_of

# Nova brings it; it has no types.
_LXML: Any = import_module("lxml.html")
_CHANGE = FilterChange(
    Service(), pipeline_of("image_metadata", "image_type", "hpet")
)
_IMAGES = [
    *(Image({}, None, name=f"plain-{number}") for number in range(20)),
    Image({"hw_vif_model": "igb"}, "qcow2", name="router"),
    Image(
        {"hw_architecture": "aarch64", "hw_time_hpet": "yes"},
        "raw",
        name="arm-hpet",
    ),
    Image(
        {"hw_disk_bus": "ide", "hw_machine_type": "q35"},
        "raw",
        name="no-q35-has-ide",
    ),
    Image({"trait:CUSTOM_LICENSED": "required"}, "raw", name="licensed"),
]


def _host(name: str, traits: str = "") -> Provider:
    resources = {
        "VCPU": Inventory(8),
        "MEMORY_MB": Inventory(8192),
        "DISK_GB": Inventory(100),
    }
    return Provider(
        name, provider_uuid(name), resources, frozenset(traits.split())
    )


def _server(name: str, host: str = "host-0", **properties: str) -> Server:
    return Server(
        RequestSpec(Flavor(1, 512), Image(properties)),
        host,
        uuid=f"id-of-{name}",
        name=name,
        project="shop",
    )


def _images(lines: Any = ()) -> Any:
    return _LXML.document_fromstring(
        render_page(
            audit_images(_IMAGES, example_fleet(), _CHANGE), lines
        ).encode()
    )


def _servers(count: int = 30, lines: Any = ()) -> Any:
    fleet = Fleet(tuple(_host(f"host-{number}") for number in range(count)))
    servers = [_server(f"web-{number}") for number in range(5)]
    servers.append(_server("windows", **{"trait:CUSTOM_LICENSED": "required"}))
    found = audit_servers(
        servers, Destinations(fleet, pipeline_of("image_metadata")), ["host-1"]
    )
    return _LXML.document_fromstring(render_page(found, lines).encode())


_BOTH = pytest.mark.parametrize(
    "page", [_images, _servers], ids=["images", "servers"]
)


def _text(element: Any) -> str:
    return " ".join(element.text_content().split())


def _row(page: Any, name: str) -> Any:
    """Return the row that has the text."""
    (row,) = [
        row
        for row in page.xpath("//main//tbody/tr")
        if name in row.text_content()
    ]
    return row


def test_worst_verdicts_come_first() -> None:
    headings = [
        _text(each) for each in _images().xpath("//main/details/summary/h2")
    ]
    assert headings == [
        "Becomes rejected: 1",
        "Becomes unschedulable: 1",
        "Loses hosts: 1",
        "Already unschedulable: 1",
        "Ok: 20",
    ]


@_BOTH
def test_only_rows_that_are_ok_are_folded(page: Any) -> None:
    folded = page().xpath("//details[not(@open)][summary//rect]/summary/h2")
    assert [_text(each).partition(":")[0] for each in folded] == ["Ok"]


@_BOTH
def test_legend_of_the_bar_has_the_number_of_each_verdict_and_leads_to_its_rows(
    page: Any,
) -> None:
    page = page()
    links = page.xpath("//header/ul[@class='legend']/li/a")
    headings = page.xpath("//main/details/summary[.//rect]/h2")
    counts = [_text(each).split(" ", 1) for each in links]
    assert [
        f"{verdict.capitalize()}: {number}" for number, verdict in counts
    ] == [_text(each) for each in headings]
    for each in links:
        (table,) = page.xpath(
            "//table[@id=$id]", id=each.get("href").removeprefix("#")
        )
        assert table.xpath("tbody/tr")


def test_bar_shows_the_share_of_each_verdict() -> None:
    (bar,) = _images().xpath("//*[@class='bar']")
    assert bar.get("viewbox") == "0 0 24 1"
    parts = [(float(each.get("x")), float(each.get("width"))) for each in bar]
    assert parts == [(0, 1), (1, 1), (2, 1), (3, 1), (4, 20)]


def test_bar_shows_a_verdict_of_one_image_among_many() -> None:
    images = [Image({}, None), *_IMAGES[20:21]]
    found = audit_images(images, example_fleet(), _CHANGE)
    found.lines[-1].names *= 10_000
    page = _LXML.document_fromstring(render_page(found, []).encode())
    (bar,) = page.xpath("//*[@class='bar']")
    widths = [float(each.get("width")) for each in bar]
    assert sum(widths) == float(bar.get("viewbox").split()[2])
    assert min(widths) > 0.004 * sum(widths)


_TONES = {
    ImageVerdict.LOSES: "warning",
    ImageVerdict.ALREADY_REJECTED: "neutral",
    ImageVerdict.ALREADY: "neutral",
    ServerVerdict.NONE_IF_DIED: "warning",
    ServerVerdict.NONE_WITHOUT: "warning",
    ServerVerdict.NOT_ALL_WITHOUT: "warning",
    ServerVerdict.NOT_ALL_IF_DIED: "warning",
    ServerVerdict.LOSES: "warning",
    ServerVerdict.UNKNOWN: "neutral",
    ServerVerdict.OK: "ok",
}


@pytest.mark.parametrize("verdict", [*ImageVerdict, *ServerVerdict], ids=str)
def test_each_verdict_has_its_colour(
    verdict: ImageVerdict | ServerVerdict,
) -> None:
    found = audit_images(_IMAGES[:1], example_fleet(), _CHANGE)
    found.lines[0].verdict = verdict  # type: ignore[assignment]  # The page of servers shows it in the same way.
    page = _LXML.document_fromstring(render_page(found, []).encode())
    assert set(page.xpath("//rect/@class")) == {_TONES.get(verdict, "bad")}


def test_cell_shows_three_names_and_folds_the_others() -> None:
    cell = _row(_images(), "plain-0").find("th")
    assert [_text(each) for each in cell.xpath("ul/li")] == [
        "plain-0",
        "plain-1",
        "plain-2",
    ]
    (folded,) = cell.xpath("details")
    assert folded.get("open") is None
    assert _text(folded.find("summary")) == "and 17 more"
    assert [_text(each) for each in folded.xpath("ul/li")] == [
        f"plain-{number}" for number in range(3, 20)
    ]


def test_cell_shows_three_destinations_and_how_many_are_not_listed() -> None:
    (cell,) = _row(_servers(), "web-0").xpath("td[@class='destinations']")
    assert _text(cell.find("p")) == "29 now, 29 if died, 28 without"
    assert [_text(each) for each in cell.xpath("ul/li")] == [
        "host-1",
        "host-2",
        "host-3",
    ]
    (folded,) = cell.xpath("details")
    assert _text(folded.find("summary")) == "and 26 more"
    listed = [_text(each) for each in folded.xpath("ul/li")]
    assert listed == [
        *(f"host-{number}" for number in range(4, 21)),
        "9 not listed",
    ]


def test_each_server_has_its_id() -> None:
    (cell,) = _row(_servers(), "web-0").xpath("td[@class='servers']")
    assert [_text(each) for each in cell.xpath(".//li")] == [
        f"web-{n} id-of-web-{n}" for n in range(5)
    ]


def test_image_has_each_lost_trait_whole_with_its_property_and_filter() -> (
    None
):
    (cell,) = _row(_images(), "arm-hpet").xpath("td[@class='why']")
    assert [_text(each) for each in cell.xpath(".//code")][:2] == [
        "HW_ARCH_AARCH64",
        "CUSTOM_COMPUTE_TIME_HPET",
    ]
    assert (
        "image property hw_architecture=aarch64, by image_metadata"
        in _text(cell)
    )


def test_server_without_destination_has_the_trait_that_no_other_host_has() -> (
    None
):
    (cell,) = _row(_servers(), "windows").xpath("td[@class='why']")
    assert (
        _text(cell)
        == "CUSTOM_LICENSED image property trait:CUSTOM_LICENSED=required"
    )


def test_rejected_image_has_the_reason() -> None:
    (cell,) = _row(_images(), "no-q35-has-ide").xpath("td[@class='why']")
    assert (
        "hw_disk_bus=ide is impossible with image property hw_machine_type=q35"
        in _text(cell)
    )


def test_summary_is_on_the_page_with_all_items_and_warnings() -> None:
    items = ItemList(
        "Hosts that serve no image",
        [f"idle-{number}" for number in range(20)],
        20,
    )
    left_out = ItemList("Left out", ["line 1", "line 2"], 900)
    lines = [
        (Totals("60 images."), False),
        ("Filters: hpet.", False),
        (items, False),
        (left_out, True),
        ("Cut", True),
    ]
    header = _images(lines).find(".//header")
    assert [_text(each) for each in header.xpath("p")] == ["Filters: hpet."]
    first, second = header.xpath("div[@class='notice']")
    assert _text(first.find("p")) == "Left out: 900"
    assert [_text(each) for each in first.xpath(".//li")] == [
        "line 1",
        "line 2",
        "898 not listed",
    ]
    assert _text(second) == "Cut"
    assert _text(header.find(".//dt")) == "Hosts that serve no image: 20"
    assert len(header.xpath(".//dd//li")) == 20
    assert "60 images." not in _text(header)


def test_page_leaves_out_the_least_urgent_rows_above_the_limit_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(audit_page, "_MOST_ROWS", 3)
    found = audit_images(_IMAGES, example_fleet(), _CHANGE)
    page = _LXML.document_fromstring(render_page(found, []).encode())
    assert [len(each) for each in page.xpath("//main//tbody")] == [
        1,
        1,
        1,
        0,
        0,
    ]
    notes = [_text(each) for each in page.xpath("//main/details/p")]
    assert notes == ["The first 0 of 1 rows; -f json has all."] * 2


@_BOTH
def test_policy_allows_the_styles_and_the_script_of_the_page_alone(
    page: Any,
) -> None:
    page = page()
    policy = page.xpath(
        "//meta[@http-equiv='Content-Security-Policy']/@content"
    )[0]
    hashes = {
        kind: (
            b64encode(
                hashlib.sha256(page.find(f".//{kind}").text.encode()).digest()
            ).decode()
        )
        for kind in ("style", "script")
    }
    assert (
        policy == f"default-src 'none'; style-src 'sha256-{hashes['style']}';"
        f" script-src 'sha256-{hashes['script']}'; base-uri 'none';"
        " form-action 'none'"
    )
    assert not page.xpath(
        "//@style | //@src | //@*[starts-with(name(), 'on')] |"
        " //@href[not(starts-with(., '#'))]"
    )
    assert len(page.xpath("//style | //script")) == 2


def test_script_and_styles_have_nothing_of_the_audit() -> None:
    images, servers = _images(), _servers()
    for kind in ("style", "script"):
        assert (
            images.find(f".//{kind}").text == servers.find(f".//{kind}").text
        )


@_BOTH
def test_search_box_has_a_label_and_is_hidden_without_the_script(
    page: Any,
) -> None:
    (box,) = page().xpath("//*[@hidden]")
    (field,) = box.xpath("input")
    assert box.xpath("label/@for") == [field.get("id")]


@_BOTH
def test_rows_and_columns_have_heads(page: Any) -> None:
    for table in page().xpath("//table"):
        assert table.get("aria-label")
        columns = table.xpath("thead/tr/th")
        assert {each.get("scope") for each in columns} == {"col"}
        for row in table.xpath("tbody/tr"):
            assert row[0].get("scope") == "row"
            assert len(row) == len(columns)


@_BOTH
def test_page_has_one_title_and_a_heading_for_each_table(page: Any) -> None:
    page = page()
    assert len(page.xpath("//h1")) == 1
    assert len(page.xpath("//h2")) == len(page.xpath("//table"))
    assert page.get("lang") == "en"


def _luminance(colour: str) -> float:
    """Return the relative luminance of WCAG 2.1."""
    digits = (
        colour if len(colour) == 6 else "".join(each * 2 for each in colour)
    )
    parts = [int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_colours_have_the_contrast_of_wcag_aa(scheme: int) -> None:
    """4.5 for text; 3 for what is not text."""
    style = _images().find(".//style").text
    colours = [
        dict(re.findall(r"--(\w+): #(\w+)", part))
        for part in re.findall(r":root \{[^}]*--[^}]*\}", style)
    ]
    assert len(colours) == 2
    least = {
        **dict.fromkeys(("text", "muted", "link"), 4.5),
        **dict.fromkeys(("bad", "warning", "neutral", "ok"), 3),
    }
    for name, ground in product(least, ("page", "head")):
        lower, upper = sorted(
            _luminance(colours[scheme][each]) for each in (name, ground)
        )
        assert (upper + 0.05) / (lower + 0.05) >= least[name], (name, ground)
