"""The disk format of the image, which the host must be able to read."""

from os_prefilter.asking import ask, questions_of
from os_prefilter.options import Options
from os_prefilter.request import Request
from os_prefilter.requirements import Requirements


def image_type(request: Request, *, options: Options) -> Requirements:
    """Require COMPUTE_IMAGE_TYPE_*; nothing when booting from a volume, where the host reads no image."""
    return ask(request, questions_of("image_type"), options)
