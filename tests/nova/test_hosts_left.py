# SPDX-License-Identifier: Apache-2.0

"""Host filters that count: the same hosts as without, whatever class a filter
is.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
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
from os_prefilter.nova import host_filters, scheduling
from os_prefilter.pipeline.decision import Decision
from os_prefilter.service.capacity import CapacityCheck
from os_prefilter.service.hosts_left import SUBJECTS, left_by_filters
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


class StopsFilter(filters.BaseHostFilter):  # type: ignore[misc]
    def filter_all(self, hosts: Any, spec_obj: Any) -> None:
        """Return None, after which Nova has no host and runs no filter."""


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
        for each in (
            OddFilter,
            PassesNothingFilter,
            SealedFilter,
            StopsFilter,
        )
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
        each.hypervisor_version = 7_000_000
        each.num_instances = random.randrange(4)
        each.num_io_ops = 0
        each.instances = {}
        each.aggregates = []
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


def _counting_filters(manager: Any) -> int:
    return sum(
        isinstance(each, host_filters._Counting)
        for each in manager.enabled_filters
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
    # All but the sealed one.
    assert _counting_filters(counted) == len(names) - 1
    assert _counting_filters(plain) == 0
    random = Random(36)  # noqa: S311 - no secret
    left: set[int] = set()
    for _ in range(times(4_000)):
        hosts = _hosts(random)
        spec = _spec(random, hosts)
        index = random.choice([0, 0, 1])
        found = list(counted.get_filtered_hosts(list(hosts), spec, index))
        expected = list(plain.get_filtered_hosts(list(hosts), spec, index))
        assert found == expected
        left.add(len(found))
    assert {0, 1, 2} <= left


def _ends(manager: Any, spec: Any, hosts: list[Any], index: int = 0) -> str:
    try:
        return (
            f"{len(list(manager.get_filtered_hosts(hosts, spec, index)))}"
            " hosts"
        )
    except Exception as error:  # noqa: BLE001 - any of a filter
        return f"{type(error).__name__}: {error}"


@pytest.fixture
def spec() -> Any:
    """Return a request that Nova's host filters of this module look at."""
    spec = nova_spec(
        project_id="p",
        ignore_hosts=None,
        force_hosts=None,
        force_nodes=None,
        requested_destination=None,
    )
    spec.instance_uuid = _SERVER
    return spec


@pytest.fixture
def odd_host() -> list[Any]:
    """Return one host, which OddFilter does not allow."""
    return _hosts(Random(1))[1:2]  # noqa: S311 - no secret


_NAMED = (
    "NoValidHost: No valid host was found. The host filter OddFilter of this"
    " cloud allows no host (OddFilter 0 of 1)."
)


def test_host_filter_of_another_package_is_named(
    start: Start, spec: Any, odd_host: list[Any]
) -> None:
    manager = _manager(start, "OddFilter", lines=("no_host_reason = counts",))
    assert _ends(manager, spec, odd_host) == _NAMED


def test_host_filter_that_stops_filtering_is_named(
    start: Start, spec: Any, odd_host: list[Any]
) -> None:
    manager = _manager(start, "StopsFilter", "OddFilter")
    reason = "The host filter StopsFilter of this cloud allows no host."
    assert _ends(manager, spec, odd_host).endswith(f" {reason}")


def test_host_filter_after_one_that_is_not_counted_is_named(
    start: Start, spec: Any, odd_host: list[Any]
) -> None:
    lines = ("no_host_reason = counts",)
    manager = _manager(start, "SealedFilter", "OddFilter", lines=lines)
    assert _ends(manager, spec, odd_host) == _NAMED


def test_next_requests_after_one_without_a_host_are_filtered(
    start: Start, spec: Any, odd_host: list[Any]
) -> None:
    lines = ("no_host_reason = counts",)
    manager = _manager(start, "SealedFilter", "OddFilter", lines=lines)
    assert _ends(manager, spec, odd_host) == _NAMED
    assert _ends(manager, spec, []) == "0 hosts"
    assert _ends(manager, spec, odd_host, 1) == "0 hosts"
    # Alternates.
    assert _ends(manager, spec, odd_host, 1) == "0 hosts"
    spec.project_id = "raises"
    error = _ends(manager, spec, odd_host)
    assert error == "ValueError: of the operator"


def test_reason_is_left_out_without_hosts_and_for_a_second_server(
    start: Start, spec: Any, odd_host: list[Any]
) -> None:
    manager = _manager(start, "OddFilter", lines=("no_host_reason = counts",))
    assert _ends(manager, spec, []) == "0 hosts"
    assert _ends(manager, spec, odd_host, 1) == "0 hosts"
    # Alternates.
    assert _ends(manager, spec, odd_host, 1) == "0 hosts"


def test_errors_of_a_host_filter_stay(
    start: Start, spec: Any, odd_host: list[Any]
) -> None:
    spec.project_id = "raises"
    manager = _manager(start, "OddFilter")
    error = _ends(manager, spec, odd_host)
    assert error == "ValueError: of the operator"
    manager = _manager(start, "PassesNothingFilter")
    assert _ends(manager, spec, odd_host) == "NotImplementedError: "


def test_class_that_cannot_have_a_subclass_is_warned_of(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    _manager(start, "SealedFilter")
    assert (
        "Hosts are not counted at the host filter SealedFilter: TypeError:"
        " sealed" in caplog.text
    )


def test_line_after_ours_is_warned_of(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    start(
        "hpet",
        "[filter_scheduler]",
        "available_filters = nova.scheduler.filters.all_filters",
    )
    (record,) = [
        each for each in caplog.records if "not counted" in each.getMessage()
    ]
    assert "at filters of the lines after" in record.getMessage()
    assert record.name == host_filters.__name__


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
_SHORT = "No available host has room for this flavor's {}."
_REST = (
    "Hosts have room for the resources of the flavor; the rest of the request"
    " is met by none of them."
)


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
        self._has = dict(zip(("MEMORY_MB", "VCPU", "DISK_GB"), has))
        self._together = has[-1]
        self._hosts = hosts
        self._in_use = frozenset(("A", "C", "D", *more))
        self.asked: list[dict[str, str]] = []

    def count_candidate_hosts(self, query: str) -> int:
        asked = dict(parse_qsl(query))
        self.asked.append(asked)
        first, *others = (
            each.partition(":")[0] for each in asked["resources"].split(",")
        )
        return self._together if others else self._has.get(first, 0)

    def count_providers(self, query: str) -> int:
        traits = dict(parse_qsl(query))["required"]
        if "!COMPUTE_NODE" in traits:
            return int("of devices" in self._in_use)
        return self._hosts["DISABLED" not in traits]

    def traits_in_use(self) -> frozenset[str]:
        return self._in_use

    def check(
        self, *, records: bool = False, counts: bool = False
    ) -> CapacityCheck:
        placement: Any = self
        return CapacityCheck(placement, records=records, counts=counts)


_REASONS = [
    pytest.param(
        _Placement((0, 1, 1, 0)),
        _QUERY,
        _SHORT.format("memory"),
        True,
        id="memory",
    ),
    pytest.param(
        _Placement((0, 0, 1, 0)),
        _QUERY,
        _SHORT.format("memory and CPUs"),
        True,
        id="two",
    ),
    pytest.param(
        _Placement((0, 0, 0, 0)),
        _QUERY,
        _SHORT.format("memory, CPUs and disk"),
        True,
        id="all",
    ),
    pytest.param(
        _Placement((1, 1, 1, 0)),
        _QUERY,
        _SHORT.format("memory, CPUs and disk together"),
        True,
        id="together",
    ),
    pytest.param(
        _Placement((1, 1, 1, 1)),
        "resources=VGPU%3A1",
        _SHORT.format("VGPU"),
        True,
        id="own-class",
    ),
    pytest.param(_Placement((1, 1, 1, 1)), _QUERY, _REST, False, id="rest"),
    pytest.param(_Placement((1, 1, 1, 1)), _DEVICE, _REST, False, id="device"),
    pytest.param(
        _Placement((1, 0, 1, 0)),
        _DEVICE,
        _SHORT.format("CPUs"),
        True,
        id="short-with-device",
    ),
    pytest.param(
        _Placement((0, 0, 0, 0), (0, 0)),
        _QUERY,
        "No host has the traits where the request wants it.",
        False,
        id="no-host",
    ),
    pytest.param(
        _Placement((0, 0, 0, 0), (0, 1)),
        _ENABLED_ALONE,
        "The compute service of each host that this request allows is"
        " disabled.",
        True,
        id="disabled",
    ),
    pytest.param(
        _Placement((1, 1, 1, 1)),
        f"{_QUERY}&required2=E%2C%21D",
        "No host has the trait E.",
        True,
        id="trait",
    ),
    pytest.param(
        _Placement((1, 1, 1, 1)),
        f"{_QUERY}&required2=in%3AE%2CF",
        _REST,
        False,
        id="any-trait",
    ),
    pytest.param(
        _Placement((1, 1, 1, 1)),
        "resources2=PCI%3A1",
        "No host has what the request asks for beside the resources of its"
        " flavor.",
        False,
        id="groups-alone",
    ),
]


@pytest.mark.parametrize(("placement", "query", "text", "is_public"), _REASONS)
def test_reason_is_public_or_only_recorded(
    placement: _Placement, query: str, text: str, is_public: bool
) -> None:
    """Also where numbers are recorded."""
    is_of_traits = "trait E" in text or "disabled" in text
    has_resources = is_public and "trait E" not in text
    for records in (False, True):
        reason = placement.check(records=records).find_short_resource(query)
        assert str(reason) == text
        assert reason.is_public is is_public
        assert reason.stage == ("traits" if is_of_traits else "room")
        assert bool(reason.by) is has_resources


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
def test_numbers_of_hosts_with_room_are_shown_if_counts_are_configured(
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


def test_number_that_placement_has_cut_off_is_left_out() -> None:
    error = (
        _Placement((0, 1_000, 999, 0), (3_000, 3_000))
        .check(records=True, counts=True)
        .find_short_resource(_QUERY)
    )
    assert error.hosts == (
        HostsAt("MEMORY_MB", 3_000, 0),
        HostsAt("DISK_GB", 3_000, 999),
    )
    assert "CPUs" not in str(error)


def test_name_that_does_not_fit_is_cut_visibly() -> None:
    error = NoHostLeft(f"No host has the trait CUSTOM_{'A' * 248}", "", ())
    assert str(error).endswith("AAA...")
    assert len(str(error)) == 180


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
        "os_prefilter.service.capacity.time.monotonic", lambda: now
    )
    check = _Placement((1, 1, 1, 1)).check()
    for now in (0.5, 42.4, 42.5):  # noqa: B007 - the clock
        check.ask(ask, "a=b")
    assert asked == [(2.5, "a=b"), (44.5, "a=b")]
    # All are forgotten before there are too many.
    monkeypatch.setattr("os_prefilter.service.capacity._MOST_REMEMBERED", 2)
    for name in "acda":
        check.ask(ask, f"{name}=b")
    assert [query for _, query in asked[2:]] == ["c=b", "d=b", "a=b"]


def test_number_that_does_not_fit_is_left_out_and_never_cut() -> None:
    steps = [
        HostsAt(f"FilterOfAnOperator{each}", 1_000 - each, 999 - each)
        for each in range(8)
    ]
    error = left_by_filters(
        [*steps, HostsAt("NUMATopologyFilter", 992, 0)], counts=True
    )
    assert error.stage == "host filters"
    assert error.by == ("NUMATopologyFilter",)
    assert len(error.hosts) == 9
    text = str(error)
    assert text.startswith(SUBJECTS["NUMATopologyFilter"])
    assert text.endswith(
        "FilterOfAnOperator7 992 of 993, NUMATopologyFilter 0 of 992)."
    )
    assert len(text) <= 180


@pytest.mark.parametrize(
    ("counts", "numbers"), [(True, " (IoOpsFilter 0 of 9)"), (False, "")]
)
def test_host_filter_that_excludes_no_host_is_not_named(
    counts: bool, numbers: str
) -> None:
    steps = [HostsAt("ComputeFilter", 9, 9), HostsAt("IoOpsFilter", 9, 0)]
    error = left_by_filters(steps, counts=counts)
    assert str(error) == f"{SUBJECTS['IoOpsFilter']}{numbers}."


class _Answers:
    """A watch whose Placement has no candidate, and the reasons it gives."""

    def __init__(self, *, pins: bool) -> None:
        self.queries: list[str] = []
        self.context = user_context()
        # The watch has no other reference to it.
        policy = "dedicated" if pins else "shared"
        extra_specs = {"hw:cpu_policy": policy}
        self.spec = nova_spec({}, extra_specs, instance_uuid=_SERVER)
        service: Any = SimpleNamespace(
            reason=self._reason,
            filters=("of a test",),
            answered=lambda *_given: None,
        )
        self.watch = scheduling.SchedulingWatch(service)
        self.watch.begin(self.spec, self.context, Decision(()), 60.0)

    def _reason(self, *_given: Any, query: str, until: float) -> NoHostLeft:
        name = query.rpartition("%2C")[2].removesuffix("%3A1")
        self.queries.append(name)
        return NoHostLeft(f"{name} is short", "room", ("PCPU",))

    def read(self, resource: str, *candidates: Any) -> str:
        """Return what the user reads after Nova's query for a resource."""
        query = (
            "limit=1000&resources=DISK_GB%3A1%2CMEMORY_MB%3A512%2C"
            f"{resource}%3A1"
        )
        resources = SimpleNamespace(to_querystring=lambda: query)
        response: Any = (list(candidates), {}, "1.36")
        try:
            self.watch.answered(self.context, resources, response)
        except exception.NoValidHost as error:
            return str(error).removeprefix("No valid host was found. ")
        return ""


@pytest.mark.parametrize(
    ("fallback", "read"),
    [(True, ["", "PCPU is short.", ""]), (False, ["PCPU is short.", "", ""])],
    ids=["fallback", "no-fallback"],
)
def test_query_that_nova_repeats_with_vcpu_is_not_the_last(
    fallback: bool, read: list[str], start: Start
) -> None:
    start(
        "hpet",
        "[workarounds]",
        f"disable_fallback_pcpu_query = {not fallback}",
    )
    answers = _Answers(pins=True)
    answers.watch.expect_query()
    assert [answers.read(each) for each in ("PCPU", "VCPU", "VCPU")] == read
    assert answers.queries == ["PCPU"]


def test_candidates_of_one_of_two_queries_are_enough(start: Start) -> None:
    start("hpet")
    answers = _Answers(pins=True)
    answers.watch.expect_query()
    assert answers.read("PCPU", {"allocations": {}}) == ""
    assert answers.read("VCPU") == ""
    assert answers.queries == []


def test_response_before_the_last_request_filter_ends_no_request(
    start: Start,
) -> None:
    start("hpet")
    answers = _Answers(pins=False)
    assert answers.read("VCPU") == ""
    answers.watch.expect_query()
    # Of another request, in the same thread.
    answers.context = user_context()
    assert answers.read("VCPU") == ""
    assert answers.queries == []


def test_function_in_available_filters_is_called_once(start: Start) -> None:
    CALLED.clear()
    lines = [
        "[filter_scheduler]",
        "enabled_filters = OddFilter",
        f"available_filters = {__name__}.of_operator",
        f"available_filters = {host_filters.OURS}",
        _ENABLED,
    ]
    (filter_,) = start(
        "hpet", conf="\n".join(lines)
    ).host_manager.enabled_filters
    assert type(filter_) is OddFilter
    assert CALLED == ["of_operator"]
    assert request_filter.ALL_REQUEST_FILTERS.count(of_operators_request) == 1


def test_class_of_an_operators_function_stays_in_the_place_of_novas(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """Which classes a function has returned is not known, so none that may be
    one of them is replaced.
    """
    lines = [
        "[filter_scheduler]",
        "enabled_filters = ComputeFilter,NumInstancesFilter,OddFilter",
        "available_filters = nova.scheduler.filters.all_filters",
        f"available_filters = {__name__}.another",
        f"available_filters = {__name__}.OddFilter",
        f"available_filters = {host_filters.OURS}",
        _ENABLED,
    ]
    manager = start("hpet", conf="\n".join(lines)).host_manager
    first, second, third = manager.enabled_filters
    assert type(first).__doc__ == "Of the operator."
    assert not isinstance(first, host_filters._Counting)
    assert not isinstance(second, host_filters._Counting)
    assert isinstance(third, host_filters._Counting)
    assert (
        "[filter_scheduler] available_filters: hosts are not counted at"
        f" filters of {__name__}.another, which is a function, and of the"
        " lines before it. Name its classes, each in a line after it."
    ) in caplog.text


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


_ASKED = [
    pytest.param("OddFilter", {"project_id": "p"}, 2, ("host",), id="own"),
    pytest.param(
        "OddFilter",
        {"project_id": "raises"},
        3,
        ("ValueError: of the operator",),
        id="own-that-raises",
    ),
    pytest.param(
        "PassesNothingFilter",
        {},
        3,
        ("NotImplementedError: ",),
        id="own-without-a-method",
    ),
    pytest.param(
        "AggregateMultiTenancyIsolation",
        {"project_id": "q"},
        2,
        ("aggregates",),
        id="tenant-isolation",
    ),
    pytest.param(
        "AggregateInstanceExtraSpecsFilter",
        {"extra_specs": {"size": "small"}},
        1,
        ("aggregates",),
        id="aggregate-extra-specs",
    ),
    pytest.param(
        "DifferentHostFilter",
        {"scheduler_hints": {"different_host": [_SERVER]}},
        2,
        ("instances",),
        id="different-host",
    ),
    pytest.param(
        "ServerGroupAffinityFilter",
        {"scheduler_hints": {"group": [_SERVER]}},
        3,
        (),
        id="group",
    ),
    pytest.param(
        "ServerGroupAffinityFilter",
        {"scheduler_hints": {"group": ["../servers"]}},
        3,
        (),
        id="name-of-no-group",
    ),
    pytest.param(
        "DifferentHostFilter",
        {"scheduler_hints": {"different_host": ["\u202e"]}},
        3,
        ("instances",),
        id="unusual-hint",
    ),
    pytest.param(
        "NUMATopologyFilter",
        {"extra_specs": {"hw:numa_nodes": "1"}},
        3,
        ("ram_allocation_ratio",),
        id="numa",
    ),
    pytest.param("PciPassthroughFilter", {}, 3, (), id="no-devices"),
    pytest.param(
        "PciPassthroughFilter",
        {"extra_specs": {"pci_passthrough:alias": "gpu:1"}},
        3,
        ("pci_stats",),
        id="devices",
    ),
]


@pytest.fixture
def api_of_nova(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let commands ask :class:`_Nova`."""
    monkeypatch.setattr(nova_filters, "CloudService", _Nova)
    yield
    CONF.reset()


@pytest.mark.usefixtures("api_of_nova")
@pytest.mark.parametrize(("name", "request_has", "left", "unknown"), _ASKED)
def test_host_filter_runs_on_what_the_api_shows_and_names_what_it_does_not(
    tmp_path: Path,
    name: str,
    request_has: dict[str, Any],
    left: int,
    unknown: tuple[str, ...],
) -> None:
    """Of the third candidate, it shows nothing. A filter that is not installed
    here is left out.
    """
    lines = [
        "[filter_scheduler]",
        f"enabled_filters = Missing,{name}",
        f"available_filters = {__name__}.OddFilter",
        f"available_filters = {__name__}.PassesNothingFilter",
        "available_filters = nova.scheduler.filters.all_filters",
        f"available_filters = {host_filters.OURS}",
    ]
    conf = tmp_path / "nova.conf"
    conf.write_text("\n".join(lines))
    spec = spec_of({}, request_has.get("extra_specs", {}))
    spec.project_id = request_has.get("project_id")
    spec.scheduler_hints = request_has.get("scheduler_hints", {})
    (run,) = nova_filters.run_filters(
        None, spec, str(uuid4()), ("n0", "n1", "n2"), str(conf)
    )
    assert run.name == name
    assert run.left == left
    assert run.not_known == unknown
