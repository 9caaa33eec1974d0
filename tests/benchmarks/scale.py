"""How time and memory grow to 50,000 hosts: ``python tests/benchmarks/scale.py [small] [PART] [HOSTS ...]``.

The parts are two; without a number, hosts are 1,000, 5,000, 10,000 and 50,000, which takes half an hour.

``placement``: a Placement, on MariaDB if there is one, gets ever more hosts. Its allocation candidates are timed as in
``candidates.py``; deployment facts are read as a scheduler reads them; agents report over HTTP, 50 at a time, to
Placement as a program; and ``os-prefilter readiness`` reads the whole cloud from that program.

``files``: commands read a fleet of as many hosts from a file, each as a process of its own.

Each row of the tables has the least of its runs, and how much it grew from one number of hosts to the next. Requests
and bytes are the same at each run. Times are CPU seconds of all processes together, the database's too if it runs on
this machine: what else the machine does hardly counts. Their growth stands beside that of the hosts, and the last line
names what grew faster.
"""

import json
import logging
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import audit
import psutil
from candidates import BOTH, LIMIT, NOVA, ROOT, SELECTIVE, answer, hosts_in, queries
from keystoneauth1.adapter import Adapter
from keystoneauth1.session import Session
from keystoneauth1.token_endpoint import Token
from nova import objects
from placements import FLAT, analyze, check, databases, execute, fleet_of, new_database
from report import KVM, Counted, goal_of
from side_by_side import MARIADB
from sqlalchemy import create_engine, text
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from os_prefilter.adapters.embedded import EmbeddedPlacement
from os_prefilter.adapters.placement.client import PlacementClient
from os_prefilter.adapters.placement.coverage import KnownTraits, OwnerCoverage, ReportCoverage
from os_prefilter.adapters.placement.fleet_reader import read_fleet
from os_prefilter.adapters.placement.trait_sync import HostTraits
from os_prefilter.common.errors import GenerationConflict, PlacementUnavailable
from os_prefilter.filters.report_scope import EVERY_TRAIT
from os_prefilter.fleet.model import Fleet, provider_uuid
from os_prefilter.fleet.snapshot import snapshot
from os_prefilter.vocabulary import REPORTED

HOSTS = (1_000, 5_000, 10_000, 50_000)
SMALL = (100, 300)
AT_ONCE = 50
REPORTS = 100
"""How many hosts of the cloud report."""
READ_WHOLE = 1_000
"""The most hosts that are read with their inventories, which takes three requests each."""
MANY = 10_000
"""Above so many hosts there are fewer runs."""
NOISE = 1.3
# The tests are beside the package.
_REPOSITORY = Path(__file__).parent.parent.parent
_COMMAND = str(Path(sys.executable).parent / "os-prefilter")
_IMPOSSIBLE = [f"--property={each}" for each in ("hw_architecture=aarch64", "hw_time_hpet=yes", "hw_vif_model=igb")]
_NO_HOST = 2


@dataclass
class Table:
    """Figures by subject, one for each number of hosts."""

    title: str
    sizes: Sequence[int]
    rows: dict[tuple[str, str], list[float]] = field(default_factory=dict)

    def add(self, subject: str, unit: str, value: float) -> None:
        """Add the figure of a subject for the next number of hosts."""
        self.rows.setdefault((subject, unit), []).append(value)

    def text(self) -> str:
        """Return the table, and what grew faster than the hosts."""
        grown = [after / before for before, after in pairwise(self.sizes)]
        lines = [_line(self.title, "", [f"{size:,}" for size in self.sizes], [f"x{each:.1f}" for each in grown])]
        faster = []
        for (subject, unit), values in self.rows.items():
            growth = [after / before if before else 1.0 for before, after in pairwise(values)]
            lines.append(_line(subject, unit, map(_figure, values), [f"x{each:.1f}" for each in growth]))
            if len(values) > 1 and values[0] and values[-1] / values[0] > NOISE * self.sizes[-1] / self.sizes[0]:
                faster.append(f"{subject}, {unit}")
        verdict = "; ".join(faster) or "nothing"
        return "\n".join((*lines, f"Grew faster than the hosts (by {NOISE - 1:.0%} over all sizes): {verdict}."))


def _line(subject: str, unit: str, values: Any, growth: Any) -> str:
    return f"{subject:46} {unit:>8} " + "".join(f"{each:>10}" for each in values) + "   " + " ".join(growth)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.2f}"


# -- a Placement -------------------------------------------------------------------------------------------------------


def placement_part(sizes: Sequence[int]) -> str:
    """Measure a Placement of each size; return the table."""
    database = databases()[-1]
    table = Table(f"Placement on {database}, hosts", sizes)
    for hosts in sizes:
        fleet = fleet_of(hosts, capable=hosts // 20, nesting=FLAT)
        with tempfile.TemporaryDirectory() as folder, _filled(database, fleet, Path(folder)) as (placement, url):
            _measure_candidates(table, placement, url, "flat", hosts)
            _measure_facts(table, placement, url, "none reported")
            execute(create_engine(url), _ALL_REPORTED)
            analyze(url) if database == "MariaDB" else None
            _measure_facts(table, placement, url, "all reported")
            with _served(url, Path(folder)) as (endpoint, program):
                new_clock = partial(_Clock, url, program)
                _measure_reports(table, endpoint, new_clock, hosts)
                _measure_live(table, endpoint, new_clock, hosts, Path(folder))
            _nest(placement)
            _measure_candidates(table, placement, url, "one nested", hosts)
        print(table.text(), file=sys.stderr, flush=True)
    return table.text()


_ALL_REPORTED = (
    "INSERT INTO resource_provider_traits (resource_provider_id, trait_id) SELECT resource_providers.id, traits.id "  # noqa: S608
    f"FROM resource_providers, traits WHERE traits.name = '{REPORTED}'"
)


class _Clock:
    """Counts the CPU seconds of this process, of MariaDB, and of a Placement program."""

    def __init__(self, url: str, program: int | None = None) -> None:
        self._processes = [psutil.Process(each) for each in (os.getpid(), program, _mariadb(url)) if each]
        self._start = self._now()

    def seconds(self) -> float:
        """Return what they used since the clock was made."""
        return self._now() - self._start

    def _now(self) -> float:
        return sum(times.user + times.system for times in (each.cpu_times() for each in self._processes))


def _mariadb(url: str) -> int | None:
    """Return the number of MariaDB's process; None if it runs elsewhere."""
    if url.startswith("sqlite"):
        return None
    engine = create_engine(url)
    with engine.connect() as connection:
        path = Path(str(connection.execute(text("SELECT @@pid_file")).scalar()))
    engine.dispose()
    return int(path.read_text(encoding="utf-8")) if path.exists() else None


@contextmanager
def _filled(database: str, fleet: Fleet, folder: Path) -> Iterator[tuple[EmbeddedPlacement, str]]:
    """Yield a Placement with a fleet, and the URL of its database."""
    with ExitStack() as ending:
        url = f"sqlite:///{folder}/placement.sqlite"
        if database == "MariaDB":
            url = ending.enter_context(new_database(os.environ[MARIADB]))
        placement = ending.enter_context(EmbeddedPlacement(fleet, database=url))
        # A cloud in which agents have reported once has these.
        goal = goal_of(KVM)
        placement.know({*goal.known, *goal.traits, REPORTED})
        if database == "MariaDB":
            analyze(url)
        check(placement, fleet)
        yield placement, url


@contextmanager
def _served(url: str, folder: Path) -> Iterator[tuple[str, int]]:
    """Serve the database with a Placement program over HTTP; yield the endpoint, and the number of the process."""
    (folder / "placement.conf").touch()
    environment = {
        "OS_PLACEMENT_CONFIG_DIR": str(folder),
        "OS_PLACEMENT_DATABASE__CONNECTION": url,
        "OS_API__AUTH_STRATEGY": "noauth2",
    }
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-W", "ignore", "-m", "tests.services.cloud.serve", "placement.wsgi.api", str(port)]
    with (folder / "placement.log").open("wb") as log:
        program = subprocess.Popen(command, cwd=_REPOSITORY, env={**os.environ, **environment}, stdout=log, stderr=log)
    try:
        retrying = Retrying(retry=retry_if_exception_type(OSError), stop=stop_after_delay(60), wait=wait_fixed(0.2))
        retrying(lambda: socket.create_connection(("127.0.0.1", port)).close())
        yield f"http://127.0.0.1:{port}", program.pid
    finally:
        program.terminate()
        program.wait()


def _nest(placement: EmbeddedPlacement) -> None:
    """Give one host a nested provider."""
    uuid = provider_uuid("host-0_gpu")
    body = {"name": "host-0_gpu", "uuid": uuid, "parent_provider_uuid": provider_uuid("host-0")}
    placement.client.request("POST", "/resource_providers", body)
    inventories = {"resource_provider_generation": 0, "inventories": {"VGPU": {"total": 4}}}
    placement.client.request("PUT", f"/resource_providers/{uuid}/inventories", inventories)


def _measure_candidates(table: Table, placement: EmbeddedPlacement, url: str, nesting: str, hosts: int) -> None:
    asked = {name: query for name, query in queries(SELECTIVE).items() if name in (NOVA, ROOT, BOTH)}
    seconds: dict[str, list[float]] = {name: [] for name in asked}
    for number in range(1 if hosts > MANY else 2):
        for name, query in asked.items():
            clock = _Clock(url)
            answered = answer(placement, query)
            seconds[name].append(clock.seconds())
            if not number:
                assert len(hosts_in(answered)) == min(hosts // 20, LIMIT), name
    for name, each in seconds.items():
        table.add(f"candidates, {nesting}, {name}", "CPU s", min(each))


def _measure_facts(table: Table, placement: EmbeddedPlacement, url: str, state: str) -> None:
    """Read each fact twice, as it is read once an interval; the second time counts."""
    counted: Any = Counted(placement.client._adapter)
    client = PlacementClient(counted)
    facts: dict[str, Callable[[], object]] = {"answers": ReportCoverage(client, EVERY_TRAIT)}
    if state == "all reported":
        facts |= {"owner_coverage": OwnerCoverage(client), "known_traits": KnownTraits(client)}
    for name, fact in facts.items():
        fact()
        counted.methods.clear()
        counted.received = 0
        clock = _Clock(url)
        fact()
        seconds = clock.seconds()
        subject = f"fact {name}, {state}"
        table.add(subject, "requests", sum(counted.methods.values()))
        table.add(subject, "KiB", counted.received / 1024)
        table.add(subject, "CPU s", seconds)


def _counted(endpoint: str) -> Any:
    session = Session(auth=Token(endpoint, "admin"))
    session.session.trust_env = False
    # The server has 100 connections, which a thousand agents must not keep.
    session.session.headers["Connection"] = "close"
    return Counted(Adapter(session, service_type="placement"))


class _Crowd:
    """Agents of many hosts, of which 50 report at the same time."""

    def __init__(self, endpoint: str, hosts: Sequence[int]) -> None:
        self._endpoint = endpoint
        self._hosts = hosts
        self._agents: list[tuple[Counted, HostTraits]] = []

    def start(self) -> None:
        """Start all agents, for the first time or again."""
        self._agents = [self._agent(number) for number in self._hosts]

    def _agent(self, number: int) -> tuple[Counted, HostTraits]:
        counted = _counted(self._endpoint)
        return counted, HostTraits(PlacementClient(counted), provider_uuid(f"host-{number}"))

    def report(self, new_clock: Callable[[], _Clock]) -> "_Reports":
        """Have each report until it succeeds; return what it took."""
        goal = goal_of(KVM)
        for counted, _ in self._agents:
            counted.methods.clear()

        def until_it_works(agent: HostTraits) -> int:
            for failed in range(100):
                try:
                    agent.sync(goal)
                except (GenerationConflict, PlacementUnavailable):
                    continue
                return failed
            raise SystemExit("A report failed 100 times.")

        clock = new_clock()
        with ThreadPoolExecutor(AT_ONCE) as threads:
            failed = sum(threads.map(until_it_works, (agent for _, agent in self._agents)))
        seconds = clock.seconds()
        requests = sum(sum(counted.methods.values()) for counted, _ in self._agents)
        return _Reports(requests / len(self._agents), seconds, failed + sum(each.conflicts for each, _ in self._agents))


class _Reports(NamedTuple):
    requests: float
    """Of one agent."""
    seconds: float
    failed: int
    """Conflicts, and reports that had to be repeated."""


def _measure_reports(table: Table, endpoint: str, new_clock: Callable[[], _Clock], hosts: int) -> None:
    number = min(hosts, REPORTS)
    crowd = _Crowd(endpoint, range(0, hosts, hosts // number)[:number])
    crowd.start()
    for subject, restarts in (("first report", False), ("after a restart", True), ("unchanged", False)):
        if restarts:
            crowd.start()
        found = crowd.report(new_clock)
        table.add(f"report, {subject}", "requests", found.requests)
        table.add(f"report, {subject}", "CPU ms", found.seconds / number * 1000)
        table.add(f"report, {subject}, conflicts", "", found.failed)


def _measure_live(table: Table, endpoint: str, new_clock: Callable[[], _Clock], hosts: int, folder: Path) -> None:
    (folder / "clouds.yaml").write_text(
        f"clouds: {{scale: {{auth_type: admin_token, auth: {{endpoint: '{endpoint}', token: admin}}}}}}\n",
        encoding="utf-8",
    )
    clock = new_clock()
    ran = _run(["readiness", "--os-cloud", "scale"], "compute_status", folder)
    table.add("readiness of the cloud", "CPU s", ran.cpu + clock.seconds())
    table.add("readiness of the cloud", "MiB", ran.peak)
    if hosts > READ_WHOLE:
        return
    counted = _counted(endpoint)
    clock = new_clock()
    fleet = read_fleet(PlacementClient(counted))
    seconds = clock.seconds()
    assert len(fleet.hosts) == hosts
    table.add("the cloud with its inventories", "CPU s", seconds)
    table.add("the cloud with its inventories", "requests", counted.methods["read"])


# -- commands on files -------------------------------------------------------------------------------------------------


def files_part(sizes: Sequence[int]) -> str:
    """Measure commands on files of each size; return the table."""
    table = Table("Commands on a file, hosts", sizes)
    for hosts in sizes:
        for different in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                _measure_commands(table, hosts, Path(folder), different=different)
        print(table.text(), file=sys.stderr, flush=True)
    return table.text()


def _measure_commands(table: Table, hosts: int, folder: Path, *, different: bool) -> None:
    kind = "all different" if different else "few kinds"
    fleet = replace(
        audit.fleet_of(hosts, different=different, random_=Random(1)),
        taken_at="2026-11-21T18:00:00Z",
    )
    size = (folder / "hosts.json").write_text(snapshot(fleet), encoding="utf-8")
    table.add(f"file, {kind}", "MiB", size / 2**20)
    images = audit.images_of(1_000, different=False, random_=Random(1))
    (folder / "images.json").write_text(json.dumps(list(images)), encoding="utf-8")
    commands = {
        "readiness": ([], "compute_status"),
        "offer": ([], "hw_vif_model"),
        "audit": (["--images", "images.json"], f"on {hosts} hosts"),
        "diagnose": (_IMPOSSIBLE, f"The {hosts} hosts grouped by"),
    }
    for name, (arguments, says) in commands.items():
        runs = [
            _run([name, "--hosts", "hosts.json", *arguments], says, folder) for _ in range(1 if hosts > MANY else 3)
        ]
        table.add(f"{name}, {kind}", "CPU s", min(each.cpu for each in runs))
        table.add(f"{name}, {kind}", "MiB", min(each.peak for each in runs))


class _Ran(NamedTuple):
    cpu: float
    """Seconds."""
    peak: float
    """The most resident memory, in MiB."""


# Linux counts what a process had before it executed another program: this one is small.
_LAUNCHER = """
import json, os, subprocess, sys
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
output = process.stdout.read()
_, status, used = os.wait4(process.pid, 0)
print(json.dumps([os.waitstatus_to_exitcode(status), output, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024]))
"""


def _run(arguments: Sequence[str], says: str, folder: Path) -> _Ran:
    """Run a command to its end; check what it says."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    launcher = [sys.executable, "-S", "-c", _LAUNCHER, _COMMAND, *arguments]
    done = subprocess.run(launcher, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    code, output, cpu, peak = json.loads(done.stdout)
    assert code in (0, _NO_HOST), output
    assert says in output, output
    return _Ran(cpu, peak)


PARTS: dict[str, Callable[[Sequence[int]], str]] = {"placement": placement_part, "files": files_part}


def main(arguments: Sequence[str]) -> None:
    """Measure all parts, or those that are named."""
    logging.disable(logging.WARNING)
    objects.register_all()
    named_sizes = [int(each.replace("_", "")) for each in arguments if each[0].isdigit()]
    sizes = named_sizes or (SMALL if "small" in arguments else HOSTS)
    named = [name for name in PARTS if name in arguments]
    print("\n\n".join(PARTS[name](sizes) for name in named or PARTS))


if __name__ == "__main__":
    main(sys.argv[1:])
