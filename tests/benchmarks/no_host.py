#    Licensed under the Apache License, Version 2.0 (the "License"); you may
#    not use this file except in compliance with the License. You may obtain
#    a copy of the License at
#
#         http://www.apache.org/licenses/LICENSE-2.0
#
#    Unless required by applicable law or agreed to in writing, software
#    distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
#    WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
#    License for the specific language governing permissions and limitations
#    under the License.

"""Cost of knowing that no host serves a request: ``python -m tests.benchmarks.no_host [small]``.

First in a scheduler's memory, with a full sample of hosts: a request that hosts serve passes the check, one that none
serves is rejected. Then what reading costs a real Placement, with 10,000 hosts.
"""

import gc
import sys
import tracemalloc
from random import Random

from os_prefilter import Flavor, Image, RequestSpec, allocation_candidates_query
from os_prefilter.adapters.placement.host_traits import HostTraitsReader
from os_prefilter.common.errors import NoHostServes
from os_prefilter.service import Service
from os_prefilter.service.host_traits import MOST_HOSTS
from os_prefilter_tools.fleet.model import provider_uuid
from tests.benchmarks.shared import FLAT, IGB, databases, fleet_of, placement_on, side_by_side
from tests.conftest import conf_with
from tests.support.placements import HostsInProcess, Observed

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
# Those of its last properties that a host of the sample lacks, so that many hosts are looked at.
_TRAITS = frozenset(
    str(item.trait)
    for item in Service.from_conf(conf_with(enabled_filters=_FILTERS, reported_traits="*", wait_for_reports=False))
    .decide(RequestSpec(Flavor(vcpus=1, memory_mb=512, root_gb=1), Image(_SERVED, disk_format="qcow2")))
    .requirements
    if item.required
)


def _known() -> HostsInProcess:
    """Return a reader of a fleet in which each trait but igb is on three hosts of four, at random."""
    chance, fleet = Random(1), {}
    for number in range(MOST_HOSTS):
        some = (trait for trait in sorted(_TRAITS) if chance.random() < 0.75)
        fleet[str(provider_uuid(f"host-{number}"))] = frozenset(["COMPUTE_NODE", *some])
    return HostsInProcess(fleet, fleet)


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


def in_memory() -> None:
    gc.collect()
    tracemalloc.start()
    pipeline = _pipeline(_known())
    _rejects(pipeline, _SERVED)
    gc.collect()
    memory, _peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    without = _pipeline(_known(), no_host_reason="off")
    assert not _rejects(pipeline, _SERVED)
    assert _rejects(pipeline, _IMPOSSIBLE) == "No host offers hw_vif_model=igb."
    assert not _rejects(without, _IMPOSSIBLE)
    times = side_by_side(
        {
            "without the check": lambda: _rejects(without, _SERVED),
            "with it, hosts serve the request": lambda: _rejects(pipeline, _SERVED),
            "rejected (without Placement's answer)": lambda: _rejects(pipeline, _IMPOSSIBLE),
        },
        rounds=200,
        calls=20,
    )
    print(f"A sample of {MOST_HOSTS} hosts: {memory / 1e6:.1f} MB")
    print(f"{'A request in the scheduler':48}{'us':>8}{'us more':>9}")
    base = times["without the check"]
    for name, seconds in times.items():
        print(f"{name:48}{seconds * 1e6:8.1f}{(seconds - base) * 1e6:9.1f}")


def at_placement(database: str, hosts: int) -> None:
    with placement_on(database, fleet_of(hosts, capable=hosts // 100, nesting=FLAT)) as placement:
        observed = Observed(placement)
        reader = HostTraitsReader(observed.client)
        query = allocation_candidates_query(_spec({}), limit=1000)
        uuids = [each.uuid for each in observed.client.providers()][:MOST_HOSTS]
        rows = {
            f"a sample of {MOST_HOSTS} hosts": lambda: [reader.traits(host) for host in uuids],
            "hosts with what one in 100 has": lambda: reader.hosts({IGB}, ()),
            "hosts with what none has": lambda: reader.hosts({"HW_ARCH_AARCH64"}, ()),
            "candidates of any request, limit 1,000": lambda: observed.client.allocation_candidates(query),
        }
        times = side_by_side(rows, rounds=3)
        print(f"\n{database}, {hosts:,} hosts")
        print(f"{'':42}{'requests':>9}{'KiB':>9}{'seconds':>9}")
        for name, call in rows.items():
            observed.sent.clear()
            observed.received = 0
            call()
            print(f"{name:42}{len(observed.sent):9}{observed.received / 1024:9,.0f}{times[name]:9.2f}")


def main(arguments: list[str]) -> None:
    small = "small" in arguments
    in_memory()
    for database in databases():
        at_placement(database, 500 if small else 10_000)


if __name__ == "__main__":
    main(sys.argv[1:])
