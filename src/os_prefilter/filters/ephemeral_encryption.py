"""Encryption of ephemeral disks, and its format."""

from os_prefilter.asking import ask
from os_prefilter.options import Options
from os_prefilter.request import Request
from os_prefilter.requirements import Requirements
from os_prefilter.vocabulary import rows_asked_by

_ROWS = rows_asked_by("ephemeral_encryption")


def ephemeral_encryption(request: Request, *, options: Options) -> Requirements:
    """Require encryption, and the format if one is named. A format alone asks for nothing, as in Nova."""
    return ask(request, _ROWS, options)
