"""An audit against one query an image on a real Placement: ``python tests/benchmarks/audit_by_query.py [small]``.

The queries are those that a scheduler would send, without a limit. They are made for a sample of the images and scaled
to all of them, half of them before the audit and half of them after it; for each image of the sample both sides must
find the same hosts. Images and hosts are those of ``audit.py``.
"""

import random
import sys
import time
from argparse import Namespace
from collections.abc import Sequence

from audit import fleet_of, images_of

from os_prefilter import Flavor, Image, Pipeline, RequestSpec, allocation_candidates_query
from os_prefilter.adapters.embedded import EmbeddedPlacement
from os_prefilter.cli.arguments import pipeline_from
from os_prefilter.common.errors import RequestRejected
from os_prefilter.fleet.model import Fleet
from os_prefilter.operators.audit.audit import Change, audit
from os_prefilter.request.from_json import image_from
from os_prefilter.vocabulary import opt_in_traits

Answers = dict[str, frozenset[str]]
"""Name of an image -> the names of its hosts."""


def by_audit(images: Sequence[Image], fleet: Fleet, pipeline: Pipeline) -> tuple[Answers, float]:
    """Return the hosts of each image, and the seconds that it took."""
    start = time.perf_counter()
    result = audit(images, fleet, Change(Pipeline(()), pipeline))
    seconds = time.perf_counter() - start
    found: Answers = {}
    for line in result.lines:
        groups = [each for each in result.host_groups if line.after >> each.numbers[0] & 1]
        assert sum(each.hosts for each in groups) == line.after
        found |= dict.fromkeys(line.names, frozenset(name for each in groups for name in each.names))
    return found, seconds


def by_query(images: Sequence[Image], placement: EmbeddedPlacement, pipeline: Pipeline) -> tuple[Answers, float]:
    """Return the same from one query an image."""
    found: Answers = {}
    start = time.perf_counter()
    for image in images:
        spec = RequestSpec(flavor=Flavor(vcpus=1), image=image)
        try:
            pipeline.apply(spec)
        except RequestRejected:
            found[str(image.name)] = frozenset()
            continue
        query = allocation_candidates_query(spec, limit=None)
        found[str(image.name)] = frozenset(placement.client.allocation_candidates(query).hosts)
    return found, time.perf_counter() - start


def measure(images: int, hosts: int, sample: int, *, different: bool) -> None:
    """Print a line about few kinds of images and hosts, or where all are different."""
    random_ = random.Random(1)
    fleet = fleet_of(hosts, different=different, random_=random_)
    listed = [image_from(each, "the benchmark") for each in images_of(images, different=different, random_=random_)]
    pipeline = pipeline_from(Namespace(filter=[], config_file=None), fleet)
    sampled = random_.sample(listed, sample)
    with EmbeddedPlacement(fleet) as placement:
        # The names of the hosts, and what Placement loads at its first answer.
        placement.client.allocation_candidates("resources=VCPU:1&limit=1")
        placement.client.ensure_traits(opt_in_traits())
        before, asking = by_query(sampled[::2], placement, pipeline)
        audited, seconds = by_audit(listed, fleet, pipeline)
        after, more = by_query(sampled[1::2], placement, pipeline)
    asked, asking = {**before, **after}, asking + more
    assert asked == {name: audited[name] for name in asked}
    scaled = asking / sample * images
    told = "all different" if different else "few kinds"
    print(f"{told:14} {images:,} images x {hosts:,} hosts: audit {seconds:.1f} s; {sample} queries {asking:.1f} s,")
    with_hosts = sum(bool(each) for each in asked.values())
    print(f"{'':14} scaled to all images {scaled:,.0f} s: {scaled / seconds:,.0f} times as long.")
    print(f"{'':14} The same hosts for each image of the sample; {with_hosts} have some.", flush=True)


def main(arguments: list[str]) -> None:
    """Measure both kinds of images and hosts."""
    images, hosts, sample = (50, 60, 20) if "small" in arguments else (10_000, 10_000, 10)
    for different in (False, True):
        measure(images, hosts, sample, different=different)


if __name__ == "__main__":
    main(sys.argv[1:])
