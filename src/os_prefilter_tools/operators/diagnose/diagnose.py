# SPDX-License-Identifier: Apache-2.0

"""Diagnose why a request has no host.

The stage at which it ends, what excludes each host, and suggested changes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

from os_prefilter.common.errors import (
    PlacementError,
    PlacementUnavailable,
    PrefilterError,
    RequestRejected,
    UnknownTraits,
)
from os_prefilter.common.progress import Progress, no_progress
from os_prefilter.common.quoting import join_names, pluralize
from os_prefilter.request.query import BY_REQUEST, Query, query_string
from os_prefilter.service import Service
from os_prefilter.service.hosts_left import SUBJECTS
from os_prefilter.service.known_traits import find_unknown
from os_prefilter_tools.fleet.demand import TRAIT, Condition, demand_of
from os_prefilter_tools.fleet.matching import Host, hosts_in
from os_prefilter_tools.fleet.model import Fleet
from os_prefilter_tools.fleet.server import HostFilter
from os_prefilter_tools.operators.candidates import (
    Placement,
    ask_placement,
    check_groups,
)
from os_prefilter_tools.operators.diagnose import result
from os_prefilter_tools.operators.diagnose.findings import (
    Sources,
    describe_instead,
    findings,
)
from os_prefilter_tools.operators.diagnose.result import (
    Account,
    Conflict,
    Diagnosis,
    Lack,
    Near,
)
from os_prefilter_tools.operators.diagnose.shortfall import (
    Conditions,
    Shortfalls,
)
from os_prefilter_tools.operators.refused_by_nova import (
    other_notes,
    refused_by_nova,
)

_MOST_NEAR = 5
_MOST_LOOKED_AT = 1000
_FROM_FLEET = (
    "Placement has not confirmed what is said of requirements and hosts:"
    " os-prefilter computed it from the fleet."
)


_COUNTED_TWICE = (
    "{} is requested in the unsuffixed group and in another one: Placement"
    " counts it more than once on some providers then (seen in 16.0.0), so"
    " that a claim fails, or a host is missing. {}"
)


def diagnose(  # noqa: PLR0913
    request_spec: Any,
    service: Service,
    fleet: Fleet,
    placement: Placement,
    *,
    live: bool,
    progress: Progress = no_progress,
) -> Diagnosis:
    """Find the stage at which a request ends, and why.

    :param placement: decides whether the query is valid
    :param live: whether it is the one that ``fleet`` was read from. If not, it
        must know the fleet's traits and resource classes, and its candidates
        do not count; the ``CUSTOM_`` traits that filters require are created
        in it, as a scheduler would have done.
    :param progress: called with the current stage, how many are done, and how
        many there are
    """
    refused = refused_by_nova(request_spec) if service.remark else ()
    diagnosis = Diagnosis(
        result.CANDIDATES, "", taken_at=fleet.taken_at, notes=refused
    )
    try:
        sources = Sources(request_spec, service)
    except RequestRejected as error:
        return replace(
            diagnosis,
            stage=result.REJECTED,
            message=str(error),
            by=error.filter or BY_REQUEST,
        )
    of_placement = _faults_of_placement(sources.query)
    noted = other_notes(map(str, sources.decision.notes), refused)
    notes = dict.fromkeys((*refused, *noted))
    diagnosis = replace(
        diagnosis,
        query=query_string(sources.query),
        notes=(*notes, *of_placement),
    )
    answer, unknown = _ask(sources, fleet, placement, live=live)
    diagnosis = _analyse(diagnosis, sources, fleet, unknown, progress)
    if isinstance(answer, PrefilterError):
        return _without_answer(diagnosis, answer)
    if (
        live
        and bool(answer.hosts) != bool(diagnosis.candidates)
        and not of_placement
    ):
        has = "has candidates" if answer.hosts else "has no candidate"
        note = (
            f"Placement {has} now: the fleet has changed since it was read."
            " Run this again."
        )
        diagnosis = replace(diagnosis, notes=(*diagnosis.notes, note))
    return diagnosis


def after_host_filters(
    diagnosis: Diagnosis, runs: tuple[HostFilter, ...]
) -> Diagnosis:
    """Add the results of Nova's host filters to a diagnosis."""
    diagnosis = replace(diagnosis, host_filters=runs)
    if not runs or runs[-1].left:
        return diagnosis
    last = runs[-1]
    subject = SUBJECTS.get(last.name, "A host filter allows no host")
    excluded = pluralize(len(last.excluded), "candidate")
    message = (
        f"{subject}: Nova excludes the last {excluded} of"
        f" {len(diagnosis.candidates)}."
    )
    return replace(
        diagnosis, stage=result.HOST_FILTERS, by=last.name, message=message
    )


def _faults_of_placement(query: Query) -> list[str]:
    """Return notes about faults of Placement that this query meets."""
    unsuffixed, suffixed = set[str](), set[str]()
    for suffix, group in query.groups.items():
        classes = suffixed if suffix else unsuffixed
        classes.update(group.resource_classes)
    twice = sorted(unsuffixed & suffixed)
    if not twice or query.policy == "none":
        return []
    remedy = "Set the flavor extra spec group_policy=none."
    if query.policy:
        remedy = "Request it in groups with suffixes alone."
    return [_COUNTED_TWICE.format(join_names(twice), remedy)]


def _ask(
    sources: Sources, fleet: Fleet, placement: Placement, *, live: bool
) -> tuple[Any, set[str]]:
    """Return Placement's candidate or error, and traits it does not know."""
    requirements = sources.decision.requirements
    unknown = set[str]()
    try:
        known = placement.traits() | (frozenset() if live else fleet.traits)
        if live:
            # An embedded Placement gets the traits that filters name; in a
            # cloud no host has them.
            unknown |= {
                item.trait
                for item in find_unknown(requirements, known)
                if item.required
            }
        conditions = demand_of(sources.query).conditions()
        named = {
            name
            for item in conditions
            if item.kind == TRAIT
            for name in item.names
        }
        # Before the traits, which do not matter with a misspelt key.
        check_groups(sources.query)
        if of_request := named - {item.trait for item in requirements} - known:
            unknown |= of_request
            # Placement may return no candidates before it checks them.
            raise UnknownTraits(of_request)
        found = ask_placement(
            sources.query, sources.decision, placement, 1, live=live
        )
    except (PlacementError, RequestRejected) as error:
        return error, unknown
    return found.candidates, unknown


def _without_answer(diagnosis: Diagnosis, error: PrefilterError) -> Diagnosis:
    """Return the diagnosis of a query that Placement did not serve."""
    if diagnosis.candidates:
        # Placement might have returned these.
        diagnosis = replace(diagnosis, candidates=(), accounts=(), nearest=())
    stage = result.REFUSED
    if isinstance(error, PlacementUnavailable):
        stage = result.NO_ANSWER
    return replace(
        diagnosis,
        stage=stage,
        message=str(error),
        notes=(*diagnosis.notes, _FROM_FLEET),
    )


def _analyse(
    diagnosis: Diagnosis,
    sources: Sources,
    fleet: Fleet,
    unknown: Collection[str],
    progress: Progress,
) -> Diagnosis:
    """Add the results for each requirement and each host."""
    hosts, demand = hosts_in(fleet), demand_of(sources.query).merge_equal()
    now = Shortfalls(hosts, demand, progress=progress)
    classes = fleet.resource_classes
    emptied = (host.freed(classes) for host in hosts)
    empty = Shortfalls(emptied, demand, "empty hosts", progress)
    numbers = {item: number for number, item in enumerate(now.conditions, 1)}
    conflicts = [
        Conflict(_numbers(each, numbers), ever=empty.is_conflict(each))
        for each in now.conflicts
    ]
    by_name = {host.name: host for host in hosts}
    return replace(
        diagnosis,
        stage=result.CANDIDATES if now.candidates else result.NO_CANDIDATES,
        message=_message(now, empty),
        candidates=now.candidates,
        hosts=len(hosts),
        candidates_if_empty=len(empty.candidates),
        requirements=findings(now, empty, sources, hosts, unknown),
        conflicts=tuple(conflicts),
        accounts=_accounts(now, numbers),
        nearest=_nearest(now, numbers, by_name),
        notes=(*diagnosis.notes, *_limits(fleet, now, empty)),
    )


def _message(now: Shortfalls, empty: Shortfalls) -> str:
    if now.candidates:
        return (
            f"{len(now.candidates)} of {now.hosts} hosts meet all"
            " requirements."
        )
    if not now.hosts:
        return "The fleet has no host."
    if count := len(empty.candidates):
        were = "they were" if count > 1 else "it were"
        return (
            f"No host meets all requirements now; {count} of {now.hosts} would"
            f" if {were} empty."
        )
    if now.hosts == 1:
        return (
            "The only host does not meet all requirements, even if it were"
            " empty."
        )
    return (
        f"None of the {now.hosts} hosts meets all requirements, even if all"
        " were empty."
    )


def _limits(fleet: Fleet, now: Shortfalls, empty: Shortfalls) -> Iterable[str]:
    if fleet.taken_at:
        yield f"The fleet was read at {fleet.taken_at}."
    if fleet.changed_while_read:
        yield (
            f"{fleet.changed_while_read} providers changed while the fleet was"
            " read: run this again if it matters."
        )
    if now.is_limited or now.given_up or empty.given_up:
        yield (
            "There may be more sets, or more choices of providers for some"
            " host: the search ended early. Breaking these sets may not be"
            " enough."
        )


def _accounts(
    now: Shortfalls, numbers: dict[Condition, int]
) -> tuple[Account, ...]:
    together: dict[tuple[tuple[int, ...], ...], list[str]] = {}
    for host, sets in sorted(now.to_drop.items()):
        key = sorted(
            (_numbers(each, numbers) for each in sets),
            key=lambda each: (len(each), each),
        )
        together.setdefault(tuple(key), []).append(host)
    accounts = [
        Account(without, len(hosts), tuple(hosts))
        for without, hosts in together.items()
    ]
    accounts.sort(
        key=lambda each: (len(each.without[0]), -each.count, each.without)
    )
    return tuple(accounts)


def _nearest(
    now: Shortfalls, numbers: dict[Condition, int], hosts: dict[str, Host]
) -> tuple[Near, ...]:
    excluded = sorted(
        (min(map(len, sets)), name)
        for name, sets in now.to_drop.items()
        if sets[0]
    )
    names_by_lacks: dict[tuple[Lack, ...], list[str]] = {}
    for _, name in excluded[:_MOST_LOOKED_AT]:
        smallest: Conditions = min(now.to_drop[name], key=len)
        lacks = tuple(
            Lack(numbers[item], describe_instead(hosts[name], item))
            for item in sorted(smallest, key=numbers.__getitem__)
        )
        if lacks in names_by_lacks or len(names_by_lacks) < _MOST_NEAR:
            names_by_lacks.setdefault(lacks, []).append(name)
    return tuple(
        Near(tuple(names), lacks) for lacks, names in names_by_lacks.items()
    )


def _numbers(
    conditions: Conditions, numbers: dict[Condition, int]
) -> tuple[int, ...]:
    return tuple(sorted(numbers[item] for item in conditions))
