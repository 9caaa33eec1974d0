"""Encryption of ephemeral disks, and its format."""

from os_prefilter.conf.options import Options
from os_prefilter.filters.vocabulary_filter import ask, questions_of
from os_prefilter.request.requirements import Requirements
from os_prefilter.request.view import Request


def ephemeral_encryption(request: Request, *, options: Options) -> Requirements:
    """Require encryption, and the format if one is named. A format alone asks for nothing, as in Nova."""
    return ask(request, questions_of("ephemeral_encryption"), options)
