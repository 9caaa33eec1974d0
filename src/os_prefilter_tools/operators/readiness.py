"""Readiness of filters: which exclude no capable host when enforced, and which hosts hold the others back."""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import os_traits

from os_prefilter.common.trait_names import Trait, trait_named
from os_prefilter.hosts.desired_traits import is_foreign, is_recognized
from os_prefilter.request.filter_contract import LoadedFilter
from os_prefilter.service.report_gates import ALWAYS, REPORTS, Coverage, Gate, Unreported, gates_by_trait, gates_of
from os_prefilter.service.report_scope import EVERY_TRAIT, ReportScope, report_scope
from os_prefilter.vocabulary import BY_NAME, REPORTED, REPORTED_CUSTOM, rows_required_by
from os_prefilter.vocabulary.options import Options
from os_prefilter_tools.fleet.model import Fleet, Provider

OPEN = "open"
"""The state of a row that can be required without excluding a capable host."""
CLOSED = "closed"
"""The state of a row that some compute node has not reported, or of any row without a compute node."""


class ReadinessLine(NamedTuple):
    """The reports that one filter waits for at one row."""

    filter: str
    row: str
    """A row of the vocabulary, ``deploy-config``, or ``owner`` for the trait of the filter of that name."""
    kind: str
    """Which traits of the row: ``always`` or ``if reported``, as ``os-prefilter vocabulary list`` says "when"."""
    state: str
    """:data:`OPEN` or :data:`CLOSED`."""
    unreported: tuple[str, ...]
    """The names of the compute nodes that have not reported, sorted."""


def coverage_of(fleet: Fleet, scope: ReportScope = EVERY_TRAIT) -> Coverage:
    """Return the capability reports of a fleet, as filters that wait get them.

    :param scope: what the filters need to be reported
    """
    nodes = compute_nodes(fleet)
    unreported = {each: Unreported.of(unreported_in(nodes, scope.markers(each))) for each in REPORTS}
    in_use = fleet.traits
    return Coverage(unreported, bool(nodes), in_use, scope.traits, any(map(scope.is_of_another, in_use)))


def unreported_in(nodes: Iterable[Provider], reported_by: frozenset[Trait]) -> tuple[str, ...]:
    """Return the names of the compute nodes that have none of these traits, sorted."""
    return tuple(sorted(each.name for each in nodes if reported_by.isdisjoint(each.traits)))


def readiness(
    fleet: Fleet, filters: Iterable[LoadedFilter], options: Options, scope: ReportScope | None = None
) -> list[ReadinessLine]:
    """Return what each filter would wait for, in the order of the filters and of the vocabulary.

    What is not required, because it is not in ``reported_traits``, is not listed. Nor is what a filter requires beyond
    the vocabulary: it needs no capability reports.

    :param scope: what hosts report; by default, what these filters require
    """
    nodes = compute_nodes(fleet)
    filters = tuple(filters)
    scope = scope or report_scope(filters, options)
    lines = []
    for each in filters:
        for gate in _gates(each, options):
            unreported = unreported_in(nodes, scope.markers(gate.reported_by))
            state = OPEN if nodes and not unreported else CLOSED
            lines.append(ReadinessLine(each.name, gate.row, gate.kind, state, unreported))
    return lines


def reported_otherwise(fleet: Fleet, scope: ReportScope) -> tuple[str, ...]:
    """Return the names of the compute nodes that have reported another scope, sorted.

    They have a report marker, and none that says that all of this scope was reported.
    """
    others = (each for each in compute_nodes(fleet) if any(map(scope.is_of_another, each.traits)))
    return unreported_in(others, scope.markers(frozenset((REPORTED, REPORTED_CUSTOM))))


def simulate_ownership(fleet: Fleet, options: Options) -> Fleet:
    """Return a fleet as it is when the gate of the filter ``owner`` opens.

    Each compute node has the owner's trait then, and so has each provider below it that the owner creates, as
    ``os-prefilter capabilities report`` recognizes them; of a fleet without inventories, each that is not another's.
    """

    def own(provider: Provider, *, is_root: bool = False) -> Provider:
        recognized = is_root or not fleet.has_inventories or is_recognized(provider.resources, options)
        if is_foreign(provider.traits, options) or not (recognized or options.owner_trait in provider.traits):
            return provider
        below = tuple(map(own, provider.providers))
        return replace(provider, traits=provider.traits | {options.owner_trait}, providers=below)

    compute = os_traits.COMPUTE_NODE
    hosts = (own(host, is_root=True) if compute in host.traits else host for host in fleet.hosts)
    return replace(fleet, hosts=tuple(hosts))


def _gates(each: LoadedFilter, options: Options) -> Iterable[Gate]:
    declared = frozenset(map(trait_named, each.declaration.traits(options)))
    if each.declaration.gate:
        # Whichever way the gate opens: a compute node without the trait is excluded once the filter enforces.
        return [Gate(each.name, ALWAYS, declared, declared)] if declared else []
    of_rows = [
        gate
        # No marker says that hosts have reported the rows of other packages.
        for row in rows_required_by(each.name)
        if row.name in BY_NAME
        for gate in gates_of(row)
        if gate.kind == ALWAYS or any(map(options.reports, gate.traits))
    ]
    by_trait = gates_by_trait(options.templates) if declared else {}
    of_traits = sorted({by_trait[trait] for trait in declared if trait in by_trait})
    return dict.fromkeys((*of_rows, *of_traits))


def compute_nodes(fleet: Fleet) -> tuple[Provider, ...]:
    """Return the resource providers of a fleet that are compute nodes."""
    return tuple(each for each in fleet.walk() if os_traits.COMPUTE_NODE in each.traits)
