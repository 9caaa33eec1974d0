# SPDX-License-Identifier: Apache-2.0

"""What the workers of nova-scheduler cost Placement:
``python -m tests.benchmarks.workers [small]``.

Each of up to two nova-schedulers is a process that makes its service and then
forks its workers. A worker sends 20 different requests through the service,
again and again. A probe is another user's query for candidates, meanwhile.
"""

from __future__ import annotations

import logging
import os
import signal
import statistics
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain, cycle, product
from multiprocessing.connection import wait
from typing import Any

import psutil
from oslo_cache import core as oslo_cache

from os_prefilter import Flavor, Image, RequestSpec
from os_prefilter.adapters.placement.facts import CloudPlacement
from os_prefilter.adapters.shared_cache import CacheStore
from os_prefilter.common.errors import NoHostServes
from os_prefilter.hosts.marker_traits import REPORTED, names_with
from os_prefilter.service import Service
from os_prefilter.service.shared import InheritedStore
from os_prefilter.service.traits_to_report import (
    traits_to_create,
    wanted_groups,
)
from os_prefilter_tools.fleet.model import provider_uuid
from os_prefilter_tools.operators.readiness import configured_filters
from tests.benchmarks.served import FORK, Served, Used, client_of, serving
from tests.benchmarks.shared import (
    FLAT,
    MARIADB,
    databases,
    execute,
    fleet_of,
    mariadb_with,
)
from tests.conftest import conf_with
from tests.support.processes import free_port, started

_FLEETS = {
    10: (1,),
    1_000: (1, 10, 50),
    10_000: (1, 10, 50),
    50_000: (1, 10, 50),
}
_SMALL = {10: (1,), 200: (1, 4)}
"""Hosts -> numbers of workers."""
QUIET, PATIENCE = 5.0, 300.0
"""Seconds without a request after which workers are at rest, and those after
which the start counts as over.
"""
_FILTERS = ["image_metadata", "hpet", "compute_status", "owner"]
_PAIRS = product(
    ("virtio", "e1000e", "igb", "rtl8139"), ("virtio", "scsi", "sata", "ide")
)
_OTHERS = ({"hw_time_hpet": "true"}, {"hw_tpm_model": "tpm-crb"}, {})
_IMAGES = [
    *({"hw_vif_model": vif, "hw_disk_bus": bus} for vif, bus in _PAIRS),
    *_OTHERS,
]
_IMPOSSIBLE = {"hw_architecture": "aarch64"}
_STATES = {
    "nothing reported": (
        """
        DELETE FROM resource_provider_traits WHERE trait_id IN (SELECT id FROM traits WHERE name LIKE 'CUSTOM_%')"""
    ),
    "all reported": (
        """
        INSERT INTO resource_provider_traits (trait_id, resource_provider_id)
        SELECT traits.id, hosts.id FROM traits, resource_providers AS hosts
        WHERE traits.name LIKE 'CUSTOM_%' AND traits.name NOT LIKE 'CUSTOM_PREFILTER_WANTED_%'"""
    ),
}


def _service(url: str, cache: str) -> Service:
    """Return the service of one nova-scheduler, which shares what its workers
    read with those of other hosts.
    """
    client, conf = client_of(url), conf_with(enabled_filters=_FILTERS)
    oslo_cache.configure(conf)
    for name, value in {
        "enabled": True,
        "backend": "dogpile.cache.pymemcache",
        "memcache_servers": [cache],
    }.items():
        conf.set_override(name, value, "cache")
    region = oslo_cache.configure_cache_region(
        conf, oslo_cache.create_region()
    )
    return Service.from_conf(
        conf,
        placement=CloudPlacement(client, _some_hosts),
        stores=(InheritedStore, partial(CacheStore, region, url)),
    )


def _some_hosts(_context: object) -> list[str]:
    """Return a compute node of each cell, as Nova's database has them."""
    return [provider_uuid("host-1")]


def _scheduler(
    url: str, cache: str, memory: Any, numbers: Iterable[int]
) -> None:
    # The group in which it and its workers are ended.
    os.setsid()
    logging.disable(logging.ERROR)
    service = _service(url, cache)
    workers = [
        FORK.Process(target=_work, args=(service, memory, number))
        for number in numbers
    ]
    for each in workers:
        each.start()
    # None ends by itself.
    wait([each.sentinel for each in workers])


def _work(service: Service, memory: Any, number: int) -> None:
    process = psutil.Process()
    # Each rejection is a request to Placement: once, or no worker would ever
    # be at rest.
    for image in chain([_IMPOSSIBLE], cycle(_IMAGES)):
        with suppress(NoHostServes):
            service.apply(
                RequestSpec(
                    Flavor(vcpus=1, memory_mb=512, root_gb=1), Image(image)
                )
            )
        if image is _IMAGES[-1]:
            memory[number] = process.memory_info().rss / 2**20
        time.sleep(0.05)


@contextmanager
def _working(url: str, workers: int) -> Iterator[Any]:
    """Yield the MiB of each worker, 0 before it has sent each request; two
    schedulers share what they know.
    """
    memory, port = FORK.Array("d", workers, lock=False), free_port()
    with started(
        ["memcached", "-l", "127.0.0.1", "-p", str(port), "-u", "nobody"]
    ):
        # A cache that fails once is left alone for a minute.
        time.sleep(1)
        numbers = [
            range(first, workers, 2) for first in range(min(2, workers))
        ]
        where = url, f"127.0.0.1:{port}", memory
        schedulers = [
            FORK.Process(target=_scheduler, args=(*where, each))
            for each in numbers
        ]
        for each in schedulers:
            each.start()
        try:
            yield memory
            assert all(each.is_alive() for each in schedulers)
        finally:
            for each in schedulers:
                with suppress(ProcessLookupError):
                    os.killpg(each.pid or 0, signal.SIGKILL)
                each.join()


def measure(
    served: Served, workers: int, seconds: float
) -> tuple[Used, float, Used, tuple[float, ...]]:
    """Start workers, and let them work for some seconds once they are at rest.

    :return: the start and how long it took, a minute of the work, and the last
        four columns of the row
    """
    idle = served.calibrate(seconds / 6)
    with _working(served.url, workers) as memory:
        begin = time.monotonic()
        latest = begin + PATIENCE
        start, probes = served.watch(
            lambda quiet: (
                (quiet > QUIET and all(memory)) or time.monotonic() > latest
            )
        )
        taken, end = (
            time.monotonic() - begin - QUIET,
            time.monotonic() + seconds,
        )
        minute, _ = served.watch(lambda _quiet: time.monotonic() > end)
        last = (
            statistics.median(memory),
            idle,
            statistics.median(probes),
            max(probes),
        )
        return start, taken, minute.times(60 / seconds), last


def rows(
    database: str, hosts: int, numbers: Iterable[int], seconds: float
) -> None:
    """Print a line for each state of the fleet and number of workers."""
    filters, options = configured_filters(conf_with(enabled_filters=_FILTERS))
    markers = names_with(
        REPORTED,
        {
            key
            for group in wanted_groups(filters, options)
            for key in group.keys
        },
    )
    with serving(database) as served:
        client_of(served.url).ensure_traits(
            (*markers, *traits_to_create(filters, options))
        )
        for state, statement in _STATES.items():
            execute(database, statement)
            for workers in numbers:
                start, taken, minute, last = measure(served, workers, seconds)
                others = "".join(f"{each:8,.0f}" for each in last)
                print(
                    f"{hosts:>6,} "
                    f" {state:16}{workers:>4}{start}{taken:7.0f}{minute}{others}",
                    flush=True,
                )


def header() -> None:
    used = f"{'requests':>9}{'MB':>9}{'Placement':>10}{'database':>9}"
    print(
        f"{'':28}{'until at rest: processor seconds':44}{'the minute after it':37}{'MiB of a':>8}{'probe, ms':>24}"
    )
    print(
        f"{'hosts':>6} "
        f" {'state':13}workers{used}{'clock':>7}{used}{'worker':>8}{'idle':>8}{'median':>8}{'most':>8}"
    )


def main(arguments: list[str]) -> None:
    if "MariaDB" not in databases():
        sys.exit(f"It needs a MariaDB: {MARIADB} is not set.")
    header()
    fleets, seconds = (
        (_SMALL, 6.0) if "small" in arguments else (_FLEETS, 60.0)
    )
    for hosts, numbers in fleets.items():
        with mariadb_with(
            fleet_of(hosts, capable=max(1, hosts // 20), nesting=FLAT)
        ) as database:
            rows(database, hosts, numbers, seconds)


if __name__ == "__main__":
    main(sys.argv[1:])
