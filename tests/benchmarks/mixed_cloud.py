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

"""Boots in a mixed cloud, simulated on a real Placement: ``python -m tests.benchmarks.mixed_cloud [small]``.

The same requests in the same order go through Nova's own scheduler in five ways, each on a Placement of its own. Late
checks of this library stand for the virt drivers. The page "A mixed cloud" says how the cloud is made.
"""

import logging
import multiprocessing
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.benchmarks.mixed.hosts import KINDS, hosts
from tests.benchmarks.mixed.requests import boots
from tests.benchmarks.mixed.simulation import Result, Run
from tests.benchmarks.mixed.table import Results, described, tables
from tests.benchmarks.mixed.ways import WAYS, Way

SEED = 1
HOSTS, REQUESTS = 2_000, 300
SMALL_HOSTS, SMALL_REQUESTS = 100, 20
KEPT = "os-prefilter: no late failure, no able host excluded."


def run(hosts_: int, requests: int, way: Way) -> list[Result]:
    # Nova says of each request that it knows no trait for a property.
    logging.disable(logging.ERROR)
    return Run(way, hosts(hosts_, SEED), boots(requests, SEED)).results()


def broken_laws(results: Results) -> list[str]:
    broken = []
    for result in results["os-prefilter"]:
        what = f"request {result.boot.number}, {result.boot.image.name}"
        if result.outcome.failed:
            broken.append(f"{what}: failed late on {', '.join(result.outcome.failed)}")
        if result.excluded:
            broken.append(f"{what}: {result.excluded} hosts that could do it were excluded")
        if result.able and not result.booted:
            broken.append(f"{what}: no valid host, and {result.able} could do it")
    return broken


def main(arguments: Sequence[str]) -> int:
    """Run all ways, as many at a time as there are cores; print the tables; return 1 if a law is broken."""
    size = (SMALL_HOSTS, SMALL_REQUESTS) if "small" in arguments else (HOSTS, REQUESTS)
    # Of more hosts than it may return, Placement takes those that come first in a set of texts, which Python mixes anew
    # in each process unless it is told not to. What is spawned reads it.
    os.environ["PYTHONHASHSEED"] = str(SEED)
    with ProcessPoolExecutor(os.cpu_count(), mp_context=multiprocessing.get_context("spawn")) as processes:
        results = dict(zip((way.name for way in WAYS), processes.map(partial(run, *size), WAYS), strict=True))
    text = f"{size[0]:,} hosts of {len(KINDS)} kinds, {len(results['no filter'])} requests, seed {SEED}"
    sys.stdout.write(f"{text}\n\n{described()}\n\n{tables(results)}\n")
    broken = broken_laws(results)
    sys.stdout.write("\n".join(broken or [KEPT]) + "\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
