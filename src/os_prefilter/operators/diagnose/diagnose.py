"""Why there is no host for a request: at which stage it ends, what keeps each host out, and what would help."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import os_traits

from os_prefilter.common.quoting import pluralize
from os_prefilter.errors import PlacementError, PlacementUnavailable, RequestRejected, UnknownTraits
from os_prefilter.filters.nova_translation import BY_REQUEST, stated_requirements
from os_prefilter.fleet.matching import Host, hosts_in
from os_prefilter.fleet.model import Fleet
from os_prefilter.operators import candidates
from os_prefilter.operators.audit.audit import Progress
from os_prefilter.operators.diagnose.attribution import Attributions
from os_prefilter.operators.diagnose.remedies import has_instead, remedy
from os_prefilter.operators.diagnose.result import AGGREGATE as OTHER_AGGREGATE
from os_prefilter.operators.diagnose.result import (
    CANDIDATES,
    DISABLED,
    ELSEWHERE,
    FULL,
    MET,
    NO_ANSWER,
    NO_CANDIDATES,
    NO_HOST,
    NOWHERE,
    OWNER,
    PLACE,
    REFUSED,
    REJECTED,
    RESOURCES,
    TOO_LARGE,
    TRAITS,
    UNKNOWN,
    Account,
    Conflict,
    Diagnosis,
    Finding,
    Near,
)
from os_prefilter.operators.diagnose.shortfall import Shortfalls, Way
from os_prefilter.pipeline.decision import Decision
from os_prefilter.pipeline.pipeline import Pipeline
from os_prefilter.pipeline.query import allocation_candidates_query
from os_prefilter.request.demand import AGGREGATE, POLICY, RESOURCE, TRAIT, TREE, Condition, demand_of
from os_prefilter.request.view import Request

NOVAS_LIMIT = 1000
"""How many candidates Nova asks for (``[scheduler] max_placement_results``)."""

_MOST_NEAR = 5
_MOST_LOOKED_AT = 1000


class Placement(candidates.Placement, candidates.LivePlacement, Protocol):
    """What is needed of a Placement client (:class:`os_prefilter.adapters.placement.client.PlacementClient`)."""

    def traits(self) -> frozenset[str]:
        """Return each trait that there is."""


def diagnose(  # noqa: PLR0913
    request_spec: Any,
    pipeline: Pipeline,
    fleet: Fleet,
    placement: Placement,
    *,
    live: bool,
    progress: Progress = lambda _what, _done, _of: None,
) -> Diagnosis:
    """Say at which stage a request ends, and why.

    :param placement: says whether it takes the query
    :param live: whether it is the one that ``fleet`` was read from. If not, it must know the fleet's traits and
        resource classes, and its candidates do not count; the ``CUSTOM_`` traits that filters ask for are created in
        it, as a scheduler would have done.
    :param progress: called with what is looked at, how many are done, and all that there are
    """
    diagnosis = Diagnosis(CANDIDATES, "", taken_at=fleet.taken_at)
    try:
        request = Request(request_spec)
        stated = stated_requirements(request)
        decision = pipeline.apply(request_spec)
        query = allocation_candidates_query(request_spec, limit=None)
    except RequestRejected as error:
        return replace(diagnosis, stage=REJECTED, message=str(error), by=error.filter or BY_REQUEST)
    notes = tuple(dict.fromkeys(str(note) for note in decision.notes))
    diagnosis = replace(diagnosis, query=query, notes=notes)
    # What filters ask for exists, or nothing has it; whoever embeds them sees to that.
    known: frozenset[str] | None = None
    failure: PlacementError | None = None
    found = False
    try:
        known = placement.traits() | (frozenset() if live else fleet.traits)
        if unknown := _named_by_the_request(query, decision) - known:
            # Placement may find out before that no host is left, and say nothing of this.
            raise UnknownTraits(unknown)
        known |= {item.trait for item in decision.requirements if not (live and item.required)}
        ask = candidates.ask_live_placement if live else candidates.ask_placement
        found = bool(ask(request_spec, decision, placement, limit=1).candidates.hosts)
    except PlacementError as error:
        failure = error
    diagnosis = _analysed(diagnosis, fleet, Attributions(request, stated, decision), known, progress)
    if failure:
        stage = NO_ANSWER if isinstance(failure, PlacementUnavailable) else REFUSED
        if diagnosis.candidates:
            # They would be some, had the query been answered.
            diagnosis = replace(diagnosis, candidates=(), accounts=(), nearest=())
        return replace(diagnosis, stage=stage, message=str(failure), notes=(*diagnosis.notes, *_without_policy(query)))
    if live and found != bool(diagnosis.candidates):
        told = "has candidates" if found else "has no candidate"
        note = f"Placement {told} now: the fleet has changed since it was read. Run this again."
        return replace(diagnosis, notes=(*diagnosis.notes, note))
    return diagnosis


def _without_policy(query: str) -> Iterable[str]:
    suffixed = [suffix for suffix in demand_of(query).groups if suffix]
    if len(suffixed) > 1 and "group_policy=" not in query:
        yield (
            "Several request groups need a policy: set the flavor extra spec group_policy to none (they may share a "
            "provider) or isolate (they must not)."
        )


def _named_by_the_request(query: str, decision: Decision) -> set[str]:
    asked = {name for item in demand_of(query).conditions() if item.kind == TRAIT for name in item.names}
    return asked - {item.trait for item in decision.requirements}


def _analysed(
    diagnosis: Diagnosis,
    fleet: Fleet,
    attributions: Attributions,
    known: frozenset[str] | None,
    progress: Progress,
) -> Diagnosis:
    """Return the diagnosis with what the fleet has to say."""
    hosts = hosts_in(fleet)
    demand = demand_of(diagnosis.query).merged()
    now = Shortfalls(hosts, demand, progress=progress)
    empty = Shortfalls(hosts, demand, ignore_usage=True, progress=progress)
    numbers = {item: number for number, item in enumerate(now.conditions, 1)}
    findings = _findings(now, empty, attributions, hosts, known)
    return replace(
        diagnosis,
        stage=CANDIDATES if now.candidates else NO_CANDIDATES,
        message=_message(now, empty, len(hosts)),
        candidates=now.candidates,
        hosts=len(hosts),
        if_empty=len(empty.candidates),
        findings=findings,
        conflicts=tuple(Conflict(_numbers(each, numbers), ever=empty.is_conflict(each)) for each in now.conflicts),
        accounts=_accounts(now, numbers),
        nearest=_nearest(now, numbers, {host.name: host for host in hosts}),
        notes=(*diagnosis.notes, *_limits(fleet, now, empty)),
    )


def _message(now: Shortfalls, empty: Shortfalls, hosts: int) -> str:
    if now.candidates:
        return f"{len(now.candidates)} of {hosts} hosts meet all that is asked for."
    if not hosts:
        return "The fleet has no host."
    if empty.candidates:
        several = len(empty.candidates) != 1
        return (
            f"No host meets all that is asked for now; {len(empty.candidates)} of {hosts} would if "
            f"{'they were' if several else 'it were'} empty."
        )
    return f"No host of {hosts} meets all that is asked for, and none would if all were empty."


def _limits(fleet: Fleet, now: Shortfalls, empty: Shortfalls) -> Iterable[str]:
    if fleet.taken_at:
        yield f"The fleet is that of {fleet.taken_at}."
    if fleet.changed_while_read:
        yield f"{fleet.changed_while_read} providers changed while the fleet was read: run this again if it matters."
    if not fleet.has_inventories:
        yield "The fleet was read without inventories: resources were not looked at."
    if now.is_limited:
        yield (
            "There may be more sets, or more ways for some host, than these: the search ended after "
            f"{pluralize(now.sets, 'set')} of requirements on {pluralize(now.kinds, 'kind')} of hosts."
        )
    if given_up := now.given_up + empty.given_up:
        yield (
            f"{given_up} times, the search for providers that serve a part of the request on one host was cut; the "
            "host counts as one that does not meet that part."
        )
    if len(now.candidates) > NOVAS_LIMIT:
        yield f"Nova asks for {NOVAS_LIMIT} candidates ([scheduler] max_placement_results) and sees only those."


# -- requirements ------------------------------------------------------------------------------------------------------


def _findings(
    now: Shortfalls, empty: Shortfalls, attributions: Attributions, hosts: Sequence[Host], known: frozenset[str] | None
) -> tuple[Finding, ...]:
    owned = {item for item in now.conditions if attributions.of(item).by == "owner"}
    offered = _offered(hosts)
    found = []
    for number, item in enumerate(now.conditions, 1):
        by, because = attributions.of(item)
        state = _state(item, now, empty, offered, known)
        found.append(
            Finding(
                number=number,
                condition=item,
                by=by,
                because=because,
                state=state,
                lack=now.lacking(item),
                lack_only=now.lacking_only(item),
                if_dropped=now.if_dropped(item),
                kept_out=_kept_out(now, item, owned),
                help=""
                if state == MET
                else remedy(item, state, because, frees=empty.lacking(item) < now.lacking(item)),
            )
        )
    return tuple(found)


def _state(
    item: Condition, now: Shortfalls, empty: Shortfalls, offered: frozenset[str], known: frozenset[str] | None
) -> str:
    if item.kind == TRAIT and known is not None and not known.issuperset(item.names):
        return UNKNOWN
    if now.lacking(item) < now.hosts:
        return MET if now.candidates else ELSEWHERE
    if item.wanted and item.kind in (TRAIT, RESOURCE) and offered.isdisjoint(item.names):
        return NOWHERE
    if item.kind == RESOURCE:
        return FULL if empty.lacking(item) < empty.hosts else TOO_LARGE
    # On a host that is full now.
    return ELSEWHERE if empty.lacking(item) < empty.hosts else NO_HOST


def _offered(hosts: Sequence[Host]) -> frozenset[str]:
    """Return each trait and each resource class that some provider has."""
    providers = {each.uuid: each for host in hosts for each in (*host.own, *host.shared)}
    return frozenset().union(*(each.traits | each.resources.keys() for each in providers.values()))


def _kept_out(now: Shortfalls, item: Condition, owned: set[Condition]) -> dict[str, int]:
    """Return what keeps those hosts out that meet a requirement; a host that lacks several things counts once."""
    pluralize: Counter[str] = Counter()
    for host, ways in now.ways.items():
        if item not in now.lacks[host] and ways[0]:
            pluralize[" + ".join(sorted({_reason(each, owned) for each in min(ways, key=len)}))] += 1
    return dict(sorted(pluralize.items()))


def _reason(item: Condition, owned: set[Condition]) -> str:
    if item.kind == TRAIT:
        if item in owned:
            return OWNER
        return DISABLED if item.names == (os_traits.COMPUTE_STATUS_DISABLED,) else TRAITS
    return {RESOURCE: RESOURCES, AGGREGATE: OTHER_AGGREGATE, TREE: PLACE, POLICY: PLACE}[item.kind]


# -- hosts -------------------------------------------------------------------------------------------------------------


def _accounts(now: Shortfalls, numbers: dict[Condition, int]) -> tuple[Account, ...]:
    together: dict[tuple[tuple[int, ...], ...], list[str]] = {}
    for host, ways in sorted(now.ways.items()):
        key = tuple(sorted((_numbers(way, numbers) for way in ways), key=lambda way: (len(way), way)))
        together.setdefault(key, []).append(host)
    accounts = (Account(ways, tuple(hosts)) for ways, hosts in together.items())
    return tuple(sorted(accounts, key=lambda each: (len(each.ways[0]), -len(each.hosts), each.ways)))


def _nearest(now: Shortfalls, numbers: dict[Condition, int], hosts: dict[str, Host]) -> tuple[Near, ...]:
    out = sorted((min(map(len, ways)), name) for name, ways in now.ways.items() if ways[0])
    alike: dict[tuple[tuple[int, str], ...], list[str]] = {}
    for _, name in out[:_MOST_LOOKED_AT]:
        smallest: Way = min(now.ways[name], key=len)
        way = sorted(smallest, key=lambda item: numbers[item])
        lacks = tuple((numbers[item], has_instead(hosts[name], item)) for item in way)
        if lacks in alike or len(alike) < _MOST_NEAR:
            alike.setdefault(lacks, []).append(name)
    return tuple(Near(tuple(names), lacks) for lacks, names in alike.items())


def _numbers(way: Way, numbers: dict[Condition, int]) -> tuple[int, ...]:
    return tuple(sorted(numbers[item] for item in way))
