# SPDX-License-Identifier: Apache-2.0

"""Steps by which Ironic configures a bare-metal node as a request requires.

Ironic takes them where a node is deployed (API 1.69) and where an active one
is serviced (API 1.87).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from os_prefilter.common.errors import ImpossibleCombination
from os_prefilter.common.quoting import quote
from os_prefilter.hosts.drivers.ironic_facts import (
    BOOLEANS,
    BiosValue,
    IronicFacts,
)
from os_prefilter.hosts.reporter import GuestSettings
from os_prefilter.vocabulary.config_templates import (
    BIOS_STEP,
    PREFIX,
    BiosChange,
    Step,
    Template,
    Variant,
)

BIOS_PRIORITY = 150
"""The priority of the step that changes BIOS settings.

It runs before the image is written, which Ironic does at 100.
"""


class Fit(NamedTuple):
    """How a template can be applied to a node."""

    steps: tuple[Step, ...] = ()
    reason: str = ""
    """Why it cannot; empty if it can."""
    in_use: bool = True
    """True if the steps may run on a node that is in use."""


def fit(facts: IronicFacts, template: Template) -> Fit:
    """Return the steps of the first variant that fits, or a reason."""
    if not template.variants:
        return Fit()
    reasons = []
    for variant in template.variants:
        found = _fit(facts, variant)
        if found and not found.reason:
            return found
        reasons.append(found and found.reason)
    if facts.bios:
        missing = (
            "none of its BIOS settings is one of the template: add those of"
            " its maker, see [prefilter] config_templates"
        )
    else:
        missing = (
            "Ironic has no BIOS settings of it; it reads them at 'openstack"
            " baremetal node manage' and when it cleans"
        )
    # The nearest: a setting that is there and cannot be changed says more than
    # settings that are not there.
    return Fit(reason=next(filter(None, reasons), missing))


def deploy_steps(
    settings: GuestSettings, facts: IronicFacts
) -> list[dict[str, Any]]:
    """Return the steps that configure the node, as Ironic's API takes them.

    The settings come from :func:`os_prefilter.guest_settings`.

    :raises ImpossibleCombination: if two configurations change one thing
        differently.
    """
    templates = facts.templates
    sourced: list[tuple[str, Step]] = []
    for setting in settings.settings:
        if setting.name.startswith(PREFIX):
            template = templates.of(setting.name, setting.value)
            steps = fit(facts, template).steps
            sourced += [(setting.source, step) for step in steps]
    merged = _merge(sourced)
    merged.sort(key=lambda step: (-step.priority, step.key))
    return [step.for_ironic() for step in merged]


def bios_changes(steps: Iterable[Mapping[str, Any]]) -> dict[str, BiosValue]:
    """Return the BIOS settings that steps change, with their new values."""
    found = {}
    for step in steps:
        if (step.get("interface"), step.get("step")) == BIOS_STEP:
            arguments = step.get("args") or {}
            for change in arguments.get("settings") or ():
                found[change["name"]] = change["value"]
    return found


def _fit(facts: IronicFacts, variant: Variant) -> Fit | None:
    """Return how a variant applies to a node; None if for other nodes."""
    own = {"driver": facts.hardware_type, "vendor": facts.vendor}
    if not all(
        _matches(own[name].lower(), pattern.lower())
        for name, pattern in variant.node.items()
    ):
        return None
    if not variant.bios:
        return Fit(variant.steps, in_use=variant.in_use)
    if facts.bios_interface == "no-bios":
        return Fit(
            reason=(
                "its bios_interface is no-bios: Ironic cannot change its BIOS"
                " settings"
            )
        )
    settings: dict[str, BiosValue] = {}
    for change in variant.bios:
        names = sorted(
            name for name in facts.bios if _matches(name, change.name)
        )
        if not names:
            return None
        # Of several, one that can be changed.
        name = next(
            (each for each in names if facts.bios[each].changeable), names[0]
        )
        value, reason = _value(facts, name, change)
        if name in settings:
            reason = f"the template means its BIOS setting {quote(name)} twice"
        if reason or value is None:
            return Fit(reason=reason)
        settings[name] = value
    change_bios = Step(*BIOS_STEP, _arguments(settings), BIOS_PRIORITY)
    return Fit(
        (*variant.steps, change_bios),
        in_use=variant.in_use or not variant.steps,
    )


def _arguments(settings: Mapping[str, BiosValue]) -> dict[str, Any]:
    """Return the arguments of a step that changes BIOS settings."""
    changes = [
        {"name": name, "value": value} for name, value in settings.items()
    ]
    return {"settings": changes}


def _matches(name: str, pattern: str) -> bool:
    if "*" not in pattern:
        return name == pattern
    # Only "*" is special: makers use brackets in names.
    literal = pattern.replace("[", "[[]").replace("?", "[?]")
    return name == pattern or fnmatchcase(name, literal)


def _value(
    facts: IronicFacts, name: str, change: BiosChange
) -> tuple[BiosValue | None, str]:
    """Return the value to set, or why there is none."""
    setting = facts.bios[name]
    what = f"its BIOS setting {quote(name)}"
    if not setting.changeable:
        return None, f"{what} cannot be changed"
    if setting.attribute_type is None and any(
        each.lower() in BOOLEANS for each in change.values
    ):
        # It may be Boolean, and Ironic would set the opposite.
        reason = (
            f"it is not known whether {what} is Boolean: list the settings"
            " with --long, or ask Ironic by its API 1.74 or later"
        )
        return None, reason
    possible = [
        value
        for value in map(setting.parse, change.values)
        if value is not None
    ]
    # What it has already stays, if that is one of the spellings.
    now = setting.parse(str(setting.value))
    accepted = {str(each).lower() for each in (*change.values, *possible)}
    if now is not None and str(now).lower() in accepted:
        return now, ""
    if possible:
        return possible[0], ""
    return None, f"{what} takes {setting.describe()}, not {change.values[0]}"


def _merge(sourced: Iterable[tuple[str, Step]]) -> list[Step]:
    """Return each step once; the changes of all BIOS settings are one step.

    :raises ImpossibleCombination: if two of them differ.
    """
    steps: dict[tuple[str, str], tuple[str, Step]] = {}
    for source, step in sourced:
        first, before = steps.setdefault(step.key, (source, step))
        if step == before:
            continue
        values = bios_changes([before.for_ironic()])
        more = bios_changes([step.for_ironic()])
        is_mergeable = (
            step.key == BIOS_STEP and step.priority == before.priority
        )
        differs = any(
            values.get(name, value) != value for name, value in more.items()
        )
        if differs or not is_mergeable:
            raise ImpossibleCombination(source, first)
        merged = before._replace(args=_arguments(values | more))
        steps[step.key] = f"{first} and {source}", merged
    return [step for _, step in steps.values()]
