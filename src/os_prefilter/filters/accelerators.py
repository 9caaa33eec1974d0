"""Device profiles of Cyborg."""

import os_traits

from os_prefilter.request import Request
from os_prefilter.requirements import NOTHING, Requirements, require

_PROFILE = "accel:device_profile"


def accelerators(request: Request) -> Requirements:
    """Require COMPUTE_ACCELERATORS, a compute service that can attach them, where the flavor names a device profile."""
    if not request.extra_spec(_PROFILE):
        return NOTHING
    # The profile's name is not shown: it is free text, and the trait does not depend on it.
    return require(os_traits.COMPUTE_ACCELERATORS, f"flavor extra spec {_PROFILE}")
