"""Runs benchmarks and keeps what they say: ``python tests/benchmarks/run.py [NAME ...]``; without names, all of them.

Each runs in a process of its own. ``results/NAME.txt`` gets a line about the machine and then what it printed; the
documentation shows these files.
"""

import subprocess
import sys
from pathlib import Path

from side_by_side import machine

_HERE = Path(__file__).parent
_PARTS = ("placements", "run", "side_by_side")
RESULTS = _HERE / "results"


def names() -> list[str]:
    """Return the names of all benchmarks."""
    return sorted(path.stem for path in _HERE.glob("*.py") if path.stem not in _PARTS)


def main(asked: list[str]) -> int:
    """Run the benchmarks of these names; return 1 if one fails, and keep its old result."""
    unknown = set(asked) - set(names())
    if unknown:
        print(f"There is no benchmark {', '.join(sorted(unknown))}. There are: {', '.join(names())}.", file=sys.stderr)
        return 1
    failed = []
    for name in asked or names():
        print(f"# {name}", flush=True)
        command = [sys.executable, "-W", "ignore", str(_HERE / f"{name}.py")]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        print(done.stdout, flush=True)
        if done.returncode:
            failed.append(name)
            continue
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{name}.txt").write_text(f"{machine()}\n\n{done.stdout}", encoding="utf-8")
    if failed:
        print(f"Failed: {', '.join(failed)}. Their results are as they were.", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
