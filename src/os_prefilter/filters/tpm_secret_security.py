"""Who may read the secret of an emulated TPM."""

from os_prefilter.asking import ask
from os_prefilter.options import Options
from os_prefilter.request import Request
from os_prefilter.requirements import Requirements
from os_prefilter.vocabulary import rows_asked_by

_ROWS = rows_asked_by("tpm_secret_security")


def tpm_secret_security(request: Request, *, options: Options) -> Requirements:
    """Require the flavor's hw:tpm_secret_security, by default "user", where an emulated TPM is asked for."""
    return ask(request, _ROWS, options)
