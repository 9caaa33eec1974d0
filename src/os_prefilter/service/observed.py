# SPDX-License-Identifier: Apache-2.0

"""The end of a request, as metrics and history get it."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from os_prefilter.common.errors import PrefilterError
from os_prefilter.pipeline.decision import Decision, Run
from os_prefilter.service.no_host import RootDemand


class Outcome(NamedTuple):
    """A decision, and what is the same each time it is applied."""

    decision: Decision
    root_demand: RootDemand | None
    """Demand of the decision on the root of a host; None where the hosts that
    have it are not looked up.
    """
    warning: str
    """Logged for each request; empty if there is none."""
    described: str = ""
    """The decision as a part of a line of the history; empty without a
    history.
    """


class Observed(NamedTuple):
    """One request and its end."""

    request_spec: Any
    context: Any
    outcome: Outcome | None
    """None if there is no decision because of the error."""
    is_cached: bool
    """True if the decision was taken for an earlier request."""
    error: BaseException | None
    """Why the request was not scheduled; None if it was."""

    @property
    def runs(self) -> Sequence[Run]:
        """The runs of the filters, up to the one that raised an error."""
        if self.outcome:
            return self.outcome.decision.runs
        return (
            self.error.runs if isinstance(self.error, PrefilterError) else ()
        )


Observe = Callable[[Observed], None]
