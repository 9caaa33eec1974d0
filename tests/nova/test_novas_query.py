# SPDX-License-Identifier: Apache-2.0

"""Nova's own query for candidates, told from the questions of others in its
thread: real scheduler, real Placement.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import oslo_messaging as messaging
import pytest
from keystoneauth1.adapter import Adapter
from nova import objects
from nova.scheduler import request_filter, utils
from nova.scheduler.client import report

from os_prefilter.nova.connections import ReportClientAdapter
from os_prefilter.nova.scheduling import SchedulingWatch
from os_prefilter.pipeline.decision import Decision
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.fleet.model import Fleet, provider_uuid
from tests.support.nova_objects import boot_spec
from tests.support.nova_start import Start, our_entry, user_context
from tests.support.placements import provider, put_traits

_SERVER = "3f0c3d8e-55a1-4c3b-9a41-6d0f5c8e7b11"
_ROOM = "VCPU MEMORY_MB DISK_GB"
_GPU = provider("gpu-1_gpu", "VGPU", "CUSTOM_FAST")
_SHORT = "No available host has room for this flavor's memory."

Boot = Callable[..., Callable[..., str]]
"""``(*lines of nova.conf)``, and then ``(memory, extra_specs, **fields)`` of a
request -> what the user reads.
"""


@pytest.fixture
def placement() -> Iterator[EmbeddedPlacement]:
    """Return a Placement with two hosts, each with 16 of each resource."""
    hosts = (
        provider("kvm-1", _ROOM, "COMPUTE_NODE"),
        provider("gpu-1", _ROOM, "COMPUTE_NODE", (_GPU,)),
    )
    with EmbeddedPlacement(Fleet(hosts)) as placement:
        # As nova-scheduler creates it some time after its start.
        placement.client.ensure_traits(["CUSTOM_COMPUTE_TIME_HPET"])
        yield placement


@pytest.fixture
def boot(
    start: Start, placement: EmbeddedPlacement, monkeypatch: pytest.MonkeyPatch
) -> Boot:
    """Return what starts the scheduler, and returns what schedules a
    server.
    """
    client: Any = report.report_client_singleton
    # Nova's filter of owners looks up the oldest service there.
    monkeypatch.setattr(
        "nova.context.scatter_gather_all_cells", lambda *_given, **_named: {}
    )

    def begin(*lines: str) -> Callable[..., str]:
        session = placement.client._adapter.session
        adapter = Adapter(session, service_type="placement", raise_exc=False)
        client.return_value = report.SchedulerReportClient(adapter=adapter)
        scheduler = start("hpet", *lines)
        # Behind Placement's response; hosts come from a database.
        monkeypatch.setattr(
            type(scheduler), "_select_destinations", lambda *_given: []
        )
        return lambda **fields: _select(scheduler, **fields)

    return begin


def _select(
    scheduler: Any,
    memory: int = 4,
    extra_specs: dict[str, str] | None = None,
    properties: dict[str, Any] | None = None,
    **fields: Any,
) -> str:
    spec = boot_spec(properties, extra_specs, instance_uuid=_SERVER, **fields)
    spec.flavor.memory_mb = memory
    try:
        scheduler.select_destinations(
            user_context(),
            spec_obj=spec,
            instance_uuids=[_SERVER],
            return_objects=True,
        )
    except messaging.ExpectedException as error:
        return str(error.exc_info[1]).removeprefix("No valid host was found. ")
    return "scheduled"


def _asking(resources: str) -> Any:
    """Return a request filter of an operator that asks Placement for
    candidates of its own, and finds none.
    """

    def ask(_context: Any, _spec: Any) -> bool:
        client = report.report_client_singleton()
        response = client.get(
            f"/allocation_candidates?limit=1&resources={resources}",
            version="1.36",
        )
        assert response.json()["allocation_requests"] == []
        return True

    return ask


def _asking_as_nova(amount: int) -> Any:
    """Return a request filter that tries Nova's own query with more memory,
    and then takes what Nova would.
    """

    def ask(context: Any, spec: Any) -> bool:
        before, spec.flavor.memory_mb = spec.flavor.memory_mb, amount
        resources = utils.resources_from_request_spec(context, spec, None)
        (
            found,
            _,
            _,
        ) = report.report_client_singleton().get_allocation_candidates(
            context, resources
        )
        assert found == []
        spec.flavor.memory_mb = before
        return True

    return ask


@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize(
    "ask",
    [_asking("MEMORY_MB:1000"), _asking_as_nova(1000)],
    ids=["own", "as-nova"],
)
def test_question_of_another_request_filter_ends_no_boot(
    boot: Boot, place: str, ask: Any
) -> None:
    """Of an operator's filter before ours or after it, also one that asks what
    Nova would ask at that time.
    """
    schedule = boot()
    filters = request_filter.ALL_REQUEST_FILTERS
    filters.insert(0 if place == "before" else len(filters), ask)
    assert [schedule() for _ in range(4)] == ["scheduled"] * 4
    # The first request has told which resource is short; the others' questions
    # have not made that forgotten.
    assert schedule(memory=99) == _SHORT


def test_state_of_an_earlier_request_in_the_thread_ends_no_boot(
    boot: Boot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its query had no response, and a filter before ours asks the same for
    the next request.
    """
    schedule = boot()
    kept: list[Any] = []
    with monkeypatch.context() as patched:
        patched.setattr(
            report.SchedulerReportClient,
            "get_allocation_candidates",
            lambda *given: kept.append(given),
        )
        ask: Any = lambda _context, spec: kept.append(spec)  # noqa: E731
        request_filter.ALL_REQUEST_FILTERS.insert(0, ask)
        assert schedule(memory=99) == ""
        request_filter.ALL_REQUEST_FILTERS.remove(ask)
    _, _, resources = kept[-1]

    def ask_again(context: Any, _spec: Any) -> None:
        assert not report.report_client_singleton().get_allocation_candidates(
            context, resources
        )[0]

    request_filter.ALL_REQUEST_FILTERS.insert(0, ask_again)
    assert schedule() == "scheduled"


def test_reason_is_told_where_filters_of_others_follow_ours(
    boot: Boot,
) -> None:
    schedule = boot()
    ran: list[str] = []
    request_filter.ALL_REQUEST_FILTERS.append(
        lambda _context, spec: ran.append(spec.instance_uuid)
    )
    assert [schedule(memory=99), schedule(memory=99)] == [_SHORT] * 2
    assert ran == [_SERVER] * 2


def test_property_whose_trait_a_later_filter_removes_is_no_reason(
    boot: Boot,
) -> None:
    schedule = boot()
    asked: Any = {"memory": 99, "properties": {"hw_time_hpet": True}}
    assert schedule(**asked) == _NO_HPET
    request_filter.ALL_REQUEST_FILTERS.append(
        lambda _context, spec: spec.root_required.clear()
    )
    assert schedule(**asked) == _SHORT


def test_question_between_the_request_filters_and_novas_query_ends_no_boot(
    boot: Boot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For another amount, and in another place."""
    schedule = boot()
    real = utils.resources_from_request_spec
    ours: list[bool] = []

    def patched(context: Any, spec: Any, *given: Any, **named: Any) -> Any:
        if not ours:
            ours.append(True)
            for query in (
                "resources=MEMORY_MB:1000",
                "resources=DISK_GB:1,MEMORY_MB:4,VCPU:1&member_of=" + _SERVER,
            ):
                report.report_client_singleton().get(
                    f"/allocation_candidates?{query}",
                    version="1.36",
                    global_request_id=context.global_id,
                )
            ours.clear()
        return real(context, spec, *given, **named)

    monkeypatch.setattr(utils, "resources_from_request_spec", patched)
    assert schedule() == "scheduled"
    assert schedule(memory=99) == _SHORT


def test_question_by_novas_own_method_before_novas_query_ends_no_boot(
    boot: Boot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it has candidates, and Nova's own has none."""
    schedule = boot()
    real = utils.resources_from_request_spec
    ours: list[bool] = []
    amounts: list[int] = []

    def patched(context: Any, spec: Any, *given: Any, **named: Any) -> Any:
        if not ours:
            ours.append(True)
            client = report.report_client_singleton()
            for amount in amounts:
                other = spec.obj_clone()
                other.flavor.memory_mb = amount
                asked = real(context, other, *given, **named)
                client.get_allocation_candidates(context, asked)
            ours.clear()
        return real(context, spec, *given, **named)

    monkeypatch.setattr(utils, "resources_from_request_spec", patched)
    amounts[:] = [1000]
    assert schedule() == "scheduled"
    amounts[:] = [1000, 2]
    assert schedule(memory=99) == _SHORT
    preferred = {"trait:CUSTOM_FAST": "preferred"}
    assert schedule(extra_specs=preferred) == "scheduled"
    assert schedule(memory=99, extra_specs=preferred) == _SHORT


def test_client_of_nova_that_raises_an_error_is_an_end_as_well(
    boot: Boot, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule = boot()
    ends: list[Any] = []
    our_entry().service.observers = (lambda event: ends.append(event.error),)

    def fail(*_given: Any) -> None:
        raise OSError("no certificate")

    monkeypatch.setattr(
        report.SchedulerReportClient, "get_allocation_candidates", fail
    )
    with pytest.raises(OSError, match="no certificate"):
        schedule()
    assert len([each for each in ends if each]) == 1


def test_dedicated_cpus_that_the_flavor_asks_for_by_its_resource_have_a_reason(
    boot: Boot,
) -> None:
    """Nova asks for them once, and for those of a CPU policy again with
    VCPU.
    """
    schedule = boot()
    short = "No available host has room for this flavor's dedicated CPUs."
    assert (
        schedule(extra_specs={"resources:PCPU": "2", "resources:VCPU": "0"})
        == short
    )
    assert schedule(extra_specs={"hw:cpu_policy": "dedicated"}) == "scheduled"
    assert (
        schedule(memory=99, extra_specs={"hw:cpu_policy": "dedicated"})
        == "No available host has room for this flavor's memory and dedicated"
        " CPUs."
    )


_NODES = {"kvm": "kvm-1", "gpu": "gpu-1"}
_OWN = "No host but the server's own has what the server asks for."


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Nova's database have a compute node for each host."""

    def on_host(_context: Any, host: str) -> list[Any]:
        return [objects.ComputeNode(uuid=provider_uuid(_NODES[host]))]

    monkeypatch.setattr(
        objects.HostMapping,
        "get_by_host",
        lambda _context, _host: objects.HostMapping(
            cell_mapping=objects.CellMapping(uuid=_SERVER)
        ),
    )
    monkeypatch.setattr(
        "nova.context.target_cell",
        lambda context, _cell: nullcontext(context),
    )
    monkeypatch.setattr(objects.ComputeNodeList, "get_all_by_host", on_host)


@pytest.mark.usefixtures("nodes")
@pytest.mark.parametrize(
    ("excluded", "extra_specs", "read"),
    [
        (["gpu"], {"resources:VGPU": "1"}, _OWN),
        (["kvm"], {"resources:VGPU": "1"}, "scheduled"),
        (["gpu"], {}, "scheduled"),
        (
            ["kvm", "gpu"],
            {},
            "Only hosts that this move excludes have what the server asks"
            " for.",
        ),
        ([], {}, "scheduled"),
        (None, {}, "scheduled"),
        (["no-such-host"], {"resources:VGPU": "1"}, "scheduled"),
    ],
    ids=["own", "other", "two-hosts", "all-tried", "none", "null", "unknown"],
)
def test_move_for_which_only_excluded_hosts_are_left_has_that_reason(
    boot: Boot,
    excluded: list[str] | None,
    extra_specs: dict[str, str],
    read: str,
) -> None:
    schedule = boot()
    ends: list[Any] = []
    our_entry().service.observers = (lambda event: ends.append(event.error),)
    found = schedule(extra_specs=extra_specs, ignore_hosts=excluded)
    assert found == read
    stages = [each.stage for each in ends if each]
    assert stages == ([] if read == "scheduled" else ["host filters"])


_SHARES = "MISC_SHARES_VIA_AGGREGATE"


def _put_in_one_aggregate(placement: EmbeddedPlacement, *names: str) -> None:
    for name in names:
        url = f"/resource_providers/{provider_uuid(name)}/aggregates"
        generation = placement.client.request("GET", url)[
            "resource_provider_generation"
        ]
        body = {
            "aggregates": [_SERVER],
            "resource_provider_generation": generation,
        }
        placement.client.request("PUT", url, body)


@pytest.mark.usefixtures("nodes")
@pytest.mark.parametrize(
    ("storage", "traits", "excluded", "read"),
    [
        ("nfs", _SHARES, "kvm", _OWN),
        ("nfs", _SHARES, "gpu", "scheduled"),
        ("gpu-1", f"{_SHARES} COMPUTE_NODE", "gpu", "scheduled"),
    ],
    ids=["of-storage", "other-host", "of-excluded-host"],
)
def test_host_whose_disk_another_provider_shares_is_excluded_by_its_own_name(
    boot: Boot, storage: str, traits: str, excluded: str, read: str
) -> None:
    hosts = (
        provider("kvm-1", "VCPU MEMORY_MB", "COMPUTE_NODE"),
        provider(storage, "DISK_GB", traits),
    )
    with EmbeddedPlacement(Fleet(hosts)) as placement:
        _put_in_one_aggregate(placement, "kvm-1", storage)
        schedule = boot()
        session = placement.client._adapter.session
        client = report.report_client_singleton()
        client._client = Adapter(
            session, service_type="placement", raise_exc=False
        )
        assert schedule(ignore_hosts=[excluded]) == read


def test_query_that_another_package_repeats_with_less_is_novas(
    boot: Boot,
) -> None:
    """It has replaced the method after us."""
    schedule = boot()
    assert schedule() == "scheduled"
    client = report.report_client_singleton()
    query = client.get_allocation_candidates

    def repeat(context: Any, resources: Any) -> Any:
        response = query(context, resources)
        if not response[0]:
            resources.get_request_group(None).resources["MEMORY_MB"] = 4
            response = query(context, resources)
        return response

    client.get_allocation_candidates = repeat
    for _ in range(2):
        assert schedule(memory=99) == "scheduled"
    assert (
        schedule(extra_specs={"resources:DISK_GB": "99"})
        == "No available host has room for this flavor's disk."
    )


class _SealedClient:
    """A client of another package, which takes no attribute."""

    __slots__ = ("_novas",)

    def __init__(self, novas: Any) -> None:
        self._novas = novas

    def get_allocation_candidates(self, context: Any, resources: Any) -> Any:
        return self._novas.get_allocation_candidates(context, resources)

    def get(self, *given: Any, **named: Any) -> Any:
        return self._novas.get(*given, **named)


def test_client_that_cannot_be_watched_schedules(boot: Boot) -> None:
    schedule = boot()
    client: Any = report.report_client_singleton
    client.return_value = _SealedClient(client.return_value)
    assert schedule() == "scheduled"
    assert schedule(memory=99) == ""


def test_reasons_are_there_without_counting_hosts(boot: Boot) -> None:
    assert boot("count_hosts = false")(memory=99) == _SHORT


def test_refused_query_is_an_end_as_well(
    boot: Boot, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule = boot()
    ends: list[Any] = []
    our_entry().service.observers = (lambda event: ends.append(event.error),)
    monkeypatch.setattr(
        report.SchedulerReportClient,
        "get_allocation_candidates",
        lambda *_given: (None, None, None),
    )
    assert schedule() == ""
    (end,) = [each for each in ends if each]
    assert str(end) == "Placement refused the query for candidates."


_DISABLED = (
    "The compute service of each host that this request allows is disabled."
)
_NO_HPET = "Scheduling failed: No host offers hw_time_hpet=true."
# What is asked -> what the user reads, the stage, and what is recorded.
_ENDS: list[tuple[str, dict[str, Any], str, tuple[str, ...]]] = [
    ("scheduled", {}, "scheduled", ()),
    ("room", {"memory": 99}, _SHORT, ("room",)),
    (
        "trait-of-no-host",
        {"extra_specs": {"trait:HW_GPU_API_VULKAN": "required"}},
        "No host has the trait HW_GPU_API_VULKAN.",
        ("traits",),
    ),
    (
        "trait-of-a-device",
        {"extra_specs": {"trait:CUSTOM_FAST": "required"}},
        "",
        ("room",),
    ),
    (
        "unknown-trait",
        {"extra_specs": {"trait:CUSTOM_UNKNOWN": "required"}},
        "",
        ("room",),
    ),
    (
        "aggregate",
        {"requested_destination": objects.Destination(aggregates=[_SERVER])},
        "",
        ("room",),
    ),
    ("device", {"extra_specs": {"resources_gpu:VGPU": "99"}}, "", ("room",)),
    (
        "property-of-no-host",
        {"properties": {"hw_time_hpet": True}},
        _NO_HPET,
        ("traits",),
    ),
]


@pytest.mark.parametrize(
    "history", [True, False], ids=["history", "no-history"]
)
@pytest.mark.parametrize(
    ("asked", "read", "stages"),
    [each[1:] for each in _ENDS],
    ids=[each[0] for each in _ENDS],
)
def test_each_end_without_a_host_is_counted_once_and_told_the_same_with_a_history(
    boot: Boot,
    asked: dict[str, Any],
    read: str,
    stages: tuple[str, ...],
    history: bool,
) -> None:
    """Also one whose reason is not certain, which the user does not read."""
    schedule = boot(
        f"decision_history = {history}", "no_host_reason = properties"
    )
    ends: list[Any] = []
    our_entry().service.observers = (lambda event: ends.append(event.error),)
    assert schedule(**asked) == read
    assert (
        tuple(getattr(each, "stage", "traits") for each in ends if each)
        == stages
    )


def test_request_waits_for_facts_and_for_its_reason_together(
    boot: Boot, placement: EmbeddedPlacement, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here not 5 seconds but one: Placement answers Nova's own query alone,
    and what reads for ourselves hangs.
    """
    monkeypatch.setattr("os_prefilter.service.deployment_facts.PATIENCE", 1.0)
    schedule = boot()
    ends = threading.Event()
    monkeypatch.setattr(
        ReportClientAdapter, "request", lambda *_given, **_named: ends.wait(60)
    )
    left: list[float] = []
    begin = SchedulingWatch.begin

    def begin_noting(
        self: SchedulingWatch,
        spec: Any,
        context: Any,
        decision: Decision,
        patience: float,
    ) -> None:
        left.append(patience)
        begin(self, spec, context, decision, patience)

    monkeypatch.setattr(SchedulingWatch, "begin", begin_noting)
    try:
        assert schedule(memory=99) == ""
    finally:
        ends.set()
    # The facts have taken all of it.
    assert left == [0]


def test_hosts_that_are_all_disabled_are_the_reason(
    boot: Boot, placement: EmbeddedPlacement
) -> None:
    schedule = boot()
    for name in ("kvm-1", "gpu-1"):
        put_traits(
            placement,
            lambda traits: traits.add("COMPUTE_STATUS_DISABLED"),
            name,
        )
    assert schedule() == _DISABLED
    assert schedule(memory=99) == _DISABLED


@pytest.mark.parametrize(
    "hints", [{}, {"group": ["g"]}], ids=["limited", "all"]
)
def test_query_without_a_limit_is_novas_as_well(
    boot: Boot, hints: dict[str, Any]
) -> None:
    """Nova asks for all candidates where hints compare hosts."""
    assert boot()(memory=99, scheduler_hints=hints) == _SHORT


@pytest.mark.parametrize("number", [1, 2])
def test_query_for_a_host_that_is_named_is_novas_as_well(
    boot: Boot, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nova looks up its node in its database, and asks for that tree, or for
    all of them if there are several nodes.
    """
    names = ("kvm-1", "gpu-1")[:number]
    nodes = [
        objects.ComputeNode(
            uuid=provider_uuid(each), host="h", hypervisor_hostname=each
        )
        for each in names
    ]
    monkeypatch.setattr(
        "nova.scheduler.host_manager.HostManager.get_compute_nodes_by_host_or_node",
        lambda *_given, **_named: nodes,
    )
    destination = objects.Destination(host="h")
    assert boot()(memory=99, requested_destination=destination) == _SHORT
