"""How long ``os-prefilter diagnose`` takes: ``python tests/benchmarks/diagnose.py [small]``.

From the snapshot of a cloud in a file to the printed diagnosis, as a process. The hosts are those of ``audit.py``; no
host meets the request.
"""

import random
import statistics
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from audit import fleet_of
from side_by_side import side_by_side
from start import process

from os_prefilter.fleet.snapshot import snapshot

_REQUEST = ("--property", "hw_architecture=aarch64", "--property", "hw_time_hpet=yes", "--property", "hw_vif_model=igb")


def measure(hosts: int, rounds: int, *, different: bool) -> None:
    """Print a line about a fleet of few kinds, or one where all hosts are different."""
    fleet = replace(fleet_of(hosts, different=different, random_=random.Random(1)), taken_at="2026-11-21T18:00:00Z")
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(snapshot(fleet))
        file.flush()
        command = [str(Path(sys.executable).parent / "os-prefilter"), "diagnose", "--hosts", file.name, *_REQUEST]
        size = Path(file.name).stat().st_size / 2**20
        cpu: list[float] = []
        wall: list[float] = []
        run = process(command, cpu, wall, codes=(2,), says=f"The {hosts} hosts grouped by")
        seconds = side_by_side({"diagnose": run}, rounds=rounds)["diagnose"]
    print(
        f"{'all different' if different else 'few kinds':14} {hosts:,} hosts, file of {size:4.1f} MiB: "
        f"wall {seconds:5.1f} s (least {min(wall):5.1f}), CPU {statistics.median(cpu):5.1f} s",
        flush=True,
    )


def main(arguments: list[str]) -> None:
    """Measure both kinds of fleets."""
    hosts, rounds = (60, 1) if "small" in arguments else (10_000, 7)
    for different in (False, True):
        measure(hosts, rounds, different=different)


if __name__ == "__main__":
    main(sys.argv[1:])
