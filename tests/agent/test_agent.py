# SPDX-License-Identifier: Apache-2.0

"""The loop: when it probes, what it logs in an outage, and how it ends."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from os_prefilter.common import errors
from os_prefilter.hosts.reporter import HostFacts
from os_prefilter_agent import agent
from os_prefilter_agent.agent import (
    PROBE_INTERVAL,
    Watch,
    run_until_signal,
)

LIBVIRT_DOWN = errors.ProbeFailed(
    "open('qemu:///system')", "connection refused", "Check that libvirt runs."
)
PLACEMENT_DOWN = errors.PlacementUnavailable(
    "GET /resource_providers", "connection refused"
)


@pytest.fixture(autouse=True)
def _first_round_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin at the start of the first interval, not at a random moment."""
    monkeypatch.setattr(
        "os_prefilter_agent.agent.uniform", lambda low, _high: low
    )


class FakeHost:
    """A host that keeps what was probed, and may be down."""

    def __init__(self) -> None:
        self.version = "libvirt 9"
        self.probed: list[str] = []
        self.down: dict[str, errors.PrefilterError] = {}

    def identity(self) -> object:
        if "identity" in self.down:
            raise self.down["identity"]
        return self.version

    def facts(self) -> HostFacts:
        if "facts" in self.down:
            raise self.down["facts"]
        self.probed.append(self.version)
        return HostFacts(host=self.version)


class FakeReport:
    """Keeps the hosts that it has reported, and may fail."""

    def __init__(self) -> None:
        self.reported: list[str] = []
        self.error: errors.PrefilterError | None = None
        self.changed = ""

    def __call__(self, facts: HostFacts) -> str:
        if self.error:
            raise self.error
        self.reported.append(facts.host)
        return self.changed


class Story:
    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.host = FakeHost()
        self.report = FakeReport()
        self.now = 0.0
        self.watch = Watch(self.host, self.report, 1.0, clock=lambda: self.now)
        self._caplog = caplog

    def lines(self, rounds: int = 1) -> list[tuple[str, str]]:
        """Run rounds; return what was logged meanwhile."""
        self._caplog.clear()
        for _ in range(rounds):
            self.watch.round()
        return [
            (record.levelname, record.getMessage())
            for record in self._caplog.records
        ]


@pytest.fixture
def story(caplog: pytest.LogCaptureFixture) -> Iterator[Story]:
    with caplog.at_level(logging.INFO, "os_prefilter_agent.agent"):
        yield Story(caplog)


class TestProbing:
    def test_unchanged_host_is_probed_again_once_per_probe_interval(
        self, story: Story
    ) -> None:
        for number in range(6):
            story.now = number * PROBE_INTERVAL / 2
            story.lines()
        assert len(story.host.probed) == 3

    def test_failed_probe_is_retried_in_the_next_round_and_reports_nothing_meanwhile(
        self, story: Story
    ) -> None:
        story.lines()
        story.host.version = "libvirt 10"
        story.host.down["facts"] = LIBVIRT_DOWN
        story.lines(3)
        assert story.report.reported == ["libvirt 9"]
        story.host.down.clear()
        story.lines()
        assert story.host.probed == ["libvirt 9", "libvirt 10"]
        assert story.report.reported == ["libvirt 9", "libvirt 10"]


class TestOutages:
    """One line when it begins, one when it ends; no change in between."""

    @pytest.mark.parametrize("call", ["identity", "facts"])
    @pytest.mark.parametrize(
        "error",
        [
            LIBVIRT_DOWN,
            errors.ConfigurationError("nova.conf is being written"),
        ],
        ids=["libvirt", "nova.conf"],
    )
    def test_unreachable_host_is_logged_once_and_nothing_is_reported_until_it_recovers(
        self, story: Story, call: str, error: errors.PrefilterError
    ) -> None:
        story.lines(2)
        story.now = PROBE_INTERVAL
        story.host.down[call] = error
        begin = (
            "Failed to probe the host; its traits stay as they are until that"
            f" works. {error}"
        )
        assert story.lines(5) == [("WARNING", begin)]
        assert story.report.reported == ["libvirt 9"] * 2
        story.host.down.clear()
        assert story.lines(5) == [("INFO", "Able to probe the host again.")]
        assert story.report.reported == ["libvirt 9"] * 7

    @pytest.mark.parametrize(
        "error",
        [
            PLACEMENT_DOWN,
            errors.GenerationConflict("kvm-1", 10),
            errors.UnknownProvider("kvm-1"),
        ],
        ids=["no response", "generation conflict", "unknown provider"],
    )
    def test_failed_report_is_logged_once_and_retried_without_a_new_probe(
        self, story: Story, error: errors.PrefilterError
    ) -> None:
        story.report.error = error
        begin = (
            "Failed to report the traits of the host; its traits stay as they"
            f" are until that works. {error}"
        )
        assert story.lines(5) == [("WARNING", begin)]
        assert story.host.probed == ["libvirt 9"]
        story.report.error = None
        assert story.lines(5) == [
            ("INFO", "Able to report the traits of the host again.")
        ]
        assert story.report.reported == ["libvirt 9"] * 5

    def test_host_outage_and_placement_outage_are_logged_independently(
        self, story: Story
    ) -> None:
        story.report.error = PLACEMENT_DOWN
        assert [level for level, _ in story.lines(2)] == ["WARNING"]
        story.host.down["identity"] = LIBVIRT_DOWN
        assert [level for level, _ in story.lines(2)] == ["WARNING"]
        story.host.down.clear()
        story.report.error = None
        assert [level for level, _ in story.lines(2)] == ["INFO", "INFO"]

    @pytest.mark.parametrize(
        ("at", "action"),
        [
            ("identity", "probe the host"),
            ("report", "report the traits of the host"),
        ],
    )
    def test_call_that_never_ends_is_given_up_and_the_next_round_reports(
        self,
        at: str,
        action: str,
        story: Story,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """In a thread of its own, which nothing waits for any more."""
        end, given_up = threading.Event(), threading.Event()
        begun = []

        def hang_once(call: str) -> None:
            if call == at and not given_up.is_set():
                end.wait()

        def report(facts: HostFacts) -> str:
            begun.append(facts.host)
            hang_once("report")
            return ""

        def identity() -> object:
            hang_once("identity")
            return story.host.version

        monkeypatch.setattr(story.host, "identity", identity)
        monkeypatch.setattr(agent, "REPORT_TIMEOUT", 1.0)
        story.watch = Watch(story.host, report, 1.0, give_up=given_up.set)
        ((level, message),) = story.lines()
        assert level == "WARNING"
        assert " has not ended in 1 seconds" in message
        assert story.lines(2) == [("INFO", f"Able to {action} again.")]
        assert begun == ["libvirt 9"] * (3 if at == "report" else 2)
        end.set()


def test_trait_changes_are_logged_once_on_one_line(story: Story) -> None:
    story.report.changed = "kvm-1: added CUSTOM_A\nx"
    assert story.lines() == [("INFO", r"kvm-1: added CUSTOM_A\nx")]
    story.report.changed = ""
    assert story.lines(3) == []


@pytest.mark.parametrize("at", ["identity", "facts", "report"])
@pytest.mark.parametrize("is_first", [True, False])
def test_configuration_error_stops_the_agent_only_in_the_first_round(
    story: Story, at: str, is_first: bool
) -> None:
    """Else an operator would see a service that runs and does nothing.

    In a later round it is logged once.
    """
    if not is_first:
        story.lines()
        story.now = PROBE_INTERVAL
    error = errors.ConfigurationError("libvirt-python is not installed")
    story.report.error = error if at == "report" else None
    story.host.down[at] = error
    if is_first:
        with pytest.raises(errors.ConfigurationError):
            story.watch.run()
    else:
        assert [level for level, _ in story.lines(3)] == ["WARNING"]


def test_run_until_signal_raises_the_agents_error_and_restores_the_signal_handlers() -> (
    None
):
    ending = (signal.SIGTERM, signal.SIGINT)
    before = [signal.getsignal(number) for number in ending]

    def fail(_facts: HostFacts) -> str:
        raise LookupError("a mistake of ours")

    with pytest.raises(LookupError, match="a mistake of ours"):
        run_until_signal(Watch(FakeHost(), fail, 1.0))
    assert [signal.getsignal(number) for number in ending] == before


def test_no_round_begins_after_a_signal_that_ends_the_agent() -> None:
    begun: list[str] = []

    def report(facts: HostFacts) -> str:
        begun.append(facts.host)
        os.kill(os.getpid(), signal.SIGTERM)
        assert watch._stopping.wait(60)
        return ""

    watch = Watch(FakeHost(), report, 0.0)
    run_until_signal(watch)
    assert begun == ["libvirt 9"]


SERVICE = """
import sys, threading
from os_prefilter_agent import agent
from os_prefilter_agent.agent import Watch, run_until_signal
from tests.agent.test_agent import FakeHost
def report(facts):
    print("round", flush=True)
    if sys.argv[1] == "hangs":
        threading.Event().wait()
    return ""
agent.uniform = lambda low, high: low
run_until_signal(Watch(FakeHost(), report, 1e9))
print("ended", flush=True)
"""


@pytest.mark.parametrize(
    ("state", "end"),
    [
        ("waits", signal.SIGINT),
        ("waits", signal.SIGTERM),
        ("hangs", signal.SIGTERM),
    ],
)
def test_sighup_makes_a_round_at_once_and_sigterm_and_sigint_end_a_waiting_or_hanging_agent(
    state: str, end: signal.Signals
) -> None:
    """With exit code 0. Other signals do nothing.

    Their default action would end the agent.
    """
    command = [sys.executable, "-c", SERVICE, state]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout
            assert process.stdout.readline() == "round\n"
            for number in (
                signal.SIGUSR1,
                signal.SIGUSR2,
                signal.SIGPIPE,
                signal.SIGHUP,
            ):
                process.send_signal(number)
            if state == "waits":
                assert process.stdout.readline() == "round\n"
            process.send_signal(end)
            process.send_signal(end)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert out == "ended\n"
    assert err == ""
    assert process.returncode == 0
