# SPDX-License-Identifier: Apache-2.0

"""The disk format of the image, which the host must be able to read."""

from os_prefilter.request.requirements import Requirements
from os_prefilter.request.row_requirements import require_rows
from os_prefilter.request.values import rows_of
from os_prefilter.request.view import Request
from os_prefilter.vocabulary.options import Options


def image_type(request: Request, *, options: Options) -> Requirements:
    """Require COMPUTE_IMAGE_TYPE_*: the image's disk format.

    Nothing when booting from a volume, where the host reads no image.
    """
    return require_rows(request, rows_of(request, "image_type"), options)
