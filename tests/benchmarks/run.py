# SPDX-License-Identifier: Apache-2.0

"""Run benchmarks and keep what they print:
``python -m tests.benchmarks.run [NAME ...]``; without names, all of them.

Each runs in a process of its own. ``results/NAME.txt`` gets a line about the
machine and then what it printed; the documentation shows these files. ``python
-m tests.benchmarks.MODULE ... small`` takes seconds and keeps nothing.
"""

from __future__ import annotations

import os
import platform
import sqlite3
import subprocess
import sys
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
BENCHMARKS = {
    "candidates": "candidates",
    "pipeline": "pipeline",
    "workers": "workers",
}
"""Name -> module and arguments."""


def machine() -> str:
    """Return one line about where and when this is measured, and how busy it
    was in 1, 5 and 15 minutes.
    """
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    processor = next(
        (
            line.partition(": ")[2]
            for line in lines
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    packages = (
        f"{name} {version(name)}" for name in ("nova", "openstack-placement")
    )
    load = " ".join(f"{each:.1f}" for each in os.getloadavg())
    return (
        f"{datetime.now(timezone.utc):%Y-%m-%d}; {processor}, {os.cpu_count()}"
        f" cores; Python {platform.python_version()}; {'; '.join(packages)};"
        f" SQLite {sqlite3.sqlite_version}; load average {load}"
    )


def main(asked: list[str]) -> int:
    """Run the benchmarks of these names; return 1 if one fails, and keep its
    old result.
    """
    if unknown := ", ".join(sorted(set(asked) - BENCHMARKS.keys())):
        print(
            f"There is no benchmark {unknown}. There are:"
            f" {', '.join(BENCHMARKS)}.",
            file=sys.stderr,
        )
        return 1
    failed = []
    for name in asked or BENCHMARKS:
        print(f"# {name}", flush=True)
        module, *arguments = BENCHMARKS[name].split()
        command = [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            f"tests.benchmarks.{module}",
            *arguments,
        ]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, check=False
        )
        print(done.stdout, flush=True)
        if done.returncode:
            failed.append(name)
        else:
            (RESULTS / f"{name}.txt").write_text(
                f"{machine()}\n\n{done.stdout}", encoding="utf-8"
            )
    if failed:
        print(
            f"Failed: {', '.join(failed)}. Their results are as they were.",
            file=sys.stderr,
        )
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
