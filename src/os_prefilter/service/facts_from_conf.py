# SPDX-License-Identifier: Apache-2.0

"""Deployment facts of a service: provided, derived or configured."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from math import inf
from types import MappingProxyType
from typing import Any, Protocol

import os_traits
from oslo_config import cfg

from os_prefilter.common.errors import (
    DocumentError,
    InvalidOption,
    UnusableFact,
)
from os_prefilter.common.logs import get_logger
from os_prefilter.common.quoting import quote
from os_prefilter.filters.host_aggregates import HostAggregates
from os_prefilter.filters.routed_networks import RoutedNetworks
from os_prefilter.request.filter_contract import LoadedFilter
from os_prefilter.rules.model import NO_RULES
from os_prefilter.service import deferral, known_traits, trait_scope
from os_prefilter.service.capacity import PlacementReader
from os_prefilter.service.conf import GROUP
from os_prefilter.service.deployment_facts import (
    Fact,
    ReadFact,
    check_callable,
)
from os_prefilter.service.shared import MakeStore
from os_prefilter.vocabulary.options import Options, TraitScope

LOG = get_logger(__name__)

OWNER = "owner_is_reported"
"""Fact that opens the gate of the filter ``owner``.

It is true if every compute node has the owner's trait.
"""
_COVERAGE = "owner_coverage"
_ADVICE = (
    "Have the function of the embedding service return it, or remove the fact."
)


def _trait_names(value: Any) -> known_traits.TraitNames:
    """Return the names of all traits of Placement.

    A requirement for any other trait may be left out.
    """
    # Each Placement has this trait. Where it is missing, the list is not the
    # whole one.
    if (
        not isinstance(value, (AbstractSet, list, tuple))
        or os_traits.COMPUTE_NODE not in value
    ):
        raise UnusableFact(
            known_traits.FACT,
            f"is {quote(value)} without {os_traits.COMPUTE_NODE}, not the"
            " names of all traits",
            _ADVICE,
        )
    return (
        value
        if isinstance(value, known_traits.TraitNames)
        else known_traits.TraitNames(value)
    )


_PREPARED: Mapping[str, Callable[[Any], Any]] = MappingProxyType(
    {
        "aggregates": HostAggregates.of,
        "networks": RoutedNetworks.of,
        known_traits.FACT: _trait_names,
    }
)
_TYPES: Mapping[str, type] = MappingProxyType(
    {
        "minimum_compute_version": int,
        OWNER: bool,
        trait_scope.FACT: bool,
        deferral.FACT: deferral.Reports,
    }
)
# Seconds: enough for a few hundred rules. Thousands are read and checked while
# requests go on with those before.
_RELOAD_PATIENCE = 0.2
RULES = "rules"
"""Fact with the operator's rules, from the option ``rules_dirs``."""
DERIVED = frozenset((RULES, OWNER))
"""Names of the facts that :func:`facts_from` adds."""
OF_PLACEMENT = frozenset(
    (deferral.FACT, known_traits.FACT, trait_scope.FACT, OWNER)
)
"""Names of the facts that Placement knows."""


class FactsReader(Protocol):
    """Reads facts that Placement knows, as one document."""

    scope: str
    """What the document depends on; only readers with it share it."""

    def __call__(self, context: Any, /) -> Any:
        """Return the document, as JSON has it."""

    def values(self, document: Any, /) -> Mapping[str, Any]:
        """Return the facts by name, or raise an error."""


class PlacementSource(Protocol):
    """What a service has of Placement.

    It is a :class:`os_prefilter.adapters.placement.facts.CloudPlacement`.
    """

    @property
    def reasons(self) -> PlacementReader:
        """Read why it has no candidate."""

    def facts(
        self,
        names: Collection[str],
        filters: Collection[LoadedFilter],
        options: Options,
        /,
    ) -> FactsReader:
        """Return what reads the facts of these names."""

    def ensure_traits(self, names: Iterable[str], /) -> object:
        """Create the ``CUSTOM_`` traits that Placement does not have.

        Raise an error if it lacks another one.
        """

    def create_traits(self, names: Collection[str], /) -> None:
        """Create traits in the background."""

    def stop(self) -> None:
        """Create no more traits."""


def needed_facts(
    filters: Collection[LoadedFilter], options: Options
) -> set[str]:
    """Return the names of the facts that these filters and options need.

    No other is read: a fact may be a query to every cell.
    """
    names = set[str]()
    for each in filters:
        names.update(each.facts)
    if filters:
        names.add(known_traits.FACT)
        if options.wait_for_reports:
            names.add(deferral.FACT)
        if options.trait_scope is TraitScope.AUTO:
            names.add(trait_scope.FACT)
    return names


def facts_from(  # noqa: PLR0913 - two have defaults
    conf: cfg.ConfigOpts,
    options: Options,
    provided: Mapping[str, ReadFact],
    filters: Collection[LoadedFilter],
    *,
    placement: PlacementSource | None = None,
    stores: Iterable[MakeStore] = (),
) -> dict[str, Fact]:
    """Return the provided and the derived facts, and those of Placement.

    :param options: those of ``conf``
    :param filters: the enabled filters
    :param placement: as for :meth:`os_prefilter.service.Service.from_conf`
    :param stores: likewise
    :raises InvalidOption: if a filter needs the rules, and they cannot be read
    """
    group = conf[GROUP]
    facts = facts_of(provided, filters, group.facts_interval)
    # Compute nodes say nothing of an owner that creates no hosts.
    waits = options.wait_for_reports and options.owns_hosts
    if waits and _COVERAGE in provided:
        read = provided[_COVERAGE]
        facts |= facts_of({OWNER: read}, filters, group.facts_interval)
    elif not (waits and placement):
        facts[OWNER] = Fact(OWNER, lambda _context: True, inf, unknown=True)
    names = needed_facts(filters, options) & OF_PLACEMENT - facts.keys()
    if placement and names:
        reader = placement.facts(names, filters, options)
        fact = Fact(
            "placement",
            reader,
            group.facts_interval,
            make=reader.values,
            stores=[make(f"placement {reader.scope}") for make in stores],
            names=names,
        )
        facts.update(dict.fromkeys(names, fact))
    needs_rules = any(RULES in each.facts for each in filters)
    if RULES not in provided:
        ensure_traits = placement.ensure_traits if placement else None
        try:
            facts[RULES] = rules_fact(conf, ensure_traits)
        except InvalidOption as error:
            if needs_rules:
                raise
            # Disabling the filter must be enough to start without its rules.
            LOG.warning(
                "%s Ignored, because no enabled filter uses rules.", error
            )
    has_rules = RULES in provided or bool(group.rules_dirs)
    if needs_rules and not has_rules:
        LOG.warning(
            "The filter 'rules' is inactive: set [prefilter] rules_dirs."
        )
    if has_rules and not needs_rules:
        LOG.warning(
            "Rules are inactive: name the filter 'rules' in [prefilter]"
            " enabled_filters or shadow_filters."
        )
    return facts


def facts_of(
    provided: Mapping[str, ReadFact],
    filters: Iterable[LoadedFilter],
    interval: float,
) -> dict[str, Fact]:
    """Return the facts of callables, whose values are checked and indexed.

    A malformed value so counts as a failed reading: the last value stays.

    :raises UnusableArgument: if one cannot be called so
    """
    # Almost any other object is true, and a gate that opens too early excludes
    # capable hosts.
    gates = (each.declaration.gate for each in filters)
    types = {**dict.fromkeys(gates, bool), **_TYPES}
    facts = {}
    for name, read in provided.items():
        check_callable(f"the deployment fact {name!r}", read, "context")
        make = _checked(name, types.get(name))
        facts[name] = Fact(name, read, interval, make=make)
    return facts


def _checked(name: str, expected: type | None) -> Callable[[Any], Any]:
    make = _PREPARED.get(name)
    latest: Any = None

    def check(value: Any) -> Any:
        nonlocal latest
        # Not isinstance(): True is an integer.
        if expected and value.__class__ is not expected:
            raise UnusableFact(
                name,
                f"is {quote(value)}, not of the type {expected.__name__}",
                _ADVICE,
            )
        if make is None:
            return value
        found = make(value)
        # An equal value is the same object again: a new one would empty the
        # cache of decisions.
        if latest is None or found != latest:
            latest = found
        return latest

    return check


def rules_fact(
    conf: cfg.ConfigOpts,
    ensure_traits: Callable[[Iterable[str]], object] | None = None,
) -> Fact:
    """Return the fact ``rules`` of a service, from ``[prefilter] rules_dirs``.

    When the service makes ``conf`` read its files again, as services on
    oslo.service do on SIGHUP, the rules are reloaded as well.

    :param ensure_traits: as for :meth:`os_prefilter.service.Service.from_conf`
    :raises InvalidOption: if the rules cannot be read
    """
    group = conf[GROUP]
    if not group.rules_dirs:
        return Fact(RULES, lambda _context: NO_RULES, inf, unknown=NO_RULES)
    if "" in group.rules_dirs:
        raise InvalidOption(
            "rules_dirs", "a directory in it is empty. Remove a comma."
        )
    # Late: it reads YAML, which `import os_prefilter` does not need.
    from os_prefilter.rules.reload import RuleFolders  # noqa: PLC0415

    try:
        folders = RuleFolders(group.rules_dirs, ensure_traits)
    except DocumentError as error:
        raise InvalidOption("rules_dirs", str(error)) from error
    LOG.info("Request rules: %r.", folders.latest)
    fact = Fact(
        RULES,
        folders,
        group.facts_interval,
        unknown=folders.latest,
        later_patience=_RELOAD_PATIENCE,
    )

    def reload(_conf: object, _changed: object) -> None:
        folders.read_again()
        fact.expire()

    conf.register_mutate_hook(reload)
    return fact
