"""Cost of knowing that no host serves a request: ``python -m tests.benchmarks.no_host [small]``.

First in a scheduler's memory, with 50,000 hosts: a request that hosts serve passes the check, one that none serves is
rejected. Then what reading costs a real Placement, with 10,000 hosts.
"""

import gc
import sys
import tracemalloc
from collections.abc import Iterable
from random import Random
from types import MappingProxyType

from os_prefilter import Flavor, Image, RequestSpec, allocation_candidates_query
from os_prefilter.adapters.placement.host_traits import HostTraitsReader
from os_prefilter.common.errors import NoHostServes
from os_prefilter.service import Service
from os_prefilter.service.host_traits import HostTraits
from os_prefilter_tools.fleet.model import provider_uuid
from tests.benchmarks.shared import FLAT, IGB, databases, fleet_of, placement_on, side_by_side
from tests.conftest import conf_with
from tests.support.placements import Observed

_FILTERS = ["image_metadata", "hpet", "compute_status"]
_SERVED = {
    "hw_architecture": "x86_64",
    "hw_disk_bus": "virtio",
    "hw_vif_model": "virtio",
    "hw_video_model": "virtio",
    "hw_cdrom_bus": "sata",
    "hw_machine_type": "q35",
    "hw_time_hpet": "true",
}
_IMPOSSIBLE = _SERVED | {"hw_vif_model": "igb"}


class _Known:
    """A reader of a fleet in which each trait but igb is on three hosts of four, at random."""

    def __init__(self, hosts: int) -> None:
        self._hosts = hosts
        self._numbers = MappingProxyType({str(provider_uuid(f"host-{number}")): number for number in range(hosts)})
        self._random = Random(1)

    def read(self, traits: Iterable[str], known: HostTraits, *, refresh: bool) -> HostTraits:
        sets = {trait: self._some(trait) for trait in sorted(traits)}
        return HostTraits(self._numbers, (1 << self._hosts) - 1, MappingProxyType({**known.sets, **sets}))

    def any_host(self, required: Iterable[str], forbidden: Iterable[str]) -> bool:
        return False

    def _some(self, trait: str) -> int:
        if trait == IGB or trait.startswith("CUSTOM_COMPUTE_DEFAULT") or trait == "COMPUTE_STATUS_DISABLED":
            return 0
        return self._random.getrandbits(self._hosts) | self._random.getrandbits(self._hosts)


def _pipeline(reader: object, **options: object) -> Service:
    conf = conf_with(enabled_filters=_FILTERS, reported_traits="*", facts_interval=1800, **options)
    return Service.from_conf(conf, host_traits=reader)


def _spec(properties: dict[str, str]) -> RequestSpec:
    return RequestSpec(Flavor(vcpus=1, memory_mb=512, root_gb=1), Image(properties, disk_format="qcow2"))


def _rejects(pipeline: Service, properties: dict[str, str]) -> str:
    try:
        pipeline.apply(_spec(properties))
    except NoHostServes as error:
        return str(error)
    return ""


def in_memory(hosts: int) -> None:
    """Print what the check costs a request, and its memory."""
    gc.collect()
    tracemalloc.start()
    pipeline = _pipeline(_Known(hosts))
    _rejects(pipeline, _SERVED)
    gc.collect()
    memory, _peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    without = _pipeline(_Known(hosts), no_host_reason="off")
    assert not _rejects(pipeline, _SERVED)
    assert _rejects(pipeline, _IMPOSSIBLE) == "No host offers hw_vif_model=igb."
    assert not _rejects(without, _IMPOSSIBLE)
    fact = pipeline.host_traits
    assert fact
    times = side_by_side(
        {
            "without the check": lambda: _rejects(without, _SERVED),
            "with it, hosts serve the request": lambda: _rejects(pipeline, _SERVED),
            "rejected (without Placement's confirmation)": lambda: _rejects(pipeline, _IMPOSSIBLE),
        },
        rounds=200,
        calls=20,
    )
    print(f"{hosts:,} hosts, {len(fact.latest.sets)} traits: {memory / 1e6:.1f} MB")
    print(f"{'A request in the scheduler':48}{'us':>8}{'us more':>9}")
    base = times["without the check"]
    for name, seconds in times.items():
        print(f"{name:48}{seconds * 1e6:8.1f}{(seconds - base) * 1e6:9.1f}")


def at_placement(database: str, hosts: int) -> None:
    """Print what reading costs Placement."""
    with placement_on(database, fleet_of(hosts, capable=hosts // 100, nesting=FLAT)) as placement:
        observed = Observed(placement)
        reader = HostTraitsReader(observed.client)
        decision = _pipeline(None).apply(_spec(_IMPOSSIBLE))
        traits = frozenset(str(item.trait) for item in decision.requirements)
        query = allocation_candidates_query(_spec({}), limit=1000)
        known = reader.read(traits, HostTraits(), refresh=True)
        rows = {
            "first reading of its traits": lambda: reader.read(traits, HostTraits(), refresh=True),
            "refresh": lambda: reader.read(traits, known, refresh=True),
            "confirmation of a rejection": lambda: reader.any_host({"HW_ARCH_AARCH64"}, ()),
            "candidates of any request, limit 1,000": lambda: observed.client.allocation_candidates(query),
        }
        times = side_by_side(rows, rounds=3)
        print(f"\n{database}, {hosts:,} hosts, {len(traits)} traits of a request")
        print(f"{'':42}{'requests':>9}{'KiB':>9}{'seconds':>9}")
        for name, call in rows.items():
            observed.sent.clear()
            observed.received = 0
            call()
            print(f"{name:42}{len(observed.sent):9}{observed.received / 1024:9,.0f}{times[name]:9.2f}")


def main(arguments: list[str]) -> None:
    """Measure both."""
    small = "small" in arguments
    in_memory(500 if small else 50_000)
    for database in databases():
        at_placement(database, 500 if small else 10_000)


if __name__ == "__main__":
    main(sys.argv[1:])
