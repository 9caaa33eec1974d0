"""Ask Placement only for hosts that can: image properties and flavor extra specs become traits of the query."""

from os_prefilter.default import process_reqspec
from os_prefilter.pipeline import Decision, Pipeline
from os_prefilter.query import allocation_candidates_query
from os_prefilter.request import Request
from os_prefilter.request_spec import Destination, Flavor, Image, RequestGroup, RequestSpec
from os_prefilter.requirements import NOTHING, Requirement, Requirements

__all__ = [
    "NOTHING",
    "Decision",
    "Destination",
    "Flavor",
    "Image",
    "Pipeline",
    "Request",
    "RequestGroup",
    "RequestSpec",
    "Requirement",
    "Requirements",
    "allocation_candidates_query",
    "process_reqspec",
]
