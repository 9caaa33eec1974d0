#    Licensed under the Apache License, Version 2.0 (the "License"); you may
#    not use this file except in compliance with the License. You may obtain
#    a copy of the License at
#
#         http://www.apache.org/licenses/LICENSE-2.0
#
#    Unless required by applicable law or agreed to in writing, software
#    distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
#    WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
#    License for the specific language governing permissions and limitations
#    under the License.

"""The page of an audit: in a real browser, and as text."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from os_prefilter import Flavor, Image, RequestSpec
from os_prefilter.service import Service
from os_prefilter_tools.cli.audit_page import image_page, server_page
from os_prefilter_tools.fleet.model import Fleet, Inventory, Provider, provider_uuid
from os_prefilter_tools.fleet.server import Server
from os_prefilter_tools.operators.audit.destinations import Destinations
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
    path = tmp_path_factory.mktemp("page") / "audit.html"
    path.write_text(
        image_page(hostile_audit(), [("line 3: <img src=x onerror=window.hacked=1>", True)]), encoding="utf-8"
    )
    return path


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
    path.write_text(server_page(audited, [(name, False) for name in HOSTILE[:2]]), encoding="utf-8")
    return path


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
    rows = driver.execute_script("return document.querySelector('tbody').rows.length")
    assert rows == (2 * (len(HOSTILE) + 3) if which == "hostile" else len(HOSTILE) + 3)
    assert requests(driver, path) == [path.as_uri()]
    assert driver.get_log("browser") == []
    assert driver.execute_script("return window.hacked") is None
    assert driver.execute_script("return document.querySelectorAll('img, svg, b, i, iframe, a, link').length") == 0
    assert driver.execute_script("return document.scripts.length") == 0
    text = driver.execute_script("return document.body.textContent")
    for name in HOSTILE:
        assert name in text or ascii(name)[1:-1] in text
    assert not re.search("[\u202a-\u202e\u2066-\u2069\x00\x1b]", text)


# What scrolls, and where the heads are then.
_SCROLLED = """
    const box = document.querySelector('.scroll');
    box.scrollIntoView(); box.scrollLeft = 500; box.scrollTop = 300;
    return box.querySelector('thead th').getBoundingClientRect().top - box.getBoundingClientRect().top;
"""


@pytest.mark.parametrize("width", [360, 1280])
@_BOTH_PAGES
def test_page_fits_the_window_and_its_heads_stay_in_sight(
    driver: Any, which: str, width: int, request: pytest.FixtureRequest
) -> None:
    """The table scrolls in its own box."""
    show(driver, request.getfixturevalue(which), width=width, dark=width == 360)
    content, window = driver.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
    assert content <= window == width
    assert abs(driver.execute_script(_SCROLLED)) <= 2


def test_page_has_no_external_reference_and_its_policy_allows_no_script() -> None:
    text = image_page(hostile_audit(), [])
    assert not re.findall(r"<[^>]* (?:src|href)=|<script|@import|url\(", text)
    assert "Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; base-uri" in text
