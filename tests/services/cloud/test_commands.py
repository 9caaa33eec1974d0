# SPDX-License-Identifier: Apache-2.0

"""The commands of ``os-prefilter`` on a live cloud: its hosts, images, flavors
and servers; nothing is written.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from os_prefilter_tools.cli.main import main
from tests.services.cloud.cloud import Cloud
from tests.support.commands import json_of

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def servers(whole_cloud: Cloud) -> dict[str, str]:
    """Make images, flavors, and servers of them; return the name of an image
    -> the ID of its server.
    """
    made = {}
    for flavor, name, specs, properties in (
        (
            "of-drawing",
            "рисунок",
            {"resources:VGPU": "1"},
            {"hw_vif_model": "igb", "hw_time_hpet": "yes"},
        ),
        (
            "of-impossible",
            "impossible <b>",
            {},
            {"hw_architecture": "aarch64", "hw_time_hpet": "yes"},
        ),
        ("of-igb", "igb", {}, {"hw_vif_model": "igb"}),
    ):
        image = whole_cloud.image(name, active=True, **properties)
        whole_cloud.flavor(f"for {name}", flavor, specs)
        made[name] = whole_cloud.server(flavor, image)
    return made


@pytest.fixture
def cloud(
    servers: dict[str, str],
    cloud: Cloud,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Cloud:
    """Return the cloud with these, as long as a test lasts, which runs in an
    empty folder.
    """
    assert servers
    monkeypatch.chdir(tmp_path)
    return cloud


def _json(capsys: Capture, *argv: str, code: int = 0) -> Any:
    return json_of(capsys, *argv, "--os-cloud", "admin", code=code)


_NAMED = ["--image", "рисунок", "--flavor", "for рисунок"]


def test_candidates_are_those_of_the_live_placement(
    cloud: Cloud, servers: dict[str, str], capsys: Capture
) -> None:
    for argv in (_NAMED, ["--server", servers["рисунок"]]):
        assert [row["Host"] for row in _json(capsys, "candidates", *argv)] == [
            "gpu-nova-1"
        ]
    assert any(
        "/allocation_candidates?" in each for each in cloud.placement.sent
    )
    for name, code in (("intel-nic", 0), ("impossible", 2)):
        assert main(["candidates", "--example", name, "-f", "json"]) == code
        embedded = json.loads(capsys.readouterr().out)
        assert (
            _json(capsys, "candidates", "--example", name, code=code)
            == embedded
        )
    assert cloud.written == []


def test_trait_scope_follows_the_live_placement(
    cloud: Cloud, capsys: Capture
) -> None:
    """The example fleet has nested devices."""
    argv = [
        "candidates",
        "--os-cloud",
        "admin",
        "--property",
        "hw_vif_model=igb",
        "--filter",
        "image_metadata",
    ]
    assert main(argv) == 0
    of_the_group = re.compile(r"[?&]required=COMPUTE_NET_VIF_MODEL_IGB")
    err = capsys.readouterr().err
    assert "root_required=COMPUTE_NET_VIF_MODEL_IGB" in err
    assert not of_the_group.search(err)

    def flat(_method: str, url: str) -> tuple[int, object] | None:
        if "MISC_SHARES_VIA_AGGREGATE" in url:
            return 200, {"traits": []}
        return (
            (200, {"resource_providers": []})
            if "required=%21COMPUTE_NODE" in url
            else None
        )

    cloud.placement.before = flat
    assert main(argv) == 0
    assert of_the_group.search(capsys.readouterr().err)
    assert cloud.written == []


def test_trait_unknown_to_the_cloud_is_not_created_and_no_host_remains(
    cloud: Cloud, capsys: Capture
) -> None:
    """Where it is required, no host has it."""
    argv = [
        "candidates",
        "--property",
        "hw_vm_mode=xen",
        "--os-cloud",
        "admin",
        "--config-file",
        "conf",
    ]
    options = (
        "enabled_filters = image_metadata\nreported_traits ="
        " *\nwait_for_reports = false\n"
    )
    Path("conf").write_text(f"[prefilter]\n{options}")
    assert main(argv) == 2
    err = capsys.readouterr().err
    assert (
        "No host has CUSTOM_VM_MODE_XEN, which Placement does not know; it was"
        " not asked." in err
    )
    assert "Hosts of the cloud that remain: 0." in err
    assert not any(
        "/allocation_candidates" in each for each in cloud.placement.sent
    )
    assert cloud.written == []


_WRONG = [
    ("--os-cloud nosuch --image x", "The cloud 'nosuch' cannot be used"),
    (
        "--os-cloud wrong-password --image x",
        (
            "The cloud 'wrong-password' cannot be used: Keystone refused the"
            " login"
        ),
    ),
    (
        "--os-cloud down --image x",
        "Check that the service runs and is reachable",
    ),
    (
        "--os-cloud admin --image nosuch-image",
        "--image: there is no image 'nosuch-image', neither in this cloud",
    ),
    (
        "--os-cloud admin --flavor nosuch-flavor",
        "--flavor: there is no flavor 'nosuch-flavor'",
    ),
    ("--os-cloud admin --server name", "--server: 'name' is no ID"),
    ("--server 0", "--server: it needs a cloud to ask. Give --os-cloud NAME."),
    ("--image рисунок", "there is no such file"),
    (
        "--os-cloud reader --property a=b",
        "Placement refused GET /traits with status 403",
    ),
]


@pytest.mark.usefixtures("cloud")
@pytest.mark.parametrize(("argv", "message"), _WRONG)
def test_errors_print_one_line_and_exit_with_code_1(
    argv: str, message: str, capsys: Capture
) -> None:
    assert (
        main(["candidates" if "admin" in argv else "explain", *argv.split()])
        == 1
    )
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert message in err


def test_audit_evaluates_cloud_images_on_cloud_hosts_and_writes_nothing(
    cloud: Cloud, capsys: Capture
) -> None:
    assert (
        main(
            [
                "audit",
                "--os-cloud",
                "admin",
                "--flavor",
                "for igb",
                "-f",
                "json",
            ]
        )
        == 2
    )
    out, err = capsys.readouterr()
    lines = {
        name: line
        for line in json.loads(out)["lines"]
        for name in line["Images"]
    }
    assert (
        lines["igb"]["Before"],
        lines["igb"]["After"],
        lines["igb"]["Flavor"],
    ) == (11, 5, "for igb")
    assert lines["impossible <b>"]["Verdict"] == "becomes unschedulable"
    assert "Hosts: 11 (13 resource providers) of the cloud " in err
    assert "Only traits were read" in err
    sent = [
        each.partition("?")[0]
        for each in cloud.placement.sent
        if "/resource_providers/" in each
    ]
    assert not [
        each
        for each in sent
        if each.endswith(("/inventories", "/usages", "/traits"))
    ]
    assert cloud.written == []


def test_diagnose_names_the_conflicting_traits_of_a_failed_server(
    cloud: Cloud, servers: dict[str, str], capsys: Capture
) -> None:
    found = _json(
        capsys, "diagnose", "--server", servers["impossible <b>"], code=2
    )
    assert (found["stage"], found["hosts"], found["candidates"]) == (
        "no-candidates",
        11,
        [],
    )
    names = {
        each["number"]: each["names"][0] for each in found["requirements"]
    }
    (conflict,) = found["conflicts"]
    assert {names[number] for number in conflict["requirements"]} == {
        "CUSTOM_COMPUTE_TIME_HPET",
        "HW_ARCH_AARCH64",
    }
    assert conflict["ever"]
    assert sum(each["count"] for each in found["accounts"]) == 11
    assert any(
        note.startswith("The fleet was read at ") for note in found["notes"]
    )
    found = _json(
        capsys,
        "diagnose",
        "--extra-spec",
        "trait:CUSTOM_NOWHERE=required",
        code=2,
    )
    assert found["stage"] == "refused"
    assert "CUSTOM_NOWHERE" in found["message"]
    assert [
        each["state"]
        for each in found["requirements"]
        if each["names"] == ["CUSTOM_NOWHERE"]
    ] == ["unknown"]
    assert cloud.written == []
