# SPDX-License-Identifier: Apache-2.0

"""The documentation as a site: it builds, and its generated pages have what
the code has.
"""

from __future__ import annotations

import html
import re
import subprocess
import sys
from pathlib import Path

import pytest

from os_prefilter.hosts.capabilities import REPORTERS
from os_prefilter.service.loading import NAMESPACE
from os_prefilter.service.option_definitions import OPTIONS
from tests.support.pages import DOCS, installed_by_us
from tests.support.project import our_commands


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for name in ("sphinx", "openstackdocstheme", "reno"):
        pytest.importorskip(name)
    folder = tmp_path_factory.mktemp("site")
    options = ["-W", "-n", "-q", "-b", "html", "-d", str(folder / "doctrees")]
    arguments = [
        sys.executable,
        "-m",
        "sphinx",
        *options,
        str(DOCS),
        str(folder / "html"),
    ]
    done = subprocess.run(
        arguments, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr
    # oslo.config's extension lets no mistake in the help of an option fail the
    # build.
    assert not re.search(r"\b(WARNING|ERROR):", done.stderr), done.stderr
    return folder / "html"


def text_of(page: Path) -> str:
    """Return the text of a built page, all of it with single spaces."""
    return " ".join(
        html.unescape(
            re.sub(r"<[^>]*>", "", page.read_text(encoding="utf-8"))
        ).split()
    )


def test_pages_build_without_warnings(site: Path) -> None:
    """Sphinx builds the pages, and finds no broken reference among them; those
    made from the code are not empty.
    """
    assert "COMPUTE_NET_VIF_MODEL_E1000E" in text_of(site / "vocabulary.html")
    # OpenStack's theme would count readers, and load its search, from
    # elsewhere.
    index = (site / "index.html").read_text(encoding="utf-8")
    assert not re.search(
        r"googletagmanager|embed\.min\.js|src=.(https?:)?//", index
    )


def test_every_config_option_is_documented_and_can_be_linked_to(
    site: Path,
) -> None:
    text = (site / "options.html").read_text(encoding="utf-8")
    for option in OPTIONS:
        assert f'id="prefilter.{option.name}"' in text
    assert 'href="options.html#prefilter.reported_traits"' in (
        site / "vocabulary.html"
    ).read_text(encoding="utf-8")


def test_each_plugin_and_each_command_is_described(site: Path) -> None:
    plugins = (site / "reference.html").read_text(encoding="utf-8")
    for name in (*installed_by_us(NAMESPACE), *installed_by_us(REPORTERS)):
        assert re.search(rf">{name}<", plugins)
    commands = text_of(site / "commands.html")
    for name in our_commands():
        assert f"openstack prefilter {name}" in commands
