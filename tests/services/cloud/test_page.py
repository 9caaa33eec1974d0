# SPDX-License-Identifier: Apache-2.0

"""What docs/fleet.rst says of a live cloud is true."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from os_prefilter_tools.cli.main import main
from tests.services.cloud.cloud import Cloud
from tests.support.pages import DOCS, files_of

_PAGE = DOCS / "fleet.rst"


@pytest.fixture(scope="module")
def names(whole_cloud: Cloud) -> dict[str, str]:
    """Make the image and the flavor of the page; return what commands can
    name.
    """
    properties = {"hw_vif_model": "igb", "hw_time_hpet": "yes"}
    image = whole_cloud.image("ubuntu-24.04", active=True, **properties)
    whole_cloud.flavor("gpu.small", "of-the-page", {"resources:VGPU": "1"})
    server = whole_cloud.server("of-the-page", image)
    return {"image": image, "server": server}


@pytest.mark.usefixtures("names")
def test_live_cloud_page_examples_print_what_the_page_shows(
    cloud: Cloud,
) -> None:
    assert cloud.check_examples(_PAGE) >= 3
    assert cloud.written == []


@pytest.mark.usefixtures("names")
def test_commands_of_the_page_for_nova_run_on_the_cloud_as_written(
    cloud: Cloud,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """They need no file but prefilter.conf, and judge the cloud's own images on its
    own hosts.
    """
    monkeypatch.chdir(tmp_path)
    page = DOCS / "nova.rst"
    (tmp_path / "prefilter.conf").write_text(files_of(page)["nova.conf"])
    commands = re.findall(
        r"^    os-prefilter (.*--os-cloud mycloud.*)$",
        page.read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert [command.split()[0] for command in commands] == [
        "snapshot",
        "audit",
        "readiness",
        "audit",
        "explain",
    ]
    for command in commands:
        words = command.replace("mycloud", "admin")
        assert main(shlex.split(words)) in (0, 2)
        out, err = capsys.readouterr()
        assert "on 11 hosts." in err or not command.startswith("audit")
        assert "ubuntu-24.04" in out or not command.startswith("audit")
    assert cloud.written == []


_REQUESTS = [
    # The command, requests to Placement, to Glance, to Nova.
    (["explain", "--property", "a=b"], (6, 0, 0)),
    (["candidates", "--property", "a=b"], (9, 0, 0)),
    (["candidates", "--property", "hw_time_hpet=yes"], (9, 0, 0)),
    (["explain", "--image", "{image}"], (6, 1, 0)),
    (["explain", "--image", "ubuntu-24.04"], (6, 2, 0)),
    (["explain", "--flavor", "of-the-page"], (6, 0, 1)),
    (["explain", "--server", "{server}"], (6, 1, 1)),
]


def test_each_command_sends_the_expected_number_of_requests(
    cloud: Cloud, names: dict[str, str], capsys: Any
) -> None:
    versions = re.compile(r"GET (/|/v2/?|/v2\.1/?)$")
    for argv, expected in _REQUESTS:
        cloud.forget()
        assert (
            main(
                [
                    *(each.format_map(names) for each in argv),
                    "--os-cloud",
                    "admin",
                ]
            )
            == 0
        )
        sent = (cloud.placement.sent, cloud.glance.sent, cloud.nova.sent)
        assert (
            tuple(
                len([each for each in of if not versions.match(each)])
                for of in sent
            )
            == expected
        ), sent
    capsys.readouterr()
