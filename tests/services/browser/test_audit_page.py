# SPDX-License-Identifier: Apache-2.0

"""The page of an audit: in a real browser, and as text."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import os_traits
import pytest

from os_prefilter import Flavor, Image, RequestSpec
from os_prefilter.service import Service
from os_prefilter_tools.cli.audit_page import render_page
from os_prefilter_tools.fleet.model import (
    Fleet,
    Inventory,
    Provider,
    provider_uuid,
)
from os_prefilter_tools.fleet.server import Server
from os_prefilter_tools.operators.audit.destinations import Destinations
from os_prefilter_tools.operators.audit.image_audit import (
    Audit,
    FilterChange,
    audit_images,
)
from os_prefilter_tools.operators.audit.server_audit import audit_servers
from tests.conftest import pipeline_of
from tests.services.browser.browser import browser, needs_browser, show
from tests.support.zipping import zip_equal

HOSTILE = (
    "</script><script>window.hacked = 1</script>",
    "<img src=https://example.invalid/x onerror='window.hacked = 1'>",
    "--><svg/onload=window.hacked=1>",
    "'\"><b>bold</b> <!--<script>",
    "{{ 7 * 7 }} ${window.hacked = 1}",
    "\u202egnp.exe",
    "\x00\x1b[31mred\r\nline \u2028 \u2029",
    "x" * 255,
    "__proto__",
    "\u0635\u0648\u0631\u0629 \u0639\u0631\u0628\u064a\u0629",
    "\u753b\u50cf" * 60,
    "\U0001f427" * 100,
    "z\u0335\u0321\u0322" * 60,
)
pytestmark = needs_browser
PDF_TO_TEXT = shutil.which("pdftotext")
CHANGE = FilterChange(
    Service(), pipeline_of("image_metadata", "image_type", "hpet")
)


def host(name: str, traits: str) -> Provider:
    resources = {
        "VCPU": Inventory(8),
        "MEMORY_MB": Inventory(8192),
        "DISK_GB": Inventory(100),
    }
    return Provider(
        name, provider_uuid(name), resources, frozenset(traits.split())
    )


FLEET = Fleet(
    (
        host(
            "all",
            "COMPUTE_NET_VIF_MODEL_IGB COMPUTE_IMAGE_TYPE_QCOW2"
            " CUSTOM_COMPUTE_TIME_HPET",
        ),
        host(
            "<script>window.hacked = 1</script>" + "long" * 30,
            "COMPUTE_IMAGE_TYPE_QCOW2",
        ),
        host("none", ""),
    )
)


def hostile_audit() -> Audit:
    # A trait of its own for each, so that each has a line of its own.
    traits = {
        name: f"trait:CUSTOM_{number}" for number, name in enumerate(HOSTILE)
    }
    images = [
        Image({"hw_vif_model": name, trait: "required"}, "qcow2", name=name)
        for name, trait in traits.items()
    ]
    images += [
        Image({"hw_vif_model": "igb"}, "qcow2", name="needs igb"),
        Image({}, "vmdk", name="needs vmdk"),
    ]
    images += [Image({}, None, name=f"plain {number}") for number in range(3)]
    return audit_images(
        images,
        FLEET,
        CHANGE,
        flavors=[
            Flavor(1, 512, name="<i>small</i>"),
            Flavor(1, 512, name="m1"),
        ],
    )


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "audit.html"
    path.write_text(
        render_page(
            hostile_audit(),
            [("line 3: <img src=x onerror=window.hacked=1>", True)],
        ),
        encoding="utf-8",
    )
    return path


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a page of servers with hostile names and plain ones, of which
    some have destinations.
    """
    listed = []
    for number, name in enumerate(HOSTILE):
        request = RequestSpec(
            Flavor(1, 512), Image({f"trait:CUSTOM_{number}": "required"})
        )
        listed.append(
            Server(
                request,
                "all",
                uuid=f"{number}",
                name=name,
                project=name,
                not_judged=(name,),
            )
        )
    for number, (name, at) in enumerate(
        (
            ("web", "all"),
            ("database", "none"),
            ("database", "none"),
            ("cache", ""),
        )
    ):
        uuid = f"6f1c0c1e-0000-4000-8000-00000000000{number}"
        listed.append(
            Server(RequestSpec(Flavor(1, 512)), at, uuid=uuid, name=name)
        )
    pipeline = pipeline_of("image_metadata", "image_type")
    audited = audit_servers(listed, Destinations(FLEET, pipeline), ["none"])
    path = tmp_path_factory.mktemp("page") / "servers.html"
    path.write_text(
        render_page(audited, [(name, False) for name in HOSTILE[:2]]),
        encoding="utf-8",
    )
    return path


_BOTH_PAGES = pytest.mark.parametrize("which", ["hostile", "servers"])
"""The pages of images and of servers, by their fixtures."""


def requests(driver: Any, page: Path) -> list[str]:
    """Return what a page asked for, itself first; the browser starts with
    another.
    """
    messages = (
        json.loads(entry["message"])["message"]
        for entry in driver.get_log("performance")
    )
    sent = [
        each["params"]
        for each in messages
        if each["method"] == "Network.requestWillBeSent"
    ]
    return [
        each["request"]["url"]
        for each in sent
        if each["documentURL"] == page.as_uri()
    ]


@_BOTH_PAGES
def test_page_shows_hostile_names_as_text_and_asks_for_nothing(
    driver: Any, which: str, request: pytest.FixtureRequest
) -> None:
    """No script but the page's own runs, no element comes out of a name; what
    is printable is shown as it is.
    """
    path = request.getfixturevalue(which)
    show(driver, path)
    # Of images two flavors, and the three plain ones are one line; of servers,
    # two are alike.
    rows = driver.execute_script(
        "return document.querySelectorAll('table:not(.sums) > tbody >"
        " tr').length"
    )
    assert rows == (
        2 * (len(HOSTILE) + 3) if which == "hostile" else len(HOSTILE) + 3
    )
    assert requests(driver, path) == [path.as_uri()]
    assert driver.get_log("browser") == []
    assert driver.execute_script("return window.hacked") is None
    assert (
        driver.execute_script(
            "return document.querySelectorAll('img, i, iframe, link, object,"
            " base').length"
        )
        == 0
    )
    # The page's own: the bar, the marks of verdicts, and the links from one to
    # the other.
    own = "header, summary > svg, header > .bar, .legend *"
    strange = (
        "return [...document.querySelectorAll('svg, b, a')].filter(each =>"
        f" !each.closest('{own}')).length"
    )
    assert driver.execute_script(strange) == 0
    assert driver.execute_script("return document.scripts.length") == 1
    text = driver.execute_script("return document.body.textContent")
    for name in HOSTILE:
        assert name in text or ascii(name)[1:-1] in text
    assert not re.search("[\u202a-\u202e\u2066-\u2069\x00\x1b]", text)


@pytest.mark.parametrize("width", [360, 500, 800, 1280])
@_BOTH_PAGES
def test_page_fits_the_window(
    driver: Any, which: str, width: int, request: pytest.FixtureRequest
) -> None:
    """Nothing is wider, with everything unfolded."""
    show(
        driver,
        request.getfixturevalue(which),
        width=width,
        dark=width in (360, 800),
    )
    driver.execute_script(
        "for (const each of document.querySelectorAll('details')) each.open ="
        " true"
    )
    content, window = driver.execute_script(
        "return [document.documentElement.scrollWidth, innerWidth]"
    )
    assert content <= window == width


@_BOTH_PAGES
def test_heads_of_the_columns_stay_in_sight(
    driver: Any, which: str, request: pytest.FixtureRequest
) -> None:
    """Below the search box, while a table of many rows is scrolled."""
    show(driver, request.getfixturevalue(which), width=1280)
    tops = driver.execute_script("""
        const tables = [...document.querySelectorAll('details[open] > table')];
        const table = tables.sort((one, other) => other.rows.length - one.rows.length)[0];
        scrollTo(0, table.getBoundingClientRect().top + scrollY + 100);
        const heads = table.tHead.getBoundingClientRect();
        const box = document.querySelector('.find').getBoundingClientRect();
        return [box.top, heads.top - box.bottom];
    """)
    assert tops == pytest.approx([0, 0], abs=1)


@pytest.mark.parametrize("width", [500, 800, 1280])
def test_longest_trait_is_on_one_line(
    driver: Any, width: int, tmp_path: Path
) -> None:
    longest = max(os_traits.get_traits(), key=len)
    request = RequestSpec(
        Flavor(1, 512), Image({f"trait:{longest}": "required"})
    )
    audited = audit_servers(
        [Server(request, "all", uuid="1")], Destinations(FLEET, pipeline_of())
    )
    path = tmp_path / "page.html"
    path.write_text(render_page(audited, []), encoding="utf-8")
    show(driver, path, width=width)
    text, lines = driver.execute_script("""
        const code = document.querySelector('td code');
        return [code.textContent, new Set([...code.getClientRects()].map(each => each.top)).size];
    """)
    assert text == longest
    assert lines == 1


def many(tmp_path: Path, count: int) -> Path:
    """Return a page of images, each of a line of its own, of which the first
    half loses a host and the rest is ok.
    """
    found = audit_images(
        [Image({"hw_vif_model": "igb"}, None), Image({}, None)], FLEET, CHANGE
    )
    lines = [
        replace(line, names=[f"image-{name}-{number}-end"])
        for line, name in zip_equal(found.lines, ("igb", "plain"))
        for number in range(count // 2)
    ]
    found = replace(found, lines=tuple(lines), images=count)
    path = tmp_path / "many.html"
    path.write_text(render_page(found, []), encoding="utf-8")
    return path


def printed(driver: Any, folder: Path) -> str:
    """Return the text of the page on paper."""
    data = driver.execute_cdp_cmd(
        "Page.printToPDF", {"paperWidth": 8.27, "paperHeight": 11.69}
    )["data"]
    (folder / "page.pdf").write_bytes(base64.b64decode(data))
    command = ["pdftotext", "-layout", str(folder / "page.pdf"), "-"]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=60
    ).stdout


@pytest.mark.parametrize(
    "has_script", [True, False], ids=["script", "no script"]
)
def test_print_has_every_row_and_every_folded_name(
    driver: Any, has_script: bool, tmp_path: Path
) -> None:
    assert PDF_TO_TEXT or not os.environ.get("CI"), (
        "in CI, poppler-utils must be installed"
    )
    if not PDF_TO_TEXT:
        pytest.skip("it needs poppler-utils")
    path = many(tmp_path, 300)
    driver.execute_cdp_cmd(
        "Emulation.setScriptExecutionDisabled", {"value": not has_script}
    )
    try:
        show(driver, path)
        text = printed(driver, tmp_path)
    finally:
        driver.execute_cdp_cmd(
            "Emulation.setScriptExecutionDisabled", {"value": False}
        )
    names = Counter(re.findall(r"image-\w+-\d+-end", text))
    assert len(names) == 300
    assert set(names.values()) == {1}
    assert text.count("COMPUTE_NET_VIF_MODEL_IGB") == 150


@pytest.mark.skipif(not PDF_TO_TEXT, reason="it needs poppler-utils")
def test_print_has_the_names_that_a_cell_folds(
    driver: Any, tmp_path: Path
) -> None:
    images = [
        Image({}, None, name=f"plain-{number}-end") for number in range(40)
    ]
    path = tmp_path / "page.html"
    path.write_text(
        render_page(audit_images(images, FLEET, CHANGE), []), encoding="utf-8"
    )
    show(driver, path)
    folded = "return document.querySelectorAll('details:not([open])').length"
    before = driver.execute_script(folded)
    assert set(re.findall(r"plain-\d+-end", printed(driver, tmp_path))) == {
        f"plain-{n}-end" for n in range(40)
    }
    assert driver.execute_script(folded) == before > 0


def shown(driver: Any) -> list[str]:
    """Return the heads of the rows that a reader sees, folded ones not."""
    names: list[str] = driver.execute_script("""
        return [...document.querySelectorAll('tbody > tr > th')].filter(each => each.checkVisibility())
            .map(each => each.querySelector('li').textContent);
    """)
    return names


@pytest.fixture
def page_of_ten(driver: Any, tmp_path: Path) -> Any:
    """Open a page of ten images, of which five are ok, and return its search
    box after a click on it.
    """
    show(driver, many(tmp_path, 10))
    driver.execute_script("document.body.focus()")
    (box,) = driver.find_elements("id", "find")
    return box


def test_rows_that_are_ok_are_folded_until_one_is_found(
    driver: Any, page_of_ten: Any
) -> None:
    losing = [f"image-igb-{number}-end" for number in range(5)]
    assert shown(driver) == losing
    page_of_ten.send_keys("PLAIN-3")
    assert shown(driver) == ["image-plain-3-end"]
    page_of_ten.send_keys("\b" * 7)
    assert shown(driver) == losing


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("igb", 5),
        ("igb-2", 1),
        ("VIF_MODEL_IGB image-igb-4", 1),
        ("hw_vif_model=igb", 5),
        ("loses", 5),
        ("ok", 5),
        ("nothing like it", 0),
        ("<b>", 0),
    ],
)
def test_find_shows_the_rows_that_have_all_words_and_their_number(
    driver: Any, page_of_ten: Any, words: str, found: int
) -> None:
    """In a name, a trait, a property or the verdict."""
    page_of_ten.send_keys(words)
    assert len(shown(driver)) == found
    assert (
        driver.execute_script("return document.querySelector('output').value")
        == f"{found} of 10 rows"
    )


def test_printed_search_says_that_rows_are_missing(
    driver: Any, page_of_ten: Any, tmp_path: Path
) -> None:
    if not PDF_TO_TEXT:
        pytest.skip("it needs poppler-utils")
    page_of_ten.send_keys("igb-2")
    text = printed(driver, tmp_path)
    assert re.findall(r"image-\w+-\d+-end", text) == ["image-igb-2-end"]
    assert "1 of 10 rows" in text


def test_page_can_be_used_with_the_keyboard(
    driver: Any, page_of_ten: Any
) -> None:
    """Tab leads from the links of the bar to the search box and to each fold;
    Enter opens one.
    """
    order = []
    for _ in range(5):
        driver.switch_to.active_element.send_keys("\ue004")
        order.append(
            driver.execute_script(
                "return document.activeElement.textContent ||"
                " document.activeElement.id"
            )
        )
    assert order == [
        "5 loses hosts",
        "5 ok",
        "find",
        "Loses hosts: 5",
        "Ok: 5",
    ]
    driver.switch_to.active_element.send_keys("\ue007")
    assert len(shown(driver)) == 10


def test_link_of_the_bar_opens_the_rows_that_are_folded(
    driver: Any, page_of_ten: Any
) -> None:
    assert page_of_ten.is_displayed()
    driver.find_element("link text", "5 ok").click()
    assert len(shown(driver)) == 10


def test_browser_lays_out_only_the_rows_in_sight(
    driver: Any, tmp_path: Path
) -> None:
    """So that 5,000 rows open at once (docs/figures.rst has the time)."""
    show(driver, many(tmp_path, 1000))
    rows, laid_out = driver.execute_script("""
        const rows = [...document.querySelectorAll('tbody > tr')];
        const isLaidOut = row => row.firstElementChild.checkVisibility({contentVisibilityAuto: true});
        return [rows.length, rows.filter(isLaidOut).length];
    """)
    assert rows == 1000
    assert 0 < laid_out < 100


@pytest.mark.parametrize("width", [500, 1280])
@_BOTH_PAGES
def test_screen_readers_find_tables_with_heads(
    driver: Any, which: str, width: int, request: pytest.FixtureRequest
) -> None:
    """Also where the style makes boxes of rows."""
    show(driver, request.getfixturevalue(which), width=width)
    nodes = driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    roles = Counter(
        each["role"]["value"] for each in nodes if not each["ignored"]
    )
    assert roles["table"] > 0
    assert {
        "columnheader",
        "rowheader",
        "row",
        "cell",
        "searchbox",
        "heading",
    } <= roles.keys()
    unnamed = [
        each
        for each in nodes
        if each["role"]["value"] in ("table", "searchbox")
        and not each["name"]["value"]
    ]
    assert not unnamed
