# SPDX-License-Identifier: Apache-2.0

"""Library that makes schedulers ask Placement for capable hosts only.

Image properties and flavor extra specs become traits of the query.
"""

from os_prefilter.common import errors as errors
from os_prefilter.default_service import process_reqspec
from os_prefilter.hosts.capabilities import capability_traits
from os_prefilter.hosts.driver_check import (
    Unsupported,
    guest_settings,
    unsupported,
)
from os_prefilter.hosts.reporter import (
    GuestSettings,
    HostFacts,
    Reporter,
    Setting,
)
from os_prefilter.pipeline.decision import Decision
from os_prefilter.pipeline.pipeline import Pipeline
from os_prefilter.request.query import allocation_candidates_query
from os_prefilter.request.requirements import (
    NOTHING,
    AggregateRequirement,
    Note,
    Preference,
    Requirement,
    Requirements,
    forbid,
    forbid_aggregates,
    prefer,
    require,
    require_aggregates,
)
from os_prefilter.request.spec import (
    Destination,
    Flavor,
    Image,
    NetworkRequest,
    RequestGroup,
    RequestLevelParams,
    RequestSpec,
    ServerOptions,
)
from os_prefilter.request.view import Request
from os_prefilter.vocabulary.model import as_boolean
from os_prefilter.vocabulary.options import Options

# What a scheduler gives.
__all__ = [
    "Destination",
    "Flavor",
    "Image",
    "NetworkRequest",
    "RequestGroup",
    "RequestLevelParams",
    "RequestSpec",
    "ServerOptions",
]
# What a filter reads, and what it returns.
__all__ += [
    "NOTHING",
    "AggregateRequirement",
    "Note",
    "Preference",
    "Request",
    "Requirement",
    "Requirements",
]
__all__ += [
    "as_boolean",
    "forbid",
    "forbid_aggregates",
    "prefer",
    "require",
    "require_aggregates",
]
# How filters run.
__all__ += [
    "Decision",
    "Options",
    "Pipeline",
    "allocation_candidates_query",
    "process_reqspec",
]
# The virt driver's side.
__all__ += ["GuestSettings", "HostFacts", "Reporter", "Setting", "Unsupported"]
__all__ += ["capability_traits", "guest_settings", "unsupported"]
