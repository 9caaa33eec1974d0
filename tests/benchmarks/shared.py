# SPDX-License-Identifier: Apache-2.0

"""What benchmarks share: sides that run in turns, KVM hosts, and a Placement
on SQLite or MariaDB.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from uuid import uuid4

from sqlalchemy import create_engine, text

from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.fleet.model import (
    Fleet,
    Inventory,
    Provider,
    provider_uuid,
)
from os_prefilter_tools.fleet.reader import example_fleet

MARIADB = "OS_PREFILTER_MARIADB_URL"
"""The environment variable with the URL of a MariaDB, as SQLAlchemy writes it,
without a database's name.
"""
NESTINGS = FLAT, SHARED, ONE_NESTED, ALL_NESTED = (
    "flat",
    "flat, shared disk",
    "nested, one host",
    "nested, each host",
)
IGB = "COMPUTE_NET_VIF_MODEL_IGB"
"""The trait that few hosts have."""


def side_by_side(
    sides: Mapping[str, Callable[[], object]], *, rounds: int, calls: int = 1
) -> dict[str, float]:
    """Run the sides turn by turn, so that a slower minute of the machine falls
    on all of them.

    Each side is called once before, so that caches are warm.

    :param calls: how many calls a turn has, for sides that are too quick for
        the clock
    :return: the median seconds of one call
    """
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for call in sides.values():
        call()
    for _ in range(rounds):
        for name, call in sides.items():
            start = time.perf_counter()
            for _ in range(calls):
                call()
            seconds[name].append((time.perf_counter() - start) / calls)
    return {name: statistics.median(each) for name, each in seconds.items()}


def fleet_of(hosts: int, *, capable: int, nesting: str) -> Fleet:
    """Return KVM hosts as they report themselves; ``capable`` of them, spread
    evenly, have the trait ``IGB``.

    With ``SHARED`` there is one more provider, which shares its disk with no
    host.
    """
    kind = next(
        each for each in example_fleet().hosts if each.name == "kvm-new-1"
    )
    nested = {ONE_NESTED: 1, ALL_NESTED: hosts}.get(nesting, 0)

    def host(number: int) -> Provider:
        name = f"host-{number}"
        gpu = Provider(
            f"{name}_gpu",
            provider_uuid(f"{name}_gpu"),
            {"VGPU": Inventory(4)},
            frozenset({"OWNER_NOVA"}),
        )
        traits = (
            kind.traits - {IGB}
            if number % (hosts // capable)
            else kind.traits | {IGB}
        )
        below = (gpu,) if number < nested else ()
        return replace(
            kind,
            name=name,
            uuid=provider_uuid(name),
            traits=traits,
            providers=below,
        )

    sharing = frozenset({"MISC_SHARES_VIA_AGGREGATE"})
    disk = Provider(
        "disk",
        provider_uuid("disk"),
        {"DISK_GB": Inventory(1_000_000)},
        sharing,
    )
    return Fleet(
        (*map(host, range(hosts)), *([disk] if nesting == SHARED else []))
    )


def databases() -> tuple[str, ...]:
    return ("SQLite", "MariaDB") if os.environ.get(MARIADB) else ("SQLite",)


@contextmanager
def placement_on(database: str, fleet: Fleet) -> Iterator[EmbeddedPlacement]:
    """Open a Placement with a fleet on a kind of database; a new one of
    MariaDB is dropped at the end.
    """
    if database == "SQLite":
        with EmbeddedPlacement(fleet) as placement:
            yield placement
        return
    with (
        mariadb_with(fleet) as url,
        EmbeddedPlacement(database=url) as placement,
    ):
        yield placement


@contextmanager
def mariadb_with(fleet: Fleet) -> Iterator[str]:
    """Yield the URL of a new database of MariaDB in which a Placement has a
    fleet.
    """
    server, name = (
        os.environ[MARIADB],
        f"os_prefilter_bench_{uuid4().hex[:12]}",
    )
    execute(server, f"CREATE DATABASE {name}")
    try:
        with EmbeddedPlacement(fleet, database=f"{server}/{name}"):
            # MariaDB would count by itself some seconds after many rows were
            # written.
            tables = (
                "resource_providers, resource_provider_traits, inventories,"
                " allocations"
            )
            execute(f"{server}/{name}", f"ANALYZE TABLE {tables}")
        yield f"{server}/{name}"
    finally:
        execute(server, f"DROP DATABASE {name}")


def execute(url: str, statement: str) -> None:
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text(statement))
    engine.dispose()
