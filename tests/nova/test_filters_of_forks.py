# SPDX-License-Identifier: Apache-2.0

"""Filters written the way forks of Nova write them, beside ours: request
filters by entry point, host filters in nova.conf; and what a user reads.
"""

from __future__ import annotations

import functools
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any
from unittest import mock

import nova.conf
import oslo_messaging as messaging
import pytest
from keystoneauth1.adapter import Adapter
from nova import context as nova_context
from nova import exception, objects
from nova.compute import utils as compute_utils
from nova.objects.aggregate import AggregateList
from nova.scheduler import filters, request_filter
from nova.scheduler.client import report
from nova.scheduler.host_manager import HostState
from oslo_config import cfg
from stevedore.extension import ExtensionManager

from os_prefilter.common.errors import RequestRejected
from os_prefilter.nova.activation import activate
from os_prefilter.service.loading import NAMESPACE
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.fleet.model import Fleet, provider_uuid
from tests.support.nova_objects import boot_spec
from tests.support.nova_start import Start, our_entry, user_context
from tests.support.placements import provider
from tests.support.project import our_entry_points

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CONF = nova.conf.CONF
_SERVER = "3f0c3d8e-55a1-4c3b-9a41-6d0f5c8e7b11"
_LEASE = "8b7c1f0e-2d3a-4c5b-8e9f-a0b1c2d3e4f5"
_AGGREGATE = "7d2590ae-fb85-4080-9306-058b4c915e3f"
_NO_HOST = "No valid host was found."

CONF.register_opts(
    [cfg.BoolOpt("leases_required", default=False)], "scheduler"
)


def _traced(function: Callable[[Any, Any], bool]) -> Callable[[Any, Any], Any]:
    """Wrap a request filter, as Nova wraps its own to measure them."""

    @functools.wraps(function)
    def wrapper(context: Any, request_spec: Any) -> Any:
        return function(context, request_spec)

    return wrapper


@_traced
def leases(context: Any, request_spec: Any) -> bool:
    """Keep a server to the aggregate of the lease that a hint names."""
    named = request_spec.scheduler_hints.get("lease")
    if not named:
        if not CONF.scheduler.leases_required:
            return False
        raise exception.RequestFilterFailed(
            reason=f"Server {request_spec.instance_uuid} needs a lease: get"
            " one from the calendar of this cloud, and name it with the hint"
            " 'lease'."
        )
    for each in AggregateList.get_by_metadata(
        context, key="lease:project", value=request_spec.project_id
    ):
        if each.name in named:
            if request_spec.requested_destination is None:
                request_spec.requested_destination = objects.Destination()
            request_spec.requested_destination.require_aggregates([each.uuid])
            return True
    raise exception.RequestFilterFailed(
        reason=f"Project {request_spec.project_id} has no lease among {named}"
        f" for server {request_spec.instance_uuid}: leases end at midnight."
    )


def customers(_context: Any, request_spec: Any) -> bool:
    """Keep servers of customers' domains to hosts that are for them."""
    domain = request_spec.get_scheduler_hint("domain_name")
    if not (domain or "").startswith("customer-"):
        return False
    request_spec.root_required.add("CUSTOM_FOR_CUSTOMERS")
    return True


class LeaseEnded(exception.RequestFilterFailed):  # type: ignore[misc]
    msg_fmt = "The lease %(lease)s has ended: renew it in the calendar."


def ended(_context: Any, _request_spec: Any) -> bool:
    raise LeaseEnded(lease=_LEASE)


def full(_context: Any, _request_spec: Any) -> bool:
    raise exception.NoValidHost(reason="Every rack is leased until Monday.")


def plain(_context: Any, _request_spec: Any) -> bool:
    raise RequestRejected("Not on Sundays.")


def in_lines(_context: Any, request_spec: Any) -> bool:
    hint = request_spec.get_scheduler_hint("note")
    raise exception.RequestFilterFailed(reason=f"No {hint} für Sie.\n")


def long(_context: Any, _request_spec: Any) -> bool:
    raise exception.RequestFilterFailed(reason="x" * 300)


def broken(_context: Any, _request_spec: Any) -> bool:
    raise exception.AggregateNotFound(aggregate_id="of the racks")


_FILTERS = (leases, customers, ended, full, plain, in_lines, long, broken)


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the filters above be those of an installed package."""
    points = our_entry_points(NAMESPACE)
    for each in _FILTERS:
        target = f"{__name__}:{each.__name__}"
        points.append(EntryPoint(each.__name__, target, NAMESPACE))
    monkeypatch.setitem(ExtensionManager.ENTRY_POINT_CACHE, NAMESPACE, points)
    # Nova's filter of owners looks up the oldest service there.
    monkeypatch.setattr(
        nova_context, "scatter_gather_all_cells", lambda *_given, **_named: {}
    )


def _spec(**fields: Any) -> Any:
    project = "9f0c4e5d2b7a4b0f8a3d6c1e5f7a9b2d"
    return boot_spec(instance_uuid=_SERVER, project_id=project, **fields)


def _fault(scheduler: Any, spec: Any) -> str:
    """Return what the user reads in the fault of a server that gets no
    host.
    """
    with pytest.raises(messaging.ExpectedException) as raised:
        scheduler.select_destinations(
            user_context(), spec_obj=spec, instance_uuids=[_SERVER]
        )
    error = raised.value.exc_info[1]
    # What passes the message bus as itself.
    assert type(error) is exception.NoValidHost
    return str(compute_utils.exception_to_dict(error)["message"])


_FAULTS = [
    (
        ended,
        {},
        f"{_NO_HOST} The lease {_LEASE} has ended: renew it in the calendar.",
    ),
    (full, {}, f"{_NO_HOST} Every rack is leased until Monday."),
    (
        leases,
        {"scheduler_hints": {"lease": [_LEASE]}},
        f"{_NO_HOST} Scheduling failed: Project"
        " 9f0c4e5d2b7a4b0f8a3d6c1e5f7a9b2d has no lease among"
        f" ['{_LEASE}'] for server {_SERVER}: leases end at midnight.",
    ),
    (long, {}, f"{_NO_HOST} Scheduling failed: {'x' * 211}"),
]


@pytest.mark.parametrize("by", ["entry point", "Nova's list"])
@pytest.mark.parametrize(
    ("rejecting", "fields", "fault"),
    _FAULTS,
    ids=[each[0].__name__ for each in _FAULTS],
)
def test_fault_is_the_filters_own_text_whole_as_in_novas_own_list(
    start: Start,
    rejecting: Any,
    fields: dict[str, Any],
    fault: str,
    by: str,
) -> None:
    """Nova keeps 255 bytes of it."""
    if by == "entry point":
        scheduler = start(rejecting.__name__)
    else:
        scheduler = start("")
        request_filter.ALL_REQUEST_FILTERS.append(rejecting)
    with mock.patch.object(AggregateList, "get_by_metadata", return_value=[]):
        assert _fault(scheduler, _spec(**fields)) == fault


def test_required_hint_that_is_missing_is_the_fault(start: Start) -> None:
    scheduler = start("leases", "[scheduler]", "leases_required = true")
    assert _fault(scheduler, _spec()) == (
        f"{_NO_HOST} Scheduling failed: Server {_SERVER} needs a lease: get"
        " one from the calendar of this cloud, and name it with the hint"
        " 'lease'."
    )


def test_rejection_of_ours_is_the_fault(start: Start) -> None:
    scheduler = start("plain")
    expected = f"{_NO_HOST} Scheduling failed: Not on Sundays."
    assert _fault(scheduler, _spec()) == expected


def test_line_breaks_of_a_tenant_are_not_in_the_fault(start: Start) -> None:
    scheduler = start("in_lines")
    spec = _spec(scheduler_hints={"note": ["a\r\nb\nc"]})
    expected = f"{_NO_HOST} Scheduling failed: No a b c für Sie."
    assert _fault(scheduler, spec) == expected


def test_history_names_the_filter_that_rejected(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    scheduler = start("full", "decision_history = true")
    _fault(scheduler, _spec())
    assert (
        "The request filter 'full' rejected the request: No valid host was"
        " found. Every rack is leased until Monday." in caplog.text
    )


def test_other_errors_of_a_filter_are_for_the_operator(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    scheduler = start("broken")
    assert _fault(scheduler, _spec()) == (
        f"{_NO_HOST} Scheduling failed: a request filter of this cloud failed;"
        " its operator finds the cause in the scheduler's log"
    )
    assert "Aggregate of the racks could not be found." in caplog.text


def test_request_filters_of_forks_run_after_ours_and_change_the_request(
    start: Start,
) -> None:
    start("hpet,leases,customers")
    spec = _spec(
        properties={"hw_time_hpet": True},
        scheduler_hints={"lease": [_LEASE], "domain_name": ["customer-7"]},
    )
    found = [objects.Aggregate(uuid=_AGGREGATE, name=_LEASE)]
    context = user_context()
    with mock.patch.object(
        AggregateList, "get_by_metadata", return_value=found
    ) as get:
        our_entry()(context, spec)
    assert get.call_args[0] == (context,)
    assert spec.requested_destination.aggregates == [_AGGREGATE]
    assert spec.root_required == {
        "CUSTOM_COMPUTE_TIME_HPET",
        "CUSTOM_FOR_CUSTOMERS",
    }


class HintedTraits(filters.BaseHostFilter):  # type: ignore[misc]
    """Only hosts with the traits that hints name; asks Placement for those of
    each host.
    """

    run_filter_once_per_request = False

    def filter_all(self, hosts: Any, spec_obj: Any) -> Any:
        """Ask anew for each request."""
        self.known: dict[str, set[str]] = {}
        return super().filter_all(hosts, spec_obj)

    def host_passes(self, host_state: Any, spec_obj: Any) -> bool:
        wanted = {
            key.removeprefix("trait:")
            for key, values in (spec_obj.scheduler_hints or {}).items()
            if key.startswith("trait:CUSTOM_") and "required" in values
        }
        if not wanted:
            return True
        if host_state.uuid not in self.known:
            client = report.report_client_singleton()
            admin = nova_context.get_admin_context()
            found = client.get_provider_traits(admin, host_state.uuid)
            self.known[host_state.uuid] = found.traits
        return wanted <= self.known[host_state.uuid]


class OfCluster:
    """A mixin: the cluster of a host, by its aggregates."""

    prefix = "cluster-"

    def cluster_of(self, host_state: Any) -> set[str]:
        return {
            each.name
            for each in host_state.aggregates
            if each.name.startswith(self.prefix)
        }


class ClusterFilter(filters.BaseHostFilter, OfCluster):  # type: ignore[misc]
    """Filters all hosts at once, without ``host_passes``."""

    def filter_all(self, hosts: Any, spec_obj: Any) -> list[Any]:
        wanted = spec_obj.get_scheduler_hint("cluster")
        return [
            each
            for each in hosts
            if wanted is None or wanted in self.cluster_of(each)
        ]


class LargeServers(filters.BaseHostFilter):  # type: ignore[misc]
    """A base class, with a cache that its subclasses share."""

    RUN_ON_REBUILD = False
    _sizes: dict[str, int] = {}  # noqa: RUF012 - as forks have it

    def size_of(self, host_state: Any) -> int:
        return self._sizes.setdefault(
            host_state.host, host_state.total_usable_ram_mb
        )


class LargeServersFilter(LargeServers):
    """Large servers only on hosts of twice their size."""

    def host_passes(self, host_state: Any, spec_obj: Any) -> bool:
        return bool(2 * spec_obj.memory_mb <= self.size_of(host_state))


def of_fork() -> list[type]:
    """Return Nova's host filters, the fork's, and ours: one line for tools
    that write an option once.
    """
    return [*filters.all_filters(), *_HOST_FILTERS, *activate()]


_HOST_FILTERS = (HintedTraits, ClusterFilter, LargeServersFilter)
_LINES = {
    "a line each": (
        "nova.scheduler.filters.all_filters",
        *(f"{__name__}.{each.__name__}" for each in _HOST_FILTERS),
        "os_prefilter.nova.activate",
    ),
    "one line": (f"{__name__}.of_fork",),
}
_RACKS = {"a-1": "CUSTOM_RACK_A", "a-2": "CUSTOM_RACK_A", "b-1": ""}


@pytest.fixture
def racks() -> Iterator[EmbeddedPlacement]:
    """Return a Placement with hosts in a rack, and one in none."""
    with EmbeddedPlacement(
        Fleet(
            tuple(
                provider(
                    host, "VCPU MEMORY_MB DISK_GB", f"COMPUTE_NODE {rack}"
                )
                for host, rack in _RACKS.items()
            )
        )
    ) as placement:
        yield placement


def _let_nova_ask(placement: EmbeddedPlacement) -> None:
    session = placement.client._adapter.session
    adapter = Adapter(session, service_type="placement", raise_exc=False)
    client: Any = report.report_client_singleton
    client.return_value = report.SchedulerReportClient(adapter=adapter)


def _hosts() -> list[Any]:
    hosts = [HostState(each, each, None) for each in _RACKS]
    for each in hosts:
        each.uuid = provider_uuid(each.host)
        each.aggregates = [objects.Aggregate(name=f"cluster-{each.host[0]}")]
        each.total_usable_ram_mb = 2048 if each.host == "a-1" else 512
    return hosts


def _start_with(start: Start, lines: tuple[str, ...], *more: str) -> Any:
    names = ",".join(each.__name__ for each in _HOST_FILTERS)
    conf = [
        "[prefilter]",
        "enabled_filters = hpet",
        *more,
        "[filter_scheduler]",
        f"enabled_filters = {names}",
        *(f"available_filters = {each}" for each in lines),
    ]
    return start("", conf="\n".join(conf)).host_manager


def _left(manager: Any, spec: Any) -> list[str]:
    found = manager.get_filtered_hosts(_hosts(), spec)
    return [each.host for each in found]


def _small(**hints: list[str]) -> Any:
    spec = _spec(
        scheduler_hints=hints,
        ignore_hosts=None,
        force_hosts=None,
        force_nodes=None,
    )
    spec.flavor.memory_mb = 128
    return spec


@pytest.mark.parametrize("lines", _LINES.values(), ids=_LINES)
def test_host_filters_of_forks_choose_as_they_do_without_ours(
    start: Start, racks: EmbeddedPlacement, lines: tuple[str, ...]
) -> None:
    manager = _start_with(start, lines)
    _let_nova_ask(racks)
    large = _small()
    large.flavor.memory_mb = 1024
    assert _left(manager, _small()) == ["a-1", "a-2", "b-1"]
    assert _left(manager, _small(cluster=["cluster-b"])) == ["b-1"]
    assert _left(manager, large) == ["a-1"]
    of_rack = _small(**{"trait:CUSTOM_RACK_A": ["required"]})
    assert _left(manager, of_rack) == ["a-1", "a-2"]


def test_host_filter_of_a_fork_that_leaves_no_host_is_the_reason(
    start: Start, racks: EmbeddedPlacement
) -> None:
    lines = _LINES["a line each"]
    manager = _start_with(start, lines, "no_host_reason = counts")
    _let_nova_ask(racks)
    with pytest.raises(exception.NoValidHost) as raised:
        _left(manager, _small(cluster=["cluster-c"]))
    assert str(raised.value) == (
        f"{_NO_HOST} The host filter ClusterFilter of this cloud allows no"
        " host (ClusterFilter 0 of 3)."
    )


def test_one_line_for_all_host_filters_counts_no_hosts(
    start: Start, racks: EmbeddedPlacement, caplog: pytest.LogCaptureFixture
) -> None:
    manager = _start_with(start, _LINES["one line"])
    _let_nova_ask(racks)
    assert _left(manager, _small(cluster=["cluster-c"])) == []
    assert "hosts are not counted" in caplog.text


_HINTS: list[dict[str, list[str]]] = [
    {},
    {"trait:CUSTOM_RACK_A": ["required"]},
    {"trait:CUSTOM_RACK_B": ["required"]},
    {"trait:CUSTOM_RACK_A": ["required"], "other": ["x"]},
]


@pytest.mark.parametrize("hints", _HINTS, ids=str)
def test_hint_traits_have_the_hosts_of_a_filter_that_asks_for_each_host(
    start: Start,
    racks: EmbeddedPlacement,
    tmp_path: Path,
    hints: dict[str, list[str]],
) -> None:
    """In Placement's own response, without a request for each host."""
    lines = _LINES["a line each"]
    manager = _start_with(start, lines, "no_host_reason = off")
    _let_nova_ask(racks)
    by_filter = _left(manager, _small(**hints))
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "racks.yaml").write_text(
        "hint_traits: [CUSTOM_RACK_A, CUSTOM_RACK_B]\n"
    )
    racks.client.ensure_traits(["CUSTOM_RACK_B"])
    start("rules", f"rules_dirs = {rules}")
    spec = _small(**hints)
    our_entry()(user_context(), spec)
    required = ",".join(sorted(spec.root_required))
    query = "resources=VCPU:1"
    if required:
        query += f"&root_required={required}"
    found = racks.client.allocation_candidates(query).hosts
    assert sorted(found) == by_filter
