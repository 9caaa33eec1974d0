"""A program: schedulers in processes of their own, as nova-scheduler has them; it prints the figures as JSON.

The pipeline is made before the processes are forked, as Nova does it. Each has one thread that schedules, and one that
waits for SIGHUP.
"""

import faulthandler
import json
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.exhaustive.load import PATIENCE, Answers, Figures, Load, Operator, Scheduler, logging_counted, requests

PROCESSES = 8
_SIGNALS = frozenset((signal.SIGHUP, signal.SIGTERM))


class _Shared:
    """What the processes tell each other: one number each, written by one of them."""

    def __init__(self, context: Any) -> None:
        self.done = context.RawArray("q", PROCESSES)
        self.seen = context.RawArray("q", PROCESSES)
        self.newest = context.RawValue("q", 0)


def _schedule(folder: Path, index: int, scheduler: Scheduler, shared: _Shared) -> None:
    """Schedule until SIGTERM, or until the parent is gone; then leave the problems in a file."""
    parent = os.getppid()

    def note(version: int) -> None:
        shared.seen[index] = version

    scheduler.note = note
    with (folder / f"stacks-{index}").open("w") as file, logging_counted() as errors:
        faulthandler.register(signal.SIGUSR1, file, all_threads=True)
        worker = threading.Thread(target=scheduler.work, args=(shared.done, index), daemon=True)
        worker.start()
        while os.getppid() == parent and worker.is_alive():
            received = signal.sigtimedwait(_SIGNALS, 0.5)
            if received and received.si_signo == signal.SIGTERM:
                break
            if received:
                scheduler.reload()
        scheduler.stopping.set()
        worker.join(PATIENCE)
        stuck = ["its thread does not end"] if worker.is_alive() else []
    (folder / f"problems-{index}").write_text(json.dumps(scheduler.problems + errors + stuck), encoding="utf-8")


def _stacks(folder: Path, processes: Sequence[Any]) -> str:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGUSR1)
    # Each writes in its signal handler, at once unless it is no longer there.
    time.sleep(1.0)
    return "\n".join(f"{path.name}:\n{path.read_text()}" for path in sorted(folder.glob("stacks-*")))


def run(folder: Path, seconds: float) -> Figures:
    """Run the processes beside an operator; return the figures."""
    context = multiprocessing.get_context("fork")
    shared = _Shared(context)
    rules = folder / "rules"
    rules.mkdir()
    answers = Answers(requests(), folder)
    operator = Operator(rules, lambda: None)
    operator.publish(lambda version: setattr(shared.newest, "value", version))
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    with logging_counted():
        scheduler = Scheduler(answers, rules, lambda: int(shared.newest.value))
    processes = [
        context.Process(target=_schedule, args=(folder, index, scheduler, shared), daemon=True)
        for index in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)

    numbers = [process.pid for process in processes if process.pid]

    def tell() -> None:
        for number in numbers:
            os.kill(number, signal.SIGHUP)

    operator.tell = tell
    load = Load(
        operator,
        shared.done,
        lambda: min(shared.seen),
        lambda: not all(process.is_alive() for process in processes),
        lambda: _stacks(folder, processes),
    )
    load.newest = lambda version: setattr(shared.newest, "value", version)
    load.processes = tuple(numbers)
    try:
        figures = load.run(seconds)
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.join(PATIENCE)
            process.kill()
    for index, process in enumerate(processes):
        figures.problems += [] if process.exitcode == 0 else [f"process {index} ended with {process.exitcode}"]
        figures.problems += json.loads((folder / f"problems-{index}").read_text(encoding="utf-8"))
    return figures


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asdict(run(Path(sys.argv[1]), float(sys.argv[2])))))
