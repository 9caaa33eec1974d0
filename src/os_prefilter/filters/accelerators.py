"""Device profiles of Cyborg."""

from os_prefilter.asking import ask, questions_of
from os_prefilter.options import Options
from os_prefilter.request import Request
from os_prefilter.requirements import Requirements


def accelerators(request: Request, *, options: Options) -> Requirements:
    """Require COMPUTE_ACCELERATORS, a compute service that can attach them, where the flavor names a device profile."""
    return ask(request, questions_of("accelerators"), options)
