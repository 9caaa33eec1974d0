"""Require, forbid and prefer traits by operators' own rules (``[prefilter] rules_dirs``)."""

from os_prefilter.request.requirements import NOTHING, ROOT, UNSUFFIXED, Note, Preference, Requirement, Requirements
from os_prefilter.request.view import Request
from os_prefilter.rules.model import RuleSet


def rules(request: Request, *, rules: RuleSet) -> Requirements:
    """Require, forbid and prefer the traits of each rule whose conditions the request matches."""
    requirements: list[Requirement] = []
    notes: list[Note] = []
    preferences: list[Preference] = []
    for rule in rules.match(request):
        source = rule.source(request)
        if not _has_scope(request, rule.scope):
            notes.append(Note(source, f"the flavor requests no resources in the group {rule.scope}: not required"))
            continue
        properties = rule.properties(request)
        traits = [*((trait, True) for trait in rule.require), *((trait, False) for trait in rule.forbid)]
        requirements += [Requirement(*each, rule.scope, source, properties=properties) for each in traits]
        preferences += [Preference(trait, source) for trait in rule.prefer]
    if not (requirements or notes or preferences):
        return NOTHING
    return Requirements(tuple(requirements), tuple(notes), preferences=tuple(preferences))


def _has_scope(request: Request, scope: str) -> bool:
    if scope == ROOT:
        return True
    # Placement refuses a group with traits and no resources.
    group = request.flavor_groups.get("" if scope == UNSUFFIXED else scope)
    if group is not None and any(group.resources.values()):
        return True
    return scope == UNSUFFIXED and _requests_by_fields(request)


def _requests_by_fields(request: Request) -> bool:
    """Whether the flavor's own fields request resources that no extra spec requests elsewhere."""
    groups = (*request.flavor_groups.values(), *request.requested_groups.values())
    named = {name for group in groups for name in group.resources}
    return bool(
        (request.flavor_attribute("vcpus") and named.isdisjoint(("VCPU", "PCPU")))
        or (request.flavor_attribute("memory_mb") and "MEMORY_MB" not in named)
    )
