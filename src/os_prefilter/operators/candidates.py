"""From a request to the hosts that remain."""

from typing import Any, NamedTuple, Protocol

from os_prefilter.pipeline import Decision, Pipeline
from os_prefilter.query import allocation_candidates_query
from os_prefilter.terms import CUSTOM_PREFIX


class Found(NamedTuple):
    """What was asked, and what Placement answered."""

    query: str
    candidates: Any
    created: tuple[str, ...]
    """Traits that had to be created, because a filter requires them and Placement did not know them."""


class Placement(Protocol):
    """What is needed of a Placement client (:class:`os_prefilter.adapters.placement.PlacementClient`)."""

    def allocation_candidates(self, query: str) -> Any:
        """Return the candidates for a query string."""

    def ensure_traits(self, names: Any) -> Any:
        """Create those traits that are not there, and return them."""


def find_candidates(request_spec: Any, pipeline: Pipeline, placement: Placement) -> Found:
    """Apply the pipeline to the request, and ask Placement.

    :raises PrefilterError: if a filter rejects the request, or Placement does not answer.
    """
    return ask_placement(request_spec, pipeline.apply(request_spec), placement)


def ask_placement(request_spec: Any, decision: Decision, placement: Placement) -> Found:
    """Ask Placement for a request that the pipeline was applied to.

    The ``CUSTOM_`` traits that filters require are created first: a query with a trait that Placement does not know is
    refused as a whole. Those that a tenant wrote are not.

    :raises PlacementError: if Placement does not answer, or refuses the query.
    """
    custom = {item.trait for item in decision.requirements if item.trait.startswith(CUSTOM_PREFIX)}
    created = tuple(placement.ensure_traits(custom))
    # All candidates: a part of the answer would pass for the whole.
    query = allocation_candidates_query(request_spec, limit=None)
    return Found(query, placement.allocation_candidates(query), created)
