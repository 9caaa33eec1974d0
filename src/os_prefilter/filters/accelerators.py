"""Device profiles of Cyborg."""

from os_prefilter.asking import ask
from os_prefilter.options import Options
from os_prefilter.request import Request
from os_prefilter.requirements import Requirements
from os_prefilter.vocabulary import rows_asked_by

_ROWS = rows_asked_by("accelerators")


def accelerators(request: Request, *, options: Options) -> Requirements:
    """Require COMPUTE_ACCELERATORS, a compute service that can attach them, where the flavor names a device profile."""
    return ask(request, _ROWS, options)
