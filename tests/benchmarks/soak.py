"""Schedulers under load for ten minutes, in threads and then in processes: ``python tests/benchmarks/soak.py [small]``.

What they do, and what is checked of each decision, is in ``tests/exhaustive/load.py``: rules that are replaced
all the while, files of rules that are broken, facts that expire.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT))

# The tests are beside the package.
from tests.exhaustive.load import GROWTH, Answers, Figures, in_threads, requests  # noqa: E402
from tests.exhaustive.load_processes import PROCESSES  # noqa: E402

SECONDS = 600.0
SMALL = 3.0


def threads(seconds: float) -> Figures:
    """Run 8 threads that share one pipeline."""
    with tempfile.TemporaryDirectory() as folder:
        return in_threads(Path(folder), Answers(requests(), Path(folder)), seconds)


def processes(seconds: float) -> Figures:
    """Run 8 processes, forked after the pipeline was made and told of new rules by SIGHUP."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-W", "ignore", "-m", "tests.exhaustive.load_processes", folder, str(seconds)]
        done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE)
        return Figures(**json.loads(done.stdout))


def main(seconds: float) -> None:
    """Print the figures of both."""
    threads_, processes_ = threads(seconds), processes(seconds)
    columns = {"8 threads": threads_, f"{PROCESSES} processes": processes_}
    rows = {
        "seconds": [f"{each.seconds:.0f}" for each in columns.values()],
        "requests": [f"{each.requests:,}" for each in columns.values()],
        "requests a second, checked": [f"{each.requests / each.seconds:,.0f}" for each in columns.values()],
        "versions of the rules, each used": [f"{each.versions:,}" for each in columns.values()],
        "files that were no rules": [f"{each.broken:,}" for each in columns.values()],
        "resident memory after a tenth, MiB": [f"{each.start:.1f}" for each in columns.values()],
        "at half of the time": [f"{each.half:.1f}" for each in columns.values()],
        "at the end": [f"{each.end:.1f}" for each in columns.values()],
        "wrong decisions, errors": [f"{len(each.problems)}" for each in columns.values()],
    }
    print(f"{'':36}" + "".join(f"{name:>14}" for name in columns))
    for name, values in rows.items():
        print(f"{name:36}" + "".join(f"{value:>14}" for value in values))
    for figures in columns.values():
        for problem in figures.problems:
            print(problem[:1000])
    grown = threads_.end - threads_.half > GROWTH or processes_.end - processes_.half > GROWTH * PROCESSES
    if grown or any(figures.problems for figures in columns.values()):
        raise SystemExit("Something is wrong, or memory grows.")


if __name__ == "__main__":
    main(SMALL if sys.argv[1:] == ["small"] else SECONDS)
