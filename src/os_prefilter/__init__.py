"""Ask Placement only for hosts that can: image properties and flavor extra specs become traits of the query."""

from os_prefilter.default import process_reqspec
from os_prefilter.options import Options
from os_prefilter.pipeline import Decision, Pipeline
from os_prefilter.query import allocation_candidates_query
from os_prefilter.request import Request
from os_prefilter.request_spec import Destination, Flavor, Image, RequestGroup, RequestLevelParams, RequestSpec
from os_prefilter.requirements import NOTHING, Note, Requirement, Requirements, forbid, require

__all__ = [
    "NOTHING",
    "Decision",
    "Destination",
    "Flavor",
    "Image",
    "Note",
    "Options",
    "Pipeline",
    "Request",
    "RequestGroup",
    "RequestLevelParams",
    "RequestSpec",
    "Requirement",
    "Requirements",
    "allocation_candidates_query",
    "forbid",
    "process_reqspec",
    "require",
]
