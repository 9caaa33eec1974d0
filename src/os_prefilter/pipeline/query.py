"""From a RequestSpec-like object to the query string of ``GET /allocation_candidates``.

The translation is Nova's (``nova/scheduler/utils.py``, ``ResourceRequest``), so that another scheduler asks Placement
what Nova would ask. It needs microversion 1.36; with ``in:`` traits, which this library does not send, 1.39.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from os_prefilter.errors import MalformedRequest
from os_prefilter.filters.nova_translation import stated_requirements
from os_prefilter.request.nova_objects import field_of
from os_prefilter.request.requirements import UNSUFFIXED
from os_prefilter.request.resources import unsuffixed_resources
from os_prefilter.request.view import Request, raw_groups
from os_prefilter.vocabulary.model import is_trait_name
from os_prefilter.vocabulary.resource_classes import LARGEST_AMOUNT, is_resource_class, resource_amount

MICROVERSION = "1.39"
"""The Placement API microversion that the query is written for."""

_SUFFIX_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
_UUID_CHARACTERS = frozenset("0123456789abcdefABCDEF-")


@dataclass(slots=True)
class _Group:
    resources: dict[str, int] = field(default_factory=dict)
    required: set[str] = field(default_factory=set)
    forbidden: set[str] = field(default_factory=set)
    aggregates: list[list[str]] = field(default_factory=list)
    forbidden_aggregates: set[str] = field(default_factory=set)
    in_tree: str | None = None

    def is_empty(self) -> bool:
        return not (self.resources or self.required or self.forbidden or self.aggregates or self.forbidden_aggregates)


def allocation_candidates_query(request_spec: Any, limit: int | None = 1000) -> str:
    """Return the query string, urlencoded and deterministic: equal requests give equal strings.

    :param limit: at most so many candidates; None for all.
    :raises RequestRejected: if part of the request cannot be put into a query.
    :raises ValueError: for a limit that is none.
    """
    request = Request(request_spec)
    groups = _groups(request, request_spec)
    parameters: list[tuple[str, str]] = []
    if limit is not None:
        parameters.append(("limit", str(_limit(limit))))
    if policy := _group_policy(request, groups):
        parameters.append(("group_policy", policy))
    parameters += _request_level(request_spec)
    for suffix, group in groups.items():
        parameters += _group_parameters(suffix, group)
    return urlencode(sorted(parameters))


def _groups(request: Request, request_spec: Any) -> dict[str, _Group]:
    groups = {suffix: _Group(resources=dict(group.resources)) for suffix, group in request.flavor_groups.items()}
    for suffix, requested in raw_groups(request_spec).items():
        if suffix in groups or not _is_suffix(suffix):
            raise MalformedRequest(
                "requested_resources: the requester_id", suffix, "a unique suffix of 1 to 64 of a-z A-Z 0-9 _ -"
            )
        groups[suffix] = _requested_group(requested)
    unsuffixed = groups.setdefault("", _Group())
    unsuffixed.resources = unsuffixed_resources(request_spec, request)
    for item in stated_requirements(request):
        group = groups["" if item.scope == UNSUFFIXED else item.scope]
        (group.required if item.required else group.forbidden).add(item.trait)
    _add_destination(unsuffixed, field_of(request_spec, "requested_destination"))
    for group in groups.values():
        group.resources = {name: amount for name, amount in group.resources.items() if amount}
    return {suffix: group for suffix, group in groups.items() if not group.is_empty()}


def _requested_group(requested: Any) -> _Group:
    resources = field_of(requested, "resources", {})
    amounts: dict[str, int] = {}
    for name, value in resources.items():
        amount = resource_amount(value)
        if not is_resource_class(name) or amount is None or not 0 <= amount <= LARGEST_AMOUNT:
            raise MalformedRequest("requested_resources", f"{name}:{value}", "a resource class and an amount")
        amounts[name] = amount
    group = _Group(
        resources=amounts,
        aggregates=[list(each) for each in field_of(requested, "aggregates", ())],
        forbidden_aggregates=set(field_of(requested, "forbidden_aggregates", ())),
        in_tree=field_of(requested, "in_tree"),
    )
    if group.is_empty() and not field_of(requested, "required_traits") and not field_of(requested, "forbidden_traits"):
        # As Nova: whoever brought it meant something.
        raise MalformedRequest(
            "requested_resources", field_of(requested, "requester_id"), "a group that asks for anything"
        )
    return group


def _add_destination(group: _Group, destination: Any) -> None:
    group.aggregates = [each.split(",") for each in field_of(destination, "aggregates", ())]
    group.forbidden_aggregates = set(field_of(destination, "forbidden_aggregates", ()))
    group.in_tree = field_of(destination, "in_tree")


# -- parameters --------------------------------------------------------------------------------------------------------


def _request_level(request_spec: Any) -> list[tuple[str, str]]:
    params = field_of(request_spec, "request_level_params")
    parameters = []
    root = _signed(field_of(params, "root_required", ()), field_of(params, "root_forbidden", ()))
    if root:
        parameters.append(("root_required", root))
    parameters += [
        ("same_subtree", _joined(suffixes, _is_suffix, "a group suffix"))
        for suffixes in field_of(params, "same_subtree", ())
        # Placement refuses an empty one.
        if suffixes
    ]
    return parameters


def _group_parameters(suffix: str, group: _Group) -> Iterable[tuple[str, str]]:
    if group.resources:
        # Sorted as Nova sorts them: with their amounts.
        yield f"resources{suffix}", ",".join(sorted(f"{name}:{amount}" for name, amount in group.resources.items()))
    if traits := _signed(group.required, group.forbidden):
        yield f"required{suffix}", traits
    for aggregates in group.aggregates:
        yield f"member_of{suffix}", "in:" + _joined(aggregates, _is_uuid, "the UUID of an aggregate")
    if group.forbidden_aggregates:
        yield f"member_of{suffix}", "!in:" + _joined(group.forbidden_aggregates, _is_uuid, "the UUID of an aggregate")
    if group.in_tree:
        yield f"in_tree{suffix}", _joined([group.in_tree], _is_uuid, "the UUID of a provider")


def _signed(required: Collection[str], forbidden: Collection[str]) -> str:
    for trait in (*required, *forbidden):
        if not is_trait_name(trait):
            raise MalformedRequest("request spec", trait, "a trait name of A-Z, 0-9 and _")
    return ",".join([*sorted(required), *(f"!{trait}" for trait in sorted(forbidden))])


def _joined(values: Collection[str], is_valid: Callable[[object], bool], expected: str) -> str:
    for value in values:
        if not is_valid(value):
            raise MalformedRequest("request spec", value, expected)
    return ",".join(sorted(values))


def _is_suffix(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 64 and set(value) <= _SUFFIX_CHARACTERS  # noqa: PLR2004


def _is_uuid(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 36 and set(value) <= _UUID_CHARACTERS  # noqa: PLR2004


def _limit(limit: int) -> int:
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise ValueError(f"limit is {limit!r}; expected a whole number of at least 1, or None")
    return limit


def _group_policy(request: Request, groups: dict[str, _Group]) -> str | None:
    policy = request.extra_spec("group_policy")
    if policy in ("none", "isolate"):
        return str(policy)
    suffixed = len(groups.keys() - {""})
    from_flavor = len(request.flavor_groups.keys() - {""})
    # As Nova: two groups need a policy; only where the flavor wrote both itself is it the flavor's to say which.
    return "none" if suffixed > 1 and from_flavor <= 1 else None
