"""The page of an audit: in a real browser, and as text."""

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.keys import Keys

from os_prefilter import Flavor, Image, RequestSpec
from os_prefilter.service import Service
from os_prefilter_tools.cli.audit_page import MOST_COLUMNS, page, server_page
from os_prefilter_tools.fleet.model import Fleet, Inventory, Provider, provider_uuid
from os_prefilter_tools.fleet.server import Server
from os_prefilter_tools.operators.audit.destinations import Destinations
from os_prefilter_tools.operators.audit.entry_list import LeftOut
from os_prefilter_tools.operators.audit.image_audit import Audit, FilterChange, audit_images
from os_prefilter_tools.operators.audit.server_audit import audit_servers
from tests.conftest import pipeline_of
from tests.services.browser.browser import browser, needs_browser, show

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
CHANGE = FilterChange(Service(), pipeline_of("image_metadata", "image_type", "hpet"))


def host(name: str, traits: str) -> Provider:
    resources = {"VCPU": Inventory(8), "MEMORY_MB": Inventory(8192), "DISK_GB": Inventory(100)}
    return Provider(name, provider_uuid(name), resources, frozenset(traits.split()))


FLEET = Fleet(
    (
        host("all", "COMPUTE_NET_VIF_MODEL_IGB COMPUTE_IMAGE_TYPE_QCOW2 CUSTOM_COMPUTE_TIME_HPET"),
        host("<script>window.hacked = 1</script>" + "long" * 30, "COMPUTE_IMAGE_TYPE_QCOW2"),
        host("none", ""),
    )
)


def hostile_audit() -> Audit:
    # A trait of its own for each, so that each has a line of its own.
    traits = {name: f"trait:CUSTOM_{number}" for number, name in enumerate(HOSTILE)}
    images = [Image({"hw_vif_model": name, trait: "required"}, "qcow2", name=name) for name, trait in traits.items()]
    images += [Image({"hw_vif_model": "igb"}, "qcow2", name="needs igb"), Image({}, "vmdk", name="needs vmdk")]
    images += [Image({}, None, name=f"plain {number}") for number in range(3)]
    return audit_images(images, FLEET, CHANGE, flavors=[Flavor(1, 512, name="<i>small</i>"), Flavor(1, 512, name="m1")])


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory, hostile_audit(), ["line 3: <img src=x onerror=window.hacked=1>"])


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a page of servers with hostile names and plain ones, of which some have destinations."""
    listed = []
    for number, name in enumerate(HOSTILE):
        request = RequestSpec(Flavor(1, 512), Image({f"trait:CUSTOM_{number}": "required"}))
        listed.append(Server(request, "all", uuid=f"{number}", name=name, project=name, not_judged=(name,)))
    for number, (name, at) in enumerate((("web", "all"), ("database", "none"), ("database", "none"), ("cache", ""))):
        uuid = f"6f1c0c1e-0000-4000-8000-00000000000{number}"
        listed.append(Server(RequestSpec(Flavor(1, 512)), at, uuid=uuid, name=name))
    pipeline = pipeline_of("image_metadata", "image_type")
    audited = audit_servers(listed, Destinations(FLEET, pipeline), ["none"])
    path = tmp_path_factory.mktemp("page") / "servers.html"
    path.write_text(server_page(audited, pipeline, LeftOut(), FLEET), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a page of images that are all different."""
    images = [Image({f"trait:CUSTOM_{number}": "required"}, "qcow2", name=f"image-{number}") for number in range(3000)]
    fleet = Fleet(tuple(host(f"host-{number}", f"CUSTOM_{number}") for number in range(60)))
    return written(tmp_path_factory, audit_images(images, fleet, CHANGE), [])


def written(factory: pytest.TempPathFactory, result: Audit, broken: list[str]) -> Path:
    left_out = LeftOut()
    for told in broken:
        left_out(told)
    path = factory.mktemp("page") / "audit.html"
    path.write_text(page(result, CHANGE, left_out, "2026-01-01T00:00:00Z"), encoding="utf-8")
    return path


def names(driver: Any) -> list[str]:
    return list(
        driver.execute_script("return [...document.querySelectorAll('#matrix tbody th > bdi')].map(e => e.textContent)")
    )


def button(driver: Any, head: str) -> Any:
    script = "return [...document.querySelectorAll('#matrix thead button')].find(e => e.textContent === arguments[0])"
    return driver.execute_script(script, head)


def sort_of(driver: Any, head: str) -> str | None:
    value: str | None = button(driver, head).find_element("xpath", "./..").get_attribute("aria-sort")
    return value


_BOTH_PAGES = pytest.mark.parametrize("which", ["hostile", "servers"])
"""The pages of images and of servers, by their fixtures."""


def requests(driver: Any, page: Path) -> list[str]:
    """Return what a page asked for, itself first; the browser starts with another."""
    messages = (json.loads(entry["message"])["message"] for entry in driver.get_log("performance"))
    sent = [each["params"] for each in messages if each["method"] == "Network.requestWillBeSent"]
    return [each["request"]["url"] for each in sent if each["documentURL"] == page.as_uri()]


@_BOTH_PAGES
def test_page_shows_hostile_names_as_text_and_asks_for_nothing(
    driver: Any, which: str, request: pytest.FixtureRequest
) -> None:
    """No script runs, no element comes out of a name, no CSP rule is violated; what is printable is shown as it is."""
    path = request.getfixturevalue(which)
    show(driver, path)
    # Of images two flavors, and the three plain ones are one line; of servers, two are alike.
    assert len(names(driver)) == (2 * (len(HOSTILE) + 3) if which == "hostile" else len(HOSTILE) + 3)
    assert requests(driver, path) == [path.as_uri()]
    assert driver.get_log("browser") == []
    assert driver.execute_script("return window.hacked") is None
    assert driver.execute_script("return document.querySelectorAll('img, svg, b, i, iframe').length") == 0
    assert driver.execute_script("return document.scripts.length") == 2
    text = driver.execute_script("return document.body.textContent")
    for name in HOSTILE:
        assert name in text or ascii(name)[1:-1] in text
    assert not re.search("[\u202a-\u202e\u2066-\u2069\x00\x1b]", text)


# What scrolls, and where the first column and the heads are then.
_SCROLLED = """
    const box = document.querySelector('.scroll');
    box.scrollIntoView(); box.scrollLeft = 500; box.scrollTop = 300;
    const at = box.getBoundingClientRect(), cell = box.querySelector('tbody tr:nth-child(9) th');
    const head = box.querySelector('thead th');
    return [cell.getBoundingClientRect().left - at.left, head.getBoundingClientRect().top - at.top];
"""
# How many words of up to twelve letters, or numbers of an ID, the tables have, and those that are not on one line.
_BROKEN_WORDS = """
    const broken = [], range = document.createRange();
    let words = 0;
    for (const table of document.querySelectorAll('table')) {
        const walker = document.createTreeWalker(table, NodeFilter.SHOW_TEXT);
        while (walker.nextNode()) {
            const node = walker.currentNode;
            for (const token of node.data.matchAll(/\\S+/g)) {
                // A script has no words to break between.
                if (!/^[\\w.(),:=!+-]+$/.test(token[0]) || node.parentElement.closest('.group')) continue;
                for (const found of token[0].matchAll(/[A-Za-z0-9]+/g)) {
                    range.setStart(node, token.index + found.index);
                    range.setEnd(node, token.index + found.index + found[0].length);
                    const lines = new Set([...range.getClientRects()].map((each) => Math.round(each.top)));
                    if (found[0].length > 12 || !lines.size) continue;
                    words += 1;
                    if (lines.size > 1) broken.push(found[0]);
                }
            }
        }
    }
    return [words, broken];
"""
# Of each row the reasons, whether they are all in view without scrolling, and the space below what is in view.
_REASONS = """
    const box = document.querySelector('.scroll').getBoundingClientRect();
    const rect = (element) => element.getBoundingClientRect();
    const inView = (element) => rect(element).width > 0 && rect(element).right <= box.right;
    return [...document.querySelectorAll('#matrix tbody tr')].map(row => {
        const reasons = [...row.querySelectorAll('.causes li')].filter(each => each.getClientRects().length);
        const seen = [...row.querySelectorAll('bdi, small, li, span, td.number')].filter(inView);
        const lowest = Math.max(...seen.map(each => rect(each).bottom));
        return [reasons.length, reasons.every(inView), rect(row).bottom - lowest];
    });
"""


@pytest.mark.parametrize("width", [320, 360, 500, 768, 1024, 1280, 1400])
@_BOTH_PAGES
def test_page_fits_the_window_with_whole_words_and_reasons_beside_their_images(
    driver: Any, which: str, width: int, request: pytest.FixtureRequest
) -> None:
    """The table scrolls in its own box; the first column and the heads stay in sight."""
    path, dark = request.getfixturevalue(which), width in (320, 1280)
    show(driver, path, width=width, dark=dark)
    content, window = driver.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
    assert content <= window == width
    words, broken = driver.execute_script(_BROKEN_WORDS)
    assert words > 100
    assert broken == [] or width == 320
    if which == "hostile":
        rows = driver.execute_script(_REASONS)
        assert sum(bool(reasons) for reasons, _, _ in rows) > 2
        assert all(in_view for _, in_view, _ in rows)
        assert max(blank for _, _, blank in rows) < 40
    left, top = driver.execute_script(_SCROLLED)
    assert (abs(left) <= 2, abs(top) <= 2) == (True, True)
    ground = driver.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(20, 24, 29)" if dark else "rgb(255, 255, 255)")


def test_audit_page_can_be_searched_and_sorted_by_keyboard_alone(driver: Any, large: Path) -> None:
    show(driver, large)

    def press(*keys: str) -> None:
        for key in keys:
            driver.switch_to.active_element.send_keys(key)

    def focused() -> str:
        return str(
            driver.execute_script("const e = document.activeElement; return e.id || e.className || e.textContent")
        )

    press(Keys.TAB)
    assert focused() == "skip"
    press(Keys.ENTER, Keys.TAB)
    assert focused() == "find"
    press("image-299")
    assert sorted(names(driver)) == sorted(f"image-{number}" for number in (299, *range(2990, 3000)))
    press(Keys.TAB)
    assert focused() == "verdict"
    press(Keys.TAB)
    assert focused() == "scroll"
    press(Keys.TAB)
    assert focused() == "Images"
    outline = driver.execute_script("return getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    press(Keys.ENTER)
    assert sort_of(driver, "Images") == "ascending"
    assert names(driver)[:3] == ["image-299", "image-2990", "image-2991"], "numbers count as numbers"
    press(Keys.SPACE)
    assert sort_of(driver, "Images") == "descending"
    assert names(driver)[0] == "image-2999"
    button(driver, "Before").click()
    assert (sort_of(driver, "Images"), sort_of(driver, "Before")) == (None, "ascending")


def test_audit_page_shows_100_lines_at_a_time_and_limits_host_columns(driver: Any, large: Path) -> None:
    show(driver, large)
    assert len(names(driver)) == 100
    assert driver.find_element("id", "page").text == "Page 1 of 30"
    first = names(driver)
    assert not driver.find_element("id", "back").is_enabled()
    driver.find_element("id", "next").click()
    assert driver.find_element("id", "page").text == "Page 2 of 30"
    assert not set(first) & set(names(driver))
    heads = driver.find_elements("css selector", "#matrix thead .group")
    assert len(heads) == MOST_COLUMNS + 1
    assert heads[-1].get_attribute("textContent") == f"{60 - MOST_COLUMNS} other hosts"


def test_audit_page_has_no_external_reference_and_its_csp_allows_only_its_code() -> None:
    text = page(hostile_audit(), CHANGE)
    assert re.findall(r"<[^>]* (?:src|href)=([^ >]*)", text) == ['"#images"']
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest", text)
    policy = re.search(r'Content-Security-Policy" content="(.*?)"', text)
    assert policy
    for tag, directive in (("style", "style-src"), ("script", "script-src")):
        content = re.search(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        assert content
        digest = base64.b64encode(hashlib.sha256(content[1].encode()).digest()).decode()
        assert f"{directive} &#39;sha256-{digest}&#39;" in policy[1]
    assert policy[1].startswith("default-src &#39;none&#39;")
