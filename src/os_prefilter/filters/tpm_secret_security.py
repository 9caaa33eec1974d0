# SPDX-License-Identifier: Apache-2.0

"""Require a host that keeps an emulated TPM's secret as requested."""

from os_prefilter.request.requirements import Requirements
from os_prefilter.request.row_requirements import require_rows
from os_prefilter.request.values import rows_of
from os_prefilter.request.view import Request
from os_prefilter.vocabulary.options import Options


def tpm_secret_security(request: Request, *, options: Options) -> Requirements:
    """Require hw:tpm_secret_security where an emulated TPM is requested.

    By default it is "user".
    """
    return require_rows(
        request, rows_of(request, "tpm_secret_security"), options
    )
