"""The watch: keeps what a host reports true for as long as it runs.

Each round asks the host who it is, probes it again if that changed or an hour has passed, and reports. While the host
or Placement does not answer, everything stays as it is: what is not known is not taken for a change.
"""

import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import wait
from functools import partial
from typing import Protocol

from oslo_log import log as logging

from os_prefilter.common.quoting import escape_line
from os_prefilter.common.threads import start_thread
from os_prefilter.errors import ConfigurationError, IronicError, PlacementError, PlacementUnavailable, PrefilterError
from os_prefilter.hosts.reporter import HostFacts

LOG = logging.getLogger(__name__)

PROBE_INTERVAL = 3600.0
"""Seconds after which a host is probed again although it seems to be the same."""

REPORT_TIMEOUT = 600.0
"""Seconds that one report may take: enough for the 265 requests of the first one if each takes 2 s."""

GRACE = 0.5
"""Seconds that a round under way has to end after a signal; what it asks Placement to write is one request each."""

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_LOOK_INTERVAL = 0.25


class Host(Protocol):
    """What is needed of a host (:class:`os_prefilter.adapters.libvirt.host.LibvirtHost`)."""

    def identity(self) -> object:
        """Return what changes when the host may have become able to do other things."""

    def facts(self) -> HostFacts:
        """Probe the host."""


Report = Callable[[HostFacts], str]
"""Makes what is reported true; returns what was changed, empty if nothing was."""


class Watch:
    """One host, watched.

    :param host: is asked and probed
    :param report: is called with the facts in each round
    :param interval: seconds from the end of a round to the next one, at least 1
    :param clock: seconds that pass
    :param give_up: is called where a report takes too long: the next one must not wait for what that one waits for
    """

    def __init__(
        self,
        host: Host,
        report: Report,
        interval: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        give_up: Callable[[], None] = lambda: None,
    ) -> None:
        self._host = host
        self._report = report
        self._give_up = give_up
        self._interval = min(interval, threading.TIMEOUT_MAX)
        self._clock = clock
        self._stopping = threading.Event()
        self._identity: object = None
        self._facts: HostFacts | None = None
        self._probe_due = 0.0
        self._asking = _Outage("The host cannot be asked what it can do", "The host can be asked again.")
        self._reporting = _Outage("What the host can do cannot be reported", "What the host can do is reported again.")

    def run(self) -> None:
        """Watch until :meth:`stop` is called.

        :raises ConfigurationError: in the first round, if the host or the report cannot work at all
        """
        while not self._stopping.is_set():
            self.round()
            self.wait(self._interval)

    def stop(self) -> None:
        """Let :meth:`run` return: at once if it waits, else after the round."""
        self._stopping.set()

    def wait(self, seconds: float) -> None:
        """Wait, but not longer than until :meth:`stop` is called."""
        self._stopping.wait(seconds)

    def round(self) -> None:
        """Ask, probe if need be, and report.

        :raises ConfigurationError: as :meth:`run`
        """
        facts = self._current_facts()
        if facts is None:
            return
        try:
            changed = self._reported(facts)
        except (PlacementError, IronicError) as error:
            self._reporting.begins(error)
            return
        self._reporting.ends()
        if changed:
            LOG.info("%s", escape_line(changed))

    def _reported(self, facts: HostFacts) -> str:
        """Report; a client library that waits without end costs a thread, and not the rounds that follow."""
        report = start_thread(partial(self._report, facts), "report")
        if not wait([report], REPORT_TIMEOUT).done:
            self._give_up()
            raise PlacementUnavailable("in time", f"the report has not ended in {REPORT_TIMEOUT:g} seconds")
        return report.result()

    def _current_facts(self) -> HostFacts | None:
        """Return the facts; None while they cannot be asked for."""
        try:
            identity = self._host.identity()
            if self._facts is None or identity != self._identity or self._clock() >= self._probe_due:
                self._facts = self._host.facts()
                self._identity = identity
                self._probe_due = self._clock() + PROBE_INTERVAL
        except PrefilterError as error:
            if self._facts is None and isinstance(error, ConfigurationError):
                raise
            self._asking.begins(error)
            return None
        self._asking.ends()
        return self._facts


class _Outage:
    """Says when something begins to fail, and when it works again: one line each, however long it lasts."""

    def __init__(self, begin: str, end: str) -> None:
        self._begin = begin
        self._end = end
        self._lasts = False

    def begins(self, error: PrefilterError) -> None:
        if not self._lasts:
            LOG.warning("%s; everything stays as it is until that works. %s", self._begin, escape_line(str(error)))
        self._lasts = True

    def ends(self) -> None:
        if self._lasts:
            LOG.info("%s", self._end)
        self._lasts = False


def run_until_signal(watch: Watch) -> None:
    """Run a watch until SIGTERM or SIGINT, and return within a second of it.

    The watch has a thread of its own: a libvirt or a Placement that hangs must not keep the process.

    :raises ConfigurationError: as :meth:`Watch.run`
    """
    errors: list[BaseException] = []
    signals: list[int] = []

    def run() -> None:
        try:
            watch.run()
        except BaseException as error:  # noqa: BLE001 - it is raised where the caller sees it
            errors.append(error)

    thread = threading.Thread(target=run, name="watch", daemon=True)
    # It notes the signal and no more: an event that it would set may be locked by what it interrupts.
    before = {each: signal.signal(each, lambda number, _frame: signals.append(number)) for each in _SIGNALS}
    try:
        thread.start()
        while thread.is_alive() and not signals:
            thread.join(_LOOK_INTERVAL)
        watch.stop()
        thread.join(GRACE)
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    if errors:
        raise errors[0]
