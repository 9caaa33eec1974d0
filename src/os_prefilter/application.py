"""Writing requirements into a RequestSpec-like object: first everything is checked, then everything is written."""

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from os_prefilter.errors import ContradictingRequirements, FilterFailed
from os_prefilter.extra_specs import trait_key
from os_prefilter.query import stated_requirements
from os_prefilter.request import Request, field_of
from os_prefilter.requirements import ROOT, UNSUFFIXED, Requirement
from os_prefilter.vocabulary import is_trait_name


def check(requirements: Iterable[Requirement], request_spec: Any, request: Request) -> None:
    """Raise if the requirements contradict each other or the request.

    :raises ContradictingRequirements: if a trait is required and forbidden in one scope.
    :raises FilterFailed: if a filter answered with a malformed trait, or a group that the request does not have.
    """
    requirements = tuple(requirements)
    known: dict[tuple[str, str, bool], str] = {}
    scopes = {item.scope for item in requirements}
    if scopes - {ROOT}:
        groups = {ROOT, UNSUFFIXED, *request.flavor_groups, *request.requested_groups}
        for item in requirements:
            if item.scope not in groups:
                raise FilterFailed(item.filter, ValueError(f"the request has no group {item.scope!r}"))
        known = {
            (item.scope, str(item.trait), item.required): item.source for item in stated_requirements(request).asked
        }
    params = field_of(request_spec, "request_level_params")
    known |= {
        (ROOT, trait, True): "the request spec's root_required" for trait in field_of(params, "root_required", ())
    }
    known |= {
        (ROOT, trait, False): "the request spec's root_forbidden" for trait in field_of(params, "root_forbidden", ())
    }
    for item in requirements:
        if not is_trait_name(item.trait):
            raise FilterFailed(item.filter, ValueError("it answered with something that is not a trait name"))
        key = (item.scope, str(item.trait), item.required)
        known.setdefault(key, f"{item.filter}: {item.source}")
        against = known.get((item.scope, str(item.trait), not item.required))
        if against:
            by, forbidden = (known[key], against) if item.required else (against, known[key])
            raise ContradictingRequirements(item.trait, item.scope, by, forbidden)


def write(requirements: Iterable[Requirement], request_spec: Any, request: Request) -> None:
    """Add checked requirements to the request spec: to its root traits, its groups, or a clone of its flavor.

    What the user chose may be stored by the scheduler, so the flavor itself is never changed.
    """
    in_flavor: dict[str, str] = {}
    groups: Mapping[str, Any] | None = None
    for item in requirements:
        if item.scope == ROOT:
            (request_spec.root_required if item.required else request_spec.root_forbidden).add(item.trait)
            continue
        groups = request.requested_groups if groups is None else groups
        group = groups.get(item.scope)
        if group is not None:
            (group.required_traits if item.required else group.forbidden_traits).add(item.trait)
        else:
            suffix = "" if item.scope == UNSUFFIXED else item.scope
            in_flavor[trait_key(item.trait, suffix)] = "required" if item.required else "forbidden"
    if in_flavor:
        flavor = copy.deepcopy(request_spec.flavor)
        flavor.extra_specs = {**field_of(flavor, "extra_specs", {}), **in_flavor}
        request_spec.flavor = flavor
