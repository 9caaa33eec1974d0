# SPDX-License-Identifier: Apache-2.0

"""Plan to reconfigure a bare-metal instance in place.

A resize that stays on its node.

The changes follow from the old and the new flavor. Whether the node can do
them is decided by the same filters and the same late check as for a new
instance. As the node is in use, it is no allocation candidate: Placement is
queried for its resource provider with the required traits, in its own tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from os_prefilter.common.errors import RequestRejected, UnsupportedByHost
from os_prefilter.common.quoting import quote
from os_prefilter.hosts.driver_check import guest_settings
from os_prefilter.hosts.drivers.ironic_facts import BiosValue, IronicFacts
from os_prefilter.hosts.drivers.ironic_steps import (
    bios_changes,
    deploy_steps,
    fit,
)
from os_prefilter.hosts.reporter import GuestSettings
from os_prefilter.request.requirements import Requirement
from os_prefilter.request.spec import Flavor, RequestSpec
from os_prefilter.service import Service
from os_prefilter.vocabulary.config_templates import BIOS_STEP, PREFIX

_FIELDS = ("vcpus", "memory_mb", "root_gb", "ephemeral_gb", "swap")


class NotReconfigurable(RequestRejected):
    """The instance cannot be reconfigured on its node; nothing was changed."""

    def __init__(self, host: str, reason: str) -> None:
        super().__init__(
            f"The instance on the node {quote(host)} was not changed:"
            f" {reason}."
        )


@dataclass(frozen=True)
class Plan:
    """The changes to a node."""

    configurations: tuple[tuple[str, str, str], ...]
    """``deploy-config:hyperthreading`` of the old and of the new flavor.

    The old one may be nothing.
    """
    requirements: tuple[Requirement, ...]
    """Requirements of the filters on the node for the new flavor."""
    steps: tuple[Mapping[str, Any], ...]
    """Ironic service steps; empty if nothing is left to do."""
    settings: Mapping[str, BiosValue]
    """All BIOS settings of the new flavor, also without a step."""

    def check(self, node: str, is_found: Callable[[str], bool]) -> None:
        """Check that the node meets the requirements.

        They are checked at once, and one by one if it does not.

        :param node: its UUID
        :param is_found: whether ``GET /resource_providers`` finds anything
            with a query
        :raises NotReconfigurable: it does not; names the requirements that it
            fails
        """
        if is_found(_in_tree(node, self.requirements)):
            return
        if not is_found(_in_tree(node, ())):
            raise NotReconfigurable(
                node, "Placement has no resource provider of it"
            )
        lacks = [
            item
            for item in self.requirements
            if not is_found(_in_tree(node, (item,)))
        ]
        signs = {True: "without", False: "with"}
        reasons = [
            f"{item.source}: Placement has it {signs[item.required]}"
            f" {item.trait}"
            for item in lacks
        ]
        raise NotReconfigurable(
            node, "; ".join(reasons) or "Placement has none that meets it all"
        )


def _in_tree(node: str, requirements: Iterable[Requirement]) -> str:
    traits = sorted(
        {
            item.trait if item.required else f"!{item.trait}"
            for item in requirements
        }
    )
    return urlencode(
        {"in_tree": node, **({"required": ",".join(traits)} if traits else {})}
    )


def reconfiguration(
    old: Flavor, new: Flavor, facts: IronicFacts, service: Service
) -> Plan:
    """Return the plan from flavor ``old`` to ``new`` on a node.

    BIOS settings become those of the new flavor. Settings that already have
    their value get no step, unless the machine may differ from what Ironic
    shows. A template's own steps run only for changed configurations. A
    configuration that only the old flavor has stays as it is.

    :param facts: of the node that the instance is on
    :param service: the filters; ``deploy_config`` must be among them
    :raises NotReconfigurable: if the flavors differ in anything else, or the
        node cannot do it
    :raises RequestRejected: if a filter rejects the new flavor
    """
    if "deploy_config" not in {each.name for each in service.filters}:
        reason = (
            "the filter deploy_config is not enabled; add it to [prefilter]"
            " enabled_filters"
        )
        raise NotReconfigurable(facts.host, reason)
    _check_same(old, new, facts)
    configurations = tuple(
        (name, str(old.extra_specs.get(name, "")), str(value))
        for name, value in sorted(new.extra_specs.items())
        if name.startswith(PREFIX) and value != old.extra_specs.get(name)
    )
    # Only the extra specs that configure the node: it already meets the
    # others.
    own = {
        name: value
        for name, value in new.extra_specs.items()
        if name.startswith(PREFIX)
    }
    flavor = replace(new, extra_specs=own)
    decision = service.apply(RequestSpec(flavor))
    try:
        settings = guest_settings(RequestSpec(flavor), facts)
    except UnsupportedByHost as error:
        raise NotReconfigurable(
            facts.host, "; ".join(map(str, error.refusals))
        ) from error
    settings = _to_do(settings, facts, {name for name, _, _ in configurations})
    steps = deploy_steps(settings, facts)
    left = (
        steps
        if facts.bios_may_differ
        else filter(None, (_drop_met_settings(step, facts) for step in steps))
    )
    return Plan(
        configurations, decision.requirements, tuple(left), bios_changes(steps)
    )


def _check_same(old: Flavor, new: Flavor, facts: IronicFacts) -> None:
    different = [
        name for name in _FIELDS if getattr(old, name) != getattr(new, name)
    ]
    changed = {
        name for name, _ in old.extra_specs.items() ^ new.extra_specs.items()
    }
    different += [
        quote(name) for name in sorted(changed) if not name.startswith(PREFIX)
    ]
    if different:
        alone = f"on its node an instance can change {PREFIX}* alone"
        raise NotReconfigurable(
            facts.host,
            f"the flavors differ in {', '.join(different)}; {alone}",
        )


def _to_do(
    settings: GuestSettings, facts: IronicFacts, changed: set[str]
) -> GuestSettings:
    """Return the settings to apply.

    Changed ones, and unchanged ones that are only BIOS settings.

    :raises NotReconfigurable: steps of a changed one may not run on a node
        that is in use
    """
    chosen = []
    for setting in (
        each for each in settings.settings if each.name.startswith(PREFIX)
    ):
        found = fit(facts, facts.templates.of(setting.name, setting.value))
        if setting.name in changed and not found.in_use:
            problem = (
                "its template has steps of its own, and does not say that they"
                " may run on a node that is in use"
            )
            raise NotReconfigurable(
                facts.host, f"{setting.source}: {problem} (in-use: true)"
            )
        if setting.name in changed or all(
            step.key == BIOS_STEP for step in found.steps
        ):
            chosen.append(setting)
    return replace(settings, settings=tuple(chosen))


def _drop_met_settings(
    step: Mapping[str, Any], facts: IronicFacts
) -> Mapping[str, Any] | None:
    """Return the step without BIOS settings that are set already.

    None if none is left.
    """
    changes = bios_changes([step])
    if not changes:
        return step
    left = {
        name: value
        for name, value in changes.items()
        if facts.bios[name].current != value
    }
    return (
        {
            **step,
            "args": {
                "settings": [
                    {"name": name, "value": left[name]} for name in left
                ]
            },
        }
        if left
        else None
    )
