"""How long audits take, and how much memory: ``python -m tests.benchmarks.audit images|servers [small]``.

Each case runs in a process of its own. Images, servers and hosts are made up, the same at each run.
"""

import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from os_prefilter.service import Service
from os_prefilter.vocabulary import ROWS
from os_prefilter_tools.cli.audit_page import image_page, server_page
from os_prefilter_tools.cli.filters_and_hosts import FiltersAndHosts
from os_prefilter_tools.fleet.model import Fleet, Inventory, Provider, provider_uuid
from os_prefilter_tools.fleet.reader import example_fleet
from os_prefilter_tools.operators.audit.destinations import Destinations
from os_prefilter_tools.operators.audit.entry_list import LeftOut
from os_prefilter_tools.operators.audit.image_audit import FilterChange, audit_images
from os_prefilter_tools.operators.audit.image_list import read_images
from os_prefilter_tools.operators.audit.server_audit import STRANDED, audit_servers
from os_prefilter_tools.operators.audit.server_list import read_servers

CASES = {
    "images": ("few kinds", "many kinds", "every host and image different"),
    "servers": ("few kinds", "every host and server different"),
}
_USUAL = ("vif_model", "disk_bus", "video_model", "firmware_type", "time_hpet")


def fleet_of(hosts: int, *, different: bool, random_: random.Random) -> Fleet:
    """Return hosts like those of the example fleet; if ``different``, each lacks a few traits of its own."""
    kinds = example_fleet().hosts

    def host(number: int) -> Provider:
        name, kind = f"host-{number}", kinds[number % len(kinds)]
        lacks = random_.sample(sorted(kind.traits), min(8, len(kind.traits) // 3)) if different else ()
        children = tuple(
            Provider(f"{name}_gpu_{index}", provider_uuid(f"{name}_gpu_{index}"), child.resources, child.traits)
            for index, child in enumerate(kind.providers * 4)
        )
        resources = {**kind.resources, "VCPU": Inventory(32)}
        return Provider(name, provider_uuid(name), resources, kind.traits - set(lacks), (), children)

    return Fleet(tuple(map(host, range(hosts))))


def images_of(images: int, *, different: bool, random_: random.Random) -> Iterator[dict[str, object]]:
    """Yield what ``openstack image show`` prints; if ``different``, with more properties than images have."""
    rows = [row for row in ROWS if row.image_property and not row.refuses_unknown and not row.depends_on]
    usual = [row for row in rows if row.name in _USUAL]
    for number in range(images):
        properties = {"os_distro": "linux", "build": str(number)}
        for row in random_.sample(rows, 6) if different else random_.sample(usual, 2):
            properties[str(row.image_property)] = random_.choice(sorted(row.values))
        disk_format = random_.choice(["qcow2"] * 8 + ["raw", "vmdk", "iso"])
        yield {"id": f"id-{number}", "name": f"image-{number}", "disk_format": disk_format, "properties": properties}


def with_usage(fleet: Fleet, *, different: bool, random_: random.Random) -> Fleet:
    """Return the hosts with processors, memory, disks and their usage."""

    def with_rooms(host: Provider) -> Provider:
        cores = random_.choice((32, 48, 64, 96))
        memory = random_.randrange(131_072, 1_048_576) if different else 262_144
        used = random_.uniform(0.2, 0.95)
        rooms = {
            "VCPU": Inventory(cores, allocation_ratio=4.0, max_unit=cores, used=int(4 * cores * used)),
            "MEMORY_MB": Inventory(memory, reserved=4096, max_unit=memory, used=int((memory - 4096) * used)),
            "DISK_GB": Inventory(4_000, max_unit=4_000, used=int(4_000 * used)),
        }
        return replace(host, resources={**host.resources, **rooms})

    return replace(fleet, hosts=tuple(map(with_rooms, fleet.hosts)))


def servers_of(servers: int, hosts: int, *, different: bool, random_: random.Random) -> Iterator[dict[str, object]]:
    """Yield entries of a list of servers; if ``different``, no two have the same flavor and image."""
    for number, image in enumerate(images_of(servers, different=different, random_=random_)):
        size = random_.choice((1, 2, 4, 8))
        memory = random_.randrange(512, 32_768) if different else size * 2048
        flavor = {"name": f"m{size}", "vcpus": size, "memory_mb": memory, "root_gb": 10 * size}
        spec = {"flavor": flavor, "image": {name: image[name] for name in ("id", "disk_format", "properties")}}
        yield {
            "uuid": f"00000000-0000-4000-8000-{number:012}",
            "name": image["name"],
            "project": f"project-{number % 200}",
            "node": f"host-{number % hosts}",
            "machine_type": "pc-q35-9.1",
            "spec": json.dumps({"nova_object.data": spec}),
        }


def pipeline_for(fleet: Fleet) -> Service:
    """Return the pipeline of the commands."""
    return FiltersAndHosts().service(fleet)


def _times(audited: Callable[[], object], paged: Callable[[object], str]) -> tuple[object, str]:
    """Return the result of an audit, and what it and its page took."""
    start, start_cpu = time.perf_counter(), time.process_time()
    result = audited()
    counted = time.perf_counter()
    size = len(paged(result)) / 2**20
    end, cpu = time.perf_counter(), time.process_time() - start_cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    took = f"audit {counted - start:.1f} s, page {end - counted:.1f} s and {size:.1f} MiB; CPU {cpu:.1f} s"
    return result, f"{took}, peak {peak:.0f} MiB"


def measure_images(case: str, images: int, hosts: int) -> str:
    """Run one case; return a line about it."""
    random_ = random.Random(1)
    fleet = fleet_of(hosts, different=case != "few kinds", random_=random_)
    change = FilterChange(Service(), pipeline_for(fleet))
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        entries = images_of(images, different="kinds" not in case, random_=random_)
        json.dump(list(entries), file)
        file.flush()
        result, took = _times(
            lambda: audit_images(read_images(file.name, print), fleet, change), lambda found: image_page(found, [])
        )
    groups = f"{len(result.lines):,} groups of images"
    return f"{case}: {groups}\n    {took}"


def measure_servers(case: str, servers: int, hosts: int) -> str:
    """Run one case; return a line about it."""
    random_ = random.Random(1)
    different = case != "few kinds"
    fleet = fleet_of(hosts, different=different, random_=random_)
    fleet = with_usage(fleet, different=different, random_=random_)
    pipeline, left_out = pipeline_for(fleet), LeftOut()
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        for entry in servers_of(servers, hosts, different=different, random_=random_):
            print(json.dumps(entry), file=file)
        file.flush()
        result, took = _times(
            lambda: audit_servers(
                read_servers(file.name, left_out), Destinations(fleet, pipeline), ["host-0", "host-1"]
            ),
            lambda found: server_page(found, []),
        )
    stranded = sum(each.servers - each.placed for each in result.of_hosts)
    return (
        f"{case}: {result.servers:,} servers in {len(result.lines):,} lines, {result.count(*STRANDED):,} without a "
        f"destination, {stranded:,} without one at the same time\n    {took}"
    )


def main(kind: str, *arguments: str) -> None:
    """Run all cases of a kind, or the one that is named."""
    small = arguments[:1] == ("small",)
    number = 60 if small else 10_000
    if case := arguments[small:]:
        measure = measure_images if kind == "images" else measure_servers
        print(measure(case[0], number, number), flush=True)
    else:
        print(f"{number:,} {kind}, {number:,} hosts.", flush=True)
        for each in CASES[kind]:
            subprocess.run([sys.executable, "-m", "tests.benchmarks.audit", kind, *arguments, each], check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
