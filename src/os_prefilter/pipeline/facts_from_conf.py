"""The deployment facts of a service: those that it provides, and those derived from them and from the configuration."""

from collections.abc import Callable, Collection, Iterable, Mapping
from math import inf
from types import MappingProxyType
from typing import Any

from oslo_config import cfg

from os_prefilter.common.errors import DocumentError, InvalidOption
from os_prefilter.common.logs import get_logger
from os_prefilter.conf import GROUP
from os_prefilter.filters.host_aggregates import HostAggregates
from os_prefilter.filters.routed_networks import RoutedNetworks
from os_prefilter.pipeline.deployment_facts import Fact, ReadFact
from os_prefilter.rules.model import NO_RULES

LOG = get_logger(__name__)

OWNER = "owner_is_reported"
"""The fact that opens the gate of the filter ``owner``, from what the option ``owner_gate`` names."""
_PREPARED: Mapping[str, Callable[[Any], Any]] = MappingProxyType(
    {"aggregates": HostAggregates.of, "networks": RoutedNetworks.of}
)
# Seconds: enough for a few hundred rules. Thousands are read and checked while requests go on with those before.
_RELOAD_PATIENCE = 0.2
RULES = "rules"
"""The fact with the operator's rules, from the option ``rules_dirs``."""


def derived_facts(conf: cfg.ConfigOpts, provided: Collection[str]) -> frozenset[str]:
    """Return the names of the facts that :func:`facts_from` adds to those that the service provides."""
    source = {"compute_version": "minimum_compute_version", "coverage": "owner_coverage"}.get(conf[GROUP].owner_gate)
    return frozenset((RULES, OWNER) if source is None or source in provided else (RULES,))


def facts_from(
    conf: cfg.ConfigOpts,
    provided: Mapping[str, ReadFact],
    needed: Collection[str],
    ensure_traits: Callable[[Iterable[str]], object] | None = None,
) -> dict[str, Fact]:
    """Return the provided and the derived facts.

    :param needed: the names of those that the enabled filters need
    :param ensure_traits: as for :meth:`os_prefilter.Pipeline.from_conf`
    :raises InvalidOption: if a filter needs the rules, and they cannot be read
    """
    group = conf[GROUP]
    facts = {name: Fact(name, prepared(name, read), group.facts_interval) for name, read in provided.items()}
    if OWNER in derived_facts(conf, provided):
        facts[OWNER] = _owner_fact(group, provided)
    if RULES not in provided:
        try:
            facts[RULES] = rules_fact(conf, ensure_traits)
        except InvalidOption as error:
            if RULES in needed:
                raise
            # Disabling the filter must be enough to start without its rules.
            LOG.warning("%s Ignored, because no enabled filter uses rules.", error)
    if (RULES in needed) != (RULES in provided or bool(group.rules_dirs)):
        LOG.warning(
            "Rules are inactive: set both [prefilter] enabled_filters (add 'rules') and [prefilter] rules_dirs."
        )
    return facts


def prepared(name: str, read: ReadFact) -> ReadFact:
    """Return the reader of a fact whose value is checked and indexed when it is read, not for each request.

    A malformed value so counts as a failed query: the last value stays. One that is equal is the same object again, so
    that decisions are kept.
    """
    make = _PREPARED.get(name)
    if make is None:
        return read
    latest: Any = None

    def read_prepared(context: Any) -> Any:
        nonlocal latest
        found = make(read(context))
        if latest is None or found != latest:
            latest = found
        return latest

    return read_prepared


def _owner_fact(group: cfg.ConfigOpts.GroupAttr, provided: Mapping[str, ReadFact]) -> Fact:
    if group.owner_gate == "always":
        return Fact(OWNER, lambda _context: True, inf, unknown=True)
    if group.owner_gate == "coverage":
        return Fact(OWNER, provided["owner_coverage"], group.facts_interval, unknown=False)
    minimum, needed = provided["minimum_compute_version"], group.owner_compute_version
    return Fact(OWNER, lambda context: minimum(context) >= needed, group.facts_interval, unknown=False)


def rules_fact(conf: cfg.ConfigOpts, ensure_traits: Callable[[Iterable[str]], object] | None = None) -> Fact:
    """Return the fact ``rules`` of a service, from ``[prefilter] rules_dirs``.

    When the service makes ``conf`` read its files again, as services on oslo.service do on SIGHUP, the rules are
    reloaded as well.

    :param ensure_traits: as for :meth:`os_prefilter.Pipeline.from_conf`
    :raises InvalidOption: if the rules cannot be read
    """
    group = conf[GROUP]
    if not group.rules_dirs:
        return Fact(RULES, lambda _context: NO_RULES, inf, unknown=NO_RULES)
    if "" in group.rules_dirs:
        raise InvalidOption("rules_dirs", "a directory in it is empty. Remove a comma.")
    # Late: it reads YAML, which `import os_prefilter` does not need.
    from os_prefilter.rules.reload import RuleFolders  # noqa: PLC0415

    try:
        folders = RuleFolders(group.rules_dirs, ensure_traits)
    except DocumentError as error:
        raise InvalidOption("rules_dirs", str(error)) from error
    LOG.info("Request rules: %r.", folders.latest)
    fact = Fact(RULES, folders, group.facts_interval, unknown=folders.latest, later_patience=_RELOAD_PATIENCE)

    def reload(_conf: object, _changed: object) -> None:
        folders.read_again()
        fact.expire()

    conf.register_mutate_hook(reload)
    return fact
