# SPDX-License-Identifier: Apache-2.0

"""Cache of filter decisions, keyed by the request's content (ADR 0012)."""

from __future__ import annotations

import marshal
from collections.abc import Callable
from contextlib import suppress

from os_prefilter.request.view import Request
from os_prefilter.service.request_events import CachedDecision

MOST = 1000
"""Maximum number of decisions; those used least recently are evicted."""
LONGEST = 10_000
"""Maximum length of a key in bytes.

No tenant can fill the memory of a scheduler.
"""

# Of marshal's format: later ones write the same value in several ways, by how
# often it is referred to.
_FORMAT = 2


class DecisionCache:
    """Decisions of equal requests. Safe to use from many threads."""

    def __init__(self) -> None:
        self._decisions: dict[bytes, CachedDecision] = {}

    def decide_once(
        self,
        request: Request,
        decide: Callable[[], CachedDecision],
    ) -> tuple[CachedDecision, bool]:
        """Return the decision of an equal request, or decide.

        :return: the decision, and whether it comes from the cache
        """
        decisions, request_key = self._decisions, request.cache_key()
        if request_key is None:
            return decide(), False
        try:
            # Values with their types, as 1, 1.0 and True do not mean the same;
            # nothing but plain values is written.
            key = marshal.dumps(request_key, _FORMAT)
        except ValueError:
            return decide(), False
        if len(key) > LONGEST:
            return decide(), False
        # Taken out and put back last, so that the first is the one that was
        # used least recently.
        known = decisions.pop(key, None)
        decisions[key] = cached = known or decide()
        if len(decisions) > MOST:
            # Another thread may be at it as well.
            with suppress(RuntimeError, KeyError):
                del decisions[next(iter(decisions))]
        return cached, known is not None
