"""Which filters may be enforced without excluding a host that can, and which hosts hold the others back."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

import os_traits

from os_prefilter.conf.options import Options, effective_templates
from os_prefilter.fleet.model import Fleet, Provider
from os_prefilter.hosts.desired_traits import is_foreign, is_recognized
from os_prefilter.pipeline.report_gates import ALWAYS, GATES, Coverage, Gate, Silent, gates_by_trait, gates_of
from os_prefilter.vocabulary import BY_NAME, REPORTED, rows_asked_by
from os_prefilter.vocabulary.model import Trait, trait_named

OPEN = "open"
"""The state of what can be asked for without excluding a host that can."""
CLOSED = "closed"
"""The state of what some compute node says nothing about, or where there is no compute node."""

_ASKS_WITHOUT_OPTION = frozenset(("hpet",))


class Line(NamedTuple):
    """What one filter waits for at one row."""

    filter: str
    row: str
    """Of the vocabulary, ``deploy-config``, or ``owner`` for the trait of the filter of that name."""
    kind: str
    """Which traits of the row: ``always`` or ``if reported``, as ``os-prefilter vocabulary list`` says "when"."""
    state: str
    """:data:`OPEN` or :data:`CLOSED`."""
    silent: tuple[str, ...]
    """The names of the compute nodes that do not answer, sorted."""


def coverage_of(fleet: Fleet) -> Coverage:
    """Return what filters that wait would be told of a fleet."""
    every = {gate.answers for gate in GATES} | {frozenset((REPORTED,))}
    silent = {answers: Silent.of(each.name for each in silent_in(fleet, answers)) for answers in every}
    return Coverage(silent, any(_compute_nodes(fleet)), fleet.traits)


def silent_in(fleet: Fleet, answers: frozenset[Trait]) -> Iterator[Provider]:
    """Yield the compute nodes of a fleet that have none of ``answers``."""
    return (each for each in _compute_nodes(fleet) if answers.isdisjoint(each.traits))


def readiness(fleet: Fleet, filters: Iterable[str], options: Options) -> list[Line]:
    """Return what each filter would wait for, in the order of the filters and of the vocabulary.

    What is not asked for, because it is not in ``reported_traits``, is not listed. Nor is what a filter asks for beyond
    the vocabulary: hosts are not asked for it.
    """
    some = any(_compute_nodes(fleet))
    lines = []
    for name in filters:
        for gate in _gates(name, options):
            silent = tuple(sorted(each.name for each in silent_in(fleet, gate.answers)))
            lines.append(Line(name, gate.row, gate.kind, OPEN if some and not silent else CLOSED, silent))
    return lines


def once_owned(fleet: Fleet, options: Options) -> Fleet:
    """Return a fleet as it is when the gate of the filter ``owner`` opens.

    Each compute node has the owner's trait then, and so has each provider below it that the owner creates, as
    ``os-prefilter capabilities report`` recognizes them; of a fleet without inventories, each that is not another's.
    """

    def owned(provider: Provider, *, is_root: bool = False) -> Provider:
        recognized = is_root or not fleet.has_inventories or is_recognized(provider.resources, options)
        if is_foreign(provider.traits, options) or not (recognized or options.owner_trait in provider.traits):
            return provider
        below = tuple(map(owned, provider.providers))
        return replace(provider, traits=provider.traits | {options.owner_trait}, providers=below)

    compute = os_traits.COMPUTE_NODE
    hosts = (owned(host, is_root=True) if compute in host.traits else host for host in fleet.hosts)
    return replace(fleet, hosts=tuple(hosts))


def _gates(name: str, options: Options) -> list[Gate]:
    if name == "deploy_config":
        templates = effective_templates(options.templates)
        by_trait = gates_by_trait(templates)
        return sorted({by_trait[trait] for trait in templates.traits if trait in by_trait})
    if name == "owner":
        # Whichever gate is configured: a compute node without the trait is excluded once the filter enforces.
        own = frozenset((trait_named(options.owner_trait),))
        return [Gate(name, ALWAYS, own, own)] if options.owns_hosts else []
    return [
        gate
        # That hosts were asked for the rows of other packages, no marker says.
        for row in rows_asked_by(name)
        if row.name in BY_NAME
        for gate in gates_of(row)
        if gate.kind == ALWAYS or name in _ASKS_WITHOUT_OPTION or any(map(options.reports, gate.traits))
    ]


def _compute_nodes(fleet: Fleet) -> Iterator[Provider]:
    return (each for each in fleet.walk() if os_traits.COMPUTE_NODE in each.traits)
