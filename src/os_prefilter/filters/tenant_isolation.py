# SPDX-License-Identifier: Apache-2.0

"""Host aggregates that are for certain tenants."""

from __future__ import annotations

from typing import Any

from os_prefilter.common.errors import NoAggregate
from os_prefilter.common.quoting import quote
from os_prefilter.filters.host_aggregates import HostAggregates
from os_prefilter.request.filter_contract import Declaration
from os_prefilter.request.requirements import (
    NOTHING,
    Requirements,
    require_aggregates,
)
from os_prefilter.request.view import Request
from os_prefilter.vocabulary.options import Options


@Declaration(by_default=False, takes_unknown=True, reads=("project_id",))
def tenant_isolation(
    request: Request, *, options: Options, aggregates: Any
) -> Requirements:
    """Require a host in an aggregate of the tenant, if it has any."""
    known = HostAggregates.of(aggregates)
    project = request.project_id
    uuids = known.by_tenant.get(project) if project is not None else None
    if uuids:
        return require_aggregates(
            uuids, f"tenant {quote(project)}", known.describe(uuids)
        )
    if options.tenant_aggregate_required:
        raise NoAggregate(
            "No hosts are available for this tenant",
            "Ask the operator for a host aggregate with the metadata"
            " filter_tenant_id of this project.",
        )
    return NOTHING
