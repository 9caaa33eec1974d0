"""How long commands take to start: ``python tests/benchmarks/start.py [small]``.

Each is a process of its own, turn by turn with the others. CPU is what the process itself used; the least wall time of
all rounds says what the machine does when nothing else runs. The command of openstackclient stands beside ours.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from side_by_side import side_by_side

_BIN = Path(sys.executable).parent
_EXPLAIN = "os-prefilter explain --image FILE"
_SAYS = {_EXPLAIN: "COMPUTE_NET_VIF_MODEL_E1000E"}
_IMAGE = {"name": "windows", "disk_format": "qcow2", "properties": {"hw_vif_model": "e1000e", "hw_disk_bus": "scsi"}}


def commands(image: str) -> dict[str, list[str]]:
    """Return the command lines; those of openstackclient if it is installed."""
    found = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "import oslo_config.cfg, os_traits": [sys.executable, "-c", "import oslo_config.cfg, os_traits"],
        "import os_prefilter": [sys.executable, "-c", "import os_prefilter"],
        _EXPLAIN: [str(_BIN / "os-prefilter"), "explain", "--image", image],
        "os-prefilter --help": [str(_BIN / "os-prefilter"), "--help"],
    }
    if (_BIN / "openstack").exists():
        found["openstack --version"] = [str(_BIN / "openstack"), "--version"]
        found["openstack --help"] = [str(_BIN / "openstack"), "--help"]
    return found


def process(
    command: Sequence[str], cpu: list[float], wall: list[float], *, codes: Sequence[int] = (0,), says: str = ""
) -> Callable[[], None]:
    """Return a function that runs a command to its end and notes what it took.

    :param codes: the exit codes that are right
    :param says: what the output must contain
    """
    # As an installed package is: compiled.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def run() -> None:
        before, start = _children_cpu(), time.perf_counter()
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
        wall.append(time.perf_counter() - start)
        cpu.append(_children_cpu() - before)
        assert done.returncode in codes, done.returncode
        assert says in done.stdout, done.stdout

    return run


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main(arguments: list[str]) -> None:
    """Print a line for each command."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(_IMAGE, file)
        file.flush()
        cpu: dict[str, list[float]] = {}
        wall: dict[str, list[float]] = {}
        sides = {
            name: process(command, cpu.setdefault(name, []), wall.setdefault(name, []), says=_SAYS.get(name, ""))
            for name, command in commands(file.name).items()
        }
        seconds = side_by_side(sides, rounds=1 if "small" in arguments else 5)
    for name, median in seconds.items():
        used = statistics.median(cpu[name])
        least = min(wall[name])
        print(f"{name:35} wall {median * 1e3:5.0f} ms (least {least * 1e3:5.0f}), CPU {used * 1e3:5.0f} ms")
    if sys.executable.startswith("/tmp"):  # noqa: S108 - it is stevedore's rule
        print("Below /tmp stevedore looks for entry points anew at each start; elsewhere commands start quicker.")


if __name__ == "__main__":
    main(sys.argv[1:])
