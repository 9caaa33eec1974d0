"""The facts about a deployment that filters may declare as needs, from the configuration and what is provided."""

from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Any

from oslo_config import cfg
from oslo_log import log as logging

from os_prefilter.conf import GROUP
from os_prefilter.errors import DocumentError, InvalidOption
from os_prefilter.pipeline.deployment_facts import Ask, Fact
from os_prefilter.pipeline.metrics import Measuring
from os_prefilter.pipeline.waiting import FACT
from os_prefilter.rules.model import NO_RULES

LOG = logging.getLogger(__name__)

OWNER_GATE = "owner_is_reported"
"""The name of the fact that opens the filter ``owner``."""


def facts_from(
    conf: cfg.ConfigOpts,
    provided: Mapping[str, Ask],
    measuring: Measuring | None = None,
    ensure_traits: Callable[[Iterable[str]], object] | None = None,
) -> dict[str, Fact]:
    """Return the facts that filters may declare as needs: those provided, and those derived from them.

    :param ensure_traits: as for :meth:`os_prefilter.Pipeline.from_conf`
    :raises InvalidOption: if the filter ``rules`` is enabled and its rules cannot be read
    """
    group = conf[GROUP]
    if measuring and FACT in provided:
        provided = {**provided, FACT: measuring.counted(provided[FACT])}
    facts = {name: Fact(name, ask, group.facts_interval) for name, ask in provided.items()}
    gate = _owner_gate(group, provided)
    if gate:
        always = group.owner_gate == "always"
        interval = inf if always else group.facts_interval
        facts[OWNER_GATE] = Fact(OWNER_GATE, gate, interval, unknown=always)
    if "rules" not in facts:
        try:
            facts["rules"] = rules_fact(conf, ensure_traits)
        except InvalidOption as error:
            if "rules" in group.enabled_filters:
                raise
            # Disabling the filter must be enough to start without its rules. A filter of another package that needs
            # them stops the service: the fact is missing.
            LOG.warning("%s Ignored, because the filter rules is not enabled.", error)
    return facts


def _owner_gate(group: Any, provided: Mapping[str, Ask]) -> Ask | None:
    """Return how to ask whether the owner trait is reported; None if nobody provides what that needs."""
    if group.owner_gate == "always":
        return lambda _context: True
    if group.owner_gate == "coverage":
        return provided.get("owner_coverage")
    minimum, needed = provided.get("minimum_compute_version"), group.owner_compute_version
    return minimum and (lambda context: minimum(context) >= needed)


def rules_fact(conf: cfg.ConfigOpts, ensure_traits: Callable[[Iterable[str]], object] | None = None) -> Fact:
    """Return the fact ``rules`` of a service, from ``[prefilter] rules_dirs``.

    Where the service tells ``conf`` to read its files again, as those on oslo.service do on SIGHUP, the rules are read
    again, too.

    :param ensure_traits: as for :meth:`os_prefilter.Pipeline.from_conf`
    :raises InvalidOption: if the rules cannot be read
    """
    group = conf[GROUP]
    if not group.rules_dirs:
        return Fact("rules", lambda _context: NO_RULES, group.facts_interval, unknown=NO_RULES)
    if "" in group.rules_dirs:
        raise InvalidOption("rules_dirs", "a directory in it is empty. Remove a comma.")
    # Late: it reads YAML, which `import os_prefilter` does not need.
    from os_prefilter.rules.reload import RuleFolders  # noqa: PLC0415

    try:
        folders = RuleFolders(group.rules_dirs, ensure_traits)
    except DocumentError as error:
        raise InvalidOption("rules_dirs", str(error)) from error
    LOG.info("Request rules: %r.", folders.latest)
    fact = Fact("rules", folders, group.facts_interval, unknown=folders.latest)

    def read_again(_conf: object, _changed: object) -> None:
        folders.read_again()
        fact.expire()

    conf.register_mutate_hook(read_again)
    return fact
