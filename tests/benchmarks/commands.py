"""How long commands take, and how much memory: ``python -m tests.benchmarks.commands start|scale [small]``.

``start``: commands that do little, turn by turn; the command of openstackclient stands beside ours. ``scale``: commands
that read the snapshot of a cloud from a file, with 1,000 to 50,000 hosts, which are those of ``audit.py``. Each row has
the least of its runs, and how much it grew from one number of hosts to the next; the last line names what grew faster
than the hosts. Each command is a process of its own; CPU seconds hardly depend on what else the machine does.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import NamedTuple

from os_prefilter_tools.fleet.snapshot import snapshot
from tests.benchmarks.audit import fleet_of, images_of

_BIN = Path(sys.executable).parent
_OURS = str(_BIN / "os-prefilter")
_IMAGE = {"name": "windows", "disk_format": "qcow2", "properties": {"hw_vif_model": "e1000e", "hw_disk_bus": "scsi"}}
_IMPOSSIBLE = [f"--property={each}" for each in ("hw_architecture=aarch64", "hw_time_hpet=yes", "hw_vif_model=igb")]
_MANY, _NOISE, _NO_HOST = 10_000, 1.3, 2
# Linux counts what a process had before it executed another program: this one is small.
_LAUNCHER = """
import json, os, subprocess, sys
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
output = process.stdout.read()
_, status, used = os.wait4(process.pid, 0)
print(json.dumps([os.waitstatus_to_exitcode(status), output, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024]))
"""


class Ran(NamedTuple):
    """What a command took: seconds of the clock and of the processor, and the most resident memory in MiB."""

    wall: float
    cpu: float
    peak: float


def run(command: Sequence[str], says: str = "", folder: str | None = None) -> Ran:
    """Run a command; check what it says."""
    # As an installed package is: compiled.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    launcher = [sys.executable, "-S", "-c", _LAUNCHER, *command]
    begin = time.perf_counter()
    done = subprocess.run(launcher, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    wall = time.perf_counter() - begin
    code, output, cpu, peak = json.loads(done.stdout)
    assert code in (0, _NO_HOST), output
    assert says in output, output
    return Ran(wall, cpu, peak)


def start(rounds: int) -> None:
    """Print a line for each command; those of openstackclient if it is installed."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(_IMAGE, file)
        file.flush()
        commands = {
            "python -c pass": ([sys.executable, "-c", "pass"], ""),
            "import oslo_config.cfg, os_traits": ([sys.executable, "-c", "import oslo_config.cfg, os_traits"], ""),
            "import os_prefilter": ([sys.executable, "-c", "import os_prefilter"], ""),
            "os-prefilter explain --image FILE": (
                [_OURS, "explain", "--image", file.name],
                "COMPUTE_NET_VIF_MODEL_E1000E",
            ),
            "os-prefilter --help": ([_OURS, "--help"], ""),
        }
        if (_BIN / "openstack").exists():
            commands |= {f"openstack {each}": ([str(_BIN / "openstack"), each], "") for each in ("--version", "--help")}
        runs: dict[str, list[Ran]] = {name: [] for name in commands}
        for _ in range(rounds):
            for name, each in commands.items():
                runs[name].append(run(*each))
    for name, found in runs.items():
        wall, cpu, _peak = (statistics.median(each) * 1e3 for each in zip(*found, strict=True))
        print(f"{name:35} wall {wall:5.0f} ms (least {min(found).wall * 1e3:5.0f}), CPU {cpu:5.0f} ms")


def scale(sizes: Sequence[int], rounds: int) -> None:
    """Print a table of commands on files of each size."""
    rows: dict[tuple[str, str], list[float]] = {}
    for hosts in sizes:
        for different in (False, True):
            kind = "all different" if different else "few kinds"
            for subject, ran in _commands_on(hosts, 1 if hosts > _MANY else rounds, different=different).items():
                rows.setdefault((f"{subject}, {kind}", "CPU s"), []).append(ran.cpu)
                rows.setdefault((f"{subject}, {kind}", "MiB"), []).append(ran.peak)
    print(_line("Commands on a file, hosts", "", sizes))
    for (subject, unit), values in rows.items():
        print(_line(subject, unit, values))
    most = _NOISE * sizes[-1] / sizes[0]
    faster = "; ".join(" ".join(row) for row, values in rows.items() if values[-1] > most * values[0])
    print(f"Grew faster than the hosts (by {_NOISE - 1:.0%} over all sizes): {faster or 'nothing'}.")


def _commands_on(hosts: int, rounds: int, *, different: bool) -> dict[str, Ran]:
    commands = {
        "readiness": ([], "compute_status"),
        "offer": ([], "hw_vif_model"),
        "audit": (["--images", "images.json"], f"on {hosts} hosts"),
        "diagnose": (_IMPOSSIBLE, f"The {hosts} hosts grouped by"),
    }
    fleet = replace(fleet_of(hosts, different=different, random_=Random(1)), taken_at="2026-11-21T18:00:00Z")
    images = list(images_of(1_000, different=False, random_=Random(1)))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "hosts.json").write_text(snapshot(fleet), encoding="utf-8")
        Path(folder, "images.json").write_text(json.dumps(images), encoding="utf-8")
        found = {}
        for name, (arguments, says) in commands.items():
            line = [_OURS, name, "--hosts", "hosts.json", *arguments]
            runs = [run(line, says, folder) for _ in range(rounds)]
            found[name] = Ran(*map(min, zip(*runs, strict=True)))
    return found


def _line(subject: str, unit: str, values: Sequence[float]) -> str:
    shown = (f"{each:,.0f}" if each >= 100 or each == int(each) else f"{each:.2f}" for each in values)
    growth = " ".join(f"x{after / before:.1f}" for before, after in pairwise(values))
    return f"{subject:26} {unit:>6} " + "".join(f"{each:>9}" for each in shown) + f"   {growth}"


def main(arguments: Sequence[str]) -> None:
    """Measure what is named."""
    small = "small" in arguments
    if "scale" in arguments:
        scale((100, 300) if small else (1_000, 5_000, 10_000, 50_000), 1 if small else 3)
    else:
        start(1 if small else 5)


if __name__ == "__main__":
    main(sys.argv[1:])
