# SPDX-License-Identifier: Apache-2.0

"""Watch a request in Nova's scheduler from its request filters to its host.

Where Placement has no candidate, Nova gives no reason and calls nothing more.
So :class:`SchedulingWatch` stands in the place of one method of Nova's client
of Placement, the query for candidates, calls it, and looks at what it
returned. Other packages may call that method too: only the query that Nova
makes of the request spec, after the last request filter, counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from time import monotonic
from types import SimpleNamespace
from typing import Any, Optional
from urllib.parse import parse_qsl
from weakref import WeakKeyDictionary, ref

import nova.conf
import os_traits
from nova import exception
from nova.scheduler import utils
from nova.scheduler.client import report

from os_prefilter.common.errors import HostsAt, NoHostLeft, NoHostServes
from os_prefilter.common.logs import get_logger
from os_prefilter.common.quoting import describe_error
from os_prefilter.nova.facts import (
    compute_nodes_of,
    source_of_live_migration,
)
from os_prefilter.pipeline.decision import Decision
from os_prefilter.request.fields import clone_of, field_of
from os_prefilter.service.answer import cpu_fits, preferred_shares
from os_prefilter.service.capacity import not_known
from os_prefilter.service.deployment_facts import ask_in_time
from os_prefilter.service.hosts_left import HOST_FILTERS, left_by_filters
from os_prefilter.service.service import Service

LOG = get_logger(__name__)

PREFERRED_SHARES: WeakKeyDictionary[Any, dict[str, float]] = (
    WeakKeyDictionary()
)
"""Request spec -> UUID of a compute node -> its share of preferred traits.

Nova hands the same object on to its weighers, and then drops it.
"""

CPU_FITS: WeakKeyDictionary[Any, dict[str, float]] = WeakKeyDictionary()
"""Request spec of a live migration -> UUID of a compute node -> its fit.

It compares the node's CPU with that of the server's present host.
"""

WEIGHER = "os_prefilter.nova.PreferredTraits"

_Response = tuple[Optional[list[Any]], Optional[dict[str, Any]], Optional[str]]
# Nova's method: allocation requests, provider summaries and a microversion, or
# None for each where Placement refused (nova/scheduler/client/report.py, 27 to
# 34).
_QUERY = "get_allocation_candidates"
_SHARES = os_traits.MISC_SHARES_VIA_AGGREGATE


class _Scheduling:
    """A request between its request filters and its host.

    One thread, or greenlet, schedules it.
    """

    def __init__(
        self,
        spec: Any,
        context: Any = None,
        decision: Decision | None = None,
        patience: float = 0.0,
    ) -> None:
        self.spec = ref(spec)
        self.context = context
        self.decision = decision
        """None for a rebuild, which has no request filters."""
        self.patience = patience
        """Seconds that the request waits for a reason.

        Its filters have left them of its 5 seconds.
        """
        self.is_filtered = False
        """True from the last request filter to Placement's last response."""
        self.found: list[str] = []
        """Queries, Nova's or not, whose candidates change nothing."""
        self.query = ""
        """Nova's first query that Placement answered, urlencoded."""
        self.requests: list[Any] = []
        self.summaries: dict[str, Any] = {}
        self.index = 0
        self.runs: Counter[tuple[int, str]] = Counter()
        self.steps: list[HostsAt] = []


# Not an attribute of the entry: all threads share it. A greenlet has its own
# value, as a thread has.
_SCHEDULING: ContextVar[_Scheduling | None] = ContextVar(
    "scheduling", default=None
)


class SchedulingWatch:
    """Watches requests, and finds why no host is left for one.

    The user reads the reason where Nova has nothing to undo.

    :param service: has the metrics and the history that record it
    """

    def __init__(self, service: Service) -> None:
        group = nova.conf.CONF.prefilter
        self.service = service
        self._counts = group.no_host_reason == "counts"
        options = nova.conf.CONF.filter_scheduler
        self._listed = Counter(options.enabled_filters)
        self._weighs_cpus = (
            WEIGHER in options.weight_classes
            and group.live_migration_cpu_weight_multiplier > 0.0
        )

    def begin(
        self, spec: Any, context: Any, decision: Decision, patience: float
    ) -> None:
        """Watch a request that passed our request filters.

        :param patience: the seconds that the request waits for a reason
        """
        _SCHEDULING.set(_Scheduling(spec, context, decision, patience))
        # For each request: Nova makes its client when it is first used.
        client = report.report_client_singleton()
        # One of another package may have slots: Nova's own words remain.
        with suppress(AttributeError, TypeError):
            present = vars(client).get(_QUERY)
            if isinstance(present, _WatchedQuery) and present.watch is self:
                return
            if hasattr(type(client), _QUERY):
                setattr(client, _QUERY, _WatchedQuery(self, client))

    def expect_query(self) -> None:
        """Note that all request filters have run: Nova's query is next."""
        now = _SCHEDULING.get()
        if now:
            now.is_filtered = True

    def answered(
        self, context: Any, resources: Any, response: _Response | None
    ) -> None:
        """Look at what Placement has returned to a query for candidates.

        :param resources: Nova's ``ResourceRequest``
        :param response: None if Placement did not respond
        :raises nova.exception.NoValidHost: in place of Nova's own, which has
            no reason
        """
        now = _SCHEDULING.get()
        # The state may be that of an earlier request in this thread.
        if now is None or not now.is_filtered or now.context is not context:
            return
        spec = now.spec()
        if spec is None or now.decision is None:
            return
        requests, summaries, _ = response or (None, None, None)
        query = resources.to_querystring()
        if requests and not self._matter(now.decision, spec):
            now.found.append(query)
            return
        novas = _novas_queries(now, spec, query)
        if _parts(query) not in novas:
            return
        if requests is not None:
            now.query = now.query or query
            now.requests += requests
            now.summaries |= summaries or {}
        if _parts(query) != novas[-1]:
            # Nova asks again, with VCPU in place of PCPU, and takes the
            # candidates of both.
            return
        now.is_filtered = False
        requests, summaries = now.requests, now.summaries
        # Megabytes that a thread would keep until its next request.
        now.requests, now.summaries = [], {}
        if not requests and any(_parts(each) in novas for each in now.found):
            return
        if now.query:
            candidates = {
                "allocation_requests": requests,
                "provider_summaries": summaries,
            }
            self.service.answered(now.decision, candidates, spec, context)
        # Shadow filters change nothing, not even what the user reads.
        if self.service.filters:
            self._use(now, spec, now.decision, requests, summaries)

    def _use(
        self,
        now: _Scheduling,
        spec: Any,
        decision: Decision,
        requests: list[Any],
        summaries: dict[str, Any],
    ) -> None:
        """Find a reason if there is no candidate, or what they have."""
        # For both readings below together.
        until = monotonic() + now.patience
        if not requests:
            _raise(self._reason(now, decision, spec))
        elif _are_excluded(now, spec, requests, summaries, until):
            _raise(self._end(now, spec, _only_excluded(spec)))
        else:
            PREFERRED_SHARES[spec] = preferred_shares(decision, summaries)
            self._compare_cpus(now, spec, summaries, until)

    def _compare_cpus(
        self,
        now: _Scheduling,
        spec: Any,
        summaries: dict[str, Any],
        until: float,
    ) -> None:
        """Compare the CPUs of hosts with the one a live migration leaves."""
        placement = self.service.placement
        # Each live migration excludes the server's host.
        is_move = field_of(spec, "ignore_hosts")
        has_choice = len(PREFERRED_SHARES[spec]) > 1
        if not (self._weighs_cpus and placement and is_move and has_choice):
            return

        def compare() -> dict[str, float]:
            source = source_of_live_migration(now.context, spec)
            if source is None:
                return {}
            summary = summaries.get(source)
            # A full host is no candidate for a second copy of its server.
            traits = (
                summary["traits"]
                if summary
                else placement.reasons.traits(source)
            )
            return cpu_fits(traits or (), summaries)

        asked, problem = ask_in_time(compare, "CPU of a server", until)
        if problem:
            LOG.warning(
                "Failed to read the CPU traits of the host that the server %s"
                " leaves (%s): no host is preferred because of its CPU.",
                spec.instance_uuid,
                problem,
            )
        else:
            CPU_FITS[spec] = asked.result()

    def _matter(self, decision: Decision, spec: Any) -> bool:
        """Return whether anything depends on which candidates there are."""
        if self.service.filters and (
            decision.preferences or field_of(spec, "ignore_hosts")
        ):
            return True
        return any(run.changes for run in decision.shadow)

    def _reason(
        self, now: _Scheduling, decision: Decision, spec: Any
    ) -> NoHostLeft:
        if now.query:
            until = monotonic() + now.patience
            return self.service.reason(
                decision, spec, now.context, query=now.query, until=until
            )
        error = not_known("Placement refused the query for candidates")
        return self._end(now, spec, error)

    def _end(
        self, now: _Scheduling, spec: Any, error: NoHostLeft
    ) -> NoHostLeft:
        """Count and record that no host is left."""
        self.service.end_without_host(error, spec, now.context)
        return error

    def count(
        self, name: str, before: int, after: int, spec: Any, index: int
    ) -> None:
        """Count the hosts before and after a host filter.

        :param index: of the server in a request for several
        :raises nova.exception.NoValidHost: if none is left, in place of Nova's
            own, which has another reason
        """
        now = _SCHEDULING.get()
        if now is None or now.spec() is not spec:
            # A rebuild, which has no request filters.
            now = _Scheduling(spec)
            _SCHEDULING.set(now)
        now.runs[index, name] += 1
        if now.runs[index, name] > self._listed[name]:
            # All servers of the request have their hosts: these are
            # alternates, of which there may be none.
            return
        if index != now.index:
            now.index, now.steps = index, []
        now.steps.append(HostsAt(name, before, after))
        if self.service.metrics:
            self.service.metrics.count_hosts(name, before, after)
        if after:
            return
        if before:
            error = left_by_filters(now.steps, counts=self._counts)
            self._end(now, spec, error)
            # For the second of several servers Nova must get a list: only then
            # it releases what it has claimed for the first one
            # (_ensure_sufficient_hosts in nova/scheduler/manager.py).
            if not index:
                _raise(error)
        elif len(now.steps) == 1:
            reason = "No candidate is a host that Nova knows and may choose"
            self._end(now, spec, NoHostLeft(reason, HOST_FILTERS, ()))


def _raise(error: NoHostLeft) -> None:
    """Have the user read the reason, if it is public."""
    if not error.is_public:
        return
    reason = str(error)
    if isinstance(error, NoHostServes):
        # In Nova's words for what a request filter rejects.
        reason = exception.RequestFilterFailed(reason=reason).message
    raise exception.NoValidHost(reason=reason)


class _WatchedQuery:
    """Stands in the place of the query for candidates of Nova's client.

    :param others: what another package had put there, if any
    """

    def __init__(self, watch: SchedulingWatch, client: Any) -> None:
        self.watch = watch
        self._client = client
        present = vars(client).get(_QUERY)
        # Of an earlier activation, none stays.
        is_ours = isinstance(present, _WatchedQuery)
        self.others: Any = present.others if is_ours else present

    def __call__(self, context: Any, resources: Any) -> _Response | None:
        query = self.others or partial(
            getattr(type(self._client), _QUERY), self._client
        )
        try:
            response: _Response | None = query(context, resources)
        except Exception:
            # The end of the request as well.
            self._look(context, resources, None)
            raise
        if vars(self._client).get(_QUERY) is not self:
            # Another package's, put there since, may ask again.
            return response
        self._look(context, resources, response)
        return response

    def _look(
        self, context: Any, resources: Any, response: _Response | None
    ) -> None:
        try:
            self.watch.answered(context, resources, response)
        except exception.NoValidHost:
            raise
        except Exception as error:  # noqa: BLE001 - the request matters, its reason does not
            LOG.warning(
                "Failed to look at Placement's response: %s",
                describe_error(error),
            )


def _novas_queries(
    now: _Scheduling, spec: Any, query: str
) -> list[list[tuple[str, str]]]:
    """Return Nova's queries for a request after its filters, in their order.

    :param query: that was seen, which names the tree of a host where the
        request names the host
    """
    tree = dict(parse_qsl(query)).get("in_tree")
    node = SimpleNamespace(uuid=tree, host="", hypervisor_hostname="")
    # Of several nodes of a host, Nova names no tree.
    nodes = [node] if tree else [node, node]
    manager = SimpleNamespace(
        get_compute_nodes_by_host_or_node=lambda *_given, **_named: nodes
    )

    def query_of(*, pins: bool) -> Any:
        # A copy: Nova writes the node into the request spec.
        return utils.resources_from_request_spec(
            now.context,
            clone_of(spec),
            manager,
            enable_pinning_translate=pins,
        )

    # Another package may ask while Nova's query is made.
    now.is_filtered = False
    try:
        queries = [query_of(pins=True)]
        options = nova.conf.CONF.workarounds
        if (
            queries[0].cpu_pinning_requested
            and not options.disable_fallback_pcpu_query
        ):
            queries.append(query_of(pins=False))
        return [_parts(each.to_querystring()) for each in queries]
    finally:
        now.is_filtered = True


def _parts(query: str) -> list[tuple[str, str]]:
    return sorted(parse_qsl(query))


def _are_excluded(
    now: _Scheduling,
    spec: Any,
    requests: Iterable[Any],
    summaries: Mapping[str, Any],
    until: float,
) -> bool:
    """Return whether each candidate is a host that a move excludes.

    Nova drops those before any host filter runs.
    """
    excluded = field_of(spec, "ignore_hosts")
    if not excluded:
        return False
    found: list[set[str]] = []
    for each in requests:
        # A provider that shares its resources is the root of its own tree; one
        # that is a compute node as well may be a host for Nova.
        roots = set()
        for uuid in each["allocations"]:
            root = summaries[uuid]["root_provider_uuid"]
            traits = summaries[root]["traits"]
            if _SHARES not in traits or os_traits.COMPUTE_NODE in traits:
                roots.add(root)
        if roots not in found:
            found.append(roots)
        # Most hosts have one node.
        if len(found) > len(excluded):
            return False
    read = partial(compute_nodes_of, now.context, excluded)
    asked, problem = ask_in_time(read, "excluded hosts", until)
    if problem:
        return False
    nodes = asked.result()
    return all(roots and roots <= nodes for roots in found)


def _only_excluded(spec: Any) -> NoHostLeft:
    reason = "No host but the server's own has what the server asks for"
    if len(spec.ignore_hosts) > 1:
        reason = (
            "Only hosts that this move excludes have what the server asks for"
        )
    return NoHostLeft(reason, HOST_FILTERS, ())
