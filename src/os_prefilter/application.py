"""Writing requirements into a RequestSpec-like object: first all is checked and prepared, then all is written."""

import copy
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from os_prefilter.errors import ContradictingRequirements, FilterFailed, UnsuitableRequestSpec
from os_prefilter.extra_specs import resource_key, trait_key
from os_prefilter.request import Request, raw_groups
from os_prefilter.requirements import ROOT, UNSUFFIXED, OwnGroup, Requirement
from os_prefilter.stated import written_requirements
from os_prefilter.terms import is_trait_name
from os_prefilter.texts import shown
from os_prefilter.versioned import field_of

_Key = tuple[str, str, bool]


def apply_requirements(
    requirements: Iterable[Requirement], request_spec: Any, request: Request, own_groups: Iterable[OwnGroup] = ()
) -> None:
    """Add requirements to the request spec: to its root traits, its groups, or a clone of its flavor.

    :param own_groups: the resource classes that the clone asks for in a group of their own.

    What the user chose may be stored by the scheduler, so the flavor itself is never changed.

    :raises ContradictingRequirements: if a trait is required and forbidden in one scope.
    :raises FilterFailed: if a filter answered with a malformed trait, or a group that the request does not have.
    :raises UnsuitableRequestSpec: if there is no place to write them to.
    """
    requirements, own_groups = tuple(requirements), tuple(own_groups)
    _check(requirements, request_spec, request, {group.suffix for group in own_groups})
    try:
        steps = _prepared(requirements, request_spec, own_groups)
    except Exception as error:
        # Nova's objects raise errors of their own for fields that are not set.
        raise UnsuitableRequestSpec(request_spec, f"{type(error).__name__}: {shown(str(error))}") from error
    for step in steps:
        step()


def _check(requirements: tuple[Requirement, ...], request_spec: Any, request: Request, new_groups: set[str]) -> None:
    known = _known(request_spec)
    if any(item.scope != ROOT for item in requirements):
        groups = {ROOT, UNSUFFIXED, *request.flavor_groups, *request.requested_groups, *new_groups}
        for item in requirements:
            if item.scope not in groups:
                raise FilterFailed(item.filter, ValueError(f"the request has no group {item.scope!r}"))
        known |= {(item.scope, item.trait, item.required): item.source for item in written_requirements(request)}
    for item in requirements:
        if not is_trait_name(item.trait):
            raise FilterFailed(item.filter, ValueError("it answered with something that is not a trait name"))
        against = known.get((item.scope, item.trait, not item.required))
        if against is not None:
            sources = f"{item.filter}: {item.source}", against
            by, forbidden = sources if item.required else reversed(sources)
            raise ContradictingRequirements(item.trait, item.scope, by, forbidden)
        known[item.scope, item.trait, item.required] = f"{item.filter}: {item.source}"


def _known(request_spec: Any) -> dict[_Key, str]:
    """Return what the root must have and must not have already, with its source."""
    params = field_of(request_spec, "request_level_params")
    return {
        (ROOT, trait, required): f"the request spec's {name}"
        for required, name in ((True, "root_required"), (False, "root_forbidden"))
        for trait in field_of(params, name, ())
    }


def _prepared(
    requirements: tuple[Requirement, ...], request_spec: Any, own_groups: tuple[OwnGroup, ...]
) -> list[Callable[[], object]]:
    """Return the steps that write the requirements, none of which can fail."""
    steps: list[Callable[[], object]] = []
    in_flavor: dict[str, str] = {}
    groups = raw_groups(request_spec) if any(item.scope != ROOT for item in requirements) else {}
    # Read once: with Nova's objects each is a property that goes through others.
    root_required, root_forbidden = request_spec.root_required, request_spec.root_forbidden
    for item in requirements:
        if item.scope == ROOT:
            target = root_required if item.required else root_forbidden
        elif item.scope in groups:
            group = groups[item.scope]
            target = group.required_traits if item.required else group.forbidden_traits
        else:
            suffix = "" if item.scope == UNSUFFIXED else item.scope
            in_flavor[trait_key(item.trait, suffix)] = "required" if item.required else "forbidden"
            continue
        steps.append(partial(target.add, item.trait))
    if in_flavor or own_groups:
        flavor = copy.deepcopy(request_spec.flavor)
        flavor.extra_specs = {**_regrouped(field_of(flavor, "extra_specs", {}), own_groups), **in_flavor}
        # Before the others: a request spec that cannot be written to shows it here.
        steps.insert(0, lambda: setattr(request_spec, "flavor", flavor))
    return steps


def _regrouped(extra_specs: Mapping[str, str], own_groups: tuple[OwnGroup, ...]) -> dict[str, str]:
    regrouped = dict(extra_specs)
    for name, suffix, forbidden in own_groups:
        regrouped[resource_key(name, suffix)] = regrouped.pop(resource_key(name, ""))
        regrouped |= {trait_key(trait, suffix): "forbidden" for trait in forbidden}
    return regrouped
