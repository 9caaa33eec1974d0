# SPDX-License-Identifier: Apache-2.0

"""The query of a request: ``GET /allocation_candidates``.

The translation is Nova's (``nova/scheduler/utils.py``, ``ResourceRequest``),
so that another scheduler sends Placement the query that Nova would send. Send
it with :data:`MICROVERSION`; 1.36 is enough, as no trait of it has ``in:``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple
from urllib.parse import urlencode

from os_prefilter.common.errors import ImpossibleCombination, MalformedRequest
from os_prefilter.common.placement_values import (
    LARGEST_AMOUNT,
    is_resource_class,
    is_uuid,
    resource_amount,
)
from os_prefilter.common.quoting import quote
from os_prefilter.common.trait_names import is_trait_name
from os_prefilter.request.named_traits import written_requirements
from os_prefilter.request.requirements import UNSUFFIXED, Requirement
from os_prefilter.request.resources import unsuffixed_resources
from os_prefilter.request.row_requirements import require_rows
from os_prefilter.request.spec import RequestGroup
from os_prefilter.request.values import rows_of, value_of
from os_prefilter.request.view import Request
from os_prefilter.vocabulary import BY_NAME
from os_prefilter.vocabulary.model import UnknownValues
from os_prefilter.vocabulary.options import Options

MICROVERSION = "1.39"
"""The Placement API microversion that the query is written for."""

_SUFFIX_CHARACTERS = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
)


# -- what a request requires without any filter
# -----------------------------------------------------------------------------

BY_REQUEST = "request"
"""``Requirement.filter`` of what flavor, image or groups require."""

# A value that Nova does not know is an error there, and here: the query must
# not require less than the user did.
_AS_NOVA = Options(unknown_values=UnknownValues.REJECT)

# Nova's query requires secure boot with a BIOS, too: that this makes no
# sense, filters and the late check say.
_SECURE_BOOT = BY_NAME["secure_boot"]
_SECURE_BOOT_WITH_ANY_FIRMWARE = replace(_SECURE_BOOT, constraints={})

_ENCRYPTION_MODEL = BY_NAME["mem_encryption_model"]
_MACHINE = "hw_machine_type"


def requirements_without_filters(request: Request) -> tuple[Requirement, ...]:
    """Return all that a request requires or forbids without any filter.

    Traits, with their sources.

    :raises RequestRejected: for a value that Nova would reject, or a flavor
        and an image that contradict each other.
    """
    rows = [
        _SECURE_BOOT_WITH_ANY_FIRMWARE if row is _SECURE_BOOT else row
        for row in rows_of(request, "query")
    ]
    requirements = (
        *written_requirements(request),
        *require_rows(request, rows, _AS_NOVA, UNSUFFIXED).requirements,
    )
    machine = request.image_property(_MACHINE)
    # As Nova refuses it: by a part of the machine type's name, and only if it
    # has one. An unknown model was refused above.
    if (
        machine is not None
        and "q35" not in str(machine)
        and (model := value_of(request, _ENCRYPTION_MODEL))
    ):
        raise ImpossibleCombination(
            str(model.source), f"image property {_MACHINE}={quote(machine)}"
        )
    return tuple(item._replace(filter=BY_REQUEST) for item in requirements)


# -- the query
# -----------------------------------------------------------------------------


class Query(NamedTuple):
    """The query of a request, checked.

    It is rendered to a URL here, and to conditions on a host by the tools.
    """

    groups: Mapping[str, RequestGroup]
    """The request groups by suffix, the unsuffixed one under ``""``."""
    root_required: frozenset[str]
    root_forbidden: frozenset[str]
    same_subtree: tuple[tuple[str, ...], ...]
    """Suffixes of groups that must come from one subtree.

    None of the lists is empty, which Placement refuses.
    """
    policy: str | None
    """``none`` or ``isolate``; None where the query has no ``group_policy``.
    """


def query_of(request_spec: Any) -> Query:
    """Return the query of a request, checked.

    :raises RequestRejected: if part of the request cannot be put into a query.
    """
    request = Request(request_spec)
    groups = query_groups(request)
    _check(
        (*request.root_required, *request.root_forbidden),
        is_trait_name,
        "a trait name of A-Z, 0-9 and _",
    )
    _check(
        chain.from_iterable(request.same_subtree), _is_suffix, "a group suffix"
    )
    for group in groups.values():
        aggregates = chain(*group.aggregates, group.forbidden_aggregates)
        _check(aggregates, is_uuid, "the UUID of an aggregate")
        _check(
            [group.in_tree] if group.in_tree else (),
            is_uuid,
            "the UUID of a provider",
        )
    subtrees = tuple(
        sorted(
            tuple(sorted(suffixes))
            for suffixes in request.same_subtree
            if suffixes
        )
    )
    return Query(
        groups,
        request.root_required,
        request.root_forbidden,
        subtrees,
        _group_policy(request, groups),
    )


def allocation_candidates_query(
    request_spec: Any, limit: int | None = 1000
) -> str:
    """Return the query string, urlencoded and deterministic.

    Equal requests give equal strings.

    :param limit: the maximum number of candidates; None for all.
    :raises RequestRejected: if part of the request cannot be put into a query.
    :raises ValueError: if the limit is not a whole number of at least 1.
    """
    return query_string(query_of(request_spec), limit)


def query_string(query: Query, limit: int | None = None) -> str:
    """Return a query as :func:`allocation_candidates_query` does."""
    parameters: list[tuple[str, str]] = []
    if limit is not None:
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise ValueError(
                f"limit is {limit!r}; expected a whole number of at least 1,"
                " or None"
            )
        parameters.append(("limit", str(limit)))
    if query.policy:
        parameters.append(("group_policy", query.policy))
    if root := _join_traits(query.root_required, query.root_forbidden):
        parameters.append(("root_required", root))
    parameters += [
        ("same_subtree", ",".join(suffixes)) for suffixes in query.same_subtree
    ]
    for group in query.groups.values():
        parameters += _group_parameters(group)
    return urlencode(sorted(parameters))


def _check(
    values: Iterable[str], is_valid: Callable[[str], bool], expected: str
) -> None:
    for value in values:
        if not is_valid(value):
            raise MalformedRequest("request spec", value, expected)


def query_groups(request: Request) -> dict[str, RequestGroup]:
    """Return the request groups of the query, by suffix.

    :raises RequestRejected: if part of the request cannot be put into a query.
    """
    groups = dict(request.flavor_groups)
    for suffix, requested in request.requested_groups.items():
        if suffix in groups or not _is_suffix(suffix):
            raise MalformedRequest(
                "requested_resources: the requester_id",
                suffix,
                "a unique suffix of 1 to 64 of a-z A-Z 0-9 _ -",
            )
        groups[suffix] = _check_requested(requested)
    destination = request.destination
    aggregates = [each.split(",") for each in destination.aggregates or ()]
    groups[""] = RequestGroup(
        "",
        unsuffixed_resources(request),
        aggregates=aggregates,
        forbidden_aggregates=set(destination.forbidden_aggregates or ()),
        in_tree=destination.in_tree,
    )
    traits: dict[tuple[str, bool], set[str]] = {}
    for item in requirements_without_filters(request):
        suffix = "" if item.scope == UNSUFFIXED else item.scope
        traits.setdefault((suffix, item.required), set()).add(item.trait)
    found = {}
    for suffix, group in groups.items():
        resources = {
            name: group.resources[name] for name in group.resource_classes
        }
        complete = replace(
            group,
            resources=resources,
            required_traits=traits.get((suffix, True), set()),
            forbidden_traits=traits.get((suffix, False), set()),
        )
        if not _is_empty(complete):
            found[suffix] = complete
    return found


def _check_requested(group: RequestGroup) -> RequestGroup:
    amounts: dict[str, int] = {}
    for name, value in group.resources.items():
        amount = resource_amount(value)
        if (
            not is_resource_class(name)
            or amount is None
            or not 0 <= amount <= LARGEST_AMOUNT
        ):
            raise MalformedRequest(
                "requested_resources",
                f"{name}:{value}",
                "a resource class and an amount",
            )
        amounts[name] = amount
    if _is_empty(group):
        # As in Nova: its requester wants something.
        raise MalformedRequest(
            "requested_resources",
            group.requester_id,
            "a group that requests anything",
        )
    return replace(group, resources=amounts)


def _is_empty(group: RequestGroup) -> bool:
    return not (
        group.resources
        or group.required_traits
        or group.forbidden_traits
        or group.aggregates
        or group.forbidden_aggregates
    )


def _group_policy(request: Request, groups: Collection[str]) -> str | None:
    """Return the ``group_policy`` of the query; None if it has none."""
    policy = request.extra_spec("group_policy")
    if policy in ("none", "isolate"):
        return str(policy)
    suffixed = len(set(groups) - {""})
    from_flavor = len(request.flavor_groups.keys() - {""})
    # As Nova: two groups need a policy; only where the flavor wrote both
    # itself is it the flavor's to say which.
    return "none" if suffixed > 1 and from_flavor <= 1 else None


# -- parameters
# -----------------------------------------------------------------------------


def _group_parameters(group: RequestGroup) -> Iterator[tuple[str, str]]:
    suffix = group.requester_id
    if group.resources:
        # Sorted as Nova sorts them: with their amounts.
        yield (
            f"resources{suffix}",
            ",".join(
                sorted(
                    f"{name}:{amount}"
                    for name, amount in group.resources.items()
                )
            ),
        )
    if traits := _join_traits(group.required_traits, group.forbidden_traits):
        yield f"required{suffix}", traits
    for aggregates in group.aggregates:
        yield f"member_of{suffix}", "in:" + ",".join(sorted(aggregates))
    if group.forbidden_aggregates:
        yield (
            f"member_of{suffix}",
            "!in:" + ",".join(sorted(group.forbidden_aggregates)),
        )
    if group.in_tree:
        yield f"in_tree{suffix}", group.in_tree


def _join_traits(required: Collection[str], forbidden: Collection[str]) -> str:
    return ",".join(
        [*sorted(required), *(f"!{trait}" for trait in sorted(forbidden))]
    )


def _is_suffix(value: object) -> bool:
    return (
        isinstance(value, str)
        and 0 < len(value) <= 64  # noqa: PLR2004
        and set(value) <= _SUFFIX_CHARACTERS
    )
