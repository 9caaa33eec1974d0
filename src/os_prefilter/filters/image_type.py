"""The disk format of the image, which the host must be able to read."""

from os_prefilter.asking import ask
from os_prefilter.options import Options
from os_prefilter.request import Request
from os_prefilter.requirements import Requirements
from os_prefilter.vocabulary import rows_asked_by

_ROWS = rows_asked_by("image_type")


def image_type(request: Request, *, options: Options) -> Requirements:
    """Require COMPUTE_IMAGE_TYPE_*; nothing when booting from a volume, where the host reads no image."""
    return ask(request, _ROWS, options)
