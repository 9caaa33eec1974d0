"""What the traits of a report cost each request: ``python tests/benchmarks/traits.py [small]``.

Placement sends every trait of every candidate. The same plain KVM hosts have the traits that Nova's driver writes, and
beside them those of our agent, in the ways that it can be configured; the same request, as Nova sends it, goes to each.
The time is that of Placement, whose WSGI application is called in this process, and that of a scheduler that parses the
answer.
"""

import json
import logging
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from candidates import COMMON, LIMIT, NOVA, answer, hosts_in, queries
from mixed.hosts import BY_KIND, Kind
from nova import objects
from placements import placement_on
from side_by_side import side_by_side

from os_prefilter.conf.options import Options
from os_prefilter.filters.loading import load_filters
from os_prefilter.filters.report_scope import EVERY_TRAIT, ReportScope, report_scope
from os_prefilter.fleet.model import Fleet, Provider, provider_uuid
from os_prefilter.hosts.capabilities import capability_traits
from os_prefilter.hosts.desired_traits import Mode, select_managed, with_marker
from os_prefilter.hosts.drivers.libvirt_facts import LibvirtFacts
from os_prefilter.vocabulary.machine_types import ARCHITECTURES, PLATFORM_ARCHITECTURES

NOVA_ALONE = "Nova's traits alone"
FILTERS = ("image_metadata", "hpet")
RECOMMENDED = ("CUSTOM_COMPUTE_*MACHINE_*", "CUSTOM_HYPERVISOR_TYPE_*", "CUSTOM_VM_MODE_*")
"""The ``reported_traits`` that the documentation recommends."""


def ways(kind: Kind) -> Mapping[str, frozenset[str]]:
    """Return the traits of a KVM host by the configuration of its agent."""
    facts = kind.facts
    assert isinstance(facts, LibvirtFacts)
    guests = dict.fromkeys(PLATFORM_ARCHITECTURES, facts.own_guests)
    every_qemu = replace(facts, guests=guests, emulated_architectures=frozenset(ARCHITECTURES.split()))
    return {
        NOVA_ALONE: kind.nova_traits,
        "the filters alone": kind.nova_traits | _reported(facts, _scope()),
        "recommended": kind.nova_traits | _reported(facts, _scope(*RECOMMENDED)),
        "reported_traits = *": kind.nova_traits | _reported(facts, _scope("*")),
        "--all": kind.nova_traits | _reported(replace(every_qemu, guests=facts.guests), EVERY_TRAIT),
        "--all, every QEMU": kind.nova_traits | _reported(every_qemu, EVERY_TRAIT),
    }


def _scope(*reported_traits: str) -> ReportScope:
    return report_scope(load_filters(FILTERS, None), Options(reported_traits=reported_traits))


def _reported(facts: LibvirtFacts, scope: ReportScope) -> frozenset[str]:
    managed = select_managed(scope.restrict(capability_traits(facts)), Mode.BESIDE, facts)
    return frozenset(trait for trait, has in with_marker(managed, facts, scope.marker).items() if has)


def main(arguments: list[str]) -> None:
    """Ask each Placement in turn, and print a line for each."""
    hosts, rounds = (100, 1) if "small" in arguments else (LIMIT, 9)
    logging.disable(logging.WARNING)
    objects.register_all()
    kind = BY_KIND["kvm-8.2"]
    query = queries(COMMON)[NOVA]
    print(f"{hosts:,} plain KVM hosts, flat, SQLite. Medians of {rounds} rounds.", flush=True)
    with ExitStack() as stack:
        traits = ways(kind)
        placements = {
            name: stack.enter_context(placement_on("SQLite", _fleet(kind, hosts, each)))
            for name, each in traits.items()
        }
        answers = {name: answer(placement, query) for name, placement in placements.items()}
        asking = side_by_side({name: partial(answer, each, query) for name, each in placements.items()}, rounds=rounds)
        parsing = side_by_side({name: partial(json.loads, each) for name, each in answers.items()}, rounds=rounds)
    before = len(traits[NOVA_ALONE])
    for name, each in answers.items():
        assert len(hosts_in(each)) == hosts
        size = f"{len(traits[name]):4} traits (+{len(traits[name]) - before:3}) {len(each) / 1024:6.0f} KiB"
        times = f"{asking[name] * 1000:5.0f} ms in Placement {parsing[name] * 1000:4.0f} ms to parse"
        ratios = [
            len(each) / len(answers[NOVA_ALONE]),
            *(sides[name] / sides[NOVA_ALONE] for sides in (asking, parsing)),
        ]
        print(f"{name:20} {size} {times}  x Nova {' '.join(f'{ratio:.2f}' for ratio in ratios)}", flush=True)


def _fleet(kind: Kind, number: int, traits: frozenset[str]) -> Fleet:
    names = (f"host-{index}" for index in range(number))
    return Fleet(tuple(Provider(name, provider_uuid(name), kind.resources, traits) for name in names))


if __name__ == "__main__":
    main(sys.argv[1:])
