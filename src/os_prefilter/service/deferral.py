# SPDX-License-Identifier: Apache-2.0

"""Deferral of requirements until every compute node has reported (ADR 0001).

A missing trait has two meanings: the host cannot do it, or the host has not
reported yet. The fact ``reports`` says which, for each trait that the enabled
filters may require (:mod:`os_prefilter.hosts.marker_traits`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from functools import cache
from heapq import nsmallest
from itertools import count
from typing import TypeVar

from os_prefilter.common.dataclasses import dataclass
from os_prefilter.common.quoting import escape_line, pluralize
from os_prefilter.common.trait_names import CUSTOM_PREFIX
from os_prefilter.hosts.marker_traits import (
    REPORTED,
    TraitGroup,
    groups_by_trait,
    keys_in,
)
from os_prefilter.pipeline.filter_calls import Adjust
from os_prefilter.request.filter_contract import LoadedFilter
from os_prefilter.request.named_traits import MAY_LACK_FEATURE
from os_prefilter.request.requirements import Note, Requirement, Requirements
from os_prefilter.request.view import Request
from os_prefilter.vocabulary.filter_rows import SEVERAL_CPU_MODELS
from os_prefilter.vocabulary.options import Options

FACT = "reports"
"""The name of the fact; its value is a :class:`Reports`."""

Nodes = TypeVar("Nodes")

EXAMPLES = 3
"""Number of unreported compute nodes whose names are kept."""


@dataclass(frozen=True, slots=True)
class Unreported:
    """Compute nodes without a report."""

    number: int
    examples: tuple[str, ...] = ()
    """Names of the first few, sorted."""

    @classmethod
    def of(cls, names: Iterable[str]) -> Unreported:
        """Return the compute nodes of these names.

        Only a few names are kept: there may be 50,000.
        """
        counted = count()
        examples = nsmallest(
            EXAMPLES, (name for name, _ in zip(names, counted))
        )
        return cls(next(counted), tuple(examples))

    def __bool__(self) -> bool:
        return self.number > 0

    def __str__(self) -> str:
        among = "among them " if self.number > len(self.examples) else ""
        return (
            f"{pluralize(self.number, 'compute node')}"
            f" ({among}{escape_line(', '.join(self.examples))})"
        )


@dataclass(frozen=True)
class Reports:
    """The reports of all compute nodes at one time."""

    unreported: Mapping[str, Unreported]
    """Trait that filters may require -> the nodes without a report of it."""
    compute_nodes: bool = True
    """Whether there are any; if not, the first one may come unreported."""
    in_use: frozenset[str] = field(default=frozenset(), compare=False)
    """Each trait that any resource provider has."""

    def __repr__(self) -> str:
        if not self.compute_nodes:
            return "<no compute node>"
        traits = Counter(
            nodes for _, nodes in sorted(self.unreported.items()) if nodes
        )
        missing = [
            f"{pluralize(number, 'trait')} by {nodes}"
            for nodes, number in traits.items()
        ]
        return f"<not reported: {'; '.join(missing) or 'nothing'}>"


def read_reports(
    groups: Iterable[TraitGroup],
    in_use: frozenset[str],
    compute_nodes_without: Callable[[frozenset[str]], Nodes],
) -> dict[TraitGroup, Nodes]:
    """Return the compute nodes that have not reported each group.

    :param in_use: the traits that any provider has
    :param compute_nodes_without: returns the compute nodes that have none of
        some traits, as what is false where all have one; it is called once
        where every compute node has reported everything
    """
    markers = {
        name: keys_in(REPORTED, (name,))
        for name in in_use
        if name.startswith(REPORTED)
    }
    # Most groups have the same markers; each query takes a list of nodes.
    without = cache(compute_nodes_without)
    unreported = {}
    for group in groups:
        # A trait that no provider has need not be excluded, and Placement
        # refuses one that it does not know.
        covering = frozenset(
            name
            for name, keys in markers.items()
            if not keys.isdisjoint(group.keys)
        )
        shown = group.implied_by & in_use
        nodes = without(covering)
        unreported[group] = (
            without(covering | shown) if nodes and shown else nodes
        )
    return unreported


def deferral(
    item: Requirement,
    reports: Reports | None,
    groups: Mapping[str, TraitGroup],
) -> str:
    """Return why a requirement is deferred.

    It is empty if the requirement excludes no capable host.

    :param reports: None if they are not known yet
    :param groups: the group of each trait that a capability reporter reports
    """
    trait = item.trait
    if trait not in groups:
        # An operator's decision or a device's: no agent reports it.
        return ""
    if not item.required:
        # It excludes only hosts that have it. Placement would refuse a query
        # with a trait that was never created.
        if not trait.startswith(CUSTOM_PREFIX) or (
            reports and trait in reports.in_use
        ):
            return ""
        if reports:
            return f"{trait} need not be forbidden: no provider has it"
        return (
            f"{trait} is not forbidden yet: whether any provider has it is not"
            " known"
        )
    if reports is None:
        problem = "which compute nodes have reported is not known"
    elif trait not in reports.unreported:
        # Required by a rule alone: no filter wants it to be reported.
        return ""
    elif not reports.compute_nodes:
        problem = "there is no compute node"
    else:
        nodes = reports.unreported[trait]
        verb = "have" if nodes.number > 1 else "has"
        problem = (
            f"{nodes} {verb} not reported it; 'os-prefilter readiness' shows"
            " more"
            if nodes.number
            else ""
        )
    return f"{trait} is not required yet: {problem}" if problem else ""


def defer(
    filters: Iterable[LoadedFilter], reports: Reports | None, options: Options
) -> Adjust:
    """Return an adjustment that defers requirements.

    Requirements that exclude no capable host stay.

    A filter with its own gate waits for that, and one that is written the Nova
    way changes the request itself.

    :param reports: None if they are not known yet
    """
    names = {
        each.name
        for each in filters
        if not each.declaration.gate and not each.nova_style
    }
    groups = groups_by_trait(options.templates)
    has_one_model = (
        reports is not None
        and reports.compute_nodes
        and SEVERAL_CPU_MODELS not in reports.in_use
        and reports.unreported.get(SEVERAL_CPU_MODELS) == Unreported(0)
    )

    def without_deferred(
        each: LoadedFilter, result: Requirements, request: Request
    ) -> Requirements:
        if each.name not in names:
            return result
        kept: list[Requirement] = []
        notes = [
            note
            for note in result.notes
            if not (has_one_model and note.reason == MAY_LACK_FEATURE)
        ]
        for item in result.requirements:
            # A report is about the compute node; it says nothing of the
            # devices below.
            reason = deferral(
                item, reports, groups if request.is_of_host(item.scope) else {}
            )
            if not reason:
                kept.append(item)
            elif item.trait != SEVERAL_CPU_MODELS:
                notes.append(
                    Note(
                        item.source,
                        reason,
                        waits=item.required or reports is None,
                    )
                )
            elif not has_one_model:
                notes.append(Note(item.source, MAY_LACK_FEATURE, warn=True))
        return replace(result, requirements=tuple(kept), notes=tuple(notes))

    return without_deferred
