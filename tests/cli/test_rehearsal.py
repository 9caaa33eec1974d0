# SPDX-License-Identifier: Apache-2.0

"""``os-prefilter audit --becoming``: rows, summaries, pages, exit codes."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from os_prefilter.hosts.marker_traits import names_of_deprecated
from tests.support.commands import Capture, Cli

# Nova brings it; it has no types.
_LXML: Any = import_module("lxml.html")
QXL = "COMPUTE_GRAPHICS_MODEL_QXL"
SIZE = {"VCPU": 8, "MEMORY_MB": 8192}
_ALL = ["COMPUTE_NODE", "COMPUTE_IMAGE_TYPE_QCOW2", "HW_ARCH_X86_64"]
_ALL += ["COMPUTE_GRAPHICS_MODEL_VGA", "COMPUTE_STORAGE_BUS_IDE"]
OLD = [*_ALL, QXL, "CUSTOM_COMPUTE_TIME_HPET"]
OLD += names_of_deprecated(["pc-1", "pc-2"])
NEW = [*_ALL, *names_of_deprecated(["pc-2"])]
HOSTS = {
    "kvm-1": {"resources": SIZE, "traits": OLD},
    "kvm-2": {"resources": SIZE, "traits": [*OLD, "CUSTOM_LICENSED"]},
    "canary": {"resources": SIZE, "traits": NEW},
}
DESKTOP = {"hw_video_model": "qxl"}
HPET = {"hw_time_hpet": "yes"}
LICENSED = {"trait:CUSTOM_LICENSED": "required"}


def image(name: str, **properties: str) -> dict[str, Any]:
    return {"name": name, "disk_format": "qcow2", "properties": properties}


def server(name: str, node: str, **properties: str) -> dict[str, Any]:
    flavor = {"name": "m1", "vcpus": 1, "memory_mb": 512, "root_gb": 0}
    return {
        "uuid": f"id-{name}",
        "name": name,
        "project": "shop",
        "node": node,
        "machine_type": name,
        "ports": [],
        "spec": {"flavor": flavor, "image": image("i", **properties)},
    }


class Rehearsal(Cli):
    """Audits of a fleet of two old hosts and a canary."""

    def __init__(self, folder: Path, capsys: Capture) -> None:
        super().__init__(folder, capsys)
        hosts = self.place("hosts.json", {"hosts": HOSTS})
        self.hosts = ["--hosts", hosts, "--enable", "image_metadata,hpet"]

    def images(self, images: list[Any], *argv: str, code: int = 0) -> Any:
        path = self.place("images.json", images)
        return self.json(
            "audit", "--images", path, *self.hosts, *argv, code=code
        )

    def servers(self, servers: list[Any], *argv: str, code: int = 0) -> Any:
        path = self.place("servers.json", servers)
        return self.json(
            "audit", "--servers", path, *self.hosts, *argv, code=code
        )


ALL = ("--becoming", "kvm-*=canary")
ONE = ("--becoming", "kvm-1=canary")


@pytest.fixture
def rehearsal(tmp_path: Path, capsys: Capture) -> Rehearsal:
    return Rehearsal(tmp_path, capsys)


def test_image_that_loses_hosts_names_trait_and_property(
    rehearsal: Rehearsal,
) -> None:
    (row,) = rehearsal.images([image("desktop", **DESKTOP)], *ONE)["lines"]
    assert (row["Before"], row["After"]) == (2, 1)
    assert row["Verdict"] == "loses hosts"
    (loss,) = row["Lost to"]
    assert loss["trait"] == QXL
    assert loss["because"] == "image property hw_video_model=qxl"
    assert loss["hosts_lacking_only_this"] == 1


def test_image_that_loses_all_hosts_is_no_all_clear(
    rehearsal: Rehearsal,
) -> None:
    found = rehearsal.images([image("desktop", **DESKTOP)], *ALL, code=2)
    (row,) = found["lines"]
    assert row["Verdict"] == "becomes unschedulable"


def test_trait_that_no_host_has_then_is_required_still(
    rehearsal: Rehearsal,
) -> None:
    """By default, commands require the opt-in traits that hosts report."""
    (row,) = rehearsal.images([image("i", **HPET)], *ALL, code=2)["lines"]
    assert (row["Before"], row["After"]) == (2, 0)
    (loss,) = row["Lost to"]
    assert loss["trait"] == "CUSTOM_COMPUTE_TIME_HPET"


def test_traits_of_operators_stay_with_their_hosts(
    rehearsal: Rehearsal,
) -> None:
    (row,) = rehearsal.images([image("i", **LICENSED)], *ALL)["lines"]
    assert (row["Before"], row["After"]) == (1, 1)


def test_trait_that_the_flavor_names_is_a_loss(rehearsal: Rehearsal) -> None:
    properties = {f"trait:{QXL}": "required"}
    flavor = rehearsal.place(
        "flavor.json",
        {
            "name": "m1",
            "vcpus": 1,
            "ram": 1,
            "disk": 0,
            "properties": properties,
        },
    )
    images = [image("plain")]
    found = rehearsal.images(images, *ALL, "--flavor", flavor, code=2)
    (loss,) = found["lines"][0]["Lost to"]
    assert (loss["trait"], loss["by"]) == (QXL, "request")


def test_server_that_loses_some_destinations_is_no_failure(
    rehearsal: Rehearsal,
) -> None:
    servers = [server("desktop", "canary", **DESKTOP)]
    found = rehearsal.servers(servers, *ONE)
    (row,) = found["lines"]
    assert (row["Before"], row["After"]) == (2, 1)
    assert row["Verdict"] == "loses destinations"
    assert row["Lost to"] == [
        {
            "text": QXL,
            "by": "image_metadata",
            "because": "image property hw_video_model=qxl",
            "hosts_lacking": 1,
        }
    ]
    assert found["summary"]["verdicts"]["loses destinations"] == 1


def test_server_that_loses_all_destinations_is_a_failure(
    rehearsal: Rehearsal,
) -> None:
    servers = [server("desktop", "kvm-1", **DESKTOP)]
    (row,) = rehearsal.servers(servers, *ALL, code=2)["lines"]
    assert (row["Before"], row["After"]) == (1, 0)
    assert row["Verdict"] == "no capable host"


def test_server_that_cannot_move_before_either_is_a_failure(
    rehearsal: Rehearsal,
) -> None:
    servers = [server("only", "kvm-2", **LICENSED)]
    (row,) = rehearsal.servers(servers, *ALL, code=2)["lines"]
    assert (row["Before"], row["After"]) == (0, 0)
    assert row["Lost to"] == []


def test_server_that_is_not_judged_is_no_all_clear_and_names_its_losses(
    rehearsal: Rehearsal,
) -> None:
    entry = server("desktop", "canary", **DESKTOP)
    del entry["ports"]
    (row,) = rehearsal.servers([entry], *ONE, code=1)["lines"]
    assert row["Verdict"] == "not judged"
    assert row["Lost to"][0]["text"] == QXL


def test_server_whose_request_is_rejected_loses_nothing(
    rehearsal: Rehearsal,
) -> None:
    text = "[prefilter]\nunknown_values = reject\n"
    conf = rehearsal.place("nova.conf", text)
    servers = [server("odd", "kvm-1", **{"trait:a,b": "required"})]
    found = rehearsal.servers(servers, *ALL, "--config-file", conf, code=2)
    (row,) = found["lines"]
    assert row["Verdict"] == "rejected by filters"
    assert row["Before"] == 0


def test_drained_hosts_are_those_of_the_upgraded_fleet(
    rehearsal: Rehearsal,
) -> None:
    servers = [server("desktop", "canary", **DESKTOP)]
    found = rehearsal.servers(servers, *ONE, "--without", "kvm-2", code=2)
    (row,) = found["lines"]
    assert row["Without"] == 0
    assert row["Verdict"] == "none without the drained hosts"


def test_machine_types_that_are_gone_and_marked_are_apart(
    rehearsal: Rehearsal,
) -> None:
    servers = [server(name, "kvm-1") for name in ("pc-1", "pc-2", "pc-3")]
    found = rehearsal.servers(servers, *ONE)["summary"]
    types = found["deprecated_machine_types"]
    assert [each["machine_type"] for each in types["gone"]] == ["pc-1"]
    assert [each["machine_type"] for each in types["deprecated"]] == ["pc-2"]


def test_summary_names_traits_and_what_happens_meanwhile(
    rehearsal: Rehearsal,
) -> None:
    servers = [server("pc-1", "kvm-1")]
    path = rehearsal.place("servers.json", servers)
    _, err = rehearsal.run("audit", "--servers", path, *rehearsal.hosts, *ALL)
    assert err.splitlines()[-3:] == [
        "Upgraded: 2 hosts, like canary.",
        f"Traits lost: 2: {QXL} (2 hosts); CUSTOM_COMPUTE_TIME_HPET (2"
        " hosts).",
        "While only some are upgraded: 2: image_metadata, video_model:"
        f" {QXL}: enforced: excludes each from its upgrade on (2 hosts);"
        " hpet, time_hpet: CUSTOM_COMPUTE_TIME_HPET: enforced: excludes each"
        " from its upgrade on (2 hosts).",
    ]


def test_document_has_the_traits_and_the_meantime(
    rehearsal: Rehearsal,
) -> None:
    found = rehearsal.images([image("plain")], *ALL)["rehearsal"]
    assert found["upgraded"] == {"canary": ["kvm-1", "kvm-2"]}
    assert found["traits_lost"] == {QXL: 2, "CUSTOM_COMPUTE_TIME_HPET": 2}
    assert found["traits_won"] == {}
    assert [each["filter"] for each in found["meanwhile"]] == [
        "image_metadata",
        "hpet",
    ]


def test_other_audits_are_without_a_rehearsal(rehearsal: Rehearsal) -> None:
    found = rehearsal.servers([server("pc-1", "kvm-1")])
    assert "rehearsal" not in found
    assert "loses destinations" not in found["summary"]["verdicts"]
    assert "gone" not in found["summary"]["deprecated_machine_types"]
    assert "Lost to" not in found["lines"][0]


def test_page_names_losses_and_what_happens_meanwhile(
    rehearsal: Rehearsal,
) -> None:
    page = str(rehearsal.folder / "page.html")
    servers = [server("desktop", "canary", **DESKTOP)]
    rehearsal.servers(servers, *ONE, "--html", page)
    text = " ".join(_LXML.parse(page).getroot().text_content().split())
    assert "2 before, 1 after, 1 if died" in text
    assert f"{QXL}: 1 image property hw_video_model=qxl, by" in text
    assert "Upgraded: 1 host, like canary." in text
    assert "enforced: excludes each from its upgrade on" in text


@pytest.mark.parametrize("audited", ["--images", "--servers"])
def test_wrong_pattern_ends_either_audit(
    audited: str, rehearsal: Rehearsal
) -> None:
    path = rehearsal.place("list.json", [])
    err = rehearsal.error(
        "audit", audited, path, *rehearsal.hosts, "--becoming", "x*=canary"
    )
    assert err.splitlines()[-1] == (
        "--becoming: 'x*' matches no host. Give a pattern of names of hosts."
    )


def test_volumes_are_rehearsed_as_images_are(rehearsal: Rehearsal) -> None:
    volume = {
        "id": "v-1",
        "name": "root",
        "bootable": "true",
        "volume_image_metadata": DESKTOP,
    }
    path = rehearsal.place("volumes.json", json.dumps([volume]))
    found = rehearsal.json(
        "audit", "--volumes", path, *rehearsal.hosts, *ALL, code=2
    )
    assert found["lines"][0]["Verdict"] == "becomes unschedulable"
