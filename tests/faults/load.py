"""Schedulers at full speed, in threads and in processes, whose rules are replaced all the while."""

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.load_mix import Answers
from tests.faults.load_schedulers import Operator, Scheduler
from tests.faults.load_watch import PATIENCE, Stuck, Watchdog, logging_counted, memory, stacks_here, switching_often

GROWTH = 16.0
"""MiB by which a process may grow in the second half of the time."""
_FEWEST_REQUESTS, _FEWEST_VERSIONS = 500, 5


@dataclass
class Figures:
    """What a run saw."""

    requests: int = 0
    versions: int = 0
    """Of the rules; all of them were seen in use."""
    broken: int = 0
    """Files that were not rules."""
    seconds: float = 0.0
    start: float = 0.0
    """Resident memory in MiB once all is warm: after a tenth of the time."""
    half: float = 0.0
    end: float = 0.0
    problems: list[str] = field(default_factory=list)
    """Wrong answers, and exceptions: there must be none."""

    def __str__(self) -> str:
        return (
            f"{self.requests:,} requests in {self.seconds:.0f} s, {self.requests / self.seconds:,.0f} a second; "
            f"{self.versions:,} versions of the rules and {self.broken:,} broken files; "
            f"memory {self.start:.1f} MiB at the start, {self.half:.1f} at half, {self.end:.1f} at the end; "
            f"{len(self.problems)} problems"
        )


class Load:
    """Runs the operator beside schedulers for some seconds, and measures.

    :param done: the requests that each scheduler has answered
    :param seen: the version that all schedulers have seen, at least
    :param failed: whether one has a problem
    """

    def __init__(
        self,
        operator: Operator,
        done: Sequence[int],
        seen: Callable[[], int],
        failed: Callable[[], bool],
        stacks: Callable[[], str] = stacks_here,
    ) -> None:
        self.operator = operator
        self.newest: Callable[[int], None] = lambda _version: None
        self.processes: tuple[int, ...] = ()
        self._done = done
        self._seen = seen
        self._failed = failed
        self._watchdog = Watchdog(done, stacks)

    def run(self, seconds: float) -> Figures:
        """Replace the rules until the time is over, on a slow machine a while longer; return the figures.

        :raises Stuck: a scheduler stands still, or does not use new rules
        """
        figures, start, before = Figures(), time.monotonic(), sum(self._done)
        marks = {"start": seconds / 10, "half": seconds / 2}
        for number in itertools.count(1):
            if number % 5 == 1:
                self.operator.spoil()
            version = self.operator.publish(self.newest)
            self._wait_until(lambda version=version: self._seen() >= version)  # type: ignore[misc]
            passed = time.monotonic() - start
            for name in [name for name, at in marks.items() if passed >= at]:
                del marks[name]
                setattr(figures, name, memory(*self.processes))
            enough = sum(self._done) - before > _FEWEST_REQUESTS and number > _FEWEST_VERSIONS
            if self._failed() or (passed >= seconds and not marks and enough):
                break
        figures.end = memory(*self.processes)
        figures.seconds = time.monotonic() - start
        figures.requests = sum(self._done) - before
        figures.versions, figures.broken = self.operator.newest, self.operator.broken
        return figures

    def _wait_until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not (condition() or self._failed()):
            self._watchdog.look()
            if time.monotonic() > deadline:
                raise Stuck(f"Version {self.operator.newest} of the rules is not used after {PATIENCE:.0f} s.")
            time.sleep(0.005)


def in_threads(folder: Path, answers: Answers, seconds: float, threads: int = 8) -> Figures:
    """Run schedulers in threads that share one pipeline."""
    rules = folder / "rules"
    rules.mkdir()
    operator = Operator(rules, lambda: None)
    operator.publish()
    with logging_counted() as errors, switching_often():
        scheduler = Scheduler(answers, rules, lambda: operator.newest)
        operator.tell = scheduler.reload
        done = [0] * threads
        workers = [
            threading.Thread(target=scheduler.work, args=(done, index), name=f"scheduler-{index}", daemon=True)
            for index in range(threads)
        ]
        for worker in workers:
            worker.start()
        load = Load(operator, done, lambda: scheduler.seen, lambda: bool(scheduler.problems))
        try:
            figures = load.run(seconds)
        finally:
            scheduler.stopping.set()
        for worker in workers:
            worker.join(PATIENCE)
            if worker.is_alive():
                raise Stuck(stacks_here())
    figures.problems = scheduler.problems + errors
    return figures
