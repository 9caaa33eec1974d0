"""How long an audit takes, and how much memory: ``python tests/benchmarks/audit.py [small]``.

Each case runs in a process of its own. Images and hosts are made up, the same at each run.
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
from pathlib import Path

from os_prefilter import Flavor, Pipeline
from os_prefilter.cli.arguments import pipeline_from
from os_prefilter.cli.audit_page import page
from os_prefilter.fleet.model import Fleet, Inventory, Provider, provider_uuid
from os_prefilter.fleet.reader import example_fleet
from os_prefilter.operators.audit.audit import Change, audit
from os_prefilter.operators.audit.image_list import read_images
from os_prefilter.vocabulary import ROWS

CASES = ("few kinds", "many kinds", "every host and image different", "the same, mirrored", "different, 3 flavors")


def fleet_of(hosts: int, *, different: bool, random_: random.Random) -> Fleet:
    """Return hosts like those of the example fleet; if ``different``, each lacks a few traits of its own."""
    kinds = example_fleet().hosts
    return Fleet(
        tuple(_host(f"host-{number}", kinds[number % len(kinds)], different, random_) for number in range(hosts))
    )


def _host(name: str, kind: Provider, different: bool, random_: random.Random) -> Provider:
    traits = kind.traits
    if different:
        traits -= frozenset(random_.sample(sorted(traits), min(8, len(traits) // 3)))
    children = tuple(
        Provider(f"{name}_gpu_{number}", provider_uuid(f"{name}_gpu_{number}"), child.resources, child.traits)
        for number, child in enumerate(kind.providers * 4)
    )
    resources = {**kind.resources, "VCPU": Inventory(32)}
    return Provider(name, provider_uuid(name), resources, traits, (), children)


def images_of(images: int, *, different: bool, random_: random.Random) -> Iterator[dict[str, object]]:
    """Yield what ``openstack image show`` prints; if ``different``, with more properties than images have."""
    rows = [row for row in ROWS if row.image_property and not row.refuses_unknown and not row.only_with]
    usual = [row for row in rows if row.name in ("vif_model", "disk_bus", "video_model", "firmware_type", "time_hpet")]
    for number in range(images):
        properties = {"os_distro": "linux", "build": str(number)}
        for row in random_.sample(rows, 6) if different else random_.sample(usual, 2):
            properties[str(row.image_property)] = random_.choice(sorted(row.values))
        disk_format = random_.choice(["qcow2"] * 8 + ["raw", "vmdk", "iso"])
        yield {"id": f"id-{number}", "name": f"image-{number}", "disk_format": disk_format, "properties": properties}


def measure(case: str, images: int, hosts: int) -> str:
    """Run one case; return a line about it."""
    random_ = random.Random(1)
    different = case not in CASES[:2]
    fleet = fleet_of(hosts, different=case != CASES[0], random_=random_)
    arguments = Namespace(filter=[], config_file=None)
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(list(images_of(images, different=different, random_=random_)), file)
        file.flush()
        if "mirrored" in case:
            config = Path(f"{file.name}.conf")
            names = [each.name for each in pipeline_from(arguments, fleet).filters]
            config.write_text(f"[prefilter]\ntrait_scope=root_and_unsuffixed\nenabled_filters={','.join(names)}\n")
            arguments.config_file = str(config)
        change = Change(Pipeline(()), pipeline_from(arguments, fleet))
        start, start_cpu = time.perf_counter(), time.process_time()
        result = audit(read_images(file.name, print), fleet, change, flavors=_flavors(case))
        counted = time.perf_counter()
        size = len(page(result, change))
        end, cpu = time.perf_counter(), time.process_time() - start_cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    groups = f"{len(result.lines):,} groups of images, {len(result.host_groups):,} of hosts"
    return (
        f"{case}: {groups}\n    audit {counted - start:.1f} s, page {end - counted:.1f} s and {size / 2**20:.1f} MiB; "
        f"CPU {cpu:.1f} s, peak {peak:.0f} MiB"
    )


def _flavors(case: str) -> Sequence[Flavor]:
    if "flavors" not in case:
        return ()
    plain, vgpu = Flavor(2, 2048, 20, name="m1"), Flavor(4, 4096, 20, extra_specs={"resources:VGPU": "1"}, name="vgpu")
    return plain, vgpu, Flavor(2, 2048, 20, extra_specs={"trait:HW_CPU_X86_AVX2": "required"}, name="avx")


def main(arguments: Sequence[str]) -> None:
    """Run all cases, or the one that is named."""
    small = arguments[:1] == ["small"]
    images, hosts = (50, 60) if small else (10_000, 10_000)
    if case := arguments[small:]:
        print(measure(case[0], images, hosts), flush=True)
        return
    print(f"{images:,} images, {hosts:,} hosts.", flush=True)
    for each in CASES:
        subprocess.run([sys.executable, __file__, *arguments, each], check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
