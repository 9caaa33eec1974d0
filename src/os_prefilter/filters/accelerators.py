# SPDX-License-Identifier: Apache-2.0

"""Device profiles of Cyborg."""

from os_prefilter.request.requirements import Requirements
from os_prefilter.request.row_requirements import require_rows
from os_prefilter.request.values import rows_of
from os_prefilter.request.view import Request
from os_prefilter.vocabulary.options import Options


def accelerators(request: Request, *, options: Options) -> Requirements:
    """Require COMPUTE_ACCELERATORS where the flavor names a device profile.

    Hosts whose compute service can attach accelerators have it.
    """
    return require_rows(request, rows_of(request, "accelerators"), options)
