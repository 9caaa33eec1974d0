# SPDX-License-Identifier: Apache-2.0

"""Write requirements into a RequestSpec-like object, all or nothing.

All is checked and prepared first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from os_prefilter.common import errors
from os_prefilter.common.placement_values import is_uuid
from os_prefilter.common.quoting import quote
from os_prefilter.common.trait_names import is_trait_name
from os_prefilter.request.extra_specs import (
    regroup,
    respell_preferences,
    trait_key,
)
from os_prefilter.request.fields import clone_of, field_of
from os_prefilter.request.named_traits import written_requirements
from os_prefilter.request.requirements import (
    ROOT,
    UNSUFFIXED,
    AggregateRequirement,
    Preference,
    Requirement,
)
from os_prefilter.request.spec import Destination, RequestGroup
from os_prefilter.request.view import Request

LOG = logging.getLogger(__name__)

# nova/objects/request_spec.py: the version that has forbidden aggregates.
_DESTINATION = ("Destination", "1.4")


class Additions(NamedTuple):
    """The changes to a request spec."""

    root_required: tuple[str, ...]
    root_forbidden: tuple[str, ...]
    in_groups: tuple[Requirement, ...] = ()
    """Of the groups of ports, device profiles and PCI devices."""
    extra_specs: Mapping[str, Any] | None = None
    """Those of the flavor, with all that is added; None if nothing is."""
    aggregates: tuple[AggregateRequirement, ...] = ()
    draft: Any = None
    """A copy of the request spec that takes its place first.

    With what filters written the Nova way changed.
    """


NO_ADDITIONS = Additions((), ())


def prepare(
    request: Request,
    requirements: Iterable[Requirement],
    own_groups: Iterable[RequestGroup],
    preferences: Iterable[Preference] = (),
    aggregates: Iterable[AggregateRequirement] = (),
) -> Additions:
    """Return what requirements add to a request spec, once checked.

    Preferences add nothing.

    :raises ContradictingRequirements: if a trait is required and forbidden in
        one scope.
    :raises ContradictingAggregates: if all aggregates of which the host must
        be in one are forbidden.
    :raises FilterFailed: if a filter returned a malformed trait or aggregate,
        or a group that the request lacks.
    """
    aggregates = tuple(aggregates)
    _check_aggregates(aggregates)
    requirements, own_groups, preferences = (
        tuple(requirements),
        tuple(own_groups),
        tuple(preferences),
    )
    named: tuple[Requirement | Preference, ...] = (*requirements, *preferences)
    for item in named:
        if not is_trait_name(item.trait):
            raise errors.FilterFailed(
                item.filter,
                ValueError("it returned something that is not a trait name"),
            )
    _check(request, requirements, own_groups)
    before = request.extra_specs
    extra_specs = before
    # Rare: for each request, it took most of the time of this function.
    if preferences or own_groups:
        preferred = {item.trait for item in preferences}
        respelled = respell_preferences(before, preferred)
        extra_specs = regroup(respelled, own_groups)
    in_flavor: dict[str, str] = {}
    root_required: list[str] = []
    root_forbidden: list[str] = []
    in_groups: list[Requirement] = []
    for each in requirements:
        if each.scope == ROOT:
            on_root = root_required if each.required else root_forbidden
            on_root.append(each.trait)
        elif each.scope in request.requested_groups:
            in_groups.append(each)
        else:
            suffix = "" if each.scope == UNSUFFIXED else each.scope
            value = "required" if each.required else "forbidden"
            in_flavor[trait_key(each.trait, suffix)] = value
    if in_flavor:
        extra_specs = {**extra_specs, **in_flavor}
    return Additions(
        tuple(root_required),
        tuple(root_forbidden),
        tuple(in_groups),
        None if extra_specs == before else extra_specs,
        aggregates,
    )


def _check_aggregates(aggregates: tuple[AggregateRequirement, ...]) -> None:
    forbidden: dict[str, AggregateRequirement] = {}
    for item in aggregates:
        if not item.aggregates or not all(map(is_uuid, item.aggregates)):
            raise errors.FilterFailed(
                item.filter,
                ValueError(
                    "it returned something that is not the UUID of an"
                    " aggregate"
                ),
            )
        if not item.required:
            forbidden |= dict.fromkeys(item.aggregates, item)
    for item in aggregates:
        if item.required and forbidden.keys() >= set(item.aggregates):
            other = forbidden[item.aggregates[0]]
            # The author of the request reads the error: it has neither names
            # nor traits of others' aggregates.
            LOG.info(
                "Rejected a request: of %s and %s no host is left.",
                item,
                other,
            )
            raise errors.ContradictingAggregates(
                f"{item.filter}: {item.source}",
                f"{other.filter}: {other.source}",
            )


def _check(
    request: Request,
    requirements: tuple[Requirement, ...],
    own_groups: tuple[RequestGroup, ...],
) -> None:
    known: dict[tuple[str, str, bool], str | Requirement]
    known = {
        (ROOT, trait, True): "the request spec's root_required"
        for trait in request.root_required
    }
    known |= {
        (ROOT, trait, False): "the request spec's root_forbidden"
        for trait in request.root_forbidden
    }
    if any(item.scope != ROOT for item in requirements):
        new_groups = {group.requester_id for group in own_groups}
        groups = {
            ROOT,
            UNSUFFIXED,
            *request.flavor_groups,
            *request.requested_groups,
            *new_groups,
        }
        for item in requirements:
            if item.scope not in groups:
                raise errors.FilterFailed(
                    item.filter,
                    ValueError(f"the request has no group {item.scope!r}"),
                )
        known |= {
            (each.scope, each.trait, each.required): each.source
            for each in written_requirements(request)
        }
    for item in requirements:
        against = known.get((item.scope, item.trait, not item.required))
        if against is not None:
            by, forbidden = map(
                _source_of,
                (item, against) if item.required else (against, item),
            )
            raise errors.ContradictingRequirements(
                item.trait, item.scope, by, forbidden, requirements
            )
        known[item.scope, item.trait, item.required] = item


def _source_of(item: str | Requirement) -> str:
    # The author of the request reads it.
    return (
        item
        if isinstance(item, str)
        else f"{item.filter}: {item.public or item.source}"
    )


def write(new: Additions, request_spec: Any) -> None:
    """Add to the request spec; all or nothing.

    To its root traits, its groups, or clones of its flavor and destination.

    What the user chose may be stored by the scheduler, so neither the flavor
    nor the destination itself is changed.

    :raises UnsuitableRequestSpec: if there is no place to write to.
    """
    if new.draft is not None:
        # Into the copy first: where that fails, the request spec is as it was.
        write(new._replace(draft=None), new.draft)
        state = vars(request_spec)
        drafted = vars(new.draft)
        removed = state.keys() - drafted.keys()
        state.update(drafted)
        for name in removed:
            del state[name]
        return
    try:
        # Read once: with Nova's objects each is a property that goes through
        # others.
        require = (
            request_spec.root_required.update if new.root_required else None
        )
        forbid = (
            request_spec.root_forbidden.update if new.root_forbidden else None
        )
        elsewhere = (
            new.in_groups or new.extra_specs is not None or new.aggregates
        )
        for step in _steps(new, request_spec) if elsewhere else ():
            step()
    except Exception as error:
        # Nova's objects raise errors of their own for fields that are not set.
        raise errors.UnsuitableRequestSpec(
            request_spec, f"{type(error).__name__}: {quote(str(error))}"
        ) from error
    if require:
        require(new.root_required)
    if forbid:
        forbid(new.root_forbidden)


def _steps(new: Additions, request_spec: Any) -> list[Callable[[], object]]:
    """Return the steps that write what is not on the root.

    None but the first can fail.
    """
    steps: list[Callable[[], object]] = []
    clones: dict[str, Any] = {}
    if new.aggregates:
        clones["requested_destination"] = _destination_with(
            new.aggregates, request_spec
        )
    groups = {
        group.requester_id: group
        for group in field_of(request_spec, "requested_resources", ())
    }
    for item in new.in_groups:
        group = groups[item.scope]
        traits = group.forbidden_traits
        if item.required:
            traits = group.required_traits
        steps.append(partial(traits.add, item.trait))
    if new.extra_specs is not None:
        flavor = clone_of(request_spec.flavor)
        # Decisions are cached: each request gets a dictionary of its own.
        flavor.extra_specs = dict(new.extra_specs)
        clones["flavor"] = flavor
    # Before the others: a request spec whose flavor cannot be assigned shows
    # it here.
    return [partial(_assign, request_spec, clones), *steps]


def _assign(request_spec: Any, parts: Mapping[str, Any]) -> None:
    """Assign all fields, or none."""
    before: dict[str, Any] = {}
    try:
        for name, value in parts.items():
            old = field_of(request_spec, name)
            setattr(request_spec, name, value)
            before[name] = old
    except Exception:
        for name, value in before.items():
            setattr(request_spec, name, value)
        raise


def _destination_with(
    aggregates: Iterable[AggregateRequirement], request_spec: Any
) -> Any:
    """Return a clone of the destination with more aggregates.

    They are added as Nova's ``require_aggregates`` does it.
    """
    destination = field_of(request_spec, "requested_destination")
    if destination is not None:
        destination = clone_of(destination)
    elif hasattr(request_spec, "obj_class_from_name"):
        destination = request_spec.obj_class_from_name(*_DESTINATION)()
    else:
        destination = Destination()
    required = list(field_of(destination, "aggregates", ()))
    known = {frozenset(each.split(",")) for each in required}
    # A second time it changes nothing.
    new = [
        item.aggregates
        for item in aggregates
        if item.required and frozenset(item.aggregates) not in known
    ]
    forbidden = {
        uuid
        for item in aggregates
        if not item.required
        for uuid in item.aggregates
    }
    if new:
        destination.aggregates = [
            *required,
            *map(",".join, dict.fromkeys(new)),
        ]
    if forbidden:
        destination.forbidden_aggregates = forbidden.union(
            field_of(destination, "forbidden_aggregates", ())
        )
    return destination
