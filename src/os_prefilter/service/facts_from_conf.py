# SPDX-License-Identifier: Apache-2.0

"""Deployment facts of a service: provided, derived or configured."""

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from math import inf
from types import MappingProxyType
from typing import Any

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
from os_prefilter.service.conf import GROUP
from os_prefilter.service.deployment_facts import Fact, Measured, ReadFact
from os_prefilter.service.shared import MakeStore, SharedFact, SharedRead
from os_prefilter.vocabulary.options import Options

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
        _COVERAGE: bool,
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


def facts_from(
    conf: cfg.ConfigOpts,
    options: Options,
    provided: Mapping[str, ReadFact],
    filters: Iterable[LoadedFilter],
    ensure_traits: Callable[[Iterable[str]], object] | None = None,
) -> dict[str, Fact]:
    """Return the provided and the derived facts.

    :param options: those of ``conf``
    :param filters: the enabled filters
    :param ensure_traits: as for :meth:`os_prefilter.service.Service.from_conf`
    :raises InvalidOption: if a filter needs the rules, and they cannot be read
    """
    group = conf[GROUP]
    needs_rules = any(RULES in each.facts for each in filters)
    provided = prepared(provided, filters)
    facts = {
        name: Fact(name, read, group.facts_interval)
        for name, read in provided.items()
    }
    # Compute nodes say nothing of an owner that creates no hosts.
    if (
        options.wait_for_reports
        and options.owns_hosts
        and _COVERAGE in provided
    ):
        facts[OWNER] = Fact(OWNER, provided[_COVERAGE], group.facts_interval)
    else:
        facts[OWNER] = Fact(OWNER, lambda _context: True, inf, unknown=True)
    if RULES not in provided:
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
    if needs_rules != has_rules:
        LOG.warning(
            "Rules are inactive: set both [prefilter] enabled_filters (add"
            " 'rules') and [prefilter] rules_dirs."
        )
    return facts


def shared(
    provided: Mapping[str, ReadFact],
    interval: float,
    stores: tuple[MakeStore, ...],
) -> dict[str, ReadFact]:
    """Wrap readers that support sharing."""
    readers = dict(provided)
    for name, read in provided.items():
        if stores and isinstance(read, SharedRead):
            own_stores = [make(name, read.scope) for make in stores]
            readers[name] = SharedFact(name, read, interval, own_stores)
    return readers


def prepared(
    provided: Mapping[str, ReadFact], filters: Iterable[LoadedFilter]
) -> dict[str, ReadFact]:
    """Wrap readers so that values are checked and indexed when they are read.

    A malformed value so counts as a failed query: the last value stays.
    """
    # Almost any other object is true, and a gate that opens too early excludes
    # capable hosts.
    gates = (each.declaration.gate for each in filters)
    types = {**dict.fromkeys(gates, bool), **_TYPES}
    return {
        name: _prepared(name, read, types.get(name))
        for name, read in provided.items()
    }


def _prepared(name: str, read: ReadFact, expected: type | None) -> ReadFact:
    make = _PREPARED.get(name)
    latest: Any = None

    def read_prepared(context: Any) -> Any:
        nonlocal latest
        result = read(context)
        value = result.value if isinstance(result, Measured) else result
        # Not isinstance(): True is an integer.
        if expected and value.__class__ is not expected:
            raise UnusableFact(
                name,
                f"is {quote(value)}, not of the type {expected.__name__}",
                _ADVICE,
            )
        if make is None:
            return result
        found = make(value)
        # An equal value is the same object again: a new one would empty the
        # cache of decisions.
        if latest is None or found != latest:
            latest = found
        if isinstance(result, Measured):
            return result._replace(value=latest)
        return latest

    return read_prepared


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
