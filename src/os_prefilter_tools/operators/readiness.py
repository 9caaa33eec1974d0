# SPDX-License-Identifier: Apache-2.0

"""Readiness of filters: enforced requirements and missing reports."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

import os_traits
from oslo_config import cfg

from os_prefilter.hosts.desired_traits import is_foreign, is_recognized
from os_prefilter.hosts.marker_traits import (
    WANTED,
    TraitGroup,
    keys_in,
    trait_groups,
)
from os_prefilter.request.filter_contract import LoadedFilter
from os_prefilter.service.conf import GROUP, options_from
from os_prefilter.service.deferral import Reports, Unreported, read_reports
from os_prefilter.service.loading import load_filters
from os_prefilter.service.traits_to_report import (
    traits_named_by,
    traits_to_create,
    wanted_groups,
)
from os_prefilter.vocabulary import rows_required_by
from os_prefilter.vocabulary.model import RESERVED
from os_prefilter.vocabulary.options import Options
from os_prefilter_tools.fleet.model import Fleet, Provider

ENFORCED = "enforced"
"""The state of an enforced row: each compute node has reported it."""
DEFERRED = "deferred"
"""The state of a row that some compute node has not reported.

Or of any row without a compute node.
"""


class ReadinessLine(NamedTuple):
    """The reports that one filter waits for at one row."""

    filter: str
    row: str
    """A row of the vocabulary, ``deploy-config``, or ``owner``.

    ``owner`` is the trait of the filter of that name.
    """
    traits: tuple[str, ...]
    """The traits of the row that have this state, sorted."""
    state: str
    """:data:`ENFORCED` or :data:`DEFERRED`."""
    unreported: tuple[str, ...]
    """The names of the compute nodes that have not reported, sorted."""


def configured_filters(
    conf: cfg.ConfigOpts,
) -> tuple[tuple[LoadedFilter, ...], Options]:
    """Return the filters of the configuration, and the options.

    Those in shadow are among them: hosts report for them as well.

    :raises ConfigurationError: if an option is wrong, or a filter does not
        load
    """
    options = options_from(conf)
    group = conf[GROUP]
    names = [*group.enabled_filters, *group.shadow_filters]
    return load_filters(names, provided=None), options


def find_unwanted(
    unused: Collection[str],
    filters: Collection[LoadedFilter],
    options: Options,
) -> tuple[list[str], list[str]]:
    """Compare the markers in Placement with what a section wants, by key.

    A marker for a part of it, as of a scheduler with fewer filters, is wanted.

    :param unused: names of traits in Placement that no provider has
    :return: the names that can be deleted, those of schedulers before those of
        agents; and the rows of the vocabulary that only the former name, as
        far as this release knows them
    """
    wanted = keys_in(WANTED, traits_to_create(filters, options))
    requested = sorted(name for name in unused if name.startswith(WANTED))
    markers = sorted(
        name
        for name in unused
        if name.startswith(RESERVED) and not name.startswith(WANTED)
    )
    other = [
        name for name in requested if not keys_in(WANTED, [name]) <= wanted
    ]
    # An agent that sees a wanted key in no name would stop reporting it.
    left = keys_in(WANTED, set(requested).difference(other))
    names = [
        name for name in other if keys_in(WANTED, [name]) & wanted <= left
    ]
    kept = keys_in(WANTED, set(requested).difference(names))
    gone = keys_in(WANTED, names) - kept
    groups = trait_groups(options.templates)
    rows = dict.fromkeys(group.row for group in groups if group.keys & gone)
    return [*names, *markers], list(rows)


def reports_of(fleet: Fleet, groups: Iterable[TraitGroup]) -> Reports:
    """Return the capability reports of a fleet, as filters that wait get them.

    :param groups: what the filters may require
    """
    unreported: dict[str, Unreported] = {
        trait: Unreported.of(names)
        for group, names in unreported_groups(fleet, groups).items()
        for trait in group.traits
    }
    return Reports(unreported, bool(compute_nodes(fleet)), fleet.traits)


def unreported_groups(
    fleet: Fleet, groups: Iterable[TraitGroup]
) -> Mapping[TraitGroup, Collection[str]]:
    """Return the compute nodes that have not reported each group."""
    nodes = compute_nodes(fleet)
    return read_reports(
        groups,
        fleet.traits,
        lambda traits: tuple(
            each.name for each in nodes if traits.isdisjoint(each.traits)
        ),
    )


def readiness(
    fleet: Fleet, filters: Iterable[LoadedFilter], options: Options
) -> list[ReadinessLine]:
    """Return what each filter would wait for.

    Lines are in the order of the filters and of the vocabulary.

    What is not required, because it is not in ``reported_traits``, is not
    listed. Nor is what a filter requires beyond the vocabulary: it needs no
    capability reports.
    """
    nodes = compute_nodes(fleet)
    filters = tuple(filters)
    unreported = unreported_groups(fleet, wanted_groups(filters, options))
    lines = []
    for each in filters:
        if each.declaration.gate:
            owner = tuple(each.declaration.traits(options))
            if owner:
                missing = tuple(
                    sorted(
                        node.name
                        for node in nodes
                        if node.traits.isdisjoint(owner)
                    )
                )
                lines.append(
                    ReadinessLine(
                        each.name,
                        each.name,
                        owner,
                        _state(nodes, missing),
                        missing,
                    )
                )
            continue
        named, rows = (
            traits_named_by(each, options),
            {row.name for row in rows_required_by(each.name)},
        )
        declared = frozenset(each.declaration.traits(options))
        found: dict[tuple[str, tuple[str, ...]], list[str]] = {}
        for group, names in unreported.items():
            # What a filter only forbids, as a device does some default machine
            # types, needs no report.
            traits = group.traits & (named if group.row in rows else declared)
            if traits:
                found.setdefault((group.row, tuple(sorted(names))), []).extend(
                    traits
                )
        lines += [
            ReadinessLine(
                each.name,
                row,
                tuple(sorted(traits)),
                _state(nodes, missing),
                missing,
            )
            for (row, missing), traits in found.items()
        ]
    return lines


def _state(nodes: Collection[Provider], unreported: Collection[str]) -> str:
    return ENFORCED if nodes and not unreported else DEFERRED


def simulate_ownership(fleet: Fleet, options: Options) -> Fleet:
    """Return a fleet as it is when the gate of the filter ``owner`` opens.

    Each compute node has the owner's trait then, and so has each provider
    below it that the owner creates, as ``os-prefilter capabilities report``
    recognizes them; of a fleet without inventories, each that is not
    another's. What belongs to another owner below a root does not have it.
    """

    def own(provider: Provider, *, is_root: bool = False) -> Provider:
        if is_foreign(
            provider.traits, options, uuid=provider.uuid, name=provider.name
        ):
            return provider if is_root else disown(provider)
        recognized = (
            is_root
            or not fleet.has_inventories
            or is_recognized(provider.resources, options)
        )
        if not recognized and options.owner_trait not in provider.traits:
            return provider
        below = tuple(map(own, provider.providers))
        return replace(
            provider,
            traits=provider.traits | {options.owner_trait},
            providers=below,
        )

    def disown(provider: Provider) -> Provider:
        below = tuple(map(disown, provider.providers))
        return replace(
            provider,
            traits=provider.traits - {options.owner_trait},
            providers=below,
        )

    compute = os_traits.COMPUTE_NODE
    hosts = (
        own(host, is_root=True) if compute in host.traits else host
        for host in fleet.hosts
    )
    return replace(fleet, hosts=tuple(hosts))


def compute_nodes(fleet: Fleet) -> tuple[Provider, ...]:
    """Return the resource providers of a fleet that are compute nodes."""
    return tuple(
        each for each in fleet.walk() if os_traits.COMPUTE_NODE in each.traits
    )
