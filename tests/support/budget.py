"""Processor seconds of a run of the tests by folder: printed at its end, and in CI no more than the budget.

Counted is what each process of the run uses, and what it started and waited for. The unit is a second of the machine
that the budget was set on: each process times a small loop as it starts and as it ends, so that a slow or busy machine
is not taken for slow tests.
"""

import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterator

import pytest

BUDGET = 400
"""Processor seconds that the first layer may use."""

_LOOP_ITEMS = 200_000
_LOOP_SECONDS = 0.1
"""Of the loop on the machine that the budget was set on."""


def _used() -> float:
    return sum(os.times()[:4])


def _loop_seconds() -> float:
    """Return the processor seconds of the loop, the best of three."""
    times = []
    for _ in range(3):
        start = time.process_time()
        names = {str(number): [number] for number in range(_LOOP_ITEMS)}
        assert sum(len(names[name]) for name in sorted(names)) == _LOOP_ITEMS
        times.append(time.process_time() - start)
    return min(times)


class Budget:
    """Counts in the one process of a run, or in each worker of pytest-xdist and in the process that started them."""

    def __init__(self, config: pytest.Config) -> None:
        self._loop = _loop_seconds()
        self._tests: dict[str, float] = defaultdict(float)
        self._sums: Counter[str] = Counter()
        whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS and not config.option.keyword
        self._at_most = BUDGET if whole and "CI" in os.environ else float("inf")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Count a test, with the fixtures that it is the first or the last to need."""
        before = _used()
        try:
            return (yield)
        finally:
            folder = "/".join(item.nodeid.split("::")[0].split("/")[:2])
            self._tests[folder] += _used() - before

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Add what a worker has used."""
        self._sums.update(getattr(node, "workeroutput", {}).get("processor_seconds", {}))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Sum up this process; in the first one, fail a run that used too much."""
        slower = (self._loop + _loop_seconds()) / 2 / _LOOP_SECONDS
        rest = {"imports, collection, reports": _used() - sum(self._tests.values())}
        sums = {name: seconds / slower for name, seconds in (self._tests | rest).items()}
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["processor_seconds"] = sums
        self._sums.update(sums)
        if self._sums.total() > self._at_most:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: "pytest.TerminalReporter") -> None:
        """Print the seconds by folder."""
        folders = ", ".join(f"{name} {seconds:.0f}" for name, seconds in self._sums.most_common() if seconds >= 1)
        terminalreporter.write_line(f"Processor seconds: {self._sums.total():.0f} ({folders}).")
        if self._sums.total() > self._at_most:
            line = f"The budget is {BUDGET}: make other tests faster, or move them to the layer that they belong to."
            terminalreporter.write_line(line, red=True)
