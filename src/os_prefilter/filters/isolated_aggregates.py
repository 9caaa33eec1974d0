# SPDX-License-Identifier: Apache-2.0

"""Host aggregates that are for requests which require certain traits."""

from __future__ import annotations

from typing import Any

from os_prefilter.common.quoting import escape_line, shorten
from os_prefilter.filters.host_aggregates import HostAggregates
from os_prefilter.request.filter_contract import Declaration
from os_prefilter.request.query import requirements_without_filters
from os_prefilter.request.requirements import (
    NOTHING,
    Requirement,
    Requirements,
    forbid_aggregates,
)
from os_prefilter.request.view import Request

_MOST_TRAITS = 3


@Declaration(by_default=False, takes_unknown=True)
def isolated_aggregates(
    request: Request,
    *,
    aggregates: Any,
    required_before: tuple[Requirement, ...] = (),
) -> Requirements:
    """Forbid aggregates isolated by traits that the request lacks.

    Their metadata has ``trait:NAME=required``.
    """
    known = HostAggregates.of(aggregates)
    if not known.isolated:
        return NOTHING
    # Nova's isolate_aggregates leaves out what request filters require of the
    # root; here both count.
    from_request = requirements_without_filters(request)
    required = {
        item.trait
        for item in (*from_request, *required_before)
        if item.required
    }
    closed = [each for each in known.isolated if not each.traits <= required]
    if not closed:
        return NOTHING
    traits = sorted(
        {
            escape_line(trait)
            for each in closed
            for trait in each.traits - required
        }
    )
    missing = ", ".join(shorten(traits, _MOST_TRAITS))
    uuids = [each.uuid for each in closed]
    # The traits may name other tenants.
    for_operator = f"{missing} ({known.describe(uuids)})"
    return forbid_aggregates(
        uuids, "reserved for requests that require other traits", for_operator
    )
