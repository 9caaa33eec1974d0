"""Require, forbid and prefer traits by operators' own rules (``[prefilter] rules_dirs``)."""

from collections.abc import Iterator
from itertools import islice

from os_prefilter.common.errors import UnknownValue
from os_prefilter.common.quoting import quote
from os_prefilter.request.filter_contract import Declaration
from os_prefilter.request.requirements import NOTHING, ROOT, UNSUFFIXED, Note, Preference, Requirement, Requirements
from os_prefilter.request.resources import port_groups
from os_prefilter.request.view import Request
from os_prefilter.rules.model import HINT_PREFIX, HINT_VALUES, PORTS, RuleSet
from os_prefilter.vocabulary.model import UnknownValues
from os_prefilter.vocabulary.options import Options

# A tenant may write ten thousand hints.
_MOST_NOTES = 100


@Declaration(reads=("project_id", "availability_zone", "scheduler_hints", "flavor.name"))
def rules(
    request: Request, *, rules: RuleSet, options: Options, required_before: tuple[Requirement, ...] = ()
) -> Requirements:
    """Require, forbid and prefer the traits of each rule whose conditions the request matches."""
    requirements: list[Requirement] = []
    preferences: list[Preference] = []
    notes = list(islice(_unknown_hints(request, rules, options), _MOST_NOTES)) if rules.hint_traits else []
    for match in rules.match(request, required_before):
        rule, source = match.rule, match.source
        scopes = _scopes(request, rule.scope)
        if not scopes:
            notes.append(Note(source, f"{_missing(rule.scope)}: not required"))
        properties, public = match.properties, match.public
        traits = [*((trait, True) for trait in rule.require), *((trait, False) for trait in rule.forbid)]
        requirements += [
            Requirement(*each, scope, source, properties=properties, public=public)
            for scope in scopes
            for each in traits
        ]
        preferences += [Preference(trait, source) for trait in rule.prefer]
    if not (requirements or notes or preferences):
        return NOTHING
    return Requirements(tuple(requirements), tuple(notes), preferences=tuple(preferences))


def _unknown_hints(request: Request, rules: RuleSet, options: Options) -> Iterator[Note]:
    """Yield notes on the hints about traits that the operator does not allow.

    :raises UnknownValue: for one of them, with ``unknown_values = reject``
    """
    for name, values in request.scheduler_hints.items():
        if not name.startswith(HINT_PREFIX):
            continue
        is_allowed = name.removeprefix(HINT_PREFIX) in rules.hint_traits
        unknown = next((value for value in values if not is_allowed or value not in HINT_VALUES), None)
        if unknown is None:
            continue
        if options.unknown_values is not UnknownValues.SKIP:
            known = HINT_VALUES if is_allowed else (f"{HINT_PREFIX}{trait}" for trait in sorted(rules.hint_traits))
            raise UnknownValue(f"hint {quote(name)}" if is_allowed else "hint", unknown if is_allowed else name, known)
        what = "unknown value" if is_allowed else "no trait that hints may name"
        yield Note(f"hint {quote(name)}={quote(unknown)}", f"{what}: not required", warn=True)


def _missing(scope: str) -> str:
    if scope == PORTS:
        return "the request has no port that requests resources"
    return f"the flavor requests no resources in the group {scope}"


def _scopes(request: Request, scope: str) -> tuple[str, ...]:
    if scope == PORTS:
        return port_groups(request)
    return (scope,) if _has_scope(request, scope) else ()


def _has_scope(request: Request, scope: str) -> bool:
    if scope == ROOT:
        return True
    # Placement refuses a group with traits and no resources.
    group = request.flavor_groups.get("" if scope == UNSUFFIXED else scope)
    if group is not None and any(group.resources.values()):
        return True
    return scope == UNSUFFIXED and _requests_by_fields(request)


def _requests_by_fields(request: Request) -> bool:
    """Return whether the flavor's own fields request resources that no extra spec requests elsewhere."""
    groups = (*request.flavor_groups.values(), *request.requested_groups.values())
    named = {name for group in groups for name in group.resources}
    return bool(
        (request.flavor_attribute("vcpus") and named.isdisjoint(("VCPU", "PCPU")))
        or (request.flavor_attribute("memory_mb") and "MEMORY_MB" not in named)
    )
