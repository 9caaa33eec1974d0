"""Query Placement for the hosts that remain for a request that the service was applied to."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol
from urllib.parse import parse_qsl, urlencode

from os_prefilter.common.trait_names import CUSTOM_PREFIX
from os_prefilter.pipeline.decision import Decision
from os_prefilter.request.query import allocation_candidates_query
from os_prefilter.service import Service


@dataclass(frozen=True)
class NoCandidates:
    """The candidates where it is known without a query that there are none."""

    hosts: tuple[str, ...] = ()
    count: int = 0


class Found(NamedTuple):
    """A query, and the candidates that Placement returned for it."""

    query: str
    candidates: Any
    created: tuple[str, ...] = ()
    """Traits that had to be created, because a filter requires them and Placement did not know them."""
    unknown: tuple[str, ...] = ()
    """Required traits that do not exist in Placement: no host has them, and the query was not sent."""
    notes: tuple[str, ...] = ()
    """The parts of the request that are not required, or not yet, and why; each once."""


class Placement(Protocol):
    """What is needed of a Placement client (:class:`os_prefilter.adapters.placement.client.PlacementClient`)."""

    def allocation_candidates(self, query: str) -> Any:
        """Return the candidates for a query string."""

    def ensure_traits(self, names: Any) -> Any:
        """Create the traits that do not exist, and return them."""


class LivePlacement(Protocol):
    """What is needed of a Placement client that only reads."""

    def allocation_candidates(self, query: str) -> Any:
        """Return the candidates for a query string."""

    def custom_traits(self) -> frozenset[str]:
        """Return each ``CUSTOM_`` trait that exists."""


def find_candidates(request_spec: Any, service: Service, placement: Placement) -> Found:
    """Apply the service to the request, and ask Placement.

    :raises PrefilterError: if a filter rejects the request, or Placement does not answer.
    """
    return ask_placement(request_spec, service.apply(request_spec), placement)


def ask_placement(request_spec: Any, decision: Decision, placement: Placement, limit: int | None = None) -> Found:
    """Ask Placement for a request that the service was applied to.

    The ``CUSTOM_`` traits that filters require are created first: Placement refuses a query with a trait that it does
    not know. Traits that a tenant wrote are not created.

    :param limit: the most candidates; None for all: a part of them could pass for all
    :raises PlacementError: if Placement does not answer, or refuses the query.
    """
    created = tuple(placement.ensure_traits(_custom_traits(decision)))
    query = allocation_candidates_query(request_spec, limit)
    return Found(query, placement.allocation_candidates(query), created, notes=_notes(decision))


def ask_live_placement(
    request_spec: Any, decision: Decision, placement: LivePlacement, limit: int | None = None
) -> Found:
    """Do as :func:`ask_placement`, without writing anything.

    No host has a ``CUSTOM_`` trait that does not exist. If filters require one, the query, which Placement would
    refuse, is not sent; if they forbid it, it is left out of the query.

    :param limit: the most candidates; None for all
    :raises PlacementError: if Placement does not answer, or refuses the query.
    """
    query = allocation_candidates_query(request_spec, limit)
    custom = _custom_traits(decision)
    missing = custom - placement.custom_traits() if custom else frozenset()
    required = {item.trait for item in decision.requirements if item.required}
    if unknown := tuple(sorted(missing & required)):
        return Found(query, NoCandidates(), (), unknown, _notes(decision))
    if missing:
        query = _without_forbidden(query, missing)
    return Found(query, placement.allocation_candidates(query), notes=_notes(decision))


def _notes(decision: Decision) -> tuple[str, ...]:
    return tuple(dict.fromkeys(f"Not required yet: {note}" if note.waits else str(note) for note in decision.notes))


def _custom_traits(decision: Decision) -> set[str]:
    return {item.trait for item in decision.requirements if item.trait.startswith(CUSTOM_PREFIX)}


def _without_forbidden(query: str, traits: Collection[str]) -> str:
    """Return a query that does not forbid these traits any more."""
    forbidden = {f"!{trait}" for trait in traits}
    parameters = []
    for name, value in parse_qsl(query):
        if name.startswith(("required", "root_required")):
            kept = [each for each in value.split(",") if each not in forbidden]
            parameters += [(name, ",".join(kept))] * bool(kept)
        else:
            parameters.append((name, value))
    return urlencode(parameters)
