"""``capabilities report``: a real Placement behind a real port, or a file, and as a service with real signals."""

import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from os_prefilter.adapters.embedded import EmbeddedPlacement
from os_prefilter.cli.main import main
from os_prefilter.common.errors import ProbeFailed
from os_prefilter.hosts.agent import LOG, Watch
from os_prefilter.hosts.capabilities import capability_traits
from os_prefilter.hosts.drivers.fake import FakeFacts
from os_prefilter.vocabulary import REPORTED, REPORTED_CUSTOM, opt_in_traits
from tests.support.placements import HOST, UUID, Served, everything, lone_host, nova_conf, put_traits, served, traits_of
from tests.support.processes import started
from tests.support.programs import until
from tests.support.report_scopes import RECOMMENDED, scope_of

Capture = pytest.CaptureFixture[str]
FAKE = ("capabilities", "report", "--driver", "fake")
SCOPE = scope_of(RECOMMENDED)
# What Nova's fake driver does not report by itself and the filters may require, and the marker of that.
BESIDE = {"CUSTOM_HYPERVISOR_TYPE_FAKE", "CUSTOM_VM_MODE_HVM", SCOPE.marker}
IN_FILE = {*BESIDE, SCOPE.custom_marker} - {SCOPE.marker}
OLD = {"COMPUTE_NODE", "HW_ARCH_X86_64", "CUSTOM_OF_AN_OPERATOR"}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with EmbeddedPlacement(lone_host(" ".join(OLD))) as placement, served(placement) as state:
        yield state


@pytest.fixture
def aware(server: Served) -> Served:
    """Return the server with every trait that a report creates."""
    server.placement.know({*SCOPE.known, SCOPE.marker})
    return server


@pytest.fixture
def conf(server: Served, tmp_path: Path) -> str:
    path = tmp_path / "nova.conf"
    path.write_text(nova_conf(server.url) + RECOMMENDED)
    return str(path)


def _json(capsys: Capture, *argv: str, code: int = 0) -> Any:
    assert main([*argv, "-f", "json"]) == code
    return json.loads(capsys.readouterr().out)


def _rows(*changes: tuple[str, str]) -> list[dict[str, str]]:
    return [{"Provider": HOST, "Trait": trait, "Change": change} for trait, change in changes]


def test_report_prints_its_changes_and_a_dry_run_writes_nothing(aware: Served, conf: str, capsys: Capture) -> None:
    report = (*FAKE, "--nova-conf", conf, "--provider", HOST)
    expected = _rows(*((trait, "add") for trait in sorted({*BESIDE, "OWNER_NOVA"})))
    before = everything(aware.placement)
    assert _json(capsys, *report, "--dry-run") == expected
    assert everything(aware.placement) == before
    assert _json(capsys, *report) == expected
    assert traits_of(aware.placement) == {*OLD, *BESIDE, "OWNER_NOVA"}
    aware.sent.clear()
    assert _json(capsys, *report) == []
    assert not [each for each in aware.sent if not each.startswith("GET ")]


def test_first_report_creates_every_trait_that_the_enabled_filters_may_name(
    server: Served, conf: str, capsys: Capture
) -> None:
    rows = _json(capsys, *FAKE, "--nova-conf", conf, "--provider", UUID)
    created = {row["Trait"] for row in rows if row["Change"] == "create"}
    assert created == SCOPE.known | {SCOPE.marker}
    assert {row["Provider"] for row in rows if row["Change"] == "create"} == {""}
    assert server.placement.client.traits() >= SCOPE.known


def test_marker_trait_and_capability_traits_are_written_in_one_request(aware: Served, conf: str) -> None:
    """A reader of Placement never sees the marker without all capability traits."""
    seen: list[set[str]] = []
    aware.after = lambda _number: seen.append(set(traits_of(aware.placement)))
    report = (*FAKE, "--nova-conf", conf, "--provider", HOST)
    for argv in (report, (*report, "--remove")):
        assert main([*argv]) == 0
    states = [state & BESIDE for state in seen]
    assert [state for before, state in zip([set(), *states], states, strict=False) if state != before] == [
        BESIDE,
        set(),
    ]


def test_report_removes_marker_traits_of_other_releases_and_other_scopes(
    aware: Served, conf: str, capsys: Capture
) -> None:
    """They say of another table, or of other filters, that all is reported. A provider configuration file's stay."""
    others = {"CUSTOM_PREFILTER_REPORTED_0", REPORTED, f"{REPORTED}_00000000", "CUSTOM_PREFILTER_REPORTED_77_0123ABCD"}
    kept = {REPORTED_CUSTOM, f"{REPORTED_CUSTOM}_0123ABCD", "CUSTOM_PREFILTER_REPORTED_BY_ME"}
    aware.placement.know(others | kept)
    put_traits(aware.placement, lambda traits: traits.update(others | kept))
    _json(capsys, *FAKE, "--nova-conf", conf, "--provider", HOST)
    assert traits_of(aware.placement) == {*OLD, *BESIDE, *kept, "OWNER_NOVA"}


def test_alone_option_also_writes_the_traits_that_nova_reports(aware: Served, conf: str, capsys: Capture) -> None:
    """And takes away what the host cannot do, or no filter may require."""
    traits = SCOPE.restrict(capability_traits(FakeFacts()))
    can = {trait for trait, has in traits.items() if has}
    aware.placement.know(trait for trait in can if trait.startswith("CUSTOM_"))
    _json(capsys, *FAKE, "--nova-conf", conf, "--provider", HOST, "--alone")
    assert traits_of(aware.placement) == (OLD - traits.keys()) | can | {"OWNER_NOVA", SCOPE.marker}
    assert not can <= opt_in_traits()


def test_remove_takes_away_reported_traits_and_keeps_the_owner_trait(aware: Served, conf: str, capsys: Capture) -> None:
    """But for the owner's trait, without which requests of Nova's would no longer reach the host."""
    report = (*FAKE, "--nova-conf", conf, "--provider", HOST)
    _json(capsys, *report)
    removed = _rows(*((trait, "remove") for trait in sorted(BESIDE)))
    assert _json(capsys, *report, "--remove", "--dry-run") == removed
    assert _json(capsys, *report, "--remove") == removed
    assert traits_of(aware.placement) == {*OLD, "OWNER_NOVA"}


def test_owner_trait_is_read_from_the_config_file(aware: Served, conf: str, capsys: Capture) -> None:
    with Path(conf).open("a", encoding="utf-8") as file:
        file.write("[prefilter]\nowner_trait = CUSTOM_OWNER_ZUN\n")
    rows = _json(capsys, *FAKE, "--nova-conf", conf, "--provider", HOST)
    assert {"Provider": HOST, "Trait": "CUSTOM_OWNER_ZUN", "Change": "add"} in rows
    assert "OWNER_NOVA" not in traits_of(aware.placement)


def test_provider_config_is_written_without_placement(capsys: Capture, tmp_path: Path) -> None:
    path, conf = tmp_path / "os-prefilter.yaml", tmp_path / "nova.conf"
    conf.write_text(RECOMMENDED)
    report = (*FAKE, "--nova-conf", str(conf), "--provider-config", str(path))
    expected = [{"Provider": "$COMPUTE_NODE", "Trait": trait, "Change": "add"} for trait in sorted(IN_FILE)]
    assert _json(capsys, *report, "--dry-run") == expected
    assert not path.exists()
    assert _json(capsys, *report) == expected
    (provider,) = yaml.safe_load(path.read_text())["providers"]
    assert provider == {"identification": {"uuid": "$COMPUTE_NODE"}, "traits": {"additional": sorted(IN_FILE)}}
    assert _json(capsys, *report) == []


_WRONG = [
    ("--provider x", "no Placement: give --nova-conf FILE"),
    ("--nova-conf {conf}", "--provider: give the name or the UUID"),
    ("--nova-conf {conf} --provider nosuch", "Placement has no resource provider 'nosuch'. nova-compute creates it"),
    ("--nova-conf {tmp}/none --provider x", "cannot be read as a nova.conf"),
    ("--nova-conf {tmp}/empty --provider x", "it has no section [placement]"),
    ("--nova-conf {tmp}/owner --provider x", "[prefilter] owner_trait"),
    ("--nova-conf {tmp}/down --provider x", "Placement did not answer GET /resource_providers"),
    ("--nova-conf {conf} --provider=", "names of resource providers have 1 to 200 characters"),
    ("--nova-conf {conf} --provider-config {tmp}/none/x.yaml", "there is no such directory"),
    ("--all --provider-config {tmp}/owner", "was not written by os-prefilter"),
    ("--watch 5", "it probes a libvirt at an interval; --driver fake has none"),
    ("--watch 5 --dry-run", "it cannot go with --dry-run"),
    ("--nova-conf {conf} --config-file x", "--config-file: it configures the log of --watch. Leave it out."),
    *((f"--watch={text}", "is not a number of seconds of at least 1") for text in ("0.99", "-5", "nan", "1e999", "")),
    ("--watch 5 --remove", "not allowed with argument"),
    ("--remove --provider-config x", "not allowed with argument"),
    ("--provider-config x --watch 5", "not allowed with argument"),
    ("--watch 5 --capabilities x", "--watch: it cannot go with --capabilities"),
    ("--watch 5 --node x", "--watch: it cannot go with --node"),
]


@pytest.mark.parametrize(("argv", "message"), _WRONG)
def test_invalid_input_gives_a_one_line_error_and_exit_code_1(
    conf: str, capsys: Capture, tmp_path: Path, argv: str, message: str
) -> None:
    (tmp_path / "empty").touch()
    static = nova_conf("http://127.0.0.1:1") + RECOMMENDED
    (tmp_path / "down").write_text(static)
    (tmp_path / "owner").write_text(f"{static}owner_trait = a b\n")
    assert main([*FAKE, *argv.format(conf=conf, tmp=tmp_path).split()]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert len(err.splitlines()) == 1 or "usage: " in err


@pytest.mark.parametrize("module", ["keystoneauth1", "tenacity"])
def test_missing_package_error_names_the_extras_to_install(
    module: str, conf: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("os_prefilter.adapters.placement.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    assert main([*FAKE, "--nova-conf", conf, "--provider", HOST]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert f"needs {module}, which is not installed: pip install '.[agent,libvirt]' in the repository" in err


# The command as it is, but for libvirt: its version is what a file says, and it is down while there is none.
class Libvirt:
    path = Path()

    def __init__(self, _uri: str, _settings: object) -> None:
        pass

    def identity(self) -> str:
        try:
            return self.path.read_text()
        except OSError as error:
            raise ProbeFailed("open('qemu:///system')", str(error), "Check that libvirt runs.") from error

    def facts(self) -> FakeFacts:
        modes = {"old": frozenset(["hvm"]), "new": frozenset(["hvm", "xen"])}[self.identity()]
        return FakeFacts(host=HOST, can={"hypervisor_type": frozenset(["fake"]), "vm_mode": modes})


def _story(aware: Served, line: Callable[[], str]) -> None:
    added = f"{HOST}: added {', '.join(sorted({*BESIDE, 'OWNER_NOVA'}))}"
    # nova-compute creates the provider when it starts.
    assert "Placement has no resource provider 'kvm-1'. nova-compute creates it when it starts" in line()
    aware.placement.client.request("POST", "/resource_providers", {"name": HOST, "uuid": UUID})
    assert {line(), line()} == {"Able to report the traits of the host again.", added}
    aware.wait_for(len(aware.sent) + 3)
    assert set(aware.sent[-2:]) == {f"GET /resource_providers?in_tree={UUID}"}
    Libvirt.path.write_text("new")
    assert line() == f"{HOST}: added CUSTOM_VM_MODE_XEN"
    (Libvirt.path.parent / "other").write_text("old")
    (Libvirt.path.parent / "other").replace(Libvirt.path)
    assert line() == f"{HOST}: removed CUSTOM_VM_MODE_XEN"
    before = everything(aware.placement)
    Libvirt.path.unlink()
    assert line().startswith("Failed to probe the host; its traits stay as they")
    (Libvirt.path.parent / "other").write_text("old")
    (Libvirt.path.parent / "other").replace(Libvirt.path)
    assert line() == "Able to probe the host again."
    # One line when an outage of Placement begins and one when it ends, however many rounds are between.
    aware.answer = lambda _method, _url: (503, b"")
    assert line().startswith("Failed to report the traits of the host; its traits stay")
    aware.wait_for(len(aware.sent) + 4)
    aware.answer = lambda _method, _url: None
    assert line() == "Able to report the traits of the host again."
    assert everything(aware.placement) == before


def test_the_service_keeps_traits_true_through_an_upgrade_and_outages(
    aware: Served, conf: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As it runs, but for its interval; test_agent.py has each part by itself."""
    caplog.set_level(logging.INFO, LOG.name)
    monkeypatch.setattr("os_prefilter.adapters.libvirt.host.LibvirtHost", Libvirt)
    monkeypatch.setattr("os_prefilter.cli.capabilities._set_up_logging", lambda *_: None)
    monkeypatch.setattr("os_prefilter.cli.capabilities._seconds", lambda _text: 0.02)
    monkeypatch.setattr(Libvirt, "path", tmp_path / "libvirt")
    Libvirt.path.write_text("old")
    running, seen = threading.Event(), 0

    def line() -> str:
        """Return the message of the next line that it logs."""
        nonlocal seen
        seen += 1
        until(lambda: len(_lines(caplog)) >= seen, lambda: caplog.text)
        return _lines(caplog)[seen - 1]

    def told() -> None:
        running.wait()
        try:
            _story(aware, line)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    aware.placement.client.request("DELETE", f"/resource_providers/{UUID}")
    with ThreadPoolExecutor(1) as pool:
        end = pool.submit(told)
        run = Watch.run
        monkeypatch.setattr(Watch, "run", lambda watch: (running.set(), run(watch))[1])  # type: ignore[func-returns-value]
        assert main(["capabilities", "report", "--watch", "1", "--nova-conf", conf]) == 0
    end.result()
    assert line() == "Ending on SIGTERM; the traits of the host stay."


def _lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == LOG.name]


SERVICE = """
import sys
from os_prefilter.adapters.libvirt import host
from os_prefilter.cli.main import main
from os_prefilter.common.errors import ProbeFailed
from os_prefilter.hosts.agent import LOG, Watch
from tests.cli.test_report import Libvirt
host.LibvirtHost = Libvirt
Libvirt.path = Libvirt.path / sys.argv[1]
sys.exit(main(sys.argv[2:]))
"""


def test_the_program_logs_to_its_file_reloads_its_configuration_on_sighup_and_ends_on_sigterm(
    aware: Served, conf: str, tmp_path: Path
) -> None:
    """Logrotate and ``systemctl reload`` send SIGHUP. A wrong configuration leaves the one of before."""
    path, log, configuration = Path(conf), tmp_path / "agent.log", tmp_path / "agent.conf"
    configuration.write_text(f"[DEFAULT]\nlog_file = {log}\nuse_stderr = false\n")
    (tmp_path / "libvirt").write_text("old")
    text, number = path.read_text(), 0
    argv = ["--watch", "1", "--nova-conf", conf, "--config-file", str(configuration)]
    command = [sys.executable, "-c", SERVICE, str(tmp_path / "libvirt"), "capabilities", "report", *argv]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with started(
        command, cwd=Path(__file__).parents[2], env={**os.environ, "no_proxy": "127.0.0.1"}, **pipes
    ) as process:

        def line() -> str:
            nonlocal number
            number += 1
            until(lambda: log.exists() and log.read_text().count("\n") >= number, log.read_text)
            return log.read_text().splitlines()[number - 1]

        assert f" INFO os_prefilter.hosts.agent [-] {HOST}: added " in line()
        before = everything(aware.placement)
        path.write_text(text.replace("enabled_filters = image_metadata", "enabled_filters = image_metdata"))
        process.send_signal(signal.SIGHUP)
        warning = line()
        assert "Failed to reload the configuration; the previous one stays in effect. " in warning
        # oslo.log appends the exception that is being handled to a warning.
        assert warning.count("image_metdata") == 1
        assert everything(aware.placement) == before
        path.write_text(text.replace("CUSTOM_VM_MODE_*", "CUSTOM_COMPUTE_USB_REDIRECTION"))
        process.send_signal(signal.SIGHUP)
        assert line().endswith("Reloaded the configuration; the host is probed and reported by it.")
        removed = line().partition("removed")[2]
        assert "CUSTOM_PREFILTER_REPORTED_" in removed
        assert "CUSTOM_VM_MODE_HVM" in removed
        process.send_signal(signal.SIGTERM)
        assert (process.communicate(timeout=60), process.returncode) == (("", ""), 0)


def test_the_service_ends_with_an_error_if_the_log_cannot_be_set_up(
    conf: str, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os_prefilter.adapters.libvirt.host.LibvirtHost", Libvirt)
    configuration = tmp_path / "agent.conf"
    argv = ["capabilities", "report", "--watch", "1", "--nova-conf", conf, "--config-file", str(configuration)]
    for line, problem in (
        ("debug = maybe", "--debug: Invalid Boolean value: maybe"),
        ("log_file = /nowhere/agent.log", "/nowhere/agent.log"),
        ("log_config_append = /nowhere/logging.conf", "/nowhere/logging.conf"),
    ):
        configuration.write_text(f"[DEFAULT]\n{line}\n")
        assert main(argv) == 1
        out, err = capsys.readouterr()
        assert out == ""
        assert "Traceback" not in err
        assert problem in err
        assert str(configuration) in err
