"""Why a request has no host: the stage at which it ends, what excludes each host, and the suggested changes."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Protocol

from os_prefilter.common.errors import PlacementError, PlacementUnavailable, RequestRejected, UnknownTraits
from os_prefilter.common.quoting import pluralize
from os_prefilter.filters.nova_translation import BY_REQUEST, requirements_without_filters
from os_prefilter.fleet.matching import Host, hosts_in
from os_prefilter.fleet.model import Fleet
from os_prefilter.operators import candidates
from os_prefilter.operators.audit.audit import Progress
from os_prefilter.operators.diagnose import result
from os_prefilter.operators.diagnose.findings import Sources, describe_instead, findings
from os_prefilter.operators.diagnose.result import Account, Conflict, Diagnosis, Lack, Near
from os_prefilter.operators.diagnose.shortfall import Shortfalls, Way
from os_prefilter.pipeline.decision import Decision
from os_prefilter.pipeline.pipeline import Pipeline
from os_prefilter.pipeline.query import allocation_candidates_query, demand_of
from os_prefilter.request.demand import TRAIT, Condition, Demand
from os_prefilter.request.view import Request

NOVAS_LIMIT = 1000
"""The number of candidates that Nova requests (``[scheduler] max_placement_results``)."""

_MOST_NEAR = 5
_MOST_LOOKED_AT = 1000


class Placement(candidates.Placement, candidates.LivePlacement, Protocol):
    """The methods used of a Placement client (:class:`os_prefilter.adapters.placement.client.PlacementClient`)."""

    def traits(self) -> frozenset[str]:
        """Return all traits."""


def diagnose(  # noqa: PLR0913
    request_spec: Any,
    pipeline: Pipeline,
    fleet: Fleet,
    placement: Placement,
    *,
    live: bool,
    progress: Progress = lambda _what, _done, _of: None,
) -> Diagnosis:
    """Find the stage at which a request ends, and why.

    :param placement: decides whether the query is valid
    :param live: whether it is the one that ``fleet`` was read from. If not, it must know the fleet's traits and
        resource classes, and its candidates do not count; the ``CUSTOM_`` traits that filters require are created in
        it, as a scheduler would have done.
    :param progress: called with the current stage, how many are done, and how many there are
    """
    diagnosis = Diagnosis(result.CANDIDATES, "", taken_at=fleet.taken_at)
    try:
        request = Request(request_spec)
        from_request = requirements_without_filters(request)
        decision = pipeline.apply(request_spec)
        query = allocation_candidates_query(request_spec, limit=None)
        demand = demand_of(request_spec)
    except RequestRejected as error:
        return replace(diagnosis, stage=result.REJECTED, message=str(error), by=error.filter or BY_REQUEST)
    sources = Sources(request, from_request, decision, pipeline.filters)
    diagnosis = replace(diagnosis, query=query, notes=tuple(dict.fromkeys(str(note) for note in decision.notes)))
    known: frozenset[str] | None = None
    try:
        # Traits that filters require exist or no host has them; the embedding service creates them.
        known = placement.traits() | (frozenset() if live else fleet.traits)
        if unknown := _traits_of_the_request(demand, decision) - known:
            # Placement may return no candidates before it checks these.
            raise UnknownTraits(unknown)
        known |= {item.trait for item in decision.requirements if not (live and item.required)}
        ask = candidates.ask_live_placement if live else candidates.ask_placement
        found = bool(ask(request_spec, decision, placement, limit=1).candidates.hosts)
    except PlacementError as error:
        diagnosis = _analyse(diagnosis, demand, fleet, sources, known, progress)
        if diagnosis.candidates:
            # Placement might have returned these.
            diagnosis = replace(diagnosis, candidates=(), accounts=(), nearest=())
        stage = result.NO_ANSWER if isinstance(error, PlacementUnavailable) else result.REFUSED
        return replace(
            diagnosis, stage=stage, message=str(error), notes=(*diagnosis.notes, *_missing_group_policy(demand, query))
        )
    diagnosis = _analyse(diagnosis, demand, fleet, sources, known, progress)
    if live and found != bool(diagnosis.candidates):
        has = "has candidates" if found else "has no candidate"
        note = f"Placement {has} now: the fleet has changed since it was read. Run this again."
        diagnosis = replace(diagnosis, notes=(*diagnosis.notes, note))
    return diagnosis


def _missing_group_policy(demand: Demand, query: str) -> Iterable[str]:
    if sum(map(bool, demand.groups)) > 1 and "group_policy=" not in query:
        yield (
            "Several request groups need a policy: set the flavor extra spec group_policy to none (they may share a "
            "provider) or isolate (they must not)."
        )


def _traits_of_the_request(demand: Demand, decision: Decision) -> set[str]:
    required = {name for item in demand.conditions() if item.kind == TRAIT for name in item.names}
    return required - {item.trait for item in decision.requirements}


def _analyse(  # noqa: PLR0913, PLR0917 - the inputs of both searches
    diagnosis: Diagnosis,
    demand: Demand,
    fleet: Fleet,
    sources: Sources,
    known: frozenset[str] | None,
    progress: Progress,
) -> Diagnosis:
    """Return the diagnosis with the results for each requirement and each host."""
    hosts = hosts_in(fleet)
    demand = demand.merge_alike()
    now = Shortfalls(hosts, demand, progress=progress)
    empty = Shortfalls(hosts, demand, ignore_usage=True, progress=progress)
    numbers = {item: number for number, item in enumerate(now.conditions, 1)}
    return replace(
        diagnosis,
        stage=result.CANDIDATES if now.candidates else result.NO_CANDIDATES,
        message=_message(now, empty),
        candidates=now.candidates,
        hosts=len(hosts),
        candidates_if_empty=len(empty.candidates),
        requirements=findings(now, empty, sources, hosts, known),
        conflicts=tuple(Conflict(_numbers(each, numbers), ever=empty.is_conflict(each)) for each in now.conflicts),
        accounts=_accounts(now, numbers),
        nearest=_nearest(now, numbers, {host.name: host for host in hosts}),
        notes=(*diagnosis.notes, *_limits(fleet, now, empty)),
    )


def _message(now: Shortfalls, empty: Shortfalls) -> str:
    if now.candidates:
        return f"{len(now.candidates)} of {now.hosts} hosts meet all requirements."
    if not now.hosts:
        return "The fleet has no host."
    if count := len(empty.candidates):
        were = "they were" if count > 1 else "it were"
        return f"No host meets all requirements now; {count} of {now.hosts} would if {were} empty."
    return f"No host of {now.hosts} meets all requirements, and none would if all were empty."


def _limits(fleet: Fleet, now: Shortfalls, empty: Shortfalls) -> Iterable[str]:
    if fleet.taken_at:
        yield f"The fleet was read at {fleet.taken_at}."
    if fleet.changed_while_read:
        yield f"{fleet.changed_while_read} providers changed while the fleet was read: run this again if it matters."
    if not fleet.has_inventories:
        yield "The fleet was read without inventories: resources were not checked."
    if now.is_limited:
        yield (
            "There may be more sets, or more ways for some host, than these: the search ended after "
            f"{pluralize(now.sets, 'set')} of requirements on {pluralize(now.kinds, 'kind')} of hosts."
        )
    if given_up := now.given_up + empty.given_up:
        yield (
            f"The search for providers that serve a part of the request on one host was cut off {given_up} times; the "
            "host counts as one that does not meet that part."
        )
    if len(now.candidates) > NOVAS_LIMIT:
        yield f"Nova requests {NOVAS_LIMIT} candidates ([scheduler] max_placement_results) and sees only those."


def _accounts(now: Shortfalls, numbers: dict[Condition, int]) -> tuple[Account, ...]:
    together: dict[tuple[tuple[int, ...], ...], list[str]] = {}
    for host, ways in sorted(now.ways.items()):
        key = tuple(sorted((_numbers(way, numbers) for way in ways), key=lambda way: (len(way), way)))
        together.setdefault(key, []).append(host)
    accounts = (Account(ways, len(hosts), tuple(hosts)) for ways, hosts in together.items())
    return tuple(sorted(accounts, key=lambda each: (len(each.without[0]), -each.count, each.without)))


def _nearest(now: Shortfalls, numbers: dict[Condition, int], hosts: dict[str, Host]) -> tuple[Near, ...]:
    excluded = sorted((min(map(len, ways)), name) for name, ways in now.ways.items() if ways[0])
    alike: dict[tuple[Lack, ...], list[str]] = {}
    for _, name in excluded[:_MOST_LOOKED_AT]:
        smallest: Way = min(now.ways[name], key=len)
        way = sorted(smallest, key=lambda item: numbers[item])
        lacks = tuple(Lack(numbers[item], describe_instead(hosts[name], item)) for item in way)
        if lacks in alike or len(alike) < _MOST_NEAR:
            alike.setdefault(lacks, []).append(name)
    return tuple(Near(tuple(names), lacks) for lacks, names in alike.items())


def _numbers(way: Way, numbers: dict[Condition, int]) -> tuple[int, ...]:
    return tuple(sorted(numbers[item] for item in way))
