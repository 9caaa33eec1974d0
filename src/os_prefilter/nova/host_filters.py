# SPDX-License-Identifier: Apache-2.0

"""What nova-scheduler does with a request after its request filters, watched:
no choice of a host changes.

Nova's map of host filters takes the later of two classes of one name:
:func:`counting` returns a subclass of each enabled one that counts. Where
Placement has no candidate, Nova gives no reason and calls nothing more; what
sees the response is an event hook of requests, on the HTTP session of Nova's
client. Other packages use that session as well: only a response to the query
that Nova makes of the request spec, after all request filters, counts.
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
from os_prefilter.service.deployment_facts import ask_in_time
from os_prefilter.service.hosts_left import (
    HOST_FILTERS,
    CapacityCheck,
    left_by_filters,
    not_known,
)
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
    """A request between its request filters and its host, in the one thread,
    or greenlet, that schedules it.
    """

    def __init__(
        self, spec: Any, context: Any = None, patience: float = 0.0
    ) -> None:
        self.of = ref(spec)
        self.context = context
        self.patience = patience
        """The seconds that the request may wait for a reason: what its filters
        have left of them.
        """
        self.is_filtered = False
        """True once all request filters have run."""
        self.query = ""
        """The first query of Nova's for candidates, urlencoded, that Placement
        answered with none; not one refused.
        """
        self.found: list[str] = []
        """Queries for candidates, Nova's or not, that Placement answered with
        some.
        """
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
    """Tells why no host is left, and lets the user read it where nothing has
    to be undone.

    :param service: has the metrics and the history that record it
    :param adapter: Nova's own client of Placement, as an adapter of
        keystoneauth
    """

    def __init__(self, service: Service, adapter: Any) -> None:
        group = nova.conf.CONF.prefilter
        self.service = service
        self._counts = group.no_host_reason == "counts"
        self._is_told = group.no_host_reason != "off"
        # The future of a query for capacity that Placement did not answer in
        # time.
        self._late: Any = None
        self._listed = Counter(nova.conf.CONF.filter_scheduler.enabled_filters)
        # That of Nova's own query for candidates.
        client = PlacementClient(adapter, microversion="1.36")
        self._capacity = CapacityCheck(
            lambda query: len(client.candidates(query).by_host),
            lambda query: sum(1 for _ in client.each_provider(query)),
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
        if session is not None and self.see not in session.hooks["response"]:
            # Nova makes another one after some errors; of an earlier
            # activation, none stays.
            hooks = session.hooks["response"]
            others = [
                each
                for each in hooks
                if not isinstance(
                    getattr(each, "__self__", None), SchedulingWatch
                )
            ]
            session.hooks["response"] = [*others, self.see]

    def expect_query(self) -> None:
        """Nova asks Placement next: all request filters have run."""
        now = _SCHEDULING.get()
        if now:
            now.is_filtered = True

    def see(self, response: Any, *_args: Any, **_options: Any) -> None:
        """Look at a response of Placement; a hook of requests.

        :raises nova.exception.NoValidHost: in place of Nova's own, which has
            no reason
        """
        now = _SCHEDULING.get()
        spec = now.of() if now else None
        if (
            now is None
            or spec is None
            or not now.is_filtered
            or not _leaves_no_candidate(response, now, spec)
        ):
            return
        _SCHEDULING.set(None)
        error = self._reason(now.query, time.monotonic() + now.patience)
        self._tell(now, spec, error)
        if self._is_told and error.is_certain:
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
        if now is None or now.of() is not spec:
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
        if not after and len(now.steps) == 1 and not before:
            self._tell(
                now,
                spec,
                NoHostLeft(
                    "No candidate is a host that the request names",
                    HOST_FILTERS,
                    (),
                ),
            )
        elif not after and before:
            error = left_by_filters(now.steps, counts=self._counts)
            self._tell(now, spec, error)
            # The second of several servers: Nova releases what it has claimed
            # for the first one only if it gets a list.
            if self._is_told and not index:
                raise exception.NoValidHost(reason=str(error))

    def _tell(self, now: _Scheduling, spec: Any, error: NoHostLeft) -> None:
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
    """Return whether Nova has no candidate after this response of Placement,
    to a query of its own or not.
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
    if _parts(query) not in novas or any(
        _parts(each) in novas for each in now.found
    ):
        return False
    if not is_refused:
        now.query = now.query or query
    # Before the last one, Nova asks again, with VCPU in place of PCPU.
    return _parts(query) == novas[-1]


def _novas_queries(
    spec: Any, context: Any, query: str
) -> list[list[tuple[str, str]]]:
    """Return Nova's queries for candidates, in their order, as it makes them
    of a request spec after its filters.

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
        asked = [query_of(pins=True)]
        if (
            asked[0].cpu_pinning_requested
            and not nova.conf.CONF.workarounds.disable_fallback_pcpu_query
        ):
            asked.append(query_of(pins=False))
        return [_parts(each.to_querystring()) for each in asked]
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
    """Before a class of host filters: counts what it leaves, and changes
    nothing else.
    """

    watch: ClassVar[SchedulingWatch]

    def run_filter_for_index(self, index: int) -> Any:
        # Nova asks this before each run, and tells the filter itself no index.
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
    """Return a class in place of each enabled host filter, also for that of
    this library.

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
    found = _classes_of(
        [each for each in lines[:place] if each != OURS],
        options.enabled_filters,
    )
    found[ours.__name__] = ours
    return [
        _counting(found[name], watch)
        for name in dict.fromkeys(options.enabled_filters)
        if name in found
    ]


def _classes_of(lines: Iterable[str], names: Iterable[str]) -> dict[str, type]:
    """Return the classes that these lines of ``available_filters`` offer for
    names, as far as that is certain.
    """
    handler = filters.HostFilterHandler()
    found: dict[str, type] = {}
    is_whole = True
    for line in lines:
        offered = importutils.import_class(line)
        if offered is filters.all_filters:
            found.update(
                (each.__name__, each) for each in handler.get_all_classes()
            )
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


def _classes_below(of: type) -> set[type]:
    found: set[type] = set()
    new: set[type] = {of}
    while new:
        found |= new
        below: set[type] = set()
        for each in new:
            below.update(type.__subclasses__(each))
        new = below - found
    return found


def _counting(of: type, watch: SchedulingWatch) -> type:
    try:
        return type(
            of.__name__,
            (_Counting, of),
            {
                "watch": watch,
                "__module__": of.__module__,
                "__doc__": of.__doc__,
            },
        )
    except Exception as error:  # noqa: BLE001 - any class of another package; it runs as it is
        LOG.warning(
            "Hosts are not counted at the host filter %s: %s",
            of.__name__,
            describe_error(error),
        )
        return of
