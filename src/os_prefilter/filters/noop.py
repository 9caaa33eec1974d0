"""Ask for nothing: the worked example of a filter."""

from os_prefilter.request import Request
from os_prefilter.requirements import NOTHING, Requirements


def noop(request: Request) -> Requirements:  # noqa: ARG001
    """Ask for nothing, whatever the request says."""
    return NOTHING
