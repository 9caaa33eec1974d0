"""Writing requirements into a RequestSpec-like object: first all is checked and prepared, then all is written."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from os_prefilter.common.quoting import quote
from os_prefilter.errors import ContradictingRequirements, FilterFailed, UnsuitableRequestSpec
from os_prefilter.request.extra_specs import regrouped, trait_key
from os_prefilter.request.named_traits import written_requirements
from os_prefilter.request.nova_objects import clone_of, field_of
from os_prefilter.request.requirements import ROOT, UNSUFFIXED, OwnGroup, Requirement
from os_prefilter.request.view import Request, raw_groups
from os_prefilter.vocabulary.model import is_trait_name

_Key = tuple[str, str, bool]


class Additions(NamedTuple):
    """What is to be added to a request spec."""

    root_required: tuple[str, ...] = ()
    root_forbidden: tuple[str, ...] = ()
    in_groups: tuple[Requirement, ...] = ()
    own_groups: tuple[OwnGroup, ...] = ()
    """The resource classes that the flavor asks for in a group of their own."""


def additions(requirements: Iterable[Requirement], own_groups: Iterable[OwnGroup] = ()) -> Additions:
    """Return what requirements add to a request spec, whichever it is."""
    requirements = tuple(requirements)
    return Additions(
        tuple(item.trait for item in requirements if item.scope == ROOT and item.required),
        tuple(item.trait for item in requirements if item.scope == ROOT and not item.required),
        tuple(item for item in requirements if item.scope != ROOT),
        tuple(own_groups),
    )


def check(
    requirements: Iterable[Requirement], request_spec: Any, request: Request, own_groups: Iterable[OwnGroup] = ()
) -> None:
    """Raise an error unless requirements can be added to a request spec.

    :raises ContradictingRequirements: if a trait is required and forbidden in one scope.
    :raises FilterFailed: if a filter answered with a malformed trait, or a group that the request does not have.
    """
    requirements = tuple(requirements)
    known = _known(request_spec)
    if any(item.scope != ROOT for item in requirements):
        new_groups = {group.suffix for group in own_groups}
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


def add(new: Additions, request_spec: Any) -> None:
    """Add to the request spec: to its root traits, its groups, or a clone of its flavor; all of it, or nothing.

    What the user chose may be stored by the scheduler, so the flavor itself is never changed.

    :raises UnsuitableRequestSpec: if there is no place to write to.
    """
    try:
        # Read once: with Nova's objects each is a property that goes through others.
        require = request_spec.root_required.update if new.root_required else None
        forbid = request_spec.root_forbidden.update if new.root_forbidden else None
        for step in _in_groups(new, request_spec) if new.in_groups or new.own_groups else ():
            step()
    except Exception as error:
        # Nova's objects raise errors of their own for fields that are not set.
        raise UnsuitableRequestSpec(request_spec, f"{type(error).__name__}: {quote(str(error))}") from error
    if require:
        require(new.root_required)
    if forbid:
        forbid(new.root_forbidden)


def _known(request_spec: Any) -> dict[_Key, str]:
    """Return what the root must have and must not have already, with its source."""
    params = field_of(request_spec, "request_level_params")
    return {
        (ROOT, trait, required): f"the request spec's {name}"
        for required, name in ((True, "root_required"), (False, "root_forbidden"))
        for trait in field_of(params, name, ())
    }


def _in_groups(new: Additions, request_spec: Any) -> list[Callable[[], object]]:
    """Return the steps that write what is not on the root, of which none but the first can fail."""
    steps: list[Callable[[], object]] = []
    in_flavor: dict[str, str] = {}
    groups = raw_groups(request_spec)
    for item in new.in_groups:
        if item.scope in groups:
            group = groups[item.scope]
            steps.append(partial((group.required_traits if item.required else group.forbidden_traits).add, item.trait))
        else:
            suffix = "" if item.scope == UNSUFFIXED else item.scope
            in_flavor[trait_key(item.trait, suffix)] = "required" if item.required else "forbidden"
    if in_flavor or new.own_groups:
        flavor = clone_of(request_spec.flavor)
        flavor.extra_specs = {**_in_own_groups(field_of(flavor, "extra_specs", {}), new.own_groups), **in_flavor}
        # Before the others: a request spec whose flavor cannot be assigned shows it here.
        steps.insert(0, lambda: setattr(request_spec, "flavor", flavor))
    return steps


def _in_own_groups(extra_specs: Mapping[str, str], own_groups: tuple[OwnGroup, ...]) -> dict[str, str]:
    found = dict(extra_specs)
    for name, suffix, forbidden in own_groups:
        found = regrouped(found, name, suffix)
        found |= {trait_key(trait, suffix): "forbidden" for trait in forbidden}
    return found
