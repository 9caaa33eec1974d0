"""Write requirements into a RequestSpec-like object: all is checked and prepared first, then all is written."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from os_prefilter.common.errors import ContradictingRequirements, FilterFailed, UnsuitableRequestSpec
from os_prefilter.common.quoting import quote
from os_prefilter.common.trait_names import is_trait_name
from os_prefilter.request.extra_specs import regroup, respell_preferences, trait_key
from os_prefilter.request.requirements import ROOT, UNSUFFIXED, Preference, Requirement
from os_prefilter.request.row_values import written_requirements
from os_prefilter.request.spec import RequestGroup
from os_prefilter.request.view import Request, clone_of, field_of


class Additions(NamedTuple):
    """What is to be added to a request spec."""

    root_required: tuple[str, ...]
    root_forbidden: tuple[str, ...]
    in_groups: tuple[Requirement, ...]
    own_groups: tuple[RequestGroup, ...]
    """Groups of the flavor into which resource classes of the unsuffixed group move."""
    respelled: frozenset[str] = frozenset()
    """The traits that are preferred, if the flavor has ``trait:NAME=preferred`` for one."""


def prepare(
    request: Request,
    requirements: Iterable[Requirement],
    own_groups: Iterable[RequestGroup],
    preferences: Iterable[Preference] = (),
) -> Additions:
    """Return what requirements add to the request spec of a request; preferences add nothing.

    :raises ContradictingRequirements: if a trait is required and forbidden in one scope.
    :raises FilterFailed: if a filter returned a malformed trait, or a group that the request does not have.
    """
    requirements, own_groups, preferences = tuple(requirements), tuple(own_groups), tuple(preferences)
    _check(request, requirements, own_groups)
    for item in preferences:
        _check_name(item)
    preferred = frozenset(item.trait for item in preferences)
    has_to_respell = preferred and respell_preferences(request.extra_specs, preferred) != request.extra_specs
    return Additions(
        tuple(item.trait for item in requirements if item.scope == ROOT and item.required),
        tuple(item.trait for item in requirements if item.scope == ROOT and not item.required),
        tuple(item for item in requirements if item.scope != ROOT),
        own_groups,
        preferred if has_to_respell else frozenset(),
    )


def _check_name(item: Requirement | Preference) -> None:
    if not is_trait_name(item.trait):
        raise FilterFailed(item.filter, ValueError("it returned something that is not a trait name"))


def _check(request: Request, requirements: tuple[Requirement, ...], own_groups: tuple[RequestGroup, ...]) -> None:
    known = {(ROOT, trait, True): "the request spec's root_required" for trait in request.root_required}
    known |= {(ROOT, trait, False): "the request spec's root_forbidden" for trait in request.root_forbidden}
    if any(item.scope != ROOT for item in requirements):
        new_groups = {group.requester_id for group in own_groups}
        groups = {ROOT, UNSUFFIXED, *request.flavor_groups, *request.requested_groups, *new_groups}
        for item in requirements:
            if item.scope not in groups:
                raise FilterFailed(item.filter, ValueError(f"the request has no group {item.scope!r}"))
        known |= {(item.scope, item.trait, item.required): item.source for item in written_requirements(request)}
    for item in requirements:
        _check_name(item)
        source = f"{item.filter}: {item.source}"
        against = known.get((item.scope, item.trait, not item.required))
        if against is not None:
            by, forbidden = (source, against) if item.required else (against, source)
            raise ContradictingRequirements(item.trait, item.scope, by, forbidden)
        known[item.scope, item.trait, item.required] = source


def write(new: Additions, request_spec: Any) -> None:
    """Add to the request spec: to its root traits, its groups, or a clone of its flavor; all of it, or nothing.

    What the user chose may be stored by the scheduler, so the flavor itself is never changed.

    :raises UnsuitableRequestSpec: if there is no place to write to.
    """
    try:
        # Read once: with Nova's objects each is a property that goes through others.
        require = request_spec.root_required.update if new.root_required else None
        forbid = request_spec.root_forbidden.update if new.root_forbidden else None
        for step in _steps(new, request_spec) if new.in_groups or new.own_groups or new.respelled else ():
            step()
    except Exception as error:
        # Nova's objects raise errors of their own for fields that are not set.
        raise UnsuitableRequestSpec(request_spec, f"{type(error).__name__}: {quote(str(error))}") from error
    if require:
        require(new.root_required)
    if forbid:
        forbid(new.root_forbidden)


def _steps(new: Additions, request_spec: Any) -> list[Callable[[], object]]:
    """Return the steps that write what is not on the root, of which none but the first can fail."""
    steps: list[Callable[[], object]] = []
    in_flavor: dict[str, str] = {}
    groups = {group.requester_id: group for group in field_of(request_spec, "requested_resources", ())}
    for item in new.in_groups:
        if item.scope in groups:
            group = groups[item.scope]
            steps.append(partial((group.required_traits if item.required else group.forbidden_traits).add, item.trait))
        else:
            suffix = "" if item.scope == UNSUFFIXED else item.scope
            in_flavor[trait_key(item.trait, suffix)] = "required" if item.required else "forbidden"
    if in_flavor or new.own_groups or new.respelled:
        flavor = clone_of(request_spec.flavor)
        before = field_of(flavor, "extra_specs", {})
        respelled = respell_preferences(before, new.respelled) if new.respelled else before
        flavor.extra_specs = {**regroup(respelled, new.own_groups), **in_flavor}
        # Before the others: a request spec whose flavor cannot be assigned shows it here.
        steps.insert(0, lambda: setattr(request_spec, "flavor", flavor))
    return steps
