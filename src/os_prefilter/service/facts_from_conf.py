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
_KINDS: Mapping[str, type] = MappingProxyType(
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
    needed = {fact for each in filters for fact in each.facts}
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
            if RULES in needed:
                raise
            # Disabling the filter must be enough to start without its rules.
            LOG.warning(
                "%s Ignored, because no enabled filter uses rules.", error
            )
    if (RULES in needed) != (RULES in provided or bool(group.rules_dirs)):
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
    return {
        name: (
            SharedFact(
                name,
                read,
                interval,
                [make(name, read.scope) for make in stores],
            )
            if stores and isinstance(read, SharedRead)
            else read
        )
        for name, read in provided.items()
    }


def prepared(
    provided: Mapping[str, ReadFact], filters: Iterable[LoadedFilter]
) -> dict[str, ReadFact]:
    """Wrap readers so that values are checked and indexed when they are read.

    A malformed value so counts as a failed query: the last value stays.
    """
    # Almost any other object is true, and a gate that opens too early excludes
    # capable hosts.
    kinds = {
        **dict.fromkeys((each.declaration.gate for each in filters), bool),
        **_KINDS,
    }
    return {
        name: _prepared(name, read, kinds.get(name))
        for name, read in provided.items()
    }


def _prepared(name: str, read: ReadFact, kind: type | None) -> ReadFact:
    make = _PREPARED.get(name)
    latest: Any = None

    def read_prepared(context: Any) -> Any:
        nonlocal latest
        answer = read(context)
        value = answer.value if isinstance(answer, Measured) else answer
        # Not isinstance(): True is an integer.
        if kind and value.__class__ is not kind:
            raise UnusableFact(
                name,
                f"is {quote(value)}, not of the type {kind.__name__}",
                _ADVICE,
            )
        if make is None:
            return answer
        found = make(value)
        # One that is equal is the same object again, so that decisions are
        # kept.
        if latest is None or found != latest:
            latest = found
        return (
            answer._replace(value=latest)
            if isinstance(answer, Measured)
            else latest
        )

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
