# SPDX-License-Identifier: Apache-2.0

"""End of a request, for metrics and history."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from os_prefilter.common.errors import PrefilterError
from os_prefilter.pipeline.decision import Decision, Run, ShadowRun


class CachedDecision(NamedTuple):
    """A decision, with its parts that are the same for equal requests."""

    decision: Decision
    warning: str
    """Logged for each request; empty if there is none."""
    described: str = ""
    """The decision in a line of the history; empty without a history."""


class ShadowResult(NamedTuple):
    """What a shadow filter would have changed in Placement's response."""

    run: ShadowRun
    candidates: int
    """The hosts among Placement's candidates."""
    lacking: int
    """Those of them that lack what the filter requires."""


class RequestEvent(NamedTuple):
    """The end of one request."""

    request_spec: Any
    context: Any
    cached_decision: CachedDecision | None
    """None if an error left no decision."""
    is_cached: bool
    """Whether the decision was made for an earlier request."""
    error: BaseException | None
    """Why the request was not scheduled; None if it was."""
    shadow: Sequence[ShadowResult] = ()
    """What shadow filters would have changed in Placement's response.

    Only of an event of its own, after that of the decision.
    """

    @property
    def runs(self) -> Sequence[Run]:
        """Runs of the filters, up to the one that raised an error."""
        if self.cached_decision:
            return self.cached_decision.decision.runs
        return (
            self.error.runs if isinstance(self.error, PrefilterError) else ()
        )


Observer = Callable[[RequestEvent], None]
