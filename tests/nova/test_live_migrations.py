# SPDX-License-Identifier: Apache-2.0

"""The weigher at live migrations: hosts with the CPU of the present host come
first, and none is excluded.

Nova's own weight handler, host states, request specs and client of Placement;
its database is replaced.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from nova import exception, objects
from nova.compute import task_states
from nova.scheduler import utils as scheduler_utils
from nova.scheduler.client import report
from nova.scheduler.host_manager import HostState
from nova.scheduler.weights import HostWeightHandler

from os_prefilter.nova import PreferredTraits, scheduling
from os_prefilter.nova.scheduling import CPU_FITS
from os_prefilter.service.answer import cpu_fits
from os_prefilter.service.deployment_facts import ask_in_time
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.fleet.model import Fleet, Provider, provider_uuid
from tests.support.nova_objects import nova_spec
from tests.support.nova_start import Start, ask, our_entry, user_context
from tests.support.placements import Observed, answering, provider

_WEIGHERS = (
    "[filter_scheduler]",
    (
        "weight_classes ="
        " nova.scheduler.weights.all_weighers,os_prefilter.nova.PreferredTraits"
    ),
)
_OLD = "HW_CPU_X86_SSE42"
_NEW = f"{_OLD} HW_CPU_X86_AVX2"
_NEWEST = f"{_NEW} HW_CPU_X86_AVX512F"
_CPUS = {
    "old": _OLD,
    "new": _NEW,
    "threads": f"{_NEW} HW_CPU_HYPERTHREADING",
    "newest": _NEWEST,
    "unknown": "",
}
_FULL = "full"
"""A host with the CPU of ``newest`` that is no candidate."""
_SERVER = "0d5e7c4e-8a0b-4f5e-9d2c-6b1f3a7e9c21"
_DEFAULT = 1000.0


def _fleet() -> Iterator[Provider]:
    for name, traits in _CPUS.items():
        yield provider(
            name, "VCPU MEMORY_MB DISK_GB", f"COMPUTE_NODE {traits}"
        )
    yield provider(_FULL, "VGPU", f"COMPUTE_NODE {_NEWEST}")


@pytest.fixture
def observed() -> Iterator[Observed]:
    with EmbeddedPlacement(Fleet(tuple(_fleet()))) as placement:
        yield Observed(placement)


@pytest.fixture(autouse=True)
def server() -> Iterator[Any]:
    """Yield the server that Nova's database has, on the host that its field
    names.
    """
    server = SimpleNamespace(
        task_state=task_states.MIGRATING, host="new", node="new"
    )

    def node(_context: Any, host: str, _node: str) -> Any:
        return SimpleNamespace(uuid=provider_uuid(host))

    with (
        mock.patch.object(objects.InstanceMapping, "get_by_instance_uuid"),
        mock.patch.object(
            objects.Instance, "get_by_uuid", return_value=server
        ),
        mock.patch.object(
            objects.ComputeNode, "get_by_host_and_nodename", side_effect=node
        ) as server.lookup,
        mock.patch("nova.context.target_cell"),
    ):
        yield server


def _host(name: str) -> Any:
    host = HostState(name, name, "cell")
    host.uuid = provider_uuid(name)
    host.cpu_allocation_ratio = host.ram_allocation_ratio = (
        host.disk_allocation_ratio
    ) = 1.0
    host.aggregates = []
    return host


def _spec(**fields: Any) -> Any:
    """Return the request spec of a server that leaves its host."""
    spec = nova_spec(
        {},
        fields.pop("extra_specs", {}),
        **{
            "instance_group": None,
            "requested_destination": None,
            "requested_resources": [],
            "is_bfv": False,
            "instance_uuid": _SERVER,
            "ignore_hosts": ["new"],
            **fields,
        },
    )
    # The hosts are small.
    spec.flavor.memory_mb = 1
    return spec


def _query(scheduler: Any, spec: Any) -> None:
    """Run our request filters, and Nova's query for candidates after them."""
    context = user_context()
    our_entry()(context, spec)
    resources = scheduler_utils.resources_from_request_spec(
        context, spec, scheduler.host_manager
    )
    client = report.report_client_singleton()
    client.get_allocation_candidates(context, resources)


def _weights(scheduler: Any, spec: Any) -> dict[str, float]:
    _query(scheduler, spec)
    weighed = scheduler.host_manager.get_weighed_hosts(
        list(map(_host, _CPUS)), spec
    )
    return {each.obj.host: each.weight for each in weighed}


def _fits(weights: dict[str, float]) -> dict[str, float]:
    """Return the share of the option that hosts weigh, if they weigh more."""
    assert set(weights) == set(_CPUS)
    return {
        name: weight / _DEFAULT for name, weight in weights.items() if weight
    }


@pytest.mark.parametrize(
    ("source", "fitting"),
    [
        ("old", {"old": 1, "new": 0.5, "threads": 0.5, "newest": 0.5}),
        ("new", {"new": 1, "threads": 1, "newest": 0.5}),
        ("threads", {"new": 1, "threads": 1, "newest": 0.5}),
        ("newest", {"newest": 1}),
        ("unknown", {}),
    ],
)
def test_hosts_with_the_cpu_of_the_present_host_come_first_and_all_remain(
    source: str,
    fitting: dict[str, float],
    start: Start,
    observed: Observed,
    server: Any,
) -> None:
    """Threads are no feature of a guest; of a host without CPU traits nothing
    is known.
    """
    scheduler = start("image_metadata", *_WEIGHERS)
    ask(observed)
    server.host = source
    weights = _weights(scheduler, _spec(ignore_hosts=[source]))
    assert _fits(weights) == fitting
    assert set(list(weights)[: len(fitting)]) == set(fitting)


def test_traits_of_a_present_host_that_is_a_candidate_cost_no_request(
    start: Start, observed: Observed
) -> None:
    scheduler = start("image_metadata", *_WEIGHERS)
    ask(observed)
    _weights(scheduler, _spec())
    observed.sent.clear()
    _weights(scheduler, _spec())
    (query,) = observed.sent
    assert "/allocation_candidates?" in query


def test_traits_of_a_present_host_that_is_full_cost_one_request(
    start: Start, observed: Observed, server: Any
) -> None:
    scheduler = start("image_metadata", *_WEIGHERS)
    ask(observed)
    server.host = _FULL
    _weights(scheduler, _spec())
    observed.sent.clear()
    assert _fits(_weights(scheduler, _spec())) == {"newest": 1.0}
    query, traits = observed.sent
    assert "/allocation_candidates?" in query
    assert traits == f"GET /resource_providers/{provider_uuid(_FULL)}/traits"


@pytest.mark.parametrize(
    "task_state",
    [task_states.RESIZE_PREP, task_states.REBUILDING, None],
)
def test_move_that_starts_the_guest_anew_weighs_no_cpu(
    task_state: str | None, start: Start, observed: Observed, server: Any
) -> None:
    scheduler = start("image_metadata", *_WEIGHERS)
    ask(observed)
    server.task_state = task_state
    assert _fits(_weights(scheduler, _spec())) == {}
    server.lookup.assert_not_called()


def test_new_server_weighs_no_cpu_and_reads_nothing(
    start: Start, observed: Observed
) -> None:
    scheduler = start("image_metadata", *_WEIGHERS)
    ask(observed)
    with mock.patch.object(
        objects.Instance, "get_by_uuid", side_effect=AssertionError
    ):
        weights = _weights(scheduler, _spec(ignore_hosts=None))
    assert _fits(weights) == {}


def test_option_sets_the_weight_beside_that_of_preferred_traits(
    start: Start, observed: Observed
) -> None:
    scheduler = start(
        "preferences",
        "live_migration_cpu_weight_multiplier = 2.5",
        "preferred_weight_multiplier = 0.5",
        *_WEIGHERS,
    )
    ask(observed)
    preferred = {"trait:HW_CPU_X86_AVX512F": "preferred"}
    assert _weights(scheduler, _spec(extra_specs=preferred)) == {
        "newest": 1.75,
        "new": 2.5,
        "threads": 2.5,
        "old": 0.0,
        "unknown": 0.0,
    }


@pytest.mark.parametrize(
    "lines",
    [
        ("live_migration_cpu_weight_multiplier = 0", *_WEIGHERS),
        (),
    ],
    ids=["off", "without the weigher"],
)
def test_option_off_reads_nothing(
    lines: tuple[str, ...], start: Start, observed: Observed, server: Any
) -> None:
    scheduler = start("image_metadata", *lines)
    ask(observed)
    assert _fits(_weights(scheduler, _spec())) == {}
    server.lookup.assert_not_called()


def test_present_host_that_nova_no_longer_has_weighs_no_cpu(
    start: Start,
    observed: Observed,
    server: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    scheduler = start("image_metadata", *_WEIGHERS)
    ask(observed)
    server.lookup.side_effect = exception.ComputeHostNotFound(host="new")
    assert _fits(_weights(scheduler, _spec())) == {}
    (warning,) = [
        each.getMessage()
        for each in caplog.records
        if "CPU traits" in each.getMessage()
    ]
    assert warning.startswith(
        "Failed to read the CPU traits of the host that the server"
        f" {_SERVER} leaves (ComputeHostNotFound: "
    )
    assert warning.endswith("): no host is preferred because of its CPU.")


def test_present_host_that_placement_no_longer_has_weighs_no_cpu(
    start: Start,
    observed: Observed,
    server: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    scheduler = start("image_metadata", *_WEIGHERS)
    ask(observed)
    server.host = "gone"
    assert _fits(_weights(scheduler, _spec())) == {}
    assert "CPU traits" not in caplog.text


def test_placement_that_fails_at_the_present_host_weighs_no_cpu(
    start: Start,
    observed: Observed,
    server: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    scheduler = start("image_metadata", *_WEIGHERS)
    ask(observed)
    server.host = _FULL
    observed.hook = answering((503, b"busy"), f"{provider_uuid(_FULL)}/traits")
    assert _fits(_weights(scheduler, _spec())) == {}
    assert "Failed to read the CPU traits" in caplog.text


def test_readings_of_one_move_wait_until_the_same_time(
    start: Start, observed: Observed
) -> None:
    """For the excluded hosts, and for the CPU of the present one."""
    scheduler = start("image_metadata", *_WEIGHERS)
    ask(observed)
    with (
        mock.patch.object(scheduling, "compute_nodes_of", return_value=set()),
        mock.patch.object(
            scheduling, "ask_in_time", side_effect=ask_in_time
        ) as asking,
    ):
        _query(scheduler, _spec(ignore_hosts=list(_CPUS)))
    names = [call.args[1] for call in asking.call_args_list]
    assert names == ["excluded hosts", "CPU of a server"]
    assert len({call.args[2] for call in asking.call_args_list}) == 1


def test_what_is_known_of_cpus_goes_with_the_request(
    start: Start, observed: Observed
) -> None:
    scheduler = start("image_metadata", *_WEIGHERS)
    ask(observed)
    spec = _spec()
    _query(scheduler, spec)
    assert spec in CPU_FITS
    del spec
    gc.collect()
    assert len(CPU_FITS) == 0


_SOME_TRAITS = (
    "HW_CPU_X86_SSE42",
    "HW_CPU_X86_AVX2",
    "HW_CPU_X86_AVX512F",
    "HW_CPU_HYPERTHREADING",
    "CUSTOM_PREFILTER_CPU_AAAAAAAA",
    "CUSTOM_PREFILTER_CPU_BBBBBBBB",
)


def test_no_host_is_excluded_and_better_fits_come_first_in_random_fleets(
    start: Start,
) -> None:
    start("image_metadata", *_WEIGHERS)
    handler, weigher = HostWeightHandler(), PreferredTraits()
    chance = Random(56)  # noqa: S311 - no secret
    for _ in range(500):
        summaries = {}
        hosts = [_host(f"host-{number}") for number in range(8)]
        for host in hosts:
            traits = chance.sample(_SOME_TRAITS, chance.randrange(5))
            summaries[host.uuid] = {
                "root_provider_uuid": host.uuid,
                "traits": traits,
            }
        source = chance.choice(hosts).uuid
        spec = _spec()
        fits = cpu_fits(summaries[source]["traits"], summaries)
        CPU_FITS[spec] = fits
        weighed = handler.get_weighed_objects([weigher], hosts, spec)
        found = [each.obj.uuid for each in weighed]
        assert sorted(found) == sorted(summaries)
        in_order = [fits[uuid] for uuid in found]
        assert in_order == sorted(in_order, reverse=True)
