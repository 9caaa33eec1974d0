"""What Placement does with wide trees of providers: ``python tests/benchmarks/trees.py [small]``.

Each host has 4 NUMA cells, and each cell 2 GPUs and 2 network cards: providers with one VGPU or one PCI device each. Of
``n`` request groups for such devices Placement forms one candidate for each order of like devices. The requests are of
two kinds, and Nova makes both of a flavor:

- ``groups``: ``resources1:VGPU=1`` to ``resources<n>:VGPU=1`` and ``group_policy=none``;
- ``GPU, PCI``: ``resources:VGPU=1`` in the unsuffixed group, and a group for each of ``n - 1`` PCI devices. The filter
  ``owner`` requests the VGPU in a group of its own.

The time is that of Placement, as in ``candidates.py``; on SQLite it is processor time, since all of it is in this
process. What is alive before a measurement is frozen (``gc.freeze``): the garbage collector else walks through Nova's
modules in one call of two, which takes as long as a small query.
"""

import gc
import json
import logging
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest import mock

import nova.conf
from candidates import LIMIT, NOTHING, NOVA, OURS, answer, hosts_in, nova_spec
from nova import context, objects
from nova.scheduler import request_filter
from nova.scheduler.utils import ResourceRequest
from oslo_config import cfg
from placements import databases, placement_on, wide_fleet_of
from side_by_side import MARIADB, side_by_side

from os_prefilter import Pipeline, allocation_candidates_query
from os_prefilter.adapters.embedded import EmbeddedPlacement
from os_prefilter.conf import register_opts

WITHOUT, WITH = "ours", "owner"
SIDES = (NOTHING, NOVA, WITHOUT, WITH)
GROUPS, UNSUFFIXED = "groups", "GPU, PCI"
DEVICES = 8
# Placement combines 8 devices for each of n groups, all of them before it takes the first 1,000 candidates.
MOST_COMBINATIONS = 10_000
_FEW = 1000
# Candidates, times the number of orders of their devices.
_MOST_COMPARED = 5_000_000
# What is set for [placement] allocation_candidates_generation_strategy, max_allocation_candidates and for
# [workarounds] optimize_for_wide_provider_trees.
DEFAULTS = ("depth-first", -1, False)


@dataclass(frozen=True)
class Asked:
    """A request: its kind, and how many devices it has."""

    kind: str
    groups: int

    @property
    def candidates(self) -> int:
        """How many candidates a host has, if all its devices may be taken."""
        if self.kind == GROUPS:
            return math.perm(DEVICES, self.groups)
        return DEVICES * math.perm(DEVICES, self.groups - 1)

    def spec(self) -> Any:
        """Return it as a request spec of Nova's."""
        spec = nova_spec({})
        policy = {"group_policy": "none"} if self.groups > 1 else {}
        if self.kind == GROUPS:
            spec.flavor.extra_specs = policy | {f"resources{number + 1}:VGPU": "1" for number in range(self.groups)}
            return spec
        spec.flavor.extra_specs = policy | {"resources:VGPU": "1"}
        nova.conf.CONF.set_override("pci_in_placement", True, "filter_scheduler")
        devices = [{"vendor_id": "8086", "product_id": "1563"}]
        spec.pci_requests = objects.InstancePCIRequests(
            requests=[
                objects.InstancePCIRequest(request_id=f"pci-{number}", count=1, alias_name="nic", spec=devices)
                for number in range(1, self.groups)
            ]
        )
        spec.generate_request_groups_from_pci_requests()
        return spec

    def queries(self) -> dict[str, str]:
        """Return the query of each side."""
        by_nova = self.spec()
        for option in ("image_metadata_prefilter", "query_placement_for_image_type_support"):
            nova.conf.CONF.set_override(option, True, "scheduler")
        with mock.patch.object(objects.service, "get_minimum_version_all_cells", return_value=_NEW):
            request_filter.process_reqspec(context.get_admin_context(), by_nova)
        return {
            NOTHING: _as_nova(self.spec()),
            NOVA: _as_nova(by_nova),
            WITHOUT: self._ours(OURS),
            WITH: self._ours([*OURS, "owner"]),
        }

    def _ours(self, filters: list[str]) -> str:
        conf = cfg.ConfigOpts()
        conf([], default_config_files=[])
        register_opts(conf)
        conf.set_override("enabled_filters", filters, "prefilter")
        conf.set_override("owner_gate", "always", "prefilter")
        spec = self.spec()
        Pipeline.from_conf(conf).apply(spec)
        return allocation_candidates_query(spec)


_NEW = request_filter.MIN_COMPUTE_VERSION_OWNER_TRAIT


def _as_nova(spec: Any) -> str:
    return str(ResourceRequest.from_request_spec(spec).to_querystring())


@contextmanager
def _options(placement: EmbeddedPlacement, strategy: str, most: int, wide: bool) -> Iterator[None]:
    """Set what limits the candidates of this Placement."""
    conf = placement._transport._configuration
    values = {
        ("allocation_candidates_generation_strategy", "placement"): strategy,
        ("max_allocation_candidates", "placement"): most,
        ("optimize_for_wide_provider_trees", "workarounds"): wide,
    }
    for (name, group), value in values.items():
        conf.set_override(name, value, group)
    yield
    for name, group in values:
        conf.clear_override(name, group)


@dataclass(frozen=True)
class _Measured:
    seconds: Mapping[str, float]
    answers: Mapping[str, bytes]

    def returned(self, side: str) -> int:
        return len(json.loads(self.answers[side])["allocation_requests"])

    def hosts(self, side: str) -> int:
        return len(hosts_in(self.answers[side]))

    def kib(self, side: str) -> float:
        return len(self.answers[side]) / 1024


def _clock(database: str) -> Callable[[], float]:
    """Return the clock for a database: that of the processor, if everything is in this process."""
    return time.process_time if database == "SQLite" else time.perf_counter


def _measure(
    placement: EmbeddedPlacement, asked: Mapping[str, str], rounds: int, clock: Callable[[], float]
) -> _Measured:
    answers: dict[str, bytes] = {}
    seconds: dict[str, list[float]] = {name: [] for name in asked}

    def ask(name: str) -> None:
        start = clock()
        answers[name] = answer(placement, asked[name])
        seconds[name].append(clock() - start)

    gc.collect()
    gc.freeze()
    side_by_side({name: partial(ask, name) for name in asked}, rounds=rounds)
    gc.unfreeze()
    # The first call is for the caches.
    return _Measured({name: statistics.median(each[1:]) for name, each in seconds.items()}, answers)


def sizes(database: str, hosts: int, most_groups: int, rounds: int) -> None:
    """Print a line for each kind of request and number of groups that Placement stands on so many hosts."""
    with placement_on(database, wide_fleet_of(hosts)) as placement:
        for groups in range(1, most_groups + 1):
            if hosts * DEVICES**groups > MOST_COMBINATIONS:
                return
            # The noise is large beside a small answer, and the time beside a large one.
            turns = rounds * 5 if hosts * DEVICES**groups < _FEW else rounds
            for kind in (GROUPS, UNSUFFIXED):
                asked = Asked(kind, groups)
                found = _measure(placement, asked.queries(), turns, _clock(database))
                candidates = hosts * asked.candidates
                for side in SIDES:
                    assert found.returned(side) == min(LIMIT, candidates), side
                times = " ".join(f"{found.seconds[side] * 1000:6.0f}" for side in SIDES)
                ratio = found.seconds[WITH] / found.seconds[NOVA]
                print(
                    f"{database:7} {hosts:5} {groups:6} {kind:9} {candidates:10,} {found.returned(WITH):8,}"
                    f" {found.hosts(WITH):5,} {found.kib(NOVA):5.0f} {found.kib(WITH):5.0f} {times} {ratio:6.2f}",
                    flush=True,
                )


def owners(hosts: int, most_groups: int, rounds: int) -> None:
    """Print what is left where half of the GPUs are Cyborg's, and of which forms of the request it is left."""
    with placement_on("SQLite", wide_fleet_of(hosts, cyborgs=2, untagged=2)) as placement:
        for groups in range(1, most_groups + 1):
            for kind in (GROUPS, UNSUFFIXED):
                asked = Asked(kind, groups).queries()
                if kind == UNSUFFIXED:
                    # What the filter could write in place of a group of its own.
                    asked["forbid in place"] = asked[NOVA].replace("&resources=", "&required=!OWNER_CYBORG&resources=")
                    asked["require in place"] = asked[NOVA].replace("&resources=", "&required=OWNER_NOVA&resources=")
                asked = {name: _unlimited(query) for name, query in asked.items() if name not in (NOTHING, WITHOUT)}
                found = _measure(placement, asked, rounds, time.process_time)
                for name, seconds in found.seconds.items():
                    print(
                        f"{groups:6} {kind:9} {name:16} {found.returned(name):10,} {_foreign(found.answers[name]):8,}"
                        f" {found.hosts(name):5,} {seconds * 1000:6.0f}",
                        flush=True,
                    )
                assert not _foreign(found.answers[WITH])
                assert found.hosts(WITH) == hosts


def _unlimited(query: str) -> str:
    return query.replace(f"limit={LIMIT}&", "")


def _foreign(answered: bytes) -> int:
    """Return how many candidates have a GPU that is not Nova's."""
    document = json.loads(answered)
    traits = {uuid: each["traits"] for uuid, each in document["provider_summaries"].items()}
    return sum(
        any("OWNER_NOVA" not in traits[uuid] for uuid in request["allocations"])
        for request in document["allocation_requests"]
    )


def strategies(hosts: int, groups: tuple[int, ...]) -> None:
    """Print, for what an operator can set in Placement, of how many hosts the first 1,000 candidates are.

    Left out is what takes minutes. Candidates with the same devices in another order have the same hash, so Placement
    compares all of these with each other.
    """
    limits = (
        ("depth-first", 100_000, False),
        ("breadth-first", 100_000, False),
        ("depth-first", LIMIT, False),
        ("breadth-first", LIMIT, False),
        ("breadth-first", LIMIT, True),
    )
    with placement_on("SQLite", wide_fleet_of(hosts)) as placement:
        gc.collect()
        gc.freeze()
        for number in groups:
            asked = Asked(GROUPS, number)
            query = asked.queries()[WITH]
            for strategy, most, wide in (DEFAULTS, *limits):
                formed = hosts * asked.candidates
                compared = (formed if most < 0 else min(formed, most)) * math.factorial(number)
                if compared > _MOST_COMPARED:
                    continue
                with _options(placement, strategy, most, wide):
                    start = time.process_time()
                    answered = answer(placement, query)
                    seconds = time.process_time() - start
                told = f"{'all' if most < 0 else f'{most:,}':>8} {strategy:13} {'wide' if wide else '':4}"
                returned = len(json.loads(answered)["allocation_requests"])
                seen = len(hosts_in(answered))
                print(f"{hosts:5} {number:6} {formed:10,} {told} {returned:8,} {seen:5,} {seconds:6.2f}", flush=True)


def main(arguments: list[str]) -> None:
    """Measure wide trees on each kind of database."""
    small = "small" in arguments
    logging.disable(logging.WARNING)
    objects.register_all()
    rounds = 1 if small else 3
    print(f"{DEVICES} GPUs and {DEVICES} network cards a host, all Nova's. Medians of {rounds} rounds and more in ms,")
    print("of processor time on SQLite, of the clock on MariaDB. More combinations take seconds to minutes.")
    print(f"{'hosts':>13} groups request   candidates returned hosts   KiB owner   none   Nova   ours  owner  ratio")
    for database in databases():
        for hosts in (1, 10) if small else (1, 10, 100):
            sizes(database, hosts, 2 if small else 6, rounds)
    if not small:
        sizes("SQLite", 1000, 1, rounds)
    if "MariaDB" not in databases():
        print(f"No MariaDB: {MARIADB} is not set.")
    hosts = 2 if small else 10
    print(
        f"\n{hosts} hosts, half of the GPUs Cyborg's, 2 of these 4 without an owner's trait. No limit. Times as above."
    )
    print("groups request   form             candidates  foreign hosts   time")
    owners(hosts, 2 if small else 3, rounds)
    print(
        "\nWhat Placement may form, and what the scheduler gets of it. One call each, with the filter owner; seconds."
    )
    print("hosts groups candidates   formed strategy           returned hosts   time")
    strategies(10 if small else 100, (2,) if small else (2, 4, 6))


if __name__ == "__main__":
    main(sys.argv[1:])
