# SPDX-License-Identifier: Apache-2.0

"""The agent: a loop that keeps the reported traits of a host up to date.

Each round reads the host's identity, probes the host again if that changed or
an hour has passed, and reports. While libvirt or Placement fails, the traits
stay as they are: a failure is no change of the host.

SIGHUP reads the configuration again, SIGTERM and SIGINT end the agent, SIGUSR1
and SIGUSR2 are ignored; each with a line in the log.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import wait
from functools import partial
from random import uniform
from typing import Protocol, TypeVar

from os_prefilter.common import errors
from os_prefilter.common.logs import get_logger
from os_prefilter.common.quoting import escape_line
from os_prefilter.common.threads import start_thread
from os_prefilter.hosts.reporter import HostFacts

LOG = get_logger(__name__)

PROBE_INTERVAL = 3600.0
"""Seconds after which a host with the same identity is probed again."""

REPORT_TIMEOUT = 600.0
"""Seconds that one report may take.

Enough for the 265 requests of the first one if each takes 2 s.
"""

GRACE = 0.5
"""Seconds that a running round has to end after a signal.

Each write to Placement is one request.
"""

_ENDING = (signal.SIGTERM, signal.SIGINT)
# Their default action ends a process without a line, and logrotate's scripts
# send any of them.
_SIGNALS = (*_ENDING, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_LOOK_INTERVAL = 0.25
_PROBE, _REPORT = "probe the host", "report the traits of the host"


class ReportingHost(Protocol):
    """A host to watch.

    :class:`os_prefilter.adapters.libvirt.host.LibvirtHost` is one.
    """

    def identity(self) -> object:
        """Return a value that changes when the host must be probed again."""

    def facts(self) -> HostFacts:
        """Probe the host."""


T = TypeVar("T")
Report = Callable[[HostFacts], str]
"""Report the facts; return a text with the changes, empty without any."""


class Watch:
    """The loop over one host.

    :param report: called with the facts in each round
    :param interval: seconds from the end of a round to the next one, at least
        1
    :param clock: returns seconds
    :param give_up: called when a report takes too long, so that the next one
        does not wait for the same connection
    :param configure: reads the configuration again, and returns the host and
        the report by it; None keeps both
    :param must_reload: called in each round: whether the configuration must be
        read again
    """

    def __init__(  # noqa: PLR0913 - the last ones have defaults
        self,
        host: ReportingHost,
        report: Report,
        interval: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        give_up: Callable[[], None] = lambda: None,
        configure: Callable[[], tuple[ReportingHost, Report]] | None = None,
        must_reload: Callable[[], bool] = lambda: False,
    ) -> None:
        self._host = host
        self._report = report
        self._give_up = give_up
        self._configure = configure or (lambda: (self._host, self._report))
        self._must_reload = must_reload
        # Waiting for longer raises OverflowError.
        self._interval = min(interval, threading.TIMEOUT_MAX)
        self._clock = clock
        self._stopping = threading.Event()
        self._woken = threading.Event()
        self._identity: object = None
        self._facts: HostFacts | None = None
        self._has_reported = False
        self._probe_due = 0.0
        self._failing: set[str] = set()

    def run(self) -> None:
        """Run rounds until :meth:`stop` is called.

        :raises ConfigurationError: in the first round, if the probe or the
            report is configured wrongly
        """
        # After a restart of all agents, their reports are spread over the
        # interval.
        self._woken.wait(uniform(0, self._interval))  # noqa: S311 - no secret
        while not self._stopping.is_set():
            self.round()
            if (
                self._woken.wait(self._interval)
                and not self._stopping.is_set()
            ):
                self._woken.clear()
                self.reload()

    def stop(self) -> None:
        """Make :meth:`run` return, at once or after the running round."""
        self._stopping.set()
        self._woken.set()

    def wake(self) -> None:
        """Make :meth:`run` read the configuration again and report.

        At once if it waits, else after the round.
        """
        self._woken.set()

    def reload(self) -> None:
        """Read the configuration again.

        A wrong one leaves the host and the report as they were.
        """
        try:
            self._host, self._report = self._configure()
        except errors.PrefilterError as error:
            LOG.warning(
                "Failed to reload the configuration; the previous one stays in"
                " effect. %s",
                escape_line(str(error)),
            )
            return
        self._probe_due = self._clock()
        LOG.info(
            "Reloaded the configuration; the host is probed and reported"
            " by it."
        )

    def wait(self, seconds: float) -> None:
        """Wait, at most until :meth:`stop` is called."""
        self._stopping.wait(seconds)

    def round(self) -> None:
        """Probe the host if need be, and report.

        :raises ConfigurationError: as :meth:`run`
        """
        if self._must_reload():
            self.reload()
        facts = self._current_facts()
        if facts is None:
            return
        try:
            changed = self._in_time(partial(self._report, facts), "report")
        except (
            errors.PlacementError,
            errors.IronicError,
            errors.ConfigurationError,
        ) as error:
            if not self._has_reported and isinstance(
                error, errors.ConfigurationError
            ):
                raise
            self._log_outage(_REPORT, error)
            return
        self._has_reported = True
        self._log_outage(_REPORT)
        if changed:
            LOG.info("%s", escape_line(changed))

    def _in_time(self, call: Callable[[], T], what: str) -> T:
        """Call it in a thread of its own, and wait a limited time.

        A client library that waits for ever does not block the next rounds.
        """
        running = start_thread(call, what)
        if not wait([running], REPORT_TIMEOUT).done:
            self._give_up()
            raise errors.PlacementUnavailable(
                "in time",
                f"the {what} has not ended in {REPORT_TIMEOUT:g} seconds",
            )
        return running.result()

    def _current_facts(self) -> HostFacts | None:
        """Return the facts; None while the probe fails."""
        try:
            # It also reads what schedulers want, from a Placement that may
            # never respond.
            identity = self._in_time(
                self._host.identity, "look at host and Placement"
            )
            if (
                self._facts is None
                or identity != self._identity
                or self._clock() >= self._probe_due
            ):
                self._facts = self._host.facts()
                self._identity = identity
                self._probe_due = self._clock() + PROBE_INTERVAL
        except errors.PrefilterError as error:
            if self._facts is None and isinstance(
                error, errors.ConfigurationError
            ):
                raise
            self._log_outage(_PROBE, error)
            return None
        self._log_outage(_PROBE)
        return self._facts

    def _log_outage(
        self, action: str, error: errors.PrefilterError | None = None
    ) -> None:
        """Log when an action begins to fail, and when it works again.

        One line each, however long the outage lasts.
        """
        if error is None:
            if action in self._failing:
                LOG.info("Able to %s again.", action)
            self._failing.discard(action)
        elif action not in self._failing:
            LOG.warning(
                "Failed to %s; its traits stay as they are until that"
                " works. %s",
                action,
                escape_line(str(error)),
            )
            self._failing.add(action)


def _handle(number: int, watch: Watch) -> bool:
    """Act on a signal; return whether it ends the agent."""
    name = signal.Signals(number).name
    if number in _ENDING:
        LOG.info("Ending on %s; the traits of the host stay.", name)
        return True
    if number == signal.SIGHUP:
        watch.wake()
    else:
        LOG.info("Ignored %s. SIGHUP reloads the configuration.", name)
    return False


def run_until_signal(watch: Watch) -> None:
    """Run a watch until SIGTERM or SIGINT; SIGHUP wakes it.

    It returns within a second of the signal. The loop has a thread of its own,
    so that a libvirt or a Placement that hangs does not keep the process
    alive.

    :raises ConfigurationError: as :meth:`Watch.run`
    """
    signals: list[int] = []

    def remember(number: int, _frame: object) -> None:
        # No more than this: an event may be locked by the code that the signal
        # interrupts.
        signals.append(number)

    before = {each: signal.signal(each, remember) for each in _SIGNALS}
    try:
        running = start_thread(watch.run, "watch")
        is_ending = False
        while not is_ending and not wait([running], _LOOK_INTERVAL).done:
            while signals and not is_ending:
                is_ending = _handle(signals.pop(0), watch)
        watch.stop()
        wait([running], GRACE)
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    if running.done():
        running.result()
