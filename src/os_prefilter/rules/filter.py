# SPDX-License-Identifier: Apache-2.0

"""Require, forbid and prefer traits by operators' own rules.

Their directories are ``[prefilter] rules_dirs``.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from os_prefilter.common.errors import UnknownValue
from os_prefilter.common.quoting import quote
from os_prefilter.request.filter_contract import Declaration
from os_prefilter.request.named_traits import forbid_several_models
from os_prefilter.request.requirements import (
    NOTHING,
    ROOT,
    UNSUFFIXED,
    Note,
    Preference,
    Requirement,
    Requirements,
)
from os_prefilter.request.resources import (
    port_groups,
    unsuffixed_group_uses_host,
)
from os_prefilter.request.view import Request
from os_prefilter.rules.model import HINT_PREFIX, HINT_VALUES, PORTS, RuleSet
from os_prefilter.vocabulary.model import UnknownValues
from os_prefilter.vocabulary.options import Options

# A tenant may write ten thousand hints.
_MOST_NOTES = 100


@Declaration(
    reads=(
        "project_id",
        "availability_zone",
        "scheduler_hints",
        "flavor.name",
    ),
)
def rules(
    request: Request,
    *,
    rules: RuleSet,
    options: Options,
    required_before: tuple[Requirement, ...] = (),
) -> Requirements:
    """Require, forbid and prefer the traits of each rule that matches."""
    requirements: list[Requirement] = []
    preferences: list[Preference] = []
    notes: list[Note] = []
    if rules.hint_traits:
        notes += islice(_unknown_hints(request, rules, options), _MOST_NOTES)
    for match in rules.match(request, required_before):
        rule, source, public, properties = match
        scopes = _scopes(request, rule.scope)
        if not scopes:
            missing = "the request has no port that requests resources"
            if rule.scope != PORTS:
                missing = (
                    "the flavor requests no resources in the group"
                    f" {rule.scope}"
                )
            notes.append(Note(source, f"{missing}: not required"))
        traits = [
            *((trait, True) for trait in rule.require),
            *((trait, False) for trait in rule.forbid),
        ]
        requirements += [
            Requirement(
                *each, scope, source, properties=properties, public=public
            )
            for scope in scopes
            for each in traits
        ]
        preferences += [Preference(trait, source) for trait in rule.prefer]
    if not (requirements or notes or preferences):
        return NOTHING
    items: list[Requirement | Preference] = [*requirements, *preferences]
    return Requirements(
        tuple(requirements), tuple(notes), preferences=tuple(preferences)
    ) + forbid_several_models(request, items, options)


def _unknown_hints(
    request: Request, rules: RuleSet, options: Options
) -> Iterator[Note]:
    """Yield notes on the hints about traits that the operator does not allow.

    :raises UnknownValue: for one of them, with ``unknown_values = reject``
    """
    for name, values in request.scheduler_hints.items():
        if not name.startswith(HINT_PREFIX):
            continue
        is_allowed = name.removeprefix(HINT_PREFIX) in rules.hint_traits
        unknown = [
            value
            for value in values
            if not is_allowed or value not in HINT_VALUES
        ]
        if not unknown:
            continue
        what = f"hint {quote(name)}"
        if options.unknown_values is UnknownValues.SKIP or not (
            request.asks_anew("hint")
        ):
            problem = "no trait that hints may name"
            if is_allowed:
                problem = "unknown value"
            source = f"{what}={quote(unknown[0])}"
            yield Note(source, f"{problem}: not required", warn=True)
        elif is_allowed:
            raise UnknownValue(what, unknown[0], HINT_VALUES)
        else:
            known = sorted(rules.hint_traits)
            raise UnknownValue(
                "hint", name, [f"{HINT_PREFIX}{trait}" for trait in known]
            )


def _scopes(request: Request, scope: str) -> tuple[str, ...]:
    if scope == PORTS:
        return port_groups(request)
    # Placement refuses a group with traits and no resources.
    group = request.flavor_groups.get("" if scope == UNSUFFIXED else scope)
    has_resources = bool(group and group.resource_classes)
    by_fields = scope == UNSUFFIXED and unsuffixed_group_uses_host(request)
    if scope == ROOT or has_resources or by_fields:
        return (scope,)
    return ()
