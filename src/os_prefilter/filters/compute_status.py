"""Disabled compute services."""

import os_traits

from os_prefilter.request import Request
from os_prefilter.requirements import Requirements, forbid

_ANSWER = forbid(os_traits.COMPUTE_STATUS_DISABLED, "every request: no disabled compute service")


def compute_status(request: Request) -> Requirements:  # noqa: ARG001
    """Forbid COMPUTE_STATUS_DISABLED, which Nova puts on the provider of a disabled compute service."""
    return _ANSWER
