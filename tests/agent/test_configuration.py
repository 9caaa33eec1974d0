# SPDX-License-Identifier: Apache-2.0

"""Nova's configuration in the commands ``capabilities``, and in the agent."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from os_prefilter.adapters.nova_conf import LibvirtSettings
from os_prefilter.hosts.drivers.libvirt_facts import LibvirtFacts
from os_prefilter.hosts.marker_traits import WANTED, names_with
from os_prefilter_agent.agent import Watch
from os_prefilter_agent.cli.capabilities import ReportCapabilities
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.cli.main import Program, main
from tests.support.commands import Capture, json_of
from tests.support.hosts import KVM
from tests.support.libvirt_xml import FakeLibvirt
from tests.support.placements import (
    HOST,
    Served,
    lone_host,
    nova_conf,
    served,
    traits_of,
)
from tests.support.proc import IN_CONTAINER, end, start
from tests.support.reporting_fleets import wanted_by

SHOW = ("capabilities", "show")
REPORT = ("capabilities", "report")
_Q35 = "CUSTOM_COMPUTE_DEFAULT_MACHINE_Q35"
_PC = "CUSTOM_COMPUTE_DEFAULT_MACHINE_PC"


@pytest.fixture
def libvirt(monkeypatch: pytest.MonkeyPatch) -> FakeLibvirt:
    fake = FakeLibvirt()
    monkeypatch.setitem(sys.modules, "libvirt", fake)
    return fake


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with (
        EmbeddedPlacement(lone_host("COMPUTE_NODE")) as placement,
        served(placement) as state,
    ):
        placement.know(names_with(WANTED, wanted_by()))
        yield state


class Host:
    """A libvirt host without a libvirt, as its settings say."""

    has_hpet = True

    def __init__(self, _uri: str, settings: LibvirtSettings) -> None:
        self._settings = settings

    def identity(self) -> str:
        return "the same"

    def facts(self) -> LibvirtFacts:
        guest = KVM.guests["x86_64"]
        machine = self._settings.hw_machine_type.get("x86_64", "pc")
        guest = replace(guest, default_machine=machine)
        if not self.has_hpet:
            guest = replace(
                guest, machines=frozenset(), machines_are_complete=True
            )
        return replace(
            KVM,
            host=HOST,
            guests={"x86_64": guest},
            built_by_nova=True,
            configuration_unknown=self._settings.configuration_unknown,
        )


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> type[Host]:
    monkeypatch.setattr("os_prefilter.adapters.libvirt.host.LibvirtHost", Host)
    monkeypatch.setattr(Host, "has_hpet", True)
    return Host


def test_the_order_of_both_options_is_kept() -> None:
    parser = ReportCapabilities(Program("0"), None).get_parser("report")
    argv = "--config-dir=d --config-file f --config-dir e --config-file=g"
    assert parser.parse_args(argv.split()).configuration == (
        *("--config-dir", "d", "--config-file", "f"),
        *("--config-dir", "e", "--config-file", "g"),
    )


@pytest.mark.parametrize("option", ["--config-file", "--config-dir"])
def test_an_empty_path_is_an_error(option: str, capsys: Capture) -> None:
    assert main([*SHOW, f"{option}="]) == 1
    assert f"{option}: the value is empty" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--config-file", "--config-dir"])
def test_a_missing_path_is_named(
    option: str, tmp_path: Path, capsys: Capture
) -> None:
    assert main([*SHOW, option, str(tmp_path / "none")]) == 1
    assert f"{tmp_path}/none" in capsys.readouterr().err


@pytest.mark.usefixtures("home", "proc", "libvirt")
def test_a_host_without_configuration_is_shown_by_novas_defaults(
    capsys: Capture,
) -> None:
    shown = {
        row["Trait"]: row["Host has it"] for row in json_of(capsys, *SHOW)
    }
    assert shown[_PC] == "yes"
    assert "not known" not in {
        answer for trait, answer in shown.items() if "DEFAULT_MACHINE" in trait
    }


@pytest.mark.usefixtures("libvirt")
def test_a_host_is_shown_by_all_files_of_its_nova_compute(
    home: Path, proc: Path, capsys: Capture
) -> None:
    (home / "nova.conf").write_text("[libvirt]\nhw_machine_type=x86_64=pc\n")
    second = home / "second.conf"
    second.write_text("[libvirt]\nhw_machine_type=x86_64=q35\n")
    words = (f"--config-file={home}/nova.conf", f"--config-file={second}")
    start(proc, 10, "nova-compute", *words)
    shown = {
        row["Trait"]: row["Host has it"] for row in json_of(capsys, *SHOW)
    }
    assert shown[_Q35] == "yes"
    given = ("--config-file", f"{home}/nova.conf")
    assert main([*SHOW, *given]) == 0
    err = capsys.readouterr().err
    assert "nova-compute (process 10) was started to read" in err


@pytest.mark.usefixtures("libvirt", "home")
def test_a_container_leaves_all_but_the_processor_unknown(
    proc: Path, capsys: Capture
) -> None:
    start(proc, 10, "nova-compute", mounts=IN_CONTAINER)
    assert main([*SHOW, "-f", "csv", "--quote", "minimal"]) == 0
    out, err = capsys.readouterr()
    reason = (
        "nova-compute's configuration is not known: nova-compute (process 10):"
        " it runs in a container, whose files are not visible here"
    )
    answers = {
        trait: rest
        for trait, _, rest in (
            line.partition(",") for line in out.splitlines()[1:]
        )
        if rest != "not owned" and "not owned" not in rest
    }
    assert answers.pop("HW_ARCH_X86_64") == "yes,"
    others = {trait for trait in answers if not trait.startswith("HW_ARCH_")}
    assert {answers[trait] for trait in others} == {f'not known,"{reason}"'}
    assert _PC in others
    assert "What nova-compute is configured to do is not known" in err


def _configure(home: Path, server: Served, machine: str) -> None:
    (home / "nova.conf").write_text(
        f"{nova_conf(server.url)}[libvirt]\nhw_machine_type = x86_64={machine}"
    )


def test_a_container_takes_no_trait_away(
    home: Path,
    proc: Path,
    server: Served,
    host: type[Host],
    capsys: Capture,
) -> None:
    """Whatever has changed: what is not known is no no."""
    _configure(home, server, "q35")
    json_of(capsys, *REPORT)
    before = traits_of(server.placement)
    assert {_Q35, "CUSTOM_COMPUTE_TIME_HPET"} <= before
    host.has_hpet = False
    (home / "nova.conf").write_text(nova_conf(server.url))
    start(proc, 10, "nova-compute", mounts=IN_CONTAINER)
    assert json_of(capsys, *REPORT) == []
    assert traits_of(server.placement) == before
    end(proc, 10)
    json_of(capsys, *REPORT)
    after = traits_of(server.placement)
    assert _PC in after
    assert not after & {_Q35, "CUSTOM_COMPUTE_TIME_HPET"}


@pytest.mark.usefixtures("host")
def test_no_file_for_nova_compute_is_written_by_an_unknown_configuration(
    home: Path, proc: Path, server: Served, tmp_path: Path, capsys: Capture
) -> None:
    _configure(home, server, "q35")
    path = tmp_path / "x.yaml"
    argv = (*REPORT, "--provider-config", str(path))
    assert main([*argv]) == 0
    written = path.read_text()
    start(proc, 10, "nova-compute", mounts=IN_CONTAINER)
    assert main([*argv]) == 1
    assert "x.yaml is not written: What nova-compute is" in (
        capsys.readouterr().err
    )
    assert path.read_text() == written


@pytest.mark.usefixtures("host", "home")
def test_a_report_without_a_placement_says_why_it_reads_none(
    proc: Path, capsys: Capture
) -> None:
    assert main([*REPORT]) == 1
    assert "no Placement: give --config-file FILE" in capsys.readouterr().err
    start(proc, 10, "nova-compute", mounts=IN_CONTAINER)
    assert main([*REPORT]) == 1
    assert (
        "nova-compute (process 10): it runs in a container, whose files are"
        " not visible here: give --config-file FILE" in capsys.readouterr().err
    )


def test_each_round_follows_what_nova_compute_was_started_with(  # noqa: PLR0913, PLR0917
    home: Path,
    proc: Path,
    server: Served,
    host: type[Host],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its end changes nothing, and what is hidden takes nothing away."""
    caplog.set_level("INFO", "os_prefilter_agent.agent")
    _configure(home, server, "pc")
    start(proc, 10, "nova-compute")
    other = home / "other.conf"
    other.write_text("[libvirt]\nhw_machine_type = x86_64=q35\n")
    found = []

    def run(watch: Watch) -> None:
        def traits() -> set[str]:
            watch.round()
            return {_PC, _Q35} & traits_of(server.placement)

        found.append(traits())
        end(proc, 10)
        found.append(traits())
        words = ("--config-file", str(home / "nova.conf"))
        start(proc, 20, "nova-compute", *words, "--config-file", str(other))
        found.append(traits())
        end(proc, 20)
        start(proc, 30, "nova-compute", mounts=IN_CONTAINER)
        _configure(home, server, "pc")
        host.has_hpet = False
        found.append(traits())
        found.append(traits())

    monkeypatch.setattr("os_prefilter_agent.agent.run_until_signal", run)
    monkeypatch.setattr(
        "os_prefilter_agent.cli.capabilities._set_up_logging", lambda *_: None
    )
    assert main([*REPORT, "--watch", "60"]) == 0
    assert found == [{_PC}, {_PC}, {_Q35}, {_Q35}, {_Q35}]
    assert "CUSTOM_COMPUTE_TIME_HPET" in traits_of(server.placement)
    unknown = [
        each for each in caplog.messages if "configured to do is not" in each
    ]
    assert len(unknown) == 1
    assert sum("Reloaded" in each for each in caplog.messages) == 2
