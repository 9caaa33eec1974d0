# SPDX-License-Identifier: Apache-2.0

"""Count the hosts that Nova's host filters leave, and say why none is left.

No choice of a host changes. Nova's map of host filters takes the later of two
classes of one name: :func:`counting` returns a subclass of each enabled one
that counts. Where Placement has no candidate, Nova gives no reason and calls
nothing more; what sees the response is an event hook of requests, on the HTTP
session of Nova's client. Other packages use that session as well: only a
response to the query that Nova makes of the request spec, after all request
filters, counts.
"""

import time
from collections import Counter
from collections.abc import Iterable
from contextvars import ContextVar
from functools import partial
from http import HTTPStatus
from inspect import isclass
from types import SimpleNamespace
from typing import Any, ClassVar
from urllib.parse import parse_qsl
from weakref import ref

import nova.conf
from nova import exception
from nova.scheduler import filters, utils
from oslo_utils import importutils

from os_prefilter.adapters.placement.client import PlacementClient
from os_prefilter.common.errors import HostsAt, NoHostLeft
from os_prefilter.common.logs import get_logger
from os_prefilter.common.quoting import describe_error
from os_prefilter.request.fields import clone_of
from os_prefilter.service.capacity import CapacityCheck, not_known
from os_prefilter.service.deployment_facts import ask_in_time
from os_prefilter.service.hosts_left import HOST_FILTERS, left_by_filters
from os_prefilter.service.request_events import RequestEvent
from os_prefilter.service.service import Service

LOG = get_logger(__name__)

OURS = "os_prefilter.nova.activate"
# A response without candidates has 55 bytes; one with a candidate has its
# resources, mappings and a provider.
_LONGEST_EMPTY = 100
# Others, as that a token has expired, may be followed by the same query.
_REFUSALS = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.NOT_FOUND,
    HTTPStatus.REQUEST_URI_TOO_LONG,
)
# Nova sends the ID of a request with its query.
_REQUEST_ID = "X-OpenStack-Request-ID"


class _Scheduling:
    """A request between its request filters and its host.

    One thread, or greenlet, schedules it.
    """

    def __init__(
        self, spec: Any, context: Any = None, patience: float = 0.0
    ) -> None:
        self.spec = ref(spec)
        self.context = context
        self.patience = patience
        """Seconds that the request may wait for a reason.

        Its filters have left them of :data:`.deployment_facts.PATIENCE`.
        """
        self.is_filtered = False
        """True once all request filters have run."""
        self.query = ""
        """Nova's first query that found no candidate, urlencoded.

        One that Placement refused does not count.
        """
        self.found: list[str] = []
        """Queries, Nova's or not, that found candidates."""
        self.index = 0
        self.runs: Counter[tuple[int, str]] = Counter()
        self.steps: list[HostsAt] = []


# Not an attribute of the filters: all threads share them. A greenlet has its
# own value, as a thread has.
_SCHEDULING: ContextVar[_Scheduling | None] = ContextVar(
    "scheduling", default=None
)
_INDEX: ContextVar[int] = ContextVar("index", default=0)


class SchedulingWatch:
    """Watches requests, and finds why no host is left for one.

    The user reads the reason where Nova has nothing to undo.

    :param service: has the metrics and the history that record it
    :param adapter: Nova's own client of Placement, as an adapter of
        keystoneauth
    """

    def __init__(self, service: Service, adapter: Any) -> None:
        group = nova.conf.CONF.prefilter
        self.service = service
        self._counts = group.no_host_reason == "counts"
        self._shows_reason = group.no_host_reason != "off"
        # The future of a query for what is short, without a response in time.
        self._late: Any = None
        self._listed = Counter(nova.conf.CONF.filter_scheduler.enabled_filters)
        # The microversion of Nova's own query for candidates
        # (nova/scheduler/client/report.py, 27 to 34).
        client = PlacementClient(adapter, microversion="1.36")

        def count_hosts(query: str) -> int:
            return len(client.candidates(query).by_host)

        def count_providers(query: str) -> int:
            return sum(1 for _ in client.each_provider(query))

        self._capacity = CapacityCheck(
            count_hosts,
            count_providers,
            lambda _query: client.traits_in_use(),
            records=bool(group.decision_history),
            counts=self._counts,
        )

    def begin(
        self, spec: Any, context: Any, session: Any, patience: float
    ) -> None:
        """Watch a request that passed its request filters.

        :param session: the ``requests.Session`` of Nova's client of Placement;
            None if it has none yet
        :param patience: the seconds that the request may still wait for a
            reason
        """
        _SCHEDULING.set(_Scheduling(spec, context, patience))
        # Nova makes another session after some errors.
        if session is None or self.see in session.hooks["response"]:
            return
        hooks = []
        for each in session.hooks["response"]:
            # Of an earlier activation, none stays.
            owner = getattr(each, "__self__", None)
            if not isinstance(owner, SchedulingWatch):
                hooks.append(each)
        session.hooks["response"] = [*hooks, self.see]

    def expect_query(self) -> None:
        """Note that all request filters have run: Nova's query is next."""
        now = _SCHEDULING.get()
        if now:
            now.is_filtered = True

    def see(self, response: Any, *_args: Any, **_options: Any) -> None:
        """Look at a response of Placement; a hook of requests.

        :raises nova.exception.NoValidHost: in place of Nova's own, which has
            no reason
        """
        now = _SCHEDULING.get()
        if now is None or not now.is_filtered:
            return
        spec = now.spec()
        if spec is None or not _leaves_no_candidate(response, now, spec):
            return
        _SCHEDULING.set(None)
        error = self._reason(now.query, time.monotonic() + now.patience)
        self._record(now, spec, error)
        if self._shows_reason and error.is_certain:
            raise exception.NoValidHost(reason=str(error))

    def _reason(self, query: str, until: float) -> NoHostLeft:
        """Return why Placement has no candidate.

        :param query: empty if Placement refused it
        """
        if not query:
            return not_known("Placement refused the query for candidates")
        if self._late and not self._late.done():
            # Or each request would leave a thread behind.
            return not_known(
                "What is short is not known: Placement has not responded to an"
                " earlier question"
            )
        # In a thread, whose own query is not looked at.
        asked, problem = ask_in_time(
            partial(self._capacity.find_short_resource, query),
            "capacity",
            until,
        )
        if problem:
            self._late = asked
            return not_known(f"What is short is not known: {problem}")
        return asked.result()

    def count(self, name: str, before: int, after: int, spec: Any) -> None:
        """Count the hosts before and after a host filter.

        :raises nova.exception.NoValidHost: if none is left, in place of Nova's
            own, which has another reason
        """
        now = _SCHEDULING.get()
        if now is None or now.spec() is not spec:
            # A rebuild, which has no request filters.
            now = _Scheduling(spec)
            _SCHEDULING.set(now)
        index = _INDEX.get()
        now.runs[index, name] += 1
        if now.runs[index, name] > self._listed[name]:
            # All servers of the request have their hosts: these are
            # alternates, of which there may be none.
            return
        if index != now.index:
            now.index, now.steps = index, []
        now.steps.append(HostsAt(name, before, after))
        if self.service.count_hosts:
            self.service.count_hosts(name, before, after)
        if after:
            return
        if before:
            error = left_by_filters(now.steps, counts=self._counts)
            self._record(now, spec, error)
            # For the second of several servers Nova must get a list: only then
            # it releases what it has claimed for the first one
            # (_ensure_sufficient_hosts in nova/scheduler/manager.py).
            if self._shows_reason and not index:
                raise exception.NoValidHost(reason=str(error))
        elif len(now.steps) == 1:
            reason = "No candidate is a host that the request names"
            self._record(now, spec, NoHostLeft(reason, HOST_FILTERS, ()))

    def _record(self, now: _Scheduling, spec: Any, error: NoHostLeft) -> None:
        LOG.info(
            "No host is left for server %s: %s %s",
            spec.instance_uuid,
            error,
            list(map(tuple, error.hosts)),
        )
        self.service.notify(
            RequestEvent(spec, now.context, None, False, error)
        )


def _leaves_no_candidate(response: Any, now: _Scheduling, spec: Any) -> bool:
    """Return whether Nova has no candidate after this response of Placement.

    The response may be to a query of another package.
    """
    _, _, query = response.url.partition("/allocation_candidates?")
    if not query:
        return False
    # The state may be that of an earlier request.
    if response.request.headers.get(_REQUEST_ID) != now.context.global_id:
        return False
    is_refused = response.status_code in _REFUSALS
    if response.status_code != HTTPStatus.OK and not is_refused:
        return False
    if len(response.content) > _LONGEST_EMPTY and not is_refused:
        now.found.append(query)
        return False
    novas = _novas_queries(spec, now.context, query)
    was_found = any(_parts(each) in novas for each in now.found)
    if was_found or _parts(query) not in novas:
        return False
    if not is_refused:
        now.query = now.query or query
    # Before the last one, Nova asks again, with VCPU in place of PCPU.
    return _parts(query) == novas[-1]


def _novas_queries(
    spec: Any, context: Any, query: str
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
            context, clone_of(spec), manager, enable_pinning_translate=pins
        )

    try:
        queries = [query_of(pins=True)]
        options = nova.conf.CONF.workarounds
        if (
            queries[0].cpu_pinning_requested
            and not options.disable_fallback_pcpu_query
        ):
            queries.append(query_of(pins=False))
        return [_parts(each.to_querystring()) for each in queries]
    except Exception as error:  # noqa: BLE001 - the request matters, its reason does not
        LOG.warning(
            "Nova's query for server %s is not known: %s",
            spec.instance_uuid,
            describe_error(error),
        )
        return []


def _parts(query: str) -> list[tuple[str, str]]:
    return sorted(parse_qsl(query))


class _Counting:
    """Mixin for a host filter class that counts hosts before and after."""

    watch: ClassVar[SchedulingWatch]

    def run_filter_for_index(self, index: int) -> Any:
        # Nova calls this before each run, and filter_all without the index
        # (nova/filters.py, 27 to 34).
        _INDEX.set(index)
        return super().run_filter_for_index(index)  # type: ignore[misc]

    def filter_all(self, hosts: Iterable[Any], spec: Any) -> Any:
        hosts = list(hosts)
        found = super().filter_all(hosts, spec)  # type: ignore[misc]
        if found is None:
            return None
        left = list(found)
        self.watch.count(type(self).__name__, len(hosts), len(left), spec)
        return left


def counting(watch: SchedulingWatch, ours: type) -> list[type]:
    """Return a class in place of each enabled host filter, also of ours.

    No function in ``available_filters`` is called: Nova has called those
    before ours, and one may do more than return classes.
    """
    options = nova.conf.CONF.filter_scheduler
    lines = [each.strip() for each in options.available_filters]
    if OURS not in lines:
        # A function of an operator's own has called it, and must not be called
        # again by it.
        LOG.warning(
            "[filter_scheduler] available_filters does not name %s: hosts are"
            " not counted.",
            OURS,
        )
        return []
    place = len(lines) - lines[::-1].index(OURS)
    if lines[place:]:
        LOG.warning(
            "[filter_scheduler] available_filters: hosts are not counted at"
            " filters of the lines after %s: make it the last one.",
            OURS,
        )
    before = [each for each in lines[:place] if each != OURS]
    found = _classes_of(before, options.enabled_filters)
    found[ours.__name__] = ours
    return [
        _counting(found[name], watch)
        for name in dict.fromkeys(options.enabled_filters)
        if name in found
    ]


def _classes_of(lines: Iterable[str], names: Iterable[str]) -> dict[str, type]:
    """Return the classes of these lines of ``available_filters`` by name.

    A class that is not certain is left out.
    """
    handler = filters.HostFilterHandler()
    found: dict[str, type] = {}
    is_whole = True
    for line in lines:
        offered = importutils.import_class(line)
        if offered is filters.all_filters:
            for each in handler.get_all_classes():
                found[each.__name__] = each
        elif isclass(offered):
            found[offered.__name__] = offered
        else:
            is_whole = False
    if is_whole:
        return found
    # What a function has returned is among all classes; of several of one
    # name, it is not known which.
    by_name: dict[str, list[type]] = {name: [] for name in names}
    for each in _classes_below(object):
        if (
            each.__name__ in by_name
            and hasattr(each, "filter_all")
            and not issubclass(each, _Counting)
        ):
            by_name[each.__name__].append(each)
    for name, classes in by_name.items():
        if len(classes) > 1:
            LOG.warning(
                "Hosts are not counted at the host filter %s: there are %d of"
                " that name.",
                name,
                len(classes),
            )
    return {
        name: classes[0]
        for name, classes in by_name.items()
        if len(classes) == 1
    }


def _classes_below(base: type) -> set[type]:
    found: set[type] = set()
    new: set[type] = {base}
    while new:
        found |= new
        below: set[type] = set()
        for each in new:
            below.update(type.__subclasses__(each))
        new = below - found
    return found


def _counting(host_filter: type, watch: SchedulingWatch) -> type:
    fields = {
        "watch": watch,
        "__module__": host_filter.__module__,
        "__doc__": host_filter.__doc__,
    }
    try:
        return type(host_filter.__name__, (_Counting, host_filter), fields)
    except Exception as error:  # noqa: BLE001 - any class of another package; it runs as it is
        LOG.warning(
            "Hosts are not counted at the host filter %s: %s",
            host_filter.__name__,
            describe_error(error),
        )
        return host_filter
