# SPDX-License-Identifier: Apache-2.0

"""A cloud on this machine: Placement, nova-conductor and nova-computes with
Nova's fake virt driver, as programs.

Its hosts differ in the traits that the library reports for them. Where
nova-scheduler is missing, tests start it.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from signal import SIGHUP
from typing import Any
from urllib.parse import parse_qs
from uuid import uuid4

from kombu.connection import Connection

from os_prefilter.adapters.nova_conf import load_conf
from os_prefilter.adapters.placement.client import PlacementClient
from os_prefilter.adapters.placement.from_conf import client_from
from os_prefilter.adapters.placement.trait_sync import ProviderTraits
from os_prefilter.hosts.desired_traits import Mode, goal_of
from os_prefilter.hosts.drivers.fake import LIKE_NOVA, FakeFacts
from tests.services.cloud.others import others
from tests.services.mariadb.databases import Databases
from tests.services.own_services import Service, folder_of, listens_on
from tests.support.every_trait import CUSTOM_TRAITS, EVERY_KEY
from tests.support.processes import free_port
from tests.support.programs import Program, running, until
from tests.support.zipping import zip_equal

HOSTS: Mapping[str, Mapping[str, str]] = {
    "timer-host": {"time_hpet": "true"},
    "e1000e-host": {"vif_model": "e1000e"},
    "plain-host": {"video_model": "cirrus"},
}
"""What each host can do beside what Nova's fake driver says of itself."""

WORKERS = 2

LISTENING = "Join ServiceGroup membership for this service scheduler"
"""What each worker writes when it begins to answer."""

_CELL1 = 2
"""The number of the cell with all hosts."""

ACTIVATION = """
[filter_scheduler]
available_filters = nova.scheduler.filters.all_filters
available_filters = os_prefilter.nova.activate
"""

_NOVA_CONF = """
[DEFAULT]
debug = true
host = {host}
state_path = {folder}/{host}
transport_url = {rabbitmq}
control_exchange = {exchange}
compute_driver = fake.FakeDriver
long_rpc_timeout = 60
[conductor]
workers = 1
[neutron]
auth_type = none
endpoint_override = {neutron}
[oslo_concurrency]
lock_path = {folder}/locks
[placement]
auth_type = admin_token
endpoint = {placement}
endpoint_override = {placement}
token = admin
[quota]
driver = nova.quota.NoopQuotaDriver
[scheduler]
workers = 2
"""

# For all services but nova-compute, which must not have it.
DATABASES_CONF = """
[api_database]
connection = {nova_api}
[database]
connection = {nova_cell}
"""

_PLACEMENT_CONF = """
[api]
auth_strategy = noauth2
[placement_database]
connection = {database}
sync_on_startup = true
"""


def hang_up(scheduler: Program, text: str) -> None:
    """Send SIGHUP, and wait until Nova 34 has replaced its workers, or each of
    an older Nova's has written ``text``.
    """
    old, listening, written = (
        scheduler.workers(),
        scheduler.log.count(LISTENING),
        scheduler.log.count(text),
    )
    scheduler.signal(SIGHUP)

    def is_done() -> bool:
        log, workers = scheduler.log, scheduler.workers()
        if workers == old:
            # They write it, and so does the process that started them.
            return log.count(text) - written >= 1 + WORKERS
        return (
            old.isdisjoint(workers)
            and log.count(LISTENING) - listening >= WORKERS
        )

    until(
        is_done,
        lambda: f"the workers were not replaced, and did not write {text!r}",
    )


@dataclass(frozen=True)
class Answer:
    """What nova-scheduler answered to one request."""

    request: str
    """The id of the request, which is in the logs."""
    hosts: tuple[str, ...]
    """The chosen host, then its alternates."""
    error: str


class Client:
    """The running program ``client.py``: one request at a time."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log

    def ask(
        self,
        properties: Mapping[str, str] | None = None,
        extra_specs: Mapping[str, str] | None = None,
        **more: Any,
    ) -> Answer:
        """Have a server of this image and flavor scheduled, over RPC.

        :param more: what else the request says: see ``client.py``
        """
        assert self._process.stdin
        assert self._process.stdout
        asked = {
            "properties": dict(properties or {}),
            "extra_specs": dict(extra_specs or {}),
            **more,
        }
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, self._log.read_text()
        answer = json.loads(line)
        return Answer(
            answer["request"], tuple(answer["hosts"]), answer["error"]
        )


class Clients:
    """Several clients, which ask at the same time."""

    def __init__(self, clients: Iterable[Client]) -> None:
        self._free: SimpleQueue[Client] = SimpleQueue()
        for each in clients:
            self._free.put(each)
        self._threads = ThreadPoolExecutor(self._free.qsize())

    def ask(
        self,
        properties: Iterable[Mapping[str, str]],
        meanwhile: Callable[[], object],
    ) -> list[tuple[Answer, float, float]]:
        """Return the answer to each request for an image, and from when to
        when it was under way.
        """
        pending = [
            self._threads.submit(self._ask, each) for each in properties
        ]
        while wait(pending, 0.02).not_done:
            meanwhile()
        return [each.result() for each in pending]

    def _ask(
        self, properties: Mapping[str, str]
    ) -> tuple[Answer, float, float]:
        client, begun = self._free.get(), time.monotonic()
        try:
            return client.ask(properties), begun, time.monotonic()
        finally:
            self._free.put(client)


class Cloud:
    """Where the parts of the cloud are."""

    def __init__(
        self, folder: Path, rabbitmq: str, databases: Databases
    ) -> None:
        self.folder = folder
        self.databases = databases
        self._values = {
            "folder": str(folder),
            "rabbitmq": rabbitmq,
            "exchange": databases.token,
            "nova_api": databases.create("nova_api"),
            "nova_cell": databases.create("nova_cell1"),
            "neutron": "",
            "placement": "",
        }
        self._hosts = [*HOSTS]
        self.programs: list[Program] = []
        self._client: Client | None = None

    def conf(self, host: str, *more: str, **values: str) -> Path:
        """Write the nova.conf of a service; return its path.

        :param more: what follows in the file
        :param values: for the templates, in place of the usual ones
        """
        (self.folder / host).mkdir(exist_ok=True)
        path = self.folder / host / "nova.conf"
        path.write_text(
            "".join((_NOVA_CONF, *more)).format_map(
                {**self._values, "host": host, **values}
            )
        )
        return path

    @contextmanager
    def running(self) -> Iterator[None]:
        """Have everything but nova-scheduler up while the context lasts."""
        with ExitStack() as ending:
            ending.callback(self._delete_queues)
            self._values["neutron"] = ending.enter_context(others()).url
            placement = self._start_placement(ending)
            self._set_up_databases(ending, placement)
            self._client = ending.enter_context(self.client())
            conductor = self.start(
                ending, "nova-conductor", "conductor", DATABASES_CONF
            )
            self.placement.ensure_traits(CUSTOM_TRAITS)
            conductor.wait_for_log("Join ServiceGroup membership")
            for host in HOSTS:
                self.start(ending, "nova-compute", host)
            self._discover(HOSTS)
            yield

    @contextmanager
    def host(
        self, host: str, can: Mapping[str, str], more: str = ""
    ) -> Iterator[Program]:
        """Run nova-compute on one more host while the context lasts; Nova and
        Placement keep the host.

        :param more: lines at the end of its nova.conf
        """
        self._hosts.append(host)
        with ExitStack() as ending:
            program = self.start(ending, "nova-compute", host, more)
            ending.callback(self.programs.remove, program)
            self._discover({host: can})
            yield program

    @contextmanager
    def metal(
        self, host: str, more: str, nodes: Iterable[str], trait: str
    ) -> Iterator[Program]:
        """Run nova-compute with these lines in its nova.conf until Placement
        has nodes of Ironic with a trait.
        """
        self._hosts.append(host)
        self.databases.insert(
            "nova_api.host_mappings", cell_id=_CELL1, host=host
        )
        with ExitStack() as ending:
            program = self.start(ending, "nova-compute", host, more)
            ending.callback(self.programs.remove, program)
            for node in nodes:
                until(
                    partial(
                        self.placement.providers,
                        f"uuid={node}&required={trait}",
                    ),
                    lambda: program.log[-5000:],
                )
            yield program

    def _discover(self, hosts: Mapping[str, Mapping[str, str]]) -> None:
        """Report hosts, and map them to their cell: nova-manage takes seconds
        for it.
        """
        for host, can in hosts.items():
            self.report(host, can)
            self.databases.insert(
                "nova_api.host_mappings", cell_id=_CELL1, host=host
            )

    @contextmanager
    def scheduler(self, more: str = "") -> Iterator[Program]:
        """Run nova-scheduler with these lines at the end of its nova.conf
        until both of its workers answer.
        """
        with self.starting_scheduler(more) as program:
            program.wait_for_log(LISTENING, WORKERS)
            yield program

    @contextmanager
    def starting_scheduler(
        self,
        more: str,
        environment: Mapping[str, str] | None = None,
        host: str = "scheduler",
    ) -> Iterator[Program]:
        """Run nova-scheduler, which may end by itself."""
        self._hosts.append(host)
        argv = [
            "nova-scheduler",
            "--config-file",
            str(self.conf(host, DATABASES_CONF, more)),
        ]
        with running(argv, self.folder, host, environment) as program:
            yield program

    @contextmanager
    def scheduler_without_arguments(
        self, host: str, files: Mapping[str, str]
    ) -> Iterator[Program]:
        """Run nova-scheduler as in a container: with an empty nova.conf, and
        with these files in nova.conf.d; what it needs of the cloud comes
        first.
        """
        self._hosts.append(host)
        of_cloud = self.conf(host, DATABASES_CONF).read_text(encoding="utf-8")
        folder = self.folder / host / ".nova" / "nova.conf.d"
        folder.mkdir(parents=True)
        (folder.parent / "nova.conf").touch()
        for name, text in {"00-cloud.conf": of_cloud, **files}.items():
            (folder / name).write_text(text, encoding="utf-8")
        # There oslo.config looks before it looks in /etc/nova.
        environment = {"HOME": str(self.folder / host)}
        with running(
            ["nova-scheduler"], self.folder, host, environment
        ) as program:
            program.wait_for_log(LISTENING)
            yield program

    def ask(self, *asked: Mapping[str, str] | None, **more: Any) -> Answer:
        """Ask as :meth:`Client.ask` does."""
        assert self._client
        return self._client.ask(*asked, **more)

    def query_of(self, answer: Answer) -> dict[str, list[str]]:
        """Return the query that Placement was asked for this answer, by its
        own log.
        """
        lines = [
            line
            for line in self.programs[0].log.splitlines()
            if answer.request in line
        ]
        found = [
            re.search(r'"GET /allocation_candidates\?(\S+)"', line)
            for line in lines
        ]
        queries = [match[1] for match in found if match]
        assert len(queries) == 1
        return parse_qs(queries[0])

    @property
    def placement(self) -> PlacementClient:
        """The library's client, as a nova.conf describes it."""
        path = self.folder / "manage" / "nova.conf"
        return client_from(load_conf(path), path)

    @property
    def placement_url(self) -> str:
        """Where Placement is."""
        return self._values["placement"]

    def _start_placement(self, ending: ExitStack) -> Program:
        database = self.databases.create("placement")
        (self.folder / "placement.conf").write_text(
            _PLACEMENT_CONF.format(database=database)
        )
        argv = [
            "waitress-serve",
            "--listen=127.0.0.1:0",
            "--call",
            "placement.wsgi:init_application",
        ]
        environment = {"OS_PLACEMENT_CONFIG_DIR": str(self.folder)}
        program = ending.enter_context(
            running(argv, self.folder, "placement", environment)
        )
        self.programs.append(program)
        return program

    def _set_up_databases(self, ending: ExitStack, placement: Program) -> None:
        self.conf("manage", DATABASES_CONF)
        syncs = [
            self._manage(ending, "api_db", "sync"),
            self._manage(ending, "db", "sync", "--local_cell"),
        ]
        log = placement.wait_for_log("Serving on http")
        self._values["placement"] = re.findall(
            r"Serving on (http://127\.0\.0\.1:\d+)", log
        )[0]
        for sync in syncs:
            sync.succeed()
        self.conf("manage", DATABASES_CONF)
        cell0 = {
            "uuid": "00000000-0000-0000-0000-000000000000",
            "name": "cell0",
            "transport_url": "none:///",
        }
        cell1 = {
            "uuid": str(uuid4()),
            "name": "cell1",
            "transport_url": self._values["rabbitmq"],
        }
        urls = (
            self.databases.copy("nova_cell1", "nova_cell0"),
            self._values["nova_cell"],
        )
        for number, (cell, url) in enumerate(
            zip_equal((cell0, cell1), urls), 1
        ):
            self.databases.insert(
                "nova_api.cell_mappings",
                id=number,
                database_connection=url,
                disabled=False,
                **cell,
            )

    def _manage(self, ending: ExitStack, *argv: str) -> Program:
        command = [
            "nova-manage",
            "--config-file",
            str(self.folder / "manage" / "nova.conf"),
            *argv,
        ]
        return ending.enter_context(
            running(command, self.folder, "-".join(argv[:2]))
        )

    def start(
        self, ending: ExitStack, name: str, host: str, *more: str
    ) -> Program:
        """Run a service of Nova until the end of a context, with these lines
        in its nova.conf.
        """
        argv = [name, "--config-file", str(self.conf(host, *more))]
        program = ending.enter_context(running(argv, self.folder, host))
        self.programs.append(program)
        return program

    def report(self, host: str, can: Mapping[str, str]) -> None:
        """Report what the host can do, beside its nova-compute."""
        client = self.placement
        # The trait comes with the first full report, after the provider
        # itself.
        ours = f"/resource_providers?name={host}&required=COMPUTE_NODE"
        until(
            lambda: client.request("GET", ours)["resource_providers"],
            lambda: f"nova-compute did not report {host}",
        )
        facts = FakeFacts(
            can={
                **LIKE_NOVA,
                **{row: frozenset((value,)) for row, value in can.items()},
            }
        )
        ProviderTraits(client, host).sync(
            goal_of(facts, EVERY_KEY, Mode.BESIDE)
        )

    def _delete_queues(self) -> None:
        """Leave nothing in RabbitMQ but what it deletes itself.

        It could delete all by itself (``amqp_auto_delete``), but then loses
        what is sent while workers are replaced: a queue whose last consumer
        has gone goes with its messages, and the next consumer may just have
        declared it.
        """
        url = self._values["rabbitmq"].replace("rabbit://", "amqp://", 1)
        with Connection(url) as connection, connection.channel() as channel:  # type: ignore[no-untyped-call]
            for topic in ("compute", "compute-alt", "conductor", "scheduler"):
                for queue in (
                    topic,
                    *(f"{topic}.{host}" for host in (*self._hosts, topic)),
                ):
                    channel.queue_delete(queue)
            channel.exchange_delete(self._values["exchange"])

    @contextmanager
    def other_placement(self) -> Iterator[tuple[Service, str]]:
        """Yield one more Placement on the same database, which may be killed,
        and its URL.
        """
        port = free_port()
        program = str(Path(sys.executable).with_name("waitress-serve"))
        command = [
            program,
            f"--listen=127.0.0.1:{port}",
            "--call",
            "placement.wsgi:init_application",
        ]
        with folder_of("nobody") as folder:
            environment = {"OS_PLACEMENT_CONFIG_DIR": str(self.folder)}
            service = Service(
                folder, command, lambda: listens_on(port), environment
            )
            try:
                service.start()
                yield service, f"http://127.0.0.1:{port}"
            finally:
                service.kill()

    @contextmanager
    def clients(self, number: int, more: str) -> Iterator[Clients]:
        """Run several clients, until each has had an answer; nova-scheduler
        must be there.
        """
        with ExitStack() as ending:
            clients = [
                ending.enter_context(self.client(f"client{each}", more))
                for each in range(number)
            ]
            for each in clients:
                assert each.ask().hosts
            yield Clients(clients)

    @contextmanager
    def client(self, name: str = "client", more: str = "") -> Iterator[Client]:
        """Run a client with these lines at the end of its nova.conf."""
        script, log = (
            Path(__file__).with_name("client.py"),
            self.folder / f"{name}.log",
        )
        argv = [
            sys.executable,
            str(script),
            "--config-file",
            str(self.conf(name, more)),
        ]
        pipe = subprocess.PIPE
        with (
            log.open("wb") as errors,
            subprocess.Popen(
                argv, stdin=pipe, stdout=pipe, stderr=errors, text=True
            ) as process,
        ):
            yield Client(process, log)
