# SPDX-License-Identifier: Apache-2.0

"""Host filters that count: the same hosts as without, whatever class a filter
is.
"""

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from random import Random
from threading import Event
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl
from uuid import uuid4

import pytest
from nova import exception, objects
from nova.conf import CONF
from nova.scheduler import filters, request_filter
from nova.scheduler.host_manager import HostState

from os_prefilter.common.errors import HostsAt, NoHostLeft
from os_prefilter.nova import host_filters
from os_prefilter.service.hosts_left import (
    SUBJECTS,
    CapacityCheck,
    left_by_filters,
)
from os_prefilter_tools.adapters.cloud import nova_filters
from tests.conftest import spec_of, times
from tests.support.nova_objects import nova_spec
from tests.support.nova_start import Start, user_context

_ENABLED = "[prefilter]\nenabled_filters = hpet"
_SERVER = "3f0c3d8e-55a1-4c3b-9a41-6d0f5c8e7b11"


class OddFilter(filters.BaseHostFilter):  # type: ignore[misc]
    """Lets hosts with an even number pass; raises for a project."""

    def host_passes(self, host_state: Any, spec_obj: Any) -> bool:
        if spec_obj.project_id == "raises":
            raise ValueError("of the operator")
        return int(host_state.host[1:]) % 2 == 0


class PassesNothingFilter(filters.BaseHostFilter):  # type: ignore[misc]
    """Has no ``host_passes``."""


class SealedFilter(filters.BaseHostFilter):  # type: ignore[misc]
    def host_passes(self, host_state: Any, spec_obj: Any) -> bool:
        return True

    def __init_subclass__(cls) -> None:
        raise TypeError("sealed")


CALLED: list[str] = []


def of_operator() -> list[type]:
    """Register a request filter, as packages do, and return classes of host
    filters.
    """
    CALLED.append("of_operator")
    request_filter.ALL_REQUEST_FILTERS.append(of_operators_request)
    return [OddFilter, SealedFilter]


def of_operators_request(_context: Any, _spec: Any) -> bool:
    return True


def another() -> list[type]:
    """Return a host filter of Nova's name."""
    return [
        type("ComputeFilter", (OddFilter,), {"__doc__": "Of the operator."})
    ]


def _manager(start: Start, *names: str, lines: tuple[str, ...] = ()) -> Any:
    ours = [
        f"available_filters = {__name__}.{each.__name__}"
        for each in (OddFilter, PassesNothingFilter, SealedFilter)
    ]
    more = (
        *lines,
        "[filter_scheduler]",
        f"enabled_filters = {','.join(names)}",
        *ours,
    )
    return start(
        "hpet", *more, "available_filters = os_prefilter.nova.activate"
    ).host_manager


def _hosts(random: Random, number: int = 6) -> list[Any]:
    hosts = [HostState(f"h{each}", f"n{each}", None) for each in range(number)]
    for each in hosts:
        each.service = {"disabled": random.random() < 0.2, "host": each.host}
        each.supported_instances = random.choice(
            [[("x86_64", "qemu", "hvm")], [("aarch64", "kvm", "hvm")], []]
        )
        each.hypervisor_version, each.num_instances, each.num_io_ops = (
            7_000_000,
            random.randrange(4),
            0,
        )
        each.instances, each.aggregates = {}, []
    return hosts


def _spec(random: Random, hosts: list[Any]) -> Any:
    policy = random.choice([None, "affinity", "anti-affinity"])
    group = policy and objects.InstanceGroup(
        policy=policy,
        policies=[policy],
        rules={},
        members=[],
        hosts=random.sample([each.host for each in hosts], 2),
    )
    properties = random.choice(
        [{}, {"hw_architecture": "aarch64"}, {"img_hv_type": "qemu"}]
    )
    ignored = random.choice(
        [None, ["h1"], ["h0", "h1", "h2", "h3", "h4", "h5"]]
    )
    fields: dict[str, Any] = {
        "ignore_hosts": ignored,
        "force_hosts": None,
        "force_nodes": None,
        "requested_destination": None,
    }
    extra_specs = random.choice(
        [{}, {"capabilities:hypervisor_version": "s== 1"}]
    )
    spec = nova_spec(
        properties,
        extra_specs,
        instance_group=group,
        scheduler_hints={},
        project_id="p",
        **fields,
    )
    spec.instance_uuid = _SERVER
    return spec


@pytest.fixture(autouse=True)
def _services_are_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "nova.servicegroup.api.API.service_is_up",
        lambda _api, service: service["host"] != "h0",
    )


def test_hosts_and_their_order_are_as_without_counting(start: Start) -> None:
    """With no_host_reason off; in a request for several servers, and where a
    filter is written twice.
    """
    names = [
        *CONF.filter_scheduler.enabled_filters,
        "NumInstancesFilter",
        "OddFilter",
        "SealedFilter",
        "OddFilter",
    ]
    counted = _manager(start, *names, lines=("no_host_reason = off",))
    plain = _manager(start, *names, lines=("count_hosts = false",))
    assert (
        sum(
            isinstance(each, host_filters._Counting)
            for each in counted.enabled_filters
        )
        == len(names) - 1
    )
    assert not any(
        isinstance(each, host_filters._Counting)
        for each in plain.enabled_filters
    )
    random, left = Random(36), set[int]()  # noqa: S311 - no secret
    for _ in range(times(4_000)):
        hosts = _hosts(random)
        spec, index = _spec(random, hosts), random.choice([0, 0, 1])
        found = [
            list(each.get_filtered_hosts(list(hosts), spec, index))
            for each in (counted, plain)
        ]
        assert found[0] == found[1]
        left.add(len(found[0]))
    assert {0, 1, 2} <= left


def _ends(manager: Any, spec: Any, hosts: list[Any], index: int = 0) -> str:
    try:
        return (
            f"{len(list(manager.get_filtered_hosts(hosts, spec, index)))}"
            " hosts"
        )
    except Exception as error:  # noqa: BLE001 - any of a filter
        return f"{type(error).__name__}: {error}"


def test_filter_of_another_package_is_named_and_its_own_errors_stay(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    hosts = _hosts(Random(1))  # noqa: S311 - no secret
    spec = nova_spec(
        project_id="p",
        ignore_hosts=None,
        force_hosts=None,
        force_nodes=None,
        requested_destination=None,
    )
    spec.instance_uuid = _SERVER
    manager = _manager(
        start, "SealedFilter", "OddFilter", lines=("no_host_reason = counts",)
    )
    assert (
        "Hosts are not counted at the host filter SealedFilter: TypeError:"
        " sealed" in caplog.text
    )
    named = (
        "No valid host was found. The host filter OddFilter of this cloud"
        " allows no host (OddFilter 0 of 1)."
    )
    assert _ends(manager, spec, hosts[1:2]) == f"NoValidHost: {named}"
    # No host before, the second of several servers, and alternates.
    assert [_ends(manager, spec, [])] + [
        _ends(manager, spec, hosts[1:2], 1) for _ in range(2)
    ] == ["0 hosts"] * 3
    spec.project_id = "raises"
    assert _ends(manager, spec, hosts) == "ValueError: of the operator"
    assert (
        _ends(_manager(start, "PassesNothingFilter"), spec, hosts)
        == "NotImplementedError: "
    )
    caplog.clear()
    start(
        "hpet",
        "[filter_scheduler]",
        "available_filters = nova.scheduler.filters.all_filters",
    )
    assert "hosts are not counted at filters of the lines after" in caplog.text
    assert {
        each.name
        for each in caplog.records
        if "not counted" in each.getMessage()
    } == {host_filters.__name__}


def test_each_host_filter_of_nova_has_its_words() -> None:
    novas = {each.__name__ for each in filters.all_filters()}
    # The first two pass each host, or are the bases of others.
    assert novas - set(SUBJECTS) <= {
        "AllHostsFilter",
        "BaseHostFilter",
        "MetricsFilter",
        "RetryFilter",
        "AggregateFilter",
    }


_QUERY = "resources=DISK_GB%3A1%2CMEMORY_MB%3A64%2CVCPU%3A1&required=C&root_required=A%2C%21B&member_of=x&limit=1000"
_DEVICE = f"{_QUERY}&resources2=PCI%3A1&required2=D"
_ENABLED_ALONE = _QUERY.replace("%21B", "%21COMPUTE_STATUS_DISABLED")
_SHORT, _UNKNOWN = (
    "No available host has room for this flavor's {}.",
    "Hosts have room for the resources of the flavor; ",
)
_REST = f"{_UNKNOWN}the rest of the request is met by none of them."


class _Placement:
    """What it answers on a host with the traits A and C, in the aggregate x.

    :param has: how many hosts have room for memory, CPUs and disk, and for all
        of it together
    :param hosts: with the traits; and with the services that are disabled
    """

    def __init__(
        self,
        has: tuple[int, ...],
        hosts: tuple[int, int] = (2, 2),
        more: tuple[str, ...] = (),
    ) -> None:
        self._has = dict(
            zip(("MEMORY_MB", "VCPU", "DISK_GB"), has, strict=False)
        )
        self._together = has[-1]
        self._hosts = hosts
        self._in_use = frozenset(("A", "C", "D", *more))
        self.asked: list[dict[str, str]] = []

    def candidates(self, query: str) -> int:
        asked = dict(parse_qsl(query))
        self.asked.append(asked)
        first, *others = (
            each.partition(":")[0] for each in asked["resources"].split(",")
        )
        return self._together if others else self._has.get(first, 0)

    def providers(self, query: str) -> int:
        traits = dict(parse_qsl(query))["required"]
        if "!COMPUTE_NODE" in traits:
            return int("of devices" in self._in_use)
        return self._hosts["DISABLED" not in traits]

    def check(
        self, *, records: bool = False, counts: bool = False
    ) -> CapacityCheck:
        return CapacityCheck(
            self.candidates,
            self.providers,
            lambda _query: self._in_use,
            records=records,
            counts=counts,
        )


_REASONS: list[tuple[str, _Placement, str, str, bool]] = [
    (
        "memory",
        _Placement((0, 1, 1, 0)),
        _QUERY,
        _SHORT.format("memory"),
        True,
    ),
    (
        "two",
        _Placement((0, 0, 1, 0)),
        _QUERY,
        _SHORT.format("memory and CPUs"),
        True,
    ),
    (
        "all",
        _Placement((0, 0, 0, 0)),
        _QUERY,
        _SHORT.format("memory, CPUs and disk"),
        True,
    ),
    (
        "together",
        _Placement((1, 1, 1, 0)),
        _QUERY,
        _SHORT.format("memory, CPUs and disk together"),
        True,
    ),
    (
        "own-class",
        _Placement((1, 1, 1, 1)),
        "resources=VGPU%3A1",
        _SHORT.format("VGPU"),
        True,
    ),
    ("rest", _Placement((1, 1, 1, 1)), _QUERY, _REST, False),
    ("device", _Placement((1, 1, 1, 1)), _DEVICE, _REST, False),
    (
        "short-with-device",
        _Placement((1, 0, 1, 0)),
        _DEVICE,
        _SHORT.format("CPUs"),
        True,
    ),
    (
        "no-host",
        _Placement((0, 0, 0, 0), (0, 0)),
        _QUERY,
        "No host has the traits where the request wants it.",
        False,
    ),
    (
        "disabled",
        _Placement((0, 0, 0, 0), (0, 1)),
        _ENABLED_ALONE,
        (
            "The compute service of each host that this request allows is"
            " disabled."
        ),
        True,
    ),
    (
        "trait",
        _Placement((1, 1, 1, 1)),
        f"{_QUERY}&required2=E%2C%21D",
        "No host has the trait E.",
        True,
    ),
    (
        "any-trait",
        _Placement((1, 1, 1, 1)),
        f"{_QUERY}&required2=in%3AE%2CF",
        _REST,
        False,
    ),
    (
        "groups-alone",
        _Placement((1, 1, 1, 1)),
        "resources2=PCI%3A1",
        (
            "No host has what the request asks for beside the resources of its"
            " flavor."
        ),
        False,
    ),
]


@pytest.mark.parametrize(
    ("placement", "query", "text", "is_certain"),
    [each[1:] for each in _REASONS],
    ids=[each[0] for each in _REASONS],
)
def test_reason_is_told_where_it_is_certain(
    placement: _Placement, query: str, text: str, is_certain: bool
) -> None:
    """And recorded where it is not; also where numbers are recorded."""
    for records in (False, True):
        reason = placement.check(records=records).find_short_resource(query)
        assert str(reason) == text
        assert reason.is_certain is is_certain
        assert reason.stage == (
            "traits" if "trait E" in text or "disabled" in text else "room"
        )
        assert bool(reason.by) == (is_certain and "trait E" not in text)


@pytest.mark.parametrize(
    ("more", "host"),
    [
        ((), {"root_required": "COMPUTE_NODE,A,!B,C", "member_of": "x"}),
        (
            ("of devices",),
            {"root_required": "COMPUTE_NODE,A,!B", "member_of": "x"},
        ),
        (
            ("MISC_SHARES_VIA_AGGREGATE",),
            {"root_required": "COMPUTE_NODE,A,!B,C"},
        ),
    ],
    ids=["of-hosts", "trait-of-devices", "shared"],
)
def test_of_the_rest_of_a_query_only_what_each_host_must_meet_is_asked(
    more: tuple[str, ...], host: dict[str, str]
) -> None:
    placement = _Placement((1, 1, 1, 0), more=more)
    placement.check().find_short_resource(_QUERY)
    assert [
        {**each, "resources": "", "limit": ""} for each in placement.asked
    ] == [{**host, "resources": "", "limit": ""}] * 4


@pytest.mark.parametrize("counts", [True, False])
def test_numbers_of_hosts_with_room_are_told_if_they_are_to_be(
    counts: bool,
) -> None:
    error = (
        _Placement((0, 2, 0, 0), (3, 3))
        .check(records=True, counts=counts)
        .find_short_resource(_QUERY)
    )
    assert error.hosts == (
        HostsAt("MEMORY_MB", 3, 0),
        HostsAt("VCPU", 3, 2),
        HostsAt("DISK_GB", 3, 0),
    )
    assert (
        "(memory: 0 of 3 hosts, CPUs: 2 of 3 hosts, disk: 0 of 3 hosts)"
        in str(error)
    ) is counts
    other = (
        _Placement((2, 2, 2, 2), (3, 3))
        .check(records=True, counts=counts)
        .find_short_resource(_DEVICE)
    )
    assert {(each.before, each.after) for each in other.hosts} == {(3, 2)}


@pytest.mark.parametrize("more", ["of devices", "MISC_SHARES_VIA_AGGREGATE"])
def test_numbers_are_left_out_where_a_host_may_take_from_elsewhere(
    more: str,
) -> None:
    error = (
        _Placement((0, 2, 0, 0), more=(more,))
        .check(records=True, counts=True)
        .find_short_resource(_QUERY)
    )
    assert str(error) == _SHORT.format("memory and disk")
    assert error.hosts == ()


def test_room_is_asked_for_again_after_twenty_times_what_the_answer_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, asked = 0.0, []

    def ask(query: str) -> int:
        nonlocal now
        now += 2
        asked.append((now, query))
        return 0

    monkeypatch.setattr(
        "os_prefilter.service.hosts_left.time.monotonic", lambda: now
    )
    check = CapacityCheck(
        ask, ask, lambda _query: frozenset(), records=False, counts=False
    )
    for now in (0.5, 42.4, 42.5):  # noqa: B007 - the clock
        check._ask(ask, [("a", "b")])
    assert asked == [(2.5, "a=b"), (44.5, "a=b")]
    # All are forgotten before there are too many.
    monkeypatch.setattr("os_prefilter.service.hosts_left._MOST_REMEMBERED", 2)
    for name in "acda":
        check._ask(ask, [(name, "b")])
    assert [query for _, query in asked[2:]] == ["c=b", "d=b", "a=b"]


def test_number_that_does_not_fit_is_left_out_and_never_cut() -> None:
    steps = [
        HostsAt(f"FilterOfAnOperator{each}", 1_000 - each, 999 - each)
        for each in range(8)
    ]
    error = left_by_filters(
        [*steps, HostsAt("NUMATopologyFilter", 992, 0)], counts=True
    )
    assert (error.stage, error.by, len(error.hosts)) == (
        "host filters",
        ("NUMATopologyFilter",),
        9,
    )
    text = str(error)
    assert text.startswith(SUBJECTS["NUMATopologyFilter"])
    assert text.endswith(
        "FilterOfAnOperator7 992 of 993, NUMATopologyFilter 0 of 992)."
    )
    assert len(text) <= 180
    steps = [HostsAt("ComputeFilter", 9, 9), HostsAt("IoOpsFilter", 9, 0)]
    told = SUBJECTS["IoOpsFilter"]
    assert (
        str(left_by_filters(steps, counts=True))
        == f"{told} (IoOpsFilter 0 of 9)."
    )
    assert str(left_by_filters(steps, counts=False)) == f"{told}."


def _novas_query(resource: str) -> str:
    return (
        f"limit=1000&resources=DISK_GB%3A1%2CMEMORY_MB%3A512%2C{resource}%3A1"
    )


@pytest.mark.parametrize("fallback", [True, False])
def test_query_that_nova_repeats_with_vcpu_is_not_the_last(
    fallback: bool, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(
        "hpet",
        "[workarounds]",
        f"disable_fallback_pcpu_query = {not fallback}",
    )
    service = SimpleNamespace(
        notify=lambda event: told.append(event.error), count_hosts=None
    )
    told: list[Any] = []
    watch = host_filters.SchedulingWatch(service, None)  # type: ignore[arg-type]
    monkeypatch.setattr(
        watch._capacity,
        "find_short_resource",
        lambda query: NoHostLeft(f"{query} is short", "room", ("PCPU",)),
    )
    spec = nova_spec({}, {"hw:cpu_policy": "dedicated"}, instance_uuid=_SERVER)
    session, context = SimpleNamespace(hooks={"response": []}), user_context()
    watch.begin(spec, context, session, 60)
    watch.expect_query()
    assert session.hooks["response"] == [watch.see]

    def see(resource: str) -> str:
        url = (
            f"http://placement/allocation_candidates?{_novas_query(resource)}"
        )
        request = SimpleNamespace(
            headers={"X-OpenStack-Request-ID": context.global_id}
        )
        try:
            watch.see(
                SimpleNamespace(
                    url=url, status_code=200, content=b"{}", request=request
                )
            )
        except exception.NoValidHost as error:
            return str(error)
        return ""

    short = f"No valid host was found. {_novas_query('PCPU')} is short."
    assert [see("PCPU"), see("VCPU"), see("VCPU")] == (
        ["", short, ""] if fallback else [short, "", ""]
    )
    assert len(told) == 1
    # One that hangs leaves one thread, not one for each request.
    hangs, calls = Event(), count()
    monkeypatch.setattr(
        watch._capacity,
        "find_short_resource",
        lambda _query: [next(calls), hangs.wait()],
    )
    for _ in range(3):
        watch.begin(spec, context, session, 0.1)
        watch.expect_query()
        assert [see("PCPU"), see("VCPU")] == ["", ""]
    hangs.set()
    assert next(calls) == 1


@pytest.mark.parametrize(
    "line",
    ["", "available_filters = nova.scheduler.filters.all_filters"],
    ids=["alone", "novas"],
)
def test_function_in_available_filters_is_called_once_and_its_classes_count(
    start: Start, line: str
) -> None:
    CALLED.clear()
    lines = [
        "[filter_scheduler]",
        "enabled_filters = OddFilter",
        line,
        f"available_filters = {__name__}.of_operator",
    ]
    manager = start(
        "hpet",
        conf="\n".join(
            (*lines, f"available_filters = {host_filters.OURS}", _ENABLED)
        ),
    ).host_manager
    assert CALLED == ["of_operator"]
    assert request_filter.ALL_REQUEST_FILTERS.count(of_operators_request) == 1
    (filter_,) = manager.enabled_filters
    assert isinstance(filter_, host_filters._Counting)
    assert isinstance(filter_, OddFilter)
    # Also where the scheduler has begun before, in this process.
    manager = start(
        "hpet",
        conf="\n".join(
            (*lines, f"available_filters = {host_filters.OURS}", _ENABLED)
        ),
    ).host_manager
    assert isinstance(manager.enabled_filters[0], host_filters._Counting)


def test_class_of_an_operators_function_stays_in_the_place_of_novas(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """Where it is not known which class of a name Nova takes, none is
    replaced.
    """
    lines = ["[filter_scheduler]", "enabled_filters = ComputeFilter,OddFilter"]
    lines += [
        f"available_filters = {each}"
        for each in (
            "nova.scheduler.filters.all_filters",
            f"{__name__}.another",
        )
    ]
    lines += [
        f"available_filters = {__name__}.OddFilter",
        f"available_filters = {host_filters.OURS}",
    ]
    first, second = start(
        "hpet", conf="\n".join((*lines, _ENABLED))
    ).host_manager.enabled_filters
    assert type(first).__doc__ == "Of the operator."
    assert not isinstance(first, host_filters._Counting)
    assert isinstance(second, host_filters._Counting)
    assert (
        "Hosts are not counted at the host filter ComputeFilter: there are 2"
        " of that name." in caplog.text
    )


class _Nova:
    """Nova's API, as far as it shows hosts: two, of which one is in an
    aggregate and has a server.
    """

    def __init__(self, _connection: object, _kind: str) -> None:
        """Read nothing yet."""

    def get(self, _path: str, _microversion: str) -> Any:
        own = {"filter_tenant_id": "p", "size": "large"}
        return {
            "aggregates": [
                {
                    "id": 1,
                    "uuid": _SERVER,
                    "name": "a",
                    "hosts": ["h0"],
                    "metadata": own,
                }
            ]
        }

    def rows(self, *_asked: str) -> Iterator[Any]:
        for number in range(2):
            shown: dict[str, Any] = {
                "id": "x",
                "hypervisor_hostname": f"n{number}",
                "status": "enabled",
                "state": "up",
            }
            shown |= {
                "hypervisor_type": "QEMU",
                "hypervisor_version": 1,
                "host_ip": "::1",
                "running_vms": 0,
            }
            shown |= {
                "free_ram_mb": 1,
                "vcpus_used": 1,
                "servers": [{"uuid": _SERVER, "name": "s"}] * (1 - number),
            }
            yield {
                **shown,
                "service": {"host": f"h{number}", "disabled_reason": None},
            }

    def find(self, _path: str, _microversion: str) -> None:
        """Have no server group."""


_ASKED: list[tuple[str, dict[str, Any], int, tuple[str, ...]]] = [
    ("OddFilter", {"project_id": "p"}, 2, ("host",)),
    (
        "OddFilter",
        {"project_id": "raises"},
        3,
        ("ValueError: of the operator",),
    ),
    ("PassesNothingFilter", {}, 3, ("NotImplementedError: ",)),
    (
        "AggregateMultiTenancyIsolation",
        {"project_id": "q"},
        2,
        ("aggregates",),
    ),
    (
        "AggregateInstanceExtraSpecsFilter",
        {"extra_specs": {"size": "small"}},
        1,
        ("aggregates",),
    ),
    (
        "DifferentHostFilter",
        {"scheduler_hints": {"different_host": [_SERVER]}},
        2,
        ("instances",),
    ),
    (
        "ServerGroupAffinityFilter",
        {"scheduler_hints": {"group": [_SERVER]}},
        3,
        (),
    ),
    (
        "ServerGroupAffinityFilter",
        {"scheduler_hints": {"group": ["../servers"]}},
        3,
        (),
    ),
    (
        "DifferentHostFilter",
        {"scheduler_hints": {"different_host": ["\u202e"]}},
        3,
        ("instances",),
    ),
    (
        "NUMATopologyFilter",
        {"extra_specs": {"hw:numa_nodes": "1"}},
        3,
        ("ram_allocation_ratio",),
    ),
    ("PciPassthroughFilter", {}, 3, ()),
    (
        "PciPassthroughFilter",
        {"extra_specs": {"pci_passthrough:alias": "gpu:1"}},
        3,
        ("pci_stats",),
    ),
]


def test_host_filters_run_on_what_the_api_shows_and_name_what_it_does_not(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    """Of the third candidate, it shows nothing. A filter that is not installed
    here is left out.
    """
    monkeypatch.setattr(nova_filters, "CloudService", _Nova)
    request.addfinalizer(CONF.reset)
    conf = tmp_path / "nova.conf"
    lines = [
        f"available_filters = {__name__}.{each.__name__}"
        for each in (OddFilter, PassesNothingFilter)
    ]
    lines += [
        "available_filters = nova.scheduler.filters.all_filters",
        f"available_filters = {host_filters.OURS}",
    ]
    for name, asked, left, unknown in _ASKED:
        conf.write_text(
            "\n".join(
                (
                    "[filter_scheduler]",
                    f"enabled_filters = Missing,{name}",
                    *lines,
                )
            )
        )
        spec = spec_of({}, asked.get("extra_specs", {}))
        spec.project_id, spec.scheduler_hints = (
            asked.get("project_id"),
            asked.get("scheduler_hints", {}),
        )
        runs = nova_filters.run_filters(
            None, spec, str(uuid4()), ("n0", "n1", "n2"), str(conf)
        )
        assert [(each.name, each.left, each.not_known) for each in runs] == [
            (name, left, unknown)
        ], asked
