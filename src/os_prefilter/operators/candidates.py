"""From a request to the hosts that remain."""

from typing import Any, NamedTuple, Protocol

from os_prefilter.pipeline import Decision, Pipeline
from os_prefilter.query import allocation_candidates_query
from os_prefilter.vocabulary import CUSTOM_PREFIX


class Found(NamedTuple):
    """What was decided and asked, and what Placement answered."""

    decision: Decision
    query: str
    candidates: Any


class Placement(Protocol):
    """What is needed of a Placement client (:class:`os_prefilter.adapters.placement.PlacementClient`)."""

    def allocation_candidates(self, query: str) -> Any:
        """Return the candidates for a query string."""

    def ensure_traits(self, names: Any) -> Any:
        """Create those traits that are not there."""


def find_candidates(request_spec: Any, pipeline: Pipeline, placement: Placement) -> Found:
    """Apply the pipeline to the request, and ask Placement.

    The ``CUSTOM_`` traits that filters require are created first: a query with a trait that Placement does not know is
    refused as a whole.

    :raises PrefilterError: if a filter rejects the request, or Placement does not answer.
    """
    decision = pipeline.apply(request_spec)
    placement.ensure_traits({item.trait for item in decision.requirements if item.trait.startswith(CUSTOM_PREFIX)})
    # All of them: a part of the answer would pass for the whole.
    query = allocation_candidates_query(request_spec, limit=None)
    return Found(decision, query, placement.allocation_candidates(query))
