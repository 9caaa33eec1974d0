# SPDX-License-Identifier: Apache-2.0

"""Query Placement for the hosts that remain for a request."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from os_prefilter.common.errors import (
    MalformedRequest,
    PlacementRefused,
    RequestRejected,
)
from os_prefilter.common.trait_names import CUSTOM_PREFIX
from os_prefilter.pipeline.decision import Decision
from os_prefilter.request.query import Query, query_of, query_string
from os_prefilter.service import Service
from os_prefilter.service.known_traits import find_unknown

if TYPE_CHECKING:
    from os_prefilter.adapters.placement.client import Candidates

_NO_GROUP_POLICY = (
    "Several request groups need a policy: set the flavor extra spec"
    " group_policy to none (they may share a provider) or isolate (they must"
    " not)."
)
_NO_RESOURCES = (
    "The request has no resources, and so Placement has no candidate: CPUs,"
    " memory and disk of the flavor are 0. Request some, or a resource class"
    " by the extra spec resources:CLASS."
)
_BOTH = (
    "The trait {} is required and forbidden{}: no host has and lacks it."
    " Remove one of the two from flavor or image."
)
_NO_CLASS = (
    "No host has the resource class {}, which Placement does not know. Check"
    " its name in the flavor; Ironic's are CUSTOM_ and the node's resource"
    " class in capitals."
)
_UNKNOWN_CLASS = re.compile(r"No such resource class ([A-Z0-9_]+)")


class CandidatesFound(NamedTuple):
    """A query, and the candidates that Placement returned for it."""

    query: str
    candidates: Candidates
    created: tuple[str, ...] = ()
    """Required traits that Placement did not know and that were created."""
    unknown: tuple[str, ...] = ()
    """Required traits that do not exist in Placement.

    No host has them, and the query was not sent.
    """
    notes: tuple[str, ...] = ()
    """Parts of the request that are not required, or not yet, and why."""


class Placement(Protocol):
    """The methods used of a Placement client.

    See :class:`os_prefilter.adapters.placement.client.PlacementClient`.
    """

    def allocation_candidates(self, query: str) -> Candidates:
        """Return the candidates for a query string."""

    def ensure_traits(self, names: Iterable[str]) -> tuple[str, ...]:
        """Create the traits that do not exist, and return them."""

    def traits(self) -> frozenset[str]:
        """Return all traits."""


def find_candidates(
    request_spec: Any, service: Service, placement: Placement
) -> CandidatesFound:
    """Apply the service to the request, and ask Placement.

    :raises PrefilterError: if a filter rejects the request, or Placement does
        not answer.
    """
    decision = service.apply(request_spec)
    return ask_placement(query_of(request_spec), decision, placement)


def ask_placement(
    query: Query,
    decision: Decision,
    placement: Placement,
    limit: int | None = None,
    *,
    live: bool = False,
) -> CandidatesFound:
    """Ask Placement for a request that the service was applied to.

    The ``CUSTOM_`` traits that filters require are created first: Placement
    refuses a query with a trait that it does not know. Traits that a tenant
    wrote are not created.

    Nothing is written to a live Placement: no host has a trait that does not
    exist. If filters require one, the query, which Placement would refuse, is
    not sent; if they forbid it, it is left out of the query.

    :param limit: the most candidates; None for all: a part of them could pass
        for all
    :raises PlacementError: if Placement does not respond, or refuses the query
    :raises RequestRejected: for request groups that Placement refuses
    """
    notes = tuple(
        dict.fromkeys(
            f"Not required yet: {note}" if note.waits else str(note)
            for note in decision.notes
        )
    )
    created: tuple[str, ...] = ()
    if not live:
        created = placement.ensure_traits(
            {
                item.trait
                for item in decision.requirements
                if item.trait.startswith(CUSTOM_PREFIX)
            }
        )
    elif decision.requirements:
        missing = find_unknown(decision.requirements, placement.traits())
        unknown = sorted({item.trait for item in missing if item.required})
        if unknown:
            # Only where a cloud is asked: what it imports takes 0.4 s, which
            # commands without a Placement would wait for.
            from os_prefilter.adapters.placement.client import (  # noqa: PLC0415
                Candidates,
            )

            none = Candidates((), {}, 0)
            text = query_string(query, limit)
            return CandidatesFound(text, none, (), tuple(unknown), notes)
        query = _without_forbidden(query, {item.trait for item in missing})
    check_groups(query)
    text = query_string(query, limit)
    try:
        candidates = placement.allocation_candidates(text)
    except PlacementRefused as error:
        unknown_class = _UNKNOWN_CLASS.search(error.detail)
        if not unknown_class:
            raise
        reason = _NO_CLASS.format(unknown_class[1])
        raise RequestRejected(reason) from error
    return CandidatesFound(text, candidates, created, notes=notes)


def check_groups(query: Query) -> None:
    """Refuse request groups that Placement refuses in unclear words.

    :raises MalformedRequest: for traits of a request group without resources.
    :raises RequestRejected: for a query without resources, for several request
        groups without ``group_policy``, and for a trait that one group
        requires and forbids
    """
    if not any(group.resources for group in query.groups.values()):
        raise RequestRejected(_NO_RESOURCES)
    for suffix, group in query.groups.items():
        both = group.required_traits & group.forbidden_traits
        if both:
            where = f" in request group {suffix}" if suffix else ""
            raise RequestRejected(_BOTH.format(min(both), where))
        if not suffix or group.resources or query.same_subtree:
            continue
        names = sorted({*group.required_traits, *group.forbidden_traits})
        name = names[0] if names else "NAME"
        expected = (
            f"of a group with resources{suffix}:CLASS. Add them, or write"
            f" trait:{name} for one of the host"
        )
        if suffix == "s":
            # The most common suffix that is meant to be none.
            expected = (
                f"of a group with resources. Did you mean 'trait:{name}'? That"
                " one is of the host"
            )
        raise MalformedRequest(
            "flavor extra spec", f"trait{suffix}:{name}", expected
        )
    if len(query.groups.keys() - {""}) > 1 and not query.policy:
        raise RequestRejected(_NO_GROUP_POLICY)


def _without_forbidden(query: Query, traits: set[str]) -> Query:
    groups = {
        suffix: replace(
            group, forbidden_traits=set(group.forbidden_traits) - traits
        )
        for suffix, group in query.groups.items()
    }
    return query._replace(
        groups=groups, root_forbidden=query.root_forbidden - traits
    )
