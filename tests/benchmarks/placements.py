"""A real Placement with many hosts, on SQLite and on MariaDB."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from uuid import uuid4

from side_by_side import MARIADB
from sqlalchemy import create_engine, text
from sqlalchemy.engine import Engine

from os_prefilter.adapters.embedded import EmbeddedPlacement
from os_prefilter.fleet.model import Fleet, Inventory, Provider, provider_uuid
from os_prefilter.fleet.reader import example_fleet

FLAT, ONE_NESTED, ALL_NESTED, SHARED = "flat", "nested, one host", "nested, each host", "flat, shared disk"
IGB = "COMPUTE_NET_VIF_MODEL_IGB"
"""The trait that few hosts have."""


_SHARED_DISK = Provider(
    "disk",
    provider_uuid("disk"),
    {"DISK_GB": Inventory(1_000_000)},
    frozenset({"MISC_SHARES_VIA_AGGREGATE"}),
)


def fleet_of(hosts: int, *, capable: int, nesting: str) -> Fleet:
    """Return KVM hosts as they report themselves; ``capable`` of them, spread evenly, have the trait ``IGB``.

    With ``SHARED`` there is one more provider, which shares its disk with no host.
    """
    kind = next(each for each in example_fleet().hosts if each.name == "kvm-new-1")
    every = hosts // capable
    nested = {FLAT: 0, ONE_NESTED: 1, ALL_NESTED: hosts, SHARED: 0}[nesting]
    every_host = (_host(kind, number, has_igb=number % every == 0, nested=number < nested) for number in range(hosts))
    return Fleet((*every_host, _SHARED_DISK) if nesting == SHARED else tuple(every_host))


def _host(kind: Provider, number: int, *, has_igb: bool, nested: bool) -> Provider:
    name = f"host-{number}"
    traits = kind.traits | {IGB} if has_igb else kind.traits - {IGB}
    gpu = Provider(f"{name}_gpu", provider_uuid(f"{name}_gpu"), {"VGPU": Inventory(4)}, frozenset({"OWNER_NOVA"}))
    return replace(
        kind, name=name, uuid=provider_uuid(name), traits=frozenset(traits), providers=(gpu,) if nested else ()
    )


def wide_fleet_of(hosts: int, *, cyborgs: int = 0, untagged: int = 0) -> Fleet:
    """Return KVM hosts with 4 NUMA cells, and in each 2 GPUs and 2 network cards with one device each.

    :param cyborgs: how many of the 8 GPUs are Cyborg's and say so
    :param untagged: how many of them are Cyborg's, without an owner's trait
    """
    kind = next(each for each in example_fleet().hosts if each.name == "kvm-new-1")
    owners = ["OWNER_CYBORG"] * cyborgs + [""] * untagged + ["OWNER_NOVA"] * (8 - cyborgs - untagged)
    return Fleet(tuple(_wide_host(kind, f"host-{number}", owners) for number in range(hosts)))


def _wide_host(kind: Provider, name: str, owners: list[str]) -> Provider:
    cells = []
    for cell in range(4):
        # Each cell has some of each owner.
        gpus = [_device(f"{name}_gpu_{index}", "VGPU", owners[index]) for index in (cell, cell + 4)]
        nics = [
            _device(f"{name}_nic_{index}", "CUSTOM_PCI_8086_1563", "OWNER_NOVA COMPUTE_MANAGED_PCI_DEVICE")
            for index in (cell, cell + 4)
        ]
        numa = _device(f"{name}_numa_{cell}", "", "OWNER_NOVA HW_NUMA_ROOT")
        cells.append(replace(numa, providers=(*gpus, *nics)))
    traits = kind.traits | {"OWNER_NOVA"}
    return replace(kind, name=name, uuid=provider_uuid(name), traits=traits, providers=tuple(cells))


def _device(name: str, resource_class: str, traits: str) -> Provider:
    resources = {resource_class: Inventory(1)} if resource_class else {}
    return Provider(name, provider_uuid(name), resources, frozenset(traits.split()))


@contextmanager
def placement_on(database: str, fleet: Fleet) -> Iterator[EmbeddedPlacement]:
    """Open a Placement on a kind of database; what is written into it is checked against its API for some hosts."""
    if database == "SQLite":
        with EmbeddedPlacement(fleet) as placement:
            check(placement, fleet)
            yield placement
        return
    with new_database(os.environ[MARIADB]) as url, EmbeddedPlacement(fleet, database=url) as placement:
        analyze(url)
        check(placement, fleet)
        yield placement


def databases() -> tuple[str, ...]:
    """Return the kinds of databases that are here."""
    return ("SQLite", "MariaDB") if os.environ.get(MARIADB) else ("SQLite",)


@contextmanager
def new_database(server: str) -> Iterator[str]:
    """Yield the URL of a new database in a MariaDB, which is dropped at the end."""
    name = f"os_prefilter_bench_{uuid4().hex[:12]}"
    execute(create_engine(server), f"CREATE DATABASE {name}")
    try:
        yield f"{server}/{name}"
    finally:
        execute(create_engine(server), f"DROP DATABASE {name}")


def analyze(url: str) -> None:
    """Let MariaDB count now what it counts by itself some seconds after many rows were written."""
    execute(create_engine(url), "ANALYZE TABLE resource_providers, resource_provider_traits, inventories, allocations")


def execute(engine: Engine, statement: str) -> None:
    """Execute one SQL statement."""
    with engine.begin() as connection:
        connection.execute(text(statement))
    engine.dispose()


def check(placement: EmbeddedPlacement, fleet: Fleet) -> None:
    """Compare what Placement's API says of some hosts with the fleet."""
    for host in fleet.hosts[:: max(1, len(fleet.hosts) // 5)]:
        for provider in (host, *host.providers):
            url = f"/resource_providers/{provider.uuid}"
            traits = placement.client.request("GET", f"{url}/traits")["traits"]
            inventories = placement.client.request("GET", f"{url}/inventories")["inventories"]
            assert set(traits) == provider.traits, provider.name
            assert {name: each["total"] for name, each in inventories.items()} == {
                name: each.total for name, each in provider.resources.items()
            }, provider.name
