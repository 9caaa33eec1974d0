# SPDX-License-Identifier: Apache-2.0

"""``capabilities report`` to a real Placement or a file, and as a service."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from os_prefilter.adapters.placement.trait_sync import SECOND_LOOK
from os_prefilter.common.errors import ProbeFailed
from os_prefilter.hosts.drivers.fake import FakeFacts
from os_prefilter.hosts.drivers.libvirt_facts import LibvirtFacts
from os_prefilter.hosts.marker_traits import (
    NOT_CONFIGURED,
    REPORTED,
    WANTED,
    groups_by_trait,
    marker_key,
    names_noting,
    names_with,
)
from os_prefilter.vocabulary.config_templates import BUNDLED
from os_prefilter_agent.agent import Watch
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.cli.main import main
from os_prefilter_tools.fleet.model import provider_uuid
from tests.support.commands import Capture, json_of, placed
from tests.support.hosts import KVM, X86
from tests.support.placements import (
    HOST,
    UUID,
    Served,
    everything,
    lone_host,
    nova_conf,
    put_traits,
    served,
    traits_of,
)
from tests.support.processes import started
from tests.support.programs import until
from tests.support.reporting_fleets import wanted_by

FAKE = ("capabilities", "report", "--driver", "fake")
# What Nova's fake driver does not report by itself and the filters may
# require, and the markers and the note of that.
_CUSTOM = ("CUSTOM_HYPERVISOR_TYPE_FAKE", "CUSTOM_VM_MODE_HVM")
_ABILITIES = (*_CUSTOM, "HW_ARCH_X86_64")
_KEYS = wanted_by() - {NOT_CONFIGURED}
BY_REPORTS = {
    *_ABILITIES,
    *names_noting(_ABILITIES),
    *names_with(REPORTED, _KEYS),
}
# Nova takes no standard traits from a file.
_ARCHITECTURES = groups_by_trait(BUNDLED)["HW_ARCH_X86_64"].keys
BY_FILE = {
    *_CUSTOM,
    *names_noting(_CUSTOM),
    *names_with(REPORTED, _KEYS - _ARCHITECTURES),
}
OLD = {"COMPUTE_NODE", "CUSTOM_OF_AN_OPERATOR"}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with (
        EmbeddedPlacement(lone_host(" ".join(OLD))) as placement,
        served(placement) as state,
    ):
        yield state


@pytest.fixture
def aware(server: Served) -> Served:
    """Return the server with what schedulers want.

    It also has each trait that a report creates.
    """
    server.placement.know({*names_with(WANTED, wanted_by()), *BY_REPORTS})
    return server


@pytest.fixture
def conf(server: Served, tmp_path: Path) -> str:
    return placed(tmp_path / "nova.conf", nova_conf(server.url))


def test_report_prints_its_changes_and_a_dry_run_writes_nothing(
    aware: Served, conf: str, capsys: Capture
) -> None:
    report = (*FAKE, "--config-file", conf, "--provider", HOST)
    expected = [
        {"Provider": HOST, "Trait": trait, "Change": "add"}
        for trait in sorted({*BY_REPORTS, "OWNER_NOVA"})
    ]
    before = everything(aware.placement)
    assert json_of(capsys, *report, "--dry-run") == expected
    assert everything(aware.placement) == before
    assert json_of(capsys, *report) == expected
    assert traits_of(aware.placement) == {*OLD, *BY_REPORTS, "OWNER_NOVA"}
    aware.sent.clear()
    assert json_of(capsys, *report) == []
    assert not [each for each in aware.sent if not each.startswith("GET ")]


@pytest.mark.parametrize("owner", ["", "OWNER_CYBORG"])
def test_report_that_is_made_once_looks_twice_at_a_new_provider_below_the_host(
    owner: str,
    aware: Served,
    conf: str,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has no second round, as the agent has.

    There the agent sees whether another service has come with its trait.
    """
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        put_traits(
            aware.placement, lambda traits: traits.update(owner.split()), "gpu"
        )

    monkeypatch.setattr(
        "os_prefilter_agent.cli.capabilities.time",
        SimpleNamespace(sleep=pause),
    )
    request = aware.placement.client.request
    uuid = provider_uuid("gpu")
    gpu = {"name": "gpu", "uuid": uuid, "parent_provider_uuid": UUID}
    request("POST", "/resource_providers", gpu)
    inventories = {
        "resource_provider_generation": 0,
        "inventories": {"VGPU": {"total": 4}},
    }
    request("PUT", f"/resource_providers/{uuid}/inventories", inventories)
    report = (*FAKE, "--config-file", conf, "--provider", HOST)
    added = {"Provider": "gpu", "Trait": "OWNER_NOVA", "Change": "add"}
    assert added in json_of(capsys, *report, "--dry-run")
    assert pauses == []
    json_of(capsys, *report)
    assert pauses == [SECOND_LOOK]
    assert traits_of(aware.placement, "gpu") == {owner or "OWNER_NOVA"}
    assert "OWNER_NOVA" in traits_of(aware.placement)
    assert json_of(capsys, *report) == []
    assert pauses == [SECOND_LOOK]


def test_owner_trait_is_read_from_the_config_file(
    aware: Served, conf: str, capsys: Capture
) -> None:
    with Path(conf).open("a", encoding="utf-8") as file:
        file.write("[prefilter]\nowner_trait = CUSTOM_OWNER_ZUN\n")
    rows = json_of(capsys, *FAKE, "--config-file", conf, "--provider", HOST)
    added = {"Provider": HOST, "Trait": "CUSTOM_OWNER_ZUN", "Change": "add"}
    assert added in rows
    assert "OWNER_NOVA" not in traits_of(aware.placement)


def test_provider_config_is_written_with_what_placement_says_is_wanted(
    aware: Served, conf: str, capsys: Capture, tmp_path: Path
) -> None:
    path = tmp_path / "os-prefilter.yaml"
    before = everything(aware.placement)
    report = (*FAKE, "--config-file", conf, "--provider-config", str(path))
    expected = [
        {"Provider": "$COMPUTE_NODE", "Trait": trait, "Change": "add"}
        for trait in sorted(BY_FILE)
    ]
    assert json_of(capsys, *report, "--dry-run") == expected
    assert not path.exists()
    assert json_of(capsys, *report) == expected
    (provider,) = yaml.safe_load(path.read_text())["providers"]
    assert provider == {
        "identification": {"uuid": "$COMPUTE_NODE"},
        "traits": {"additional": sorted(BY_FILE)},
    }
    assert json_of(capsys, *report) == []
    assert everything(aware.placement) == before


_WRONG = [
    ("--provider x", "no Placement: give --config-file FILE"),
    ("--config-file {conf}", "--provider: give the name or the UUID"),
    (
        "--config-file {conf} --provider nosuch",
        "Placement has no resource provider 'nosuch'. nova-compute creates it",
    ),
    ("--config-file {tmp}/none --provider x", "cannot be read as a nova.conf"),
    ("--config-file {tmp}/owner --provider x", "option owner_trait"),
    (
        "--config-file {tmp}/down --provider x",
        "Placement did not respond to GET /traits",
    ),
    ("--config-file {conf} --provider=", "--provider: the value is empty"),
    (
        "--config-file {conf} --provider-config {tmp}/none/x.yaml",
        "there is no such directory",
    ),
    (
        "--config-file {conf} --provider-config {tmp}/owner",
        "was not written by os-prefilter",
    ),
    (
        "--provider-config {tmp}/x.yaml",
        "no Placement: give --config-file FILE",
    ),
    (
        "--watch 5",
        "it probes a libvirt at an interval; --driver fake has none",
    ),
    ("--watch 5 --dry-run", "it cannot go with --dry-run"),
    (
        "--config-file {conf} --log-config x",
        "--log-config: it configures the log of --watch. Leave it out.",
    ),
    ("--watch=0.99", "is not a whole number of seconds of at least 1"),
    ("--watch=nan", "is not a whole number of seconds of at least 1"),
    ("--watch=", "is not a whole number of seconds of at least 1"),
    ("--remove --provider-config x", "not allowed with argument"),
    (
        "--watch 5 --capabilities x",
        "--watch: it cannot go with --capabilities",
    ),
]


@pytest.mark.parametrize(
    ("argv", "message"), _WRONG, ids=[argv for argv, _ in _WRONG]
)
def test_invalid_input_gives_a_one_line_error_and_exit_code_1(
    conf: str, capsys: Capture, tmp_path: Path, argv: str, message: str
) -> None:
    (tmp_path / "empty").touch()
    static = nova_conf("http://127.0.0.1:1")
    (tmp_path / "down").write_text(static)
    (tmp_path / "owner").write_text(
        f"{static}[prefilter]\nowner_trait = a b\n"
    )
    assert main([*FAKE, *argv.format(conf=conf, tmp=tmp_path).split()]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert len(err.splitlines()) == 1


def test_missing_package_error_names_the_extras_to_install(
    conf: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in list(sys.modules):
        if name.startswith("os_prefilter.adapters.placement."):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "keystoneauth1", None)
    assert main([*FAKE, "--config-file", conf, "--provider", HOST]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert (
        "needs keystoneauth1, which is not installed: pip install"
        " '.[agent,libvirt]' in the repository" in err
    )


def test_report_on_a_node_names_the_extra_that_has_the_sdk(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in list(sys.modules):
        if name.startswith(("openstack", "os_prefilter.adapters.ironic.")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "openstack", None)
    argv = "capabilities report --driver ironic --node n --os-cloud c"
    assert main(argv.split()) == 1
    err = capsys.readouterr().err
    assert "pip install '.[cli]' in the repository" in err


class Libvirt:
    """A libvirt whose version a file has; it is down without the file."""

    path = Path()

    def __init__(self, _uri: str, _settings: object) -> None:
        pass

    def identity(self) -> str:
        try:
            return self.path.read_text()
        except OSError as error:
            raise ProbeFailed(
                "open('qemu:///system')",
                str(error),
                "Check that libvirt runs.",
            ) from error

    def facts(self) -> FakeFacts:
        modes = {"old": ["hvm"], "new": ["hvm", "xen"]}[self.identity()]
        can = {
            "architecture": frozenset(["x86_64"]),
            "hypervisor_type": frozenset(["fake"]),
            "vm_mode": frozenset(modes),
        }
        return FakeFacts(host=HOST, can=can)


class _QemuHangs(Libvirt):
    """A libvirt whose QEMU does not list its devices."""

    def identity(self) -> str:
        return "the same"

    def facts(self) -> LibvirtFacts:  # type: ignore[override]
        guest = replace(X86, devices=None, devices_unknown="it hangs")
        return replace(KVM, host=HOST, guests={"x86_64": guest})


@pytest.mark.usefixtures("aware")
def test_agent_logs_once_that_devices_are_not_known(
    conf: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run(watch: Watch) -> None:
        watch.round()
        watch.round()

    monkeypatch.setattr(
        "os_prefilter.adapters.libvirt.host.LibvirtHost", _QemuHangs
    )
    monkeypatch.setattr("os_prefilter_agent.agent.run_until_signal", run)
    monkeypatch.setattr(
        "os_prefilter_agent.cli.capabilities._set_up_logging", lambda *_: None
    )
    argv = ["capabilities", "report", "--watch", "1", "--config-file", conf]
    assert main(argv) == 0
    found = [
        each
        for each in caplog.messages
        if each.startswith("Which devices QEMU has for guests of x86_64 is")
    ]
    assert len(found) == 1
    assert "not known: it hangs. They are not reported" in found[0]


SERVICE = """
import sys
from pathlib import Path
from os_prefilter.adapters import nova_compute
from os_prefilter.adapters.libvirt import host
from os_prefilter_tools.cli.main import main
from tests.agent.test_report import Libvirt
host.LibvirtHost = Libvirt
Libvirt.path = Libvirt.path / sys.argv[1]
nova_compute.PROC = Path(sys.argv[1]).parent / "proc"
sys.exit(main(sys.argv[2:]))
"""


def test_the_program_logs_to_its_file_reloads_its_configuration_on_sighup_and_ends_on_sigterm(
    aware: Served, conf: str, tmp_path: Path
) -> None:
    """Logrotate and ``systemctl reload`` send SIGHUP.

    A wrong configuration leaves the one of before.
    """
    path = Path(conf)
    log = tmp_path / "agent.log"
    configuration = tmp_path / "agent.conf"
    configuration.write_text(
        f"[DEFAULT]\nlog_file = {log}\nuse_stderr = false\n"
    )
    (tmp_path / "libvirt").write_text("old")
    text = path.read_text()
    number = 0
    argv = [
        "--watch",
        "1",
        "--config-file",
        conf,
        "--log-config",
        str(configuration),
    ]
    command = [
        sys.executable,
        "-c",
        SERVICE,
        str(tmp_path / "libvirt"),
        "capabilities",
        "report",
        *argv,
    ]
    pipes: dict[str, Any] = {
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "text": True,
    }
    with started(
        command,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "no_proxy": "127.0.0.1"},
        **pipes,
    ) as process:

        def line() -> str:
            nonlocal number
            number += 1
            until(
                lambda: log.exists() and log.read_text().count("\n") >= number,
                log.read_text,
            )
            return log.read_text().splitlines()[number - 1]

        assert f" INFO os_prefilter_agent.agent [-] {HOST}: added " in line()
        before = everything(aware.placement)
        path.write_text(f"{text}[prefilter]\nowner_trait = a b\n")
        process.send_signal(signal.SIGHUP)
        warning = line()
        assert (
            "Failed to reload the configuration; the previous one stays in"
            " effect. " in warning
        )
        # oslo.log appends the exception that is being handled to a warning.
        assert warning.count("owner_trait") == 1
        assert everything(aware.placement) == before
        path.write_text(f"{text}[prefilter]\nowner_trait = CUSTOM_OWNER_ZUN\n")
        process.send_signal(signal.SIGHUP)
        assert line().endswith(
            "Reloaded the configuration; the host is probed and reported"
            " by it."
        )
        # What schedulers want is read each time.
        key = marker_key(("CUSTOM_COMPUTE_USB_REDIRECTION",))
        aware.placement.know(names_with(WANTED, [key]))
        assert "added CUSTOM_PREFILTER_REPORTED_" in line()
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=60) == ("", "")
        assert process.returncode == 0


def test_the_service_ends_with_an_error_if_the_log_cannot_be_set_up(
    conf: str, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "os_prefilter.adapters.libvirt.host.LibvirtHost", Libvirt
    )
    configuration = tmp_path / "agent.conf"
    argv = [
        "capabilities",
        "report",
        "--watch",
        "1",
        "--config-file",
        conf,
        "--log-config",
        str(configuration),
    ]
    for line, problem in (
        ("debug = maybe", "--debug: Invalid Boolean value: maybe"),
        ("log_file = /nowhere/agent.log", "/nowhere/agent.log"),
        ("log_config_append = /nowhere/logging.conf", "/nowhere/logging.conf"),
        (
            "use_syslog = true\nsyslog_log_facility = odd",
            "syslog facility must be one of",
        ),
    ):
        configuration.write_text(f"[DEFAULT]\n{line}\n")
        assert main(argv) == 1
        out, err = capsys.readouterr()
        assert out == ""
        assert "Traceback" not in err
        assert problem in err
        assert str(configuration) in err
