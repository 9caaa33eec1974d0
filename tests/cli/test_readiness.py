# SPDX-License-Identifier: Apache-2.0

"""``readiness``: the table for people, all names for machines, and exit
codes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from os_prefilter.hosts.marker_traits import WANTED, marker_key, names_with
from os_prefilter.vocabulary import HPET
from os_prefilter.vocabulary.model import RESERVED
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.cli.main import main
from os_prefilter_tools.operators.readiness import (
    configured_filters,
    find_unwanted,
)
from tests.conftest import conf_with
from tests.support.commands import Capture, Cli, placed
from tests.support.every_trait import marker_of
from tests.support.placements import lone_host, served
from tests.support.reporting_fleets import wanted_by


def _fleet(path: Path, **hosts: list[str]) -> str:
    body = {
        name: {
            "resources": {"VCPU": 8, "MEMORY_MB": 4096},
            "traits": ["COMPUTE_NODE", *traits],
        }
        for name, traits in hosts.items()
    }
    return placed(path / "fleet.json", {"hosts": body})


@pytest.fixture
def fleet(tmp_path: Path) -> str:
    silent = {
        f"old{number}": ["COMPUTE_IMAGE_TYPE_RAW"] for number in range(5)
    }
    return _fleet(
        tmp_path, new=[marker_of(HPET, "COMPUTE_IMAGE_TYPE_RAW")], **silent
    )


def _conf(tmp_path: Path, *lines: str) -> str:
    return placed(
        tmp_path / "nova.conf", "\n".join(("[prefilter]", *lines, ""))
    )


def test_table_lists_three_compute_nodes_and_the_number_of_the_rest(
    fleet: str, cli: Cli
) -> None:
    out, err = cli.run(
        "readiness",
        "--hosts",
        fleet,
        "--filter",
        "hpet,image_type,compute_status",
    )
    assert "old0, old1, old2 and 2 more" in out
    looked_at, _, told = err.partition("\n")
    assert looked_at == f"Hosts: 6 (6 resource providers) of {fleet}."
    assert (
        told
        == "1 enforced, 1 deferred.\nThese filters need no capability reports:"
        " compute_status.\n"
    )


@pytest.mark.parametrize(
    ("names", "argv", "code"),
    [
        ("hpet", [], 0),
        ("hpet", ["--check"], 2),
        ("image_type", ["--check"], 0),
        ("owner", ["--check"], 2),
    ],
)
def test_exit_code_is_2_only_with_check_and_a_deferred_row(
    names: str, argv: list[str], code: int, fleet: str
) -> None:
    assert (
        main(["readiness", "--hosts", fleet, "--filter", names, *argv]) == code
    )


@pytest.mark.parametrize("command", ["candidates", "diagnose"])
def test_candidates_and_diagnose_say_what_is_not_required_yet(
    command: str, fleet: str, tmp_path: Path, capsys: Capture
) -> None:
    conf = _conf(tmp_path, "enabled_filters = hpet,owner")
    assert (
        main(
            [
                command,
                "--property",
                "hw_time_hpet=yes",
                "--config-file",
                conf,
                "--hosts",
                fleet,
            ]
        )
        == 0
    )
    said = "".join(capsys.readouterr())
    assert (
        "CUSTOM_COMPUTE_TIME_HPET is not required yet: 5 compute nodes (among"
        " them old0, old1, old2)" in said
    )
    assert (
        "not every compute node has OWNER_NOVA yet: not required yet" in said
    )
    # Without a section it shows what is enforced once nothing is deferred.
    assert (
        main(
            [
                command,
                "--property",
                "hw_time_hpet=yes",
                "--filter",
                "hpet",
                "--hosts",
                fleet,
            ]
        )
        == 2
    )
    assert "is not required yet" not in "".join(capsys.readouterr())


def test_fleet_without_compute_nodes_is_reported_with_exit_code_2(
    tmp_path: Path, capsys: Capture
) -> None:
    file = placed(
        tmp_path / "fleet.yaml", "hosts: {a: {resources: {VCPU: 1}}}"
    )
    assert (
        main(["readiness", "--hosts", file, "--filter", "hpet", "--check"])
        == 2
    )
    assert (
        "There is no compute node: no host has the trait COMPUTE_NODE.\n"
        in capsys.readouterr().err
    )


def test_a_filter_of_the_file_is_ready_where_hosts_reported_it_alone(
    tmp_path: Path, cli: Cli
) -> None:
    conf = _conf(
        tmp_path,
        "enabled_filters = image_metadata, hpet",
        "reported_traits = *",
    )
    fleet = _fleet(tmp_path, host=[marker_of(HPET)])
    (line,) = cli.json(
        "readiness",
        "--hosts",
        fleet,
        "--config-file",
        conf,
        "--filter",
        "hpet",
    )
    assert (line["State"], line["Traits"], line["Not reported"]) == (
        "enforced",
        [HPET],
        0,
    )


@pytest.mark.parametrize("names", ["enabled_filters", "shadow_filters"])
def test_wishes_of_other_sections_are_named_and_removed_if_asked_for(
    names: str,
    tmp_path: Path,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And report markers that no provider has; those in use stay, and so do
    the traits themselves.
    """
    conf = _conf(tmp_path, f"{names} = hpet")
    options = {"enabled_filters": ["hpet"], "reported_traits": []}
    mine, other = names_with(WANTED, wanted_by(**options))[0], f"{WANTED}ABCDE"
    unused, used = marker_of("CUSTOM_VM_MODE_HVM"), marker_of(HPET)
    with (
        EmbeddedPlacement(lone_host(f"COMPUTE_NODE {used}")) as placement,
        served(placement) as server,
    ):
        placement.know({mine, other, unused, HPET})
        cloud = {
            "auth_type": "admin_token",
            "auth": {"endpoint": server.url, "token": "admin"},
        }
        clouds = {
            "clouds": {
                "ours": {**cloud, "placement_endpoint_override": server.url}
            }
        }
        monkeypatch.setenv(
            "OS_CLIENT_CONFIG_FILE", placed(tmp_path / "clouds.yaml", clouds)
        )
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        argv = ["readiness", "--os-cloud", "ours", "--config-file", conf]
        assert main(argv) == 0
        said = (
            f"In Placement, and not wanted by this section: {other}, {unused}."
            " --forget-unwanted removes them."
        )
        assert said in capsys.readouterr().err
        assert main([*argv, "--forget-unwanted"]) == 0
        assert (
            f"Removed from Placement: {other}, {unused}."
            in capsys.readouterr().err
        )
        assert {
            name
            for name in placement.client.custom_traits()
            if name.startswith(RESERVED)
        } == {mine, used}
        assert HPET in placement.client.traits()
    assert main(["readiness", "--filter", "hpet", "--forget-unwanted"]) == 1
    assert (
        "--forget-unwanted: give --os-cloud, and --config-file"
        in capsys.readouterr().err
    )


def test_filters_in_shadow_are_listed(
    fleet: str, tmp_path: Path, cli: Cli
) -> None:
    """Their hosts must report before they are enabled."""
    conf = _conf(
        tmp_path, "enabled_filters = image_type", "shadow_filters = hpet"
    )
    lines = cli.json("readiness", "--hosts", fleet, "--config-file", conf)
    assert {line["Filter"] for line in lines} == {"image_type", "hpet"}


def _unwanted(*names: str, **options: object) -> tuple[list[str], list[str]]:
    section = {"enabled_filters": ["hpet"], "reported_traits": [], **options}
    return find_unwanted(names, *configured_filters(conf_with(**section)))


_KEY = {
    trait: marker_key((trait,))
    for trait in (HPET, "CUSTOM_VM_MODE_HVM", "CUSTOM_VM_MODE_XEN")
}
_OTHER = f"{WANTED}{_KEY['CUSTOM_VM_MODE_HVM']}"
_WITH_BOTH = names_with(WANTED, [_KEY[HPET], _KEY["CUSTOM_VM_MODE_HVM"]])[0]
_MINE = names_with(
    WANTED, wanted_by(enabled_filters=["hpet"], reported_traits=[])
)[0]


def test_wish_for_a_part_of_the_section_is_wanted() -> None:
    """As of a scheduler whose section has fewer filters, and has not been
    restarted yet.
    """
    names, rows = _unwanted(f"{WANTED}{_KEY[HPET]}", _MINE)
    assert names == []
    assert rows == []


def test_rows_of_unwanted_wishes_are_named() -> None:
    names, rows = _unwanted(_MINE, _OTHER, f"{WANTED}ABCDE")
    assert set(names) == {_OTHER, f"{WANTED}ABCDE"}
    assert rows == ["vm_mode"]


def test_row_that_another_wish_wants_too_is_not_among_those_that_agents_stop_reporting() -> (
    None
):
    """That wish stays, as Placement would lack a part of the section without
    it.
    """
    names, rows = _unwanted(_WITH_BOTH, _OTHER)
    assert names == [_OTHER]
    assert rows == []


def test_wish_for_more_than_the_section_goes_once_the_section_has_one_of_its_own() -> (
    None
):
    names, rows = _unwanted(_WITH_BOTH, _MINE)
    assert names == [_WITH_BOTH]
    assert rows == ["vm_mode"]
