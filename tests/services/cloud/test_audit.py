"""An audit of a live cloud: its images, its hosts and its flavors; nothing is written."""

import json
from typing import Any

import pytest

from os_prefilter.cli.main import main
from tests.services.cloud.cloud import Cloud

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def _images(whole_cloud: Cloud) -> None:
    whole_cloud.image("audited igb", active=True, hw_vif_model="igb")
    whole_cloud.image("audited <b>", active=True, hw_architecture="aarch64", hw_time_hpet="yes")
    whole_cloud.flavor("audited", "audited", {"resources:VGPU": "1"})


def audited(capsys: Capture, *arguments: str, code: int) -> tuple[dict[str, Any], str]:
    """Return the line of each image that the tests here made, and what was said beside the table."""
    assert main(["audit", "--os-cloud", "admin", *arguments, "-f", "json"]) == code
    out, err = capsys.readouterr()
    lines = json.loads(out)
    return {name: line for line in lines for name in line["Images"] if name.startswith("audited")}, err


@pytest.mark.usefixtures("_images")
def test_audit_evaluates_cloud_images_on_cloud_hosts_and_writes_nothing(cloud: Cloud, capsys: Capture) -> None:
    lines, err = audited(capsys, code=2)
    assert (lines["audited igb"]["Before"], lines["audited igb"]["After"]) == (11, 5)
    assert lines["audited <b>"]["Verdict"] == "becomes unschedulable"
    assert "11 hosts, 13 resource providers, read at " in err
    assert "Traits alone were read" in err
    assert cloud.written == []


@pytest.mark.usefixtures("_images")
def test_audit_sends_no_placement_request_per_host(cloud: Cloud, capsys: Capture) -> None:
    audited(capsys, "--enable", "image_metadata", code=0)
    assert not [each for each in cloud.placement.sent if "/inventories" in each or "/usages" in each]
    assert not [
        each for each in cloud.placement.sent if each.partition("?")[0].endswith("/traits") and "/resource" in each
    ]


@pytest.mark.usefixtures("_images")
def test_audit_shows_the_name_of_a_cloud_flavor(cloud: Cloud, capsys: Capture) -> None:
    lines, _ = audited(capsys, "--flavor", "audited", "--enable", "owner", code=0)
    assert lines["audited igb"]["Flavor"] == "audited"
    assert cloud.written == []


def test_audit_of_an_unreachable_cloud_prints_one_error_line(cloud: Cloud, capsys: Capture) -> None:
    assert main(["audit", "--os-cloud", "down"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
