"""From a RequestSpec-like object to the query string of ``GET /allocation_candidates``.

The translation is Nova's (``nova/scheduler/utils.py``, ``ResourceRequest``), so that another scheduler asks Placement
what Nova would ask. It needs microversion 1.36; with ``in:`` traits, which this library does not send, 1.39.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import os_resource_classes as orc

from os_prefilter.asking import ask, chosen
from os_prefilter.errors import MalformedRequest, shown
from os_prefilter.extra_specs import is_resource_class, resource_amount, trait_key
from os_prefilter.options import Options
from os_prefilter.request import Request, field_of
from os_prefilter.requirements import NOTHING, UNSUFFIXED, Requirement, Requirements, require
from os_prefilter.vocabulary import BY_NAME, Row, is_trait_name, rows_asked_by, trait_named

MICROVERSION = "1.39"
"""The Placement API microversion that the query is written for."""

BY_REQUEST = "request"
"""The ``filter`` of a requirement that the request states itself."""

_SKIP_UNKNOWN = Options()
_TPM_ROWS = (BY_NAME["tpm_version"], BY_NAME["tpm_model"])
_MEMORY_ROWS = (BY_NAME["mem_encryption"], BY_NAME["mem_encryption_model"])
_SIMPLE_ROWS = tuple(row for row in rows_asked_by("query") if row not in (*_TPM_ROWS, *_MEMORY_ROWS))
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
    :raises MalformedRequest: if part of the request cannot be put into a query.
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


def stated_requirements(request: Request) -> Requirements:
    """Return the traits that a request states itself, without any filter: who asked for them, and why.

    These are the flavor's and the image's ``trait:`` entries, what Nova translates while it builds the query, and the
    traits of the groups that ports, device profiles and PCI devices brought.
    """
    translated = ask(request, _SIMPLE_ROWS, _SKIP_UNKNOWN, UNSUFFIXED) + _translated_pairs(request)
    asked = [*_written_in_flavor(request), *_written_in_image(request), *translated.asked, *_brought_by_groups(request)]
    return Requirements(tuple(item._replace(filter=BY_REQUEST) for item in asked), translated.notes)


def unsuffixed_resources(request_spec: Any, request: Request) -> dict[str, int]:
    """Return what the group without a suffix asks for, by resource class; MiB and GiB as in the flavor."""
    in_groups = {name for group in request.flavor_groups.values() for name in group.resources}
    for requested in request.requested_groups.values():
        in_groups.update(field_of(requested, "resources", {}))
    unsuffixed = request.flavor_groups.get("")
    resources = dict(unsuffixed.resources) if unsuffixed else {}
    flavor = field_of(request_spec, "flavor")
    if not in_groups & {orc.VCPU, orc.PCPU}:
        resources[orc.VCPU] = _amount(flavor, "vcpus")
    if orc.MEMORY_MB not in in_groups:
        resources[orc.MEMORY_MB] = _amount(flavor, "memory_mb")
    if orc.DISK_GB not in in_groups:
        resources[orc.DISK_GB] = _disk_gb(flavor, request)
    if _is_on(request, "mem_encryption"):
        resources[orc.MEM_ENCRYPTION_CONTEXT] = 1
    return {name: amount for name, amount in resources.items() if amount}


def _disk_gb(flavor: Any, request: Request) -> int:
    root = 0 if request.boots_from_volume else _amount(flavor, "root_gb")
    # Swap is in MiB and takes whole GiB.
    return root + _amount(flavor, "ephemeral_gb") + -(-_amount(flavor, "swap") // 1024)


def _amount(flavor: Any, name: str) -> int:
    value = field_of(flavor, name, 0)
    amount = resource_amount(value)
    if amount is None:
        raise MalformedRequest(f"flavor field {name}", value, "a whole number of at least 0")
    return amount


def _groups(request: Request, request_spec: Any) -> dict[str, _Group]:
    groups = {suffix: _Group(resources=dict(group.resources)) for suffix, group in request.flavor_groups.items()}
    for suffix, requested in request.requested_groups.items():
        if suffix in groups or not _is_suffix(suffix):
            raise MalformedRequest(
                "requested_resources: the requester_id", suffix, "a unique suffix of 1 to 64 of a-z A-Z 0-9 _ -"
            )
        groups[suffix] = _requested_group(requested)
    unsuffixed = groups.setdefault("", _Group())
    unsuffixed.resources = unsuffixed_resources(request_spec, request)
    for item in stated_requirements(request).asked:
        group = groups["" if item.scope == UNSUFFIXED else item.scope]
        (group.required if item.required else group.forbidden).add(item.trait)
    _add_destination(unsuffixed, field_of(request_spec, "requested_destination"))
    for group in groups.values():
        group.resources = {name: amount for name, amount in group.resources.items() if amount}
    return {suffix: group for suffix, group in groups.items() if not group.is_empty()}


def _requested_group(requested: Any) -> _Group:
    resources = field_of(requested, "resources", {})
    for name, amount in resources.items():
        if not is_resource_class(name) or resource_amount(amount) is None:
            raise MalformedRequest("requested_resources", f"{name}:{amount}", "a resource class and a whole number")
    return _Group(
        resources={name: int(amount) for name, amount in resources.items()},
        aggregates=[list(each) for each in field_of(requested, "aggregates", ())],
        forbidden_aggregates=set(field_of(requested, "forbidden_aggregates", ())),
        in_tree=field_of(requested, "in_tree"),
    )


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
    ]
    return parameters


def _group_parameters(suffix: str, group: _Group) -> Iterable[tuple[str, str]]:
    if group.resources:
        yield f"resources{suffix}", ",".join(f"{name}:{amount}" for name, amount in sorted(group.resources.items()))
    if traits := _signed(group.required, group.forbidden):
        yield f"required{suffix}", traits
    for aggregates in group.aggregates:
        yield f"member_of{suffix}", "in:" + _joined(aggregates, _is_uuid, "the UUID of an aggregate")
    if group.forbidden_aggregates:
        yield f"member_of{suffix}", "!in:" + _joined(group.forbidden_aggregates, _is_uuid, "the UUID of an aggregate")
    if group.in_tree:
        yield f"in_tree{suffix}", _joined([group.in_tree], _is_uuid, "the UUID of a provider")


def _signed(required: Iterable[str], forbidden: Iterable[str]) -> str:
    for trait in (*required, *forbidden):
        if not is_trait_name(trait):
            raise MalformedRequest("request spec", trait, "a trait name of A-Z, 0-9 and _")
    return ",".join([*sorted(required), *(f"!{trait}" for trait in sorted(forbidden))])


def _joined(values: Iterable[str], is_valid: Callable[[object], bool], expected: str) -> str:
    ordered = sorted(values)
    for value in ordered:
        if not is_valid(value):
            raise MalformedRequest("request spec", value, expected)
    return ",".join(ordered)


def _is_suffix(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 64 and set(value) <= _SUFFIX_CHARACTERS  # noqa: PLR2004


def _is_uuid(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 36 and set(value) <= _UUID_CHARACTERS  # noqa: PLR2004


def _limit(limit: int) -> int:
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise MalformedRequest("limit", limit, "a whole number of at least 1, or None")
    return limit


def _group_policy(request: Request, groups: dict[str, _Group]) -> str | None:
    policy = request.extra_spec("group_policy")
    if policy in ("none", "isolate"):
        return str(policy)
    suffixed = len(groups.keys() - {""})
    from_flavor = len(request.flavor_groups.keys() - {""})
    # As Nova: two groups need a policy; only where the flavor wrote both itself is it the flavor's to say which.
    return "none" if suffixed > 1 and from_flavor <= 1 else None


# -- what the request states itself ------------------------------------------------------------------------------------


def _written_in_flavor(request: Request) -> Iterable[Requirement]:
    for suffix, group in request.flavor_groups.items():
        for required, traits in ((True, group.required), (False, group.forbidden)):
            for trait in sorted(traits):
                source = f"flavor extra spec {trait_key(trait, suffix)}={'required' if required else 'forbidden'}"
                yield Requirement(trait_named(trait), required, suffix or UNSUFFIXED, source)


def _written_in_image(request: Request) -> Iterable[Requirement]:
    for trait in request.image_traits:
        yield Requirement(trait_named(trait), True, UNSUFFIXED, f"image property trait:{trait}=required")


def _brought_by_groups(request: Request) -> Iterable[Requirement]:
    for suffix, group in request.requested_groups.items():
        for required, name in ((True, "required_traits"), (False, "forbidden_traits")):
            for trait in sorted(field_of(group, name, ())):
                if not is_trait_name(trait):
                    raise MalformedRequest(f"request group {shown(suffix)}", trait, "a trait name of A-Z, 0-9 and _")
                yield Requirement(trait_named(trait), required, suffix, f"request group {suffix}")


def _translated_pairs(request: Request) -> Requirements:
    """Translate the two pairs of properties of which the second means nothing without the first."""
    tpm = ask(request, _TPM_ROWS[:1], _SKIP_UNKNOWN, UNSUFFIXED)
    if tpm.asked:
        tpm += _or_default(request, _TPM_ROWS[1], "tpm-tis", "emulated TPM without a model: tpm-tis")
    memory = ask(request, _MEMORY_ROWS[:1], _SKIP_UNKNOWN, UNSUFFIXED)
    if _is_on(request, "mem_encryption"):
        memory += _or_default(request, _MEMORY_ROWS[1], "amd-sev", "memory encryption without a model: amd-sev")
    return tpm + memory


def _or_default(request: Request, row: Row, default: str, source: str) -> Requirements:
    answer = ask(request, [row], _SKIP_UNKNOWN, UNSUFFIXED)
    # A model that nobody knows is noted, not replaced by the default.
    return answer if answer != NOTHING else require(str(row.values[default].trait), source, UNSUFFIXED)


def _is_on(request: Request, name: str) -> bool:
    found = chosen(request, BY_NAME[name], _SKIP_UNKNOWN, [])
    return found is not None and found[0] == "true"
