"""From a request to the hosts that remain."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol
from urllib.parse import parse_qsl, urlencode

from os_prefilter.pipeline.decision import Decision
from os_prefilter.pipeline.pipeline import Pipeline
from os_prefilter.pipeline.query import allocation_candidates_query
from os_prefilter.vocabulary.model import CUSTOM_PREFIX


class Found(NamedTuple):
    """What was asked, and what Placement answered."""

    query: str
    candidates: Any
    created: tuple[str, ...]
    """Traits that had to be created, because a filter requires them and Placement did not know them."""
    unknown: tuple[str, ...] = ()
    """Required traits that do not exist in Placement: no host has them, and it was not asked."""
    notes: tuple[str, ...] = ()
    """What of the request was not asked for, or not yet, and why; each once."""


@dataclass(frozen=True)
class NoCandidates:
    """The answer where it is known without asking."""

    hosts: tuple[str, ...] = ()
    count: int = 0


class Placement(Protocol):
    """What is needed of a Placement client (:class:`os_prefilter.adapters.placement.client.PlacementClient`)."""

    def allocation_candidates(self, query: str) -> Any:
        """Return the candidates for a query string."""

    def ensure_traits(self, names: Any) -> Any:
        """Create those traits that are not there, and return them."""


class LivePlacement(Protocol):
    """What is needed of a Placement client that only reads."""

    def allocation_candidates(self, query: str) -> Any:
        """Return the candidates for a query string."""

    def custom_traits(self) -> frozenset[str]:
        """Return each ``CUSTOM_`` trait that is there."""


def find_candidates(request_spec: Any, pipeline: Pipeline, placement: Placement) -> Found:
    """Apply the pipeline to the request, and ask Placement.

    :raises PrefilterError: if a filter rejects the request, or Placement does not answer.
    """
    return ask_placement(request_spec, pipeline.apply(request_spec), placement)


def ask_placement(request_spec: Any, decision: Decision, placement: Placement, limit: int | None = None) -> Found:
    """Ask Placement for a request that the pipeline was applied to.

    The ``CUSTOM_`` traits that filters require are created first: a query with a trait that Placement does not know is
    refused as a whole. Those that a tenant wrote are not.

    :param limit: at most so many candidates; None for all: a part of the answer could pass for the whole
    :raises PlacementError: if Placement does not answer, or refuses the query.
    """
    custom = _custom_traits(decision)
    created = tuple(placement.ensure_traits(custom))
    query = allocation_candidates_query(request_spec, limit)
    return Found(query, placement.allocation_candidates(query), created, notes=_notes(decision))


def ask_live_placement(
    request_spec: Any, decision: Decision, placement: LivePlacement, limit: int | None = None
) -> Found:
    """Do the same without writing anything.

    A ``CUSTOM_`` trait that filters require and that does not exist is one that no host has: Placement, which would
    refuse the query, is not asked. One that they forbid, and that does not exist, is left out of the query.

    :param limit: at most so many candidates; None for all
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
    return Found(query, placement.allocation_candidates(query), (), notes=_notes(decision))


def _notes(decision: Decision) -> tuple[str, ...]:
    return tuple(dict.fromkeys(f"Not asked for yet: {note}" if note.waits else str(note) for note in decision.notes))


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
