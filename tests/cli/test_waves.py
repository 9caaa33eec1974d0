# SPDX-License-Identifier: Apache-2.0

"""``os-prefilter audit --becoming --waves``: output, pages, bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import Capture, Cli

_SIZE = {"VCPU": 2, "MEMORY_MB": 2048}
_NEW = ["COMPUTE_NODE", "COMPUTE_GRAPHICS_MODEL_VGA"]
_OLD = [*_NEW, "COMPUTE_GRAPHICS_MODEL_QXL"]
HOSTS = {
    "kvm-1": {"resources": _SIZE, "traits": [*_OLD, "CUSTOM_ONLY"]},
    "kvm-2": {"resources": _SIZE, "traits": _OLD},
    "kvm-3": {"resources": _SIZE, "traits": _OLD},
    "canary": {"resources": _SIZE, "traits": _NEW},
}
QXL = {"hw_video_model": "qxl"}
ONLY = {"trait:CUSTOM_ONLY": "required"}


def server(name: str, node: str, vcpus: int, **properties: str) -> Any:
    flavor = {"name": "m1", "vcpus": vcpus, "memory_mb": 512, "root_gb": 0}
    return {
        "uuid": f"id-{name}",
        "name": name,
        "project": "shop",
        "node": node,
        "ports": [],
        "spec": {"flavor": flavor, "image": {"properties": properties}},
    }


class Waves(Cli):
    def __init__(self, folder: Path, capsys: Capture) -> None:
        super().__init__(folder, capsys)
        self.hosts = ["--hosts", self.place("hosts.json", {"hosts": HOSTS})]

    def options(self, servers: list[Any], pattern: str) -> list[str]:
        path = self.place("servers.json", servers)
        becoming = ["--becoming", f"{pattern}=canary"]
        enabled = ["--enable", "image_metadata"]
        return ["audit", "--servers", path, *self.hosts, *enabled, *becoming]

    def find(
        self, servers: list[Any], pattern: str, most: int, code: int = 0
    ) -> Any:
        options = self.options(servers, pattern)
        found = self.json(*options, "--waves", str(most), code=code)
        return found["waves"]


@pytest.fixture
def waves(tmp_path: Path, capsys: Capture) -> Waves:
    return Waves(tmp_path, capsys)


def test_wave_has_as_many_hosts_as_fit_on_the_rest(waves: Waves) -> None:
    servers = [server(n, f"kvm-{n}", 1) for n in "123"]
    found = waves.find(servers, "kvm-*", 2)
    assert [len(each["hosts"]) for each in found["waves"]] == [2, 1]
    assert found["stranded"] == []
    assert found["in_the_way"] == []


def test_server_without_a_destination_is_shut_down_and_blocks_nothing(
    waves: Waves,
) -> None:
    found = waves.find([server("a", "kvm-1", 1, **ONLY)], "kvm-1", 1, code=2)
    (wave,) = found["waves"]
    assert wave["shut_down"] == [{"id": "id-a", "name": "a"}]
    assert found["stranded"] == []


def test_stranded_server_has_the_hosts_that_would_help(waves: Waves) -> None:
    servers = [server("a", "canary", 1, **QXL)]
    found = waves.find(servers, "kvm-*", 3, code=2)
    (stranded,) = found["stranded"]
    assert stranded == {
        "id": "id-a",
        "name": "a",
        "host": "canary",
        "keep": 1,
        "hosts": ["kvm-1", "kvm-2", "kvm-3"],
    }


def test_server_that_cannot_come_back_needs_a_second_destination(
    waves: Waves,
) -> None:
    """Its one destination is where it is after the wave of its host."""
    servers = [server("a", "kvm-1", 1, **QXL)]
    found = waves.find(servers, "kvm-[12]", 1, code=2)
    (stranded,) = found["stranded"]
    assert stranded["keep"] == 1
    assert stranded["hosts"] == ["kvm-1", "kvm-2"]


def test_servers_that_do_not_fit_together_are_in_the_way(
    waves: Waves,
) -> None:
    one_left = {"VCPU": 1, "MEMORY_MB": 2048}
    hosts = {
        "kvm-1": HOSTS["kvm-1"],
        "canary": {"resources": one_left, "traits": _NEW},
    }
    waves.hosts = ["--hosts", waves.place("hosts.json", {"hosts": hosts})]
    servers = [server(name, "kvm-1", 1) for name in "ab"]
    options = waves.options(servers, "kvm-1")
    out, err = waves.run(*options, "--waves", "1", "-f", "json", code=2)
    found = json.loads(out)["waves"]
    assert len(found["in_the_way"]) == 1
    assert "Moved by no order that was found: 1: " in err


def test_the_table_and_the_page_have_the_waves(waves: Waves) -> None:
    servers = [server("a", "kvm-1", 1), server("b", "kvm-1", 1, **ONLY)]
    options = waves.options(servers, "kvm-1")
    path = waves.folder / "page.html"
    _, err = waves.run(*options, "--waves", "1", "--html", str(path), code=2)
    text = "kvm-1 (2 servers, 1 of them shut down)"
    assert f"Waves: 1: {text}." in err
    assert text in path.read_text()


@pytest.mark.parametrize("value", ["0", "-1"])
def test_number_below_one_is_an_error(value: str, waves: Waves) -> None:
    options = waves.options([server("a", "kvm-1", 1)], "kvm-1")
    _, err = waves.run(*options, f"--waves={value}", code=1)
    assert f"--waves: {value} is no number of hosts. Give 1 or more." in err


@pytest.mark.parametrize("value", ["", "two", "1.5", "9" * 5000])
def test_what_is_no_number_is_an_error(value: str, waves: Waves) -> None:
    options = waves.options([server("a", "kvm-1", 1)], "kvm-1")
    _, err = waves.run(*options, f"--waves={value}", code=1)
    assert "--waves" in err


@pytest.mark.parametrize("without", ["--servers", "--becoming"])
def test_waves_of_no_upgrade_are_an_error(without: str, waves: Waves) -> None:
    options = waves.options([server("a", "kvm-1", 1)], "kvm-1")
    place = options.index(without)
    del options[place : place + 2]
    _, err = waves.run(*options, "--waves", "1", code=1)
    assert "Give --servers and --becoming as well." in err
