"""``capabilities report``: a real Placement behind a real port, or a file, and as a service with real signals."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from os_prefilter.adapters.embedded import EmbeddedPlacement
from os_prefilter.cli.main import main
from os_prefilter.hosts.capabilities import capability_traits
from os_prefilter.hosts.drivers.fake import FakeFacts
from os_prefilter.vocabulary import REPORTED, REPORTED_CUSTOM, opt_in_traits
from tests.support.logins import Logins
from tests.support.loopback import Call, Reply, serving
from tests.support.placements import HOST, UUID, Served, everything, lone_host, nova_conf, put_traits, served, traits_of
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


def test_remove_also_takes_away_the_traits_of_a_provider_config(aware: Served, conf: str, capsys: Capture) -> None:
    """nova-compute never removes what its file no longer names."""
    aware.placement.know(IN_FILE)
    put_traits(aware.placement, lambda traits: traits.update(IN_FILE))
    _json(capsys, *FAKE, "--nova-conf", conf, "--provider", HOST, "--remove")
    assert not traits_of(aware.placement) & {*IN_FILE, *BESIDE}


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
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("seconds", ["0", "0.99", "-5", "nan", "inf", "1e999", "soon", ""])
def test_watch_refuses_an_interval_that_is_not_a_number_of_at_least_1(seconds: str, capsys: Capture) -> None:
    assert main(["capabilities", "report", f"--watch={seconds}"]) == 1
    assert "is not a number of seconds of at least 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    "others", ["--watch 5 --remove", "--remove --provider-config x", "--provider-config x --watch 5"]
)
def test_mutually_exclusive_options_are_refused(others: str, capsys: Capture) -> None:
    assert main(["capabilities", "report", *others.split()]) == 1
    assert "not allowed with argument" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--capabilities", "--domain-capabilities", "--libvirt-version", "--node"])
def test_watch_refuses_options_that_describe_the_host_by_files(option: str, capsys: Capture) -> None:
    assert main(["capabilities", "report", "--watch", "5", option, "x"]) == 1
    assert f"--watch: it cannot go with {option}" in capsys.readouterr().err


@pytest.mark.parametrize("module", ["keystoneauth1", "tenacity"])
def test_missing_package_error_names_the_extras_to_install(module: str, tmp_path: Path) -> None:
    (tmp_path / "nova.conf").write_text(nova_conf("http://127.0.0.1:1") + RECOMMENDED)
    argv = [*FAKE, "--nova-conf", str(tmp_path / "nova.conf"), "--provider", HOST]
    script = (
        f"import sys; sys.modules[{module!r}] = None\nfrom os_prefilter.cli.main import main\nsys.exit(main({argv}))"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=600)
    assert (run.returncode, run.stdout) == (1, "")
    assert f"needs {module}, which is not installed: pip install '.[agent,libvirt]' in the repository" in run.stderr


# The command as it is, but for libvirt: its version is what a file says, and it is down while there is none.
SERVICE = """
import sys
from pathlib import Path
from os_prefilter.adapters.libvirt import host
from os_prefilter.cli.main import main
from os_prefilter.common.errors import ProbeFailed
from os_prefilter.hosts.drivers.fake import FakeFacts
class Host:
    def __init__(self, uri, settings):
        pass
    def identity(self):
        try:
            return Path(sys.argv[1]).read_text()
        except OSError as error:
            raise ProbeFailed("open('qemu:///system')", str(error), "Check that libvirt runs.") from error
    def facts(self):
        modes = {"old": frozenset(["hvm"]), "new": frozenset(["hvm", "xen"])}[self.identity()]
        return FakeFacts(host="kvm-1", can={"hypervisor_type": frozenset(["fake"]), "vm_mode": modes})
host.LibvirtHost = Host
sys.exit(main(sys.argv[2:]))
"""


ENDED = ("", "Ending on SIGTERM; the traits of the host stay.\n", 0)


class Service:
    """``capabilities report --watch 1`` in a process of its own."""

    def __init__(self, conf: str, directory: Path, *arguments: str) -> None:
        self.libvirt = directory / "libvirt"
        self.libvirt.write_text("old")
        argv = ["capabilities", "report", "--watch", "1", "--nova-conf", conf, *arguments]
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-c", SERVICE, str(self.libvirt), *argv],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "no_proxy": "127.0.0.1"},
        )

    def line(self) -> str:
        """Return the message of the next line that it logs, in oslo.log's format."""
        assert self.process.stderr
        return self.process.stderr.readline().rstrip("\n").partition(" [-] ")[2]

    def __enter__(self) -> "Service":
        return self

    def __exit__(self, *_error: object) -> None:
        self.process.kill()
        self.process.communicate()

    def end(self, number: signal.Signals) -> tuple[str, str, int]:
        """End it; return its remaining output, and its exit code."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=60)
        return out, err.partition(" [-] ")[2], self.process.returncode


@pytest.fixture
def service(aware: Served, conf: str, tmp_path: Path) -> Iterator[Service]:
    with Service(conf, tmp_path) as started:
        yield started


def until(server: Served, requests: int) -> None:
    """Wait until so many requests more have come."""
    server.wait_for(len(server.sent) + requests)


def _reason_once(line: str, reason: str) -> str:
    """Return a line of the log; oslo.log appends the exception that is being handled to a warning."""
    assert line.count(reason) == 1, line
    return line


def test_the_service_keeps_traits_true_through_an_upgrade_and_outages(aware: Served, service: Service) -> None:
    """One process for all of it, as each round takes a second; test_agent.py has each part by itself."""
    traits = ", ".join(sorted({*BESIDE, "OWNER_NOVA"}))
    assert service.line() == f"{HOST}: added {traits}"
    assert traits_of(aware.placement) == {*OLD, *BESIDE, "OWNER_NOVA"}
    until(aware, 2)
    assert set(aware.sent[-2:]) == {f"GET /resource_providers?in_tree={UUID}"}
    service.libvirt.write_text("new")
    assert service.line() == f"{HOST}: added CUSTOM_VM_MODE_XEN"
    service.libvirt.write_text("old")
    assert service.line() == f"{HOST}: removed CUSTOM_VM_MODE_XEN"
    before = everything(aware.placement)
    service.libvirt.unlink()
    assert _reason_once(service.line(), "No such file").startswith("Failed to probe the host; its traits stay as they")
    assert everything(aware.placement) == before
    service.libvirt.write_text("old")
    assert service.line() == "Able to probe the host again."
    # One line when an outage of Placement begins and one when it ends, however many rounds are between.
    aware.answer = lambda _method, _url: (503, b"")
    assert _reason_once(service.line(), "503").startswith("Failed to report the traits of the host; its traits stay")
    until(aware, 2)
    aware.answer = lambda _method, _url: None
    assert service.line() == "Able to report the traits of the host again."
    until(aware, 1)
    assert service.end(signal.SIGTERM) == ENDED
    assert everything(aware.placement) == before


def test_the_service_reloads_its_configuration_on_sighup_and_keeps_the_old_one_if_it_is_wrong(
    aware: Served, service: Service, conf: str
) -> None:
    """Logrotate sends it, and ``systemctl reload``."""
    path = Path(conf)
    text = path.read_text()
    service.line()
    before = everything(aware.placement)
    path.write_text(text.replace("enabled_filters = image_metadata", "enabled_filters = image_metdata"))
    service.process.send_signal(signal.SIGHUP)
    warning = _reason_once(service.line(), "image_metdata")
    assert warning.startswith("Failed to reload the configuration; the previous one stays in effect. ")
    until(aware, 2)
    assert everything(aware.placement) == before
    path.write_text(text.replace("CUSTOM_VM_MODE_*", "CUSTOM_COMPUTE_USB_REDIRECTION"))
    service.process.send_signal(signal.SIGHUP)
    assert service.line() == "Reloaded the configuration; the host is probed and reported by it."
    assert "removed CUSTOM_PREFILTER_REPORTED_" in (line := service.line())
    assert "CUSTOM_VM_MODE_HVM" in line.partition("removed")[2]
    service.process.send_signal(signal.SIGUSR1)
    assert service.line() == "Ignored SIGUSR1. SIGHUP reloads the configuration."
    assert service.end(signal.SIGINT)[2] == 0


def test_two_services_with_different_sections_name_each_other_once(
    aware: Served, service: Service, conf: str, tmp_path: Path
) -> None:
    """Each replaces the other's report; a restart with another section, before this, is no such case."""
    other = tmp_path / "other.conf"
    other.write_text(Path(conf).read_text().replace("CUSTOM_VM_MODE_*", "CUSTOM_COMPUTE_USB_REDIRECTION"))
    marker = scope_of(other.read_text()).marker
    service.line()
    with Service(str(other), tmp_path) as second:
        lines = [second.line() for _ in range(6)]
        (warning,) = (line for line in lines if "Another report" in line)
        assert lines[0] != warning
        assert (
            f"Its marker is {SCOPE.marker}, and only it has: CUSTOM_VM_MODE_HVM. The marker here is {marker},"
            in warning
        )
        assert second.end(signal.SIGTERM)[2] == 0
    service.process.send_signal(signal.SIGTERM)
    assert service.process.stderr
    (warning,) = (line for line in service.process.stderr if "Another report" in line)
    assert marker in warning


def test_the_service_logs_as_its_configuration_file_says(aware: Served, conf: str, tmp_path: Path) -> None:
    log = tmp_path / "agent.log"
    configuration = tmp_path / "agent.conf"
    configuration.write_text(f"[DEFAULT]\nlog_file = {log}\nuse_stderr = false\n")
    with Service(conf, tmp_path, "--config-file", str(configuration)) as service:
        until(aware, 2)
        deadline = time.monotonic() + 60
        # The first round may not have ended yet.
        while not (log.exists() and log.read_text()) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert service.end(signal.SIGTERM) == ("", "", 0)
    line, _ = log.read_text().splitlines()
    assert f" INFO os_prefilter.hosts.agent [-] {HOST}: added " in line


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("debug = maybe", "--debug: Invalid Boolean value: maybe"),
        ("log_file = /nowhere/agent.log", "/nowhere/agent.log"),
        ("log_config_append = /nowhere/logging.conf", "/nowhere/logging.conf"),
    ],
)
def test_the_service_ends_with_an_error_if_the_log_cannot_be_set_up(
    line: str, problem: str, conf: str, tmp_path: Path
) -> None:
    configuration = tmp_path / "agent.conf"
    configuration.write_text(f"[DEFAULT]\n{line}\n")
    service = Service(conf, tmp_path, "--config-file", str(configuration))
    out, err = service.process.communicate(timeout=60)
    assert (service.process.returncode, out) == (1, "")
    assert "Traceback" not in err
    assert problem in err
    assert str(configuration) in err


def test_a_configuration_file_without_watch_is_an_error(conf: str, capsys: Capture) -> None:
    assert main([*FAKE, "--nova-conf", conf, "--config-file", "x"]) == 1
    assert "--config-file: it configures the log of --watch. Leave it out." in capsys.readouterr().err


def test_the_service_waits_for_a_provider_that_nova_has_not_created_yet(
    aware: Served, conf: str, tmp_path: Path
) -> None:
    aware.placement.client.request("DELETE", f"/resource_providers/{UUID}")
    with Service(conf, tmp_path) as service:
        assert "Placement has no resource provider 'kvm-1'. nova-compute creates it when it starts" in service.line()
        aware.placement.client.request("POST", "/resource_providers", {"name": HOST, "uuid": UUID})
        assert {service.line(), service.line()} == {
            "Able to report the traits of the host again.",
            f"{HOST}: added {', '.join(sorted({*BESIDE, 'OWNER_NOVA'}))}",
        }
        assert service.end(signal.SIGTERM) == ENDED


def test_the_service_goes_on_once_keystone_no_longer_refuses_everything(aware: Served, tmp_path: Path) -> None:
    """It answers 401 to the request for its versions, at which keystoneauth by itself waits without end (ADR 0015)."""
    logins = Logins()
    logins.catalog = {"placement": aware.url}
    refuses = [True]

    def answer(call: Call) -> Reply:
        if refuses:
            return Reply(401, b"{}", {"Content-Type": "application/json"})
        status, document = logins.answer(call.method, call.path)
        return Reply(
            status, json.dumps(document).encode(), {"Content-Type": "application/json", "X-Subject-Token": "admin"}
        )

    with serving(answer) as logins.url:
        conf = tmp_path / "nova.conf"
        login = "username = nova\npassword = secret\nproject_name = service\nuser_domain_id = default\n"
        conf.write_text(
            f"[placement]\nauth_type = password\nauth_url = {logins.url}/v3\n{login}project_domain_id = default\n"
            f"region_name = one\nvalid_interfaces = public\n{RECOMMENDED}"
        )
        with Service(str(conf), tmp_path) as service:
            lines = iter(service.line, "")
            assert any(line.startswith("Failed to report the traits of the host") for line in lines)
            refuses.clear()
            assert any(line == "Able to report the traits of the host again." for line in lines)
            assert service.end(signal.SIGTERM)[2] == 0
    assert {*BESIDE, "OWNER_NOVA"} <= traits_of(aware.placement)
