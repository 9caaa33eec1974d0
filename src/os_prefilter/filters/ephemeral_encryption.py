"""Encryption of ephemeral disks, and its format."""

from os_prefilter.asking import ask
from os_prefilter.options import Options
from os_prefilter.request import Request
from os_prefilter.requirements import Requirements
from os_prefilter.vocabulary import BY_NAME


def ephemeral_encryption(request: Request, *, options: Options) -> Requirements:
    """Require encryption, and the format if one is named. A format alone asks for nothing, as in Nova."""
    encryption = ask(request, [BY_NAME["ephemeral_encryption"]], options)
    if not encryption.asked:
        return encryption
    return encryption + ask(request, [BY_NAME["ephemeral_encryption_format"]], options)
