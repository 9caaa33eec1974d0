"""How long an audit of servers takes, and how much memory: ``python tests/benchmarks/audit_servers.py [small]``.

Each case runs in a process of its own. Servers and hosts are made up, the same at each run.
"""

import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import replace

from audit import fleet_of, images_of

from os_prefilter.cli.arguments import pipeline_from
from os_prefilter.cli.audit_page import server_page
from os_prefilter.fleet.model import Fleet, Inventory, Provider
from os_prefilter.operators.audit.destinations import Destinations
from os_prefilter.operators.audit.entry_list import LeftOut
from os_prefilter.operators.audit.server_audit import STRANDED, audit_servers
from os_prefilter.operators.audit.server_list import read_servers

CASES = ("few kinds", "every host and server different", "the same, full", "100 servers on each of 100 hosts")


def with_usage(fleet: Fleet, *, different: bool, full: bool, random_: random.Random) -> Fleet:
    """Return the hosts with processors, memory, disks and their usage; nearly all is used if ``full``."""

    def with_rooms(host: Provider) -> Provider:
        cores = random_.choice((32, 48, 64, 96))
        memory = random_.randrange(131_072, 1_048_576) if different else 262_144
        used = random_.uniform(0.97, 1.0) if full else random_.uniform(0.2, 0.95)
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


def measure(case: str, servers: int, hosts: int) -> str:
    """Run one case; return a line about it."""
    random_ = random.Random(1)
    different = case != CASES[0]
    hosts = min(hosts, 100) if "100 hosts" in case else hosts
    fleet = fleet_of(hosts, different=different, random_=random_)
    fleet = with_usage(fleet, different=different, full="full" in case, random_=random_)
    pipeline = pipeline_from(Namespace(filter=[], config_file=None), fleet)
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        for entry in servers_of(servers, hosts, different=different, random_=random_):
            print(json.dumps(entry), file=file)
        file.flush()
        start, start_cpu = time.perf_counter(), time.process_time()
        left_out = LeftOut()
        destinations = Destinations(fleet, pipeline)
        result = audit_servers(read_servers(file.name, left_out), destinations, ["host-0", "host-1"])
        counted = time.perf_counter()
        size = len(server_page(result, pipeline, left_out, fleet))
        end, cpu = time.perf_counter(), time.process_time() - start_cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    stranded = sum(each.servers - each.placed for each in result.of_hosts)
    return (
        f"{case}: {result.servers:,} servers in {len(result.lines):,} lines, {result.count(*STRANDED):,} without a "
        f"destination, {stranded:,} without one at the same time\n    audit {counted - start:.1f} s, page "
        f"{end - counted:.1f} s and {size / 2**20:.1f} MiB; CPU {cpu:.1f} s, peak {peak:.0f} MiB"
    )


def main(arguments: Sequence[str]) -> None:
    """Run all cases, or the one that is named."""
    small = arguments[:1] == ["small"]
    servers, hosts = (60, 50) if small else (10_000, 10_000)
    if case := arguments[small:]:
        print(measure(case[0], servers, hosts), flush=True)
        return
    print(f"{servers:,} servers, {hosts:,} hosts.", flush=True)
    for each in CASES:
        subprocess.run([sys.executable, __file__, *arguments, each], check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
