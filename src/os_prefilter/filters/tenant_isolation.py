#    Licensed under the Apache License, Version 2.0 (the "License"); you may
#    not use this file except in compliance with the License. You may obtain
#    a copy of the License at
#
#         http://www.apache.org/licenses/LICENSE-2.0
#
#    Unless required by applicable law or agreed to in writing, software
#    distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
#    WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
#    License for the specific language governing permissions and limitations
#    under the License.

"""Host aggregates that are for certain tenants."""

from typing import Any

from os_prefilter.common.errors import NoAggregate
from os_prefilter.common.quoting import quote
from os_prefilter.filters.host_aggregates import HostAggregates
from os_prefilter.request.filter_contract import Declaration
from os_prefilter.request.requirements import NOTHING, Requirements, require_aggregates
from os_prefilter.request.view import Request
from os_prefilter.vocabulary.options import Options


@Declaration(by_default=False, takes_unknown=True, reads=("project_id",))
def tenant_isolation(request: Request, *, options: Options, aggregates: Any) -> Requirements:
    """Require a host in one of the aggregates that are for the tenant, where any is."""
    known = HostAggregates.of(aggregates)
    project = request.project_id
    uuids = known.of_tenants.get(project) if project is not None else None
    if uuids:
        return require_aggregates(uuids, f"tenant {quote(project)}", known.describe(uuids))
    if options.tenant_aggregate_required:
        raise NoAggregate(
            "No hosts are available for this tenant",
            "Ask the operator for a host aggregate with the metadata filter_tenant_id of this project.",
        )
    return NOTHING
