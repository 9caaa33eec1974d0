# SPDX-License-Identifier: Apache-2.0

"""The sound device, for clouds without the filter image_metadata."""

from os_prefilter.request.filter_contract import Declaration
from os_prefilter.request.requirements import Requirements
from os_prefilter.request.row_requirements import require_rows
from os_prefilter.request.values import rows_of
from os_prefilter.request.view import Request
from os_prefilter.vocabulary.options import Options


# The filter image_metadata includes it.
@Declaration(by_default=False)
def sound_model(request: Request, *, options: Options) -> Requirements:
    """Require the sound model of hw_sound_model or hw:sound_model.

    Nova's filter knows virtio only.
    """
    return require_rows(request, rows_of(request, "sound_model"), options)
