# SPDX-License-Identifier: Apache-2.0

"""Traits that hosts are to report: all that the filters may require.

Placement sends every trait of a host with each candidate, so a trait that no
request can require is not reported.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from os_prefilter.common.trait_names import CUSTOM_PREFIX
from os_prefilter.hosts.marker_traits import (
    WANTED,
    TraitGroup,
    names_with,
    trait_groups,
)
from os_prefilter.request.filter_contract import LoadedFilter
from os_prefilter.vocabulary import (
    BY_NAME,
    LACKING,
    opt_in_traits,
    rows_required_by,
)
from os_prefilter.vocabulary.filter_rows import SEVERAL_CPU_MODELS
from os_prefilter.vocabulary.options import Options

_OF_CPU_FEATURES = frozenset(("image_metadata", "preferences", "rules"))


def wanted_groups(
    filters: Collection[LoadedFilter], options: Options
) -> tuple[TraitGroup, ...]:
    """Return the groups of traits that hosts are to report.

    These filters, and Nova's own query, may require or forbid them.

    With all that ``reported_traits`` names in full: flavors, rules and filters
    of other packages may require them.
    """
    named = opt_in_traits().intersection(options.reported_traits)
    traits = set[str](filter(options.reports, named))
    for row in rows_required_by("query"):
        traits |= row.traits
    for each in filters:
        traits.update(_row_traits(each, options))
        # The owner's trait is not of the host's abilities.
        if not each.declaration.gate:
            traits.update(each.declaration.traits(options))
        # These filters only forbid it, so no requirement waits for its report.
        if each.name in _OF_CPU_FEATURES:
            traits.add(SEVERAL_CPU_MODELS)
    every = trait_groups(options.templates)
    return tuple(
        group for group in every if not group.traits.isdisjoint(traits)
    )


def traits_to_create(
    filters: Collection[LoadedFilter], options: Options
) -> frozenset[str]:
    """Return the ``CUSTOM_`` traits that must exist in Placement.

    They are the traits of these filters, and the markers of what is wanted.

    Placement refuses a query with a trait that it does not know.
    """
    named = set[str]()
    for each in filters:
        named |= traits_named_by(each, options)
    keys = set[str]()
    # Without filters, not even what the options name is wanted.
    if filters:
        for group in wanted_groups(filters, options):
            keys |= group.keys
    custom = {trait for trait in named if trait.startswith(CUSTOM_PREFIX)}
    return frozenset(custom).union(names_with(WANTED, keys))


def traits_named_by(each: LoadedFilter, options: Options) -> frozenset[str]:
    """Return the traits that a filter may require or forbid.

    Without the traits of operators' rules, and without those of a filter that
    neither the vocabulary nor the filter's own declaration names.
    """
    declared = each.declaration
    return frozenset(
        (
            *_row_traits(each, options),
            *declared.traits(options),
            *declared.other_traits(options),
        )
    )


def _row_traits(each: LoadedFilter, options: Options) -> Iterable[str]:
    rows = rows_required_by(each.name)
    if not rows:
        return
    # Of a device, hosts with some default machine types are excluded.
    opt_in = opt_in_traits((*rows, BY_NAME["default_machine"]))
    yield from filter(options.reports, opt_in)
    for row in rows:
        yield from row.traits - opt_in
        # Also where another driver builds the guests: a command that reads
        # these markers does not know who does.
        for trait in LACKING.keys() & row.traits:
            yield LACKING[trait]
