# SPDX-License-Identifier: Apache-2.0

"""Encryption of ephemeral disks, and its format."""

from os_prefilter.request.requirements import Requirements
from os_prefilter.request.row_requirements import require_rows
from os_prefilter.request.values import rows_of
from os_prefilter.request.view import Request
from os_prefilter.vocabulary.options import Options


def ephemeral_encryption(
    request: Request, *, options: Options
) -> Requirements:
    """Require encryption of ephemeral disks, and its format if one is named.

    A format alone requires nothing, as in Nova.
    """
    return require_rows(
        request, rows_of(request, "ephemeral_encryption"), options
    )
