# SPDX-License-Identifier: Apache-2.0

"""A Placement on MariaDB over HTTP, in two processes as an operator has it,
and what it does.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import requests
import waitress
from keystoneauth1.adapter import Adapter
from keystoneauth1.session import Session
from keystoneauth1.token_endpoint import Token
from placement.wsgi import init_application
from sqlalchemy import create_engine, text

from os_prefilter.adapters.placement.client import PlacementClient
from os_prefilter_tools.fleet.model import provider_uuid
from tests.support.zipping import zip_equal

FORK = multiprocessing.get_context("fork")
_PROCESSES, _THREADS = 2, 8
_CONF = (
    "[api]\nauth_strategy = noauth2\n[placement_database]\nconnection ="
    " {}\n[DEFAULT]\nlog_file = {}/log\n"
)
# Candidates of one host, as for a server that is to move to it.
_QUERY = f"resources=VCPU:1,MEMORY_MB:512&in_tree={provider_uuid('host-1')}&limit=1000"
_PROBE = {
    "X-Auth-Token": "admin",
    "OpenStack-API-Version": "placement 1.39",
    "User-Agent": "probe",
}


class Used(NamedTuple):
    """What Placement has done, without probes; seconds are those of
    processors.
    """

    requests: float
    megabytes: float
    placement: float
    database: float

    def times(self, number: float) -> Used:
        return Used(*(each * number for each in self))

    def __str__(self) -> str:
        return f"{self.requests:9,.0f}{self.megabytes:9,.1f}{self.placement:10,.1f}{self.database:9,.1f}"


class Served:
    """A Placement on a loopback port.

    :param programs: the processes of Placement, and last that of its database
    :param counts: requests, bytes of responses, and requests under way; all
        without probes
    """

    def __init__(
        self, url: str, programs: Iterable[psutil.Process], counts: Any
    ) -> None:
        self.url = url
        self._counts = counts
        self._programs = tuple(programs)
        self._probe = Used(0, 0, 0, 0)

    def probe(self) -> float:
        """Send another user's query for candidates; return how many
        milliseconds it took.
        """
        start = time.perf_counter()
        requests.get(
            f"{self.url}/allocation_candidates?{_QUERY}",
            headers=_PROBE,
            timeout=600,
        ).raise_for_status()
        return (time.perf_counter() - start) * 1000

    def watch(self, ends: Callable[[float], bool]) -> tuple[Used, list[float]]:
        """Probe it until ``ends(seconds without a request)``; return what else
        it does, and the milliseconds.
        """
        before, probes, count, quiet_since = (
            self._used(),
            list[float](),
            self._counts[0],
            time.monotonic(),
        )
        while not ends(time.monotonic() - quiet_since):
            probes.append(self.probe())
            time.sleep(0.5)
            if self._counts[0] != count or self._counts[2]:
                count, quiet_since = self._counts[0], time.monotonic()
        columns = zip_equal(
            self._used(), before, self._probe.times(len(probes))
        )
        return (
            Used(
                *(
                    max(0.0, now - then - of_probes)
                    for now, then, of_probes in columns
                )
            ),
            probes,
        )

    def calibrate(self, seconds: float) -> float:
        """Learn what a probe costs while nothing else is sent; return its
        median milliseconds.
        """
        # Placement goes on with the requests of workers that were killed.
        self.watch(lambda quiet: quiet > 1)
        self._probe, end = Used(0, 0, 0, 0), time.monotonic() + seconds
        used, probes = self.watch(lambda _quiet: time.monotonic() > end)
        self._probe = used.times(1 / len(probes))
        return statistics.median(probes)

    def _used(self) -> Used:
        *placement, database = (
            sum(each.cpu_times()[:2]) for each in self._programs
        )
        return Used(
            self._counts[0], self._counts[1] / 1e6, sum(placement), database
        )


def client_of(url: str) -> PlacementClient:
    session = Session(auth=Token(url, "admin"))
    session.session.trust_env = False
    return PlacementClient(Adapter(session, service_type="placement"))


@contextmanager
def serving(database: str) -> Iterator[Served]:
    """Serve the Placement of a database while the context lasts.

    :param database: its URL; the server is one of this machine, whose file
        with its process id can be read
    """
    engine, counts = create_engine(database), FORK.Array("d", 3)
    with engine.connect() as connection:
        number = int(
            Path(str(connection.scalar(text("SELECT @@pid_file")))).read_text(
                encoding="ascii"
            )
        )
    engine.dispose()
    with (
        tempfile.TemporaryDirectory() as folder,
        socket.create_server(("127.0.0.1", 0), backlog=512) as listening,
    ):
        Path(folder, "placement.conf").write_text(
            _CONF.format(database, folder), encoding="utf-8"
        )
        os.environ["OS_PLACEMENT_CONFIG_DIR"] = folder
        programs = [
            FORK.Process(target=_serve, args=(listening, counts), daemon=True)
            for _ in range(_PROCESSES)
        ]
        for each in programs:
            each.start()
        try:
            processes = [
                psutil.Process(each)
                for each in (*(each.pid for each in programs), number)
            ]
            served = Served(
                f"http://127.0.0.1:{listening.getsockname()[1]}",
                processes,
                counts,
            )
            for _ in range(4 * _PROCESSES):
                served.probe()
            yield served
        finally:
            for each in programs:
                each.kill()
                each.join()


def _serve(listening: socket.socket, counts: Any) -> None:
    application = init_application()

    def counted(
        environ: dict[str, Any], start: Callable[..., Any]
    ) -> list[bytes]:
        is_counted = environ.get("HTTP_USER_AGENT") != "probe"
        with counts.get_lock():
            counts[2] += is_counted
        body = b"".join(application(environ, start))
        with counts.get_lock():
            counts[:] = (
                counts[0] + is_counted,
                counts[1] + len(body) * is_counted,
                counts[2] - is_counted,
            )
        return [body]

    # A listing of 39 MB in memory, so that no thread waits until its client
    # has read it.
    waitress.serve(
        counted,
        sockets=[listening],
        threads=_THREADS,
        outbuf_high_watermark=2**30,
        outbuf_overflow=2**30,
    )
